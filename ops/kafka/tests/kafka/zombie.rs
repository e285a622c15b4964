//! A process that is stopped for longer than its session, and continues.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::json;

use super::server::{Broker, broker};
use super::source::{Session, member, produce, source};

const PATIENCE: Duration = Duration::from_secs(60);

/// Time for which the process is stopped: its session ends after 6 seconds.
const STOPPED: Duration = Duration::from_secs(9);

fn committed(broker: &Broker, group: &str, topic: &str) -> Option<i64> {
    broker.judge("offsets", &json!({ "group": group }))[format!("{topic}/0")].as_i64()
}

/// One member reads and acknowledges a part, and is stopped before it commits. Another one takes over, reads and commits the
/// rest, and leaves or stays. The first continues: what it acknowledged before does not replace what the other committed,
/// also if it owns the partition again before its reader learns that the partition was lost.
async fn stopped(leaves: bool) {
    let Some(broker) = broker() else { return };
    let (topic, group) = (broker.topic("zombie", 1, &json!({})), broker.name("group"));
    let address = broker.address();
    let settings = member(&address, &topic, &group, "2s");
    let values: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    produce(broker, &topic, &values.iter().map(|value| (&**value, 0)).collect::<Vec<_>>());

    let (of_first, first) = (source(&settings), channel());
    let (resumed, other) = channel::<()>();
    let thread = std::thread::spawn(move || {
        // All tasks of this member run on this thread, so that they stop with it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let mut session = Session::open(&*of_first, &BTreeMap::new()).await.unwrap();
            let (partition, records) = session.rows(50).await;
            let half: Vec<_> = records[..50].iter().map(|record| record.position().clone()).collect();
            session.settle(&partition, &half).await.unwrap();
            first.0.send(()).unwrap();
            let begun = Instant::now();
            other.recv().unwrap();
            std::thread::sleep(STOPPED.saturating_sub(begun.elapsed()));
            // The process continues, and its pipeline is busy for a time: nobody asks for changes, but commits are sent.
            tokio::time::sleep(Duration::from_secs(5)).await;
            let (mut read, begun) = (Vec::new(), Instant::now());
            while !session.events.iter().any(|event| event.starts_with("lost"))
                || begun.elapsed() < Duration::from_secs(4)
            {
                read.extend(session.pause().await);
                assert!(begun.elapsed() < PATIENCE, "{:?}", session.events);
            }
            let events = session.events.clone();
            session.end().await;
            (read, events)
        })
    });
    first.1.recv_timeout(PATIENCE).unwrap();
    assert_eq!(committed(broker, &group, &topic), None);
    let mut second = Session::open(&*source(&settings), &BTreeMap::new()).await.unwrap();
    let begun = Instant::now();
    let mut read = Vec::new();
    while read.len() < 100 {
        read.extend(second.drain().await.unwrap());
        assert!(begun.elapsed() < PATIENCE, "{read:?}");
    }
    assert_eq!(read, values, "nothing was committed");
    let mut second = Some(second);
    if leaves {
        second.take().unwrap().end().await;
        assert_eq!(committed(broker, &group, &topic), Some(100));
    }
    resumed.send(()).unwrap();
    let begun = Instant::now();
    while !thread.is_finished() {
        if let Some(second) = &mut second {
            assert_eq!(second.pause().await, Vec::<String>::new());
        }
        let offset = committed(broker, &group, &topic);
        assert!(offset.is_none_or(|offset| offset == 100), "the commit of the stopped member was taken: {offset:?}");
        assert!(begun.elapsed() < 2 * PATIENCE, "the stopped member does not continue");
    }
    let (read, events) = thread.join().unwrap();
    let lost = format!("lost {topic}/0");
    assert!(events.contains(&lost), "{events:?}");
    if leaves {
        assert_eq!(events.last(), Some(&format!("assigned {topic}/0")), "{events:?}");
    }
    assert_eq!(read, Vec::<String>::new(), "what the other read and committed");
    if let Some(second) = second {
        second.end().await;
    }
    assert_eq!(committed(broker, &group, &topic), Some(100));
}

#[tokio::test]
async fn a_stopped_member_does_not_undo_the_commits_of_its_successor() {
    stopped(false).await;
}

#[tokio::test]
async fn a_stopped_member_that_owns_the_partition_again_does_not_undo_the_commits_of_others() {
    stopped(true).await;
}
