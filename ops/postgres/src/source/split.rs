//! Decides which parts of a source a run reads.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_plugin::host::Host;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};

use super::config::Config;
use super::lanes::{FIRST, of_part, part_of};
use super::position::{CHANGES, PLAN};
use super::siblings::Siblings;
use crate::codes;

/// A source that is split, as one of its runs sees it.
pub(super) struct SplitSource {
    /// Number of parts that read the snapshot.
    pub(super) count: u32,
    /// Numbers of the parts of this run.
    pub(super) mine: BTreeSet<u32>,
    /// True if this run reads the changes.
    pub(super) has_changes: bool,
    /// How far the parts are.
    pub(super) siblings: Siblings,
}

/// Returns the parts that a run reads; `None` if the source is not split.
///
/// # Errors
/// The store cannot be read, or a source that was not split has positions that the parts cannot continue.
pub(super) async fn decide(
    config: &Config,
    resume: &BTreeMap<Partition, Mark>,
    host: &Host,
) -> Result<Option<SplitSource>, Fault> {
    // Lanes keep their names when the setting becomes 1 again.
    let was_split = resume.keys().any(|lane| part_of(lane).is_some());
    if config.parts == 1 && !was_split {
        return Ok(None);
    }
    let siblings = Siblings::look(&*host.marks).await?;
    if siblings.is_whole {
        let text = "the source has positions of a snapshot, a backfill or columns that one run reads: remove \
                    snapshot.parts, or reset the positions to read all rows again";
        return Err(Fault::fatal(codes::POSITION_UNKNOWN, text));
    }
    let share = siblings.announced.as_ref().and_then(|plan| plan.share.as_ref()).filter(|_| !siblings.is_over());
    // The ranges of a snapshot stay with their parts.
    let count = share.map_or(config.parts, |share| share.of);
    let stored = resume.keys().filter_map(part_of).filter(|part| *part != FIRST);
    let mine = (1..=count).chain(stored).filter(|part| host.slots.has(&of_part(&PLAN, *part))).collect();
    Ok(Some(SplitSource { count, mine, has_changes: host.slots.has(&CHANGES), siblings }))
}
