//! Standalone connectors: programs that are found in a directory, started, supervised and called over gRPC.
//!
//! The protocol is that of existing connectors: the handshake of HashiCorp's go-plugin on standard output, HTTP/2
//! without TLS over a Unix socket, and `connector.v2` or `connector.v1` on top ([`wire`]). One process serves one role
//! of one connector of one pipeline. `anabranch-ops-opencdc` encodes records and translates the names of metadata.
//! Settings are passed on unchanged.
//!
//! A process is started by a supervisor, which is another process of this program ([`supervise`](anabranch_ops_program::supervise)). When this process
//! ends, for whatever reason, the supervisor ends the plugin and all its children.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use anabranch_ops_grpc::{Settings, load};
//! use anabranch_plugin::host::LogLevel;
//!
//! let directory = tempfile::tempdir().unwrap();
//! let settings = Settings {
//!     directory: directory.path().to_owned(),
//!     cache: None,
//!     supervisor: Vec::new(),
//!     record_limit: 4 << 20,
//!     patience: Duration::from_secs(10),
//!     equal_refusals: 0,
//!     log_level: LogLevel::Info,
//! };
//! let discovered = load(&Arc::new(settings));
//! assert!(discovered.refused.is_empty(), "the directory contains no file");
//! ```

mod active;
mod call;
pub mod codes;
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
mod utilities;
pub mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_plugin::host::LogLevel;

pub use discover::{Discovered, load};

/// Settings for finding and running standalone connectors.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the connectors.
    pub directory: PathBuf,
    /// Directory of cached specifications, so that files need not be started for them.
    pub cache: Option<PathBuf>,
    /// The program that supervises a plugin, with its first arguments. See
    /// [`command`](anabranch_ops_program::command).
    pub supervisor: Vec<OsString>,
    /// Maximum size in bytes of a message to a plugin.
    pub record_limit: usize,
    /// Time limit of a call to a plugin, and for the first outstanding acknowledgement.
    pub patience: Duration,
    /// Number of consecutive records that a destination may reject with the same error before the error counts as its
    /// own; 0 = unlimited.
    pub equal_refusals: usize,
    /// Plugins need not write log lines below this level.
    pub log_level: LogLevel,
}

/// Parsers of bytes from plugins, for fuzzing. They must not panic for any input.
pub mod untrusted {
    use bytes::Bytes;

    use crate::protocol::Protocol;

    /// Parses the handshake line of a plugin.
    pub fn handshake(line: &str) {
        let _ = crate::handshake::parse(line);
    }

    /// Parses a line of a plugin's standard error.
    pub fn log_line(line: &str) {
        let mut voice = crate::log::LineParser::default();
        let _ = voice.hear(line);
    }

    /// Splits a plugin's output into lines.
    pub fn printed(bytes: &[u8]) {
        let mut lines = anabranch_ops_program::lines::LineSplitter::default();
        for piece in bytes.chunks(7) {
            lines.push(piece, |_| ());
        }
        lines.finish(|_| ());
    }

    /// Parses messages of both protocols, and a stored specification.
    pub fn messages(bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        for protocol in [Protocol::V1, Protocol::V2] {
            for record in protocol.read_records(bytes.clone()).unwrap_or_default() {
                let _ = anabranch_record::protobuf::decode_record(&record);
            }
            let _ = protocol.read_acks(bytes.clone());
            if let Ok(specification) = protocol.read_specification(bytes.clone()) {
                let _ = crate::specification::roles(&specification);
            }
        }
        let _ = crate::active::Active::decode(&bytes);
    }
}
