//! Marks in a compacted topic: the newest message of each key is the mark of a lane, and null removes it.
//!
//! The key is the JSON list `["anabranch", 1, id, connector, partition]`. The value is a JSON object with `generation`, `seq`
//! and `position` in base64. `id` is the transactional id of a pipeline that is not split. Units of a split pipeline have ids
//! of their own ([`KafkaUnit`]), and store their marks under the same key: so a mark is found whatever the number of slots.
//!
//! The key `["anabranch", 1, transactional id]` has the [`Run`] that uses a transactional id, as a JSON object with `run`, and
//! `retired` if the id must not be used any more. All messages are in the partition 0, so that they have one order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use krafka::Kafka;
use krafka::consumer::IsolationLevel;
use serde::{Deserialize, Serialize};

use super::topics::{NewTopics, POLICY, Topics};
use super::units::KafkaUnit;
use crate::codes;
use crate::fault::{Doing, refused};
use crate::waiting::until_brokers;

/// The partition of all marks.
const PARTITION: i32 = 0;
/// Version of the form of keys and values.
const VERSION: u32 = 1;
const OWNER: &str = "anabranch";
/// Time for one poll.
const POLL: Duration = Duration::from_millis(500);
/// Time without progress after which reading is given up. A transaction of another pipeline may delay it until the
/// transaction times out.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Serialize, Deserialize)]
struct StoredMark {
    generation: u64,
    seq: u64,
    position: String,
}

/// A run that uses a transactional id. Another run that takes the id over stores its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    run: String,
}

impl Run {
    /// Creates a run that differs from all others.
    pub(super) fn new() -> Run {
        Run { run: format!("{:032x}", fastrand::u128(..)) }
    }
}

/// The use of a transactional id, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredClaim {
    #[serde(flatten)]
    run: Run,
    /// True if the run has fenced the producer of the id and does not use it: the pipeline has another number of slots.
    #[serde(default, rename = "retired", skip_serializing_if = "std::ops::Not::not")]
    is_retired: bool,
}

impl StoredClaim {
    /// Returns the claim of a run that uses an id.
    pub(super) fn of(run: &Run) -> StoredClaim {
        StoredClaim { run: run.clone(), is_retired: false }
    }

    /// Returns the claim of a run that retires an id.
    pub(super) fn retired(run: &Run) -> StoredClaim {
        StoredClaim { run: run.clone(), is_retired: true }
    }
}

/// The units with another number of slots than `of`, by the claims of the topic.
#[derive(Default)]
struct Rivals {
    of: u32,
    units: BTreeSet<KafkaUnit>,
}

impl Rivals {
    fn note(&mut self, unit: KafkaUnit, claim: Option<&[u8]>) {
        let claim = claim.and_then(|value| serde_json::from_slice::<StoredClaim>(value).ok());
        match claim.is_some_and(|claim| !claim.is_retired) && unit.of != self.of {
            true => self.units.insert(unit),
            false => self.units.remove(&unit),
        };
    }
}

/// The content of the topic.
pub(super) struct StoredMarks {
    pub(super) marks: HashMap<LaneId, Mark>,
    /// Units of another number of slots whose ids are in use.
    pub(super) rivals: BTreeSet<KafkaUnit>,
}

/// The topic of the marks, for a pipeline and a destination.
#[derive(Clone)]
pub(super) struct MarksTopic {
    topic: String,
    /// The transactional id of a pipeline that is not split.
    id: String,
}

impl MarksTopic {
    pub(super) fn new(topic: &str, id: &str) -> Self {
        MarksTopic { topic: topic.to_owned(), id: id.to_owned() }
    }

    /// Returns the name of the topic.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns the transactional id of a pipeline that is not split.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Creates the topic if it is missing, and checks that it is compacted: otherwise the brokers would remove marks.
    ///
    /// # Errors
    /// The topic cannot be created or read, or is not compacted.
    pub(super) async fn prepare(&self, kafka: &Kafka) -> Result<(), Fault> {
        let mut topics = MarksTopic::topics(kafka);
        topics.ensure(&self.topic).await?;
        self.check_policy(&topics).await
    }

    /// Checks what [`MarksTopic::prepare`] needs, without changing anything. Returns `true` if the topic exists.
    ///
    /// # Errors
    /// The topic could not be created or read, or is not compacted.
    pub(super) async fn examine(&self, kafka: &Kafka) -> Result<bool, Fault> {
        let topics = MarksTopic::topics(kafka);
        match topics.exists(&self.topic).await? {
            true => self.check_policy(&topics).await.map(|()| true),
            false => topics.may_create(&self.topic).await.map(|()| false),
        }
    }

    fn topics(kafka: &Kafka) -> Topics {
        let config = BTreeMap::from([(POLICY.into(), "compact".into())]);
        Topics::new(kafka.clone(), Some(NewTopics { partitions: 1, replicas: 0, config }))
    }

    async fn check_policy(&self, topics: &Topics) -> Result<(), Fault> {
        let [policy] = topics.settings(&self.topic, [POLICY]).await;
        match policy {
            Some(policy) if policy.trim() == "compact" => Ok(()),
            Some(policy) => {
                let text = format!(
                    "the topic {} has {POLICY}={policy}: the brokers would remove the positions of sources in it",
                    self.topic
                );
                Err(Fault::fatal(codes::MARKS_TOPIC_NOT_COMPACTED, text))
            }
            None => {
                let text = format!(
                    "{POLICY} of the topic {} cannot be read: the right DescribeConfigs on the topic is missing",
                    self.topic
                );
                Err(Fault::fatal(codes::NOT_AUTHORISED, text).of_login())
            }
        }
    }

    /// Returns the message that stores a mark.
    pub(super) fn store(&self, lane: &LaneId, mark: &Mark) -> Result<krafka::Record, Fault> {
        let stored =
            StoredMark { generation: mark.generation, seq: mark.seq, position: STANDARD.encode(&mark.position.0) };
        let value = serde_json::to_vec(&stored).map_err(|error| Fault::fatal(codes::FORMAT_FAILED, error))?;
        Ok(krafka::Record::new(self.topic.as_str(), value).key(self.key(lane)).partition(PARTITION))
    }

    /// Returns the message that removes the mark of a lane.
    pub(super) fn remove(&self, lane: &LaneId) -> krafka::Record {
        krafka::Record::tombstone(self.topic.as_str(), self.key(lane)).partition(PARTITION)
    }

    /// Returns the message that stores the claim of the transactional id of a unit.
    pub(super) fn claim(&self, unit: KafkaUnit, claim: &StoredClaim) -> Result<krafka::Record, Fault> {
        let value = serde_json::to_vec(claim).map_err(|error| Fault::fatal(codes::FORMAT_FAILED, error))?;
        // A list of texts and a number always has a JSON form.
        let key = serde_json::to_vec(&(OWNER, VERSION, unit.id(&self.id))).unwrap_or_default();
        Ok(krafka::Record::new(self.topic.as_str(), value).key(key).partition(PARTITION))
    }

    /// Returns the unit of the key of a claim, if it is of this pipeline and destination.
    fn claimed(&self, key: &[u8]) -> Option<KafkaUnit> {
        let (owner, version, id): (&str, u32, String) = serde_json::from_slice(key).ok()?;
        (owner == OWNER && version == VERSION).then(|| KafkaUnit::of_id(&id, &self.id)).flatten()
    }

    fn key(&self, lane: &LaneId) -> Bytes {
        let key = (OWNER, VERSION, self.id.as_str(), lane.connector.as_str(), lane.partition.0.as_str());
        // A list of texts and a number always has a JSON form.
        Bytes::from(serde_json::to_vec(&key).unwrap_or_default())
    }

    /// Returns the lane of a key, if it belongs to this pipeline and destination.
    fn lane(&self, key: &[u8]) -> Option<LaneId> {
        let (owner, version, id, connector, partition): (&str, u32, String, String, String) =
            serde_json::from_slice(key).ok()?;
        (owner == OWNER && version == VERSION && id == self.id)
            .then(|| LaneId { connector: connector.into(), partition: Partition(partition.into()) })
    }

    fn mark(&self, lane: &LaneId, value: &[u8]) -> Result<Mark, Fault> {
        let damaged = || {
            let text =
                format!("the topic {} contains a damaged position of the connector {}", self.topic, lane.connector);
            Fault::fatal(codes::DATA_DAMAGED, text)
        };
        let StoredMark { generation, seq, position } = serde_json::from_slice(value).map_err(|_| damaged())?;
        let position = STANDARD.decode(position).map_err(|_| damaged())?;
        Ok(Mark { generation, seq, position: Position::copy_from(&position) })
    }

    /// Reads all marks, up to the end that the topic has at the start of the call, and the claims of units of another number
    /// of slots than `of`.
    ///
    /// Call it after the transactional ids were initialised: then no transaction of an earlier run is open. Transactions of
    /// other pipelines and units that are open delay it until they end.
    ///
    /// # Errors
    /// The topic cannot be read, or a mark is damaged.
    pub(super) async fn read(&self, kafka: &Kafka, of: u32) -> Result<StoredMarks, Fault> {
        let (mut marks, mut rivals) = (HashMap::new(), Rivals { of, ..Rivals::default() });
        self.scan(kafka, IsolationLevel::ReadCommitted, |key, value| {
            if let Some(unit) = self.claimed(key) {
                rivals.note(unit, value);
            }
            let Some(lane) = self.lane(key) else { return Ok(()) };
            match value {
                Some(value) => {
                    let mark = self.mark(&lane, value)?;
                    marks.insert(lane, mark);
                }
                None => {
                    marks.remove(&lane);
                }
            }
            Ok(())
        })
        .await?;
        Ok(StoredMarks { marks, rivals: rivals.units })
    }

    /// Returns the units of another number of slots than `of` whose transactional ids are in use, or were about to be. Waits
    /// for no transaction.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub(super) async fn rivals(&self, kafka: &Kafka, of: u32) -> Result<BTreeSet<KafkaUnit>, Fault> {
        let mut rivals = Rivals { of, ..Rivals::default() };
        self.scan(kafka, IsolationLevel::ReadUncommitted, |key, value| {
            if let Some(unit) = self.claimed(key) {
                rivals.note(unit, value);
            }
            Ok(())
        })
        .await?;
        Ok(rivals.units)
    }

    /// Returns the last run that took over the transactional id of a unit, or was about to. Waits for no transaction.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub(super) async fn user(&self, kafka: &Kafka, unit: KafkaUnit) -> Result<Option<Run>, Fault> {
        let mut user = None;
        self.scan(kafka, IsolationLevel::ReadUncommitted, |key, value| {
            if self.claimed(key) == Some(unit) {
                user = value.and_then(|value| serde_json::from_slice(value).ok());
            }
            Ok(())
        })
        .await?;
        Ok(user)
    }

    /// Calls `visit` with the key and the value of each message with a key.
    async fn scan(
        &self,
        kafka: &Kafka,
        isolation: IsolationLevel,
        visit: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), Fault> + Send,
    ) -> Result<(), Fault> {
        let scanning = self.visit(kafka, isolation, visit);
        until_brokers(|| format!("sent the topic {} to its end", self.topic), scanning).await
    }

    async fn visit(
        &self,
        kafka: &Kafka,
        isolation: IsolationLevel,
        mut visit: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), Fault> + Send,
    ) -> Result<(), Fault> {
        let failed = |error| refused(&Doing::Reading(&self.topic), error);
        let consumer = |isolation| {
            let builder = kafka.consumer_without_group().isolation_level(isolation).metrics_push(false);
            builder.max_partition_fetch_bytes(1 << 20).max_poll_records(i32::MAX).build()
        };
        let reading = consumer(isolation).await.map_err(failed)?;
        // The end that a consumer of committed records sees lies before open transactions.
        let all = consumer(IsolationLevel::ReadUncommitted).await.map_err(failed)?;
        let (start, end) = all.fetch_watermarks(&self.topic, PARTITION).await.map_err(failed)?;
        let _ = all.close().await;
        reading.assign(&self.topic, vec![PARTITION]).await.map_err(failed)?;
        reading.seek(&self.topic, PARTITION, start).await.map_err(failed)?;
        let (mut reached, mut progress) = (start, tokio::time::Instant::now());
        while reached < end {
            for record in reading.poll(POLL).await.map_err(failed)? {
                if let Some(key) = &record.key {
                    visit(key, record.value.as_deref())?;
                }
            }
            let position = reading.position(&self.topic, PARTITION).await.unwrap_or(reached);
            if position > reached {
                (reached, progress) = (position, tokio::time::Instant::now());
            } else if progress.elapsed() > PATIENCE {
                let text = format!(
                    "the topic {} cannot be read to its end: a transaction of another producer does not end",
                    self.topic
                );
                return Err(Fault::transient(codes::UNAVAILABLE, text));
            }
        }
        let _ = reading.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn marks_survive_as_messages(
            (id, connector, partition) in (".*", ".*", ".*"),
            (generation, seq) in (any::<u64>(), any::<u64>()),
            position in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let topic = MarksTopic::new("anabranch-marks", &id);
            let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
            let mark = Mark { generation, seq, position: Position::copy_from(&position) };
            let message = topic.store(&lane, &mark).unwrap();
            prop_assert_eq!(topic.lane(message.key.as_deref().unwrap()), Some(lane.clone()));
            prop_assert_eq!(topic.mark(&lane, message.value.as_deref().unwrap()).unwrap(), mark);
            let other = MarksTopic::new("anabranch-marks", &format!("{id}x"));
            prop_assert_eq!(other.lane(&message.key.unwrap()), None);
            prop_assert_eq!(topic.remove(&lane).value, None);
            for of in [1, 8] {
                let unit = KafkaUnit { slot: of - 1, of };
                let claim = topic.claim(unit, &StoredClaim::of(&Run::new())).unwrap().key.unwrap();
                prop_assert!(topic.claimed(&claim) == Some(unit) && topic.lane(&claim).is_none());
                prop_assert_eq!(other.claimed(&claim), None);
            }
            prop_assert_eq!(topic.claimed(&topic.remove(&lane).key.unwrap()), None);
        }
    }

    #[test]
    fn a_claim_of_an_earlier_version_is_one_of_the_whole_pipeline() {
        let topic = MarksTopic::new("anabranch-marks", "anabranch/p/p:out");
        let claimed = topic.claimed(br#"["anabranch",1,"anabranch/p/p:out"]"#);
        assert_eq!(claimed, Some(KafkaUnit { slot: 0, of: 1 }));
        let stored: StoredClaim = serde_json::from_str(r#"{"run":"ab"}"#).unwrap();
        assert!(!stored.is_retired);
        // The earlier version also reads claims of this version, and finds another run than its own.
        let run = Run::new();
        for claim in [StoredClaim::of(&run), StoredClaim::retired(&run)] {
            assert_eq!(serde_json::from_slice::<Run>(&serde_json::to_vec(&claim).unwrap()).unwrap(), run);
        }
        assert_eq!(serde_json::to_string(&StoredClaim::of(&run)).unwrap(), serde_json::to_string(&run).unwrap());
    }

    #[test]
    fn units_of_another_number_of_slots_are_rivals_until_they_are_retired() {
        let run = Run::new();
        let value = |claim: StoredClaim| serde_json::to_vec(&claim).unwrap();
        let (ours, theirs) = (KafkaUnit { slot: 3, of: 8 }, KafkaUnit { slot: 0, of: 1 });
        let mut rivals = Rivals { of: 8, ..Rivals::default() };
        for unit in [ours, theirs] {
            rivals.note(unit, Some(&value(StoredClaim::of(&run))));
        }
        assert_eq!(rivals.units, BTreeSet::from([theirs]));
        rivals.note(theirs, Some(&value(StoredClaim::retired(&run))));
        assert_eq!(rivals.units, BTreeSet::new());
        rivals.note(theirs, Some(&value(StoredClaim::of(&run))));
        assert_eq!(rivals.units, BTreeSet::from([theirs]));
    }
}
