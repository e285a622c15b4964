//! Which node of a cluster runs which unit of a pipeline.
//!
//! Each node has a lease, which it renews every [`TICK`] by the clock of the store. A unit belongs to the node that its
//! row names, as long as the lease of that node lasts: so a renewal is one row, however many units a node has. There is no
//! leader. At each tick a node takes free units as long as it has fewer than its fair share, or asks the node with the
//! most units for some ([`balance`]). Nobody takes a unit from a node whose lease lasts: a node that is asked stops
//! reading, delivers and stores what it has read, and then gives the unit to the node that asked.
//!
//! A node that cannot renew its lease stops its units [`SAFE`] after it sent the last successful renewal, by its own
//! monotonic clock. The lease ends [`LEASE`] after the store received the renewal, which is later. What a node does that
//! was paused for longer is refused by the epochs of the units
//! ([`StateStore`](anabranch_plugin::state::StateStore)): only the node that has a unit can claim it.
//!
//! The method is that of the Kinesis client library and of Azure's event processor: rows with leases, and members that
//! balance by themselves.

pub mod balance;
mod lease;
mod member;
mod placement;
mod sets;

pub use lease::{
    Announcement, HeldUnit, History, LeaseError, LeaseStore, NodeId, NodeLoad, NodeState, Overview, UnitPlace, View,
};
pub use member::{ConfigurationRevision, Hold, Looker, Member, Membership, Standing, Tenure};
pub use placement::{DrainReason, RunEnd, Shares, UnitRuns, follow_units, run_units};
pub use sets::{PastImports, SetDecision};

use std::time::Duration;

/// Time between two renewals.
pub const TICK: Duration = Duration::from_secs(1);
/// How long a lease lasts without a renewal, by the clock of the store.
pub const LEASE: Duration = Duration::from_secs(6);
/// A node that sent its last successful renewal longer ago than this has no units: it must not read, write or store.
pub const SAFE: Duration = Duration::from_secs(4);
/// Time limit for an answer of the store.
pub const ANSWER: Duration = Duration::from_secs(2);
