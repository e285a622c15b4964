//! Sets of pipeline files that the nodes of a cluster import.

use std::collections::BTreeMap;

use anabranch_record::text::Str;

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
    Provision { good: pipelines.to_vec(), invalid: Vec::new(), complete: true, at: Moment(1), texts: Vec::new() }
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

#[tokio::test]
async fn an_import_keeps_the_fields_of_a_later_version() {
    let Some(database) = Database::create() else { return };
    let node = node(&database).await;
    let with_source = |description: &str| {
        let source = crate::entity::StoredConnector {
            id: "in".into(),
            role: "source".into(),
            plugin: "file".into(),
            name: Str::from(description.to_owned()),
            condition: None,
            settings: Vec::new(),
            processors: Vec::new(),
        };
        StoredPipeline { description: Str::from(description.to_owned()), connectors: vec![source], ..pipeline("a") }
    };
    import(&node, provision(&[with_source("one")])).await;
    database.query(
        "UPDATE kv SET value = convert_to(jsonb_set(jsonb_set(convert_from(value, 'UTF8')::jsonb, '{later}', '7'), \
         '{connectors,0,later}', '8')::text, 'UTF8') WHERE kind = 'pipeline'",
    );
    assert!(matches!(import(&node, provision(&[with_source("two")])).await, Import::Stored(_)));
    let kept = "SELECT v->>'description', v->>'later', v->'connectors'->0->>'name', v->'connectors'->0->>'later' \
                FROM (SELECT convert_from(value, 'UTF8')::jsonb v FROM kv WHERE kind = 'pipeline') stored";
    assert_eq!(database.query(kept), ["two|7|two|8"]);
}

#[tokio::test]
async fn files_that_another_version_has_imported_are_not_imported_again() {
    let Some(database) = Database::create() else { return };
    let node = node(&database).await;
    let set = |texts: &[u8], description: &'static str| Provision {
        texts: texts.iter().map(|text| [*text; 32]).collect(),
        ..provision(&[StoredPipeline { description: description.into(), ..pipeline("a") }])
    };
    assert!(matches!(import(&node, set(&[1, 2], "as one version reads it")).await, Import::Stored(_)));
    // The files of the other node have another order.
    let other = set(&[2, 1], "as another version reads it");
    assert_eq!(import(&node, other.clone()).await, Import::Current);
    // A comment changes a text, and nothing else.
    assert_eq!(import(&node, set(&[3], "as one version reads it")).await, Import::Current);
    assert!(matches!(import(&node, set(&[4], "new")).await, Import::Stored(_)));
    assert_eq!(import(&node, other.clone()).await, Import::Older);
    // A plugin is missing on a node, or is there again.
    let invalid = Provision { good: Vec::new(), invalid: vec!["a".into()], ..other };
    assert!(matches!(import(&node, invalid).await, Import::Stored(_)));
}
