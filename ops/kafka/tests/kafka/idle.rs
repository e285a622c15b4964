//! Partitions without records, beside others that have many.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::server::broker;
use super::source::{Session, source};

/// A broker holds back a request for half a second while its partitions have no records. If each fetch of a partition waited
/// for that, the records would take more than a minute.
#[tokio::test]
async fn an_idle_partition_does_not_delay_the_others() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("idle", 4, &json!({}));
    let count = 100_000;
    broker.judge("bulk", &json!({ "topic": topic, "count": count, "partitions": 3 }));
    let address = broker.address();
    let settings = [
        ("servers", &*address),
        ("topics", &*topic),
        ("readFromBeginning", "true"),
        ("fetchBytes", "64KiB"),
        ("partitionFetchBytes", "16KiB"),
    ];
    let mut session = Session::open(&*source(&settings), &BTreeMap::new()).await.unwrap();
    let mut begun = None;
    let mut read = BTreeMap::new();
    let mut number = 0;
    while number < count {
        let Some((partition, records)) = session.next().await.unwrap() else { continue };
        begun.get_or_insert_with(Instant::now);
        number += records.len();
        *read.entry(partition.0.to_string()).or_insert(0) += records.len();
        let positions: Vec<_> = records.iter().map(|record| record.position().clone()).collect();
        session.settle(&partition, &positions).await.unwrap();
    }
    let taken = begun.unwrap().elapsed();
    assert_eq!(read.len(), 3, "{read:?}");
    assert!(taken < Duration::from_secs(25), "{taken:?}");
    session.end().await;
}
