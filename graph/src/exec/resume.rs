//! Start positions of sources, if transactional destinations have positions too.
//!
//! The state store decides, with two exceptions. If all rows of a source go to one transactional destination, the
//! source resumes after the mark of that destination, which has exactly the rows before it. A store of a later
//! generation still decides, because a user moved the position; a store of an earlier generation is an old copy. If a
//! destination has less than its receipt, it lost rows that it had confirmed. The source then resumes after the
//! remaining mark if it can read the rows again; otherwise the pipeline stops. With several destinations, the source
//! resumes after the lowest of these marks. A transactional destination skips the rows that it has, if row numbers
//! refer to the same rows as before.
//!
//! A mark of the store ahead of the mark of the destination is not evidence of a loss, because filtered and
//! dead-lettered rows move only the former. A destination without a receipt is new, or takes part in transactions only
//! since this run.

use std::collections::BTreeMap;

use anabranch_plugin::destination::Retry;
use anabranch_plugin::state::Receipt;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::deliver::WriterMarks;
use super::receipt::needed;
use crate::codes;
use crate::plan::stage::{ReadSpec, StageId, StageKind, StagePlan, WriteSpec};

/// Result of comparing the marks of the store and of the destinations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resume {
    /// Marks to store before a source is opened.
    pub(super) moves: Vec<(LaneId, Mark)>,
    /// Receipts to store with the marks.
    pub(super) receipts: Vec<Receipt>,
    /// Marks of destinations that are ignored.
    pub(super) foreign: Vec<ForeignMark>,
    /// Destinations that have less than they confirmed.
    pub(super) lost: Vec<MissingWrites>,
}

/// A mark whose generation differs from that of the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForeignMark {
    /// The destination connector.
    pub(super) destination: Str,
    /// The lane.
    pub(super) lane: LaneId,
    /// Generation of the mark of the destination.
    pub(super) theirs: u64,
    /// Generation of the mark of the store.
    pub(super) ours: u64,
}

/// A destination that has less than it confirmed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingWrites {
    /// The destination connector.
    pub(super) destination: Str,
    /// The lane.
    pub(super) lane: LaneId,
    /// The mark that it had confirmed.
    pub(super) confirmed: Mark,
    /// The mark that it has.
    pub(super) left: Option<Mark>,
    /// Action to take.
    pub(super) remedy: Remedy,
}

/// Action if a destination has lost positions that it had confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The source resumes after the remaining mark.
    Rewound,
    /// None: a user has moved the position since, and thereby decided what is delivered again.
    MovedByUser,
}

/// Compares the marks of the store with those of the destinations, by stage. O(sources × (stages + marks + receipts)).
///
/// # Errors
/// A destination lost rows that it had confirmed, and the source cannot deliver them again.
pub(super) fn resume(
    plan: &StagePlan,
    stored: &BTreeMap<LaneId, Mark>,
    known: &BTreeMap<StageId, WriterMarks>,
    receipts: &[Receipt],
) -> Result<Resume, Fault> {
    let mut resume = Resume::default();
    let receipts: BTreeMap<(&Str, &LaneId), &Mark> =
        receipts.iter().map(|receipt| ((&receipt.destination, &receipt.lane), &receipt.mark)).collect();
    for (index, stage) in plan.stages.iter().enumerate() {
        let StageKind::Read(read) = &stage.kind else { continue };
        let reached = plan.reachable(StageId(index));
        let writes = reached.iter().filter_map(|at| match &plan.stages[at.0].kind {
            StageKind::Write(write) => Some((*at, write)),
            _ => None,
        });
        let writes: Vec<_> = writes.collect();
        let transactional: Vec<_> =
            writes.iter().filter(|(_, write)| write.destination.policy().retry == Retry::Transactional).collect();
        let mut moves: BTreeMap<LaneId, Mark> = BTreeMap::new();
        for (at, write) in &transactional {
            let theirs = known.get(at);
            for ((_, lane), confirmed) in receipts
                .iter()
                .filter(|((destination, lane), _)| **destination == write.connector && lane.connector == read.connector)
            {
                let (Some(ours), left) = (stored.get(lane), theirs.and_then(|theirs| theirs.get(lane))) else {
                    continue;
                };
                if has(left, confirmed) || mutant!(WentBackGoesOn) {
                    continue;
                }
                let remedy = remedy(read, write, lane, ours, confirmed, left)?;
                if let (Remedy::Rewound, Some(left)) = (remedy, left) {
                    let to = moves.entry((*lane).clone()).or_insert_with(|| left.clone());
                    if left.seq < to.seq {
                        *to = left.clone();
                    }
                }
                let (destination, lane) = (write.connector.clone(), (*lane).clone());
                let (confirmed, left) = ((*confirmed).clone(), left.cloned());
                resume.lost.push(MissingWrites { destination, lane, confirmed, left, remedy });
            }
        }
        for (at, write) in &transactional {
            let marks = known.get(at).into_iter().flatten().filter(|(lane, _)| lane.connector == read.connector);
            for (lane, theirs) in marks {
                let ours = stored.get(lane);
                let of = |mark: &Mark| (mark.generation, mark.seq);
                if writes.len() == 1 && ours.is_none_or(|ours| of(ours) < of(theirs)) {
                    moves.insert(lane.clone(), theirs.clone());
                // If the positions are equal, the source does not read records again that the destination already has.
                } else if let Some(ours) =
                    ours.filter(|ours| ours.generation != theirs.generation && ours.position != theirs.position)
                {
                    let (destination, lane) = (write.connector.clone(), lane.clone());
                    let (theirs, ours) = (theirs.generation, ours.generation);
                    resume.foreign.push(ForeignMark { destination, lane, theirs, ours });
                }
            }
        }
        for (at, write) in &transactional {
            let of_source = |(lane, _): &(&LaneId, &Mark)| lane.connector == read.connector;
            let unmoved = stored.iter().filter(of_source).filter(|(lane, _)| !moves.contains_key(*lane));
            for (lane, ours) in unmoved.chain(&moves) {
                let theirs = known.get(at).and_then(|theirs| theirs.get(lane));
                let before = receipts.get(&(&write.connector, lane)).copied();
                let mark = needed(theirs, ours);
                if (theirs.is_some() || before.is_some()) && before != Some(&mark) {
                    resume.receipts.push(Receipt { destination: write.connector.clone(), lane: lane.clone(), mark });
                }
            }
        }
        resume.moves.extend(moves);
    }
    Ok(resume)
}

/// Returns `true` if a destination with this mark has everything that it confirmed.
fn has(left: Option<&Mark>, confirmed: &Mark) -> bool {
    confirmed.seq == 0 || left.is_some_and(|left| (left.generation, left.seq) >= (confirmed.generation, confirmed.seq))
}

fn remedy(
    read: &ReadSpec,
    write: &WriteSpec,
    lane: &LaneId,
    ours: &Mark,
    confirmed: &Mark,
    left: Option<&Mark>,
) -> Result<Remedy, Fault> {
    if ours.generation > confirmed.generation && ours.seq == 0 {
        return Ok(Remedy::MovedByUser);
    }
    let same = left.filter(|left| left.generation == confirmed.generation && left.generation == ours.generation);
    if same.is_some() && read.source.rereads() {
        return Ok(Remedy::Rewound);
    }
    let why = match same {
        Some(_) => "the source cannot read acknowledged records again",
        None => "it has no position from which the source could resume",
    };
    Err(went_back(&write.connector, lane, confirmed, left, why))
}

/// Asks the sources whether the rows to deliver again can still be read.
///
/// # Errors
/// A source no longer has the rows, or cannot determine it.
pub(super) async fn ask_sources(plan: &StagePlan, lost: &[MissingWrites]) -> Result<(), Fault> {
    for MissingWrites { destination, lane, confirmed, left, remedy } in lost {
        let (Remedy::Rewound, Some(at)) = (remedy, left) else { continue };
        let sources = plan.stages.iter().filter_map(|stage| match &stage.kind {
            StageKind::Read(read) if read.connector == lane.connector => Some(read),
            _ => None,
        });
        for read in sources {
            if !read.source.still_has(&at.position).await.map_err(|fault| fault.at(&read.connector))? {
                let why = "the source no longer has the records after that position";
                return Err(went_back(destination, lane, confirmed, left.as_ref(), why));
            }
        }
    }
    Ok(())
}

fn went_back(destination: &Str, lane: &LaneId, confirmed: &Mark, left: Option<&Mark>, why: &str) -> Fault {
    let partition = match lane.partition.0.as_str() {
        "" => String::new(),
        partition => format!(", partition {partition:?}"),
    };
    let has = match left {
        None => "it has none".to_owned(),
        Some(left) => format!("it has {}", shown(left)),
    };
    let what = format!(
        "the destination lost records that it had confirmed, for example because of a failover, a restored backup or \
         another database: of source {}{partition} it had confirmed {}, and {has}; {why}. Restore the destination or \
         the data of the source, or choose where the source resumes: `anabranch positions reset` delivers everything \
         again, `anabranch positions rewind` the records after a position",
        lane.connector,
        shown(confirmed),
    );
    Fault::fatal(codes::DESTINATION_WENT_BACK, what).at(destination)
}

/// Formats a mark for messages.
pub(super) fn shown(mark: &Mark) -> String {
    let Mark { generation, seq, position } = mark;
    let records = format!("{seq} {}", plural(*seq, "record"));
    format!("{records} of generation {generation}, up to position {}", text(position))
}

/// Formats a position as the command line accepts it.
fn text(position: &Position) -> String {
    match std::str::from_utf8(&position.0) {
        Ok("") => "(the beginning)".to_owned(),
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("base64:{}", STANDARD.encode(&position.0)),
    }
}
