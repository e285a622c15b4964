//! Where PostgreSQL is installed, and as whom it runs. The benchmarks use it too.

#![allow(unreachable_pub, reason = "several binaries share it")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directory of the server programs: on the path, or where Debian puts them (the newest version).
pub fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    found.sort();
    found.extend(std::env::split_paths(&path));
    found.into_iter().rev().find(|dir| ["initdb", "postgres", "psql"].iter().all(|name| dir.join(name).exists()))
}

/// User and group to run the server as, since it refuses to run as root, and the directory then belongs to them.
/// `None` where this user will do.
///
/// # Errors
/// There is no such user, or the directory cannot be given away.
pub fn user_for(directory: &Path) -> std::io::Result<Option<(u32, u32)>> {
    if fs::metadata(directory)?.uid() != 0 {
        return Ok(None);
    }
    let user = ["postgres", "nobody"].into_iter().find_map(ids_of);
    let (uid, gid) = user.ok_or_else(|| std::io::Error::other("no user postgres or nobody to run the server as"))?;
    chown(directory, Some(uid), Some(gid))?;
    Ok(Some((uid, gid)))
}

/// User and group id.
fn ids_of(user: &str) -> Option<(u32, u32)> {
    let id = |option: &str| -> Option<u32> {
        let output = Command::new("id").args([option, user]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    Some((id("-u")?, id("-g")?))
}
