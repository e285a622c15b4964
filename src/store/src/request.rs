//! Reads and writes as values, which each back end answers.

use std::collections::BTreeMap;

use anabranch_cluster::NodeId;
use anabranch_plugin::schema::{Schema, SchemaVersion};
use anabranch_plugin::state::{Epoch, Receipt, ResultKey, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use bytes::Bytes;

use crate::compare::{ConfigurationChange, Import, Provision};
use crate::contents::{Contents, NumberedLetters};
use crate::entity::{Moment, Status, StoredPipeline};
use crate::schemas::Deletion;
use crate::{letters, schemas};

/// How the nodes of a cluster run a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Number of units, at least one.
    pub units: u32,
    /// Label that a node needs to run them; empty = none.
    pub label: Str,
}

impl Default for Spread {
    /// One unit, on any node.
    fn default() -> Self {
        Spread { units: 1, label: Str::default() }
    }
}

/// A write, which is applied entirely or not at all. A trial has no lasting effect, but is written as durably as other
/// writes.
#[derive(Debug)]
pub(crate) enum Write {
    /// Claims a unit; `by` is the node that claims it, in a cluster.
    Claim {
        unit: Unit,
        by: Option<NodeId>,
    },
    /// Has the nodes run a pipeline.
    Want {
        pipeline: Str,
        spread: Spread,
    },
    /// Has the nodes run a pipeline in another number of units.
    Reshape {
        pipeline: Str,
        spread: Spread,
    },
    /// Has only nodes with a label take units of a pipeline, for each of these pipelines; empty = all nodes.
    Labels(Vec<(Str, Str)>),
    /// Has all nodes drain a pipeline.
    End {
        pipeline: Str,
    },
    /// Removes the units of a node, whose run has ended; with `all`, the others drain theirs.
    Unwant {
        pipeline: Str,
        by: Option<NodeId>,
        all: bool,
    },
    Marks {
        epoch: Epoch,
        moves: Vec<(LaneId, Mark)>,
        receipts: Vec<Receipt>,
        drops: Vec<LaneId>,
    },
    Status {
        pipeline: Str,
        status: Status,
    },
    Provision(Provision),
    /// Imports a set of files into the store of a cluster.
    Import(ImportedSet),
    Replace {
        pipeline: Box<StoredPipeline>,
        at: Moment,
    },
    Delete {
        pipeline: Str,
    },
    Keep {
        space: Str,
        entries: Vec<(ResultKey, Bytes)>,
    },
    Active {
        pipeline: Str,
        connector: Str,
        settings: Bytes,
    },
    Forget {
        pipeline: Str,
        connector: Str,
    },
    Schema {
        subject: Str,
        text: Str,
    },
    DeleteSchemas {
        subject: Str,
        versions: Vec<SchemaVersion>,
        how: Deletion,
    },
    Level {
        subject: Option<Str>,
        level: Option<Str>,
    },
    Letters {
        pipeline: Str,
        /// The run that writes, unless the change is that of a user.
        epoch: Option<Epoch>,
        change: letters::LetterChange,
    },
    /// Notes that everything is copied into this store, which is not complete until [`Write::Contents`]. A store that has
    /// contents is left as it is.
    BeginCopy,
    /// Removes what was copied into this store.
    AbandonCopy,
    /// Adds dead letters of another store.
    CopiedLetters {
        pipeline: Str,
        letters: NumberedLetters,
    },
    /// Adds everything else of another store, which ends the copy.
    Contents(Box<Contents>),
    /// Writes this number of bytes and removes them again.
    Trial(usize),
}

impl Write {
    /// Returns `true` if the nodes of a cluster have to read the configuration again.
    pub(crate) fn changes_configuration(&self) -> bool {
        matches!(self, Write::Import(_) | Write::Replace { .. } | Write::Delete { .. } | Write::Forget { .. })
    }

    /// Returns `true` if the nodes of a cluster may have something to do then: they read the configuration again, or begin or
    /// end runs.
    pub(crate) fn concerns_nodes(&self) -> bool {
        let of_units = matches!(
            self,
            Write::Want { .. } | Write::Reshape { .. } | Write::Labels(_) | Write::End { .. } | Write::Unwant { .. }
        );
        of_units || self.changes_configuration()
    }

    /// Returns the approximate number of bytes written.
    pub(crate) fn weight(&self) -> usize {
        /// Approximate size of a mark, a status or a claim.
        const SMALL: usize = 128;
        match self {
            Write::Marks { moves, drops, .. } => {
                moves.iter().map(|(_, mark)| SMALL + mark.position.0.len()).sum::<usize>() + drops.len() * SMALL
            }
            Write::Provision(provision) | Write::Import(ImportedSet { provision, .. }) => {
                provision.good.len() * 8 * SMALL
            }
            Write::Replace { .. } => 8 * SMALL,
            Write::Keep { entries, .. } => entries.iter().map(|(_, value)| SMALL + value.len()).sum(),
            Write::Active { settings, .. } => SMALL + settings.len(),
            Write::Schema { text, .. } => SMALL + text.len(),
            Write::Letters { change, .. } => SMALL + change.weight(),
            Write::CopiedLetters { letters, .. } => {
                letters.iter().map(|(_, letter)| SMALL + letter.encoded_len()).sum()
            }
            Write::Contents(contents) => contents.weight(),
            Write::Trial(bytes) => *bytes,
            Write::Claim { .. }
            | Write::Want { .. }
            | Write::Reshape { .. }
            | Write::Labels(_)
            | Write::End { .. }
            | Write::BeginCopy
            | Write::AbandonCopy
            | Write::Unwant { .. }
            | Write::Status { .. }
            | Write::Delete { .. }
            | Write::Forget { .. }
            | Write::DeleteSchemas { .. }
            | Write::Level { .. } => SMALL,
        }
    }
}

#[derive(Debug)]
pub(crate) enum WriteResult {
    Nothing,
    /// Nothing was written, because the store has contents.
    NotEmpty,
    /// A number of units.
    Units(u64),
    Epoch(Epoch),
    Changes(Vec<ConfigurationChange>),
    Imported(Import),
    Schema(Schema),
    Letters(letters::LetterChangeResult),
}

/// A set of files, imported into the store of a cluster.
#[derive(Debug)]
pub(crate) struct ImportedSet {
    pub(crate) provision: Provision,
    /// Texts that identify the files. One that the store has is enough.
    pub(crate) names: Vec<String>,
    /// How the nodes run the pipelines; those that are absent in one unit anywhere.
    pub(crate) spreads: BTreeMap<Str, Spread>,
    pub(crate) order: ImportOrder,
}

/// On whose order a set of files is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportOrder {
    /// A node starts with the files: a set that was imported before is not imported again.
    AtStart,
    /// A user asks for it. The plan that the user saw was made for the configuration with this revision.
    OnRequest { revision: u64 },
}

/// A read.
#[derive(Debug)]
pub(crate) enum Read {
    Pipelines,
    Marks(Epoch),
    Receipts(Epoch),
    /// The slots of a pipeline that were ever claimed, in order.
    Slots(Str),
    /// The current positions in all units of a pipeline, regardless of which runs have the latest claims.
    Positions(Str),
    DetachedMarks(Str),
    /// Everything but dead letters and cached results.
    Contents,
    /// The number of the latest change of the configuration, in the store of a cluster.
    Revision,
    Recall {
        space: Str,
        keys: Vec<ResultKey>,
    },
    Active {
        pipeline: Str,
        connector: Str,
    },
    Schemas(schemas::SchemaQuery),
    Letters {
        pipeline: Str,
        question: letters::LetterQuery,
    },
}

#[derive(Debug)]
pub(crate) enum ReadResult {
    Pipelines(Vec<StoredPipeline>),
    Contents(Box<Contents>),
    Revision(u64),
    Marks(BTreeMap<LaneId, Mark>),
    Receipts(Vec<Receipt>),
    Slots(Vec<u32>),
    Recalled(Vec<Option<Bytes>>),
    Schemas(schemas::SchemaAnswer),
    Letters(letters::LetterAnswer),
}

pub(crate) fn fence(epoch: &Epoch, theirs: u64) -> Result<(), StoreError> {
    if epoch.number == theirs {
        return Ok(());
    }
    Err(StoreError::Fenced { unit: epoch.unit.clone(), ours: epoch.number, theirs })
}

/// Returns the error for an answer that does not match the question. Any default in its place could be wrong: without
/// marks, for example, every source would start from its beginning.
pub(crate) fn contradiction(answer: &dyn std::fmt::Debug) -> StoreError {
    // The content of an answer may hold secrets; its kind does not.
    let kind: String = format!("{answer:?}").chars().take_while(|c| c.is_alphanumeric()).collect();
    StoreError::Damaged(format!("the response `{kind}` does not match the request"))
}

pub(crate) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
