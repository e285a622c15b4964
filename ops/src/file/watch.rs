//! Being told that the file of a path changes, instead of looking again and again.
//!
//! All watches of the process share one inotify instance and one thread that sleeps until something happens.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use tokio::sync::Notify;

/// A path that is watched until this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    changed: Arc<Notify>,
    watcher: &'static Watcher,
    /// What was added for it, at most the directory and the file.
    descriptors: Vec<i32>,
}

impl Watch {
    /// Watches a path: the file behind it, if there is one, and the entry in its directory. `None` where the system
    /// cannot: it has no such watches, no more of them, or no such directory. Blocks.
    pub(super) fn on(path: &Path) -> Option<Watch> {
        let watcher = Watcher::of_process()?;
        let mut watch = Watch { changed: Arc::default(), watcher, descriptors: Vec::new() };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
        watch.add(directory, entries | WatchFlags::ONLYDIR, Some(path.file_name()?)).ok()?;
        let content = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF;
        match watch.add(path, content, None) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => None,
            _ => Some(watch),
        }
    }

    fn add(&mut self, path: &Path, flags: WatchFlags, name: Option<&OsStr>) -> io::Result<()> {
        // Opened before the lock is taken: a file system that hangs must not hold up the other watches.
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let own = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let mut watched = self.watcher.lock();
        let descriptor = inotify::add_watch(&self.watcher.inotify, own, flags)?;
        let watched = watched.entry(descriptor).or_default();
        watched.push(Watched { name: name.map(OsStr::to_owned), changed: self.changed.clone() });
        self.descriptors.push(descriptor);
        Ok(())
    }

    /// Waits for a change since the watch was set or since the last call returned. Cancel-safe.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let changed = self.changed.clone();
        async move { changed.notified().await }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.watcher.lock();
        for descriptor in &self.descriptors {
            let Some(others) = watched.get_mut(descriptor) else { continue };
            others.retain(|other| !Arc::ptr_eq(&other.changed, &self.changed));
            if others.is_empty() {
                watched.remove(descriptor);
                // What it watched may be gone, and the watch with it.
                let _ = inotify::remove_watch(&self.watcher.inotify, *descriptor);
            }
        }
    }
}

/// Who is told of changes under one descriptor.
#[derive(Debug)]
struct Watched {
    /// Of these entries of a directory only; `None` = of any change.
    name: Option<OsString>,
    changed: Arc<Notify>,
}

/// The watches of the process.
#[derive(Debug)]
struct Watcher {
    inotify: OwnedFd,
    watched: Mutex<HashMap<i32, Vec<Watched>>>,
}

impl Watcher {
    /// Made with the first watch; `None` where the system refuses.
    fn of_process() -> Option<&'static Watcher> {
        static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();
        static THREAD: OnceLock<bool> = OnceLock::new();
        let made = WATCHER.get_or_init(|| {
            let inotify = inotify::init(CreateFlags::CLOEXEC).ok()?;
            Some(Watcher { inotify, watched: Mutex::default() })
        });
        let watcher = made.as_ref()?;
        let started = THREAD.get_or_init(|| {
            let thread = std::thread::Builder::new().name("anabranch-watch".to_owned()).stack_size(64 << 10);
            thread.spawn(|| watcher.run()).is_ok()
        });
        started.then_some(watcher)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Vec<Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::INTR) => continue,
                // Whoever waits looks by himself from time to time.
                Err(_) => return,
            };
            let watched = self.lock();
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                watched.values().flatten().for_each(|watched| watched.changed.notify_one());
                continue;
            }
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            for watched in watched.get(&event.wd()).into_iter().flatten() {
                if watched.name.is_none() || name.is_none() || watched.name.as_deref() == name {
                    watched.changed.notify_one();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    async fn is_told(watch: &Watch) -> bool {
        tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.is_ok()
    }

    /// What the system said of earlier changes.
    async fn settle(watch: &Watch) {
        while tokio::time::timeout(Duration::from_millis(20), watch.changed()).await.is_ok() {}
    }

    #[tokio::test]
    async fn growth_truncation_renaming_and_removal_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        fs::write(&path, "a\n").unwrap();
        let watch = Watch::on(&path).unwrap();
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"b\n").unwrap();
        assert!(is_told(&watch).await, "growth");
        settle(&watch).await;
        file.set_len(0).unwrap();
        assert!(is_told(&watch).await, "truncation");
        settle(&watch).await;
        fs::rename(&path, directory.path().join("lines.1")).unwrap();
        assert!(is_told(&watch).await, "renaming");
        settle(&watch).await;
        fs::write(&path, "c\n").unwrap();
        assert!(is_told(&watch).await, "a new file");
    }

    #[tokio::test]
    async fn a_file_that_is_missing_is_told_when_it_comes_and_others_are_not_told() {
        let directory = tempfile::tempdir().unwrap();
        let watch = Watch::on(&directory.path().join("mine")).unwrap();
        let theirs = Watch::on(&directory.path().join("theirs")).unwrap();
        fs::write(directory.path().join("theirs"), "x").unwrap();
        // The events of one directory come in order: mine would have been told by now.
        assert!(is_told(&theirs).await);
        assert!(tokio::time::timeout(Duration::ZERO, watch.changed()).await.is_err());
        fs::write(directory.path().join("mine"), "x").unwrap();
        assert!(is_told(&watch).await);
        assert!(Watch::on(&directory.path().join("missing/mine")).is_none());
    }

    #[tokio::test]
    async fn two_watches_of_one_file_do_not_end_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        fs::write(&path, "").unwrap();
        let (one, other) = (Watch::on(&path).unwrap(), Watch::on(&path).unwrap());
        drop(one);
        fs::write(&path, "x").unwrap();
        assert!(is_told(&other).await);
    }
}
