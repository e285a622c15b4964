//! Notifications of changes that concern nodes.

use std::time::Duration;

use anabranch_cluster::{Announcement, LeaseStore as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::sets::pipeline;
use super::*;
use crate::postgres::hints::Hints;
use crate::postgres::leases::Leases;
use crate::request::Spread;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn nodes_are_notified_of_changes_that_concern_them_and_of_no_others() {
    let Some(database) = Database::create() else { return };
    let settings = PostgresDatabase { connection: database.url().into(), table: "kv".to_owned() };
    let store = Postgres::open_shared(&settings).unwrap();
    let (leases, _) = Leases::open(&settings).await.unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let hints = Hints::of(&settings).unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    tokio::spawn(async move {
        let told = || {
            let _ = tell.send(());
        };
        hints.follow(told).await;
    });
    // Its own.
    timeout(PATIENCE, told.recv()).await.unwrap().unwrap();

    let node = leases.join(&Announcement::default()).await.unwrap();
    let other = leases.join(&Announcement::default()).await.unwrap();
    for write in [
        Write::Replace { pipeline: pipeline("p").into(), at: crate::entity::Moment(1) },
        Write::Want { pipeline: "p".into(), spread: Spread::default() },
        Write::End { pipeline: "p".into() },
        Write::Want { pipeline: "q".into(), spread: Spread::default() },
    ] {
        let what = format!("{write:?}");
        store.write(write).await.unwrap();
        timeout(PATIENCE, told.recv()).await.expect(&what).unwrap();
    }
    leases.take(node, 9).await.unwrap();
    leases.ask(other, node, 9).await.unwrap();
    timeout(PATIENCE, told.recv()).await.expect("a question").unwrap();
    leases.release(node, &Unit::whole("q")).await.unwrap();
    timeout(PATIENCE, told.recv()).await.expect("a release").unwrap();

    // Positions and statuses change often. Each would keep a hint from being late.
    let claim = Write::Claim { unit: Unit::whole("x"), by: None };
    let WriteResult::Epoch(epoch) = store.write(claim).await.unwrap() else { panic!("another answer") };
    let moves = vec![(lane(), mark(1))];
    store.write(Write::Marks { epoch, moves, receipts: Vec::new(), drops: Vec::new() }).await.unwrap();
    leases.renew(node, false).await.unwrap();
    assert!(timeout(Duration::from_secs(1), told.recv()).await.is_err());
    leases.leave(node).await.unwrap();
    timeout(PATIENCE, told.recv()).await.expect("a node that leaves").unwrap();
}
