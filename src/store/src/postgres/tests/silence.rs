//! A server that was there and went silent: what was asked may have been done, and is asked again.

use std::time::Instant;

use tokio::sync::watch;

use super::super::connection::Limits;
use super::super::proxy::{FROZEN, LOSES_COMMIT, OPEN, Proxy};
use super::*;
use crate::owner::StoreOwnership;
use crate::store::Backend;

const PATIENCE: Duration = Duration::from_secs(60);

/// The tables behind the proxy, which waits three seconds for an answer.
pub(super) fn tables(proxy: &Proxy) -> Postgres {
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port);
    let (Ok(mut address), Ok(table)) = (Address::parse(&url.clone().into()), Table::parse("kv")) else {
        panic!("{url}")
    };
    // A server that is not silent answers sooner, also where it waits for a core.
    address.limits = Limits { opening: Duration::from_secs(3), statement: Duration::from_secs(3) };
    let Ok(postgres) = Postgres::start(address, table) else { panic!("it is not opened") };
    postgres
}

fn store(proxy: &Proxy) -> Store {
    Store::at(Backend::Postgres(tables(proxy)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_went_silent_is_asked_again() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let store = store(&proxy);
    let epoch = store.claim(&Unit::whole("p")).await.unwrap();
    for round in 0..3 {
        store.commit(&epoch, Commit::of(&[(lane(), mark(3 * round + 1))])).await.unwrap();
        let before = proxy.accepted();
        proxy.set(FROZEN);
        let (asking, at) = (store.clone(), epoch.clone());
        #[expect(clippy::disallowed_methods, reason = "the test joins it")]
        let asked = tokio::spawn(async move { asking.commit(&at, Commit::of(&[(lane(), mark(3 * round + 2))])).await });
        let start = Instant::now();
        while proxy.accepted() == before {
            assert!(start.elapsed() < PATIENCE, "it waits for ever");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Now the server also gets what was asked in the connection that was given up.
        proxy.set(OPEN);
        asked.await.unwrap().unwrap();
        assert_eq!(store.load(&epoch).await.unwrap()[&lane()], mark(3 * round + 2));
        store.commit(&epoch, Commit::of(&[(lane(), mark(3 * round + 3))])).await.unwrap();
        assert_eq!(store.load(&epoch).await.unwrap()[&lane()], mark(3 * round + 3));
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_is_repeated() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let store = store(&proxy);
    proxy.set(LOSES_COMMIT);
    let epoch = store.claim(&Unit::whole("p")).await.unwrap();
    assert_eq!(epoch.number, 2, "the first was taken, and nobody was told");
    for seq in 1..=2 {
        proxy.set(LOSES_COMMIT);
        store.commit(&epoch, Commit::of(&[(lane(), mark(seq))])).await.unwrap();
        assert_eq!(proxy.mode(), OPEN);
        assert_eq!(store.load(&epoch).await.unwrap()[&lane()], mark(seq));
    }
    let later = store.claim(&Unit::whole("p")).await.unwrap();
    let fenced = store.commit(&epoch, Commit::of(&[(lane(), mark(9))])).await.unwrap_err();
    assert!(matches!(fenced, StoreError::Fenced { .. }), "{fenced}");
    assert_eq!(store.load(&later).await.unwrap()[&lane()], mark(2));
}

/// A write that a process has asked for while it owned the store, and that is not answered before another process may own
/// it, is given up: made later, it would take the pipeline away from the next owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_of_a_former_owner_is_not_repeated() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let (owns, holding) = watch::channel(StoreOwnership::Held);
    let former = store(&proxy).held_by(holding);
    let next = open(server.url(), "kv").unwrap();
    assert_eq!(former.claim(&Unit::whole("p")).await.unwrap().number, 1);
    proxy.set(FROZEN);
    let before = proxy.accepted();
    let asking = former.clone();
    #[expect(clippy::disallowed_methods, reason = "the test joins it")]
    let asked = tokio::spawn(async move { asking.claim(&Unit::whole("p")).await });
    let start = Instant::now();
    while proxy.accepted() == before {
        assert!(start.elapsed() < PATIENCE, "it is not asked again");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    owns.send_replace(StoreOwnership::Paused("the session is lost".to_owned()));
    let given_up = tokio::time::timeout(PATIENCE, asked).await.expect("the asker waits on").unwrap().unwrap_err();
    assert!(given_up.to_string().contains("the session is lost"), "{given_up}");
    let theirs = next.claim(&Unit::whole("p")).await.unwrap();
    assert_eq!(theirs.number, 2);
    proxy.set(OPEN);
    // An answer to a later question shows that the earlier one is done with.
    let start = Instant::now();
    while former.pipelines().await.is_err() {
        assert!(start.elapsed() < PATIENCE, "the server is not found again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    next.commit(&theirs, Commit::of(&[(lane(), mark(1))])).await.unwrap();
}

#[test]
fn a_server_that_stops_in_the_middle_of_opening_is_not_waited_for() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port);
    // The transaction that makes the tables is never answered.
    proxy.set(LOSES_COMMIT);
    let error = refused(open(format!("{url}?connect_timeout=1"), "kv"));
    assert!(matches!(&error, PostgresError::Server { what, .. } if what == "no answer in 2 s"), "{error}");
    drop(open(url, "kv").unwrap());
}
