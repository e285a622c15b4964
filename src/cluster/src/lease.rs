//! The store of leases, as nodes see it.

use std::fmt;
use std::time::Duration;

use anabranch_plugin::state::Unit;
use anabranch_record::text::Str;
use async_trait::async_trait;

/// A node between joining and leaving. A node that joins again has another id, and none of its earlier units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The description of a node that the other nodes see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Its name, which users see.
    pub name: Str,
    /// URL of its API; empty if it serves none.
    pub url: Str,
    /// Version of its program.
    pub version: Str,
    /// Its labels: it takes units without a label and those with one of these.
    pub labels: Vec<Str>,
}

/// The history of writes that the store belongs to. After a failover that may have lost the latest writes, it differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History(pub Str);

/// A node and the number of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLoad {
    /// The node.
    pub id: NodeId,
    /// Number of its units that no other node has asked for.
    pub units: usize,
    /// True if the node gives its units away and takes none.
    pub is_leaving: bool,
}

/// A unit of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldUnit {
    /// The unit.
    pub unit: Unit,
    /// Number of units of its pipeline.
    pub of: u32,
    /// True if another node has asked for it.
    pub is_wanted: bool,
    /// True if the pipeline is being stopped: the node ends the unit instead of releasing it.
    pub is_ending: bool,
}

/// The answer of the store to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The history of the store.
    pub history: History,
    /// All nodes with a lease, including this one.
    pub nodes: Vec<NodeLoad>,
    /// The units of this node.
    pub held: Vec<HeldUnit>,
    /// Number of all units.
    pub units: usize,
    /// Number of units without a node that has a lease, which this node may take.
    pub free: usize,
    /// Number of those that have a label: other nodes may not be able to take them.
    pub labelled: usize,
    /// Number of units that this node has asked other nodes for.
    pub asked: usize,
    /// Number of the latest change of the stored configuration.
    pub revision: u64,
}

/// A node with a lease, as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// The node.
    pub id: NodeId,
    /// Its description.
    pub announced: Announcement,
    /// Time since it joined.
    pub age: Duration,
    /// Time since it renewed its lease.
    pub silence: Duration,
    /// True if it gives its units away and takes none.
    pub is_leaving: bool,
}

/// A unit, and the nodes that have it and want it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlace {
    /// The unit.
    pub unit: Unit,
    /// The node that has it; `None` = it is free.
    pub node: Option<NodeId>,
    /// The node that has asked for it.
    pub wanted_by: Option<NodeId>,
    /// True if the pipeline is being stopped.
    pub is_ending: bool,
    /// The label that a node needs to take it; empty = none.
    pub label: Str,
}

/// The nodes of the cluster and the places of its units at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// All nodes with a lease, in the order of their names.
    pub nodes: Vec<NodeState>,
    /// Units, in the order of pipelines and slots.
    pub units: Vec<UnitPlace>,
}

impl Overview {
    /// Returns a node.
    pub fn node(&self, id: NodeId) -> Option<&NodeState> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Returns the nodes that have units of a pipeline.
    pub fn owners<'a>(&'a self, pipeline: &'a str) -> impl Iterator<Item = &'a NodeState> {
        let has = move |node: &&NodeState| {
            self.units.iter().any(|place| *place.unit.pipeline == *pipeline && place.node == Some(node.id))
        };
        self.nodes.iter().filter(has)
    }
}

/// Why the store of leases did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LeaseError {
    /// The lease of the node is over, or the store does not know the node: none of its units is its own.
    #[error("the lease of this node is over")]
    Over,
    /// The store does not answer or cannot be used.
    #[error("{0}")]
    Unavailable(String),
}

/// The store of leases. Each call is one transaction. All times are those of the clock of the store.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Adds a node, with a lease that begins now.
    ///
    /// # Errors
    /// The store is unavailable. The node may have been added: its lease ends by itself.
    async fn join(&self, node: &Announcement) -> Result<NodeId, LeaseError>;

    /// Renews the lease of a node, unless it is over, and removes the nodes whose lease is over: their units are free.
    ///
    /// # Errors
    /// The lease is over, or the store is unavailable; the lease may have been renewed.
    async fn renew(&self, id: NodeId, is_leaving: bool) -> Result<View, LeaseError>;

    /// Gives free units to a node, at most `count`, and returns their number. The next view has them. None if the lease of the
    /// node is over, or if the store has had its history for less than [`SAFE`](crate::SAFE): it may have lost the latest
    /// leases, and the nodes that had them do not know that yet.
    ///
    /// # Errors
    /// The store is unavailable; units may have been taken.
    async fn take(&self, id: NodeId, count: usize) -> Result<usize, LeaseError>;

    /// Asks a node for units, at most `count`, that no other node has asked for.
    ///
    /// # Errors
    /// The lease is over, or the store is unavailable.
    async fn ask(&self, id: NodeId, of: NodeId, count: usize) -> Result<(), LeaseError>;

    /// Gives a unit of a node to the node that asked for it, if that one has a lease; otherwise the unit is free. Nothing
    /// if the unit does not belong to the node.
    ///
    /// # Errors
    /// The store is unavailable; the unit may have been given away.
    async fn release(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError>;

    /// Removes a unit of a node, if its pipeline is being stopped.
    ///
    /// # Errors
    /// The store is unavailable; the unit may have been removed.
    async fn end(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError>;

    /// Removes a node: its remaining units are free.
    ///
    /// # Errors
    /// The store is unavailable; the lease ends by itself.
    async fn leave(&self, id: NodeId) -> Result<(), LeaseError>;

    /// Returns the nodes and the units, those of one pipeline or all. Does not delay renewals.
    ///
    /// # Errors
    /// The store is unavailable.
    async fn overview(&self, pipeline: Option<&str>) -> Result<Overview, LeaseError>;
}
