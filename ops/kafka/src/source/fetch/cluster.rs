//! The brokers of a cluster, as fetching needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use krafka::__private::protocol::{ApiKey, FetchRequest, FetchResponse, VersionedDecode as _, VersionedEncode as _};
use krafka::__private::{kafka_metadata, kafka_pool};
use krafka::error::{ErrorCode, ProtocolErrorKind};
use krafka::{Kafka, KrafkaError};

use super::TopicId;
use crate::group::TopicPartition;

/// Versions of the request that name topics. From 11 on, a request has the rack of the client; from 12 on, the epoch of
/// the last record that was fetched.
const NAMES: (i16, i16) = (4, 12);
/// The last version that is used. From 13 on, topics have ids, so that a topic that was created again is another one.
const IDS: i16 = 16;

/// Where a partition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Location {
    /// The broker that leads the partition, and the epoch of its leadership; -1 if unknown.
    pub(super) leader: Option<(i32, i32)>,
    /// The id of the topic, if brokers tell it.
    pub(super) topic: Option<TopicId>,
}

/// What fetching asks of a cluster.
#[async_trait]
pub(super) trait Brokers: Send + Sync + 'static {
    /// Looks up where partitions are. If the look-up fails, the last known places are returned.
    async fn locate(&self, partitions: &BTreeSet<TopicPartition>) -> BTreeMap<TopicPartition, Location>;

    /// Returns the last known place of a partition. By default, none is known.
    fn known(&self, _at: &TopicPartition) -> Location {
        Location::default()
    }

    /// Returns `true` if the address of a broker is known.
    fn knows(&self, broker: i32) -> bool;

    /// Sends a request to a broker. Topics of the request have a name, and an id if it is known; those of the answer have
    /// a name.
    async fn fetch(&self, broker: i32, request: FetchRequest) -> krafka::Result<FetchResponse>;
}

/// A cluster of Kafka.
pub(super) struct Cluster {
    pub(super) kafka: Kafka,
}

#[async_trait]
impl Brokers for Cluster {
    async fn locate(&self, partitions: &BTreeSet<TopicPartition>) -> BTreeMap<TopicPartition, Location> {
        let topics: BTreeSet<&str> = partitions.iter().map(|at| at.topic.as_str()).collect();
        let topics: Vec<&str> = topics.into_iter().collect();
        let _ = kafka_metadata(&self.kafka).force_refresh(Some(&topics)).await;
        partitions.iter().map(|at| (at.clone(), self.known(at))).collect()
    }

    fn known(&self, at: &TopicPartition) -> Location {
        let metadata = kafka_metadata(&self.kafka);
        let leader = metadata.leader(&at.topic, at.partition).filter(|leader| *leader >= 0);
        let epoch = metadata.leader_epoch(&at.topic, at.partition).unwrap_or(-1);
        let topic = metadata.topic_id_for_name(&at.topic).filter(|id| *id != TopicId::default());
        Location { leader: leader.map(|leader| (leader, epoch)), topic }
    }

    fn knows(&self, broker: i32) -> bool {
        kafka_metadata(&self.kafka).broker(broker).is_some()
    }

    async fn fetch(&self, broker: i32, request: FetchRequest) -> krafka::Result<FetchResponse> {
        let known = kafka_metadata(&self.kafka)
            .broker(broker)
            .ok_or_else(|| KrafkaError::broker(ErrorCode::BrokerNotAvailable, "the broker is not known"))?;
        let connection = kafka_pool(&self.kafka).get_connection_by_id(broker, known.address()).await?;
        let latest = if request.topics.iter().all(|topic| topic.topic_id.is_some()) { IDS } else { NAMES.1 };
        let version = connection.negotiate_api_version(ApiKey::Fetch, latest, NAMES.0).ok_or_else(|| {
            KrafkaError::protocol_kind(
                ProtocolErrorKind::UnknownApiVersion,
                "the broker does not support Fetch 4 to 16",
            )
        })?;
        let mut answer =
            connection.send_request(ApiKey::Fetch, version, |buffer| request.encode_versioned(version, buffer)).await?;
        let mut answer = FetchResponse::decode_versioned(version, &mut answer)?;
        if version > NAMES.1 {
            for topic in &mut answer.responses {
                let asked = request.topics.iter().find(|asked| asked.topic_id == topic.topic_id);
                topic.topic = asked.map(|asked| asked.topic.clone()).unwrap_or_default();
            }
        }
        Ok(answer)
    }
}

/// Returns the time as the protocol has it.
pub(super) fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
