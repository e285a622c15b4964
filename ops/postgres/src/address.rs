//! Connection strings of libpq: host, authentication and TLS options.

use std::path::PathBuf;

use anabranch_ops_tls::{Identity, TlsError, Trust};
use anabranch_record::text::Str;
use rustls::ClientConfig;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

/// TLS connector of the PostgreSQL client.
pub type Tls = MakeRustlsConnect;

/// A parsed connection string.
#[derive(Clone, Debug)]
pub struct Address {
    /// All options except the certificates of TLS, including whether TLS is used.
    pub config: Config,
    trust: Trust,
    identity: Option<Identity>,
}

/// Reason why a connection string is invalid. Contains no part of it, because the string may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

/// TLS options that the client library does not support and this module parses.
const OURS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

impl Address {
    /// Parses `postgresql://user:password@host:port/database?option=value`, or the `key=value` form of libpq.
    /// `sslmode`, `sslrootcert`, `sslcert` and `sslkey` have the same meaning as in libpq, but there are no default
    /// files.
    ///
    /// # Errors
    /// Fails if the string is invalid. The error contains no part of the text.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        let text = text.trim();
        if text.split_once("://").is_some_and(|(_, url)| is_cut(url)) {
            return Err(AddressError(
                "an @ follows the end of the host: in the user and the password, write %40 for @, %2F for /, %3F \
                 for ? and %23 for #"
                    .to_owned(),
            ));
        }
        let (rest, mut ours) = match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => of_url(text),
            Some(_) => return Err(AddressError("it must begin with postgresql://".to_owned())),
            None => of_pairs(text),
        };
        let mut take = |name: &str| ours.iter().rposition(|(key, _)| key == name).map(|at| ours.swap_remove(at).1);
        let (mode, roots, certificate, key) = (take("sslmode"), take("sslrootcert"), take("sslcert"), take("sslkey"));
        if let Some(option) = foreign(&rest) {
            return Err(AddressError(format!(
                "the option {option} does not exist: write sslmode=require for TLS, sslmode=verify-full to check \
                 the certificate too, or sslmode=disable for no TLS"
            )));
        }
        let mut config: Config = rest.parse().map_err(|error| unreadable(&error))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(AddressError("it contains no host".to_owned()));
        }
        // The library ends user and password at the first `@`, and messages would show the rest of the password as part
        // of the host.
        let with_at = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(with_at) {
            return Err(AddressError(
                "it has more than one @; write %40 for an @ in the user or the password".to_owned(),
            ));
        }
        let (ssl_mode, trust) = match mode.as_deref() {
            None | Some("allow" | "prefer") => (SslMode::Prefer, Trust::Anything),
            Some("disable") => (SslMode::Disable, Trust::Anything),
            // As in libpq: with a root certificate, `require` verifies the chain.
            Some("require") if roots.is_some() => (SslMode::Require, Trust::Chain),
            Some("require") => (SslMode::Require, Trust::Anything),
            Some("verify-ca") => (SslMode::Require, Trust::Chain),
            Some("verify-full") => (SslMode::Require, Trust::ChainAndName),
            Some(_) => {
                let modes = "disable, allow, prefer, require, verify-ca or verify-full";
                return Err(AddressError(format!("sslmode must be {modes}")));
            }
        };
        config.ssl_mode(ssl_mode);
        if config.get_application_name().is_none() {
            config.application_name("anabranch");
        }
        let trust = match roots {
            Some(path) if path != "system" => trust.with_roots(path),
            _ => trust,
        };
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(Identity { certificates: PathBuf::from(certificate), key: PathBuf::from(key) })
            }
            (Some(_), None) => return Err(AddressError("sslcert needs sslkey, the key of the certificate".to_owned())),
            (None, Some(_)) => return Err(AddressError("sslkey needs sslcert, the certificate of the key".to_owned())),
        };
        Ok(Address { config, trust, identity })
    }

    /// Returns the namespace of tables: the servers and the database, without credentials. Two addresses with the same value
    /// lead to the same database.
    pub fn space(&self) -> Str {
        let host = |host: &Host| match host {
            Host::Tcp(name) if name == "localhost" => "127.0.0.1".to_owned(),
            Host::Tcp(name) => name.to_ascii_lowercase(),
            Host::Unix(path) => path.display().to_string(),
        };
        let ports = self.config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let hosts = self.config.get_hosts().iter().enumerate();
        let mut servers: Vec<String> = hosts.map(|(at, name)| format!("{}:{}", host(name), port(at))).collect();
        servers.sort_unstable();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{}/{database}", servers.join(",")).into()
    }

    /// Builds the TLS connector. Reads the files named in the string.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid.
    pub fn tls(&self) -> Result<Tls, TlsError> {
        Ok(MakeRustlsConnect::new(self.tls_client()?))
    }

    /// Builds the TLS configuration of a client. Reads the files named in the string.
    pub(crate) fn tls_client(&self) -> Result<ClientConfig, TlsError> {
        self.trust.clone().client(self.identity.as_ref())
    }

    /// Returns hosts and ports, for messages.
    pub fn hosts(&self) -> String {
        let ports = self.config.get_ports();
        let port = |i: usize| ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        let shown = self.config.get_hosts().iter().enumerate().map(|(i, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(i)),
            Host::Unix(path) => path.display().to_string(),
        });
        shown.collect::<Vec<_>>().join(",")
    }
}

/// Returns `true` if an unescaped `/`, `?` or `@` in a password ends the host of a URL before its last `@`.
fn is_cut(url: &str) -> bool {
    let Some(last) = url.rfind('@') else { return false };
    let Some(end) = url[..last].find(['/', '?']) else { return false };
    let (authority, behind) = (&url[..end], &url[last + 1..]);
    // The value of an option may contain an @.
    let is_option = url[..last].split_once('?').is_some_and(|(_, query)| query.contains('='));
    // The name of the database at the end may contain one too.
    let is_name = authority.contains('@') && url[end..].starts_with('/') && !behind.contains('/');
    // A list of hosts without a user: the @ is in the path.
    let no_password = !authority.contains([':', '@']);
    !is_option && !is_name && !no_password
}

/// Returns the name of a TLS option of other clients, if the text has one that libpq does not support.
fn foreign(rest: &str) -> Option<&'static str> {
    const OF_OTHERS: [&str; 8] = ["ssl", "sslMode", "ssl_mode", "ssl-mode", "useSSL", "requireSSL", "tls", "tlsMode"];
    let names: Vec<&str> = match rest.split_once("://") {
        Some((_, url)) => url.split_once('?').map_or("", |(_, query)| query).split('&').collect(),
        // A quoted value may contain any text.
        None if rest.contains('\'') => Vec::new(),
        None => rest.split_whitespace().collect(),
    };
    let names = names.into_iter().map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    names.filter_map(|name| OF_OTHERS.into_iter().find(|known| *known == name)).next()
}

/// Splits a URL into its TLS options and the rest.
fn of_url(text: &str) -> (String, Vec<(String, String)>) {
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let is_ours = |pair: &&str| pair.split_once('=').is_some_and(|(key, _)| OURS.contains(&key));
    let (ours, others): (Vec<&str>, Vec<&str>) = pairs.partition(is_ours);
    let ours = ours.into_iter().filter_map(|pair| pair.split_once('='));
    let ours = ours.map(|(key, value)| (key.to_owned(), decode(value))).collect();
    let rest = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
    (rest, ours)
}

/// Splits `key = value` pairs in the same way. Values with spaces are in single quotes; `\` escapes the next character.
fn of_pairs(text: &str) -> (String, Vec<(String, String)>) {
    let (mut rest, mut ours) = (String::new(), Vec::new());
    let mut left = text;
    while let Some((key, after)) = left.split_once('=') {
        let (key, after) = (key.trim(), after.trim_start());
        let is_quoted = after.starts_with('\'');
        let mut value = String::new();
        let mut end = after.len();
        let mut characters = after.char_indices().skip(usize::from(is_quoted));
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => value.extend(characters.next().map(|(_, c)| c)),
                '\'' if is_quoted => {
                    end = at + 1;
                    break;
                }
                c if c.is_whitespace() && !is_quoted => {
                    end = at;
                    break;
                }
                c => value.push(c),
            }
        }
        let (written, more) = after.split_at(end);
        if OURS.contains(&key) {
            ours.push((key.to_owned(), value));
        } else {
            rest.push_str(&format!("{key}={written} "));
        }
        left = more;
    }
    rest.push_str(left);
    (rest, ours)
}

/// Names the invalid option, if the error contains nothing else of the text.
fn unreadable(error: &tokio_postgres::Error) -> AddressError {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match cause.starts_with("invalid value for option") {
        true => AddressError(cause),
        false => AddressError("it cannot be parsed".to_owned()),
    }
}

/// Decodes percent-encoding, for the path of a file.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let code =
            (*first == b'%').then(|| more.get(..2)).flatten().and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(certificates: &str, key: &str) -> Option<Identity> {
        Some(Identity { certificates: certificates.into(), key: key.into() })
    }

    #[test]
    fn both_forms_say_whom_to_trust_and_what_to_show() {
        let address = Address::parse("postgresql://me:s%40cret@db.example:5433/shop?sslmode=verify-full").unwrap();
        assert_eq!((address.hosts().as_str(), address.config.get_dbname()), ("db.example:5433", Some("shop")));
        assert_eq!((address.trust, address.identity), (Trust::ChainAndName, None));
        let url = "postgres://me@h/d?sslrootcert=/a%20b.pem&sslmode=verify-ca&connect_timeout=3&sslcert=%2Fc&sslkey=/k";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.trust, Trust::Chain.with_roots("/a b.pem"));
        assert_eq!((address.identity, address.config.get_dbname()), (identity("/c", "/k"), Some("d")));
        assert_eq!(address.config.get_connect_timeout().map(std::time::Duration::as_secs), Some(3));
        let pairs = r"host=h sslcert='/a b/c.pem' password='it\'s' sslkey = /k\ 1 sslmode=require user=u";
        let address = Address::parse(pairs).unwrap();
        assert_eq!((address.trust, address.identity), (Trust::Anything, identity("/a b/c.pem", "/k 1")));
        assert_eq!(address.config.get_password(), Some(&b"it's"[..]));
        assert_eq!((address.config.get_user(), address.config.get_ssl_mode()), (Some("u"), SslMode::Require));
    }

    #[test]
    fn an_option_of_another_client_is_named_with_ours() {
        for text in [
            "postgresql://me:hunter2@h/d?ssl=true",
            "postgresql://me:hunter2@h/d?connect_timeout=3&ssl=hunter2",
            "postgres://me:hunter2@h/d?sslmode=prefer&useSSL=false",
            "host=h password=hunter2 tls=true",
        ] {
            let error = Address::parse(text).err().unwrap_or_else(|| panic!("{text}")).to_string();
            assert!(error.contains("sslmode=require") && !error.contains("hunter2"), "{error}");
        }
        // A password and a name may be anything.
        assert!(Address::parse("postgresql://ssl:tls@h/d").is_ok());
        assert!(Address::parse("host=h password='ssl tls' user=u").is_ok());
    }

    #[test]
    fn a_password_that_is_not_escaped_is_named() {
        for url in [
            "postgresql://u:p@ss/w#rd@host/db",
            "postgresql://u:p/w@host/db",
            "postgresql://u:1/w@host",
            "postgres://u:p?w@host/db?sslmode=disable",
        ] {
            let error = Address::parse(url).err().unwrap_or_else(|| panic!("{url}")).to_string();
            assert!(error.contains("%2F for /"), "{url}: {error}");
        }
        for url in [
            "postgresql://u:p%40ss%2Fw%23rd@host/db",
            "postgresql://u:p#w@host/db",
            "postgresql://u:p@host/a@b",
            "postgresql://host/a@b",
            "postgresql://u:p@host:5432/db?application_name=a@b",
            "postgresql://host:5432/db?user=u%40x",
        ] {
            Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        }
    }

    #[test]
    fn a_bad_string_is_described_without_its_password() {
        for text in [
            "mysql://me:hunter2@h/d",
            "postgresql://me:hunter2@h:x/d",
            "postgresql://me:hunter2@h/d?sslmode=verify",
            "postgresql://me:hunter2@h/d?color=hunter2",
            "postgresql://me:hunter2@h/d?sslcert=hunter2",
            "postgresql:///d",
            "hunter2",
            "x=hunter2",
            "password='hunter2",
            "postgresql://me:hunt@er2@h/d",
            "postgresql://me:hunt@er2@h,h2/d",
            "postgresql://me@hunt:er2@h/d",
            "host='hunt@er2'",
            "postgresql://me:hunt@er2/w#rd@host/db",
            "postgresql://me:hunt/er2@host/db",
            "postgresql://me:1/hunter2@host",
            "postgresql://me:hunt?er2@host/db",
            "",
        ] {
            let error = Address::parse(text).err().unwrap_or_else(|| panic!("{text}")).to_string();
            assert!(!error.contains("hunt") && !error.contains("er2"), "{error}");
        }
    }
}
