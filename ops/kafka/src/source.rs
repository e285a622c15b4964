//! The `kafka` source: reads topics as a member of a consumer group.

mod batches;
mod commit;
mod ends;
mod fetch;
mod lookup;
mod position;
mod prepare;
mod reader;
mod record;
mod start;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Argument, ByteSize, Choice, Parameters, shared};
use anabranch_plugin::source::{OpenedSource, Replay, Source, SourceKind, Split};
use anabranch_plugin::specification::Specification;
use anabranch_record::Position;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;
use chrono::DateTime;
use krafka::Kafka;
use krafka::admin::{ListOffsetsOptions, OffsetSpec};
use regex::Regex;
use sha2::{Digest as _, Sha256};

use crate::codes;
use crate::connection::{Connection, Options};
use crate::examine::{self, Purpose};
use crate::fault::{Doing, refused};
use crate::group::{GroupSettings, Subscription, check_rights, join, take_slots};
use crate::topic::{TOPICS, not_a_topic, resource};
use crate::waiting::until_brokers;
use commit::{Commits, Offsets};
use fetch::{FetchSettings, Fetches};
use lookup::Lookup;
use position::LogPosition;
use reader::PartitionReader;
use start::{Beginning, OnGap, Starts};

/// Time for which a rebalance waits for its members.
const REBALANCE: Duration = Duration::from_secs(60);

/// Default of `sessionTimeout`, alone and on a node of a cluster.
const USUAL_SESSION: Duration = Duration::from_secs(45);
const CLUSTER_SESSION: Duration = Duration::from_secs(6);

/// Returns an id of a connector in a shared store, which all runs of its pipeline have in common.
fn shared_id(store: &Str, host: &Host) -> Str {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] =
        Sha256::digest(format!("{store}/{}/{}", host.pipeline, host.node)).into();
    format!("{:016x}", u64::from_be_bytes([a, b, c, d, e, f, g, h])).into()
}

/// Returns the `kafka` source for the registry.
pub(crate) fn kind() -> Arc<dyn SourceKind> {
    let specification =
        Specification::builtin("kafka", "Reads topics of Apache Kafka as a member of a consumer group.")
            .describe(include_str!("source/description.md"))
            .with_all(shared::source());
    kind::source(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    #[parameter(flatten)]
    connection: Options,
    /// Names of the topics.
    #[parameter(example = "orders")]
    topics: Argument<Vec<Str>>,
    /// Regular expression, instead of names: all topics whose whole name matches are read, also those that are created
    /// later.
    topic_pattern: Argument<Option<Str>>,
    /// Id of the consumer group. All processes with this id share the partitions. The default is a new id, which the
    /// position contains.
    #[parameter(name = "groupID")]
    group: Argument<Option<Str>>,
    /// Read partitions without a committed offset from their first record. If false, only records that arrive later are
    /// read.
    #[parameter(default = false)]
    read_from_beginning: bool,
    /// Time in RFC 3339: partitions without a committed offset are read from the first record with this timestamp or a later
    /// one.
    read_from_time: Argument<Option<Str>>,
    /// Retry transient errors for ever while the source joins its group. If false, the pipeline recovers after the first.
    #[parameter(default = true)]
    retry_group_join_errors: bool,
    /// Number of acknowledged records after which offsets are committed to the group.
    #[parameter(default = 1000, greater_than = 0)]
    commit_offsets_size: usize,
    /// Maximum time after which acknowledged offsets are committed to the group.
    #[parameter(default = "5s", greater_than = 0)]
    commit_offsets_delay: Duration,
    /// Which records of transactions are read: read_committed (those of committed transactions) or read_uncommitted (all).
    #[parameter(default = "read_committed")]
    isolation_level: Isolation,
    /// Static id of this member, unique in the group. A member with an id keeps its partitions over a restart within
    /// sessionTimeout.
    #[parameter(name = "groupInstanceID", aliases = ["groupInstanceId"])]
    instance: Option<Str>,
    /// Time without a sign of life after which the group gives the partitions of this process to others. Default: 45s, and 6s
    /// on a node of a cluster.
    #[parameter(greater_than = 5, less_than = 1801)]
    session_timeout: Option<Duration>,
    /// Reaction if the next records to read do not exist any more, because they expired or the topic was created again: fail
    /// (the pipeline stops) or continue (with the next record that exists; the missing ones are counted).
    #[parameter(default = "fail")]
    on_gap: OnGap,
    /// Approximate maximum size of the records of one answer of a broker, and of all records that are fetched ahead.
    #[parameter(default = "4MiB", greater_than = 0)]
    fetch_bytes: ByteSize,
    /// Approximate maximum size of the records of one partition in an answer. A larger record is read alone.
    #[parameter(default = "1MiB", greater_than = 0)]
    partition_fetch_bytes: ByteSize,
    /// Rack of this process, as in `broker.rack` of the brokers. If the brokers choose replicas by rack
    /// (`replica.selector.class`), records are read from a replica in this rack instead of the leader.
    rack: Option<Str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Isolation {
    Committed,
    Uncommitted,
}

impl Choice for Isolation {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("read_committed", Isolation::Committed), ("read_uncommitted", Isolation::Uncommitted)];
}

impl Choice for OnGap {
    const CHOICES: &'static [(&'static str, Self)] = &[("fail", OnGap::Fail), ("continue", OnGap::Continue)];
}

fn configure(settings: Settings) -> Result<Arc<dyn Source>, Diagnostics> {
    let mut findings = Diagnostics::new();
    let names: Vec<Str> = settings.topics.iter().map(|name| Str::from(name.trim())).collect();
    let pattern = settings.topic_pattern.as_ref().map(|text| Regex::new(text.trim()));
    let subscription = match (pattern, names.is_empty()) {
        (None, false) => {
            if let Some(why) = names.iter().find_map(|name| not_a_topic(name)) {
                findings.push(settings.topics.invalid(format!("the name of a topic {why}")));
            }
            Some(Subscription::Topics(names))
        }
        (Some(Ok(pattern)), true) => Some(Subscription::Pattern(pattern)),
        (Some(Err(error)), true) => {
            findings.push(settings.topic_pattern.invalid(format!("it is not a regular expression: {error}")));
            None
        }
        (Some(_), false) => {
            let text = "topics and topicPattern exclude each other";
            findings.push(settings.topic_pattern.finding(codes::SETTINGS_INVALID, text));
            None
        }
        (None, true) => {
            let text = "topics is required, or topicPattern";
            findings.push(settings.topics.finding(codes::SETTINGS_REQUIRED, text));
            None
        }
    };
    let time = settings.read_from_time.as_ref().map(|text| DateTime::parse_from_rfc3339(text.trim()));
    if let Some(Err(error)) = &time {
        let text = format!("it is not a time in RFC 3339, such as 2026-11-24T12:00:00Z: {error}");
        findings.push(settings.read_from_time.invalid(text));
    }
    if time.is_some() && settings.read_from_beginning {
        let text = "readFromTime and readFromBeginning exclude each other";
        findings.push(settings.read_from_time.finding(codes::SETTINGS_INVALID, text));
    }
    let beginning = match (time, settings.read_from_beginning) {
        (Some(Ok(time)), _) => Beginning::At(time.timestamp_millis()),
        (_, true) => Beginning::Earliest,
        (_, false) => Beginning::Latest,
    };
    let connection = Connection::new(&settings.connection).map_err(|found| findings.0.extend(found)).ok();
    let (Some(connection), Some(subscription), false) = (connection, subscription, findings.has_errors()) else {
        return Err(findings);
    };
    Ok(Arc::new(KafkaSource {
        id: format!("{:016x}", fastrand::u64(..)).into(),
        connection,
        subscription,
        group: settings.group.as_ref().map(|group| Str::from(group.trim())),
        instance: settings.instance.map(|instance| Str::from(instance.trim())),
        beginning,
        on_gap: settings.on_gap,
        retry_errors: settings.retry_group_join_errors,
        commit: (settings.commit_offsets_size, settings.commit_offsets_delay),
        session: settings.session_timeout,
        fetching: FetchSettings {
            bytes: settings.fetch_bytes.to_usize(),
            partition_bytes: settings.partition_fetch_bytes.to_usize(),
            committed: settings.isolation_level == Isolation::Committed,
            rack: settings.rack.map(|rack| Str::from(rack.trim())).unwrap_or_default(),
        },
    }))
}

struct KafkaSource {
    /// Id of this source in its first positions.
    id: Str,
    connection: Connection,
    subscription: Subscription,
    group: Option<Str>,
    instance: Option<Str>,
    beginning: Beginning,
    on_gap: OnGap,
    retry_errors: bool,
    /// Number of records and time after which offsets are committed.
    commit: (usize, Duration),
    /// Session in the group, if the settings name one.
    session: Option<Duration>,
    fetching: FetchSettings,
}

impl KafkaSource {
    /// Returns the id of the group: the setting, that of the positions, or a new one.
    fn group_of(&self, known: &[LogPosition], shared: Option<&Str>) -> Result<Str, Fault> {
        let known = known.iter().map(|position| &position.group).find(|group| !group.is_empty());
        match (&self.group, known) {
            (Some(group), Some(known)) if group != known => {
                let text = format!("groupID is {group}, and the stored position belongs to the consumer group {known}");
                Err(Fault::fatal(codes::POSITION_OF_ANOTHER_GROUP, text))
            }
            (Some(group), _) => Ok(group.clone()),
            (None, Some(known)) => Ok(known.clone()),
            (None, None) => Ok(match shared {
                Some(id) => format!("anabranch-{id}").into(),
                None => format!("anabranch-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)).into(),
            }),
        }
    }

    fn group_settings(&self, group: Str, host: &Host) -> GroupSettings {
        // In a cluster, another node takes the pipeline over before the usual session of a crashed one is over.
        let usual = if host.shared.is_some() { CLUSTER_SESSION } else { USUAL_SESSION };
        GroupSettings {
            group,
            instance: self.instance.clone(),
            session: self.session.unwrap_or(usual),
            rebalance: REBALANCE,
            subscription: self.subscription.clone(),
            retry_errors: self.retry_errors,
        }
    }

    /// Checks that the topics exist and may be read, so that a wrong name or a missing right is reported at once.
    async fn check_topics(&self, kafka: &Kafka) -> Result<(), Fault> {
        let Subscription::Topics(topics) = &self.subscription else { return Ok(()) };
        for topic in topics {
            let admin = kafka.admin();
            let described = admin.describe_topics([topic.as_str()], Default::default());
            let described = until_brokers(|| format!("described the topic {topic}"), described).await;
            let doing = Doing::Reading(topic);
            let described = described.map_err(|error| refused(&doing, error))?.into_values().next();
            described.transpose().map_err(|error| refused(&doing, error))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Source for KafkaSource {
    fn catches_up(&self) -> bool {
        true
    }

    fn replay(&self) -> Replay {
        Replay::ExactlyIf("the topic is not compacted")
    }

    fn takes_resets(&self) -> bool {
        true
    }

    fn reads(&self) -> Vec<Extent> {
        let Subscription::Topics(topics) = &self.subscription else { return Vec::new() };
        let space = self.connection.space();
        let extent = |topic: &Str| Extent {
            what: TOPICS,
            space: space.clone(),
            name: resource(&space, topic),
            whole: true,
            setting: "topics",
        };
        topics.iter().map(extent).collect()
    }

    fn reads_all_of(&self, extent: &Extent) -> bool {
        let space = self.connection.space();
        let topic = extent.name.strip_prefix(space.as_str()).and_then(|name| name.strip_prefix('/'));
        extent.what == TOPICS
            && extent.space == space
            && extent.whole
            && topic.is_some_and(|topic| self.subscription.selects(topic))
    }

    fn collections(&self) -> Option<CollectionSpace> {
        Some(CollectionSpace { what: TOPICS, space: self.connection.space(), setting: "topics" })
    }

    fn alone_if(&self) -> Option<&'static str> {
        Some("no other service reads with the same consumer group")
    }

    fn rereads(&self) -> bool {
        true
    }

    fn split(&self) -> Split {
        Split::Dynamic("partitions of the topics")
    }

    async fn still_has(&self, position: &Position) -> Result<bool, Fault> {
        let position = LogPosition::decode(position)?;
        let kafka = self.connection.open().await?;
        let doing = Doing::Reading(&position.topic);
        let at = krafka::consumer::TopicPartition::new(position.topic.as_str(), position.partition);
        let answer = kafka.admin().list_offsets([(at, OffsetSpec::Earliest)], ListOffsetsOptions::default()).await;
        match answer.map_err(|error| refused(&doing, error))?.into_values().next() {
            Some(found) => Ok(found.map_err(|error| refused(&doing, error))?.offset <= position.offset + 1),
            None => Ok(false),
        }
    }

    fn locate(&self, _: &Partition, position: &Position) -> Option<String> {
        let position = LogPosition::decode(position).ok()?;
        Some(format!("{}@{}", position.at(), position.offset))
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(LogPosition::decode(position).and_then(|position| match position.source.is_empty() {
            false => Ok(()),
            true => {
                let text = "the position has no field `Source`, so the offset that the consumer group has committed would \
                            count: copy a position from `positions show`, and change its offset";
                Err(Fault::fatal(codes::POSITION_UNKNOWN, text))
            }
        }))
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        let names = match &self.subscription {
            Subscription::Topics(topics) => topics.clone(),
            Subscription::Pattern(_) => Vec::new(),
        };
        let kafka = self.connection.open().await?;
        let warnings = examine::topics(&kafka, &names, Purpose::Read).await?;
        if let Some(group) = self.group.as_ref() {
            check_rights(&kafka, group).await?;
        }
        Ok(warnings)
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let with_position = resume.values().filter(|mark| !mark.position.0.is_empty());
        let known = with_position.map(|mark| LogPosition::decode(&mark.position)).collect::<Result<Vec<_>, _>>()?;
        // Runs that share the partitions use the same ids.
        let shared = host.shared.as_ref().filter(|_| host.slots.of() > 1).map(|store| shared_id(store, host));
        let group = self.group_of(&known, shared.as_ref())?;
        // An id of this source and its store. Another service with the same pipeline, which shares the group, has another.
        let source = known.into_iter().map(|position| position.source).find(|source| !source.is_empty());
        let source = shared.clone().or(source).unwrap_or_else(|| self.id.clone());
        let kafka = self.connection.open().await?;
        self.check_topics(&kafka).await?;
        // Requests of the group do not wait behind fetches, which brokers hold back.
        let fetching = self.connection.open().await?;
        let membership = match shared {
            Some(_) => take_slots(kafka.clone(), self.group_settings(group.clone(), host), host.slots),
            None => join(kafka.clone(), self.group_settings(group.clone(), host)),
        };
        let time = match self.beginning {
            Beginning::At(time) => Some(time),
            Beginning::Earliest | Beginning::Latest => None,
        };
        let starts = Starts {
            lookup: Lookup::new(kafka, self.fetching.committed, time),
            group,
            name: host.node.clone(),
            source,
            beginning: self.beginning,
            on_gap: self.on_gap,
        };
        let offsets = Offsets::new(membership.clone(), starts.signature());
        let commits = Commits::new(offsets.clone(), self.commit.0, self.commit.1);
        let reader = PartitionReader::new(
            Arc::new(starts),
            membership,
            offsets,
            Box::new(Fetches::new(fetching, self.fetching.clone())),
        );
        Ok(OpenedSource::new(Box::new(reader), Box::new(commits)))
    }
}
