//! The files of a source in turns, each a partition, and the search for new ones. Everything here blocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, Metadata};
use std::ops::Bound;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Backlog, Read, Room};
use anabranch_plugin::state::Slots;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::phrase::counted;
use anabranch_record::text::Str;

use super::in_flight::InFlight;
use super::partition::{Begin, FileFormat, FilePartition, Handover, PartitionStep, is_of};
use super::unreadable::unreadable;
use crate::file::content_position::{ContentPosition, ContentResume};
use crate::file::framing::Framing;
use crate::file::pattern::{ListedFile, PathPattern};
use crate::file::position::identity;

/// Maximum number of files that stay open while they wait for more. A file that is closed is found again by its identity
/// if it is renamed.
const MOST_OPEN: usize = 256;

/// Number of steps after which the next file has its turn.
const TURN: usize = 256;

/// The next thing to do.
#[derive(Debug)]
pub(super) enum SetStep {
    Read(Read),
    /// Nothing is to be read before this time.
    Idle {
        until: Instant,
        caught_up: bool,
    },
}

/// The state of a file at the last search.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    identity: u32,
    length: u64,
    changed: (i64, i64),
}

impl Seen {
    fn of(metadata: &Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Seen { identity: identity(metadata), length: metadata.len(), changed }
    }
}

/// A file that was found under another path than that of the partitions that read it.
struct RenamedFile {
    from: Vec<PathBuf>,
    to: PathBuf,
    /// True if the partition of the path reads it already.
    is_known: bool,
    seen: Seen,
}

struct Listed {
    partition: FilePartition,
    seen: Option<Seen>,
}

/// The files of a source.
pub(super) struct FilePartitions {
    pattern: PathPattern,
    shown: Str,
    format: Arc<FileFormat>,
    /// The partitions of this run.
    slots: Slots,
    polling: Duration,
    pipeline: Str,
    node: Str,
    /// Where files are read from that the first search of the first run finds.
    begin: Begin,
    files: BTreeMap<PathBuf, Listed>,
    /// The files that may have more to read.
    active: BTreeSet<PathBuf>,
    /// The file whose turn it is, and its steps in this turn.
    turn: (PathBuf, usize),
    events: VecDeque<Read>,
    /// Files that cannot be read, with the reasons; true if the next search tries again.
    unreadable: BTreeMap<PathBuf, (Fault, bool)>,
    in_flight: InFlight,
    searched: Option<Instant>,
    /// True if a search found a file.
    found_any: bool,
    missed: u64,
}

impl FilePartitions {
    /// Creates the reader of the files that match a pattern. Opens nothing.
    ///
    /// # Errors
    /// A position is not that of such a source.
    pub(super) fn new(
        path: &Str,
        pattern: PathPattern,
        format: Arc<FileFormat>,
        (polling, begin): (Duration, Begin),
        resume: &BTreeMap<Partition, Mark>,
        host: &Host,
    ) -> Result<Self, Fault> {
        let mut set = FilePartitions {
            shown: path.clone(),
            format,
            slots: host.slots,
            polling,
            pipeline: host.pipeline.clone(),
            node: host.node.clone(),
            begin: if resume.is_empty() { begin } else { Begin::Beginning },
            files: BTreeMap::new(),
            active: BTreeSet::new(),
            turn: (PathBuf::new(), 0),
            events: VecDeque::new(),
            unreadable: BTreeMap::new(),
            in_flight: InFlight::default(),
            searched: None,
            found_any: false,
            missed: 0,
            pattern,
        };
        if set.begin == Begin::End && set.pattern.is_of_several() {
            set.remember_the_start();
        }
        for (partition, mark) in resume {
            let resume = ContentResume::decode(&mark.position);
            if *partition == Partition::ONLY && resume.as_ref().is_ok_and(ContentResume::is_of_no_file) {
                continue;
            }
            let path = match &set.pattern {
                PathPattern::File(path) if *partition == Partition::ONLY => Some(path.clone()),
                PathPattern::File(_) => None,
                several => Some(PathBuf::from(partition.0.as_str())).filter(|path| several.contains(path)),
            };
            let Some(path) = path else {
                set.log(&format!(
                    "the position of {:?} is not used, because path has another value; it stays stored",
                    partition.0
                ));
                continue;
            };
            let resume = resume?;
            set.in_flight.resume(partition, &mark.position);
            set.add(path, Some((mark.position.clone(), resume)), Begin::Beginning);
        }
        Ok(set)
    }

    /// Reads a file that is open already, and then those that replace it.
    pub(super) fn read_open(&mut self, path: &Path, file: File) {
        self.add(path.to_owned(), None, Begin::Beginning);
        if let Some(listed) = self.files.get_mut(path) {
            listed.partition.read_open(file);
        }
    }

    /// Stores that the source has begun, so that files that appear later are read from their beginning.
    fn remember_the_start(&mut self) {
        self.in_flight.add(&Partition::ONLY, 1);
        self.events.push_back(Read::Progress(Partition::ONLY, ContentPosition::start(0, 0).position()));
    }

    fn name_of(&self, path: &Path) -> Partition {
        match &self.pattern {
            PathPattern::File(_) => Partition::ONLY,
            PathPattern::Directory(_) | PathPattern::Glob(_) => Partition(path.to_string_lossy().as_ref().into()),
        }
    }

    fn add(&mut self, path: PathBuf, resume: Option<(Position, ContentResume)>, begin: Begin) {
        let partition = FilePartition::new(self.name_of(&path), path.clone(), self.format.clone(), resume, begin);
        self.active.insert(path.clone());
        self.files.insert(path, Listed { partition, seen: None });
    }

    /// Returns the positions that the reader returns, for the acknowledger.
    pub(super) fn in_flight(&self) -> InFlight {
        self.in_flight.clone()
    }

    /// Searches for files.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        let now = Instant::now();
        self.search(now)?;
        self.searched = Some(now);
        if self.begin == Begin::End && self.files.is_empty() && !self.pattern.is_of_several() {
            self.remember_the_start();
        }
        self.begin = Begin::Beginning;
        let again = self.unreadable.iter().filter(|(_, (_, is_temporary))| *is_temporary);
        self.active.extend(again.map(|(path, _)| path.clone()));
        Ok(())
    }

    /// Searches for files if it is time, and reads the next records of one of them.
    ///
    /// # Errors
    /// A file or directory cannot be read, or a record is too long.
    pub(super) fn step(&mut self, room: Room) -> Result<SetStep, Fault> {
        let now = Instant::now();
        if self.searched.is_none_or(|searched| now.duration_since(searched) >= self.polling) {
            self.begin()?;
        }
        let mut wake = self.searched.map_or(now, |searched| searched + self.polling);
        let mut caught_up = true;
        let mut passed: BTreeSet<PathBuf> = BTreeSet::new();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(SetStep::Read(event));
            }
            let Some(path) = self.next(&passed) else {
                self.close_some();
                return Ok(SetStep::Idle { until: wake, caught_up });
            };
            let Some(listed) = self.files.get_mut(&path) else {
                self.active.remove(&path);
                continue;
            };
            let partition = &mut listed.partition;
            let step = partition.step(room, now, &self.in_flight);
            let (warnings, missed) = (std::mem::take(&mut partition.warnings), std::mem::take(&mut partition.missed));
            let name = partition.name.clone();
            self.missed += missed;
            warnings.iter().for_each(|warning| self.log(warning));
            self.turn.1 += 1;
            let step = step?;
            if !matches!(step, PartitionStep::Busy | PartitionStep::Waiting(_) | PartitionStep::Unreadable { .. }) {
                self.unreadable.remove(&path);
            }
            match step {
                PartitionStep::Records(records) => {
                    self.in_flight.add(&name, records.len());
                    return Ok(SetStep::Read(Read::Rows { partition: name, records }));
                }
                PartitionStep::Unreadable { fault, is_temporary } => {
                    // The files of a pattern do not wait for each other.
                    if is_temporary && !self.pattern.is_of_several() {
                        return Err(fault);
                    }
                    self.active.remove(&path);
                    self.note_unreadable(path, fault, is_temporary);
                }
                PartitionStep::Moved(position) => {
                    self.in_flight.add(&name, 1);
                    return Ok(SetStep::Read(Read::Progress(name, position)));
                }
                PartitionStep::Busy => {}
                PartitionStep::AtEnd => {
                    self.active.remove(&path);
                }
                PartitionStep::Incomplete => {
                    passed.insert(path);
                }
                PartitionStep::Waiting(until) => {
                    caught_up = false;
                    wake = wake.min(until);
                    passed.insert(path);
                }
                PartitionStep::Gone => {
                    // A file system that is not mounted looks as if all files were gone.
                    self.active.remove(&path);
                    if self.found_any && self.pattern.is_of_several() {
                        self.files.remove(&path);
                        self.unreadable.remove(&path);
                        return Ok(SetStep::Read(Read::Finished(name)));
                    }
                }
            }
        }
    }

    /// Returns the file whose turn it is, without those that wait.
    fn next(&mut self, passed: &BTreeSet<PathBuf>) -> Option<PathBuf> {
        let (current, steps) = &self.turn;
        if *steps < TURN && self.active.contains(current) && !passed.contains(current) {
            return Some(current.clone());
        }
        let after = self.active.range::<PathBuf, _>((Bound::Excluded(current.clone()), Bound::Unbounded));
        let path = after.chain(&self.active).find(|path| !passed.contains(*path))?.clone();
        self.turn = (path.clone(), 0);
        Some(path)
    }

    /// Lists the files, and finds those that are new, changed, renamed or gone.
    fn search(&mut self, now: Instant) -> Result<(), Fault> {
        let mut found: Vec<ListedFile> = self.pattern.list().map_err(|error| unreadable(&self.shown, &error))?;
        found.retain(|file| self.slots.has(&self.name_of(&file.path)));
        self.found_any |= !found.is_empty();
        let at: BTreeMap<&Path, &Metadata> = found.iter().map(|file| (file.path.as_path(), &file.metadata)).collect();
        // Files whose path leads elsewhere: by their identity, because they may be found under another path.
        let mut left: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
        for (path, Listed { partition, seen }) in &mut self.files {
            let here = at.get(path.as_path()).copied();
            partition.note(here, now);
            let is_changed = here.map(Seen::of) != *seen;
            *seen = here.map(Seen::of);
            if is_changed {
                self.active.insert(path.clone());
            }
            if let Some((identity, born)) = partition.file()
                && !here.is_some_and(|here| is_of(here, identity, born))
            {
                left.entry(identity).or_default().push(path.clone());
            }
        }
        let mut moves: Vec<RenamedFile> = Vec::new();
        for ListedFile { path, metadata } in &found {
            let mut from = left.get(&identity(metadata)).cloned().unwrap_or_default();
            from.retain(|former| {
                let listed = self.files.get(former);
                listed.and_then(|it| it.partition.file()).is_some_and(|(of, born)| is_of(metadata, of, born))
            });
            let own = self.files.get(path).and_then(|listed| listed.partition.file());
            let is_known = own.is_some_and(|(of, born)| is_of(metadata, of, born));
            let is_renamed = !from.is_empty() && !is_known;
            let seen = Seen::of(metadata);
            moves.extend((!from.is_empty()).then(|| RenamedFile { from, to: path.clone(), is_known, seen }));
            if !self.files.contains_key(path) && !is_renamed {
                self.add(path.clone(), None, self.begin);
            }
            if let Some(listed) = self.files.get_mut(path) {
                listed.seen = Some(seen);
            }
        }
        self.rename(moves, now);
        Ok(())
    }

    /// Continues in files that were renamed, at their new paths. Their former partitions start over with the files that
    /// are at the former paths.
    fn rename(&mut self, moves: Vec<RenamedFile>, now: Instant) {
        let mut handovers: Vec<(PathBuf, Seen, Option<Handover>)> = Vec::new();
        for RenamedFile { from, to, is_known, seen } in moves {
            let mut taken: Option<Handover> = None;
            for former in from {
                let Some(Listed { partition, .. }) = self.files.get_mut(&former) else { continue };
                let handover = partition.hand_over(&self.in_flight, now);
                self.active.insert(former);
                // After a crash, several marks may be of the file. Everything before each of them is stored.
                taken = match (taken, handover) {
                    (Some(one), Some(other)) => Some(if other.is_before(&one) { other } else { one }),
                    (one, other) => one.or(other),
                };
            }
            if !is_known {
                handovers.push((to, seen, taken));
            }
        }
        for (to, now_there, handover) in handovers {
            if !self.files.contains_key(&to) {
                self.add(to.clone(), None, Begin::Beginning);
            }
            self.active.insert(to.clone());
            let Some(Listed { partition, seen }) = self.files.get_mut(&to) else { continue };
            *seen = Some(now_there);
            if let Some(position) = handover.and_then(|handover| partition.adopt(handover)) {
                self.in_flight.add(&partition.name, 1);
                self.events.push_back(Read::Progress(partition.name.clone(), position));
            }
        }
    }

    /// Closes files that wait, if too many are open.
    fn close_some(&mut self) {
        let open = self.files.values().filter(|listed| listed.partition.is_open()).count();
        let idle = self
            .files
            .iter_mut()
            .filter(|(path, listed)| listed.partition.is_open() && !self.active.contains(path.as_path()));
        idle.take(open.saturating_sub(MOST_OPEN)).for_each(|(_, listed)| listed.partition.close());
    }

    /// Returns the unread part of the files, as the last search found them.
    pub(super) fn backlog(&self) -> Backlog {
        let unread = |listed: &Listed| listed.partition.unread(listed.seen.map_or(0, |seen| seen.length));
        Backlog { bytes: Some(self.files.values().map(unread).sum()), missed: self.missed, ..Backlog::default() }
    }

    /// Returns `true` if no file was found.
    pub(super) fn is_empty(&self) -> bool {
        self.files.values().all(|listed| listed.seen.is_none())
    }

    fn note_unreadable(&mut self, path: PathBuf, fault: Fault, is_temporary: bool) {
        let known = self.unreadable.get(&path);
        if known.is_none_or(|(known, _)| known.message() != fault.message()) {
            self.log(&fault.message());
        }
        self.unreadable.insert(path, (fault, is_temporary));
    }

    /// Describes the records that are left in files: those that cannot be read, and those that are not complete.
    pub(super) fn left(&self) -> Option<String> {
        let first = self.unreadable.values().next().map(|(fault, _)| fault.message());
        let unreadable = first.map(|first| match self.unreadable.len() {
            1 => first,
            more => format!("{} cannot be read, the first is this: {first}", counted(more, "file")),
        });
        let left: Vec<String> = unreadable.into_iter().chain(self.incomplete()).collect();
        (!left.is_empty()).then(|| left.join("; "))
    }

    /// Describes the files that end in the middle of a compressed member or of a table.
    fn incomplete(&self) -> Option<String> {
        let incomplete = self.files.iter().filter(|(_, listed)| listed.partition.is_incomplete());
        let paths: Vec<String> = incomplete.map(|(path, _)| path.display().to_string()).collect();
        let first = paths.first()?;
        let (ends, end) = match self.format.framing {
            Framing::Parquet => ("is not a complete Parquet file", "are not complete Parquet files"),
            _ => ("ends in the middle of a compressed member", "end in the middle of a compressed member"),
        };
        Some(match paths.len() {
            1 => format!("{first} {ends}: its rest is read when it is there"),
            more => format!(
                "{} {end}, the first is {first}: their rests are read when they are there",
                counted(more, "file")
            ),
        })
    }

    fn log(&self, warning: &str) {
        tracing::warn!(pipeline = %self.pipeline, connector = %self.node, "{warning}");
    }
}
