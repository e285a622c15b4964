//! The requests of nodes to the store, and what each of them checks.

use std::collections::BTreeMap;

use anabranch_cluster::{LeaseError, NodeId, View};
use anabranch_plugin::state::{Epoch, Receipt, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;

use super::forms::{ProgramVersion, row_number};
use super::tables::{FileSet, SentBy};
use super::world::{RunId, State};

/// A request to the store.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Join(NodeId, usize),
    Renew(NodeId, bool),
    Take(NodeId, usize),
    Ask { by: NodeId, of: NodeId, count: usize },
    Release(NodeId, Unit),
    End(NodeId, Unit),
    Leave(NodeId),
    Import(FileSet),
    Configuration,
    Claim { unit: Unit, by: NodeId, run: RunId },
    Load(Epoch),
    Commit { epoch: Epoch, run: RunId, moves: Vec<(LaneId, Mark)>, receipts: Vec<Receipt>, drops: Vec<LaneId> },
}

/// The answer to a request.
pub(super) enum Answer {
    Done,
    Taken(usize),
    Lease(Box<Result<View, LeaseError>>),
    Configuration(FileSet),
    Claimed(Result<Epoch, StoreError>),
    Marks(Result<(BTreeMap<LaneId, Mark>, Vec<Receipt>), StoreError>),
    Committed(Result<(), StoreError>),
}

impl State {
    /// Carries out a request of a node.
    pub(super) fn handle(&mut self, request: &Request, version: ProgramVersion) -> Answer {
        self.note_of_lease(request);
        let sent = SentBy { version, clock: self.clock(), history: self.history };
        let (tables, random) = (&mut self.tables, &mut self.random);
        let answer = match request {
            Request::Join(id, node) => {
                tables.join(*id, sent);
                self.ids.insert(*id, *node);
                Answer::Done
            }
            Request::Renew(id, is_leaving) => Answer::Lease(Box::new(self.renew(*id, *is_leaving, sent))),
            Request::Take(id, count) => Answer::Taken(tables.take(*id, *count, sent, random)),
            Request::Ask { by, of, count } => {
                tables.ask(*by, *of, *count, random);
                Answer::Done
            }
            Request::Release(id, unit) => {
                self.gives_away(*id, unit);
                self.tables.release(*id, unit, sent);
                Answer::Done
            }
            Request::End(id, unit) => {
                tables.end(*id, unit);
                Answer::Done
            }
            Request::Leave(id) => {
                tables.leave(*id);
                Answer::Done
            }
            Request::Import(set) => {
                self.import(*set, false);
                Answer::Done
            }
            Request::Configuration => Answer::Configuration(tables.set()),
            Request::Claim { unit, by, run } => {
                let claimed = tables.claim(unit, *by, *run, sent);
                self.note(|| format!("run {run} claims {unit}: {claimed:?}"));
                Answer::Claimed(claimed)
            }
            Request::Load(epoch) => Answer::Marks(tables.check(epoch).map(|_| {
                let marks = tables.marks.get(&epoch.unit).cloned().unwrap_or_default();
                let receipts = tables.receipts.get(&epoch.unit).into_iter().flatten();
                let receipt = |((destination, lane), mark): (&(Str, LaneId), &Mark)| Receipt {
                    destination: destination.clone(),
                    lane: lane.clone(),
                    mark: mark.clone(),
                };
                (marks, receipts.map(receipt).collect())
            })),
            Request::Commit { epoch, run, moves, receipts, drops } => {
                Answer::Committed(self.commit(epoch, *run, moves, receipts, drops))
            }
        };
        let erased = self.tables.units.iter().find(|(_, row)| row.newer != self.tables.newer);
        if let Some((unit, row)) = erased {
            let (expected, found) = (self.tables.newer, row.newer);
            self.breaks(format!("{unit} was stored with the newer field {expected:?}, and it has {found:?}"));
        }
        answer
    }

    /// Logs what changes the places of units.
    fn note_of_lease(&mut self, request: &Request) {
        match request {
            Request::Renew(..)
            | Request::Load(_)
            | Request::Configuration
            | Request::Claim { .. }
            | Request::Commit { .. } => {}
            request => self.note(|| format!("{request:?}")),
        }
    }

    fn renew(&mut self, id: NodeId, is_leaving: bool, sent: SentBy) -> Result<View, LeaseError> {
        let newer = self.tables.nodes.get(&id).map(|row| row.newer);
        if newer.is_some_and(|newer| newer.is_none()) && sent.version == ProgramVersion::Newer {
            self.breaks(format!("the row of node {id} has lost the field that only newer nodes know"));
        }
        self.tables.renew(id, is_leaving, sent)
    }

    /// Imports a set of files. Without a request of a user, it must be one that the store never had.
    pub(super) fn import(&mut self, set: FileSet, on_request: bool) {
        let before = self.tables.imported.clone();
        if !self.tables.import(set, on_request) {
            self.note(|| format!("set {set} is not imported after {before:?}"));
            return;
        }
        self.note(|| format!("set {set} is imported after {before:?}"));
        if !on_request && before.contains(&set) {
            self.breaks(format!("set {set} is imported again, after the sets {before:?}"));
        }
    }

    fn commit(
        &mut self,
        epoch: &Epoch,
        run: RunId,
        moves: &[(LaneId, Mark)],
        receipts: &[Receipt],
        drops: &[LaneId],
    ) -> Result<(), StoreError> {
        let claim = self.tables.check(epoch)?;
        if claim.run != run {
            self.breaks(format!("run {run} stores positions of {}, which run {} has claimed", epoch.unit, claim.run));
        }
        for (lane, mark) in moves {
            let (stored, delivered) = (row_number(&mark.position), self.sink.prefix(&lane.partition));
            if stored > delivered {
                self.breaks(format!(
                    "run {run} stores {stored} rows of {}, and the destination has {delivered}",
                    lane.partition.0
                ));
            }
        }
        let marks = self.tables.marks.entry(epoch.unit.clone()).or_default();
        marks.extend(moves.iter().cloned());
        drops.iter().for_each(|lane| drop(marks.remove(lane)));
        let stored = self.tables.receipts.entry(epoch.unit.clone()).or_default();
        for Receipt { destination, lane, mark } in receipts {
            stored.insert((destination.clone(), lane.clone()), mark.clone());
        }
        self.note(|| format!("run {run} stores {}", shown(moves)));
        Ok(())
    }
}

fn shown(moves: &[(LaneId, Mark)]) -> String {
    let one = |(lane, mark): &(LaneId, Mark)| format!("{}: {}", lane.partition.0, row_number(&mark.position));
    moves.iter().map(one).collect::<Vec<_>>().join(", ")
}
