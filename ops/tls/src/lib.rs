//! TLS configuration: trusted certificates and own certificates.
//!
//! Files are in PEM format and are read when a configuration is built. After a change of the files, build a new one.
//!
//! ```
//! use anabranch_ops_tls::Trust;
//!
//! // Accepts any certificate: the connection is only encrypted.
//! assert!(Trust::Anything.client(None).is_ok());
//! // The file with the trusted authorities does not exist.
//! assert!(Trust::ChainAndName.with_roots("/nonexistent/ca.pem").client(None).is_err());
//! ```

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

/// Maximum size of a file with certificates or a key: the roots of a whole system take a quarter of a mebibyte.
const LARGEST: u64 = 16 << 20;

/// Servers to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Any server: the connection is only encrypted.
    Anything,
    /// Servers with a certificate from a trusted authority.
    Chain,
    /// Servers with a certificate from a trusted authority for their host name.
    ChainAndName,
    /// Like the inner value, with the authorities in a file instead of those of the system.
    Roots(Box<Trust>, PathBuf),
    /// A server with the first certificate of a file, under any name.
    Certificate(PathBuf),
}

/// A certificate with its chain and its private key, which one side presents to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// File with the certificates, the own one first.
    pub certificates: PathBuf,
    /// File with the key, without a passphrase.
    pub key: PathBuf,
}

/// Error in a TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or contains no certificate.
    #[error("the certificate in {}: {why}", .path.display())]
    Certificate {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file cannot be read, or contains no usable key.
    #[error("the private key in {}: {why}", .path.display())]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The key does not match the certificate.
    #[error(
        "the private key in {} and the certificate in {}: {}",
        .identity.key.display(), .identity.certificates.display(), words::of(.error)
    )]
    Pair {
        /// Both files.
        identity: Identity,
        /// The reason.
        error: Error,
    },
    /// No file is configured and the system has no root certificates.
    #[error("this system has no root certificates; set a file with root certificates")]
    NoRoots,
    /// The TLS versions are incompatible.
    #[error("{}", words::of(.0))]
    Tls(#[from] Error),
    /// The certificates of the authorities are unusable.
    #[error("the certificates of the authorities cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

pub use file::{open_regular, read_regular, read_regular_text};
pub use words::{Rejected, rejected, said, within};

/// Validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start of the period.
    pub from: SystemTime,
    /// End of the period.
    pub until: SystemTime,
}

impl Trust {
    /// Uses the authorities in this file. [`Trust::Anything`] stays unchanged, because it needs none.
    pub fn with_roots(self, path: impl Into<PathBuf>) -> Trust {
        match self {
            Trust::Anything => Trust::Anything,
            trust => Trust::Roots(Box::new(trust), path.into()),
        }
    }

    /// Builds the configuration of a client, with the identity for servers that request one.
    ///
    /// # Errors
    /// [`TlsError`] if the files are unusable.
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
    /// Builds the configuration of a server, which requests no certificates from clients.
    ///
    /// # Errors
    /// [`TlsError`] if the files are unusable.
    pub fn server(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificates, key) = self.read()?;
        let made = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key);
        made.map_err(|error| TlsError::Pair { identity: self.clone(), error })
    }

    /// Returns the validity period of the own certificate. A server presents an expired certificate without an error,
    /// and clients reject it.
    ///
    /// # Errors
    /// [`TlsError`] if the file is unusable.
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
            why: words::of_pem(&error, "it contains none without a passphrase"),
        })?;
        Ok((certificates(&self.certificates)?, key))
    }
}

/// Returns the certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    const NONE: &str = "it contains none";
    let broken = |why: String| TlsError::Certificate { path: path.into(), why };
    let unread = |error| broken(words::of_pem(&error, NONE));
    let text = read_regular(path, LARGEST).map_err(|error| unread(pem::Error::Io(error)))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(unread)?;
    if found.is_empty() { Err(broken(NONE.to_owned())) } else { Ok(found) }
}

/// Returns the authorities, and the certificates in a file unchanged.
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

/// Checks of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    Nothing,
    /// Checks that the certificate is the configured one.
    Sameness,
    Chain,
    ChainAndName,
}

/// Verifier that performs the configured checks.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Verifier of the certificate chain.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Configured certificates: a server that presents one of them is trusted.
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
            // The name is checked last, so all other checks passed.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !by_name => Ok(ServerCertVerified::assertion()),
            // A self-signed certificate, which the verifier accepts only as an authority.
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
