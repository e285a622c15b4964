//! Units of a pipeline: each has its own owner.

use anabranch_plugin::letter::LetterBounds;
use anabranch_record::Record;

use super::*;

fn unit(slot: u32) -> Unit {
    Unit { pipeline: "p1".into(), slot }
}

fn part(connector: &str, partition: &str) -> LaneId {
    LaneId { connector: connector.into(), partition: Partition(partition.into()) }
}

fn receipt(lane: &LaneId, seq: u64) -> Receipt {
    Receipt { destination: "out".into(), lane: lane.clone(), mark: mark(seq) }
}

#[tokio::test]
async fn units_of_a_pipeline_fence_only_themselves() {
    for database in TestDatabases::new().durable() {
        let store = Store::open(&database).unwrap();
        let (one, two) = (part("in", "1"), part("in", "2"));
        let first = store.claim(&unit(0)).await.unwrap();
        let zombie = store.claim(&unit(1)).await.unwrap();
        store.commit(&first, Commit::of(&[(one.clone(), mark(1))]).with_receipts(&[receipt(&one, 1)])).await.unwrap();
        store.commit(&zombie, Commit::of(&[(two.clone(), mark(2))])).await.unwrap();
        let second = store.claim(&unit(1)).await.unwrap();
        assert_eq!((first.number, zombie.number, second.number), (1, 1, 2));
        drop(store);

        let store = Store::open(&database).unwrap();
        let commits = [(&first, &one, 3), (&zombie, &two, 4), (&second, &two, 5)];
        let commits = commits.map(|(epoch, lane, seq)| {
            let store = &store;
            async move { store.commit(epoch, Commit::of(&[(lane.clone(), mark(seq))])).await }
        });
        let outcomes = futures::future::join_all(commits).await;
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        let fenced = outcomes[1].as_ref().unwrap_err();
        assert!(matches!(fenced, StoreError::Fenced { ours: 1, theirs: 2, .. }), "{fenced}");
        assert!(fenced.to_string().contains("p1 (slot 1)"), "{fenced}");
        assert_eq!(store.load(&first).await.unwrap(), [(one.clone(), mark(3))].into());
        assert_eq!(store.load(&second).await.unwrap(), [(two.clone(), mark(5))].into());
        assert_eq!(store.receipts(&first).await.unwrap(), [receipt(&one, 1)]);
        assert_eq!(store.receipts(&second).await.unwrap(), []);
        let all = store.positions(&"p1".into()).await.unwrap();
        assert_eq!(all, [(one, mark(3)), (two, mark(5))].into(), "a user sees the pipeline as one");
    }
}

#[tokio::test]
async fn a_lane_that_changed_its_unit_is_where_it_was_last() {
    for store in TestDatabases::new().stores() {
        for (slot, seq) in [(0, 5), (1, 9), (2, 7)] {
            let epoch = store.claim(&unit(slot)).await.unwrap();
            store.commit(&epoch, Commit::of(&[(lane("in"), mark(seq))])).await.unwrap();
        }
        assert_eq!(store.positions(&"p1".into()).await.unwrap(), [(lane("in"), mark(9))].into());
    }
}

#[tokio::test]
async fn marks_of_every_unit_go_with_their_connector() {
    for store in TestDatabases::new().stores() {
        let old = pipeline();
        store.provision(good(std::slice::from_ref(&old))).await.unwrap();
        for slot in [0, 3] {
            let epoch = store.claim(&unit(slot)).await.unwrap();
            let lane = part("in", &slot.to_string());
            store.commit(&epoch, Commit::of(&[(lane, mark(7))])).await.unwrap();
        }
        let known = store.positions(&"p1".into()).await.unwrap();
        let without = StoredPipeline { connectors: old.connectors[1..].to_vec(), ..old.clone() };
        store.replace(without).await.unwrap();
        assert_eq!(store.positions(&"p1".into()).await.unwrap(), BTreeMap::new());
        assert_eq!(store.detached_marks(&"p1".into()).await.unwrap(), known);
        store.replace(old).await.unwrap();
        assert_eq!(store.positions(&"p1".into()).await.unwrap(), known);
        let epoch = store.claim(&unit(3)).await.unwrap();
        assert_eq!(store.load(&epoch).await.unwrap(), [(part("in", "3"), mark(7))].into());
    }
}

#[tokio::test]
async fn the_positions_of_a_pipeline_are_changed_in_the_units_that_have_them() {
    for store in TestDatabases::new().stores() {
        let (one, two, new) = (part("in", "1"), part("in", "2"), part("in", "3"));
        let epochs = [store.claim(&unit(0)).await.unwrap(), store.claim(&unit(4)).await.unwrap()];
        for (epoch, lane) in epochs.iter().zip([&one, &two]) {
            let commit = [(lane.clone(), mark(5))];
            store.commit(epoch, Commit::of(&commit).with_receipts(&[receipt(lane, 5)])).await.unwrap();
        }
        let moved = [(one.clone(), mark(7)), (two.clone(), mark(8)), (new.clone(), mark(9))];
        let before = store.change_positions(&"p1".into(), |_| moved.to_vec()).await.unwrap();
        assert_eq!(before, [(one.clone(), mark(5)), (two.clone(), mark(5))].into());
        for epoch in &epochs {
            let fenced = store.commit(epoch, Commit::of(&moved)).await;
            assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
        }
        let (first, second) = (store.claim(&unit(0)).await.unwrap(), store.claim(&unit(4)).await.unwrap());
        assert_eq!(store.load(&first).await.unwrap(), [(one.clone(), mark(7)), (new, mark(9))].into());
        assert_eq!(store.load(&second).await.unwrap(), [(two.clone(), mark(8))].into());

        // A destination has marks of both, which must not become positions of a pipeline with the same id.
        store.delete(&"p1".into()).await.unwrap();
        let left = store.positions(&"p1".into()).await.unwrap();
        assert_eq!(left.keys().collect::<Vec<_>>(), [&one, &two]);
        assert!(left.values().all(|left| left.is_beginning() && left.generation > mark(8).generation), "{left:?}");
        let fenced = store.commit(&second, Commit::of(&moved)).await;
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    }
}

#[tokio::test]
async fn lanes_that_are_dropped_leave_no_mark_and_no_receipt() {
    for store in TestDatabases::new().stores() {
        let (ended, other) = (part("in", "ended"), part("in", "other"));
        let moves = [(ended.clone(), mark(1)), (other.clone(), mark(1))];
        let receipts = [receipt(&ended, 1), receipt(&other, 1)];
        let (epoch, sibling) = (store.claim(&unit(0)).await.unwrap(), store.claim(&unit(1)).await.unwrap());
        for epoch in [&epoch, &sibling] {
            store.commit(epoch, Commit::of(&moves).with_receipts(&receipts)).await.unwrap();
        }
        // Also what the same commit moves.
        let last = [(ended.clone(), mark(2)), (other.clone(), mark(2))];
        let drops = [ended.clone()];
        let commit = Commit::of(&last).with_receipts(&receipts).with_drops(&drops);
        let old = epoch;
        let epoch = store.claim(&unit(0)).await.unwrap();
        let fenced = store.commit(&old, commit).await;
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
        assert_eq!(store.load(&epoch).await.unwrap().len(), 2);
        // Several that may become one transaction.
        let again = [(ended.clone(), mark(3))];
        let grouped = futures::future::join_all([
            store.commit(&epoch, commit),
            store.commit(&sibling, Commit::of(&last)),
            store.commit(&epoch, Commit::default()),
        ]);
        assert!(grouped.await.iter().all(Result::is_ok));
        assert_eq!(store.load(&epoch).await.unwrap(), [(other.clone(), mark(2))].into());
        assert_eq!(store.receipts(&epoch).await.unwrap(), [receipt(&other, 1)]);
        assert_eq!(store.load(&sibling).await.unwrap().len(), 2);
        assert_eq!(store.receipts(&sibling).await.unwrap().len(), 2);
        store.commit(&epoch, Commit::of(&again)).await.unwrap();
        assert_eq!(store.load(&epoch).await.unwrap()[&ended], mark(3), "a lane that comes back");
    }
}

#[tokio::test]
async fn dead_letters_carry_their_unit_and_are_refused_from_an_earlier_owner() {
    for store in TestDatabases::new().stores() {
        let letter = |slot| Letter {
            name: format!("of {slot}").into(),
            at: std::time::SystemTime::now(),
            slot,
            lane: lane("in"),
            generation: 1,
            seq: 1,
            node: "x".into(),
            code: "bad".into(),
            message: "it is bad".into(),
            record: Record::at(Position::copy_from(b"1")),
            trace: None,
        };
        let epochs = [store.claim(&unit(0)).await.unwrap(), store.claim(&unit(7)).await.unwrap()];
        for epoch in &epochs {
            let kept = store.keep_letters(epoch, vec![letter(epoch.unit.slot)], &LetterBounds::NONE).await.unwrap();
            assert_eq!(kept.kept, 1);
        }
        store.claim(&unit(7)).await.unwrap();
        let fenced = store.keep_letters(&epochs[1], vec![letter(8)], &LetterBounds::NONE).await;
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
        store.keep_letters(&epochs[0], vec![letter(0)], &LetterBounds::NONE).await.unwrap();
        let found = store.letters_below(&"p1".into(), u64::MAX, 10).await.unwrap();
        let slots: Vec<(u64, u32)> =
            found.iter().map(|(number, letter)| (*number, form::decode(&letter.content).unwrap().slot)).collect();
        assert_eq!(slots, [(2, 7), (1, 0)], "one list of the pipeline");
    }
}
