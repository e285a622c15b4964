//! Whom a connection trusts: the meaning of `sslmode` is libpq's.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Which servers are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Any: the connection is encrypted, and that is all.
    Anything,
    /// One whose certificate a trusted authority signed.
    Chain,
    /// That, and the certificate is for this host.
    ChainAndName,
    /// With the authorities of a PEM file instead of the system's.
    Roots(Box<Trust>, PathBuf),
}

/// Why there can be no trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read, or holds no certificate.
    #[error("sslrootcert {path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// No file is named and the system has none.
    #[error("this system has no root certificates; name a file with sslrootcert")]
    NoRoots,
    /// The certificates or versions of TLS do not fit.
    #[error(transparent)]
    Tls(#[from] Error),
    /// The authorities are of no use.
    #[error(transparent)]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

impl Trust {
    /// With the authorities of this PEM file; who trusts any server needs none.
    pub fn with_roots(self, path: String) -> Trust {
        match self {
            Trust::Anything => Trust::Anything,
            trust => Trust::Roots(Box::new(trust), path.into()),
        }
    }

    /// How TLS is spoken. Reads the root certificates.
    ///
    /// # Errors
    /// [`TrustError`] where there are none.
    pub fn client(self) -> Result<ClientConfig, TrustError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (trust, path) = match self {
            Trust::Roots(trust, path) => (*trust, Some(path)),
            trust => (trust, None),
        };
        let (inner, named) = match trust {
            Trust::Anything => (None, Vec::new()),
            _ => {
                let (roots, named) = roots(path)?;
                (Some(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?), named)
            }
        };
        let by_name = trust == Trust::ChainAndName;
        let verifier = Arc::new(Verifier { provider: provider.clone(), inner, named, by_name });
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth())
    }
}

/// The authorities, and the certificates of a file as they are.
fn roots(path: Option<PathBuf>) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TrustError> {
    let mut roots = RootCertStore::empty();
    let mut named = Vec::new();
    match path {
        Some(path) => {
            let broken = |error: &dyn fmt::Display| TrustError::File { path: path.clone(), why: error.to_string() };
            for certificate in CertificateDer::pem_file_iter(&path).map_err(|e| broken(&e))? {
                let certificate = certificate.map_err(|e| broken(&e))?;
                roots.add(certificate.clone()).map_err(|e| broken(&e))?;
                named.push(certificate);
            }
            if roots.is_empty() {
                return Err(broken(&"it holds no certificate"));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TrustError::NoRoots);
            }
        }
    }
    Ok((roots, named))
}

/// Checks as much as `sslmode` asks for.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// What checks the chain.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that the user named: a server that shows one of them is the one that is meant.
    named: Vec<CertificateDer<'static>>,
    by_name: bool,
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
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, so everything else is as it should be.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.by_name => Ok(ServerCertVerified::assertion()),
            // A certificate that signed itself, which the verifier takes for an authority only.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if self.named.contains(end_entity) => {
                if self.by_name {
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
