//! The `file` source and the `file` destination: lines of a file.

mod appender;
mod destination;
mod follower;
mod intent;
mod position;
mod source;
mod watch;

pub use destination::kind as destination;
pub use source::kind as source;
