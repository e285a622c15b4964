//! The `file` source and the `file` destination: records in files.

mod appender;
mod backlog;
mod compression;
mod content;
mod content_position;
mod destination;
mod escapes;
mod file_rotation;
mod follower;
mod frame;
pub mod framing;
mod gap;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the system reports no changes"))]
mod generations;
mod intent;
mod pattern;
mod position;
mod rotation;
mod source;
mod table;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(not(target_os = "linux"))]
#[path = "file/unwatched.rs"]
mod watch;

pub use destination::kind as destination;
pub use source::kind as source;

/// Magic bytes of an embedded state store. The destination refuses to append lines to such a file.
pub const STORE_MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
