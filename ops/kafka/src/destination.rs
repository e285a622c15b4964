//! The `kafka` destination: writes records to topics.

mod marks;
mod message;
mod producer;
mod publish;
mod takeover;
mod topics;
mod transaction;
mod transactional_id;
mod units;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_plugin::destination::{Destination, DestinationKind, Retry, ShareWriter, WritePolicy, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::format::{FormatSettings, RecordFormat};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::shared::{self, MessageEncoding, MessageFormat};
use anabranch_plugin::parameters::{Argument, Choice, Parameters};
use anabranch_plugin::specification::Specification;
use anabranch_plugin::state::Slots;
use anabranch_record::Record;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use anabranch_template::Template;
use async_trait::async_trait;
use krafka::producer::Acks;

use crate::codes;
use crate::connection::{ANSWER, Connection, Options};
use crate::examine::{self, Purpose};
use crate::topic::{TOPICS, not_a_topic, resource};
use marks::MarksTopic;
use message::{Deletes, Layout, ValueFormat};
use producer::{KafkaPublisher, KafkaTransactions};
use publish::PublishingWriter;
use takeover::Takeover;
use topics::{NewTopics, Topics};
use transaction::TransactionWriter;

/// The template that names the collection of a record.
const COLLECTION: &str = r#"{{ index .Metadata "recfmt.collection" }}"#;
/// Rows of one write.
const ROWS: usize = 8192;
/// Bytes of one write, which the client holds until the brokers confirm them.
const BYTES: usize = 8 << 20;
/// Time for which a transaction waits for more rows: each costs several requests.
const TRANSACTION_LINGER: Duration = Duration::from_millis(20);

/// Returns the `kafka` destination for the registry.
pub(crate) fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("kafka", "Writes records to topics of Apache Kafka.")
        .describe(include_str!("destination/description.md"))
        .with_all(shared::destination());
    kind::destination(specification, |settings| Ok(Arc::new(configure(settings)?)))
}

#[derive(Parameters)]
struct Settings {
    #[parameter(flatten)]
    connection: Options,
    /// The topic; a template is rendered for each record.
    #[parameter(default = COLLECTION)]
    topic: Argument<Template>,
    /// When a record counts as written: all (all replicas in sync have it), one (the leader has it) or none (it was
    /// sent). With one and none, a broker that fails loses records that count as written.
    #[parameter(default = "all")]
    acks: Argument<AckLevel>,
    /// Time after which a write that the brokers do not confirm is sent again; 0 = 2 minutes.
    #[parameter(default = "0s")]
    delivery_timeout: Duration,
    /// Maximum size of a request for one partition, and of a record, in bytes.
    #[parameter(default = 1_000_012, greater_than = 0, less_than = 1_000_000_001)]
    batch_bytes: usize,
    /// Compression of the batches: none, gzip, snappy, lz4 or zstd.
    #[parameter(default = "snappy")]
    compression: Compression,
    /// Key of a record in Kafka, a template. The default is the key of the record: raw data unchanged, structured data as
    /// JSON.
    key: Argument<Option<Template>>,
    /// Partition of a record, a template that produces its number. The default is a hash of the key, as in other clients
    /// of Kafka; records without a key are distributed.
    partition: Option<Template>,
    /// Timestamp of a record in Kafka, a template that produces milliseconds since 1970 or a time in RFC 3339. The default
    /// is the time of the write.
    timestamp: Option<Template>,
    /// Write the metadata `kafka.header.*` and `kafka.headers` of a record as its headers in Kafka.
    #[parameter(default = true)]
    headers: bool,
    /// Value of a record with the operation delete: record (as of any other record) or tombstone (null, so that a
    /// compacted topic forgets the key).
    #[parameter(default = "record")]
    deletes: Deletes,
    /// Create topics that do not exist.
    #[parameter(default = true)]
    create_topics: bool,
    /// Number of partitions of created topics; 0 = the default of the brokers.
    #[parameter(name = "createTopics.partitions", default = 0, only_with = "createTopics")]
    partitions: u32,
    /// Number of replicas of created topics; 0 = the default of the brokers.
    #[parameter(name = "createTopics.replicas", default = 0, only_with = "createTopics")]
    replicas: u32,
    /// Settings of created topics, such as `createTopics.config.retention.ms`.
    #[parameter(name = "createTopics.config")]
    config: BTreeMap<Str, Str>,
    /// Write the records and the position of the source in one transaction. If this is the only destination, or the source
    /// replays exactly, no record is written twice after a crash. Consumers must read with the isolation level
    /// read_committed. Each service needs its own exactlyOnce.transactionalID.
    #[parameter(default = false)]
    exactly_once: bool,
    /// Topic with the positions of sources, which exactlyOnce needs. It is created if it is missing, and must be
    /// compacted. Several pipelines may share it.
    #[parameter(name = "exactlyOnce.topic", default = "anabranch-marks", only_with = "exactlyOnce")]
    marks_topic: Argument<Str>,
    /// Transactional id, which must be unique in the cluster. The default is anabranch/\<pipeline>/\<connector>. Set it if
    /// several services with pipelines of the same name write to one cluster. If nodes share the pipeline, each slot has an
    /// id that begins with this one and ends with /\<slot>-of-\<slots>.
    #[parameter(name = "exactlyOnce.transactionalID", only_with = "exactlyOnce")]
    transactional_id: Option<Str>,
    #[parameter(flatten)]
    encoding: MessageEncoding,
    #[parameter(flatten)]
    format: FormatSettings,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AckLevel {
    All,
    One,
    None,
}

impl Choice for AckLevel {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("all", AckLevel::All), ("one", AckLevel::One), ("none", AckLevel::None)];
}

#[derive(Clone, Copy)]
struct Compression(krafka::Compression);

impl Choice for Compression {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", Compression(krafka::Compression::None)),
        ("gzip", Compression(krafka::Compression::Gzip)),
        ("snappy", Compression(krafka::Compression::Snappy)),
        ("lz4", Compression(krafka::Compression::Lz4)),
        ("zstd", Compression(krafka::Compression::Zstd)),
    ];
}

/// How records are sent.
#[derive(Clone)]
struct Sending {
    acks: Acks,
    compression: krafka::Compression,
    batch_bytes: usize,
    /// Time until an unconfirmed write counts as failed.
    timeout: Duration,
}

/// Time limit of a write if none is set.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Minimum time limit: one request and its answer, and the time for which the client collects a batch.
const LEAST_TIMEOUT: Duration = ANSWER.saturating_add(Duration::from_secs(1));

fn configure(settings: Settings) -> Result<KafkaDestination, Diagnostics> {
    let mut findings = Diagnostics::new();
    if let Some(name) = settings.topic.literal()
        && let Some(why) = not_a_topic(name.trim())
    {
        findings.push(settings.topic.invalid(format!("the name of a topic {why}")));
    }
    if let Some(why) = not_a_topic(&settings.marks_topic) {
        findings.push(settings.marks_topic.invalid(format!("the name of a topic {why}")));
    }
    if settings.exactly_once && *settings.acks != AckLevel::All {
        findings.push(settings.acks.invalid("exactlyOnce needs all").with_hint("remove acks, or set it to all"));
    }
    let encodes = |format: &Argument<MessageFormat>| **format == MessageFormat::Avro;
    if encodes(&settings.encoding.key) && settings.key.is_some() {
        let text = "key and encode.key exclude each other: encode.key encodes the key of the record";
        let hint = "remove key, and set the field .Key with a processor";
        findings.push(settings.key.finding(codes::SETTINGS_INVALID, text).with_hint(hint));
    }
    let connection = Connection::new(&settings.connection).map_err(|found| findings.0.extend(found)).ok();
    let format = RecordFormat::new(&settings.format).map_err(|found| findings.0.extend(found)).ok();
    let value = format.and_then(|format| match (encodes(&settings.encoding.payload), format) {
        (false, format) => Some(ValueFormat::Formatted(format)),
        (true, RecordFormat::Raw) => Some(ValueFormat::Encoded),
        (true, _) if !settings.format.is_given() => Some(ValueFormat::Encoded),
        (true, _) => {
            let text = "encode.payload and sdk.record.format exclude each other";
            let hint = "remove sdk.record.format: the value is the encoded payload";
            findings.push(settings.encoding.payload.finding(codes::SETTINGS_INVALID, text).with_hint(hint));
            None
        }
    });
    let (Some(connection), Some(value), false) = (connection, value, findings.has_errors()) else {
        return Err(findings);
    };
    let timeout = match settings.delivery_timeout {
        Duration::ZERO => TIMEOUT,
        given => given.max(LEAST_TIMEOUT),
    };
    Ok(KafkaDestination {
        connection,
        layout: Arc::new(Layout {
            topic: settings.topic.into_value(),
            key: settings.key.into_value(),
            partition: settings.partition,
            timestamp: settings.timestamp,
            headers: settings.headers,
            deletes: settings.deletes,
            largest: settings.batch_bytes,
            value,
        }),
        sending: Sending {
            acks: match *settings.acks {
                AckLevel::All => Acks::All,
                AckLevel::One => Acks::Leader,
                AckLevel::None => Acks::None,
            },
            compression: settings.compression.0,
            batch_bytes: settings.batch_bytes,
            timeout,
        },
        creation: settings.create_topics.then_some(NewTopics {
            partitions: settings.partitions,
            replicas: settings.replicas,
            config: settings.config,
        }),
        exactly_once: settings
            .exactly_once
            .then(|| ExactlyOnce { topic: settings.marks_topic.into_value(), id: settings.transactional_id }),
        opened: AtomicBool::new(false),
    })
}

struct KafkaDestination {
    connection: Connection,
    layout: Arc<Layout>,
    sending: Sending,
    creation: Option<NewTopics>,
    exactly_once: Option<ExactlyOnce>,
    /// True if the destination was opened before, in this run of the pipeline or an earlier one of the process. What is
    /// missing afterwards was taken away and may come back.
    opened: AtomicBool,
}

struct ExactlyOnce {
    topic: Str,
    id: Option<Str>,
}

impl KafkaDestination {
    /// Returns the topic of all records, if there is one.
    fn only_topic(&self) -> Option<&str> {
        self.layout.topic.literal().map(str::trim)
    }

    async fn start(&self, host: &Host) -> Result<Vec<ShareWriter>, Fault> {
        let kafka = self.connection.open().await?;
        let mut topics = Topics::new(kafka.clone(), self.creation.clone());
        if let Some(topic) = self.only_topic() {
            topics.ensure(topic).await?;
        }
        let (layout, sending) = (self.layout.clone(), self.sending.clone());
        Ok(match &self.exactly_once {
            None => {
                let writer = Box::new(PublishingWriter::new(KafkaPublisher::new(kafka, topics, sending), layout));
                vec![ShareWriter { slots: host.slots, writer }]
            }
            Some(ExactlyOnce { topic, id }) => {
                let id = id.clone().unwrap_or_else(|| transaction::default_id(host));
                let (marks, limit) = (MarksTopic::new(topic, &id), sending.batch_bytes);
                let is_shared = host.shared.is_some();
                let takeover = Arc::new(Takeover::new(kafka.clone(), sending, marks.clone(), host.slots, is_shared));
                let writer = |slot| {
                    let topics = Topics::new(kafka.clone(), self.creation.clone());
                    let publisher = KafkaTransactions::new(topics, takeover.clone(), slot);
                    let (layout, marks, id) = (layout.clone(), marks.clone(), id.clone());
                    let writer = Box::new(TransactionWriter::new(publisher, layout, id, marks, limit));
                    ShareWriter { slots: Slots::none(host.slots.of()).with(slot), writer }
                };
                host.slots.iter().map(writer).collect()
            }
        })
    }
}

#[async_trait]
impl Destination for KafkaDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let several =
            || Fault::fatal(codes::SETTINGS_INVALID, "exactlyOnce needs a writer for each slot of the pipeline");
        let [ShareWriter { writer, .. }] =
            <[ShareWriter; 1]>::try_from(self.open_shares(host).await?).map_err(|_| several())?;
        Ok(writer)
    }

    async fn open_shares(&self, host: &Host) -> Result<Vec<ShareWriter>, Fault> {
        let writers = self.start(host).await.map_err(|fault| match self.opened.load(Ordering::Relaxed) {
            true => fault.with_class(FaultClass::Transient),
            false => fault,
        })?;
        self.opened.store(true, Ordering::Relaxed);
        Ok(writers)
    }

    fn flow(&self, flow: &mut Flow) {
        if let ValueFormat::Formatted(format) = &self.layout.value {
            format.flow(flow, true);
        }
        let templates = [
            ("topic", Some(&self.layout.topic)),
            ("key", self.layout.key.as_ref()),
            ("partition", self.layout.partition.as_ref()),
            ("timestamp", self.layout.timestamp.as_ref()),
        ];
        for (setting, template) in templates {
            if let Some(template) = template {
                flow.template(setting, template);
            }
        }
        if self.sending.acks != Acks::All {
            let message = "records may be lost: they count as written before all replicas in sync have them";
            let hint = "set acks: all, unless you can afford to lose records when a broker fails".to_owned();
            flow.warn(codes::ACKS_LOSE_RECORDS, "acks", message, None, Some(hint));
        }
    }

    fn writes(&self) -> Vec<Extent> {
        let Some(topic) = self.only_topic() else { return Vec::new() };
        let space = self.connection.space();
        vec![Extent { what: TOPICS, name: resource(&space, topic), space, whole: true, setting: "topic" }]
    }

    fn collections(&self) -> Option<CollectionSpace> {
        self.layout.topic_is_collection().then(|| CollectionSpace {
            what: TOPICS,
            space: self.connection.space(),
            setting: "topic",
        })
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        let names: Vec<Str> = self.only_topic().map(Str::from).into_iter().collect();
        let purpose = Purpose::Write { creates: self.creation.is_some() };
        let kafka = self.connection.open().await?;
        let warnings = examine::topics(&kafka, &names, purpose).await?;
        let topics = Topics::new(kafka.clone(), self.creation.clone());
        for name in &names {
            topics.may_create(name).await?;
        }
        if let Some(ExactlyOnce { topic, id }) = &self.exactly_once {
            let marks = MarksTopic::new(topic, id.as_deref().unwrap_or_default());
            if marks.examine(&kafka).await? {
                for purpose in [Purpose::Read, Purpose::Write { creates: true }] {
                    examine::topics(&kafka, std::slice::from_ref(topic), purpose).await?;
                }
            }
        }
        Ok(warnings)
    }

    fn topic<'a>(&'a self, record: &Record) -> Option<Cow<'a, str>> {
        match self.only_topic() {
            Some(topic) => Some(Cow::Borrowed(topic)),
            None => self.layout.topic(record).ok().map(Cow::Owned),
        }
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        let message = self.layout.message(record);
        Some(message.map(|message| message.value.map(|value| value.to_vec()).unwrap_or_default()))
    }

    fn confirms_early(&self) -> bool {
        self.sending.acks != Acks::All
    }

    fn takes_shares(&self) -> bool {
        true
    }

    fn refuses_earlier_runs(&self) -> bool {
        self.exactly_once.is_some()
    }

    fn policy(&self) -> WritePolicy {
        match self.exactly_once {
            None => WritePolicy { rows: ROWS, bytes: BYTES, linger: Duration::ZERO, retry: Retry::Idempotent },
            Some(_) => {
                WritePolicy { rows: ROWS, bytes: BYTES, linger: TRANSACTION_LINGER, retry: Retry::Transactional }
            }
        }
    }
}

#[cfg(test)]
mod tests;
