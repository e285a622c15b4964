//! Settings and messages, and the writers with producers that a test scripts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use anabranch_plugin::destination::{Verdicts, Write, Writer};
use anabranch_plugin::testing::{configured, host};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Data, Operation, Position, Record};
use async_trait::async_trait;

use super::marks::MarksTopic;
use super::message::Layout;
use super::producer::{Failures, Publisher, TransactionalPublisher, WrittenTopics};
use super::publish::PublishingWriter;
use super::topics::Demands;
use super::transaction::{TransactionWriter, default_id};
use super::*;

const RAW: (&str, &str) = ("sdk.record.format", "recfmt/raw");

/// Returns the destination for settings, or the messages of the findings.
fn configure_with(settings: &[(&str, &str)]) -> Result<(Arc<Layout>, Sending), Vec<String>> {
    let found = Arc::new(Mutex::new(None));
    let kept = found.clone();
    let specification = Specification::builtin("kafka", "").with_all(shared::destination());
    let kind = kind::destination(specification, move |settings| {
        let destination = configure(settings)?;
        *kept.lock().unwrap() = Some((destination.layout.clone(), destination.sending.clone()));
        Ok(Arc::new(destination))
    });
    configured::destination(&kind, &[&[("servers", "a:1")], settings].concat())?;
    Ok(found.lock().unwrap().take().unwrap())
}

fn layout(settings: &[(&str, &str)]) -> Arc<Layout> {
    configure_with(settings).unwrap().0
}

fn record(key: &str, value: &str) -> Record {
    let data = |text: &str| Data::Raw(text.as_bytes().to_vec().into());
    Record::create(Position::copy_from(b"p"), data(key), data(value))
}

/// Returns the code of the fault of a record.
fn refused_record<T: std::fmt::Debug>(made: Result<T, Fault>) -> String {
    let fault = made.unwrap_err();
    assert_eq!(fault.class(), FaultClass::Record, "{fault:?}");
    fault.code().name().to_owned()
}

#[test]
fn settings_have_the_defaults_of_the_reference_service() {
    let (layout, sending) = configure_with(&[]).unwrap();
    assert_eq!((layout.largest, layout.headers, layout.topic.literal()), (1_000_012, true, None));
    assert!(sending.acks == Acks::All && sending.batch_bytes == 1_000_012 && sending.timeout == TIMEOUT);
    assert!(matches!(sending.compression, krafka::Compression::Snappy));
    let (_, sending) = configure_with(&[("deliveryTimeout", "5s"), ("acks", "one"), ("compression", "zstd")]).unwrap();
    // A shorter time would end before the first request does.
    assert!(sending.timeout == LEAST_TIMEOUT && sending.acks == Acks::Leader);
    assert!(matches!(sending.compression, krafka::Compression::Zstd));
}

#[test]
fn the_topic_is_that_of_the_collection_or_of_a_template() {
    let mut row = record("k", "v");
    assert_eq!(refused_record(layout(&[]).message(&row)), "kafka.record_invalid");
    row.set_collection("orders");
    assert_eq!(layout(&[]).message(&row).unwrap().topic, "orders");
    assert_eq!(layout(&[("topic", " fixed ")]).message(&row).unwrap().topic, "fixed");
    let template = ("topic", "{{ index .Metadata \"t\" }}");
    row.metadata.insert("t", "a/b");
    assert_eq!(refused_record(layout(&[template]).message(&row)), "kafka.record_invalid");
    row.metadata.insert("t", "a.b");
    assert_eq!(layout(&[template]).message(&row).unwrap().topic, "a.b");
}

#[test]
fn key_and_value_are_those_of_the_record_or_of_templates() {
    let raw = layout(&[("topic", "t"), RAW]);
    let message = raw.message(&record("k", "v")).unwrap();
    assert_eq!((message.key.as_deref(), message.value.as_deref()), (Some(&b"k"[..]), Some(&b"v"[..])));
    assert!(message.partition.is_none() && message.timestamp.is_none() && message.headers.is_empty());
    let mut row = record("k", "v");
    row.key = Data::Absent;
    assert_eq!(raw.message(&row).unwrap().key, None);
    row.key = Data::Structured(Arc::new([("id", 7_i64)].into_iter().collect()));
    assert_eq!(raw.message(&row).unwrap().key.as_deref(), Some(&br#"{"id":7}"#[..]));
    let keyed = layout(&[("topic", "t"), ("key", "{{ .Operation }}")]).message(&row).unwrap();
    assert_eq!(keyed.key.as_deref(), Some(&b"create"[..]));
    let value = String::from_utf8(keyed.value.unwrap().to_vec()).unwrap();
    assert!(value.contains(r#""after":"dg==""#), "{value}");
}

#[test]
fn a_delete_is_a_record_or_a_tombstone() {
    let mut row = record("k", "v");
    row.operation = Operation::Delete;
    assert_eq!(layout(&[("topic", "t"), RAW]).message(&row).unwrap().value.as_deref(), Some(&b"v"[..]));
    let tombstone = layout(&[("topic", "t"), ("deletes", "tombstone"), RAW]).message(&row).unwrap();
    assert_eq!((tombstone.key.as_deref(), tombstone.value), (Some(&b"k"[..]), None));
    row.operation = Operation::Update;
    assert!(layout(&[("topic", "t"), ("deletes", "tombstone"), RAW]).message(&row).unwrap().value.is_some());
}

#[test]
fn partition_and_timestamp_are_numbers_or_the_record_fails() {
    let settings = [
        ("topic", "t"),
        ("partition", "{{ index .Metadata \"p\" }}"),
        ("timestamp", "{{ index .Metadata \"ts\" }}"),
        RAW,
    ];
    let layout = layout(&settings);
    let made = |partition: &str, timestamp: &str| {
        let mut row = record("k", "v");
        row.metadata.insert("p", partition);
        row.metadata.insert("ts", timestamp);
        layout.message(&row).map(|message| (message.partition, message.timestamp))
    };
    assert_eq!(made("3", "17").unwrap(), (Some(3), Some(17)));
    assert_eq!(made(" 0 ", "2026-11-24T00:00:00.5Z").unwrap(), (Some(0), Some(1_795_478_400_500)));
    for (partition, timestamp) in
        [("-1", "1"), ("", "1"), ("1.5", "1"), ("1", "-1"), ("1", "today"), ("1", ""), ("1", "1795478400500000000")]
    {
        assert_eq!(refused_record(made(partition, timestamp)), "kafka.record_invalid", "{partition} {timestamp}");
    }
}

#[test]
fn headers_are_those_of_the_metadata_unless_they_are_switched_off() {
    let mut row = record("k", "v");
    row.metadata.insert("kafka.header.a", "1");
    row.metadata.insert("other", "x");
    let headers = |settings: &[(&str, &str)]| layout(settings).message(&row).unwrap().headers;
    assert_eq!(headers(&[("topic", "t"), RAW]), [("a".to_owned(), Some("1".into()))]);
    assert_eq!(headers(&[("topic", "t"), ("headers", "false"), RAW]), []);
    row.metadata.insert("kafka.headers", "{}");
    assert_eq!(refused_record(layout(&[("topic", "t"), RAW]).message(&row)), "kafka.record_invalid");
}

#[test]
fn a_record_larger_than_a_batch_fails() {
    let layout = layout(&[("topic", "t"), ("batchBytes", "200"), RAW]);
    assert!(layout.message(&record("k", &"x".repeat(100))).is_ok());
    let fault = layout.message(&record("k", &"x".repeat(200))).unwrap_err();
    assert!(fault.message().contains("batchBytes") && fault.message().contains("max.message.bytes"), "{fault:?}");
    assert_eq!(refused_record::<()>(Err(fault)), "record_too_large");
}

#[test]
fn the_transactional_id_names_pipeline_and_connector() {
    assert_eq!(default_id(&host()), "anabranch/p/p:n");
}

/// A producer that a test scripts, and what it was asked.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Scripted>>);

#[derive(Default)]
struct Scripted {
    /// Maximum sizes of batches by topic. Topics that are absent do not exist.
    topics: HashMap<String, usize>,
    /// The failures of the calls that follow.
    failures: VecDeque<Failures>,
    /// Faults of the commits and aborts that follow.
    ends: VecDeque<Option<Fault>>,
    marks: HashMap<LaneId, Mark>,
    /// True if a later run has taken over the transactional id.
    has_successor: bool,
    /// The calls of the client: the values of sent messages with the limit of their batches, and other calls.
    asked: Vec<String>,
}

impl Script {
    fn new(topics: &[(&str, usize)]) -> Script {
        let script = Script::default();
        script.0.lock().unwrap().topics = topics.iter().map(|(topic, limit)| ((*topic).to_owned(), *limit)).collect();
        script
    }

    fn fails(&self, failures: Failures) {
        self.0.lock().unwrap().failures.push_back(failures);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn note(&self, what: &str) {
        self.0.lock().unwrap().asked.push(what.to_owned());
    }

    fn sent(&self, messages: &[krafka::Record], limit: usize) -> Failures {
        let text = |value: &Option<bytes::Bytes>| {
            let value = value.as_deref().unwrap_or(b"null");
            if value.starts_with(b"{") { "mark".to_owned() } else { String::from_utf8_lossy(&value[..1]).into_owned() }
        };
        let values: Vec<String> = messages.iter().map(|message| text(&message.value)).collect();
        let mut scripted = self.0.lock().unwrap();
        scripted.asked.push(format!("{} {limit}", values.join("")));
        scripted.failures.pop_front().unwrap_or_default()
    }

    fn end(&self, what: &str) -> Result<(), Fault> {
        self.note(what);
        match self.0.lock().unwrap().ends.pop_front().flatten() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl WrittenTopics for Script {
    async fn ensure(&mut self, topic: &str) -> Result<Demands, Fault> {
        match self.0.lock().unwrap().topics.get(topic) {
            Some(largest) => Ok(Demands { largest: *largest, keys: topic == "compacted" }),
            None => Err(Fault::fatal(codes::TOPIC_MISSING, "missing")),
        }
    }
}

#[async_trait]
impl Publisher for Script {
    async fn publish(&mut self, messages: Vec<krafka::Record>, limit: usize) -> Result<Failures, Fault> {
        Ok(self.sent(&messages, limit))
    }

    fn start_over(&mut self) {
        self.note("start over");
    }

    async fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

#[async_trait]
impl TransactionalPublisher for Script {
    async fn initialise(&mut self) -> Result<HashMap<LaneId, Mark>, Fault> {
        self.note("initialise");
        Ok(self.0.lock().unwrap().marks.clone())
    }

    async fn fenced(&mut self) -> Fault {
        self.note("fenced");
        match self.0.lock().unwrap().has_successor {
            true => Fault::fatal(codes::FENCED, "a later run"),
            false => Fault::transient(codes::UNAVAILABLE, "the transaction lasted too long"),
        }
    }

    async fn send(&mut self, messages: Vec<krafka::Record>, limit: usize) -> Result<Failures, Fault> {
        Ok(self.sent(&messages, limit))
    }

    async fn commit(&mut self) -> Result<(), Fault> {
        self.end("commit")
    }

    async fn abort(&mut self) -> Result<(), Fault> {
        self.end("abort")
    }

    async fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

fn too_large() -> Fault {
    Fault::record(codes::RECORD_TOO_LARGE, "too large")
}

fn unavailable() -> Fault {
    Fault::transient(codes::UNAVAILABLE, "unavailable")
}

/// Writes records with these values, and returns the rows that failed.
async fn write(writer: &mut dyn Writer, values: &[&str]) -> Result<Vec<(usize, FaultClass)>, Fault> {
    let rows: Vec<Record> = values.iter().map(|value| record("k", value)).collect();
    written(writer.write(Write::new(&rows)).await?)
}

#[allow(clippy::unnecessary_wraps, reason = "the tail of calls with `?`")]
fn written(verdicts: Verdicts) -> Result<Vec<(usize, FaultClass)>, Fault> {
    Ok(match verdicts {
        Verdicts::All(_) => Vec::new(),
        Verdicts::Each(each) => {
            each.into_iter().enumerate().filter_map(|(row, it)| Some((row, it.err()?.class()))).collect()
        }
        Verdicts::Refused(refused) => refused.into_iter().map(|(row, fault)| (row, fault.class())).collect(),
    })
}

fn publishing(script: &Script, settings: &[(&str, &str)]) -> PublishingWriter<Script> {
    PublishingWriter::new(script.clone(), layout(settings))
}

const FIXED: [(&str, &str); 2] = [("topic", "t"), RAW];

#[tokio::test]
async fn only_the_record_that_is_too_large_fails() {
    let script = Script::new(&[("t", 300)]);
    let mut writer = publishing(&script, &FIXED);
    let large = "c".repeat(300);
    // Larger than the topic allows: it is not sent at all. The batches are as small as the topic wants them.
    assert_eq!(write(&mut writer, &["a", "b", &large, "d"]).await.unwrap(), [(2, FaultClass::Record)]);
    assert_eq!(script.asked(), ["abd 300"]);
    // The broker refuses one: the place among the messages is not the row.
    script.fails(vec![(2, too_large())]);
    assert_eq!(
        write(&mut writer, &[&large, "b", "c", "d"]).await.unwrap(),
        [(0, FaultClass::Record), (3, FaultClass::Record)]
    );
    assert_eq!(script.asked(), ["bcd 300"]);
}

#[tokio::test]
async fn an_error_that_passes_repeats_the_whole_write() {
    let script = Script::new(&[("t", 1000)]);
    let mut writer = publishing(&script, &FIXED);
    script.fails(vec![(0, too_large()), (1, unavailable())]);
    let fault = write(&mut writer, &["a", "b", "c"]).await.unwrap_err();
    assert_eq!(fault.class(), FaultClass::Transient);
    // A topic that is gone existed a moment ago.
    script.fails(vec![(2, Fault::fatal(codes::TOPIC_MISSING, "missing"))]);
    let fault = write(&mut writer, &["a", "b", "c"]).await.unwrap_err();
    assert_eq!((fault.class(), fault.code()), (FaultClass::Transient, codes::TOPIC_MISSING));
    script.fails(vec![(0, Fault::fatal(codes::NOT_AUTHORISED, "not authorised"))]);
    assert_eq!(write(&mut writer, &["a"]).await.unwrap_err().class(), FaultClass::Fatal);
    let expected = ["abc 1000", "start over", "abc 1000", "start over", "a 1000", "start over"];
    assert_eq!(script.asked(), expected);
}

#[tokio::test]
async fn a_topic_per_record_fails_only_its_records() {
    let script = Script::new(&[("t", 1000), ("u", 500)]);
    let mut writer = publishing(&script, &[RAW]);
    let rows: Vec<Record> = [("t", "a"), ("missing", "b"), ("u", "c"), ("", "d"), ("t", "e")]
        .into_iter()
        .map(|(topic, value)| {
            let mut row = record("k", value);
            row.set_collection(topic);
            row
        })
        .collect();
    script.fails(vec![(1, Fault::fatal(codes::NOT_AUTHORISED, "not authorised"))]);
    let failed = written(writer.write(Write::new(&rows)).await.unwrap()).unwrap();
    assert_eq!(failed, [1, 2, 3].map(|row| (row, FaultClass::Record)));
    assert_eq!(script.asked(), ["ace 500"]);
}

fn lane() -> LaneId {
    LaneId { connector: "c".into(), partition: Partition("t/0".into()) }
}

fn mark(seq: u64) -> Mark {
    Mark { generation: 1, seq, position: Position::copy_from(b"p") }
}

fn transactions(script: &Script) -> TransactionWriter<Script> {
    let marks = MarksTopic::new("anabranch-marks", "id");
    TransactionWriter::new(script.clone(), layout(&FIXED), "id".into(), marks, 1000)
}

/// Writes records with the mark `seq`.
async fn transact(
    writer: &mut TransactionWriter<Script>,
    values: &[&str],
    seq: u64,
) -> Result<Vec<(usize, FaultClass)>, Fault> {
    let rows: Vec<Record> = values.iter().map(|value| record("k", value)).collect();
    let marks = [(lane(), mark(seq))];
    let mut given = Write::new(&rows);
    given.marks = &marks;
    written(writer.write(given).await?)
}

#[tokio::test]
async fn a_compacted_topic_refuses_only_records_without_a_key() {
    let script = Script::new(&[("compacted", 800)]);
    let mut writer = publishing(&script, &[("topic", "compacted"), RAW]);
    let mut keyless = record("k", "b");
    keyless.key = Data::Absent;
    let rows = [record("k", "a"), keyless, record("k", "c")];
    let failed = written(writer.write(Write::new(&rows)).await.unwrap()).unwrap();
    assert_eq!(failed, [(1, FaultClass::Record)]);
    assert_eq!(script.asked(), ["ac 800"]);
}

/// A broker rejects a batch as a whole. Only a batch of one record says which record is wrong.
#[tokio::test]
async fn a_rejected_batch_is_written_again_in_parts() {
    let rejected = || Fault::record(codes::BATCH_REJECTED, "rejected");
    let script = Script::new(&[("t", 800)]);
    let mut writer = publishing(&script, &FIXED);
    script.fails(vec![(0, rejected()), (1, rejected())]);
    assert_eq!(write(&mut writer, &["a", "b", "c"]).await.unwrap_err().class(), FaultClass::Record);
    script.fails(vec![(0, rejected())]);
    assert_eq!(write(&mut writer, &["a"]).await.unwrap(), [(0, FaultClass::Record)]);
    script.asked();
    let mut writer = transactions(&script);
    script.fails(vec![(0, rejected()), (1, rejected())]);
    assert_eq!(transact(&mut writer, &["a", "b"], 2).await.unwrap_err().class(), FaultClass::Record);
    assert_eq!(script.asked(), ["abmark 800", "abort"]);
}

#[tokio::test]
async fn rows_and_marks_are_one_transaction() {
    let script = Script::new(&[("t", 800)]);
    let mut writer = transactions(&script);
    assert_eq!(writer.marks().await.unwrap(), []);
    assert_eq!(transact(&mut writer, &["a", "b"], 2).await.unwrap(), []);
    assert_eq!(script.asked(), ["initialise", "abmark 800", "commit"]);
    // The mark that the broker confirmed is there; otherwise the topic of the marks was replaced.
    assert_eq!(writer.marks().await.unwrap_err().code(), codes::MARKS_MOVED);
    script.0.lock().unwrap().marks = [(lane(), mark(2))].into();
    assert_eq!(writer.marks().await.unwrap(), [(lane(), mark(2))]);
    assert!(writer.forget(&[lane()]).await.unwrap());
    assert_eq!(script.asked(), ["initialise", "initialise", "n 1000", "commit"]);
}

#[tokio::test]
async fn a_refused_row_aborts_the_transaction_and_is_named() {
    let script = Script::new(&[("t", 800)]);
    let mut writer = transactions(&script);
    // A record that fails takes those behind it along.
    script.fails(vec![(1, too_large()), (2, unavailable()), (3, unavailable())]);
    assert_eq!(transact(&mut writer, &["a", "b", "c"], 3).await.unwrap(), [(1, FaultClass::Record)]);
    assert_eq!(script.asked(), ["abcmark 800", "abort"]);
    // A row that the destination refuses does not begin a transaction.
    let large = "b".repeat(900);
    assert_eq!(transact(&mut writer, &["a", &large], 2).await.unwrap(), [(1, FaultClass::Record)]);
    assert_eq!(script.asked(), Vec::<String>::new());
    // The mark itself is never a row.
    script.fails(vec![(1, too_large())]);
    assert!(transact(&mut writer, &["a"], 1).await.is_err());
    assert_eq!(script.asked(), ["amark 800", "abort"]);
}

#[tokio::test]
async fn an_unknown_outcome_is_a_fault_and_a_takeover_is_fatal() {
    let script = Script::new(&[("t", 800)]);
    let mut writer = transactions(&script);
    let fenced = || Fault::fatal(codes::FENCED, "fenced");
    script.0.lock().unwrap().ends = [Some(unavailable())].into();
    assert_eq!(transact(&mut writer, &["a"], 1).await.unwrap_err().class(), FaultClass::Transient);
    // The failure of a message says less than the coordinator.
    for (has_successor, class) in [(true, FaultClass::Fatal), (false, FaultClass::Transient)] {
        script.0.lock().unwrap().has_successor = has_successor;
        script.0.lock().unwrap().ends = [Some(fenced())].into();
        script.fails(vec![(0, unavailable())]);
        script.asked();
        let fault = transact(&mut writer, &["a"], 1).await.unwrap_err();
        assert_eq!((fault.class(), fault.code() == codes::FENCED), (class, has_successor));
        assert_eq!(script.asked(), ["amark 800", "abort", "fenced"]);
    }
    script.0.lock().unwrap().ends = [Some(unavailable())].into();
    script.fails(vec![(0, too_large())]);
    assert!(transact(&mut writer, &["a"], 1).await.is_err(), "the outcome of the abort is unknown");
}
