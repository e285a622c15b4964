//! The `postgres` source: reads the rows of tables, and then every change of them.
//!
//! [`open`] decides from the stored positions, the slot and the publication with which step a run begins; [`driver`] runs
//! the steps. [`stream`] holds the connection with the changes, [`pgoutput`] decodes it, [`changes`] makes records of it,
//! and [`snapshot`] reads the rows that were there before; [`backfill`] reads rows beside the changes. [`acknowledged`] is
//! what gates all confirmations. If the source is split, [`lead`] announces the snapshot, and each [`part`] reads a share.

mod accepted;
mod acknowledged;
mod backfill;
mod begun;
mod changes;
mod cleanup;
mod config;
mod copy;
mod database;
mod driver;
mod events;
mod examine;
mod fault;
mod guard;
mod lanes;
mod lead;
mod lsn;
mod open;
mod part;
mod pgoutput;
mod position;
mod publication;
mod reader;
mod record;
mod requests;
mod schema;
mod siblings;
mod slot;
mod snapshot;
mod split;
mod stream;
mod tables;
mod types;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::RecordShape;
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::shared::{Inference, SourceBatching};
use anabranch_plugin::parameters::{Argument, Parameters, declared};
use anabranch_plugin::source::{OpenedSource, Replay, Source, SourceKind, Split};
use anabranch_plugin::specification::Specification;
use anabranch_record::Position;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;

use crate::address::Address;
use crate::codes;
use crate::name::TABLES;
use accepted::Accepted;
use backfill::StoredBackfills;
use changes::{Changes, OnTruncate, Seen, Taken};
use config::{Config, Drift, OnGap, Partial, SnapshotMode};
use lsn::Lsn;
use position::{ChangePosition, RangePosition, Server, Stage, StoredPosition};
use record::Layout;
use snapshot::Plan;
use tables::Selector;

/// Longest name of a slot or publication.
const LONGEST: usize = 63;

/// Returns the `postgres` source for the registry.
pub(crate) fn kind() -> Arc<dyn SourceKind> {
    let specification =
        Specification::builtin("postgres", "Reads the rows of tables of PostgreSQL, and every change of them.")
            .describe(include_str!("source/description.md"))
            .with_all(declared::<SourceBatching>());
    kind::source(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// Address of the database, postgresql://<user>:<password>@<host>:<port>/<database>; special characters in the
    /// password as %XX. The options are those of the destination. The user needs the attribute REPLICATION.
    #[parameter(secret, example = "postgresql://user:password@localhost:5432/shop")]
    url: Argument<Str>,
    /// Names of the tables, as table (in the schema public) or schema.table. A star stands for any text: `*` is all tables
    /// of public, `sales.*` all tables of sales. Names are case-sensitive; put a name with a dot in double quotes.
    #[parameter(required, aliases = ["table"], example = "orders")]
    tables: Argument<Vec<Str>>,
    /// Reading of the rows that exist: initial (once, before the changes), incremental (once, beside the changes), never, or
    /// only (without changes).
    #[parameter(default = "initial")]
    snapshot_mode: SnapshotMode,
    /// Maximum number of rows that a snapshot reads at once.
    #[parameter(name = "snapshot.fetchSize", default = 50000, greater_than = 0)]
    fetch_size: usize,
    /// Number of connections that read a snapshot.
    #[parameter(name = "snapshot.parallel", default = 4, greater_than = 0, less_than = 65)]
    parallel: usize,
    /// Number of parts in which the initial snapshot is read, each with one connection instead of `snapshot.parallel`. With
    /// several, the nodes of a cluster read parts side by side. Changes are read when all parts are delivered.
    #[parameter(name = "snapshot.parts", default = 1, greater_than = 0, less_than = 65)]
    parts: Argument<u32>,
    /// Time after which a snapshot ends, so that the server need not keep its log for longer: the ranges of tables that are
    /// being read are completed, and tables with ranges that are left are read again, beside the changes. Tables without a
    /// key are read to their end. 0 = no limit.
    #[parameter(default = "0s")]
    max_snapshot_time: Duration,
    /// How changes are read: auto and logrepl are logical replication.
    #[parameter(default = "auto", one_of = ["auto", "logrepl"])]
    cdc_mode: Str,
    /// Name of the publication. The source creates it if it does not exist.
    #[parameter(name = "logrepl.publicationName", default = "conduitpub")]
    publication: Argument<Str>,
    /// Name of the replication slot. The source creates it if it does not exist. Each pipeline needs its own.
    #[parameter(name = "logrepl.slotName", default = "conduitslot", regex = "^[a-z0-9_]+$")]
    slot: Argument<Str>,
    /// Drop the slot when the connector or its pipeline is deleted, and the publication if the source created it. A slot that
    /// the source did not create (`logrepl.adoptSlot`) stays.
    #[parameter(name = "logrepl.autoCleanup", default = true)]
    auto_cleanup: bool,
    /// Give records Avro schemas with the types of the columns.
    #[parameter(name = "logrepl.withAvroSchema", default = true)]
    with_avro_schema: bool,
    /// Read a slot that exists, although this pipeline did not create it. Changes are read from the place on
    /// that the slot has.
    #[parameter(name = "logrepl.adoptSlot", default = false)]
    adopt_slot: bool,
    /// Let standbys take the slot over (from PostgreSQL 17 on).
    #[parameter(name = "logrepl.failover", default = true)]
    failover: bool,
    /// Reaction if the publication has only some rows, columns or operations of the tables: fail (the pipeline stops) or
    /// accept.
    #[parameter(name = "publication.partial", default = "fail")]
    partial: Partial,
    /// Reaction if changes after the stored position do not exist any more: fail (the pipeline stops) or snapshot (all
    /// rows are read again; rows that were deleted meanwhile stay at the destination).
    #[parameter(default = "fail")]
    on_gap: OnGap,
    /// Reaction if all rows of a table are removed with TRUNCATE: fail (the pipeline stops), ignore, or record (a record
    /// with the operation delete, without key, and with the metadata postgres.truncate).
    #[parameter(default = "fail")]
    truncate: OnTruncate,
    /// Reaction if the columns of a table change: evolve (the records that follow have the new columns), halt (the pipeline
    /// stops; it continues with the new columns when you start it again), or dead-letter (the records of the table that follow
    /// are dead letters, until you accept the columns with evolve).
    #[parameter(default = "evolve", aliases = ["logrepl.schemaDrift.policy"])]
    schema_drift: Drift,
    /// Time between two checks of slot and publication.
    #[parameter(default = "60s", greater_than = 0)]
    check_interval: Duration,
    /// Time after which the source writes a message to the log of the server if its slot stands still while the log grows,
    /// so that the server can remove the log; 0 = never.
    #[parameter(default = "60s")]
    heartbeat: Duration,
    #[parameter(flatten)]
    inference: Inference,
}

fn configure(settings: Settings) -> Result<Arc<dyn Source>, Diagnostics> {
    let mut findings = Diagnostics::new();
    let url = &settings.url;
    let address = Address::parse(url)
        .map_err(|why| {
            let expected = "expected postgresql://<user>:<password>@<host>:<port>/<database>";
            findings.push(url.invalid(format_args!("{why}; {expected}")));
        })
        .ok();
    let mut selectors = Vec::new();
    for name in settings.tables.iter() {
        match Selector::parse(name.trim()) {
            Ok(selector) => selectors.push(selector),
            Err(why) => findings.push(settings.tables.invalid(format!("{name:?} is not the name of a table: {why}"))),
        }
    }
    if selectors.is_empty() && !findings.has_errors() {
        findings.push(settings.tables.finding(codes::SETTINGS_REQUIRED, "tables is required"));
    }
    for name in [&settings.publication, &settings.slot] {
        if name.is_empty() || name.len() > LONGEST {
            findings.push(name.finding(codes::SETTINGS_INVALID, format!("{} has 1 to 63 bytes", name.name())));
        }
    }
    if *settings.parts > 1 {
        if settings.snapshot_mode != SnapshotMode::Initial {
            findings.push(settings.parts.invalid("only the snapshot of snapshotMode: initial has several parts"));
        }
        if !settings.max_snapshot_time.is_zero() {
            findings.push(settings.parts.invalid("a snapshot with several parts cannot have maxSnapshotTime"));
        }
    }
    // Both values have one meaning here.
    let _ = settings.cdc_mode;
    let inference = settings.inference;
    let context = match inference.context.as_ref() {
        _ if !inference.has_context => Some(Str::default()),
        Some(name) => Some(name.clone()),
        None if inference.context.is_given() => Some(Str::default()),
        None => None,
    };
    let (Some(address), false) = (address, findings.has_errors()) else { return Err(findings) };
    Ok(Arc::new(PostgresSource(Arc::new(Config {
        address: Arc::new(address),
        selectors,
        mode: settings.snapshot_mode,
        snapshot_time: Some(settings.max_snapshot_time).filter(|time| !time.is_zero()),
        parallel: settings.parallel,
        parts: *settings.parts,
        fetch: settings.fetch_size,
        publication: settings.publication.into_value(),
        partial: settings.partial,
        slot: settings.slot.into_value(),
        cleans_up: settings.auto_cleanup,
        adopts: settings.adopt_slot,
        failover: settings.failover,
        on_gap: settings.on_gap,
        on_truncate: settings.truncate,
        drift: settings.schema_drift,
        has_schemas: settings.with_avro_schema,
        context,
        check: settings.check_interval,
        heartbeat: settings.heartbeat,
    }))))
}

/// Decodes the bytes of a stream of changes as the source does, up to the first error, and returns the number of
/// records. All tables are read, and all types are texts or built in. For fuzzing.
pub fn decode_stream(input: &[u8]) -> usize {
    let server = Server { system: Str::default(), timeline: 1 };
    let from = ChangePosition::at(&server, "", Stage::Changes, Lsn::ZERO);
    let mut changes = Changes::new(&from, None, OnTruncate::Record);
    let mut records = Vec::new();
    for part in stream::parts(input.to_vec().into()) {
        let taken = match part {
            Ok(stream::Part::Change(body)) => match pgoutput::decode(body) {
                Ok(change) => changes.take(change, &mut records).ok(),
                Err(_) => None,
            },
            Ok(stream::Part::Sent(place)) => Some(changes.heard(place)),
            Ok(stream::Part::End) | Err(_) => None,
        };
        match taken {
            Some(Taken::Relation(relation)) => {
                let layout = Layout::of_relation(&relation);
                changes.install(relation, Seen::Read(Box::new(layout)));
            }
            Some(_) => {}
            None => break,
        }
    }
    records.len()
}

struct PostgresSource(Arc<Config>);

#[async_trait]
impl Source for PostgresSource {
    fn catches_up(&self) -> bool {
        true
    }

    fn replay(&self) -> Replay {
        // The server sends committed transactions in the same order again. Each attempt at a snapshot has its own lanes.
        Replay::Exactly
    }

    fn split(&self) -> Split {
        if self.0.parts > 1 { Split::Static("parts of the snapshot; one node reads the changes") } else { Split::Whole }
    }

    fn backfills(&self) -> Option<&'static str> {
        (self.0.mode != SnapshotMode::Only).then_some("table")
    }

    fn takes_resets(&self) -> bool {
        true
    }

    fn rereads(&self) -> bool {
        // The server may remove the log of what is confirmed.
        false
    }

    fn reads(&self) -> Vec<Extent> {
        let space = self.0.address.space();
        let named = self.0.selectors.iter().filter_map(Selector::resource);
        let extent = |name: String| Extent {
            what: TABLES,
            space: space.clone(),
            name: name.into(),
            whole: true,
            setting: "tables",
        };
        named.map(extent).collect()
    }

    fn reads_all_of(&self, extent: &Extent) -> bool {
        extent.what == TABLES
            && extent.whole
            && extent.space == self.0.address.space()
            && self.0.selectors.iter().any(|selector| selector.selects_resource(&extent.name))
    }

    fn collections(&self) -> Option<CollectionSpace> {
        // The collection of a record lacks the schema of its table.
        let all_public = self.0.selectors.iter().all(Selector::is_public);
        all_public.then(|| CollectionSpace { what: TABLES, space: self.0.address.space(), setting: "tables" })
    }

    fn shape(&self) -> RecordShape {
        RecordShape::unknown()
    }

    fn locate(&self, _: &Partition, position: &Position) -> Option<String> {
        match StoredPosition::decode(position) {
            Ok(StoredPosition::Ours(at)) if at.commit == Lsn::ZERO => Some(format!("{}@{}", at.slot, at.end)),
            Ok(StoredPosition::Ours(at)) => Some(format!("{}@{} change {}", at.slot, at.commit, at.ordinal)),
            _ => RangePosition::decode(position).ok().map(|at| format!("row {} of a range", at.rows)),
        }
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        let is_other = RangePosition::decode(position).is_ok()
            || Plan::decode(position).is_ok()
            || StoredBackfills::decode(position).is_ok()
            || Accepted::decode(position).is_ok();
        Some(if is_other { Ok(()) } else { StoredPosition::decode(position).map(drop) })
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        examine::examine(&self.0).await
    }

    async fn deleted(&self, marks: &BTreeMap<Partition, Mark>) -> Result<bool, Fault> {
        cleanup::clean_up(&self.0, marks).await
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        open::open(&self.0, resume, host).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_a_server_is_decoded_to_its_end() {
        let stream = include_bytes!("../../../fuzz/seeds/postgres_stream/changes");
        assert_eq!(decode_stream(stream), 6);
        // A stream that is cut has fewer records.
        assert!((0..stream.len()).all(|end| decode_stream(&stream[..end]) <= 6));
    }
}
