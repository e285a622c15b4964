//! Connectors that are programs of their own: found in a directory, started, watched over, and spoken to over gRPC.
//!
//! The protocol is that of the connectors people have: HashiCorp's go-plugin handshake on standard output, HTTP/2
//! without TLS over a Unix socket, and on it `connector.v2` or `connector.v1` ([`wire`]). One process serves one role
//! of one connector of one pipeline. Records pass through `anabranch-ops-opencdc`, which translates the names of
//! metadata; settings are passed on as they are written.
//!
//! A process is started by a supervisor, which is this very program executed again ([`supervise`]): it ends the
//! plugin with all its children when we end, however that happens.

mod active;
mod call;
mod destination;
mod discover;
mod farewell;
mod handshake;
mod log;
mod process;
mod protocol;
mod refusals;
mod session;
mod source;
mod specification;
pub mod supervise;
mod utilities;
pub mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_plugin::host::LogLevel;

pub use discover::{Found, load};

/// How standalone connectors are found and run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where their files are.
    pub directory: PathBuf,
    /// Where their specifications are kept, so that a file is not started just to ask it who it is.
    pub cache: Option<PathBuf>,
    /// The program that supervises a plugin, and its first arguments: it must call [`supervise::requested`].
    pub supervisor: Vec<OsString>,
    /// Bytes of the largest message that a plugin takes.
    pub record_limit: usize,
    /// How long a plugin may take for a call, or for the first of the acknowledgements it owes.
    pub patience: Duration,
    /// How many records in a row a destination may refuse with the same error before that is its own; 0 = any number.
    pub equal_refusals: usize,
    /// Lines of plugins below it need not be written.
    pub log_level: LogLevel,
}

/// What reads bytes of plugins, for fuzzing: none of it may panic, whatever they are.
pub mod untrusted {
    use bytes::Bytes;

    use crate::protocol::Protocol;

    /// The line with which a plugin says where it listens.
    pub fn handshake(line: &str) {
        let _ = crate::handshake::parse(line);
    }

    /// A line of its standard error.
    pub fn log_line(line: &str) {
        let mut voice = crate::log::Voice::default();
        let _ = voice.hear(line);
    }

    /// What it prints, in pieces.
    pub fn printed(bytes: &[u8]) {
        let mut lines = crate::log::Lines::default();
        for piece in bytes.chunks(7) {
            lines.push(piece, |_| ());
        }
        lines.finish(|_| ());
    }

    /// Messages of either protocol, and a stored specification.
    pub fn messages(bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        for protocol in [Protocol::V1, Protocol::V2] {
            for record in protocol.read_records(bytes.clone()).unwrap_or_default() {
                let _ = anabranch_ops_opencdc::decode_record(&record);
            }
            let _ = protocol.read_acks(bytes.clone());
            if let Ok(specification) = protocol.read_specification(bytes.clone()) {
                let _ = crate::specification::roles(&specification);
            }
        }
        let _ = crate::active::Active::decode(&bytes);
    }
}
