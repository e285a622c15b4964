//! The oldest release of Kafka that the connector supports.

use std::collections::BTreeMap;

use anabranch_plugin::destination::{Verdicts, Write};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Position, Record};
use serde_json::json;

use super::members::{Kind, Other, Said};
use super::server::old_broker;
use super::source::{Session, settings, source};
use super::{destination, host, open, record, values, write};

#[tokio::test]
async fn records_are_written_and_read_at_the_oldest_release() {
    let Some(broker) = old_broker() else { return };
    let (topic, group, address) = (broker.topic("old", 2, &json!({})), broker.name("group"), broker.address());
    let base = [("servers", &*address), ("topic", &*topic), ("sdk.record.format", "recfmt/raw")];
    let mut writer = open(&base).await;
    let rows: Vec<Record> = (0..20).map(|n| record(&format!("k{n}"), &n.to_string())).collect();
    assert!(write(&mut *writer, &rows).await.unwrap().iter().all(Option::is_none));

    let settings = settings(&address, &topic, &group);
    let mut session = Session::open(&*source(&settings), &BTreeMap::new()).await.unwrap();
    let mut read: Vec<u32> = session.drain().await.unwrap().iter().map(|value| value.parse().unwrap()).collect();
    read.sort_unstable();
    assert_eq!(read, (0..20).collect::<Vec<_>>());
    // Another client takes a part, and gives it back.
    let other = Other::join(broker, &topic, &group, Kind::Librdkafka("cooperative-sticky"));
    let mut said = Vec::new();
    while !said.iter().any(|said| matches!(said, Said::Assigned(partitions) if !partitions.is_empty())) {
        assert_eq!(session.pause().await, Vec::<String>::new());
        said.extend(other.said());
    }
    said.extend(other.leave());
    assert!(!said.iter().any(|said| matches!(said, Said::Read(..))), "everything was committed: {said:?}");
    let marks = session.end().await;
    let offsets = broker.judge("offsets", &json!({ "group": group }));
    let total: i64 = (0..2).filter_map(|n| offsets[format!("{topic}/{n}")].as_i64()).sum();
    assert_eq!(total, 20, "{offsets}");
    let mut session = Session::open(&*source(&settings), &marks).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), Vec::<String>::new());
    session.end().await;
}

#[tokio::test]
async fn rows_and_marks_are_written_in_one_transaction_at_the_oldest_release() {
    let Some(broker) = old_broker() else { return };
    let (topic, marks, address) = (broker.topic("exact", 1, &json!({})), broker.name("marks"), broker.address());
    let ours = destination(&[
        ("servers", &address),
        ("topic", &topic),
        ("exactlyOnce", "true"),
        ("exactlyOnce.topic", &marks),
        ("exactlyOnce.transactionalID", &marks),
        ("sdk.record.format", "recfmt/raw"),
    ]);
    let lane = LaneId { connector: "source".into(), partition: Partition("".into()) };
    let mark = |seq: u64| Mark { generation: 1, seq, position: Position::copy_from(format!("at {seq}").as_bytes()) };
    let mut first = ours.open(&host()).await.unwrap();
    assert_eq!(first.marks().await.unwrap(), []);
    let verdicts = first.write(Write::new(&[record("k", "a")]).marks(&[(lane.clone(), mark(1))])).await.unwrap();
    assert!(matches!(verdicts, Verdicts::All(_)), "{verdicts:?}");
    let mut second = ours.open(&host()).await.unwrap();
    assert_eq!(second.marks().await.unwrap(), [(lane.clone(), mark(1))]);
    let fault = first.write(Write::new(&[record("k", "late")]).marks(&[(lane.clone(), mark(2))])).await.unwrap_err();
    assert_eq!(fault.code().name(), "fenced", "{fault:?}");
    second.write(Write::new(&[record("k", "b")]).marks(&[(lane, mark(2))])).await.unwrap();
    assert_eq!(values(&broker.consume(&topic)), ["a", "b"]);
}
