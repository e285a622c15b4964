//! A renamed file: its former partition hands it over to the partition of its new path.
//!
//! Records that the former partition has read may be in flight. Until they are acknowledged, the place that the new
//! partition stores is the one up to which everything is stored, and nothing of the file is read.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_record::Position;
use anabranch_record::mark::Partition;

use super::{Begin, FilePartition, PartitionStep};
use crate::file::content_position::{ContentPosition, ContentResume};
use crate::file::source::in_flight::InFlight;

/// Pause between two checks for acknowledgements.
const LOOK: Duration = Duration::from_millis(20);

/// Maximum time of waiting for acknowledgements, because a processor may keep records. The records that are not
/// acknowledged then are read again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A position and what it says.
type Place = (Position, ContentResume);

/// A file that continues in another partition.
pub(in super::super) struct Handover {
    /// The place up to which everything is stored.
    stored: Place,
    hold: Option<Hold>,
    file: Option<Arc<File>>,
}

/// Records of a file that are in flight in its former partition.
pub(super) struct Hold {
    former: Partition,
    /// Number of positions of the former partition after which they are acknowledged.
    count: u64,
    /// The place after them.
    read: Place,
    until: Instant,
}

impl Handover {
    /// Returns `true` if less of the file is stored.
    pub(in super::super) fn is_before(&self, other: &Handover) -> bool {
        self.stored.1.delivered() < other.stored.1.delivered()
    }
}

impl FilePartition {
    /// Leaves the file to another partition, and starts over with the file at the path, if there is one. Returns `None` if
    /// nothing of the file was read.
    pub(in super::super) fn hand_over(&mut self, in_flight: &InFlight, now: Instant) -> Option<Handover> {
        let read = self.delivered.clone().zip(self.resume());
        let (file, hold) = (self.file.take(), self.hold.take());
        let handover = read.map(|read| match (hold, in_flight.unacknowledged(&self.name)) {
            (None, Some(count)) => {
                let stored = self.stored(&read.1, in_flight);
                Handover {
                    stored,
                    hold: Some(Hold { former: self.name.clone(), count, read, until: now + PATIENCE }),
                    file,
                }
            }
            (hold, _) => Handover { stored: read, hold, file },
        });
        self.forget_file();
        handover
    }

    /// Returns the place in the file that is read up to which everything is stored.
    fn stored(&self, read: &ContentResume, in_flight: &InFlight) -> Place {
        let decoded = |position: Position| Some((position.clone(), ContentResume::decode(&position).ok()?));
        let stored = in_flight.stored(&self.name).and_then(decoded);
        let start = || {
            let position = ContentPosition::start(read.identity, read.born).position();
            decoded(position).unwrap_or_else(|| unreachable!("an encoded place is decoded"))
        };
        stored.filter(|(_, stored)| stored.is_of(read.identity, read.born)).unwrap_or_else(start)
    }

    /// Continues in a file that was renamed to this path, and returns its position. Returns `None` if this partition first
    /// reads the rest of its own file, which is not at the path any more.
    pub(in super::super) fn adopt(&mut self, handover: Handover) -> Option<Position> {
        if self.has_file() {
            self.successor = Some(handover);
            return None;
        }
        Some(self.begin_at(handover))
    }

    /// Continues in the file that was renamed to this path, once the file before it is read.
    pub(super) fn begin_successor(&mut self) -> Option<PartitionStep> {
        if self.has_file() {
            return None;
        }
        let successor = self.successor.take()?;
        Some(PartitionStep::Moved(self.begin_at(successor)))
    }

    fn has_file(&self) -> bool {
        self.file.is_some() || self.file().is_some()
    }

    fn begin_at(&mut self, Handover { stored: (position, resume), hold, file }: Handover) -> Position {
        self.announced = Some((resume.identity, resume.born));
        (self.delivered, self.resume) = (Some(position.clone()), Some(resume));
        (self.hold, self.file) = (hold, file);
        position
    }

    /// Starts over with the file at the path.
    pub(super) fn forget_file(&mut self) {
        self.start_over();
        (self.file, self.hold, self.replaced, self.announced) = (None, None, None, None);
        self.begin = Begin::Beginning;
    }

    /// Waits until the records that the former partition has read are acknowledged. Returns `None` if there are none.
    pub(super) fn wait_for_former(&mut self, in_flight: &InFlight, now: Instant) -> Option<PartitionStep> {
        let hold = self.hold.take()?;
        if in_flight.has_acknowledged(&hold.former, hold.count) {
            let (position, resume) = hold.read;
            (self.delivered, self.resume) = (Some(position.clone()), Some(resume));
            return Some(PartitionStep::Moved(position));
        }
        if now >= hold.until {
            return None;
        }
        self.hold = Some(hold);
        Some(PartitionStep::Waiting(now + LOOK))
    }
}
