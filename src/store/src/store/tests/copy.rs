//! Copies of everything to another store.

use anabranch_plugin::letter::{LetterBounds, WhenFull};

use super::*;
use crate::letters::{StoredLetter, key};
use crate::store::copy::{CopiedCounts, CopyError};

const BOUNDS: LetterBounds = LetterBounds { count: 4, bytes: 1 << 20, age: None, full: WhenFull::DropOldest };

fn unit(slot: u32) -> Unit {
    Unit { pipeline: "p1".into(), slot }
}

fn in_partition(partition: &str) -> LaneId {
    LaneId { connector: "in".into(), partition: Partition(partition.into()) }
}

fn receipt(lane: &LaneId, seq: u64) -> Receipt {
    Receipt { destination: "out".into(), lane: lane.clone(), mark: mark(seq) }
}

fn letter(name: &str) -> StoredLetter {
    StoredLetter { first: 7, attempts: 2, key: key(name), content: name.to_owned().into() }
}

fn text(letter: &StoredLetter) -> String {
    String::from_utf8_lossy(&letter.content).into_owned()
}

/// Fills a store with something of everything, in two units.
async fn filled(store: &Store) {
    store.provision(good(&[pipeline(), StoredPipeline { id: "p2".into(), ..pipeline() }])).await.unwrap();
    let (one, two, moved) = (in_partition("1"), in_partition("2"), in_partition("m"));
    let (first, second) = (store.claim(&unit(0)).await.unwrap(), store.claim(&unit(3)).await.unwrap());
    let marks = [(one.clone(), mark(1)), (moved.clone(), mark(4))];
    store.commit(&first, Commit::of(&marks).with_receipts(&[receipt(&one, 2)])).await.unwrap();
    let marks = [(two.clone(), mark(3)), (moved, mark(9))];
    store.commit(&second, Commit::of(&marks).with_receipts(&[receipt(&two, 4), receipt(&one, 1)])).await.unwrap();
    store.claim(&unit(3)).await.unwrap();
    // A source that is set aside.
    let epoch = store.claim(&Unit::whole("p2")).await.unwrap();
    store.commit(&epoch, Commit::of(&[(lane("in"), mark(5))])).await.unwrap();
    let without = StoredPipeline { id: "p2".into(), connectors: pipeline().connectors[1..].to_vec(), ..pipeline() };
    store.replace(without).await.unwrap();
    store.set_active(&"p1".into(), &"in".into(), Bytes::from_static(b"settings")).await.unwrap();
    let letters = ["z", "a", "b", "c", "d"].map(letter).to_vec();
    store.keep_stored(&"p1".into(), None, letters, &BOUNDS).await.unwrap();
    for (subject, text) in [("s", "\"int\""), ("s", "\"long\""), ("t", "\"int\""), ("u", "\"bytes\"")] {
        store.write(Write::Schema { subject: subject.into(), text: text.into() }).await.unwrap();
    }
    for (subject, how) in [("t", Deletion::Hidden), ("u", Deletion::Gone)] {
        let versions = vec![SchemaVersion::new(1).unwrap()];
        store.write(Write::DeleteSchemas { subject: subject.into(), versions, how }).await.unwrap();
    }
    for subject in [None, Some(Str::from("s"))] {
        store.write(Write::Level { subject, level: Some("FULL".into()) }).await.unwrap();
    }
}

#[tokio::test]
async fn a_copy_has_everything_in_whole_units_and_is_the_same_wherever_it_is() {
    let databases = TestDatabases::new();
    let mut copies = Vec::new();
    for from in databases.stores() {
        filled(&from).await;
        for to in databases.stores() {
            let mut progress = Vec::new();
            let counts = from.copy_into(&to, |copied, all| progress.push((copied, all))).await.unwrap();
            assert_eq!(counts, CopiedCounts { pipelines: 2, positions: 4, letters: 4, schemas: 3 });
            assert_eq!(progress, [(4, 4)]);
            assert_eq!(to.positions(&"p1".into()).await.unwrap(), from.positions(&"p1".into()).await.unwrap());
            let latest = to.claim(&unit(0)).await.unwrap();
            assert_eq!(latest.number, 3, "earlier runs of every unit are fenced");
            assert_eq!(to.load(&latest).await.unwrap().len(), 3, "the pipeline is one unit");
            assert_eq!(
                to.receipts(&latest).await.unwrap(),
                [receipt(&in_partition("1"), 2), receipt(&in_partition("2"), 4)]
            );
            assert_eq!(to.letter_totals(&"p1".into()).await.unwrap(), from.letter_totals(&"p1".into()).await.unwrap());
            // The next dead letter has the number that it would have there.
            to.keep_stored(&"p1".into(), None, vec![letter("e"), letter("d")], &BOUNDS).await.unwrap();
            let found = to.page(&"p1".into(), u64::MAX).await.unwrap();
            let found: Vec<_> = found.iter().map(|(number, letter)| (*number, text(letter))).collect();
            assert_eq!(found, [(6, "e".to_owned()), (5, "d".to_owned()), (4, "c".to_owned()), (3, "b".to_owned())]);
            let next = to.write(Write::Schema { subject: "u".into(), text: "\"null\"".into() }).await.unwrap();
            let WriteResult::Schema(next) = next else { panic!("{next:?}") };
            assert_eq!((next.id.get(), next.version.get()), (4, 2), "numbers of deleted schemas are not given again");
            let mut copy = to.contents().await.unwrap();
            // The stores were filled at different times.
            copy.pipelines.iter_mut().for_each(|pipeline| pipeline.updated = None);
            copies.push(copy);
            let again = from.copy_into(&to, |_, _| {}).await;
            assert!(matches!(again, Err(CopyError::NotEmpty)), "{again:?}");
        }
    }
    for copy in &copies[1..] {
        assert_eq!(*copy, copies[0]);
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn no_service_starts_with_a_copy_that_was_interrupted() {
    let databases = TestDatabases::new();
    let Some(database) = databases.durable().into_iter().nth(1) else { return };
    let store = Store::open(&database).unwrap();
    store.write(Write::BeginCopy).await.unwrap();
    drop(store);
    let Err(refused) = Store::open(&database) else { panic!("it was opened") };
    assert!(refused.to_string().contains("DROP TABLE"), "{refused}");
}

#[tokio::test]
async fn a_file_that_is_copied_to_has_its_name_when_it_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let (store, to) = (
        with_position(Store::open(&anabranch_settings::Database::InMemory).unwrap()).await,
        directory.path().join("b.db"),
    );
    let draft = Backup::begin(&to).unwrap();
    let copy = draft.create_store().unwrap();
    store.copy_into(&copy, |_, _| {}).await.unwrap();
    drop(copy);
    assert!(!to.exists());
    draft.finish().unwrap();
    assert_eq!(position(&Store::open(&embedded(&to)).unwrap()).await, Some(7));
}
