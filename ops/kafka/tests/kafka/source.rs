//! Reading: records, positions, offsets of the group, gaps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::registry::Registry;
use anabranch_plugin::source::{OpenedSource, Read, Release, Room, Source, Start};
use anabranch_plugin::testing::{check_source, configured, host};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Operation, Position, Record};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::server::{Broker, broker};

/// Longest time of a read.
const PATIENCE: Duration = Duration::from_secs(60);
const ROOM: Room = Room { rows: 1000, bytes: 1 << 20 };

pub fn configure(settings: &[(&str, &str)]) -> Result<Arc<dyn Source>, Vec<String>> {
    let mut registry = Registry::new();
    anabranch_ops_kafka::register(&mut registry);
    configured::source(registry.source("kafka").unwrap(), settings)
}

pub fn source(settings: &[(&str, &str)]) -> Arc<dyn Source> {
    configure(settings).unwrap()
}

/// A source that is read as the engine does, one partition after the other.
pub struct Session {
    opened: OpenedSource,
    /// Marks of the engine.
    pub marks: BTreeMap<Partition, Mark>,
    pub starts: BTreeMap<Partition, Start>,
    pub events: Vec<String>,
}

impl Session {
    pub async fn open(source: &dyn Source, marks: &BTreeMap<Partition, Mark>) -> Result<Session, Fault> {
        let resume: BTreeMap<_, _> = marks.clone();
        let opened = source.open(&resume, &host()).await?;
        Ok(Session { opened, marks: resume, starts: BTreeMap::new(), events: Vec::new() })
    }

    /// Returns the next rows; `None` at the end of what exists. Handles changes of the partitions.
    pub async fn next(&mut self) -> Result<Option<(Partition, Vec<Record>)>, Fault> {
        Ok(self.next_within(PATIENCE).await?.expect("a read hangs"))
    }

    /// Returns at least a number of rows, all of one partition, also if a broker sends them in parts.
    pub async fn rows(&mut self, count: usize) -> (Partition, Vec<Record>) {
        let (partition, mut rows) = self.next().await.unwrap().unwrap();
        while rows.len() < count {
            let (of, more) = self.next().await.unwrap().unwrap();
            assert_eq!(of, partition);
            rows.extend(more);
        }
        (partition, rows)
    }

    /// Like [`Session::next`]; `None` if nothing happens within a time.
    pub async fn next_within(&mut self, time: Duration) -> Result<Option<Option<(Partition, Vec<Record>)>>, Fault> {
        loop {
            let Ok(read) = tokio::time::timeout(time, self.opened.reader.read(ROOM)).await else { return Ok(None) };
            match read? {
                Read::Rows { partition, records } => return Ok(Some(Some((partition, records)))),
                Read::CaughtUp => return Ok(Some(None)),
                Read::Progress(partition, position) => self.settle(&partition, &[position]).await?,
                Read::Assigned(partition) => {
                    let mark = self.marks.get(&partition).cloned();
                    let start = self.opened.reader.go_on(&partition, mark.as_ref()).await?;
                    if let Some(position) = start.position() {
                        let mark = Mark { generation: 1, seq: 0, position: position.clone() };
                        self.marks.insert(partition.clone(), mark);
                    }
                    self.events.push(format!("assigned {}", partition.0));
                    self.starts.insert(partition, start);
                }
                Read::Revoked { partition, .. } => {
                    self.events.push(format!("revoked {}", partition.0));
                    self.opened.acker.released(&partition, Release::Drained).await?;
                }
                Read::Lost(partition) => {
                    self.events.push(format!("lost {}", partition.0));
                    self.opened.acker.released(&partition, Release::Abandoned).await?;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Stores and acknowledges positions.
    pub async fn settle(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let Some(last) = positions.last() else { return Ok(()) };
        let seq = self.marks.get(partition).map_or(0, |mark| mark.seq) + positions.len() as u64;
        self.marks.insert(partition.clone(), Mark { generation: 1, seq, position: last.clone() });
        self.opened.acker.ack(partition, positions).await
    }

    /// Reads and settles everything that exists, and returns the values.
    pub async fn drain(&mut self) -> Result<Vec<String>, Fault> {
        let mut values = Vec::new();
        while let Some((partition, records)) = self.next().await? {
            let positions: Vec<_> = records.iter().map(|record| record.position().clone()).collect();
            self.settle(&partition, &positions).await?;
            values.extend(records.iter().map(value));
        }
        Ok(values)
    }

    /// Reads and settles what arrives, until nothing does for a moment.
    pub async fn pause(&mut self) -> Vec<String> {
        let mut values = Vec::new();
        while let Some(next) = self.next_within(Duration::from_millis(200)).await.unwrap() {
            let Some((partition, records)) = next else { continue };
            let positions: Vec<_> = records.iter().map(|record| record.position().clone()).collect();
            self.settle(&partition, &positions).await.unwrap();
            values.extend(records.iter().map(value));
        }
        values
    }

    pub async fn end(mut self) -> BTreeMap<Partition, Mark> {
        self.opened.reader.stop().await.unwrap();
        self.opened.acker.close().await.unwrap();
        self.marks
    }
}

pub fn value(record: &Record) -> String {
    let raw = record.payload.after.raw().map(|bytes| bytes.to_vec());
    raw.map_or_else(|| "null".to_owned(), |bytes| String::from_utf8(bytes).unwrap())
}

/// Produces values, each to the partition with its number.
pub fn produce(broker: &Broker, topic: &str, values: &[(&str, u32)]) {
    let message = |(value, partition): &(&str, u32)| json!({ "value": STANDARD.encode(value), "partition": partition });
    let messages: Vec<Value> = values.iter().map(message).collect();
    broker.judge("produce", &json!({ "topic": topic, "messages": messages }));
}

pub fn settings<'a>(address: &'a str, topic: &'a str, group: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![("servers", address), ("topics", topic), ("groupID", group), ("readFromBeginning", "true")]
}

/// Settings of a member whose session ends soon, and that commits within a time.
pub fn member<'a>(address: &'a str, topic: &'a str, group: &'a str, commit: &'a str) -> Vec<(&'a str, &'a str)> {
    [settings(address, topic, group), vec![("sessionTimeout", "6s"), ("commitOffsetsDelay", commit)]].concat()
}

// A member that is dropped leaves the group while the judge waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_promises_of_a_source_are_kept() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("read", 1, &json!({}));
    let messages: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    produce(broker, &topic, &messages.iter().map(|value| (value.as_str(), 0)).collect::<Vec<_>>());
    let (address, group) = (broker.address(), broker.name("group"));
    let records = check_source(async || {
        broker.judge("delete_group", &json!({ "group": group }));
        // Positions contain a random id, and the check compares positions.
        fastrand::seed(7);
        source(&settings(&address, &topic, &group))
    })
    .await
    .unwrap();
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), messages);
}

#[tokio::test]
async fn a_message_becomes_a_record_as_in_the_reference_service() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("made", 1, &json!({}));
    let messages = json!([
        { "key": "a2V5", "value": "/wA=", "timestamp": 1000, "headers": [["h", "eA=="]] },
        { "key": "a2V5", "timestamp": 2000, "headers": [["a", "MQ=="], ["a", "/w=="], ["b", null]] },
    ]);
    broker.judge("produce", &json!({ "topic": topic, "messages": messages }));
    let source = source(&settings(&broker.address(), &topic, &broker.name("group")));
    let mut session = Session::open(&*source, &BTreeMap::new()).await.unwrap();
    let (partition, records) = session.rows(2).await;
    assert_eq!(partition.0.as_str(), format!("{topic}/0"));
    let [first, second] = &records[..] else { panic!("{records:?}") };
    assert_eq!((first.operation, first.key.raw().unwrap().as_ref()), (Operation::Create, b"key".as_ref()));
    assert_eq!(first.payload.after.raw().unwrap().as_ref(), [0xff, 0]);
    let metadata = |record: &Record, key: &str| record.metadata.get(key).map(ToString::to_string);
    assert_eq!(metadata(first, "recfmt.collection").as_deref(), Some(topic.as_str()));
    assert_eq!(metadata(first, "recfmt.createdAt").as_deref(), Some("1000000000"));
    assert_eq!(metadata(first, "kafka.header.h").as_deref(), Some("x"));
    assert_eq!(metadata(first, "kafka.headers"), None);
    assert_eq!((second.operation, second.payload.after.raw()), (Operation::Delete, None));
    let listed: Value = serde_json::from_str(&metadata(second, "kafka.headers").unwrap()).unwrap();
    assert_eq!(listed, json!([["a", "1"], ["a", { "base64": "/w==" }], ["b", null]]));
    assert_eq!(source.locate(&Partition::ONLY, second.position()), Some(format!("{topic}/0@1")));
    session.end().await;
}

#[tokio::test]
async fn offsets_of_the_group_are_those_that_were_acknowledged() {
    let Some(broker) = broker() else { return };
    let (topic, group) = (broker.topic("committed", 2, &json!({})), broker.name("group"));
    produce(broker, &topic, &[("a", 0), ("b", 0), ("c", 1)]);
    let source = source(&settings(&broker.address(), &topic, &group));
    let mut session = Session::open(&*source, &BTreeMap::new()).await.unwrap();
    let mut values = session.drain().await.unwrap();
    values.sort();
    assert_eq!(values, ["a", "b", "c"]);
    let marks = session.end().await;
    let offsets = broker.judge("offsets", &json!({ "group": group }));
    assert_eq!(offsets, json!({ format!("{topic}/0"): 2, format!("{topic}/1"): 1 }));

    // A restart continues after the marks, and what arrived meanwhile is read once.
    produce(broker, &topic, &[("d", 1)]);
    let mut session = Session::open(&*source, &marks).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), ["d"]);
    assert!(session.starts.values().all(|start| !start.is_elsewhere() && start.is_exact(source.replay())));
    let marks = session.end().await;

    // An operator resets the group: that wins, and a new generation begins.
    broker.judge("reset", &json!({ "group": group, "topic": topic, "partition": 0, "offset": 1 }));
    let mut session = Session::open(&*source, &marks).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), ["b"]);
    let partition = |n: u32| Partition(format!("{topic}/{n}").into());
    assert!(session.starts[&partition(0)].is_elsewhere() && !session.starts[&partition(1)].is_elsewhere());
    let mut marks = session.end().await;

    // A user resets a partition in Anabranch: it starts at its first record, whatever the group says.
    marks.insert(partition(0), Mark::beginning(5));
    let mut session = Session::open(&*source, &marks).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), ["a", "b"]);
    session.end().await;

    // Without positions, the offsets of the group count.
    let mut session = Session::open(&*source, &BTreeMap::new()).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), Vec::<String>::new());
    session.end().await;
}

#[tokio::test]
async fn positions_of_the_reference_service_are_taken_over() {
    let Some(broker) = broker() else { return };
    let (topic, group) = (broker.topic("taken", 1, &json!({})), broker.name("group"));
    produce(broker, &topic, &[("a", 0), ("b", 0), ("c", 0)]);
    broker.judge("reset", &json!({ "group": group, "topic": topic, "offset": 1 }));
    let text = json!({ "GroupID": group, "Topic": topic, "Partition": 0, "Offset": 0 }).to_string();
    let mark = Mark { generation: 1, seq: 1, position: Position::copy_from(text.as_bytes()) };
    // The reference service has one position for all partitions.
    let marks = BTreeMap::from([(Partition::ONLY, mark)]);
    let address = broker.address();
    let unnamed = [("servers", &*address), ("topics", &*topic), ("readFromBeginning", "true")];
    let mut session = Session::open(&*source(&unnamed), &marks).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), ["b", "c"]);
    session.end().await;
    let other = source(&settings(&address, &topic, "another"));
    let fault = Session::open(&*other, &marks).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "kafka.position_of_another_group"));
}

#[tokio::test]
async fn reading_begins_where_the_settings_say() {
    let Some(broker) = broker() else { return };
    let (topic, address) = (broker.topic("begin", 1, &json!({})), broker.address());
    let message = |value: &str, timestamp: i64| json!({ "value": STANDARD.encode(value), "timestamp": timestamp });
    let messages = [message("a", 1000), message("b", 2000), message("c", 3000)];
    broker.judge("produce", &json!({ "topic": topic, "messages": messages }));
    for (more, expected) in [
        (vec![("readFromBeginning", "true")], vec!["a", "b", "c"]),
        (vec![("readFromTime", "1970-01-01T00:00:02Z")], vec!["b", "c"]),
        // No record is that late yet.
        (vec![("readFromTime", "2100-01-01T00:00:00Z")], vec![]),
        (vec![], vec![]),
    ] {
        let base = [("servers", &*address), ("topics", &*topic)];
        let source = source(&[&base[..], &more].concat());
        let mut session = Session::open(&*source, &BTreeMap::new()).await.unwrap();
        assert_eq!(session.drain().await.unwrap(), expected, "{more:?}");
        session.end().await;
    }
}

#[tokio::test]
async fn records_of_aborted_transactions_are_read_only_on_request() {
    let Some(broker) = broker() else { return };
    let (topic, address) = (broker.topic("aborted", 1, &json!({})), broker.address());
    let message = |value: &str| json!([{ "value": STANDARD.encode(value) }]);
    for (value, end) in [("good", "commit"), ("bad", "abort"), ("last", "commit")] {
        let id = broker.name("transaction");
        broker.judge("produce", &json!({ "topic": topic, "messages": message(value), "transaction": end, "id": id }));
    }
    for (isolation, expected) in
        [("read_committed", vec!["good", "last"]), ("read_uncommitted", vec!["good", "bad", "last"])]
    {
        let group = broker.name("group");
        let source = source(&[&settings(&address, &topic, &group)[..], &[("isolationLevel", isolation)]].concat());
        let mut session = Session::open(&*source, &BTreeMap::new()).await.unwrap();
        assert_eq!(session.drain().await.unwrap(), expected, "{isolation}");
        session.end().await;
        // The markers of the transactions are passed too, so that the tools show no lag.
        let offsets = broker.judge("offsets", &json!({ "group": group }));
        assert_eq!(offsets[format!("{topic}/0")], 6, "{isolation}");
    }
}

#[tokio::test]
async fn missing_records_stop_the_source_or_are_counted() {
    let Some(broker) = broker() else { return };
    let (topic, group, address) = (broker.topic("gap", 1, &json!({})), broker.name("group"), broker.address());
    produce(broker, &topic, &[("a", 0), ("b", 0), ("c", 0), ("d", 0)]);
    let failing = source(&settings(&address, &topic, &group));
    let mut session = Session::open(&*failing, &BTreeMap::new()).await.unwrap();
    let (partition, records) = session.next().await.unwrap().unwrap();
    session.settle(&partition, &[records[0].position().clone()]).await.unwrap();
    let marks = session.end().await;
    broker.judge("delete_records", &json!({ "topic": topic, "before": 3 }));
    let mut session = Session::open(&*failing, &marks).await.unwrap();
    let fault = session.drain().await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "kafka.gap"), "{fault:?}");
    assert!(fault.message().contains("offset 1") && fault.message().contains("onGap"), "{fault:?}");
    session.end().await;

    let continuing = source(&[&settings(&address, &topic, &group)[..], &[("onGap", "continue")]].concat());
    let mut session = Session::open(&*continuing, &marks).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), ["d"]);
    assert!(session.starts[&partition].is_elsewhere());
    assert_eq!(session.opened.reader.backlog().await.unwrap().missed, 2);
    let marks = session.end().await;

    // The topic is created again, with as many records.
    broker.judge("delete", &json!({ "topic": topic }));
    let mut tries = 0;
    while broker.judge("describe", &json!({ "topic": topic })) != Value::Null {
        tries += 1;
        assert!(tries < 100, "the topic is not deleted");
    }
    broker.judge("create", &json!({ "topic": topic }));
    produce(broker, &topic, &[("1", 0), ("2", 0), ("3", 0), ("4", 0), ("5", 0)]);
    let mut session = Session::open(&*failing, &marks).await.unwrap();
    let fault = session.drain().await.unwrap_err();
    assert_eq!(fault.code().name(), "kafka.gap", "{fault:?}");
    assert!(fault.message().contains("created again"), "{fault:?}");
    session.end().await;
}

#[tokio::test]
async fn new_partitions_and_topics_are_taken_up_while_reading() {
    let Some(broker) = broker() else { return };
    let (prefix, address) = (broker.name("live"), broker.address());
    let first = format!("{prefix}-a");
    broker.judge("create", &json!({ "topic": first }));
    produce(broker, &first, &[("a", 0)]);
    let pattern = format!("{prefix}-.*");
    let source = source(&[("servers", &*address), ("topicPattern", &*pattern), ("readFromBeginning", "true")]);
    let mut session = Session::open(&*source, &BTreeMap::new()).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), ["a"]);
    broker.judge("add_partitions", &json!({ "topic": first, "count": 3 }));
    produce(broker, &first, &[("b", 2)]);
    let second = format!("{prefix}-b");
    broker.judge("create", &json!({ "topic": second }));
    produce(broker, &second, &[("c", 0)]);
    let mut found = Vec::new();
    while found.len() < 2 {
        found.extend(session.drain().await.unwrap());
    }
    found.sort();
    assert_eq!(found, ["b", "c"]);
    assert!(!session.events.contains(&format!("revoked {first}/0")), "{:?}", session.events);
    session.end().await;
}

#[tokio::test]
async fn a_topic_that_stays_missing_is_reported() {
    let Some(broker) = broker() else { return };
    let (topic, other, address) =
        (broker.topic("gone", 1, &json!({})), broker.topic("there", 1, &json!({})), broker.address());
    produce(broker, &topic, &[("a", 0)]);
    let topics = format!("{topic},{other}");
    let source = source(&settings(&address, &topics, &topic));
    let mut session = Session::open(&*source, &BTreeMap::new()).await.unwrap();
    assert_eq!(session.drain().await.unwrap(), ["a"]);
    broker.judge("delete", &json!({ "topic": topic }));
    let fault = loop {
        // A rebalance takes the partition away: then everything that exists was read.
        match session.next().await {
            Ok(found) => assert!(found.is_none(), "{found:?}"),
            Err(fault) => break fault,
        }
    };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "kafka.topic_missing"), "{fault:?}");
    assert!(fault.message().contains(&topic), "{fault:?}");
    session.end().await;
}

#[tokio::test]
async fn a_wrong_name_and_a_wrong_server_are_named() {
    let Some(broker) = broker() else { return };
    let absent = broker.name("absent");
    let named = source(&settings(&broker.address(), &absent, "g"));
    let fault = Session::open(&*named, &BTreeMap::new()).await.err().unwrap();
    assert_eq!(fault.code().name(), "kafka.topic_missing", "{fault:?}");
    assert!(fault.message().contains(&absent), "{fault:?}");
    let nowhere = source(&settings("127.0.0.1:1", "t", "g"));
    let fault = Session::open(&*nowhere, &BTreeMap::new()).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "kafka.unavailable"));
}

#[test]
fn settings_that_contradict_each_other_are_found() {
    let wrong = |settings: &[(&str, &str)], expected: &str| {
        let findings = configure(&[&[("servers", "a:1")], settings].concat()).err().unwrap_or_default();
        assert!(findings.iter().any(|finding| finding.contains(expected)), "{settings:?}: {findings:?}");
    };
    wrong(&[], "topics is required");
    wrong(&[("topics", "a b")], "letters, digits");
    wrong(&[("topics", "a"), ("topicPattern", "b")], "exclude each other");
    wrong(&[("topicPattern", "(")], "regular expression");
    wrong(&[("topics", "a"), ("readFromTime", "yesterday")], "RFC 3339");
}
