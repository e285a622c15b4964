//! Paths with slashes. The `os` variants behave the same, so that output does not depend on the host.

use super::Function;
use super::signature::function;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("base", (path: Text) => base(&path.lossy()).to_owned()),
    function!("osBase", (path: Text) => base(&path.lossy()).to_owned()),
    function!("dir", (path: Text) => dir(&path.lossy())),
    function!("osDir", (path: Text) => dir(&path.lossy())),
    function!("clean", (path: Text) => clean(&path.lossy())),
    function!("osClean", (path: Text) => clean(&path.lossy())),
    function!("ext", (path: Text) => extension(&path.lossy()).to_owned()),
    function!("osExt", (path: Text) => extension(&path.lossy()).to_owned()),
    function!("isAbs", (path: Text) => path.as_bytes().starts_with(b"/")),
    function!("osIsAbs", (path: Text) => path.as_bytes().starts_with(b"/")),
];

fn base(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        None | Some("") => "/",
        Some(last) => last,
    }
}

fn dir(path: &str) -> String {
    clean(path.rfind('/').map_or("", |slash| &path[..=slash]))
}

/// Removes empty parts, `.` and, if there is a part before it, `..`.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => {
                kept.pop();
            }
            ".." if rooted => {}
            part => kept.push(part),
        }
    }
    let joined = kept.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// Returns the extension: the last part from its last point on.
fn extension(path: &str) -> &str {
    let last = path.rfind('/').map_or(path, |slash| &path[slash + 1..]);
    last.rfind('.').map_or("", |point| &last[point..])
}
