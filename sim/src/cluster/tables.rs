//! The tables of the store, as the statements of the service read and change them: leases, units, claims and marks.

use std::collections::BTreeMap;

use anabranch_cluster::{HeldUnit, History, LEASE, LeaseError, NodeId, NodeLoad, SAFE, View};
use anabranch_plugin::state::{Epoch, Receipt, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;

use super::PlantedFault;
use super::ends::row_number;
use super::scenario::ClusterScenario;
use super::world::{RunId, State};

/// Id of the pipeline.
pub(super) const PIPELINE: &str = "p";

/// The tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    nodes: BTreeMap<NodeId, NodeRow>,
    units: BTreeMap<Unit, UnitRow>,
    claims: BTreeMap<Unit, ClaimRow>,
    marks: BTreeMap<Unit, BTreeMap<LaneId, Mark>>,
    receipts: BTreeMap<Unit, BTreeMap<(Str, LaneId), Mark>>,
    /// The history of the server that last gave units away, and since when.
    history: (u64, u64),
    planted: Option<PlantedFault>,
}

#[derive(Clone, Copy, Debug)]
struct NodeRow {
    /// By the clock of the server.
    expires: u64,
    is_leaving: bool,
}

impl NodeRow {
    /// Returns the row of a lease that begins or is renewed.
    fn renewed(clock: u64, is_leaving: bool) -> NodeRow {
        NodeRow { expires: clock + LEASE.as_millis() as u64, is_leaving }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct UnitRow {
    owner: Option<NodeId>,
    wanted_by: Option<NodeId>,
    /// The node that it was taken from; the service does not store that.
    before: Option<NodeId>,
}

#[derive(Clone, Copy, Debug)]
struct ClaimRow {
    number: u64,
    /// The run that has it; the service does not store that.
    run: RunId,
}

/// A request to the store.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Join(NodeId),
    Renew(NodeId, bool),
    Take(NodeId, usize),
    Ask { by: NodeId, of: NodeId, count: usize },
    Release(NodeId, Unit),
    Leave(NodeId),
    Claim { unit: Unit, by: NodeId, run: RunId },
    Load(Epoch),
    Commit { epoch: Epoch, run: RunId, moves: Vec<(LaneId, Mark)>, receipts: Vec<Receipt>, drops: Vec<LaneId> },
}

/// The answer to a request.
pub(super) enum Answer {
    Done,
    Taken(usize),
    Lease(Box<Result<View, LeaseError>>),
    Claimed(Result<Epoch, StoreError>),
    Marks(Result<(BTreeMap<LaneId, Mark>, Vec<Receipt>), StoreError>),
    Committed(Result<(), StoreError>),
}

impl Tables {
    pub(super) fn new(scenario: &ClusterScenario, planted: Option<PlantedFault>) -> Tables {
        let unit = |slot| (Unit { pipeline: PIPELINE.into(), slot }, UnitRow::default());
        Tables { units: (0..scenario.slots).map(unit).collect(), history: (1, 0), planted, ..Tables::default() }
    }

    /// Returns the number of rows of a partition that are stored as delivered.
    pub(super) fn stored(&self, partition: &Partition) -> u64 {
        let of_unit = |marks: &BTreeMap<LaneId, Mark>| {
            marks.iter().find(|(lane, _)| lane.partition == *partition).map(|(_, mark)| row_number(&mark.position))
        };
        self.marks.values().filter_map(of_unit).max().unwrap_or(0)
    }

    fn is_live(&self, id: NodeId, clock: u64) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.expires > clock)
    }

    fn is_free(&self, row: &UnitRow) -> bool {
        row.owner.is_none_or(|owner| !self.nodes.contains_key(&owner))
    }

    fn renew(&mut self, id: NodeId, is_leaving: bool, clock: u64, history: u64) -> Result<View, LeaseError> {
        let is_planted = self.planted == Some(PlantedFault::RenewedAfterItsEnd);
        // The rows that a renewal removes are still seen by its other parts.
        let seen = self.nodes.clone();
        if is_planted && !self.is_live(id, clock) {
            // It has again what it had.
            self.units.values_mut().filter(|row| row.before == Some(id)).for_each(|row| row.owner = Some(id));
        } else if !self.is_live(id, clock) {
            self.nodes.retain(|_, node| node.expires > clock);
            return Err(LeaseError::Over);
        }
        self.nodes.insert(id, NodeRow::renewed(clock, is_leaving));
        self.nodes.retain(|_, node| node.expires > clock);
        let live: Vec<NodeId> = seen.keys().copied().filter(|node| self.is_live(*node, clock)).collect();
        let is_wanted = |row: &UnitRow| row.wanted_by.is_some_and(|by| live.contains(&by));
        let load = |node: &NodeId| NodeLoad {
            id: *node,
            units: self.units.values().filter(|row| row.owner == Some(*node) && !is_wanted(row)).count(),
            is_leaving: self.nodes.get(node).is_some_and(|row| row.is_leaving),
        };
        let of = self.units.len() as u32;
        let held = self.units.iter().filter(|(_, row)| row.owner == Some(id)).map(|(unit, row)| HeldUnit {
            unit: unit.clone(),
            of,
            is_wanted: is_wanted(row),
            is_ending: false,
        });
        let is_asked = |row: &&UnitRow| {
            row.wanted_by == Some(id) && row.owner.is_some_and(|owner| owner != id && live.contains(&owner))
        };
        Ok(View {
            history: History(history.to_string().into()),
            nodes: live.iter().map(load).collect(),
            held: held.collect(),
            units: self.units.len(),
            free: self.units.values().filter(|row| row.owner.is_none_or(|owner| !live.contains(&owner))).count(),
            labelled: 0,
            asked: self.units.values().filter(is_asked).count(),
            revision: 1,
        })
    }

    fn take(&mut self, id: NodeId, count: usize, clock: u64, history: u64) -> usize {
        if self.history.0 != history {
            self.history = (history, clock);
        }
        let waits =
            clock < self.history.1 + SAFE.as_millis() as u64 && self.planted != Some(PlantedFault::TakenAfterFailover);
        if waits || !self.is_live(id, clock) {
            return 0;
        }
        let is_free = |row: &UnitRow| match self.planted {
            Some(PlantedFault::ForcedStealing) => row.owner != Some(id),
            _ => self.is_free(row),
        };
        let free: Vec<Unit> = self.units.iter().filter(|(_, row)| is_free(row)).map(|(unit, _)| unit.clone()).collect();
        let taken = free.len().min(count);
        for unit in free.into_iter().take(count) {
            let before = self.units.get(&unit).and_then(|row| row.owner);
            self.units.insert(unit, UnitRow { owner: Some(id), wanted_by: None, before });
        }
        taken
    }

    fn ask(&mut self, by: NodeId, of: NodeId, count: usize) {
        let nodes = &self.nodes;
        let is_asked = |row: &UnitRow| row.wanted_by.is_some_and(|by| nodes.contains_key(&by));
        let asked = self.units.values_mut().filter(|row| row.owner == Some(of) && !is_asked(row)).take(count);
        match self.planted {
            Some(PlantedFault::HeirBeforeDrain) => {
                asked.for_each(|row| *row = UnitRow { owner: Some(by), ..UnitRow::default() });
            }
            _ => asked.for_each(|row| row.wanted_by = Some(by)),
        }
    }

    fn release(&mut self, id: NodeId, unit: &Unit, clock: u64) {
        let Some(row) = self.units.get(unit).filter(|row| row.owner == Some(id)) else { return };
        let is_heir = |by: &NodeId| self.is_live(*by, clock) && !self.nodes.get(by).is_some_and(|row| row.is_leaving);
        let owner = row.wanted_by.filter(is_heir);
        self.units.insert(unit.clone(), UnitRow { owner, ..UnitRow::default() });
    }

    fn claim(&mut self, unit: &Unit, by: NodeId, run: RunId, micros: u64) -> Result<Epoch, StoreError> {
        let owner = self.units.get(unit).and_then(|row| row.owner).filter(|owner| *owner != by);
        if let Some(owner) = owner.filter(|owner| self.nodes.contains_key(owner)) {
            return Err(StoreError::Elsewhere { unit: unit.clone(), node: owner.to_string() });
        }
        let next = self.claims.get(unit).map_or(1, |claim| claim.number + 1);
        let number = match self.planted {
            Some(PlantedFault::EpochReused) => next,
            _ => next.max(micros),
        };
        if self.planted == Some(PlantedFault::SiblingsFenced) {
            self.claims.values_mut().for_each(|claim| claim.number = claim.number.max(number));
        }
        self.claims.insert(unit.clone(), ClaimRow { number, run });
        Ok(Epoch { unit: unit.clone(), number })
    }

    fn check(&self, epoch: &Epoch) -> Result<ClaimRow, StoreError> {
        match self.claims.get(&epoch.unit) {
            Some(claim) if claim.number == epoch.number => Ok(*claim),
            other => Err(StoreError::Fenced {
                unit: epoch.unit.clone(),
                ours: epoch.number,
                theirs: other.map_or(0, |claim| claim.number),
            }),
        }
    }

    /// Returns the place of each unit, for people.
    pub(super) fn places(&self) -> String {
        let place =
            |(unit, row): (&Unit, &UnitRow)| format!("{}: {:?} wanted by {:?}", unit.slot, row.owner, row.wanted_by);
        self.units.iter().map(place).collect::<Vec<_>>().join(", ")
    }

    /// Returns the run that has claimed a unit last.
    pub(super) fn claimant(&self, unit: &Unit) -> Option<RunId> {
        self.claims.get(unit).map(|claim| claim.run)
    }
}

impl State {
    /// Carries out a request.
    pub(super) fn handle(&mut self, request: &Request) -> Answer {
        self.note_of_lease(request);
        let (clock, history) = (self.clock(), self.history);
        let tables = &mut self.tables;
        match request {
            Request::Join(id) => {
                tables.nodes.insert(*id, NodeRow::renewed(clock, false));
                Answer::Done
            }
            Request::Renew(id, is_leaving) => Answer::Lease(Box::new(tables.renew(*id, *is_leaving, clock, history))),
            Request::Take(id, count) => Answer::Taken(tables.take(*id, *count, clock, history)),
            Request::Ask { by, of, count } => {
                tables.ask(*by, *of, *count);
                Answer::Done
            }
            Request::Release(id, unit) => {
                tables.release(*id, unit, clock);
                Answer::Done
            }
            Request::Leave(id) => {
                tables.nodes.remove(id);
                Answer::Done
            }
            Request::Claim { unit, by, run } => {
                let claimed = tables.claim(unit, *by, *run, clock * 1_000);
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
        }
    }

    /// Logs what changes the places of units.
    fn note_of_lease(&mut self, request: &Request) {
        match request {
            Request::Renew(..) | Request::Load(_) | Request::Claim { .. } | Request::Commit { .. } => {}
            request => self.note(|| format!("{request:?}")),
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
