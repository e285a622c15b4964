//! Nodes that share the store of a cluster, on a real server.

use std::time::Duration;

use anabranch_cluster::{Announcement, LeaseError, LeaseStore as _, Membership, NodeId, Tenure};
use anabranch_plugin::state::Slots;
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::super::proxy::{FROZEN, OPEN, Proxy};
use super::*;
use crate::entity::{Status, StoredPipeline};
use crate::postgres::leases::Leases;
use crate::request::Spread;

fn settings(database: &Database) -> PostgresDatabase {
    PostgresDatabase { connection: database.url().into(), table: "kv".to_owned() }
}

fn named(name: &'static str) -> Announcement {
    Announcement { name: name.into(), ..Announcement::default() }
}

/// The store and its leases, and pipelines `p0`, `p1`, … that are to run.
async fn cluster(database: &Database, pipelines: usize) -> (Store, Leases) {
    let store = open(database.url(), "kv").unwrap();
    let (leases, _) = Leases::open(&settings(database)).await.unwrap();
    for number in 0..pipelines {
        database.query(&format!("INSERT INTO kv_unit (pipeline, slot) VALUES ('p{number}', 0)"));
    }
    (store, leases)
}

async fn held(leases: &Leases, id: NodeId) -> usize {
    leases.renew(id, false).await.unwrap().held.len()
}

/// Has the time of a node pass.
fn expire(database: &Database, id: NodeId) {
    database.query(&format!(
        "UPDATE kv_node SET expires = clock_timestamp() - interval '1 ms' WHERE id = {}",
        id.0.cast_signed()
    ));
}

#[tokio::test]
async fn a_unit_belongs_to_one_node_and_is_free_when_its_lease_is_over() {
    let Some(database) = Database::create() else { return };
    let (_store, leases) = cluster(&database, 5).await;
    let (a, b) = (leases.join(&named("a")).await.unwrap(), leases.join(&named("b")).await.unwrap());
    leases.take(a, 3).await.unwrap();
    leases.take(b, 10).await.unwrap();
    assert_eq!((held(&leases, a).await, held(&leases, b).await), (3, 2));
    let view = leases.renew(a, false).await.unwrap();
    assert_eq!((view.units, view.free, view.asked, view.nodes.len()), (5, 0, 0, 2));

    // The unit goes to the node that asked, when it is released.
    leases.ask(b, a, 1).await.unwrap();
    let view = leases.renew(a, false).await.unwrap();
    let wanted: Vec<_> = view.held.iter().filter(|held| held.is_wanted).collect();
    assert_eq!(wanted.len(), 1);
    assert_eq!(leases.renew(b, false).await.unwrap().asked, 1);
    assert_eq!(held(&leases, b).await, 2, "not before");
    leases.release(a, &wanted[0].unit).await.unwrap();
    assert_eq!((held(&leases, a).await, held(&leases, b).await), (2, 3));

    // A node whose time has passed has nothing, whatever it believes, and the others have its units.
    expire(&database, a);
    assert!(matches!(leases.renew(a, false).await, Err(LeaseError::Over)));
    leases.take(a, 10).await.unwrap();
    leases.renew(b, false).await.unwrap();
    leases.take(b, 10).await.unwrap();
    assert_eq!(held(&leases, b).await, 5);
    assert!(matches!(leases.renew(a, false).await, Err(LeaseError::Over)), "it cannot come back");
    // What is asked of a node, or by one, that is gone is no longer wanted.
    let c = leases.join(&named("c")).await.unwrap();
    leases.ask(c, b, 2).await.unwrap();
    leases.leave(c).await.unwrap();
    let view = leases.renew(b, false).await.unwrap();
    assert!(view.held.iter().all(|held| !held.is_wanted), "{view:?}");
    leases.release(b, &view.held[0].unit).await.unwrap();
    assert_eq!(leases.renew(b, false).await.unwrap().free, 1);
}

/// However renewals, the removal of those that are over, and takes fall together, a unit has one node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_unit_is_taken_from_a_node_that_could_renew() {
    let Some(database) = Database::create() else { return };
    let (_store, first) = cluster(&database, 1).await;
    let (second, _) = Leases::open(&settings(&database)).await.unwrap();
    for _ in 0..60 {
        let (a, b) = (first.join(&named("a")).await.unwrap(), second.join(&named("b")).await.unwrap());
        first.take(a, 1).await.unwrap();
        // The lease ends while the node renews it.
        let moment = format!(
            "UPDATE kv_node SET expires = clock_timestamp() + interval '3 ms' WHERE id = {}",
            a.0.cast_signed()
        );
        database.query(&moment);
        let renews = first.renew(a, false);
        let takes = async {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(15) {
                second.renew(b, false).await.unwrap();
                second.take(b, 1).await.unwrap();
            }
            held(&second, b).await
        };
        let (renewed, taken) = tokio::join!(renews, takes);
        assert_eq!(renewed.is_ok(), taken == 0, "either the one or the other");
        first.leave(a).await.unwrap();
        second.leave(b).await.unwrap();
        database.query("UPDATE kv_unit SET owner = NULL");
    }
}

fn join(database: &Database, name: &'static str) -> Store {
    Store::join(&settings(database), named(name)).unwrap()
}

/// Joins through a proxy of the server.
fn join_through(proxy: &Proxy, database: &Database, name: &'static str) -> Store {
    let url = format!("postgresql://postgres@127.0.0.1:{}/{}", proxy.port, database.name());
    Store::join(&PostgresDatabase { connection: url.into(), table: "kv".to_owned() }, named(name)).unwrap()
}

fn membership(store: &Store) -> &Membership {
    store.membership().unwrap()
}

async fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

#[tokio::test]
async fn only_the_node_that_has_a_unit_can_claim_it() {
    let Some(database) = Database::create() else { return };
    let (_store, _leases) = cluster(&database, 1).await;
    let unit = Unit::whole("p0");
    let a = join(&database, "a");
    wait_for("the unit", || membership(&a).tenure(&unit) == Some(Tenure::Held)).await;
    let ours = a.claim(&unit).await.unwrap();
    a.commit(&ours, Commit::of(&[(lane(), mark(1))])).await.unwrap();
    let b = join(&database, "b");
    wait_for("the second node", || membership(&b).standing().borrow().id.is_some()).await;
    let refused = b.claim(&unit).await.unwrap_err();
    assert_eq!(refused.to_string(), "pipeline p0 belongs to node a");
    a.commit(&ours, Commit::of(&[(lane(), mark(2))])).await.unwrap();
    // Nobody runs this one.
    b.claim(&Unit::whole("other")).await.unwrap();

    membership(&a).leave().await;
    wait_for("the take-over", || membership(&b).tenure(&unit) == Some(Tenure::Held)).await;
    let theirs = b.claim(&unit).await.unwrap();
    assert_eq!(b.load(&theirs).await.unwrap()[&lane()], mark(2));
    assert!(matches!(a.commit(&ours, Commit::of(&[(lane(), mark(3))])).await, Err(StoreError::Fenced { .. })));
}

#[tokio::test]
async fn a_node_that_cannot_reach_the_store_gives_its_units_up_before_they_are_taken() {
    let Some(server) = Server::start(&[]).map(Arc::new) else { return };
    let database = server.database();
    let (_store, leases) = cluster(&database, 1).await;
    let proxy = Proxy::start(server.port());
    let a = join_through(&proxy, &database, "a");
    let unit = Unit::whole("p0");
    wait_for("the unit", || membership(&a).tenure(&unit).is_some()).await;
    let b = leases.join(&named("b")).await.unwrap();
    proxy.set(FROZEN);
    let lost = wait_for("the loss", || membership(&a).tenure(&unit).is_none());
    let taken = async {
        let begun = Instant::now();
        loop {
            leases.renew(b, false).await.unwrap();
            leases.take(b, 1).await.unwrap();
            if held(&leases, b).await == 1 {
                return begun.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (lost, taken) = tokio::join!(lost, taken);
    proxy.set(OPEN);
    assert!(lost + Duration::from_millis(500) < taken, "{lost:?}, {taken:?}");
    assert!(taken < Duration::from_secs(7), "{taken:?}");
}

/// The server keeps the lock on the unit until it ends the transaction of the paused node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_paused_while_it_claims_a_unit_does_not_keep_it() {
    let Some(server) = Server::start(&[]).map(Arc::new) else { return };
    let database = server.database();
    let (_store, leases) = cluster(&database, 1).await;
    let proxy = Proxy::start(server.port());
    let a = join_through(&proxy, &database, "a");
    let unit = Unit::whole("p0");
    wait_for("the unit", || membership(&a).tenure(&unit).is_some()).await;
    // The claim waits for this table when it has the lock on its unit.
    let mut session = Address::parse(&settings(&database).connection).unwrap().connect().await.unwrap();
    let held_up = session.client().transaction().await.unwrap();
    held_up.batch_execute("LOCK TABLE kv IN SHARE MODE").await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    let claim = tokio::spawn(async move { a.claim(&unit).await.map(drop) });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'kv'::regclass";
    wait_for("the claim", || database.query(waits) == ["1"]).await;
    proxy.set(FROZEN);
    held_up.commit().await.unwrap();
    let b = leases.join(&named("b")).await.unwrap();
    let begun = Instant::now();
    loop {
        leases.renew(b, false).await.unwrap();
        leases.take(b, 1).await.unwrap();
        if held(&leases, b).await == 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the unit stays with the paused node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy.set(OPEN);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let _ = claim.await;
}

/// The marks are stored in one transaction, and the number of units changes in another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_that_are_being_stored_while_the_number_of_units_changes_are_moved() {
    let Some(database) = Database::create() else { return };
    let (a, b) = (join(&database, "a"), join(&database, "b"));
    let (pipeline, unit) = (Str::from("p"), Unit { pipeline: "p".into(), slot: 3 });
    a.want(&pipeline, Spread { units: 8, ..Spread::default() }).await.unwrap();
    // Nothing else of the nodes waits for the table.
    wait_for("the nodes", || [&a, &b].iter().all(|node| membership(node).standing().borrow().id.is_some())).await;
    let held = |node: &Store| {
        let tenure = |slot| membership(node).tenure(&Unit { pipeline: pipeline.clone(), slot });
        (0..8).filter(|slot| tenure(*slot) == Some(Tenure::Held)).count()
    };
    // Afterwards no unit changes its node, also if one of them had all.
    wait_for("half of the units each", || held(&a) == 4 && held(&b) == 4).await;
    let holds_it = membership(&a).tenure(&unit) == Some(Tenure::Held);
    let (holder, other) = if holds_it { (a, b) } else { (b, a) };
    let epoch = holder.claim(&unit).await.unwrap();
    // Both have read what they look up when they wait for this table.
    let mut session = Address::parse(&settings(&database).connection).unwrap().connect().await.unwrap();
    let held_up = session.client().transaction().await.unwrap();
    held_up.batch_execute("LOCK TABLE kv IN SHARE MODE").await.unwrap();
    let waiting = |count: usize| {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'kv'::regclass";
        database.query(waits) == [count.to_string()]
    };
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    let stored = tokio::spawn(async move { holder.commit(&epoch, Commit::of(&[(lane(), mark(7))])).await });
    wait_for("the marks", || waiting(1)).await;
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    let reshaped = tokio::spawn(async move { other.reshape(&pipeline, Spread::default()).await });
    wait_for("the change of the number", || waiting(2)).await;
    held_up.commit().await.unwrap();
    stored.await.unwrap().unwrap();
    reshaped.await.unwrap().unwrap();
    assert_eq!(database.query("SELECT slot, partition FROM kv WHERE kind = 'mark'"), ["0|0"]);
}

#[tokio::test]
async fn a_node_claims_no_unit_that_is_none_of_its_pipeline() {
    let Some(database) = Database::create() else { return };
    let a = join(&database, "a");
    let (pipeline, unit) = (Str::from("p"), Unit { pipeline: "p".into(), slot: 3 });
    a.want(&pipeline, Spread { units: 8, ..Spread::default() }).await.unwrap();
    wait_for("the unit", || membership(&a).tenure(&unit) == Some(Tenure::Held)).await;
    let before = a.claim(&unit).await.unwrap();
    a.reshape(&pipeline, Spread::default()).await.unwrap();
    // Its marks are those of the only unit.
    let refused = a.claim(&unit).await;
    assert!(
        matches!(&refused, Err(StoreError::Fenced { ours: 0, theirs, .. }) if *theirs > before.number),
        "{refused:?}"
    );
    // A request to the marks of a pipeline that is stopped claims all units that it had.
    database.query("DELETE FROM kv_unit");
    a.claim(&unit).await.unwrap();
}

#[tokio::test]
async fn nodes_and_a_service_alone_exclude_each_other() {
    let Some(database) = Database::create() else { return };
    let alone = anabranch_settings::Database::Postgres(settings(&database));
    let owner = tokio::task::spawn_blocking({
        let alone = alone.clone();
        move || Store::own(&alone)
    });
    let owner = owner.await.unwrap().unwrap();
    let a = join(&database, "a");
    wait_for("the refusal", || membership(&a).standing().borrow().lost.is_some()).await;
    let why = membership(&a).standing().borrow().lost.clone().unwrap();
    assert!(why.contains("owns the store"), "{why}");
    owner.release().await;
    drop(owner);
    wait_for("the node", || membership(&a).standing().borrow().id.is_some()).await;
    let refused = tokio::task::spawn_blocking(move || Store::own(&alone)).await.unwrap();
    let Err(OpenError::Cluster { node, .. }) = refused else { panic!("it was opened") };
    assert_eq!(node, "a");
}

/// A store as nodes of version 0.1.0 left it: a pipeline of one unit with a label, and one of eight.
#[tokio::test]
async fn the_first_form_of_a_cluster_is_read() {
    let Some(database) = Database::create() else { return };
    database.query(include_str!("../../../fixtures/cluster-1.sql"));
    let shared = PostgresDatabase { connection: database.url().into(), table: "anabranch_kv_store".to_owned() };
    let announced = Announcement { name: "a".into(), labels: vec!["disk".into()], ..Announcement::default() };
    let store = Store::join(&shared, announced).unwrap();
    assert_eq!(store.identity().unwrap().len(), 36);
    let membership = store.membership().unwrap();
    let mut standing = membership.standing();
    let has_all = standing.wait_for(|standing| standing.units.len() == 9);
    tokio::time::timeout(std::time::Duration::from_secs(20), has_all).await.unwrap().unwrap();
    let numbers = store.positions(&"numbers".into()).await.unwrap();
    assert_eq!(numbers.len(), 8);
    let last = numbers.values().map(|mark| std::str::from_utf8(&mark.position.0).unwrap().parse().unwrap()).max();
    assert_eq!(last, Some(80_u32));
    // Each unit has the lane of its slot, and what the destination has confirmed.
    for slot in 0..8 {
        let epoch = store.claim(&Unit { pipeline: "numbers".into(), slot }).await.unwrap();
        let lanes: Vec<LaneId> = store.load(&epoch).await.unwrap().into_keys().collect();
        assert!(matches!(lanes.as_slice(), [lane] if Slots::none(8).slot_of(&lane.partition) == slot), "{lanes:?}");
        assert_eq!(store.receipts(&epoch).await.unwrap().len(), 1);
    }
    let ids: Vec<_> =
        store.pipelines().await.unwrap().into_iter().map(|stored| (stored.id, stored.placement)).collect();
    assert_eq!(ids, [("lines".into(), Some("disk".into())), ("numbers".into(), None)]);
    membership.leave().await;
}

/// Nodes of two versions work side by side.
#[tokio::test]
async fn a_status_leaves_fields_of_a_later_version_as_they_are() {
    let Some(database) = Database::create() else { return };
    let (store, _leases) = cluster(&database, 0).await;
    let id = Str::from_static("p");
    store.replace(StoredPipeline::new(id.clone(), id.clone(), Str::default())).await.unwrap();
    database.query(
        "UPDATE kv SET value = convert_to((convert_from(value, 'UTF8')::jsonb || '{\"later\": [1, null]}')::text, 'UTF8') \
         WHERE kind = 'pipeline'",
    );
    store.set_status(&id, Status::Running).await.unwrap();
    store.set_status(&id, Status::Finished).await.unwrap();
    let later = database.query(
        "SELECT convert_from(value, 'UTF8')::jsonb ->> 'later', convert_from(value, 'UTF8')::jsonb -> 'status' ->> 'state' \
         FROM kv WHERE kind = 'pipeline'",
    );
    assert_eq!(later, ["[1, null]|finished"]);
}
