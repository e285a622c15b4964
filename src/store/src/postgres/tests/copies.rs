//! Copies into a store of which a node knows, or whose server is silent.

use std::collections::BTreeMap;

use anabranch_cluster::{Announcement, LeaseStore as _};

use super::super::proxy::{LOSES_COMMIT, OPEN, Proxy};
use super::sets::{pipeline, provision};
use super::*;
use crate::contents::{Contents, LetterCounter};
use crate::letters::{StoredLetter, key};
use crate::postgres::leases::Leases;
use crate::store::{CopyError, Store};

fn settings(url: String) -> PostgresDatabase {
    PostgresDatabase { connection: url.into(), table: "kv".to_owned() }
}

#[tokio::test]
async fn a_node_that_opened_the_store_before_a_copy_changes_nothing_in_it() {
    let Some(database) = Database::create() else { return };
    let opened = Postgres::open_shared(&settings(database.url())).unwrap();
    let node = Store::at(crate::store::Backend::Postgres(opened));
    let target = Postgres::open(&settings(database.url())).unwrap();
    assert!(matches!(target.write(Write::BeginCopy).await.unwrap(), WriteResult::Nothing));
    let set = || provision(&[pipeline("p1")]);
    let refused = node.import(set(), BTreeMap::new()).await.unwrap_err().to_string();
    assert!(refused.contains("a copy into this store has not ended"), "{refused}");
    let (leases, _) = Leases::open(&settings(database.url())).await.unwrap();
    let refused = leases.join(&Announcement::default()).await.unwrap_err().to_string();
    assert!(refused.contains("a copy into the store has not ended"), "{refused}");
    target.write(Write::AbandonCopy).await.unwrap();
    leases.join(&Announcement::default()).await.unwrap();

    // It comes before the copy: the copy is refused.
    node.import(set(), BTreeMap::new()).await.unwrap();
    assert!(matches!(target.write(Write::BeginCopy).await.unwrap(), WriteResult::NotEmpty));
    assert_eq!(node.pipelines().await.unwrap().len(), 1);
}

#[tokio::test]
async fn writes_of_a_copy_whose_answers_are_lost_are_repeated() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let target = super::silence::tables(&proxy);
    let letter = |name: &str| StoredLetter { first: 1, attempts: 1, key: key(name), content: name.to_owned().into() };
    let letters = vec![(2, letter("b")), (1, letter("a"))];
    let counter = LetterCounter { next: 3, count: 2, bytes: 200, evicted: 0 };
    let contents = Contents {
        pipelines: vec![pipeline("p1")],
        queues: BTreeMap::from([("p1".into(), counter)]),
        ..Contents::default()
    };
    // All of it is there after each round, or gone.
    for _ in 0..2 {
        for write in [
            Write::BeginCopy,
            Write::CopiedLetters { pipeline: "p1".into(), letters: letters.clone() },
            Write::Contents(Box::new(contents.clone())),
        ] {
            proxy.set(LOSES_COMMIT);
            target.write(write).await.unwrap();
            assert_eq!(proxy.mode(), OPEN, "no commit was lost");
        }
        let ReadResult::Contents(found) = target.read(Read::Contents).await.unwrap() else { panic!("other contents") };
        assert_eq!(*found, contents);
        assert_eq!(server.query("SELECT number FROM kv_dlq ORDER BY number"), ["1", "2"]);
        assert_eq!(server.query("SELECT count(*) FROM kv WHERE kind = 'copy'"), ["0"]);
        target.write(Write::AbandonCopy).await.unwrap();
        let ReadResult::Contents(found) = target.read(Read::Contents).await.unwrap() else { panic!("other contents") };
        assert!(found.is_empty());
        assert_eq!(server.query("SELECT number FROM kv_dlq"), [""; 0]);
    }
}

#[tokio::test]
async fn nothing_is_copied_from_a_store_without_contents() {
    let Some(database) = Database::create() else { return };
    let empty = Store::open(&anabranch_settings::Database::InMemory).unwrap();
    let target = open(database.url(), "kv").unwrap();
    assert!(matches!(empty.copy_into(&target, |_, _| {}).await, Err(CopyError::Nothing)));
    let other = PostgresDatabase { table: "other".to_owned(), ..settings(database.url()) };
    let opened = Store::own_existing(&anabranch_settings::Database::Postgres(other)).unwrap();
    assert!(opened.is_none());
    assert_eq!(database.query("SELECT to_regclass('other') IS NULL"), ["t"], "nothing was created");
}
