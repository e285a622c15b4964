//! The plan of a snapshot: the ranges of the tables, and which of them are read.
//!
//! A range is a number of pages of a table. The plan is the position of a lane of its own, and survives a crash. A later
//! attempt reads the ranges that are left under a new snapshot, after the changes up to that snapshot. From the ranges that
//! are read, it reads only the rows that were written since: they may have moved there from a range that is left.

mod share;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::text::Str;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub(in super::super) use share::Share;

use super::super::database::Database;
use super::super::tables::Table;
use crate::codes;
use crate::name::Quoted;

/// Pages of a range, 16 MiB, unless the table would have too many ranges.
const PAGES: u32 = 2048;
/// Maximum number of ranges of a table.
const RANGES: u32 = 1024;

/// Ranges that each part has of a large table: with more of them, a part that resumes repeats less.
const RANGES_OF_PART: u32 = 4;

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Plan {
    /// Number of the attempt, from 1. Later than those of all earlier snapshots of the source.
    pub(in super::super) attempt: u32,
    /// True if an earlier attempt has read a part.
    #[serde(skip)]
    pub(in super::super) is_resumed: bool,
    /// All transactions below this id are visible in the snapshot of the attempt.
    pub(in super::super) horizon: u32,
    /// The stored tables: partitions instead of a partitioned table.
    pub(in super::super) tables: Vec<PlannedTable>,
    /// The share of a part; `None` if the source is not split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) share: Option<Share>,
}

/// A stored table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct PlannedTable {
    /// Object id of the table whose rows it has: another one if it is a partition.
    pub(in super::super) root: u32,
    /// Schema and name of that table, for lanes.
    pub(in super::super) title: Str,
    #[serde(flatten)]
    pub(in super::super) stored: StoredTable,
    /// Pages of a range; 0 = the table is one range.
    pages: u32,
    /// Number of the first range in the lanes of the table whose rows it has.
    first: u32,
    /// Number of ranges.
    ranges: u32,
    /// Ranges that are read, as first and last of a run, in order.
    done: Vec<(u32, u32)>,
    /// The horizon of the attempt that read the first range.
    #[serde(default)]
    horizon: Option<u32>,
    /// The number of the announced snapshot with this horizon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u32>,
}

/// A table that has pages of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct StoredTable {
    /// Object id.
    pub(in super::super) oid: u32,
    /// Its schema.
    pub(in super::super) schema: Str,
    /// Its name.
    pub(in super::super) name: Str,
    /// The file of its pages. A table that is rewritten has another.
    pub(in super::super) file: u32,
    /// Number of pages.
    pub(in super::super) size: u32,
    /// Estimated number of rows.
    #[serde(default)]
    pub(in super::super) rows: u64,
    /// True if its rows have places of the usual kind.
    #[serde(default)]
    pub(in super::super) is_heap: bool,
}

impl StoredTable {
    /// Returns the name in SQL.
    pub(in super::super) fn sql(&self) -> String {
        format!("{}.{}", Quoted(&self.schema), Quoted(&self.name))
    }
}

/// What is read from a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Item {
    /// Number of the table in the plan.
    pub(in super::super) table: usize,
    /// The lane of its records.
    pub(in super::super) lane: Partition,
    /// The range, if it is done afterwards.
    pub(in super::super) range: Option<u32>,
    /// The condition of its rows in SQL.
    pub(in super::super) condition: String,
}

/// Looks up the stored tables of tables.
///
/// # Errors
/// The server cannot answer.
pub(in super::super) async fn stored(
    database: &mut Database,
    tables: &[Table],
) -> Result<Vec<(u32, Str, StoredTable)>, Fault> {
    let mut found = Vec::new();
    for table in tables {
        let sql = format!(
            "SELECT pg_catalog.json_build_object('oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname,
                'file', pg_catalog.pg_relation_filenode(c.oid)::int8, 'is_heap', a.amname = 'heap',
                'size', pg_catalog.pg_relation_size(c.oid)
                    / pg_catalog.current_setting('block_size')::int8,
                'rows', greatest(c.reltuples, 0)::int8)
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN pg_catalog.pg_am a ON a.oid = c.relam
            WHERE c.relkind = 'r' AND c.oid {}",
            match table.kind {
                'p' => format!("IN (SELECT relid FROM pg_catalog.pg_partition_tree({}) WHERE isleaf)", table.oid),
                _ => format!("= {}", table.oid),
            }
        );
        let title = Str::from(table.title());
        let leaves: Vec<StoredTable> = database.read(&format!("measuring the table {title}"), &sql).await?;
        found.extend(leaves.into_iter().map(|leaf| (table.oid, title.clone(), leaf)));
    }
    Ok(found)
}

/// Returns the number of pages of a range, for a table of some pages.
fn pages(size: u32, parts: u32) -> u32 {
    let most = PAGES.max(size.div_ceil(RANGES));
    if parts == 1 { most } else { size.div_ceil(parts * RANGES_OF_PART).clamp(1, most) }
}

impl Plan {
    /// Returns the empty plan of a source that may have read snapshots before.
    pub(in super::super) fn after_others() -> Plan {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Plan { attempt: u32::try_from(now).unwrap_or(u32::MAX - 1), ..Plan::default() }
    }

    /// Reads a plan that was stored.
    ///
    /// # Errors
    /// It is not one of this source.
    pub(in super::super) fn decode(position: &Position) -> Result<Plan, Fault> {
        serde_json::from_slice(&position.0).map_err(|_| {
            Fault::fatal(codes::POSITION_UNKNOWN, "the stored plan of a snapshot is not one of this source")
        })
    }

    /// Encodes the plan, as the position of its lane.
    pub(in super::super) fn encode(&self) -> Position {
        Position(Bytes::from(serde_json::to_vec(self).unwrap_or_default()))
    }

    /// Returns the plan of the next attempt for the stored tables. A table that was rewritten is read again as a whole.
    pub(in super::super) fn next(self, stored: Vec<(u32, Str, StoredTable)>) -> Plan {
        self.next_for(stored, 1)
    }

    /// Returns the plan of the next attempt, with ranges for a number of parts.
    pub(in super::super) fn next_for(self, stored: Vec<(u32, Str, StoredTable)>, parts: u32) -> Plan {
        let (attempt, is_resumed) = (self.attempt + 1, !self.tables.is_empty());
        let mut known: BTreeMap<u32, PlannedTable> =
            self.tables.into_iter().map(|table| (table.stored.oid, table)).collect();
        let mut first: BTreeMap<u32, u32> = BTreeMap::new();
        for table in known.values() {
            let end = first.entry(table.root).or_default();
            *end = (*end).max(table.first + table.ranges);
        }
        let tables = stored.into_iter().map(|(root, title, stored)| {
            if let Some(table) = known.remove(&stored.oid).filter(|table| table.stored.file == stored.file) {
                return PlannedTable { title, root, stored, ..table };
            }
            let pages = match stored.is_heap {
                true => pages(stored.size, parts),
                false => 0,
            };
            let ranges = stored.size.checked_div(pages).map_or(1, |_| stored.size.div_ceil(pages).max(1));
            let next = first.entry(root).or_default();
            let first = *next;
            *next += ranges;
            PlannedTable { root, title, stored, pages, first, ranges, done: Vec::new(), horizon: None, since: None }
        });
        Plan { attempt, is_resumed, horizon: 0, tables: tables.collect(), share: None }
    }

    /// Returns what is to be read in this attempt.
    pub(in super::super) fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for (number, table) in self.tables.iter().enumerate() {
            for (from, to) in &table.done {
                // All rows of the range were read under the first snapshot; these were written later.
                let Some(horizon) = table.horizon.filter(|_| self.is_earlier(table)) else { continue };
                let condition = [
                    table.condition(*from, *to),
                    format!("pg_catalog.age(xmin) <= pg_catalog.age('{horizon}'::pg_catalog.xid)"),
                ];
                let condition = condition.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" AND ");
                let lane = self.own(Partition(format!("{}+{}", self.range(table, *from), self.attempt).into()));
                items.push(Item { table: number, lane, range: None, condition });
            }
            for range in (0..table.ranges).filter(|range| self.has(table, *range) && !table.is_done(*range)) {
                let condition = table.condition(range, range);
                let lane = self.own(Partition(self.range(table, range).into()));
                items.push(Item { table: number, lane, range: Some(range), condition });
            }
        }
        items
    }

    /// Returns the name of a range. Each attempt has its own, so that records of one are never taken for those of another.
    fn range(&self, table: &PlannedTable, range: u32) -> String {
        let number = table.first + range;
        match self.attempt {
            1 => format!("snapshot/{}/{number}", table.title),
            attempt => format!("snapshot/{}/{number}.{attempt}", table.title),
        }
    }

    /// Notes that a range is read.
    pub(in super::super) fn note(&mut self, item: &Item) {
        let (Some(range), Some(table)) = (item.range, self.tables.get_mut(item.table)) else { return };
        if table.horizon.is_none() {
            table.horizon = Some(self.horizon);
            table.since = self.share.as_ref().map(|share| share.snapshot);
        }
        table.note(range);
    }

    /// Notes the ranges whose lanes were read to their ends, before the plan was stored.
    pub(in super::super) fn note_lanes(&mut self, is_complete: impl Fn(&Partition) -> bool) {
        for item in self.items() {
            if is_complete(&item.lane) {
                self.note(&item);
            }
        }
    }

    /// Returns the estimated number of rows that are left.
    pub(in super::super) fn rows_left(&self) -> u64 {
        let left = |table: &PlannedTable| {
            let left = (0..table.ranges).filter(|range| self.has(table, *range) && !table.is_done(*range)).count();
            table.stored.rows * left as u64 / u64::from(table.ranges.max(1))
        };
        self.tables.iter().map(left).sum()
    }
}

impl PlannedTable {
    fn is_done(&self, range: u32) -> bool {
        self.done.iter().any(|(from, to)| (*from..=*to).contains(&range))
    }

    fn note(&mut self, range: u32) {
        if self.is_done(range) {
            return;
        }
        self.done.push((range, range));
        self.done.sort_unstable();
        self.done.dedup_by(|next, run| {
            let follows = run.1 + 1 == next.0;
            if follows {
                run.1 = next.1;
            }
            follows
        });
    }

    /// Returns the condition for the rows of a run of ranges; empty if they are all.
    fn condition(&self, from: u32, to: u32) -> String {
        let page = |range: u32| u64::from(range) * u64::from(self.pages);
        let mut parts = Vec::new();
        if from > 0 {
            parts.push(format!("ctid >= '({},0)'::pg_catalog.tid", page(from)));
        }
        // The last range has all pages that are added.
        if to + 1 < self.ranges {
            parts.push(format!("ctid < '({},0)'::pg_catalog.tid", page(to + 1)));
        }
        parts.join(" AND ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn stored(oid: u32, file: u32, size: u32) -> (u32, Str, StoredTable) {
        let table = StoredTable {
            oid,
            schema: "public".into(),
            name: format!("t{oid}").into(),
            file,
            size,
            rows: 1000,
            is_heap: true,
        };
        (oid, format!("public.t{oid}").into(), table)
    }

    fn lanes(plan: &Plan) -> Vec<(String, String)> {
        plan.items().into_iter().map(|item| (item.lane.0.to_string(), item.condition)).collect()
    }

    fn owned<const N: usize>(texts: [(&str, &str); N]) -> Vec<(String, String)> {
        texts.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec()
    }

    #[test]
    fn a_table_is_cut_into_ranges_of_pages() {
        let plan = Plan::default().next(vec![stored(1, 10, 5000), stored(2, 20, 0)]);
        let below = |page| format!("ctid < '({page},0)'::pg_catalog.tid");
        let from = |page| format!("ctid >= '({page},0)'::pg_catalog.tid");
        assert_eq!(
            lanes(&plan),
            owned([
                ("snapshot/public.t1/0", &below(2048)),
                ("snapshot/public.t1/1", &format!("{} AND {}", from(2048), below(4096))),
                ("snapshot/public.t1/2", &from(4096)),
                ("snapshot/public.t2/0", ""),
            ])
        );
        assert_eq!(Plan::decode(&plan.encode()).unwrap(), plan);
        assert!(!plan.is_resumed && Plan::after_others().attempt > plan.attempt);
        assert!(Plan::default().next(vec![stored(1, 10, u32::MAX)]).items().len() <= 1024);
    }

    #[test]
    fn a_later_attempt_reads_what_is_left_and_what_was_written_since() {
        let mut plan = Plan::default().next(vec![stored(1, 10, 9000), stored(2, 20, 0)]);
        plan.horizon = 700;
        let items = plan.items();
        for number in [1, 2, 4] {
            plan.note(&items[number]);
        }
        plan.horizon = 800;
        plan.note_lanes(|lane| [&items[2].lane, &items[5].lane].contains(&lane));
        let plan = Plan::decode(&plan.encode()).unwrap().next(vec![stored(1, 10, 9000), stored(2, 21, 0)]);
        let since = "pg_catalog.age(xmin) <= pg_catalog.age('700'::pg_catalog.xid)";
        let below = |page| format!("ctid < '({page},0)'::pg_catalog.tid");
        let from = |page| format!("ctid >= '({page},0)'::pg_catalog.tid");
        assert_eq!(
            lanes(&plan),
            owned([
                ("snapshot/public.t1/1.2+2", &format!("{} AND {} AND {since}", from(2048), below(6144))),
                ("snapshot/public.t1/4.2+2", &format!("{} AND {since}", from(8192))),
                ("snapshot/public.t1/0.2", &below(2048)),
                ("snapshot/public.t1/3.2", &format!("{} AND {}", from(6144), below(8192))),
                // The table was rewritten, so that its ranges are new ones.
                ("snapshot/public.t2/1.2", ""),
            ])
        );
    }

    #[test]
    fn a_partition_continues_the_ranges_of_its_table() {
        let (_, _, second) = stored(2, 20, 0);
        let title: Str = "public.t1".into();
        let plan = Plan::default().next(vec![stored(1, 10, 0), (1, title, second)]);
        let names: Vec<_> = lanes(&plan).into_iter().map(|(lane, _)| lane).collect();
        assert_eq!(names, ["snapshot/public.t1/0", "snapshot/public.t1/1"]);
    }
}
