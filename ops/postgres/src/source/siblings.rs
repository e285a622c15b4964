//! The units of a source that is split, as each of them sees the others: their stored marks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::state::SiblingMarks;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use tokio::sync::watch;
use tokio::time::sleep;

use super::lanes::{FIRST, Lanes, of_part, part_of};
use super::position::{CHANGES, PLAN, Stage, StoredPosition};
use super::snapshot::Plan;
use crate::codes;

/// Time between two looks while a snapshot is read.
const READING: Duration = Duration::from_millis(500);
/// Time between two looks while changes are read.
const STREAMING: Duration = Duration::from_secs(10);

/// How far the parts of a source are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Siblings {
    /// How far the part with the changes is.
    pub(super) stage: Option<Stage>,
    /// The snapshot that the parts are to read.
    pub(super) announced: Option<Plan>,
    /// For each part, the number of the last snapshot of which it has delivered its share.
    pub(super) complete: BTreeMap<u32, u32>,
    /// True if a run that was not split has stored positions beside the changes.
    pub(super) is_whole: bool,
}

impl Siblings {
    /// Reads what the parts have stored.
    ///
    /// # Errors
    /// The store cannot be read, or has positions of something else.
    pub(super) async fn look(marks: &dyn SiblingMarks) -> Result<Siblings, Fault> {
        let marks = marks.marks().await.map_err(|error| {
            Fault::transient(codes::SIBLINGS_UNKNOWN, format!("cannot read how far the other parts are: {error}"))
        })?;
        Siblings::of(&marks)
    }

    fn of(marks: &BTreeMap<Partition, Mark>) -> Result<Siblings, Fault> {
        let stored = |lane: &Partition| marks.get(lane).filter(|mark| !mark.position.0.is_empty());
        let plan = |lane: &Partition| stored(lane).map(|mark| Plan::decode(&mark.position)).transpose();
        let stage = match stored(&CHANGES).map(|mark| StoredPosition::decode(&mark.position)).transpose()? {
            Some(StoredPosition::Ours(position)) => Some(position.stage),
            _ => None,
        };
        let mut complete = BTreeMap::new();
        for part in marks.keys().filter_map(part_of).filter(|part| *part != FIRST) {
            if let Some(share) = plan(&of_part(&PLAN, part))?.and_then(|plan| plan.share).filter(|share| share.complete)
            {
                complete.insert(part, share.snapshot);
            }
        }
        let [_, others @ ..] = Lanes::Whole.lasting();
        Ok(Siblings {
            stage,
            announced: plan(&Lanes::Split.plan())?,
            complete,
            is_whole: others.iter().any(|lane| stored(lane).is_some()),
        })
    }

    /// Returns `true` if only changes are left.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Some(Stage::Changes | Stage::Complete))
    }

    /// Returns `true` if all parts have delivered their shares of a snapshot.
    pub(super) fn have_all(&self, parts: u32, snapshot: u32) -> bool {
        (1..=parts).all(|part| self.complete.get(&part) == Some(&snapshot))
    }
}

/// Looks at the parts again and again. Returns when nobody wants to know.
pub(super) async fn follow(marks: Arc<dyn SiblingMarks>, tell: watch::Sender<Siblings>) {
    loop {
        let pause = if tell.borrow().is_over() { STREAMING } else { READING };
        tokio::select! {
            () = sleep(pause) => {}
            () = tell.closed() => return,
        }
        match Siblings::look(&*marks).await {
            Ok(siblings) => {
                tell.send_if_modified(|known| std::mem::replace(known, siblings) != *known);
            }
            // The run itself notices if the store stays away.
            Err(fault) => tracing::debug!(%fault, "cannot see the other parts"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::lsn::Lsn;
    use crate::source::position::{ChangePosition, Server};
    use crate::source::snapshot::Share;

    #[test]
    fn changes_wait_for_the_shares_of_the_latest_snapshot() {
        let mark = |position| Mark { generation: 1, seq: 1, position };
        let server = Server { system: "1".into(), timeline: 1 };
        let at = |stage| mark(ChangePosition::at(&server, "s", stage, Lsn(1)).encode());
        let plan = |part, snapshot, complete| {
            let share = Share { part, of: 2, snapshot, complete, ..Share::default() };
            mark(Plan { share: Some(share), ..Plan::default() }.encode())
        };
        let mut marks = BTreeMap::from([
            (CHANGES, at(Stage::Snapshot)),
            (of_part(&PLAN, 0), plan(0, 8, false)),
            (of_part(&PLAN, 1), plan(1, 8, true)),
            (of_part(&PLAN, 2), plan(2, 7, true)),
        ]);
        let siblings = Siblings::of(&marks).unwrap();
        assert!(!siblings.have_all(2, 8) && siblings.have_all(1, 8) && !siblings.is_over() && !siblings.is_whole);
        marks.insert(of_part(&PLAN, 2), plan(2, 8, false));
        assert!(!Siblings::of(&marks).unwrap().have_all(2, 8));
        marks.insert(of_part(&PLAN, 2), plan(2, 8, true));
        assert!(Siblings::of(&marks).unwrap().have_all(2, 8));
        marks.insert(CHANGES, at(Stage::Changes));
        marks.insert(PLAN, plan(0, 8, true));
        let siblings = Siblings::of(&marks).unwrap();
        assert!(siblings.is_over() && siblings.is_whole);
        // A position that a user has reset is none.
        marks.insert(CHANGES, Mark::beginning(2));
        assert_eq!(Siblings::of(&marks).unwrap().stage, None);
    }
}
