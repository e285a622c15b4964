//! Checks of the machine's resources.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anabranch_process::files::parent_directory;
use anabranch_settings::Database;
use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};

use super::{CheckResult, DoctorContext};

/// Limit of open files below which a service with some dozens of pipelines can fail.
const FILES: u64 = 1024;

pub(super) fn open_files(_: &mut DoctorContext<'_>) -> CheckResult {
    let limit = getrlimit(Resource::Nofile);
    let shown = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let what = format!("{} (at most {})", shown(limit.current), shown(limit.maximum));
    match limit.current {
        Some(current) if current < FILES => CheckResult::warning(format!("the process can open only {what} files"))
            .advise(format!("allow {FILES} or more: `ulimit -n`, or LimitNOFILE of the systemd unit")),
        _ => CheckResult::well(format!("limit of open files: {what}")),
    }
}

/// Free space, in bytes, below which the check of the disk fails (`SCARCE`) or warns (`LITTLE`).
const SCARCE: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;

pub(super) fn disk(subject: &mut DoctorContext<'_>) -> CheckResult {
    let Database::Embedded(path) = &subject.settings.database else {
        return CheckResult::well("the store is not a file on this machine");
    };
    let directory = directory_of(path);
    let free = match statvfs(&directory) {
        Ok(system) => system.f_bavail.saturating_mul(system.f_frsize),
        Err(error) => {
            let error = anabranch_process::files::system(&error.into());
            return CheckResult::warning(format!(
                "cannot determine the free space in {}: {error}",
                directory.display()
            ));
        }
    };
    let what = format!("{} free in the directory of the store ({})", size(free), directory.display());
    match free {
        ..SCARCE => CheckResult::environment(what)
            .advise("free disk space: without it the service cannot store positions, and no pipeline runs"),
        SCARCE..LITTLE => CheckResult::warning(what).advise("free disk space before the disk is full"),
        _ => CheckResult::well(what),
    }
}

/// Returns the directory of a file, or its nearest ancestor that exists.
pub(super) fn directory_of(path: &Path) -> PathBuf {
    parent_directory(path).ancestors().find(|directory| directory.is_dir()).unwrap_or(Path::new(".")).to_path_buf()
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Maximum time by which the clock may be behind the modification times of files.
const BEHIND: Duration = Duration::from_secs(5);

pub(super) fn clock(subject: &mut DoctorContext<'_>) -> CheckResult {
    let now = SystemTime::now();
    let written = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let store = match &subject.settings.database {
        Database::Embedded(path) => Some(path.clone()),
        Database::InMemory | Database::Postgres(_) => None,
    };
    let program = std::env::current_exe().ok();
    let later = [("the store", store), ("this program", program)].into_iter().find_map(|(what, path)| {
        let ahead = written(&path?)?.duration_since(now).ok()?;
        (ahead > BEHIND).then_some((what, ahead))
    });
    let shown = chrono::DateTime::<chrono::Utc>::from(now).format("%Y-%m-%d %H:%M:%S UTC");
    match later {
        None => CheckResult::well(format!("the clock shows {shown}")),
        Some((what, ahead)) => {
            let ahead = ahead.as_secs();
            CheckResult::warning(format!("the clock shows {shown}, but {what} was written {ahead} s later than that"))
                .advise("correct the clock (NTP), which is slow; records and dead letters get their times from it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!([0, 5 << 20, 3 << 30].map(size), ["0 MiB", "5 MiB", "3.0 GiB"]);
    }

    #[test]
    fn the_directory_of_a_store_that_is_not_there_yet() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(directory_of(&directory.path().join("a/b/store.db")), directory.path());
        assert_eq!(directory_of(Path::new("store.db")), Path::new("."));
    }
}
