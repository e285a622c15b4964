//! The tables of the store, as the statements of the service read and change them: leases, units, claims, marks and sets of
//! pipeline files.

use std::collections::BTreeMap;

use anabranch_cluster::{HeldUnit, History, LEASE, LeaseError, NodeId, NodeLoad, PastImports, SAFE, SetDecision, View};
use anabranch_plugin::state::{Epoch, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use fastrand::Rng;

use super::PlantedFault;
use super::forms::{ProgramVersion, row_number};
use super::scenario::ClusterScenario;
use super::world::RunId;

/// Id of the pipeline.
pub(super) const PIPELINE: &str = "p";

/// A set of pipeline files; 0 = none.
pub(super) type FileSet = u32;

/// The tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) nodes: BTreeMap<NodeId, NodeRow>,
    pub(super) units: BTreeMap<Unit, UnitRow>,
    pub(super) claims: BTreeMap<Unit, ClaimRow>,
    pub(super) marks: BTreeMap<Unit, BTreeMap<LaneId, Mark>>,
    pub(super) receipts: BTreeMap<Unit, BTreeMap<(Str, LaneId), Mark>>,
    /// The history of the server that last gave units away, and since when.
    history: (u64, u64),
    /// Number of units of the pipeline.
    slots: u32,
    /// The numbers of the sets of files that were imported.
    imports: BTreeMap<FileSet, u64>,
    /// All imports, in order; the service does not store that.
    pub(super) imported: Vec<FileSet>,
    /// Number of the latest change of the configuration.
    pub(super) revision: u64,
    /// The value of the newer field of the units when they were stored; the service does not store that.
    pub(super) newer: Option<u64>,
    planted: Option<PlantedFault>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRow {
    /// By the clock of the server.
    expires: u64,
    is_leaving: bool,
    /// A field that only newer nodes know, and fill when they join.
    pub(super) newer: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnitRow {
    pub(super) owner: Option<NodeId>,
    wanted_by: Option<NodeId>,
    pub(super) is_ending: bool,
    /// A field that only newer nodes know.
    pub(super) newer: Option<u64>,
    /// The node that it was taken from; the service does not store that.
    before: Option<NodeId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimRow {
    pub(super) number: u64,
    /// The run that has it; the service does not store that.
    pub(super) run: RunId,
}

/// The sender of a statement, and the server that carries it out.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentBy {
    pub(super) version: ProgramVersion,
    /// The clock of the server, in milliseconds.
    pub(super) clock: u64,
    /// The history of the server.
    pub(super) history: u64,
}

impl Tables {
    pub(super) fn new(scenario: &ClusterScenario, planted: Option<PlantedFault>) -> Tables {
        let mut tables = Tables { history: (1, 0), slots: scenario.slots, planted, ..Tables::default() };
        tables.want(ProgramVersion::Newer.field(1), 0);
        tables
    }

    fn has(&self, planted: PlantedFault) -> bool {
        self.planted == Some(planted)
    }

    /// Returns the number of rows of a partition that are stored as delivered.
    pub(super) fn stored(&self, partition: &Partition) -> u64 {
        let of_unit = |marks: &BTreeMap<LaneId, Mark>| {
            marks.iter().find(|(lane, _)| lane.partition == *partition).map(|(_, mark)| row_number(&mark.position))
        };
        self.marks.values().filter_map(of_unit).max().unwrap_or(0)
    }

    pub(super) fn is_live(&self, id: NodeId, clock: u64) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.expires > clock)
    }

    fn is_free(&self, row: &UnitRow) -> bool {
        row.owner.is_none_or(|owner| !self.nodes.contains_key(&owner))
    }

    pub(super) fn join(&mut self, id: NodeId, sent: SentBy) {
        let expires = sent.clock + LEASE.as_millis() as u64;
        self.nodes.insert(id, NodeRow { expires, is_leaving: false, newer: sent.version.field(id.0 % 1_000) });
    }

    pub(super) fn leave(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    pub(super) fn renew(&mut self, id: NodeId, is_leaving: bool, sent: SentBy) -> Result<View, LeaseError> {
        let clock = sent.clock;
        if self.has(PlantedFault::RenewedAfterItsEnd) && !self.is_live(id, clock) {
            // It has again what it had.
            self.units.values_mut().filter(|row| row.before == Some(id)).for_each(|row| row.owner = Some(id));
            let newer = sent.version.field(id.0 % 1_000);
            self.nodes.insert(id, NodeRow { expires: clock + 1, is_leaving, newer });
        }
        // All parts of the statement see the rows of before.
        let is_renewed = self.is_live(id, clock);
        let live: BTreeMap<NodeId, bool> = (self.nodes.iter())
            .filter(|(_, row)| row.expires > clock)
            .map(|(node, row)| (*node, if *node == id { is_leaving } else { row.is_leaving }))
            .collect();
        let keeps_ended = self.has(PlantedFault::StopForgotten);
        let is_gone = |row: &UnitRow| row.owner.is_none_or(|owner| !live.contains_key(&owner));
        let seen: Vec<(&Unit, &UnitRow)> =
            self.units.iter().filter(|(_, row)| !row.is_ending || !is_gone(row) || keeps_ended).collect();
        let is_wanted = |row: &UnitRow| row.wanted_by.is_some_and(|by| live.contains_key(&by));
        let is_of = |row: &UnitRow, node: NodeId| row.owner == Some(node);
        let load = |(node, is_leaving): (&NodeId, &bool)| NodeLoad {
            id: *node,
            units: seen.iter().filter(|(_, row)| is_of(row, *node) && !is_wanted(row)).count(),
            is_leaving: *is_leaving,
        };
        let held = seen.iter().filter(|(_, row)| is_of(row, id)).map(|(unit, row)| HeldUnit {
            unit: (*unit).clone(),
            of: self.slots,
            is_wanted: is_wanted(row),
            is_ending: row.is_ending,
        });
        let is_asked = |row: &UnitRow| row.wanted_by == Some(id) && !is_of(row, id) && !is_gone(row);
        let view = View {
            history: History(sent.history.to_string().into()),
            nodes: live.iter().map(load).collect(),
            held: held.collect(),
            units: seen.len(),
            free: seen.iter().filter(|(_, row)| is_gone(row)).count(),
            labelled: 0,
            asked: seen.iter().filter(|(_, row)| is_asked(row)).count(),
            revision: self.revision,
        };
        let nodes = &self.nodes;
        let is_free = |row: &UnitRow| row.owner.is_none_or(|owner| !nodes.contains_key(&owner));
        self.units.retain(|_, row| !row.is_ending || keeps_ended || !is_free(row));
        self.nodes.retain(|node, row| *node == id || row.expires > clock);
        if is_renewed && let Some(row) = self.nodes.get_mut(&id) {
            (row.expires, row.is_leaving) = (clock + LEASE.as_millis() as u64, is_leaving);
        }
        if self.has(PlantedFault::NewerNodeErased) && sent.version == ProgramVersion::Older {
            self.nodes.values_mut().for_each(|row| row.newer = None);
        }
        if is_renewed { Ok(view) } else { Err(LeaseError::Over) }
    }

    /// Returns the row of a unit after an update of its owner.
    fn moved(&self, row: &UnitRow, owner: Option<NodeId>, sent: SentBy) -> UnitRow {
        let erases = self.has(PlantedFault::NewerUnitErased) && sent.version == ProgramVersion::Older;
        let newer = if erases { None } else { row.newer };
        UnitRow { owner, wanted_by: None, newer, before: row.owner, ..*row }
    }

    pub(super) fn take(&mut self, id: NodeId, count: usize, sent: SentBy, random: &mut Rng) -> usize {
        let SentBy { clock, history, .. } = sent;
        if self.history.0 != history {
            self.history = (history, clock);
        }
        let waits = clock < self.history.1 + SAFE.as_millis() as u64 && !self.has(PlantedFault::TakenAfterFailover);
        if waits || !self.is_live(id, clock) {
            return 0;
        }
        let is_free = |row: &UnitRow| match self.planted {
            Some(PlantedFault::ForcedStealing) => row.owner != Some(id),
            Some(PlantedFault::KeptForTheGone) => self.is_free(row) && row.wanted_by.is_none(),
            _ => self.is_free(row),
        };
        let may_take = |row: &UnitRow| is_free(row) && (!row.is_ending || self.has(PlantedFault::StopForgotten));
        let mut free: Vec<(Unit, UnitRow)> =
            self.units.iter().filter(|(_, row)| may_take(row)).map(|(unit, row)| (unit.clone(), *row)).collect();
        random.shuffle(&mut free);
        free.truncate(count);
        let taken = free.len();
        for (unit, row) in free {
            let row = UnitRow { is_ending: false, ..self.moved(&row, Some(id), sent) };
            self.units.insert(unit, row);
        }
        taken
    }

    pub(super) fn ask(&mut self, by: NodeId, of: NodeId, count: usize, random: &mut Rng) {
        let nodes = &self.nodes;
        let is_asked = |row: &UnitRow| row.wanted_by.is_some_and(|by| nodes.contains_key(&by));
        let may_ask = |row: &UnitRow| row.owner == Some(of) && !row.is_ending && !is_asked(row);
        let mut asked: Vec<&mut UnitRow> = self.units.values_mut().filter(|row| may_ask(row)).collect();
        random.shuffle(&mut asked);
        let is_at_once = self.planted == Some(PlantedFault::HeirBeforeDrain);
        for row in asked.into_iter().take(count) {
            match is_at_once {
                true => (row.owner, row.wanted_by) = (Some(by), None),
                false => row.wanted_by = Some(by),
            }
        }
    }

    pub(super) fn release(&mut self, id: NodeId, unit: &Unit, sent: SentBy) {
        let Some(row) = self.units.get(unit).filter(|row| row.owner == Some(id)) else { return };
        let is_heir =
            |by: &NodeId| self.is_live(*by, sent.clock) && !self.nodes.get(by).is_some_and(|row| row.is_leaving);
        let row = self.moved(row, row.wanted_by.filter(is_heir), sent);
        self.units.insert(unit.clone(), row);
    }

    /// Removes a unit whose run has ended because the pipeline is being stopped.
    pub(super) fn end(&mut self, id: NodeId, unit: &Unit) {
        if self.units.get(unit).is_some_and(|row| row.owner == Some(id) && row.is_ending) {
            self.units.remove(unit);
        }
    }

    /// Has the nodes stop the pipeline.
    pub(super) fn end_units(&mut self) {
        let nodes = &self.nodes;
        self.units.retain(|_, row| row.owner.is_some_and(|owner| nodes.contains_key(&owner)));
        self.units.values_mut().for_each(|row| row.is_ending = true);
    }

    /// Has the nodes run the pipeline, unless it has units. Earlier runs are fenced.
    pub(super) fn want(&mut self, newer: Option<u64>, micros: u64) {
        if !self.units.is_empty() {
            return;
        }
        let unit = |slot| (Unit { pipeline: PIPELINE.into(), slot }, UnitRow { newer, ..UnitRow::default() });
        self.units = (0..self.slots).map(unit).collect();
        self.newer = newer;
        self.claims.values_mut().for_each(|claim| claim.number = micros.max(claim.number + 1));
    }

    /// Returns `true` if the pipeline is to run.
    pub(super) fn is_wanted(&self) -> bool {
        self.units.values().any(|row| !row.is_ending)
    }

    /// Imports a set of files, if the store decides to. Returns `true` if it is stored.
    pub(super) fn import(&mut self, set: FileSet, on_request: bool) -> bool {
        self.revision += 1;
        let latest = self.imported.len() as u64;
        let decided = PastImports { this: self.imports.get(&set).copied(), latest }.decide(on_request);
        let number = match decided {
            SetDecision::Import(number) => number,
            SetDecision::Older if self.has(PlantedFault::OldSetImported) => latest + 1,
            SetDecision::Older | SetDecision::Current => return false,
        };
        self.imports.insert(set, number);
        self.imported.push(set);
        true
    }

    /// Returns the set of files that the nodes run.
    pub(super) fn set(&self) -> FileSet {
        self.imported.last().copied().unwrap_or(0)
    }

    pub(super) fn claim(&mut self, unit: &Unit, by: NodeId, run: RunId, sent: SentBy) -> Result<Epoch, StoreError> {
        let owner = self.units.get(unit).and_then(|row| row.owner).filter(|owner| *owner != by);
        if let Some(owner) = owner.filter(|owner| self.nodes.contains_key(owner)) {
            return Err(StoreError::Elsewhere { unit: unit.clone(), node: owner.to_string() });
        }
        let next = self.claims.get(unit).map_or(1, |claim| claim.number + 1);
        let number = match self.planted {
            Some(PlantedFault::EpochReused) => next,
            _ => next.max(sent.clock * 1_000),
        };
        if self.has(PlantedFault::SiblingsFenced) {
            self.claims.values_mut().for_each(|claim| claim.number = claim.number.max(number));
        }
        self.claims.insert(unit.clone(), ClaimRow { number, run });
        Ok(Epoch { unit: unit.clone(), number })
    }

    pub(super) fn check(&self, epoch: &Epoch) -> Result<ClaimRow, StoreError> {
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
