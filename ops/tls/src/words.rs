//! Error messages for TLS.
//!
//! The errors of the library contain its own type names and lists of byte values, which do not help users.

use std::io;

use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError, Error};

/// Returns the message for an error of a TLS connection; if TLS is not the reason, the system's message.
pub fn said(error: &io::Error) -> String {
    match error.get_ref() {
        Some(cause) => within(cause).unwrap_or_else(|| error.to_string()),
        None => error.to_string(),
    }
}

/// Returns the message for a TLS error, if one is among the causes of an error.
pub fn within(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    found(error, of)
}

/// The certificate that is the reason for a TLS error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The certificate of the other side: the trusted authorities decide.
    Theirs,
    /// The certificate of this side, or the lack of one.
    Ours,
}

/// Returns the certificate that is the reason for an error, if there is one among its causes.
pub fn rejected(error: &(dyn std::error::Error + 'static)) -> Option<Rejected> {
    found(error, |error| match error {
        Error::InvalidCertificate(_) => Some(Rejected::Theirs),
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied,
        )
        | Error::InconsistentKeys(_) => Some(Rejected::Ours),
        _ => None,
    })
    .flatten()
}

/// Applies a function to the TLS error among the causes of an error.
fn found<T>(error: &(dyn std::error::Error + 'static), describe: fn(&Error) -> T) -> Option<T> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return Some(describe(error));
        }
        // An I/O error that wraps another one does not return it as its source.
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|wrapped| found(wrapped, describe)) {
            return Some(found);
        }
        next = cause.source();
    }
    None
}

/// Returns the message for a TLS error.
pub(crate) fn of(error: &Error) -> String {
    let words = match error {
        Error::InvalidCertificate(error) => return of_certificate(error),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "the other side does not use TLS, or violates its rules"
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(_) => "the two sides have no TLS version or cipher in common",
        Error::InconsistentKeys(_) => "the private key does not belong to the certificate",
        Error::NoCertificatesPresented => "the other side presents no certificate",
        Error::UnsupportedNameType => "a certificate cannot contain the name of the host",
        Error::HandshakeNotComplete => "the other side closed the connection before it was secure",
        Error::FailedToGetCurrentTime => "the system cannot read its clock",
        Error::NoApplicationProtocol => "the two sides have no protocol in common",
        Error::DecryptError => "the data from the other side cannot be decrypted",
        Error::General(what) => return what.clone(),
        _ => "the connection could not be made secure",
    };
    words.to_owned()
}

fn of_certificate(error: &CertificateError) -> String {
    let words = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet"
        }
        CertificateError::Revoked => "the certificate was revoked",
        CertificateError::UnknownIssuer => "the certificate is not signed by a trusted authority",
        CertificateError::NotValidForName => "the certificate is not valid for this host",
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<&str> = presented.iter().map(|name| name.trim_matches('"')).collect();
            let named = if presented.is_empty() { "no host".to_owned() } else { presented.join(", ") };
            return format!("the certificate is not valid for {}; it names {named}", expected.to_str());
        }
        CertificateError::BadEncoding => "the certificate cannot be read",
        CertificateError::BadSignature => "the certificate was not signed by the authority that it names",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not valid for this use: servers and clients need different certificates"
        }
        CertificateError::ApplicationVerificationFailure => "it is not the configured certificate",
        CertificateError::Other(_) => {
            "the certificate is that of an authority: a server needs its own certificate, signed by the authority"
        }
        other => return format!("the certificate is not accepted: {}", named(&format!("{other:?}"))),
    };
    words.to_owned()
}

/// Returns the name of a variant as words: `UnhandledCriticalExtension` becomes `unhandled critical extension`.
fn named(variant: &str) -> String {
    let mut words = String::new();
    for letter in variant.chars().take_while(char::is_ascii_alphabetic) {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words.strip_suffix(" context").unwrap_or(&words).to_owned()
}

fn of_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA => {
            "the other side does not trust the authority of the certificate that it receives"
        }
        AlertDescription::CertificateExpired => {
            "the other side reports that the certificate that it receives has expired"
        }
        AlertDescription::CertificateRequired => "the other side requests a certificate, and none is configured",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "the other side does not accept the certificate that it receives",
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
            "the two sides have no TLS version or cipher in common"
        }
        AlertDescription::UnrecognisedName => "the other side does not know the name of the host",
        _ => "the other side refuses the connection",
    }
}

/// Returns the message for an error in a PEM file. `none` is the message if it has no suitable section.
pub(crate) fn of_pem(error: &pem::Error, none: &str) -> String {
    match error {
        pem::Error::NoItemsFound => none.to_owned(),
        pem::Error::MissingSectionEnd { .. } => "it is incomplete: a section has a beginning and no end".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a line that begins a section is not valid PEM".to_owned(),
        pem::Error::Base64Decode(_) => "a section of it is not base64".to_owned(),
        pem::Error::Io(error) => match error.kind() {
            io::ErrorKind::NotFound => "there is no such file".to_owned(),
            io::ErrorKind::PermissionDenied => "this user has no permission to read it".to_owned(),
            _ => error.to_string(),
        },
        _ => "it is not PEM".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;
    use rustls::pki_types::ServerName;

    use super::*;

    /// Texts that no message may contain: the names of types, and lists of bytes.
    fn is_plain(words: &str) -> bool {
        !words.contains(['[', '(', '{']) && words.chars().next().is_some_and(char::is_lowercase)
    }

    #[test]
    fn errors_are_told_without_names_of_types() {
        let name = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("a.example").unwrap(),
            presented: vec!["b.example".to_owned()],
        };
        for error in [
            CertificateError::Other(OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")))),
            CertificateError::Expired,
            CertificateError::UnknownIssuer,
            CertificateError::BadEncoding,
            CertificateError::UnhandledCriticalExtension,
            name.clone(),
        ] {
            let wrapped = io::Error::other(Error::InvalidCertificate(error.clone()));
            let words = said(&wrapped);
            assert!(is_plain(&words) && words.contains("certificate"), "{error:?}: {words}");
            // However deep it is.
            assert_eq!(within(&io::Error::other(wrapped)), Some(words));
        }
        assert_eq!(of_certificate(&name), "the certificate is not valid for a.example; it names b.example");
        for alert in 0..=255 {
            let words = of(&Error::AlertReceived(AlertDescription::from(alert)));
            assert!(is_plain(&words), "{alert}: {words}");
        }
        assert_eq!(within(&io::Error::other("no such thing")), None);
    }

    #[test]
    fn files_that_are_not_pem_are_told_without_their_bytes() {
        let errors = [
            pem::Error::MissingSectionEnd { end_marker: b"-----END X-----".to_vec() },
            pem::Error::IllegalSectionStart { line: b"-----BEGIN".to_vec() },
            pem::Error::NoItemsFound,
        ];
        assert!(errors.iter().all(|error| is_plain(&of_pem(error, "it contains none"))));
    }
}
