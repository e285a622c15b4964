//! TLS: whom a connection trusts, and what it shows of itself.
//!
//! Files are PEM, and are read when a configuration is made of them: whoever changes them makes a new one.

mod file;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::time::Time;

/// The largest file with certificates or a key: the authorities of a whole system have a quarter of a mebibyte.
const LARGEST: u64 = 16 << 20;

/// Which servers are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Any: the connection is encrypted, and that is all.
    Anything,
    /// One whose certificate a trusted authority signed.
    Chain,
    /// That, and the certificate is for this host.
    ChainAndName,
    /// With the authorities of a file instead of the system's.
    Roots(Box<Trust>, PathBuf),
    /// One that shows the first certificate of a file, under whatever name.
    Certificate(PathBuf),
}

/// A certificate with those that lead to its authority, and its private key: what one side shows the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// File with the certificates, its own first.
    pub certificates: PathBuf,
    /// File with the key, which has no passphrase.
    pub key: PathBuf,
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or holds no certificate.
    #[error("the certificate in {}: {why}", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The file cannot be read, or holds no key that can be used.
    #[error("the private key in {}: {why}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The key is not that of the certificate.
    #[error(
        "the private key in {} and the certificate in {}: {}",
        .identity.key.display(), .identity.certificates.display(), words::of(.error)
    )]
    Pair {
        /// Both.
        identity: Identity,
        /// What is wrong with them.
        error: Error,
    },
    /// No file is named and the system has none.
    #[error("this system has no root certificates; name a file with them")]
    NoRoots,
    /// The versions of TLS do not fit.
    #[error("{}", words::of(.0))]
    Tls(#[from] Error),
    /// The authorities are of no use.
    #[error("the certificates of the authorities cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

pub use file::{open_regular, read_regular, read_regular_text};
pub use words::{said, within};

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From then on.
    pub from: SystemTime,
    /// Until then.
    pub until: SystemTime,
}

impl Trust {
    /// With the authorities of this file; who trusts any server needs none.
    pub fn with_roots(self, path: impl Into<PathBuf>) -> Trust {
        match self {
            Trust::Anything => Trust::Anything,
            trust => Trust::Roots(Box::new(trust), path.into()),
        }
    }

    /// How TLS is spoken to a server that is trusted so, with what is shown to one that asks for it.
    ///
    /// # Errors
    /// [`TlsError`] where the files are of no use.
    pub fn client(self, identity: Option<&Identity>) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (trust, path) = match self {
            Trust::Roots(trust, path) => (*trust, Some(path)),
            trust => (trust, None),
        };
        let mut verifier =
            Verifier { provider: provider.clone(), inner: None, named: Vec::new(), checks: Checks::Nothing };
        match trust {
            Trust::Anything | Trust::Roots(..) => {}
            Trust::Certificate(path) => {
                verifier.named = certificates(&path)?;
                verifier.named.truncate(1);
                verifier.checks = Checks::Sameness;
            }
            Trust::Chain | Trust::ChainAndName => {
                let (roots, named) = roots(path)?;
                let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
                (verifier.inner, verifier.named) = (Some(inner), named);
                verifier.checks = if trust == Trust::Chain { Checks::Chain } else { Checks::ChainAndName };
            }
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        match identity {
            None => Ok(builder.with_no_client_auth()),
            Some(identity) => {
                let (certificates, key) = identity.read()?;
                let made = builder.with_client_auth_cert(certificates, key);
                made.map_err(|error| TlsError::Pair { identity: identity.clone(), error })
            }
        }
    }
}

impl Identity {
    /// How TLS is spoken to clients. Nothing is asked of them.
    ///
    /// # Errors
    /// [`TlsError`] where the files are of no use.
    pub fn server(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificates, key) = self.read()?;
        let made = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key);
        made.map_err(|error| TlsError::Pair { identity: self.clone(), error })
    }

    /// When its own certificate is valid. Nothing else looks at that: a server shows one that has expired, and clients
    /// refuse it.
    ///
    /// # Errors
    /// [`TlsError`] where the file is of no use.
    pub fn validity(&self) -> Result<Validity, TlsError> {
        let path = &self.certificates;
        let unreadable =
            || TlsError::Certificate { path: path.clone(), why: "it is not an X.509 certificate".to_owned() };
        let own = certificates(path)?.into_iter().next().ok_or_else(unreadable)?;
        let own = Certificate::from_der(&own).map_err(|_| unreadable())?;
        let validity = own.tbs_certificate.validity;
        let at = |time: Time| SystemTime::UNIX_EPOCH + time.to_unix_duration();
        Ok(Validity { from: at(validity.not_before), until: at(validity.not_after) })
    }

    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let read = read_regular(&self.key, LARGEST).map_err(pem::Error::Io);
        let key = read.and_then(|text| PrivateKeyDer::from_pem_slice(&text)).map_err(|error| TlsError::Key {
            path: self.key.clone(),
            why: words::of_pem(&error, "it holds none without a passphrase"),
        })?;
        Ok((certificates(&self.certificates)?, key))
    }
}

/// The certificates of a file; there is one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    const NONE: &str = "it holds none";
    let broken = |why: String| TlsError::Certificate { path: path.into(), why };
    let unread = |error| broken(words::of_pem(&error, NONE));
    let text = read_regular(path, LARGEST).map_err(|error| unread(pem::Error::Io(error)))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(unread)?;
    if found.is_empty() { Err(broken(NONE.to_owned())) } else { Ok(found) }
}

/// The authorities, and the certificates of a file as they are.
fn roots(path: Option<PathBuf>) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsError> {
    let mut roots = RootCertStore::empty();
    let mut named = Vec::new();
    match path {
        Some(path) => {
            named = certificates(&path)?;
            for certificate in &named {
                let broken = |error: Error| TlsError::Certificate { path: path.clone(), why: words::of(&error) };
                roots.add(certificate.clone()).map_err(broken)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsError::NoRoots);
            }
        }
    }
    Ok((roots, named))
}

/// What is checked of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    Nothing,
    /// That it is the one that was named.
    Sameness,
    Chain,
    ChainAndName,
}

/// Checks as much as is asked for.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// What checks the chain.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that the user named: a server that shows one of them is the one that is meant.
    named: Vec<CertificateDer<'static>>,
    checks: Checks,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by_name = self.checks == Checks::ChainAndName;
        let inner = match (&self.inner, self.checks) {
            (Some(inner), _) => inner,
            (None, Checks::Nothing) => return Ok(ServerCertVerified::assertion()),
            (None, _) if self.named.contains(end_entity) => return Ok(ServerCertVerified::assertion()),
            (None, _) => return Err(CertificateError::ApplicationVerificationFailure.into()),
        };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, so everything else is as it should be.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !by_name => Ok(ServerCertVerified::assertion()),
            // A certificate that signed itself, which the verifier takes for an authority only.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if self.named.contains(end_entity) => {
                if by_name {
                    verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
