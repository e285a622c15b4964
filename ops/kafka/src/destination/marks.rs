//! Marks in a compacted topic: the newest message of each key is the mark of a lane, and null removes it.
//!
//! The key is the JSON list `["anabranch", 1, transactional id, connector, partition]`. The value is a JSON object with
//! `generation`, `seq` and `position` in base64. The key `["anabranch", 1, transactional id]` has the [`Run`] that uses the
//! transactional id, as a JSON object with `run`. All messages are in the partition 0, so that they have one order.

use std::collections::{BTreeMap, HashMap};
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

/// The topic of the marks, for one transactional id.
#[derive(Clone)]
pub(super) struct MarksTopic {
    topic: String,
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

    /// Returns the message that stores the run that uses the transactional id.
    pub(super) fn claim(&self, run: &Run) -> Result<krafka::Record, Fault> {
        let value = serde_json::to_vec(run).map_err(|error| Fault::fatal(codes::FORMAT_FAILED, error))?;
        // A list of texts and a number always has a JSON form.
        let key = serde_json::to_vec(&(OWNER, VERSION, self.id.as_str())).unwrap_or_default();
        Ok(krafka::Record::new(self.topic.as_str(), value).key(key).partition(PARTITION))
    }

    fn is_claim(&self, key: &[u8]) -> bool {
        let parsed = serde_json::from_slice::<(&str, u32, String)>(key);
        parsed.is_ok_and(|(owner, version, id)| owner == OWNER && version == VERSION && id == self.id)
    }

    fn key(&self, lane: &LaneId) -> Bytes {
        let key = (OWNER, VERSION, self.id.as_str(), lane.connector.as_str(), lane.partition.0.as_str());
        // A list of texts and a number always has a JSON form.
        Bytes::from(serde_json::to_vec(&key).unwrap_or_default())
    }

    /// Returns the lane of a key, if it belongs to this transactional id.
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

    /// Reads all marks, up to the end that the topic has at the start of the call.
    ///
    /// Call it after the transactional id was initialised: then no transaction of an earlier run is open. Transactions of
    /// other pipelines that are open delay it until they end.
    ///
    /// # Errors
    /// The topic cannot be read, or a mark is damaged.
    pub(super) async fn read(&self, kafka: &Kafka) -> Result<HashMap<LaneId, Mark>, Fault> {
        let mut marks = HashMap::new();
        self.scan(kafka, IsolationLevel::ReadCommitted, |key, value| {
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
        Ok(marks)
    }

    /// Returns the last run that took over the transactional id, or was about to. Waits for no transaction.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub(super) async fn user(&self, kafka: &Kafka) -> Result<Option<Run>, Fault> {
        let mut user = None;
        self.scan(kafka, IsolationLevel::ReadUncommitted, |key, value| {
            if self.is_claim(key) {
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
            let claim = topic.claim(&Run::new()).unwrap().key.unwrap();
            prop_assert!(topic.is_claim(&claim) && topic.lane(&claim).is_none() && !other.is_claim(&claim));
        }
    }
}
