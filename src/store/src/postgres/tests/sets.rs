//! Sets of pipeline files that the nodes of a cluster import.

use std::collections::BTreeMap;

use super::*;
use crate::compare::{Import, Provision};
use crate::entity::{Moment, Origin, Status, StopReason, StoredPipeline};
use crate::postgres::leases::Leases;
use crate::request::Spread;

pub(super) fn pipeline(id: &str) -> StoredPipeline {
    StoredPipeline {
        autostart: true,
        status: Status::Stopped { reason: StopReason::User },
        ..StoredPipeline::unknown(id.into())
    }
}

pub(super) fn provision(pipelines: &[StoredPipeline]) -> Provision {
    Provision { good: pipelines.to_vec(), invalid: Vec::new(), complete: true, at: Moment(1) }
}

fn nothing() -> Provision {
    Provision { complete: false, ..provision(&[]) }
}

/// A node, without membership.
async fn node(database: &Database) -> Store {
    let settings = PostgresDatabase { connection: database.url().into(), table: "kv".to_owned() };
    let of_leases = settings.clone();
    let opened = tokio::task::spawn_blocking(move || Postgres::open_shared(&settings)).await.unwrap().unwrap();
    // Makes the tables of nodes and units.
    Leases::open(&of_leases).await.unwrap();
    Store::at(crate::store::Backend::Postgres(opened))
}

/// The units, as `pipeline/slot`, with `!` if they are drained.
fn units(database: &Database) -> Vec<String> {
    database.query("SELECT pipeline || '/' || slot || CASE WHEN ending THEN '!' ELSE '' END FROM kv_unit ORDER BY 1")
}

async fn import(store: &Store, set: Provision) -> Import {
    store.import(set, BTreeMap::new()).await.unwrap()
}

#[tokio::test]
async fn the_first_import_starts_what_a_service_alone_would_also_from_a_node_without_files() {
    let Some(database) = Database::create() else { return };
    let node = node(&database).await;
    let of_api = StoredPipeline { origin: Origin::Api, ..pipeline("api") };
    node.provision(provision(&["ran", "stopped", "failed", "gone"].map(pipeline))).await.unwrap();
    node.replace(of_api).await.unwrap();
    let statuses = [
        ("ran", Status::Stopped { reason: StopReason::System }),
        ("stopped", Status::Stopped { reason: StopReason::User }),
        ("failed", Status::Degraded { error: "x".to_owned() }),
        ("gone", Status::Running),
        ("api", Status::Running),
    ];
    for (id, status) in statuses {
        node.set_status(&id.into(), status).await.unwrap();
    }
    node.replace(StoredPipeline { detached: true, ..pipeline("gone") }).await.unwrap();
    assert_eq!(import(&node, nothing()).await, Import::Stored(Vec::new()));
    assert_eq!(units(&database), ["api/0", "failed/0", "ran/0"]);
    assert_eq!(import(&node, nothing()).await, Import::Current);
    // The files that a node brings later change nothing.
    let set = provision(&["ran", "stopped", "failed"].map(pipeline));
    import(&node, set.clone()).await;
    assert_eq!(import(&node, set).await, Import::Current);
    assert_eq!(import(&node, nothing()).await, Import::Current);
    assert_eq!(units(&database), ["api/0", "failed/0", "ran/0"]);
}

#[tokio::test]
async fn a_set_starts_what_it_repairs_and_what_comes_back_before_it_is_drained() {
    let Some(database) = Database::create() else { return };
    let node = node(&database).await;
    let (one, other) = (provision(&["a", "b"].map(pipeline)), provision(&[pipeline("b")]));
    import(&node, one.clone()).await;
    assert_eq!(units(&database), ["a/0", "b/0"]);
    database
        .query("INSERT INTO kv_node (id, name, url, version, expires) VALUES (1, 'n', '', '', now() + interval '1 h')");
    database.query("UPDATE kv_unit SET owner = 1");
    import(&node, other.clone()).await;
    assert_eq!(units(&database), ["a/0!", "b/0"]);
    let revision = node.revision().await.unwrap();
    assert!(matches!(node.import_on_request(one.clone(), BTreeMap::new(), revision).await.unwrap(), Import::Stored(_)));
    assert_eq!(units(&database), ["a/0", "b/0"]);
    // In another number of units, its runs are not waited for.
    let split = || BTreeMap::from([("a".into(), Spread { units: 2, ..Spread::default() })]);
    for set in [&other, &one] {
        let revision = node.revision().await.unwrap();
        node.import_on_request(set.clone(), split(), revision).await.unwrap();
    }
    assert_eq!(units(&database), ["a/0", "a/1", "b/0"]);
    assert_eq!(database.query("SELECT count(owner) FROM kv_unit WHERE pipeline = 'a'"), ["0"]);

    for (status, starts) in [
        (Status::Degraded { error: "x".to_owned() }, true),
        (Status::Finished, true),
        (Status::Stopped { reason: StopReason::User }, false),
    ] {
        database.query("DELETE FROM kv_unit WHERE pipeline = 'b'");
        node.set_status(&"b".into(), status).await.unwrap();
        let revision = node.revision().await.unwrap();
        let changed = StoredPipeline { description: revision.to_string().into(), ..pipeline("b") };
        let set = provision(&[pipeline("a"), changed]);
        node.import_on_request(set, BTreeMap::new(), revision).await.unwrap();
        assert_eq!(units(&database).contains(&"b/0".to_owned()), starts);
    }
}

#[tokio::test]
async fn a_set_is_not_imported_if_the_configuration_has_changed_since_it_was_planned() {
    let Some(database) = Database::create() else { return };
    let node = node(&database).await;
    import(&node, provision(&["a", "b"].map(pipeline))).await;
    let revision = node.revision().await.unwrap();
    node.replace(StoredPipeline { description: "changed".into(), ..pipeline("a") }).await.unwrap();
    let set = provision(&[pipeline("a")]);
    assert_eq!(node.import_on_request(set.clone(), BTreeMap::new(), revision).await.unwrap(), Import::Outdated);
    assert_eq!(units(&database), ["a/0", "b/0"]);
    let revision = node.revision().await.unwrap();
    assert!(matches!(node.import_on_request(set.clone(), BTreeMap::new(), revision).await.unwrap(), Import::Stored(_)));
    // The answer to a commit may be lost: then the set is imported again, and is the latest.
    assert!(matches!(node.import_on_request(set, BTreeMap::new(), revision).await.unwrap(), Import::Stored(_)));
    assert_eq!(units(&database), ["a/0"]);
}
