//! The process that owns a store. Only one service at a time runs pipelines with a store, so that no source is read
//! twice.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A process that uses a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Name of its machine.
    pub host: String,
    /// Its process id.
    pub process: u32,
    /// Name of its program.
    pub program: String,
    /// When it began to use the store or, if that is unknown, when it started, as RFC 3339.
    pub since: Option<String>,
}

impl Owner {
    /// Returns this process.
    pub fn here() -> Owner {
        let process = std::process::id();
        Owner { host: host(), process, program: program(process), since: Some(shown(SystemTime::now())) }
    }

    /// Returns the process on this machine that has a file open, if the system reveals it. Only an administrator can
    /// see processes of other users. O(open files of the machine).
    pub fn of_file(path: &Path) -> Option<Owner> {
        // Compared by device and inode, because it may have been opened under another name.
        let file = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let store = file(fs::metadata(path).ok()?);
        let is_holder = |process: &Path| {
            let mut open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            open.any(|descriptor| fs::metadata(descriptor.path()).is_ok_and(|metadata| file(metadata) == store))
        };
        let processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            (id != std::process::id()).then(|| (id, entry.path()))
        });
        let (process, _) = processes.into_iter().find(|(_, process)| is_holder(process))?;
        Some(Owner { host: host(), process, program: program(process), since: started(process).map(shown) })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)?;
        if !self.program.is_empty() {
            write!(f, " {}", self.program)?;
        }
        if !self.host.is_empty() {
            write!(f, " on {}", self.host)?;
        }
        if let Some(since) = &self.since {
            write!(f, " since {since}")?;
        }
        Ok(())
    }
}

/// Whether this process may run pipelines with the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOwnership {
    /// It owns the store.
    Held,
    /// The connection that proves ownership is lost. Another service may own the store soon: nothing is read or written
    /// until this process owns it again.
    Paused(String),
    /// Another service has owned the store meanwhile. This process never owns it again.
    Taken(String),
    /// The file of the store is missing, or another file is in its place.
    Gone(String),
}

impl StoreOwnership {
    /// Returns why pipelines must not run; `None` if they may.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            StoreOwnership::Held => None,
            StoreOwnership::Paused(why) | StoreOwnership::Taken(why) | StoreOwnership::Gone(why) => Some(why),
        }
    }
}

fn host() -> String {
    // The host name as the kernel has it; a sandbox without /proc does not have it.
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn program(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned()
}

/// Returns when a process was started.
fn started(process: u32) -> Option<SystemTime> {
    /// Kernel ticks per second, as user space sees them.
    const TICKS: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program name may contain spaces and parentheses; it ends at the last parenthesis.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let kernel = fs::read_to_string("/proc/stat").ok()?;
    let booted: u64 = kernel.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(booted) + Duration::from_millis(ticks * 1000 / TICKS))
}

fn shown(at: SystemTime) -> String {
    DateTime::<Utc>::from(at).to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_named_with_its_machine_and_since_when() {
        let text = Owner::here().to_string();
        assert!(text.starts_with(&format!("process {} ", std::process::id())), "{text}");
        assert!(text.contains(" since 2") && text.ends_with('Z'), "{text}");
        let started = started(std::process::id()).unwrap();
        let age = SystemTime::now().duration_since(started).unwrap_or_default();
        assert!(age < Duration::from_secs(24 * 3600), "{age:?}");
    }
}
