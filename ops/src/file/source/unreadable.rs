//! Faults of files that cannot be read.

use std::io;

use anabranch_record::fault::Fault;

use crate::codes;
use crate::file::follower::misled;

/// Returns the fault of a file or directory that cannot be read.
pub(super) fn unreadable(path: &str, error: &io::Error) -> Fault {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, PermissionDenied};
    if let Some(why) = misled(error) {
        return Fault::fatal(codes::FILE_UNREADABLE, format!("cannot read {path}: {why}"));
    }
    let text = format!("cannot read {path}: {error}");
    match error.kind() {
        IsADirectory | NotADirectory | InvalidInput => Fault::fatal(codes::FILE_UNREADABLE, text),
        // Permission may come: a rotation creates the file first and sets its owner later.
        PermissionDenied => Fault::transient(codes::FILE_UNREADABLE, text).of_login(),
        _ => Fault::transient(codes::FILE_UNREADABLE, text),
    }
}
