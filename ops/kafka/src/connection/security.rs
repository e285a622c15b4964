//! Encryption of the connection, and the login.

use std::path::{Path, PathBuf};

use anabranch_ops_tls::{read_regular, read_regular_text, said};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Choice, Parameters};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use krafka::auth::oidc::{ClientCredentials, OidcTokenProvider};
use krafka::auth::{AuthConfig, TlsConfig};

use crate::codes;

/// Maximum size of a file with certificates, a key or a token.
const LARGEST: u64 = 1 << 20;

/// Parameters of encryption and login.
#[derive(Parameters)]
pub(crate) struct SecurityOptions {
    /// Encrypt the connection.
    #[parameter(name = "tls.enabled", default = false)]
    tls: bool,
    /// Accept any certificate of a server, under any name. The connection is then open to interception.
    #[parameter(default = false, only_with = "tls.enabled")]
    insecure_skip_verify: bool,
    /// Certificates of the authorities to trust, in PEM format, or the path of a file with them. Without it, those of
    /// the system are trusted.
    #[parameter(only_with = "tls.enabled")]
    ca_cert: Argument<Option<Str>>,
    /// Certificate of this client, in PEM format, or the path of a file with it.
    #[parameter(only_with = "tls.enabled")]
    client_cert: Argument<Option<Str>>,
    /// Private key of this client, in PEM format, or the path of a file with it.
    #[parameter(secret, only_with = "tls.enabled")]
    client_key: Argument<Option<Str>>,
    /// How this client logs in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Without it, it does not.
    sasl_mechanism: Option<Argument<Mechanism>>,
    /// User name, for PLAIN and SCRAM.
    sasl_username: Argument<Option<Str>>,
    /// Password, for PLAIN and SCRAM.
    #[parameter(secret)]
    sasl_password: Argument<Option<Str>>,
    /// URL of the server that gives tokens for OAUTHBEARER (OpenID Connect, grant `client_credentials`). https only.
    #[parameter(name = "oauth.tokenURL")]
    token_url: Argument<Option<Str>>,
    /// Id of this client at the server that gives tokens.
    #[parameter(name = "oauth.clientID")]
    oauth_client: Argument<Option<Str>>,
    /// Secret of this client at the server that gives tokens.
    #[parameter(name = "oauth.clientSecret", secret)]
    oauth_secret: Argument<Option<Str>>,
    /// Scope of the tokens.
    #[parameter(name = "oauth.scope")]
    oauth_scope: Option<Str>,
    /// Authorities to trust for the server that gives tokens, as in caCert.
    #[parameter(name = "oauth.caCert")]
    oauth_ca: Option<Str>,
    /// Path of a file with the token for OAUTHBEARER, which another program renews. The file is read for each login.
    #[parameter(name = "oauth.tokenFile")]
    token_file: Option<PathBuf>,
}

/// Ways to log in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mechanism {
    Plain,
    Sha256,
    Sha512,
    OAuth,
}

impl Choice for Mechanism {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("PLAIN", Mechanism::Plain),
        ("SCRAM-SHA-256", Mechanism::Sha256),
        ("SCRAM-SHA-512", Mechanism::Sha512),
        ("OAUTHBEARER", Mechanism::OAuth),
    ];
}

/// Encryption and login of a connection.
pub(super) struct Security {
    encryption: Option<Encryption>,
    login: Option<Login>,
}

/// Certificates of a connection.
struct Encryption {
    checks: bool,
    authorities: Option<Pem>,
    identity: Option<(Pem, Pem)>,
}

/// A text in PEM format, or the file that contains it.
#[derive(Clone)]
enum Pem {
    Text(Str),
    File(PathBuf),
}

enum Login {
    Plain(Str, Str),
    Sha256(Str, Str),
    Sha512(Str, Str),
    Endpoint { url: Str, client: Str, secret: Str, scope: Option<Str>, authorities: Option<Pem> },
    TokenFile(PathBuf),
}

impl Pem {
    fn new(written: &Str) -> Pem {
        let text = written.trim();
        match text.starts_with("-----BEGIN") {
            true => Pem::Text(text.into()),
            false => Pem::File(text.into()),
        }
    }

    /// Reads the text.
    fn read(&self, setting: &'static str) -> Result<Vec<u8>, Fault> {
        match self {
            Pem::Text(text) => Ok(text.as_bytes().to_vec()),
            Pem::File(path) => read_regular(path, LARGEST).map_err(|error| unreadable(setting, path, &error)),
        }
    }
}

fn unreadable(setting: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::fatal(codes::SETTINGS_INVALID, format!("{setting}: the file {}: {}", path.display(), said(error)))
}

impl Security {
    /// Builds encryption and login.
    ///
    /// # Errors
    /// Fails if settings that belong together are incomplete.
    pub(super) fn new(options: &SecurityOptions) -> Result<Security, Diagnostics> {
        let mut findings = Diagnostics::new();
        let pem = |setting: &Argument<Option<Str>>| (**setting).as_ref().map(Pem::new);
        let encryption = options.tls.then(|| Encryption {
            checks: !options.insecure_skip_verify,
            authorities: pem(&options.ca_cert),
            identity: pem(&options.client_cert).zip(pem(&options.client_key)),
        });
        let (cert, key) = (&options.client_cert, &options.client_key);
        if options.tls {
            require(&mut findings, [cert, key]);
        }
        let login = options.sasl_mechanism.as_ref().and_then(|mechanism| {
            let found = match **mechanism {
                Mechanism::OAuth => Login::oauth(options),
                _ => Login::password(options, **mechanism),
            };
            if found.is_none() {
                let needed = match **mechanism {
                    Mechanism::OAuth => "oauth.tokenURL, oauth.clientID and oauth.clientSecret, or oauth.tokenFile",
                    _ => "saslUsername and saslPassword",
                };
                let message = format!("{} needs {needed}", mechanism.name());
                findings.push(mechanism.finding(codes::SETTINGS_REQUIRED, message));
            }
            found
        });
        if options.sasl_mechanism.is_none() {
            require(&mut findings, [&options.sasl_username, &options.sasl_password]);
            if options.sasl_username.is_some() && options.sasl_password.is_some() {
                let setting = &options.sasl_username;
                let message = format!("{} has no effect without saslMechanism", setting.name());
                findings.push(setting.finding(codes::SETTINGS_REQUIRED, message).with_hint("set saslMechanism: PLAIN"));
            }
        }
        if let Some(url) = options.token_url.as_ref()
            && !url.trim().starts_with("https://")
        {
            findings.push(options.token_url.invalid("the URL must begin with https://, because it receives a secret"));
        }
        match findings.has_errors() {
            true => Err(findings),
            false => Ok(Security { encryption, login }),
        }
    }

    /// Returns `true` if certificates come from files, which may be renewed.
    pub(super) fn has_files(&self) -> bool {
        let in_file = |pem: &Pem| matches!(pem, Pem::File(_));
        self.encryption.as_ref().is_some_and(|encryption| {
            encryption.authorities.as_ref().is_some_and(in_file)
                || encryption.identity.as_ref().is_some_and(|(cert, key)| in_file(cert) || in_file(key))
        })
    }

    /// Returns the settings of the client. `None` if the connection is neither encrypted nor logged in.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub(super) fn auth(&self) -> Result<Option<AuthConfig>, Fault> {
        let tls = self.encryption.as_ref().map(Encryption::config).transpose()?;
        let auth = match &self.login {
            None => return Ok(tls.map(AuthConfig::ssl)),
            Some(Login::Plain(user, password)) => AuthConfig::sasl_plain(user.as_str(), password.as_str()),
            Some(Login::Sha256(user, password)) => AuthConfig::sasl_scram_sha256(user.as_str(), password.as_str()),
            Some(Login::Sha512(user, password)) => AuthConfig::sasl_scram_sha512(user.as_str(), password.as_str()),
            Some(Login::TokenFile(path)) => {
                let path = path.clone();
                AuthConfig::sasl_oauthbearer_provider(move || std::future::ready(token(&path)))
            }
            Some(Login::Endpoint { url, client, secret, scope, authorities }) => {
                let mut provider = OidcTokenProvider::builder(url.as_str())
                    .credentials(ClientCredentials::secret(client.as_str(), secret.as_str()));
                if let Some(scope) = scope {
                    provider = provider.scope(scope.as_str());
                }
                provider = match authorities {
                    Some(pem) => provider.ca_cert_pem(pem.read("oauth.caCert")?),
                    None => provider.native_roots(),
                };
                let provider = provider.build().map_err(|error| {
                    Fault::fatal(codes::SETTINGS_INVALID, format!("the server that gives tokens: {error}"))
                })?;
                AuthConfig::sasl_oauthbearer_provider(provider)
            }
        };
        Ok(Some(match tls {
            Some(tls) => auth.with_tls(tls),
            None => auth,
        }))
    }
}

/// Reads a token from a file.
fn token(path: &Path) -> krafka::Result<krafka::auth::OAuthBearerToken> {
    let text = read_regular_text(path, LARGEST).map_err(|error| {
        krafka::KrafkaError::auth(format!("oauth.tokenFile: the file {}: {}", path.display(), said(&error)))
    })?;
    Ok(krafka::auth::OAuthBearerToken::new(text.trim()))
}

/// Adds a finding if only one of two settings that belong together is given.
fn require(findings: &mut Diagnostics, pair: [&Argument<Option<Str>>; 2]) {
    for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
        if one.is_some() && other.is_none() {
            let message = format!("{} needs {}", one.name(), other.name());
            findings.push(one.finding(codes::SETTINGS_REQUIRED, message));
        }
    }
}

impl Login {
    fn password(options: &SecurityOptions, mechanism: Mechanism) -> Option<Login> {
        let user = (*options.sasl_username).clone()?;
        let password = (*options.sasl_password).clone()?;
        Some(match mechanism {
            Mechanism::Sha256 => Login::Sha256(user, password),
            Mechanism::Sha512 => Login::Sha512(user, password),
            Mechanism::Plain | Mechanism::OAuth => Login::Plain(user, password),
        })
    }

    fn oauth(options: &SecurityOptions) -> Option<Login> {
        if let Some(path) = &options.token_file {
            return Some(Login::TokenFile(path.clone()));
        }
        Some(Login::Endpoint {
            url: options.token_url.as_ref()?.trim().into(),
            client: (*options.oauth_client).clone()?,
            secret: (*options.oauth_secret).clone()?,
            scope: options.oauth_scope.clone(),
            authorities: options.oauth_ca.as_ref().map(Pem::new),
        })
    }
}

impl Encryption {
    fn config(&self) -> Result<TlsConfig, Fault> {
        let mut config = match (self.checks, &self.authorities) {
            (false, _) => TlsConfig::insecure(),
            (true, None) => TlsConfig::new().with_native_roots(),
            (true, Some(Pem::File(path))) => {
                // Read here, so that a missing file is named by its setting.
                Pem::File(path.clone()).read("caCert")?;
                TlsConfig::new().with_ca_cert(path.to_string_lossy())
            }
            (true, Some(pem)) => TlsConfig::new().with_ca_cert_pem(pem.read("caCert")?),
        };
        if let Some((cert, key)) = &self.identity {
            let (chain, private) = (cert.read("clientCert")?, key.read("clientKey")?);
            config = match (cert, key) {
                (Pem::File(cert), Pem::File(key)) => {
                    config.with_client_cert(cert.to_string_lossy(), key.to_string_lossy())
                }
                _ => config.with_client_cert_pem(chain, private),
            };
        }
        Ok(config)
    }
}
