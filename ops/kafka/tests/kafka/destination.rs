//! Writing at least once: messages, topics, refusals.

use anabranch_plugin::testing::check_destination;
use anabranch_record::fault::FaultClass;
use anabranch_record::{Data, Operation, Record};
use serde_json::json;

use super::server::broker;
use super::{configure, destination, open, record, text, values, write};

const RAW: (&str, &str) = ("sdk.record.format", "recfmt/raw");

#[tokio::test]
async fn the_promises_of_a_destination_are_kept() {
    let Some(broker) = broker() else { return };
    let rows: Vec<Record> = (0..40).map(|n| record(&format!("k{}", n % 5), &format!("v{n}"))).collect();
    let topic = std::sync::Mutex::new(String::new());
    let address = broker.address();
    let stored = check_destination(
        async || {
            *topic.lock().unwrap() = broker.topic("promises", 1, &json!({}));
            destination(&[("servers", &address), ("topic", &topic.lock().unwrap()), RAW])
        },
        async || values(&broker.consume(&topic.lock().unwrap())),
        &rows,
    )
    .await
    .unwrap();
    assert_eq!(stored, (0..40).map(|n| format!("v{n}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_record_becomes_a_message_as_in_the_reference_service() {
    let Some(broker) = broker() else { return };
    let topic = broker.name("made");
    let mut writer = open(&[("servers", &broker.address())]).await;
    let mut first = record("key", "value");
    first.set_collection(topic.as_str());
    let faults = write(&mut *writer, std::slice::from_ref(&first)).await.unwrap();
    assert!(faults[0].is_none(), "{faults:?}");
    let messages = broker.consume(&topic);
    let value: serde_json::Value = serde_json::from_str(&text(&messages[0], "value").unwrap()).unwrap();
    assert_eq!((text(&messages[0], "key").unwrap().as_str(), value["operation"].as_str()), ("key", Some("create")));
    assert_eq!(value["payload"]["after"], "dmFsdWU=");

    // No collection: only this record fails.
    let faults = write(&mut *writer, &[record("a", "b"), first]).await.unwrap();
    assert_eq!(faults[0].as_ref().map(anabranch_record::fault::Fault::class), Some(FaultClass::Record), "{faults:?}");
    assert!(faults[1].is_none());
    assert_eq!(broker.consume(&topic).len(), 2);
}

#[tokio::test]
async fn keys_partitions_timestamps_headers_and_tombstones_are_written() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("parts", 3, &json!({}));
    let mut writer = open(&[
        ("servers", &broker.address()),
        ("topic", &topic),
        ("key", "{{ index .Metadata \"k\" }}"),
        ("partition", "{{ index .Metadata \"p\" }}"),
        ("timestamp", "{{ index .Metadata \"t\" }}"),
        ("deletes", "tombstone"),
        RAW,
    ])
    .await;
    let mut row = record("ignored", "v");
    for (name, value) in [("k", "key"), ("p", "2"), ("t", "2026-11-24T00:00:00.5Z"), ("kafka.header.h", "x")] {
        row.metadata.insert(name, value);
    }
    let mut deleted = row.clone();
    deleted.operation = Operation::Delete;
    deleted.payload.after = Data::Absent;
    deleted.metadata.insert("kafka.headers", r#"[["a","1"],["a",null],["b",{"base64":"/w=="}]]"#);
    let mut wrong = row.clone();
    wrong.metadata.insert("p", "minus one");
    let faults = write(&mut *writer, &[row, wrong, deleted]).await.unwrap();
    assert!(faults[0].is_none() && faults[2].is_none(), "{faults:?}");
    assert!(faults[1].as_ref().unwrap().message().contains("number of a partition"), "{faults:?}");
    let messages = broker.consume(&topic);
    let expected = json!([
        { "partition": 2, "offset": 0, "timestamp": 1_795_478_400_500_i64, "key": "a2V5", "value": "dg==",
          "headers": [["h", "eA=="]] },
        { "partition": 2, "offset": 1, "timestamp": 1_795_478_400_500_i64, "key": "a2V5", "value": null,
          "headers": [["a", "MQ=="], ["a", null], ["b", "/w=="], ["h", "eA=="]] },
    ]);
    assert_eq!(serde_json::Value::from(messages), expected);
}

#[tokio::test]
async fn every_compression_is_read_by_others() {
    let Some(broker) = broker() else { return };
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = broker.topic(compression, 1, &json!({}));
        let settings = [("servers", &*broker.address()), ("topic", &topic), ("compression", compression), RAW];
        let mut writer = open(&settings).await;
        let rows: Vec<Record> = (0..500).map(|n| record("k", &format!("{n} of the same text"))).collect();
        assert!(write(&mut *writer, &rows).await.unwrap().iter().all(Option::is_none));
        let expected: Vec<String> = (0..500).map(|n| format!("{n} of the same text")).collect();
        assert_eq!(values(&broker.consume(&topic)), expected, "{compression}");
    }
}

/// A batch that is too large for the topic would take its neighbours with it.
#[tokio::test]
async fn only_a_record_that_is_too_large_fails() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("large", 1, &json!({ "max.message.bytes": "3000" }));
    let mut writer = open(&[("servers", &broker.address()), ("topic", &topic), ("compression", "none"), RAW]).await;
    let rows: Vec<Record> =
        (0..50).map(|n| record("k", &format!("{n:0width$}", width = if n == 20 { 5000 } else { 500 }))).collect();
    let faults = write(&mut *writer, &rows).await.unwrap();
    let failed: Vec<usize> = faults.iter().enumerate().filter(|(_, fault)| fault.is_some()).map(|(n, _)| n).collect();
    assert_eq!(failed, [20]);
    let fault = faults[20].as_ref().unwrap();
    assert!(fault.code().name() == "record_too_large" && fault.message().contains("max.message.bytes"), "{fault:?}");
    let written: Vec<usize> = values(&broker.consume(&topic)).iter().map(|value| value.parse().unwrap()).collect();
    assert_eq!(written, (0..50).filter(|n| *n != 20).collect::<Vec<_>>());
}

#[tokio::test]
async fn missing_topics_are_created_as_set_or_named() {
    let Some(broker) = broker() else { return };
    let (topic, address) = (broker.name("created"), broker.address());
    let settings = [
        ("servers", &*address),
        ("topic", &topic),
        ("createTopics.partitions", "5"),
        ("createTopics.replicas", "1"),
        ("createTopics.config.retention.ms", "86400000"),
    ];
    open(&settings).await;
    let described = broker.judge("describe", &json!({ "topic": topic, "config": ["retention.ms"] }));
    assert_eq!(described, json!({ "partitions": 5, "config": { "retention.ms": "86400000" } }));

    let absent = broker.name("absent");
    let settings = [("servers", &*address), ("topic", &absent), ("createTopics", "false")];
    let fault = destination(&settings).open(&super::host()).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "kafka.topic_missing"));
    assert!(fault.message().contains(&absent), "{fault:?}");
    // With a topic of its own for each record, another one may exist.
    let settings = [("servers", &*address), ("createTopics", "false"), RAW];
    let mut writer = open(&settings).await;
    let rows = [&absent, &topic].map(|topic| {
        let mut row = record("k", "v");
        row.set_collection(topic.as_str());
        row
    });
    let faults = write(&mut *writer, &rows).await.unwrap();
    assert_eq!(faults[0].as_ref().map(anabranch_record::fault::Fault::class), Some(FaultClass::Record), "{faults:?}");
    assert!(faults[1].is_none(), "{faults:?}");
}

#[tokio::test]
async fn a_topic_that_was_deleted_is_retried() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("deleted", 1, &json!({}));
    let settings = [("servers", &*broker.address()), ("topic", &topic), ("deliveryTimeout", "31s"), RAW];
    let mut writer = open(&settings).await;
    write(&mut *writer, &[record("k", "before")]).await.unwrap();
    broker.judge("delete", &json!({ "topic": topic }));
    // The executor repeats a write with a transient fault.
    let mut tries = 0;
    loop {
        match write(&mut *writer, &[record("k", "after")]).await {
            Ok(faults) => break assert!(faults[0].is_none(), "{faults:?}"),
            Err(fault) => assert_eq!(fault.class(), FaultClass::Transient, "{fault:?}"),
        }
        tries += 1;
        assert!(tries < 100, "the topic is not created again");
    }
    assert_eq!(values(&broker.consume(&topic)), ["after"]);
}

#[tokio::test]
async fn no_server_is_a_transient_fault_that_names_the_servers() {
    let fault = destination(&[("servers", "127.0.0.1:1"), ("topic", "t")]).open(&super::host()).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "kafka.unavailable"));
    assert!(fault.message().contains("127.0.0.1:1"), "{fault:?}");
}

#[tokio::test]
async fn an_examination_finds_what_endangers_records() {
    let Some(broker) = broker() else { return };
    let (topic, absent, address) = (broker.topic("examined", 1, &json!({})), broker.name("absent"), broker.address());
    let examined =
        |topic: &str, create: &str| destination(&[("servers", &*address), ("topic", topic), ("createTopics", create)]);
    let warnings = examined(&topic, "true").examine().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("one replica"), "{warnings:?}");
    let warnings = examined(&absent, "true").examine().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("creates it"), "{warnings:?}");
    let fault = examined(&absent, "false").examine().await.unwrap_err();
    assert_eq!(fault.code().name(), "kafka.topic_missing");
    assert!(destination(&[("servers", "127.0.0.1:1"), ("topic", "t")]).examine().await.is_err());
}

#[test]
fn settings_that_contradict_each_other_are_found() {
    let wrong = |settings: &[(&str, &str)], expected: &str| {
        let usual = [("servers", "a:1"), ("topic", "t")];
        let kept = usual.into_iter().filter(|(name, _)| settings.iter().all(|(given, _)| given != name));
        let findings = configure(&kept.chain(settings.iter().copied()).collect::<Vec<_>>()).err().unwrap_or_default();
        assert!(findings.iter().any(|finding| finding.contains(expected)), "{settings:?}: {findings:?}");
    };
    wrong(&[("topic", "a b")], "letters, digits");
    wrong(&[("servers", "kafka://a:1")], "scheme");
    wrong(&[("acks", "one"), ("exactlyOnce", "true")], "exactlyOnce needs all");
    wrong(&[("saslUsername", "a")], "saslPassword");
    wrong(&[("saslUsername", "a"), ("saslPassword", "b")], "saslMechanism");
    wrong(&[("saslMechanism", "PLAIN"), ("saslUsername", "a")], "saslPassword");
    wrong(&[("saslMechanism", "OAUTHBEARER")], "oauth.tokenURL");
    wrong(&[("oauth.tokenURL", "http://a/token")], "https://");
    wrong(&[("tls.enabled", "true"), ("clientCert", "c.pem")], "clientKey");
    wrong(&[("exactlyOnce.topic", "a/b")], "letters, digits");
}
