//! Everything that a store keeps, as values that do not depend on its form: what a copy from one store to another takes
//! along. Dead letters are copied apart, because they may be large. Cached results are left out: they are made again.

use std::collections::BTreeMap;

use anabranch_plugin::state::{Receipt, Unit};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use bytes::Bytes;

use crate::entity::StoredPipeline;
use crate::letters::StoredLetter;
use crate::schemas::Deletion;

/// The contents of a store, without its dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) pipelines: Vec<StoredPipeline>,
    /// The latest claim of each unit.
    pub(crate) claims: BTreeMap<Unit, u64>,
    pub(crate) marks: Vec<StoredMark>,
    /// Marks of connectors that are missing in the files.
    pub(crate) detached: Vec<StoredMark>,
    pub(crate) receipts: Vec<(Unit, Receipt)>,
    /// The last active settings of a plugin, by pipeline and connector.
    pub(crate) active: Vec<(Str, Str, Bytes)>,
    /// Queues of dead letters, by pipeline.
    pub(crate) queues: BTreeMap<Str, LetterCounter>,
    /// Texts of schemas, by id. An empty text only reserves its id.
    pub(crate) definitions: Vec<(u32, Str)>,
    pub(crate) versions: Vec<StoredVersion>,
    /// Compatibility levels: that of a subject, or the global one.
    pub(crate) levels: Vec<(Option<Str>, Str)>,
}

/// A mark of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredMark {
    pub(crate) unit: Unit,
    pub(crate) lane: LaneId,
    pub(crate) mark: Mark,
}

/// A version of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredVersion {
    pub(crate) subject: Str,
    pub(crate) version: u32,
    /// Id of its text.
    pub(crate) id: u32,
    pub(crate) deleted: Option<Deletion>,
}

/// Numbers of a queue of dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LetterCounter {
    /// Number of the next dead letter.
    pub(crate) next: u64,
    pub(crate) count: u64,
    /// Bytes, as they count towards the limit.
    pub(crate) bytes: u64,
    /// Dead letters that were evicted.
    pub(crate) evicted: u64,
}

/// Dead letters of one pipeline with their numbers.
pub(crate) type NumberedLetters = Vec<(u64, StoredLetter)>;

impl Contents {
    /// Returns `true` if there is nothing that a copy would replace.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Contents::default()
    }

    /// Puts everything of a pipeline into one unit: how many units it has is up to those that run it. A lane that has marks in
    /// several units keeps the latest.
    pub(crate) fn in_whole_units(self) -> Contents {
        let mut claims = BTreeMap::new();
        for (unit, number) in self.claims {
            let latest = claims.entry(Unit::whole(unit.pipeline)).or_insert(0);
            *latest = number.max(*latest);
        }
        let mut receipts: BTreeMap<(Str, Str), BTreeMap<LaneId, Mark>> = BTreeMap::new();
        for (unit, Receipt { destination, lane, mark }) in self.receipts {
            latest(receipts.entry((unit.pipeline, destination)).or_default(), lane, mark);
        }
        let receipts = receipts.into_iter().flat_map(|((pipeline, destination), marks)| {
            let unit = Unit::whole(pipeline);
            marks
                .into_iter()
                .map(move |(lane, mark)| (unit.clone(), Receipt { destination: destination.clone(), lane, mark }))
        });
        Contents {
            claims,
            marks: in_whole_units(self.marks),
            detached: in_whole_units(self.detached),
            receipts: receipts.collect(),
            ..self
        }
    }

    /// Returns the approximate number of bytes.
    pub(crate) fn weight(&self) -> usize {
        const SMALL: usize = 128;
        let rows =
            self.claims.len() + self.marks.len() + self.detached.len() + self.receipts.len() + self.versions.len();
        let texts: usize = self.definitions.iter().map(|(_, text)| text.len()).sum();
        (rows + self.pipelines.len() * 8) * SMALL + texts
    }
}

fn in_whole_units(marks: Vec<StoredMark>) -> Vec<StoredMark> {
    let mut whole: BTreeMap<Str, BTreeMap<LaneId, Mark>> = BTreeMap::new();
    for StoredMark { unit, lane, mark } in marks {
        latest(whole.entry(unit.pipeline).or_default(), lane, mark);
    }
    let of = |(pipeline, marks): (Str, BTreeMap<LaneId, Mark>)| {
        let unit = Unit::whole(pipeline);
        marks.into_iter().map(move |(lane, mark)| StoredMark { unit: unit.clone(), lane, mark })
    };
    whole.into_iter().flat_map(of).collect()
}

/// Adds a mark. If a lane has marks in several units, because it changed its unit, the last one counts.
pub(super) fn latest(marks: &mut BTreeMap<LaneId, Mark>, lane: LaneId, mark: Mark) {
    let number = |mark: &Mark| (mark.generation, mark.seq);
    if marks.get(&lane).is_none_or(|known| number(known) < number(&mark)) {
        marks.insert(lane, mark);
    }
}
