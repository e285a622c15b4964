//! Look-ups of what decides where partitions start: the offsets of the log and those that the group committed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use krafka::__private::protocol::{
    ApiKey, ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic, ListOffsetsResponse,
    VersionedDecode as _, VersionedEncode as _,
};
use krafka::__private::{kafka_metadata, kafka_pool};
use krafka::admin::{ConfigResource, DescribeConfigsOptions};
use krafka::error::{ErrorCode, ProtocolErrorKind};
use krafka::{Kafka, KrafkaError};
use tokio::time::timeout;

use super::fetch::TopicId;
use crate::codes;
use crate::fault::{Doing, answered, refused};
use crate::group::{Committed, Membership, TopicPartition};

/// Versions of the request. From version 2 on, it says whether open transactions count.
const VERSIONS: (i16, i16) = (2, 7);
/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Timestamps that stand for the end and the beginning of a log.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// What is known of a partition before it is read.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The first offset that exists.
    pub(super) earliest: i64,
    /// The end of the log, with open transactions.
    pub(super) latest: i64,
    /// The end for this source.
    pub(super) end: i64,
    /// The offset of the first record with the wanted timestamp or a later one, if there is one.
    pub(super) at_time: Option<i64>,
    /// The id of the topic, if brokers tell it.
    pub(super) topic: Option<TopicId>,
    /// The offset that the group committed, if there is one.
    pub(super) committed: Option<Committed>,
    /// Whether the same records are read again: the topic is not compacted.
    pub(super) exact: bool,
}

/// Looks up what is known of partitions.
pub(super) struct Lookup {
    kafka: Kafka,
    /// Whether records of open transactions are left out.
    committed_only: bool,
    /// The wanted timestamp, in milliseconds since 1970.
    time: Option<i64>,
    /// Whether topics are replayed exactly.
    exact: Mutex<HashMap<Str, bool>>,
}

/// The results for partitions that one broker leads.
pub(super) type Results = Vec<(TopicPartition, Result<Found, Fault>)>;

impl Lookup {
    pub(super) fn new(kafka: Kafka, committed_only: bool, time: Option<i64>) -> Self {
        Lookup { kafka, committed_only, time, exact: Mutex::default() }
    }

    /// Groups partitions by the brokers that lead them, from a fresh answer of the cluster. A topic that was created again
    /// has another id.
    pub(super) async fn leaders(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<i32, Vec<TopicPartition>>, Fault> {
        let mut partitions: Vec<TopicPartition> = partitions.into_iter().collect();
        partitions.sort_unstable();
        let topics: BTreeSet<Str> = partitions.iter().map(|at| at.topic.clone()).collect();
        let names: Vec<&str> = topics.iter().map(Str::as_str).collect();
        let doing = Doing::Describing(names.first().copied().unwrap_or_default());
        let refreshed = timeout(ANSWER, kafka_metadata(&self.kafka).force_refresh(Some(&names))).await;
        let refreshed = refreshed.unwrap_or_else(|_| Err(KrafkaError::timeout("looking up topics")));
        refreshed.map_err(|error| refused(&doing, error))?;
        let mut leaders: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for at in partitions {
            let leader = kafka_metadata(&self.kafka).leader(&at.topic, at.partition);
            leaders.entry(leader.unwrap_or(-1)).or_default().push(at);
        }
        Ok(leaders)
    }

    /// Looks up partitions that a broker leads.
    pub(super) async fn look(
        &self,
        leader: i32,
        partitions: Vec<TopicPartition>,
        membership: &dyn Membership,
    ) -> Results {
        let at_time = async {
            match self.time {
                Some(time) => self.list(leader, &partitions, time, self.committed_only).await,
                None => partitions.iter().map(|at| (at.clone(), Ok(-1))).collect(),
            }
        };
        let stable = async {
            match self.committed_only {
                true => Some(self.list(leader, &partitions, LATEST, true).await),
                false => None,
            }
        };
        let (mut earliest, mut latest, stable, mut at_time, committed) = futures::join!(
            self.list(leader, &partitions, EARLIEST, false),
            self.list(leader, &partitions, LATEST, false),
            stable,
            at_time,
            membership.committed(&partitions),
        );
        let mut end = stable.unwrap_or_else(|| latest.clone());
        let mut results = Results::new();
        for at in &partitions {
            let take = |from: &mut BTreeMap<TopicPartition, Result<i64, Fault>>| {
                from.remove(at).unwrap_or_else(|| Err(silent(at)))
            };
            let found = async {
                let existing = |offset: i64| if offset < 0 { Err(silent(at)) } else { Ok(offset) };
                Ok(Found {
                    earliest: take(&mut earliest).and_then(existing)?,
                    latest: take(&mut latest).and_then(existing)?,
                    end: take(&mut end).and_then(existing)?,
                    at_time: Some(take(&mut at_time)?).filter(|offset| *offset >= 0),
                    topic: kafka_metadata(&self.kafka)
                        .topic_id_for_name(&at.topic)
                        .filter(|id| *id != TopicId::default()),
                    committed: committed.clone()?.remove(at),
                    exact: self.is_exact(&at.topic).await?,
                })
            };
            results.push((at.clone(), found.await));
        }
        results
    }

    /// Returns the ends of partitions for this source. Those that cannot be looked up now are absent.
    pub(super) async fn ends(&self, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, i64> {
        let Ok(leaders) = self.leaders(partitions).await else { return BTreeMap::new() };
        let ask = async |(leader, partitions): (i32, Vec<TopicPartition>)| {
            self.list(leader, &partitions, LATEST, self.committed_only).await
        };
        let answers = futures::future::join_all(leaders.into_iter().map(ask)).await;
        let known = |(at, end): (TopicPartition, Result<i64, Fault>)| Some((at, end.ok().filter(|end| *end >= 0)?));
        answers.into_iter().flatten().filter_map(known).collect()
    }

    /// Returns the first offset that exists, and the end of the log.
    pub(super) async fn bounds(&self, at: &TopicPartition) -> Result<(i64, i64), Fault> {
        let leaders = self.leaders([at.clone()]).await?;
        let leader = leaders.into_keys().next().unwrap_or(-1);
        let wanted = std::slice::from_ref(at);
        let (mut earliest, mut latest) =
            futures::join!(self.list(leader, wanted, EARLIEST, false), self.list(leader, wanted, LATEST, false));
        let take = |from: &mut BTreeMap<TopicPartition, Result<i64, Fault>>| {
            from.remove(at).unwrap_or_else(|| Err(silent(at)))
        };
        Ok((take(&mut earliest)?, take(&mut latest)?))
    }

    /// Returns the first offsets with a timestamp or a later one; -1 if there is no such record.
    async fn list(
        &self,
        leader: i32,
        partitions: &[TopicPartition],
        timestamp: i64,
        committed: bool,
    ) -> BTreeMap<TopicPartition, Result<i64, Fault>> {
        let answer = timeout(ANSWER, self.ask(leader, partitions, timestamp, committed)).await;
        match answer.unwrap_or_else(|_| Err(KrafkaError::timeout("looking up offsets"))) {
            Ok(answer) => {
                let mut offsets = BTreeMap::new();
                for topic in answer.topics {
                    let name = Str::from(topic.name.as_str());
                    for partition in topic.partitions {
                        let at = TopicPartition { topic: name.clone(), partition: partition.partition_index };
                        let offset = match partition.error_code {
                            ErrorCode::None => Ok(partition.offset),
                            code => Err(answered(&Doing::Reading(&name), code, &at.to_string())),
                        };
                        offsets.insert(at, offset);
                    }
                }
                offsets
            }
            Err(error) => {
                let failed =
                    |at: &TopicPartition| (at.clone(), Err(refused(&Doing::Reading(&at.topic), error.clone())));
                partitions.iter().map(failed).collect()
            }
        }
    }

    async fn ask(
        &self,
        leader: i32,
        partitions: &[TopicPartition],
        timestamp: i64,
        committed: bool,
    ) -> krafka::Result<ListOffsetsResponse> {
        let mut topics: BTreeMap<&str, Vec<ListOffsetsRequestPartition>> = BTreeMap::new();
        for at in partitions {
            let partition =
                ListOffsetsRequestPartition { partition_index: at.partition, current_leader_epoch: -1, timestamp };
            topics.entry(&at.topic).or_default().push(partition);
        }
        let topic = |(name, partitions): (&str, Vec<_>)| ListOffsetsRequestTopic { name: name.to_owned(), partitions };
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: i8::from(committed),
            topics: topics.into_iter().map(topic).collect(),
            timeout_ms: None,
        };
        let broker = kafka_metadata(&self.kafka)
            .broker(leader)
            .ok_or_else(|| KrafkaError::broker(ErrorCode::LeaderNotAvailable, "the partition has no leader"))?;
        let connection = kafka_pool(&self.kafka).get_connection_by_id(leader, broker.address()).await?;
        let version =
            connection.negotiate_api_version(ApiKey::ListOffsets, VERSIONS.1, VERSIONS.0).ok_or_else(|| {
                KrafkaError::protocol_kind(
                    ProtocolErrorKind::UnknownApiVersion,
                    "the broker does not support ListOffsets 2 to 7",
                )
            })?;
        let asked =
            connection.send_request(ApiKey::ListOffsets, version, |buffer| request.encode_versioned(version, buffer));
        ListOffsetsResponse::decode_versioned(version, &mut asked.await?)
    }

    /// Returns `true` if a topic is not compacted, so that the same records are read again.
    async fn is_exact(&self, topic: &Str) -> Result<bool, Fault> {
        let known = self.exact.lock().unwrap_or_else(PoisonError::into_inner).get(topic).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let doing = Doing::Describing(topic);
        let options = DescribeConfigsOptions::default().timeout(ANSWER);
        let resource = ConfigResource::topic(topic.as_str());
        let answer = self.kafka.admin().describe_configs([resource], options).await;
        let answer = answer.and_then(|answer| answer.into_values().next().transpose());
        let exact = match answer.map_err(|error| refused(&doing, error)) {
            Ok(entries) => {
                let mut entries = entries.into_iter().flatten();
                let policy = entries.find(|entry| entry.name == "cleanup.policy").and_then(|entry| entry.value);
                policy.is_some_and(|policy| !policy.contains("compact"))
            }
            Err(fault) if fault.class() == FaultClass::Transient => return Err(fault),
            // Without the right to read the setting, nothing is promised.
            Err(_) => false,
        };
        self.exact.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), exact);
        Ok(exact)
    }
}

fn silent(at: &TopicPartition) -> Fault {
    Fault::transient(codes::UNAVAILABLE, format!("{at}: the broker did not answer"))
}
