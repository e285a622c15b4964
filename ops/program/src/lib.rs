//! Programs that plugins start: a standalone connector, a tap.
//!
//! A program runs under a supervisor, which is another process of this program ([`supervise`]). When this process ends,
//! for whatever reason, the supervisor ends the program and all its children, and removes the private directory of the
//! program. [`Starting`] reads the output of the program on threads of its own, so that a program never blocks on it;
//! [`lines`] splits the output into lines, and [`log`] writes them to the log of the service.
//!
//! ```
//! use anabranch_ops_program::lines::LineSplitter;
//!
//! let (mut lines, mut seen) = (LineSplitter::default(), Vec::new());
//! lines.push(b"ready\nconnect", |line| seen.push(line.to_owned()));
//! lines.push(b"ed\n", |line| seen.push(line.to_owned()));
//! assert_eq!(seen, ["ready", "connected"]);
//! ```

mod child;
pub mod lines;
pub mod log;
pub mod supervise;

pub use child::{LastLines, LastWords, RunningProgram, Starting, command, described, private_directory};
