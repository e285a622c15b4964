//! Rows and marks in one transaction.

use std::collections::BTreeMap;

use anabranch_plugin::destination::{Verdicts, Write};
use anabranch_plugin::testing::{check_destination, check_refusal, host};
use anabranch_record::fault::FaultClass;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Position, Record};
use serde_json::json;

use super::server::broker;
use super::{destination, record, values};

pub fn settings<'a>(address: &'a str, topic: &'a str, marks: &'a str) -> [(&'a str, &'a str); 6] {
    [
        ("servers", address),
        ("topic", topic),
        ("exactlyOnce", "true"),
        ("exactlyOnce.topic", marks),
        ("exactlyOnce.transactionalID", marks),
        ("sdk.record.format", "recfmt/raw"),
    ]
}

fn lane(partition: &str) -> LaneId {
    LaneId { connector: "source".into(), partition: Partition(partition.into()) }
}

fn mark(seq: u64) -> Mark {
    Mark { generation: 1, seq, position: Position::copy_from(format!("at {seq}").as_bytes()) }
}

#[tokio::test]
async fn the_promises_of_a_transactional_destination_are_kept() {
    let Some(broker) = broker() else { return };
    let rows: Vec<Record> = (0..6).map(|n| record("k", &format!("v{n}"))).collect();
    let names = std::sync::Mutex::new((String::new(), String::new()));
    let address = broker.address();
    let stored = check_destination(
        async || {
            *names.lock().unwrap() = (broker.topic("exact", 1, &json!({})), broker.name("marks"));
            let (topic, marks) = &*names.lock().unwrap();
            destination(&settings(&address, topic, marks))
        },
        async || values(&broker.consume(&names.lock().unwrap().0)),
        &rows,
    )
    .await
    .unwrap();
    assert_eq!(stored, ["v0", "v1", "v2", "v3", "v4", "v5"]);
}

#[tokio::test]
async fn a_row_that_is_too_large_is_refused_alone() {
    let Some(broker) = broker() else { return };
    let rows: Vec<Record> = (0..6).map(|n| record("k", &format!("v{n}"))).collect();
    let names = std::sync::Mutex::new((String::new(), String::new()));
    let address = broker.address();
    check_refusal(
        async || {
            let topic = broker.topic("refusing", 1, &json!({ "max.message.bytes": "2000" }));
            *names.lock().unwrap() = (topic, broker.name("marks"));
            let (topic, marks) = &*names.lock().unwrap();
            destination(&settings(&address, topic, marks))
        },
        async || values(&broker.consume(&names.lock().unwrap().0)),
        &rows,
        &record("k", &"x".repeat(5000)),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_refused_row_leaves_neither_rows_nor_marks() {
    let Some(broker) = broker() else { return };
    let (topic, marks) = (broker.topic("refused", 1, &json!({ "max.message.bytes": "2000" })), broker.name("marks"));
    let destination = destination(&settings(&broker.address(), &topic, &marks));
    let mut writer = destination.open(&host()).await.unwrap();
    assert_eq!(writer.marks().await.unwrap(), []);
    let rows = [record("k", "good"), record("k", &"x".repeat(5000))];
    let verdicts = writer.write(Write::new(&rows).marks(&[(lane(""), mark(2))])).await.unwrap();
    assert!(matches!(&verdicts, Verdicts::Refused(refused) if refused.len() == 1 && refused[0].0 == 1), "{verdicts:?}");
    let verdicts = writer.write(Write::new(&rows[..1]).marks(&[(lane(""), mark(2))])).await.unwrap();
    assert!(matches!(verdicts, Verdicts::All(_)), "{verdicts:?}");
    assert_eq!(values(&broker.consume(&topic)), ["good"]);
}

#[tokio::test]
async fn marks_are_read_back_removed_and_kept_apart() {
    let Some(broker) = broker() else { return };
    let (topic, marks, address) = (broker.topic("kept", 1, &json!({})), broker.name("marks"), broker.address());
    let ours = destination(&settings(&address, &topic, &marks));
    let mut other = settings(&address, &topic, &marks);
    let id = format!("{marks}-other");
    other[4].1 = &id;
    let others = destination(&other);
    let mut writer = ours.open(&host()).await.unwrap();
    let mut neighbour = others.open(&host()).await.unwrap();
    writer.marks().await.unwrap();
    neighbour.marks().await.unwrap();
    let row = [record("k", "v")];
    for seq in 1..4 {
        writer.write(Write::new(&row).marks(&[(lane("a"), mark(seq)), (lane("b"), mark(seq * 10))])).await.unwrap();
        neighbour.write(Write::new(&row).marks(&[(lane("a"), mark(seq * 100))])).await.unwrap();
    }
    assert!(writer.forget(&[lane("b")]).await.unwrap());
    let described = broker.judge("describe", &json!({ "topic": marks, "config": ["cleanup.policy"] }));
    assert_eq!(described, json!({ "partitions": 1, "config": { "cleanup.policy": "compact" } }));

    let read = |found: Vec<(LaneId, Mark)>| found.into_iter().collect::<BTreeMap<_, _>>();
    let mut next = ours.open(&host()).await.unwrap();
    assert_eq!(read(next.marks().await.unwrap()), BTreeMap::from([(lane("a"), mark(3))]));
    assert_eq!(read(neighbour.marks().await.unwrap()), BTreeMap::from([(lane("a"), mark(300))]));

    // The earlier writer is fenced: nothing of it is written, and the fault says why.
    let fault = writer.write(Write::new(&[record("k", "late")])).await.unwrap_err();
    assert_eq!(fault.code().name(), "fenced", "{fault:?}");
    next.write(Write::new(&[record("k", "next")]).marks(&[(lane("a"), mark(4))])).await.unwrap();
    let written = values(&broker.consume(&topic));
    assert!(!written.contains(&"late".to_owned()) && written.contains(&"next".to_owned()), "{written:?}");

    // It may ask again: that does not disturb the later run.
    for _ in 0..2 {
        let fault = writer.marks().await.unwrap_err();
        assert_eq!((fault.code().name(), fault.class()), ("fenced", FaultClass::Fatal), "{fault:?}");
    }
    next.write(Write::new(&[record("k", "undisturbed")]).marks(&[(lane("a"), mark(5))])).await.unwrap();
}

/// A coordinator that aborts a transaction after its time limit raises the epoch of the producer, as it does for a new
/// producer. Nobody has taken over: the run continues.
#[tokio::test]
async fn a_run_continues_if_the_coordinator_ended_its_transaction() {
    let Some(broker) = broker() else { return };
    let (topic, marks, address) = (broker.topic("ended", 1, &json!({})), broker.name("marks"), broker.address());
    let mut writer = destination(&settings(&address, &topic, &marks)).open(&host()).await.unwrap();
    writer.marks().await.unwrap();
    writer.write(Write::new(&[record("k", "1")]).marks(&[(lane(""), mark(1))])).await.unwrap();
    let message = json!({ "key": "YQ==", "value": "Yg==" });
    let other = broker.topic("other", 1, &json!({}));
    let given = json!({ "topic": other, "id": marks, "transaction": "commit", "messages": [message] });
    broker.judge("produce", &given);
    let rows = [record("k", "2")];
    let write = || Write::new(&rows);
    let fault = writer.write(write().marks(&[(lane(""), mark(2))])).await.unwrap_err();
    assert_eq!(fault.class(), FaultClass::Transient, "{fault:?}");
    assert_eq!(writer.marks().await.unwrap(), [(lane(""), mark(1))]);
    writer.write(write().marks(&[(lane(""), mark(2))])).await.unwrap();
    assert_eq!(values(&broker.consume(&topic)), ["1", "2"]);
}

#[tokio::test]
async fn an_open_transaction_of_another_producer_hides_no_mark() {
    let Some(broker) = broker() else { return };
    let (topic, marks, address) = (broker.topic("hidden", 1, &json!({})), broker.name("marks"), broker.address());
    let ours = destination(&settings(&address, &topic, &marks));
    let mut writer = ours.open(&host()).await.unwrap();
    writer.marks().await.unwrap();
    // Another pipeline's transaction was aborted in the topic of the marks, before and behind ours.
    let message = json!({ "key": "YQ==", "value": "Yg==" });
    let abort = json!({ "topic": marks, "transaction": "abort", "messages": [message] });
    broker.judge("produce", &abort);
    writer.write(Write::new(&[record("k", "v")]).marks(&[(lane(""), mark(7))])).await.unwrap();
    broker.judge("produce", &abort);
    let mut next = ours.open(&host()).await.unwrap();
    assert_eq!(next.marks().await.unwrap(), [(lane(""), mark(7))]);
}

#[tokio::test]
async fn a_topic_of_marks_that_forgets_is_refused() {
    let Some(broker) = broker() else { return };
    let (topic, marks) = (broker.topic("t", 1, &json!({})), broker.topic("marks", 1, &json!({})));
    let mut writer = destination(&settings(&broker.address(), &topic, &marks)).open(&host()).await.unwrap();
    let fault = writer.marks().await.unwrap_err();
    assert_eq!(fault.code().name(), "kafka.marks_topic_not_compacted", "{fault:?}");
    assert!(fault.message().contains("cleanup.policy=delete"), "{fault:?}");
}
