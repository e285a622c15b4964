//! Watches the file at a path for changes, instead of polling.
//!
//! All watches of the process share one inotify instance and one thread, which sleeps until an event arrives.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use tokio::sync::Notify;

use super::generations::{DirectoryChange, Generations};
use super::rotation::Directory;

/// Watch of a path; ends on drop.
#[derive(Debug)]
pub(super) struct Watch {
    changed: Arc<Notify>,
    _added: Added,
}

/// Watch that opens the files at a path as they appear; ends on drop.
#[derive(Debug)]
pub(super) struct Arrivals {
    generations: Arc<Generations>,
    _added: Added,
}

impl Arrivals {
    /// Opens the file at a path, and from then on each one that appears there. Returns `None` in the same cases as
    /// [`Watch::on`]. Blocks.
    pub(super) fn at(path: &Path) -> Option<Arrivals> {
        let (directory, name) = (Directory::of(path).ok()?, path.file_name()?);
        let generations = Arc::new(Generations::new(directory, name.to_owned()));
        let mut added = Added::none()?;
        added.add(generations.directory().at(), ENTRIES, Listener::Generations(generations.clone(), None)).ok()?;
        // Set the watch before opening the file, so that no file is missed.
        generations.begin();
        Some(Arrivals { generations, _added: added })
    }

    /// Returns the queue of files.
    pub(super) fn generations(&self) -> &Generations {
        &self.generations
    }
}

/// Events that are requested for a directory. All watches of a directory share a descriptor, and therefore these flags.
const ENTRIES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR);

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Watch {
    /// Watches a path: the file, if there is one, and its entry in the directory. Returns `None` if the system has no
    /// such watches, has no more of them, or the directory does not exist. Blocks.
    pub(super) fn on(path: &Path) -> Option<Watch> {
        let changed = Arc::<Notify>::default();
        let mut added = Added::none()?;
        let name = path.file_name()?.to_owned();
        added.add(directory_of(path), ENTRIES, Listener::Changed(Some(name), changed.clone())).ok()?;
        let content = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF;
        match added.add(path, content, Listener::Changed(None, changed.clone())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => None,
            _ => Some(Watch { changed, _added: added }),
        }
    }

    /// Waits for a change since the watch was set or the last call returned. Cancel-safe.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let changed = self.changed.clone();
        async move { changed.notified().await }
    }
}

/// A registered watch of the process; ends on drop.
#[derive(Debug)]
struct Added {
    watcher: &'static Watcher,
    /// Descriptors, each with the number under which it was registered.
    descriptors: Vec<(i32, u64)>,
}

impl Added {
    fn none() -> Option<Self> {
        Some(Added { watcher: Watcher::of_process()?, descriptors: Vec::new() })
    }

    fn add(&mut self, path: &Path, flags: WatchFlags, listener: Listener) -> io::Result<()> {
        // Open before taking the lock: a file system that hangs must not block other watches.
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let own = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let mut watched = self.watcher.lock();
        let descriptor = inotify::add_watch(&self.watcher.inotify, own, flags)?;
        let listener = match listener {
            Listener::Generations(generations, _) => Listener::Generations(generations, self.watcher.barrier()),
            listener @ Listener::Changed(..) => listener,
        };
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        watched.entry(descriptor).or_default().push((number, listener));
        self.descriptors.push((descriptor, number));
        Ok(())
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        let mut watched = self.watcher.lock();
        for (descriptor, number) in &self.descriptors {
            let Some(others) = watched.get_mut(descriptor) else { continue };
            others.retain(|(other, _)| other != number);
            if others.is_empty() {
                watched.remove(descriptor);
                // The watched file may be gone, and the watch with it.
                let _ = inotify::remove_watch(&self.watcher.inotify, *descriptor);
            }
        }
    }
}

/// Receiver of the changes under one descriptor.
#[derive(Debug)]
enum Listener {
    /// Reports changes of this entry of the directory; `None` = every entry.
    Changed(Option<OsString>, Arc<Notify>),
    /// Records all entries of a directory. Changes before the barrier belong to earlier files.
    Generations(Arc<Generations>, Option<i32>),
}

/// Receivers by descriptor, each with the number under which it was registered.
type Watched = HashMap<i32, Vec<(u64, Listener)>>;

/// The watches of the process.
#[derive(Debug)]
struct Watcher {
    inotify: OwnedFd,
    watched: Mutex<Watched>,
}

impl Watcher {
    /// Returns the watcher of the process, created with the first watch; `None` if the system refuses it.
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

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a marker into the event queue: events before it happened before this call. Returns the descriptor whose
    /// deletion event is the marker, or `None` if the system refuses.
    fn barrier(&self) -> Option<i32> {
        // Use a private file: watches of the same file share a descriptor.
        let file = rustix::fs::memfd_create("anabranch-barrier", MemfdFlags::CLOEXEC).ok()?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let descriptor = inotify::add_watch(&self.inotify, own, WatchFlags::DELETE_SELF).ok()?;
        inotify::remove_watch(&self.inotify, descriptor).ok()?;
        Some(descriptor)
    }

    fn run(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        // Queues with reported changes that are not fully processed.
        let mut unsettled: Vec<Arc<Generations>> = Vec::new();
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::INTR) => continue,
                // Waiting readers also poll from time to time.
                Err(_) => return,
            };
            self.tell(&event, &mut unsettled);
            if !unsettled.is_empty() && events.is_buffer_empty() {
                // Do this without the lock: a file system that hangs must not block new watches.
                unsettled.iter().for_each(|generations| generations.settle(false));
                if self.has_reported_all() {
                    unsettled.drain(..).for_each(|generations| generations.settle(true));
                }
            }
        }
    }

    /// Returns `true` if no event is pending.
    fn has_reported_all(&self) -> bool {
        rustix::io::ioctl_fionread(&self.inotify).is_ok_and(|bytes| bytes == 0)
    }

    fn tell(&self, event: &inotify::Event<'_>, unsettled: &mut Vec<Arc<Generations>>) {
        let flags = event.events();
        let mut watched = self.lock();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            for (_, listener) in watched.values_mut().flatten() {
                match listener {
                    Listener::Changed(_, changed) => changed.notify_one(),
                    Listener::Generations(generations, barrier) => {
                        // The deletion event of the barrier may be among the lost events.
                        *barrier = None;
                        generations.see_nothing();
                    }
                }
            }
            return;
        }
        if flags.contains(ReadFlags::IGNORED) {
            for (_, listener) in watched.values_mut().flatten() {
                match listener {
                    Listener::Generations(_, barrier) if *barrier == Some(event.wd()) => *barrier = None,
                    Listener::Generations(..) | Listener::Changed(..) => {}
                }
            }
        }
        let entry = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
        let change = match flags {
            // A directory has no lines, so its changes do not matter.
            flags if flags.contains(ReadFlags::ISDIR) => None,
            flags if flags.contains(ReadFlags::CREATE) => Some(DirectoryChange::Created),
            flags if flags.contains(ReadFlags::MOVED_FROM) => Some(DirectoryChange::MovedFrom(event.cookie())),
            flags if flags.contains(ReadFlags::MOVED_TO) => Some(DirectoryChange::MovedTo(event.cookie())),
            flags if flags.contains(ReadFlags::DELETE) => Some(DirectoryChange::Deleted),
            _ => None,
        };
        for (_, listener) in watched.get(&event.wd()).into_iter().flatten() {
            match listener {
                Listener::Changed(name, changed) => {
                    if name.is_none() || entry.is_none() || name.as_deref() == entry {
                        changed.notify_one();
                    }
                }
                Listener::Generations(_, Some(_)) => {}
                Listener::Generations(generations, None) => {
                    let Some((entry, change)) = entry.zip(change) else { continue };
                    generations.see(entry, change);
                    if !unsettled.iter().any(|other| Arc::ptr_eq(other, generations)) {
                        unsettled.push(generations.clone());
                    }
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

    async fn is_reported(watch: &Watch) -> bool {
        tokio::time::timeout(Duration::from_secs(120), watch.changed()).await.is_ok()
    }

    /// Notifications of the system about earlier changes.
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
        assert!(is_reported(&watch).await, "growth");
        settle(&watch).await;
        file.set_len(0).unwrap();
        assert!(is_reported(&watch).await, "truncation");
        settle(&watch).await;
        fs::rename(&path, directory.path().join("lines.1")).unwrap();
        assert!(is_reported(&watch).await, "renaming");
        settle(&watch).await;
        fs::write(&path, "c\n").unwrap();
        assert!(is_reported(&watch).await, "a new file");
    }

    #[tokio::test]
    async fn a_file_that_is_missing_is_told_when_it_comes_and_others_are_not_told() {
        let directory = tempfile::tempdir().unwrap();
        let watch = Watch::on(&directory.path().join("mine")).unwrap();
        let theirs = Watch::on(&directory.path().join("theirs")).unwrap();
        fs::write(directory.path().join("theirs"), "x").unwrap();
        // The events of one directory come in order: mine would have been told by now.
        assert!(is_reported(&theirs).await);
        assert!(tokio::time::timeout(Duration::ZERO, watch.changed()).await.is_err());
        fs::write(directory.path().join("mine"), "x").unwrap();
        assert!(is_reported(&watch).await);
        assert!(Watch::on(&directory.path().join("missing/mine")).is_none());
    }

    /// A source that is opened again shares the watch of another one, and what that was not told yet.
    #[test]
    fn changes_from_before_are_not_told() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
        fs::write(&path, "old").unwrap();
        let first = Arrivals::at(&path).unwrap();
        // The thread cannot report changes that happen meanwhile.
        let held = first._added.watcher.lock();
        fs::rename(&path, &old).unwrap();
        fs::write(&path, "new").unwrap();
        drop(held);
        let second = Arrivals::at(&path).unwrap();
        fs::write(directory.path().join("other"), "").unwrap();
        let mut texts = Vec::new();
        let started = std::time::Instant::now();
        while texts.is_empty() || started.elapsed() < Duration::from_millis(200) {
            if let super::super::generations::Next::File(mut file) = second.generations().take(None) {
                let mut text = String::new();
                std::io::Read::read_to_string(&mut file, &mut text).unwrap();
                texts.push(text);
            }
            assert!(started.elapsed() < Duration::from_secs(120));
        }
        assert_eq!(texts, ["new"]);
    }

    #[tokio::test]
    async fn two_watches_of_one_file_do_not_end_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        fs::write(&path, "").unwrap();
        let (one, other) = (Watch::on(&path).unwrap(), Watch::on(&path).unwrap());
        drop(one);
        fs::write(&path, "x").unwrap();
        assert!(is_reported(&other).await);
    }
}
