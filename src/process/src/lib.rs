//! Services of the process for every part of the program: files, standard streams, the log, signals, threads and
//! panics.
//!
//! All output for people goes through [`terminal`], so that no text from a record, a plugin or a server can control the
//! terminal. Lines of the service go through [`log`], which never waits for its reader.
//!
//! ```
//! use anabranch_process::terminal::{shown, size};
//!
//! assert_eq!(shown("red\u{1b}[31m"), "red\\u{1b}[31m");
//! assert_eq!(size(3 << 29), "1.5 GiB");
//! ```

pub mod codes;
pub mod files;
pub mod log;
pub mod panics;
pub mod runtime;
pub mod signals;
pub mod terminal;
