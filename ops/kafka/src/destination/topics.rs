//! Topics that the destination writes: whether they exist, and the limits of their batches.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use krafka::admin::{ConfigResource, CreateTopicsOptions, NewTopic};
use krafka::error::ErrorCode;
use krafka::{Kafka, KrafkaError};

use crate::codes;
use crate::fault::{Doing, refused};
use crate::waiting::until_brokers;

/// Pause between two looks for a topic that was just created, and their number.
const LOOK: (Duration, u32) = (Duration::from_millis(50), 200);

/// The setting of a topic: which records the brokers remove.
pub(super) const POLICY: &str = "cleanup.policy";

/// How missing topics are created.
#[derive(Clone)]
pub(super) struct NewTopics {
    /// Number of partitions; 0 = the default of the brokers.
    pub(super) partitions: u32,
    /// Number of replicas; 0 = the default of the brokers.
    pub(super) replicas: u32,
    /// Settings of the topic.
    pub(super) config: BTreeMap<Str, Str>,
}

/// Requirements of a topic on records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demands {
    /// Maximum size of a batch, in bytes; `usize::MAX` if it is unknown.
    pub(super) largest: usize,
    /// True if each record needs a key: the topic is compacted.
    pub(super) keys: bool,
}

/// The topics that exist.
pub(super) struct Topics {
    kafka: Kafka,
    creation: Option<NewTopics>,
    known: HashMap<Box<str>, Demands>,
}

impl Topics {
    pub(super) fn new(kafka: Kafka, creation: Option<NewTopics>) -> Self {
        Topics { kafka, creation, known: HashMap::new() }
    }

    /// Returns the demands of a topic. Creates the topic if it is missing and may be created.
    ///
    /// # Errors
    /// The topic is missing or cannot be created, or the cluster does not answer.
    pub(super) async fn ensure(&mut self, topic: &str) -> Result<Demands, Fault> {
        if let Some(demands) = self.known.get(topic) {
            return Ok(*demands);
        }
        if !self.exists(topic).await? {
            let creation = self.creation.clone().ok_or_else(|| {
                let text = format!("the topic {topic} does not exist, and createTopics is false");
                Fault::fatal(codes::TOPIC_MISSING, text)
            })?;
            self.create(topic, &creation).await?;
        }
        let [largest, policy] = self.settings(topic, ["max.message.bytes", POLICY]).await;
        let demands = Demands {
            largest: largest.and_then(|text| text.parse().ok()).unwrap_or(usize::MAX),
            keys: policy.is_some_and(|policy| policy.contains("compact")),
        };
        self.known.insert(topic.into(), demands);
        Ok(demands)
    }

    /// Forgets which topics exist, because one of them is missing.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Returns `true` if a topic exists.
    ///
    /// # Errors
    /// The cluster does not answer, or a right is missing.
    pub(super) async fn exists(&self, topic: &str) -> Result<bool, Fault> {
        let admin = self.kafka.admin();
        let described = admin.describe_topics([topic], Default::default());
        let described = until_brokers(|| format!("described the topic {topic}"), described).await;
        let described = described.map_err(|error| refused(&Doing::Describing(topic), error))?;
        match described.into_values().next() {
            Some(Ok(_)) => Ok(true),
            None | Some(Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. })) => Ok(false),
            Some(Err(error)) => Err(refused(&Doing::Describing(topic), error)),
        }
    }

    /// Checks that a topic that is missing can be created, if that is wanted. Changes nothing.
    ///
    /// # Errors
    /// The brokers would refuse to create it.
    pub(super) async fn may_create(&self, topic: &str) -> Result<(), Fault> {
        match &self.creation {
            Some(creation) if !self.exists(topic).await? => {
                self.ask_to_create(topic, creation, CreateTopicsOptions::default().validate_only(true)).await
            }
            _ => Ok(()),
        }
    }

    /// Creates a topic, and waits until the brokers know it.
    pub(super) async fn create(&self, topic: &str, creation: &NewTopics) -> Result<(), Fault> {
        self.ask_to_create(topic, creation, CreateTopicsOptions::default()).await?;
        for _ in 0..LOOK.1 {
            if self.exists(topic).await? {
                return Ok(());
            }
            tokio::time::sleep(LOOK.0).await;
        }
        let text = format!("the topic {topic} was created, but the brokers do not know it yet");
        Err(Fault::transient(codes::UNAVAILABLE, text))
    }

    async fn ask_to_create(
        &self,
        topic: &str,
        creation: &NewTopics,
        options: CreateTopicsOptions,
    ) -> Result<(), Fault> {
        let doing = Doing::Creating(topic);
        let or_default = |count: u32| if count == 0 { -1 } else { i32::try_from(count).unwrap_or(i32::MAX) };
        let replicas = i16::try_from(or_default(creation.replicas)).unwrap_or(i16::MAX);
        let mut new =
            NewTopic::new(topic, or_default(creation.partitions), replicas).map_err(|error| refused(&doing, error))?;
        for (name, value) in &creation.config {
            new = new.with_config(name.as_str(), value.as_str());
        }
        let admin = self.kafka.admin();
        let created = until_brokers(|| format!("created the topic {topic}"), admin.create_topics([new], options)).await;
        match created.map_err(|error| refused(&doing, error))?.into_values().next() {
            None | Some(Ok(()) | Err(KrafkaError::Broker { code: ErrorCode::TopicAlreadyExists, .. })) => Ok(()),
            Some(Err(error)) => Err(refused(&doing, error)),
        }
    }

    /// Returns settings of a topic; `None` if the right to read them is missing.
    pub(super) async fn settings<const N: usize>(&self, topic: &str, names: [&str; N]) -> [Option<String>; N] {
        let resource = ConfigResource::topic(topic);
        let admin = self.kafka.admin();
        let answer = admin.describe_configs([resource], Default::default());
        let answer = until_brokers(|| format!("sent the settings of the topic {topic}"), answer).await;
        let entries = answer.ok().and_then(|answer| answer.into_values().next()?.ok()).unwrap_or_default();
        names.map(|name| entries.iter().find(|entry| entry.name == name)?.value.clone())
    }
}
