//! Rebalances: joining a group, and distributing its partitions if this member leads it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use anabranch_record::text::Str;
use bytes::{Bytes, BytesMut};
use krafka::__private::protocol as wire;
use krafka::error::ErrorCode;
use tokio::time::{Instant, sleep};
use wire::ApiKey;

use super::TopicPartition;
use super::assignor::{self, Assignment, RANGE, STICKY};
use super::coordinator::Api;
use super::member::{Ended, Group};
use super::topics::counts;

/// From version 9 on, the coordinator tells a static member that returns that it leads the group (KIP-814).
const JOIN: Api = Api(ApiKey::JoinGroup, 5, 9);
const SYNC: Api = Api(ApiKey::SyncGroup, 3, 5);

/// Type of the protocol of consumers.
const CONSUMER: &str = "consumer";
/// Additional time for the answer to a join, which the coordinator holds back until all members have joined.
const SLACK: Duration = Duration::from_secs(5);
/// Maximum time for which the coordinator holds back an answer. A rebalance takes as long as its slowest member may take.
const HELD: Duration = Duration::from_secs(3600);

/// Time after which a log line says that a rebalance lasts.
const SLOW: Duration = Duration::from_secs(5);

/// The result of a rebalance.
pub(super) struct Rebalanced {
    pub(super) assigned: BTreeSet<TopicPartition>,
    /// True if members give up everything before the next rebalance.
    pub(super) eager: bool,
    /// The topics of all members and the numbers of their partitions, if this member leads the group: it watches them.
    pub(super) counts: Option<(BTreeSet<String>, BTreeMap<String, i32>)>,
}

impl Group {
    /// Joins the group and receives the partitions of this member.
    pub(super) async fn rebalance(&self) -> Result<Rebalanced, Ended> {
        let topics = match self.settings.subscription.topics(&self.kafka).await {
            Ok(topics) => topics,
            Err(error) => {
                let known = self.state().topics.clone();
                // A rebalance does not wait for a slow broker.
                if known.is_empty() { return Err(Ended::Failed(error)) } else { known }
            }
        };
        self.state().topics.clone_from(&topics);
        let joined = {
            let mut joining = pin!(self.ask_to_join(&topics));
            tokio::select! {
                joined = &mut joining => joined?,
                () = sleep(SLOW) => {
                    tracing::info!(
                        group = %self.settings.group,
                        "the source waits for its consumer group: all members join again, and a member that has crashed \
                         counts until its session is over (sessionTimeout)"
                    );
                    joining.await?
                }
            }
        };
        let eager = joined.protocol_name.as_deref() != Some(STICKY);
        let (assignment, counts) = match joined.leader == joined.member_id {
            true => self.assign(&joined, eager).await.map(|(assignment, counts)| (assignment, Some(counts)))?,
            false => (Assignment::new(), None),
        };
        let assignments = assignment.into_iter().map(|(member_id, partitions)| {
            let assignment = encoded(&partitions)?;
            Ok(wire::SyncGroupRequestAssignment { member_id, assignment })
        });
        let request = wire::SyncGroupRequest {
            group_id: self.settings.group.to_string(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            group_instance_id: self.settings.instance.as_ref().map(Str::to_string),
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: joined.protocol_name.clone(),
            assignments: assignments.collect::<krafka::Result<_>>().map_err(Ended::Failed)?,
        };
        let answer: wire::SyncGroupResponse = self.held(self.coordinator.ask_held(SYNC, &request, HELD)).await?;
        self.judge(answer.error_code)?;
        let assigned = wire::decode_consumer_protocol_assignment(&answer.assignment).map_err(Ended::Failed)?;
        Ok(Rebalanced { assigned: flat(&assigned.assigned_partitions), eager, counts })
    }

    async fn ask_to_join(&self, topics: &BTreeSet<String>) -> Result<wire::JoinGroupResponse, Ended> {
        loop {
            if self.state().left {
                // This task is about to be ended.
                std::future::pending::<()>().await;
            }
            let (member, generation, owned) = {
                let mut state = self.state();
                state.naming = state.member.is_empty() && self.settings.instance.is_none();
                (state.member.clone(), state.generation, state.owned.keys().cloned().collect())
            };
            let mut subscription = wire::ConsumerProtocolSubscription::new(topics.iter().cloned().collect());
            // Version 2 names the generation in which the partitions are owned.
            subscription.version = 2;
            subscription.owned_partitions = by_topic(&owned);
            subscription.generation_id = generation;
            let mut metadata = BytesMut::new();
            wire::encode_consumer_protocol_subscription(&subscription, &mut metadata).map_err(Ended::Failed)?;
            let metadata = metadata.freeze();
            let protocol =
                |name: &str| wire::JoinGroupRequestProtocol { name: name.to_owned(), metadata: metadata.clone() };
            let millis = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
            // Without an id, no heartbeat shows whether the coordinator is still there.
            let wait = if member.is_empty() { self.settings.rebalance + SLACK } else { HELD };
            let request = wire::JoinGroupRequest {
                group_id: self.settings.group.to_string(),
                session_timeout_ms: millis(self.settings.session),
                rebalance_timeout_ms: millis(self.settings.rebalance),
                member_id: member,
                group_instance_id: self.settings.instance.as_ref().map(Str::to_string),
                protocol_type: CONSUMER.to_owned(),
                protocols: vec![protocol(STICKY), protocol(RANGE)],
                reason: None,
            };
            let asked = self.coordinator.ask_held::<_, wire::JoinGroupResponse>(JOIN, &request, wait);
            let answer = self.held(asked).await;
            let answer = {
                let mut state = self.state();
                state.naming = false;
                if let Ok(answer) = &answer
                    && matches!(answer.error_code, ErrorCode::None | ErrorCode::MemberIdRequired)
                {
                    state.member.clone_from(&answer.member_id);
                    state.beat = Instant::now();
                    if answer.error_code.is_ok() {
                        state.generation = answer.generation_id;
                    }
                }
                self.named.notify_waiters();
                answer?
            };
            if answer.error_code != ErrorCode::MemberIdRequired {
                self.judge(answer.error_code)?;
                return Ok(answer);
            }
        }
    }

    /// Distributes the partitions, as the leader of the group.
    async fn assign(
        &self,
        joined: &wire::JoinGroupResponse,
        eager: bool,
    ) -> Result<(Assignment, (BTreeSet<String>, BTreeMap<String, i32>)), Ended> {
        let mut members = BTreeMap::new();
        for member in &joined.members {
            let said = wire::decode_consumer_protocol_subscription(&member.metadata).map_err(Ended::Failed)?;
            let described = assignor::Member {
                topics: said.topics.into_iter().collect(),
                owned: flat(&said.owned_partitions),
                // Members of versions before 2 say nothing of their generation; the sticky assignor of Java puts it into
                // the user data. Their claims are those of the last generation.
                generation: if said.generation_id < 0 { joined.generation_id - 1 } else { said.generation_id },
                instance: member.group_instance_id.clone(),
            };
            members.insert(member.member_id.clone(), described);
        }
        let topics: BTreeSet<String> = members.values().flat_map(|member| &member.topics).cloned().collect();
        let counts = counts(&self.kafka, &topics).await.map_err(Ended::Failed)?;
        let assignment = match (joined.skip_assignment, eager) {
            (true, _) => Assignment::new(),
            (false, true) => assignor::range(&members, &counts),
            (false, false) => assignor::sticky(&members, &counts),
        };
        Ok((assignment, (topics, counts)))
    }
}

fn by_topic(partitions: &BTreeSet<TopicPartition>) -> Vec<wire::ConsumerProtocolTopicPartitions> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(at.partition);
    }
    let topics = topics.into_iter();
    topics
        .map(|(topic, partitions)| wire::ConsumerProtocolTopicPartitions { topic: topic.to_owned(), partitions })
        .collect()
}

fn flat(topics: &[wire::ConsumerProtocolTopicPartitions]) -> BTreeSet<TopicPartition> {
    let partitions = |topic: &wire::ConsumerProtocolTopicPartitions| {
        let name = Str::from(topic.topic.as_str());
        topic.partitions.clone().into_iter().map(move |partition| TopicPartition { topic: name.clone(), partition })
    };
    topics.iter().flat_map(partitions).collect()
}

fn encoded(partitions: &BTreeSet<TopicPartition>) -> krafka::Result<Bytes> {
    let assignment =
        wire::ConsumerProtocolAssignment { version: 1, assigned_partitions: by_topic(partitions), user_data: None };
    let mut buffer = BytesMut::new();
    wire::encode_consumer_protocol_assignment(&assignment, &mut buffer)?;
    Ok(buffer.freeze())
}
