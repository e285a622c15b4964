//! The leases of the nodes of a cluster, and the units that they have, in two tables beside the state table.
//!
//! A lease is over when its row is gone. A node renews its lease only while it is not over, and any node removes rows
//! whose time has passed; both change the row, so the server lets one of them do it. A unit is free if the row of its
//! node is gone. So a unit that was taken belonged to nobody, whatever the nodes believe.

use std::time::Duration;

use anabranch_cluster::{
    Announcement, HeldUnit, History, LEASE, LeaseError, LeaseStore, NodeId, NodeLoad, NodeState, Overview, SAFE,
    UnitPlace, View,
};
use anabranch_plugin::state::Unit;
use anabranch_record::text::Str;
use anabranch_settings::PostgresDatabase;
use async_trait::async_trait;
use tokio::sync::Mutex;

use super::PostgresError;
use super::connection::{Address, message};
use super::contents::being_copied_to;
use super::hints::NOTIFY;
use super::owner::{LEASE as OWNED, OWNER};
use super::session::{Client, Failure, Session};
use super::table::{Table, unsigned};

/// A session for leases: it does not wait for the writes of pipelines.
pub(crate) struct Leases {
    address: Address,
    tables: LeaseTables,
    session: Mutex<Option<Session>>,
    /// A session for overviews: renewals do not wait for them.
    overviews: Mutex<Option<Session>>,
}

/// Why a node cannot join.
enum NotJoined {
    /// One process owns the store.
    Owned,
    /// Another store is copied into it.
    Copied,
}

/// Names of the tables, quoted for SQL.
struct LeaseTables {
    /// Name of the state table, as in the settings.
    name: String,
    state: String,
    nodes: String,
    units: String,
}

impl Leases {
    /// Creates the tables if they do not exist. Also returns a text that identifies the store.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub(crate) async fn open(database: &PostgresDatabase) -> Result<(Leases, Str), PostgresError> {
        let mut address = Address::parse(&database.connection)?;
        address.limits.statement = anabranch_cluster::ANSWER;
        let Table { name, state, nodes, units, .. } = Table::parse(&database.table)?;
        let tables = LeaseTables { name, state, nodes, units };
        let mut session = address.connect().await.map_err(|error| address.refused(&error))?;
        let identity = create(session.client(), &tables).await.map_err(|error| address.refused(&error))?;
        let leases = Leases { address, tables, session: Mutex::new(Some(session)), overviews: Mutex::default() };
        Ok((leases, identity))
    }

    /// Runs one transaction. A failure closes the session, because the outcome may be unknown.
    async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client, &LeaseTables) -> Result<T, Failure>,
    ) -> Result<T, LeaseError> {
        self.run_in(&self.session, work).await
    }

    async fn run_in<T>(
        &self,
        session: &Mutex<Option<Session>>,
        work: impl AsyncFnOnce(&mut Client, &LeaseTables) -> Result<T, Failure>,
    ) -> Result<T, LeaseError> {
        let mut kept = session.lock().await;
        let unavailable = |error: &Failure| LeaseError::Unavailable(message(error));
        let mut session = match kept.take() {
            Some(session) if !session.is_closed() => session,
            _ => self.address.connect().await.map_err(|error| unavailable(&error))?,
        };
        let done = work(session.client(), &self.tables).await.map_err(|error| unavailable(&error))?;
        *kept = Some(session);
        Ok(done)
    }
}

async fn create(client: &mut Client, tables: &LeaseTables) -> Result<Str, Failure> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&tables.name]).await?;
    let LeaseTables { state, nodes, units, .. } = tables;
    let make = format!(
        "CREATE TABLE IF NOT EXISTS {nodes} (id bigint PRIMARY KEY, name text NOT NULL, url text NOT NULL, \
         version text NOT NULL, joined timestamptz NOT NULL DEFAULT clock_timestamp(), expires timestamptz NOT NULL, \
         leaving boolean NOT NULL DEFAULT false, labels text[] NOT NULL DEFAULT '{{}}');\
         CREATE TABLE IF NOT EXISTS {units} (pipeline text NOT NULL, slot bigint NOT NULL, \
         shares bigint NOT NULL DEFAULT 1, owner bigint, wanted_by bigint, ending boolean NOT NULL DEFAULT false, \
         label text NOT NULL DEFAULT '', PRIMARY KEY (pipeline, slot))"
    );
    transaction.batch_execute(&make).await?;
    let identify = format!(
        "INSERT INTO {state} VALUES ('{IDENTITY}', '', '', '', 0, convert_to(gen_random_uuid()::text, 'UTF8')) \
         ON CONFLICT DO NOTHING"
    );
    transaction.execute(&identify, &[]).await?;
    let history = format!(
        "INSERT INTO {state} VALUES ('{HISTORY}', '', '', '', 0, convert_to({OF_SERVER}, 'UTF8')) ON CONFLICT DO NOTHING"
    );
    transaction.execute(&history, &[]).await?;
    let identity = format!("SELECT convert_from(value, 'UTF8') FROM {state} WHERE kind = '{IDENTITY}'");
    let identity = transaction.query_one(&identity, &[]).await?.get::<_, String>(0);
    transaction.commit().await?;
    Ok(identity.into())
}

/// The end of a lease that is renewed now.
fn end() -> String {
    format!("clock_timestamp() + interval '{} ms'", LEASE.as_millis())
}

/// A condition on the row of a unit `u`: it belongs to no node.
pub(super) fn is_free(nodes: &str) -> String {
    format!("(u.owner IS NULL OR NOT EXISTS (SELECT FROM {nodes} n WHERE n.id = u.owner))")
}

/// A condition on the row of a unit `u`: the node with the id `$1` has its label.
fn fits(nodes: &str) -> String {
    format!("(u.label = '' OR u.label = ANY((SELECT n.labels FROM {nodes} n WHERE n.id = $1)::text[]))")
}

fn signed(id: NodeId) -> i64 {
    id.0.cast_signed()
}

fn node(stored: i64) -> NodeId {
    NodeId(stored.cast_unsigned())
}

fn count(stored: i64) -> usize {
    usize::try_from(stored).unwrap_or(0)
}

#[async_trait]
impl LeaseStore for Leases {
    async fn join(&self, announced: &Announcement) -> Result<NodeId, LeaseError> {
        let joined = self
            .run(async |client, tables| {
                let transaction = client.transaction().await?;
                // Until the end of the transaction, no service becomes the only owner.
                let alone = format!(
                    "SELECT pg_try_advisory_xact_lock_shared(hashtextextended('anabranch store ' || \
                     to_regclass($1)::oid, 0)) AND NOT EXISTS (SELECT FROM {} WHERE kind = '{OWNER}' AND value <> '' \
                     AND number > (extract(epoch FROM clock_timestamp()) * 1000)::bigint - {})",
                    tables.state,
                    OWNED.as_millis()
                );
                if !transaction.query_one(&alone, &[&tables.state]).await?.get::<_, bool>(0) {
                    return Ok(Err(NotJoined::Owned));
                }
                if transaction.query_one(&being_copied_to(&tables.state), &[]).await?.get(0) {
                    return Ok(Err(NotJoined::Copied));
                }
                // 48 random bits.
                let sql = format!(
                "INSERT INTO {} (id, name, url, version, labels, expires) \
                 VALUES (('x' || left(replace(gen_random_uuid()::text, '-', ''), 12))::bit(48)::bigint, $1, $2, $3, $4, {}) \
                 RETURNING id",
                tables.nodes,
                end()
            );
                let Announcement { name, url, version, labels } = announced;
                let labels: Vec<&str> = labels.iter().map(Str::as_str).collect();
                let row =
                    transaction.query_one(&sql, &[&name.as_str(), &url.as_str(), &version.as_str(), &labels]).await?;
                transaction.commit().await?;
                Ok(Ok(node(row.get(0))))
            })
            .await?;
        joined.map_err(|why| {
            let what = match why {
                NotJoined::Owned => {
                    "a service that is not a node of the cluster owns the store: stop it, or set its cluster.url"
                }
                NotJoined::Copied => "a copy into the store has not ended: start the node again when it has",
            };
            LeaseError::Unavailable(what.to_owned())
        })
    }

    async fn renew(&self, id: NodeId, is_leaving: bool) -> Result<View, LeaseError> {
        let row = self
            .run(async |client, tables| client.query_one(&renewal(tables), &[&signed(id), &is_leaving]).await)
            .await?;
        if row.get::<_, i64>("renewed") == 0 {
            return Err(LeaseError::Over);
        }
        let numbers = |column: &str| row.get::<_, Vec<i64>>(column);
        let marks = |column: &str| row.get::<_, Vec<bool>>(column);
        let loads = numbers("ids").into_iter().zip(numbers("loads")).zip(marks("leaving"));
        let named = row.get::<_, Vec<String>>("pipelines").into_iter().zip(numbers("slots")).zip(numbers("shares"));
        let held = named.zip(marks("wanted").into_iter().zip(marks("ending")));
        Ok(View {
            history: History(row.get::<_, String>("history").into()),
            nodes: loads
                .map(|((id, units), is_leaving)| NodeLoad { id: node(id), units: count(units), is_leaving })
                .collect(),
            held: held
                .map(|(((pipeline, slot), of), (is_wanted, is_ending))| HeldUnit {
                    unit: Unit { pipeline: pipeline.into(), slot: u32::try_from(slot).unwrap_or(u32::MAX) },
                    of: u32::try_from(of).unwrap_or(1),
                    is_wanted,
                    is_ending,
                })
                .collect(),
            units: count(row.get("units")),
            free: count(row.get("free")),
            labelled: count(row.get("labelled")),
            asked: count(row.get("asked")),
            revision: unsigned(row.get("revision")),
        })
    }

    async fn take(&self, id: NodeId, most: usize) -> Result<usize, LeaseError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.run(async |client, LeaseTables { state, nodes, units, .. }| {
            let now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
            let server = format!("convert_to({OF_SERVER}, 'UTF8')");
            // The second part sees the rows of before, so units are refused also while the history is noted.
            let sql = format!(
                "WITH noted AS (UPDATE {state} SET value = {server}, number = {now} WHERE kind = '{HISTORY}' \
                 AND value <> {server}) \
                 UPDATE {units} SET owner = $1, wanted_by = NULL WHERE (pipeline, slot) IN \
                 (SELECT u.pipeline, u.slot FROM {units} u WHERE NOT u.ending AND {} AND {} \
                 ORDER BY u.label = '', random() LIMIT $2 FOR UPDATE SKIP LOCKED) \
                 AND EXISTS (SELECT FROM {nodes} WHERE id = $1 AND expires > clock_timestamp()) \
                 AND NOT EXISTS (SELECT FROM {state} WHERE kind = '{HISTORY}' \
                     AND (value <> {server} OR number > {now} - {}))",
                is_free(nodes),
                fits(nodes),
                SAFE.as_millis()
            );
            let taken = client.execute(&sql, &[&signed(id), &most]).await?;
            Ok(usize::try_from(taken).unwrap_or(usize::MAX))
        })
        .await
    }

    async fn ask(&self, id: NodeId, of: NodeId, most: usize) -> Result<(), LeaseError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.run(async |client, LeaseTables { state, nodes, units, .. }| {
            let sql = format!(
                "UPDATE {units} SET wanted_by = $1 WHERE (pipeline, slot) IN \
                 (SELECT u.pipeline, u.slot FROM {units} u WHERE u.owner = $2 AND NOT u.ending AND (u.wanted_by IS NULL \
                 OR NOT EXISTS (SELECT FROM {nodes} n WHERE n.id = u.wanted_by)) AND {} \
                 ORDER BY random() LIMIT $3 FOR UPDATE SKIP LOCKED)",
                fits(nodes)
            );
            let asked = client.execute(&sql, &[&signed(id), &signed(of), &most]).await?;
            notify(client, state, asked).await
        })
        .await
        .map(drop)
    }

    async fn release(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.run(async |client, LeaseTables { state, nodes, units, .. }| {
            let sql = format!(
                "UPDATE {units} u SET wanted_by = NULL, owner = (SELECT n.id FROM {nodes} n WHERE n.id = u.wanted_by \
                 AND n.expires > clock_timestamp() AND NOT n.leaving) \
                 WHERE pipeline = $2 AND slot = $3 AND owner = $1"
            );
            let released = client.execute(&sql, &[&signed(id), &unit.pipeline.as_str(), &i64::from(unit.slot)]).await?;
            notify(client, state, released).await
        })
        .await
        .map(drop)
    }

    async fn end(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.run(async |client, LeaseTables { units, .. }| {
            let sql = format!("DELETE FROM {units} WHERE pipeline = $2 AND slot = $3 AND owner = $1 AND ending");
            client.execute(&sql, &[&signed(id), &unit.pipeline.as_str(), &i64::from(unit.slot)]).await
        })
        .await
        .map(drop)
    }

    async fn leave(&self, id: NodeId) -> Result<(), LeaseError> {
        self.run(async |client, tables| {
            let left = client.execute(&format!("DELETE FROM {} WHERE id = $1", tables.nodes), &[&signed(id)]).await?;
            notify(client, &tables.state, left).await
        })
        .await
        .map(drop)
    }

    async fn overview(&self, pipeline: Option<&str>) -> Result<Overview, LeaseError> {
        self.run_in(&self.overviews, async |client, LeaseTables { nodes, units, .. }| {
            // Both statements see the nodes whose lease lasts; a unit of another one is free.
            let sql = format!(
                "SELECT id, name, url, version, leaving, labels, \
                 (extract(epoch FROM clock_timestamp() - joined) * 1000)::bigint, \
                 (extract(epoch FROM clock_timestamp() - expires) * 1000)::bigint + {} \
                 FROM {nodes} WHERE expires > clock_timestamp() ORDER BY name, id",
                LEASE.as_millis()
            );
            let found = client.query(&sql, &[]).await?;
            let nodes: Vec<NodeState> = found
                .iter()
                .map(|row| NodeState {
                    id: node(row.get(0)),
                    announced: Announcement {
                        name: row.get::<_, String>(1).into(),
                        url: row.get::<_, String>(2).into(),
                        version: row.get::<_, String>(3).into(),
                        labels: row.get::<_, Vec<String>>(5).into_iter().map(Str::from).collect(),
                    },
                    is_leaving: row.get(4),
                    age: millis(row.get(6)),
                    silence: millis(row.get(7)),
                })
                .collect();
            let sql = format!(
                "SELECT pipeline, slot, owner, wanted_by, ending, label FROM {units} WHERE $1 OR pipeline = $2 \
                 ORDER BY pipeline, slot"
            );
            let known = |id: Option<i64>| id.map(node).filter(|id| nodes.iter().any(|node| node.id == *id));
            let units = client
                .query(&sql, &[&pipeline.is_none(), &pipeline.unwrap_or_default()])
                .await?
                .iter()
                .map(|row| UnitPlace {
                    unit: Unit {
                        pipeline: row.get::<_, String>(0).into(),
                        slot: u32::try_from(row.get::<_, i64>(1)).unwrap_or(u32::MAX),
                    },
                    node: known(row.get(2)),
                    wanted_by: known(row.get(3)),
                    is_ending: row.get(4),
                    label: row.get::<_, String>(5).into(),
                })
                .collect();
            Ok(Overview { nodes, units })
        })
        .await
    }
}

/// Hints that rows have changed, unless it was none.
async fn notify(client: &Client, state: &str, changed: u64) -> Result<(), Failure> {
    match changed {
        0 => Ok(()),
        _ => client.query_one(NOTIFY, &[&state]).await.map(drop),
    }
}

/// A duration that the server measured; its clock may have been set back.
fn millis(measured: i64) -> Duration {
    Duration::from_millis(unsigned(measured))
}

/// The statement that renews a lease, removes those that are over, and reads what a node needs to decide. Its parts see
/// the rows of before: what it removes is free for the next statement.
fn renewal(LeaseTables { state, nodes, units, .. }: &LeaseTables) -> String {
    format!(
        "WITH renewed AS (UPDATE {nodes} SET expires = {}, leaving = $2 \
             WHERE id = $1 AND expires > clock_timestamp() RETURNING id), \
         over AS (DELETE FROM {nodes} WHERE id IN (SELECT id FROM {nodes} WHERE id <> $1 \
             AND expires <= clock_timestamp() FOR UPDATE SKIP LOCKED) RETURNING id), \
         live AS (SELECT id, CASE WHEN id = $1 THEN $2 ELSE leaving END AS leaving FROM {nodes} \
             WHERE expires > clock_timestamp()), \
         ended AS (DELETE FROM {units} u WHERE u.ending AND {} RETURNING 1), \
         seen AS (SELECT pipeline, slot, shares, ending, label, o.id AS owner, w.id AS wanted_by, {} AS fits FROM {units} u \
             LEFT JOIN live o ON o.id = u.owner LEFT JOIN live w ON w.id = u.wanted_by \
             WHERE o.id IS NOT NULL OR NOT u.ending), \
         loads AS (SELECT live.id, live.leaving, count(seen.owner) AS load FROM live \
             LEFT JOIN seen ON seen.owner = live.id AND seen.wanted_by IS NULL GROUP BY live.id, live.leaving) \
         SELECT (SELECT count(*) FROM renewed) AS renewed, \
             {OF_SERVER} AS history, \
             coalesce((SELECT number FROM {state} WHERE kind = '{REVISION}' AND pipeline = '' AND slot = 0 \
                 AND connector = '' AND partition = ''), 0) AS revision, \
             (SELECT count(*) FROM seen) AS units, \
             (SELECT count(*) FROM seen WHERE owner IS NULL AND fits) AS free, \
             (SELECT count(*) FROM seen WHERE owner IS NULL AND fits AND label <> '') AS labelled, \
             (SELECT count(*) FROM seen WHERE wanted_by = $1 AND owner <> $1) AS asked, \
             ARRAY(SELECT id FROM loads ORDER BY id) AS ids, \
             ARRAY(SELECT load FROM loads ORDER BY id) AS loads, \
             ARRAY(SELECT leaving FROM loads ORDER BY id) AS leaving, \
             ARRAY(SELECT pipeline FROM seen WHERE owner = $1 ORDER BY pipeline, slot) AS pipelines, \
             ARRAY(SELECT slot FROM seen WHERE owner = $1 ORDER BY pipeline, slot) AS slots, \
             ARRAY(SELECT shares FROM seen WHERE owner = $1 ORDER BY pipeline, slot) AS shares, \
             ARRAY(SELECT wanted_by IS NOT NULL FROM seen WHERE owner = $1 ORDER BY pipeline, slot) AS wanted, \
             ARRAY(SELECT ending FROM seen WHERE owner = $1 ORDER BY pipeline, slot) AS ending",
        end(),
        is_free(nodes),
        fits(nodes)
    )
}

/// The history of the server: its id and its timeline.
const OF_SERVER: &str =
    "(SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// Kind of the row in the state table with the history of the server that last gave units away, and the time since when, in
/// milliseconds since 1970. A server that has just taken over may not know the latest leases: it gives no units away until
/// the nodes that had them have given them up.
const HISTORY: &str = "history";

/// Kind of the row in the state table with a text that identifies the store.
const IDENTITY: &str = "identity";

/// Kind of the row in the state table with the number of the latest change of the configuration.
pub(super) const REVISION: &str = "revision";
