//! The `file` source and the `file` destination: lines of a file.

mod appender;
mod backlog;
mod destination;
mod follower;
mod gap;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the system reports no changes"))]
mod generations;
mod intent;
mod position;
mod rotation;
mod source;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(not(target_os = "linux"))]
#[path = "file/unwatched.rs"]
mod watch;

pub use destination::kind as destination;
pub use source::kind as source;

/// Magic bytes of an embedded state store. The destination refuses to append lines to such a file.
pub const STORE_MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
