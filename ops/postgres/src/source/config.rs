//! The settings of a source, as its parts need them.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::parameters::Choice;
use anabranch_record::text::Str;

use super::changes::OnTruncate;
use super::tables::Selector;
use crate::address::Address;

/// Whether the rows that exist are read before the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotMode {
    /// They are read once.
    Initial,
    /// They are read beside the changes.
    Incremental,
    /// They are not read.
    Never,
    /// They are read, and no changes.
    Only,
}

impl Choice for SnapshotMode {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("initial", SnapshotMode::Initial),
        ("incremental", SnapshotMode::Incremental),
        ("never", SnapshotMode::Never),
        ("only", SnapshotMode::Only),
    ];
}

/// What happens if changes after the stored position do not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnGap {
    /// The pipeline stops.
    Fail,
    /// All rows are read again.
    Snapshot,
}

impl Choice for OnGap {
    const CHOICES: &'static [(&'static str, Self)] = &[("fail", OnGap::Fail), ("snapshot", OnGap::Snapshot)];
}

/// What happens if the columns of a table change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drift {
    /// The records that follow have the new columns.
    Evolve,
    /// The pipeline stops once.
    Halt,
    /// The records of the table that follow are dead letters.
    DeadLetter,
}

impl Choice for Drift {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("evolve", Drift::Evolve),
        ("halt", Drift::Halt),
        ("dead-letter", Drift::DeadLetter),
        ("dlq", Drift::DeadLetter),
    ];
}

/// Whether a publication may contain a part of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partial {
    /// The pipeline stops.
    Fail,
    /// Only this part is read.
    Accept,
}

impl Choice for Partial {
    const CHOICES: &'static [(&'static str, Self)] = &[("fail", Partial::Fail), ("accept", Partial::Accept)];
}

/// The settings.
pub(super) struct Config {
    pub(super) address: Arc<Address>,
    pub(super) selectors: Vec<Selector>,
    pub(super) mode: SnapshotMode,
    /// Time after which rows are read beside the changes; `None` = never.
    pub(super) snapshot_time: Option<Duration>,
    /// Number of connections of a snapshot.
    pub(super) parallel: usize,
    /// Number of parts that read a snapshot; 1 = the source is not split.
    pub(super) parts: u32,
    /// Maximum number of records that a snapshot passes on at once.
    pub(super) fetch: usize,
    pub(super) publication: Str,
    pub(super) partial: Partial,
    pub(super) slot: Str,
    /// Whether slot and publication are dropped when the connector is deleted.
    pub(super) cleans_up: bool,
    /// Whether a slot that exists is read.
    pub(super) adopts: bool,
    /// Whether standbys can take the slot over.
    pub(super) failover: bool,
    pub(super) on_gap: OnGap,
    pub(super) on_truncate: OnTruncate,
    pub(super) drift: Drift,
    /// Whether records have schemas of their tables.
    pub(super) has_schemas: bool,
    /// Name of the schema context; `None` for the ids of pipeline and connector.
    pub(super) context: Option<Str>,
    /// Time between two checks of slot and publication.
    pub(super) check: Duration,
    /// Time after which a message moves a slot that stands still; zero = never.
    pub(super) heartbeat: Duration,
}

impl Config {
    /// Returns the name of the database.
    pub(super) fn database(&self) -> &str {
        let config = &self.address.config;
        config.get_dbname().or(config.get_user()).unwrap_or("postgres")
    }
}
