//! Faults for errors of the connection and of the server.

use std::fmt;
use std::io;

use anabranch_ops_tls::TlsError;
use anabranch_record::fault::Fault;
use anabranch_record::phrase::shortened;

use crate::codes;

/// Maximum length in bytes of each part of an error of the server.
const PART_BYTES: usize = 1 << 10;

/// A failure of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// The server refuses the request.
    #[error("{0}")]
    Server(ServerError),
    /// The network or the server ended the connection.
    #[error("the connection is lost: {0}")]
    Io(#[from] io::Error),
    /// The server ended the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server does not answer in time.
    #[error("the server does not answer within {0} s")]
    Silent(u64),
    /// The answer does not follow the protocol.
    #[error("the answer does not follow the protocol of PostgreSQL: {0}")]
    Protocol(&'static str),
    /// The login cannot be carried out.
    #[error("{0}")]
    Login(&'static str),
    /// The server does not offer TLS.
    #[error("the server does not offer TLS, which sslmode requires")]
    NoTls,
    /// The files of the TLS configuration cannot be used.
    #[error("{0}; check sslrootcert, sslcert and sslkey in the URL")]
    Tls(#[from] TlsError),
}

/// An error that the server reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerError {
    /// SQLSTATE.
    pub(super) state: String,
    pub(super) message: String,
    pub(super) detail: String,
    pub(super) hint: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |text: &str| shortened(text.to_owned(), PART_BYTES);
        write!(f, "PostgreSQL: {} (SQLSTATE {})", part(&self.message), self.state)?;
        for more in [&self.detail, &self.hint].into_iter().filter(|more| !more.is_empty()) {
            write!(f, ": {}", part(more))?;
        }
        Ok(())
    }
}

impl ServerError {
    /// Reads the body of an `ErrorResponse`: fields of a letter and a text that ends with a NUL byte.
    pub(super) fn parse(mut body: &[u8]) -> ServerError {
        let mut error = ServerError::default();
        while let Some((kind, rest)) = body.split_first() {
            let Some(end) = memchr::memchr(0, rest).filter(|_| *kind != 0) else { break };
            let text = String::from_utf8_lossy(&rest[..end]).into_owned();
            match kind {
                b'C' => error.state = text,
                b'M' => error.message = text,
                b'D' => error.detail = text,
                b'H' => error.hint = text,
                _ => {}
            }
            body = &rest[end + 1..];
        }
        error
    }
}

impl WireError {
    /// Returns the SQLSTATE, if the server reported an error.
    pub(super) fn state(&self) -> Option<&str> {
        match self {
            WireError::Server(error) => Some(&error.state),
            _ => None,
        }
    }

    /// Returns the fault of an operation. `what` describes it: `reading the slot s of db:5432/shop`.
    pub(super) fn fault(self, what: &str) -> Fault {
        let text = format!("{what}: {self}");
        let error = match &self {
            WireError::Server(error) => error,
            WireError::Io(_) | WireError::Closed | WireError::Silent(_) => {
                return Fault::transient(codes::CONNECTION_LOST, text);
            }
            WireError::Protocol(_) => return Fault::fatal(codes::POSTGRES_REFUSED, text),
            WireError::Login(_) | WireError::NoTls | WireError::Tls(_) => {
                return Fault::fatal(codes::CONNECT_FAILED, text);
            }
        };
        let class = error.state.get(..2).unwrap_or_default();
        match (class, error.state.as_str()) {
            ("28", _) => {
                let text = format!("{text}; check user and password in the URL, and the server's pg_hba.conf");
                Fault::fatal(codes::CONNECT_FAILED, text).of_login()
            }
            (_, "3D000") => {
                let text = format!("{text}; create the database, or correct its name in the URL");
                Fault::fatal(codes::CONNECT_FAILED, text)
            }
            (_, "42501") => {
                let text = format!("{text}; grant the right, and the pipeline resumes");
                Fault::transient(codes::POSTGRES_DENIED, text)
            }
            (_, "55006") => Fault::transient(codes::SLOT_IN_USE, text),
            ("08" | "53" | "57" | "58" | "40", _) | (_, "55P03" | "25P03") => {
                Fault::transient(codes::SERVER_UNAVAILABLE, text)
            }
            _ => Fault::fatal(codes::POSTGRES_REFUSED, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::fault::FaultClass;

    use super::*;

    #[test]
    fn an_error_of_the_server_keeps_its_parts() {
        let error = ServerError::parse(b"SERROR\0C55006\0Mslot is active\0Dfor PID 7\0\0");
        assert_eq!(error.to_string(), "PostgreSQL: slot is active (SQLSTATE 55006): for PID 7");
        let fault = WireError::Server(error).fault("reading");
        assert_eq!((fault.code().name(), fault.class()), ("postgres.slot_in_use", FaultClass::Transient));
        assert_eq!(ServerError::parse(b"Mcut"), ServerError::default());
    }
}
