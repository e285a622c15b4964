//! Where PostgreSQL is installed, and as whom it runs. The benchmarks use it too.

#![allow(dead_code, unreachable_pub, reason = "several binaries share it, none uses all of it")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A release of PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The release of the distribution. It alone has a client.
    Installed,
    /// PostgreSQL 17, which `.ci/setup` unpacks.
    V17,
    /// PostgreSQL 18, which `.ci/setup` unpacks.
    V18,
}

impl Release {
    /// All releases of the tests.
    pub const ALL: [Release; 3] = [Release::Installed, Release::V17, Release::V18];

    /// Directory of its server programs.
    pub fn programs(self) -> Option<PathBuf> {
        let unpacked = match self {
            Release::Installed => return programs(),
            Release::V17 => "target/postgres-17/bin",
            Release::V18 => "target/postgres-18/bin",
        };
        // The crates that take this file are at different depths.
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().filter(|path| path.join("Cargo.lock").is_file()).last().unwrap_or(here);
        Some(root.join(unpacked)).filter(|dir| dir.join("postgres").exists())
    }
}

/// Directory of the programs of the distribution, server and client: on the path, or where Debian puts them (the newest
/// version).
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
