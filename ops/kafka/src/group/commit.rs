//! Offsets of a group: what it has committed, and commits of a member.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use krafka::__private::protocol as wire;
use krafka::admin::ListConsumerGroupOffsetsOptions;
use krafka::error::ErrorCode;
use wire::ApiKey;

use super::coordinator::{ANSWER, Api, is_of_coordinator};
use super::member::Group;
use super::{Committed, Tenure, TopicPartition};
use crate::codes;
use crate::fault::{Doing, answered, refused};

/// From version 10 on, topics have ids instead of names.
const COMMIT: Api = Api(ApiKey::OffsetCommit, 7, 9);
/// Time limit for looking up offsets, which an open transaction delays.
const LOOK_UP: Duration = Duration::from_secs(20);

/// Offsets to commit, with the tenures in which their records were read.
pub(super) type Offsets = BTreeMap<TopicPartition, (Tenure, Committed)>;

impl Group {
    /// See [`super::Membership::committed`].
    pub(super) async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Committed>, Fault> {
        let group = &self.settings.group;
        let doing = Doing::Group(group);
        let named = |at: &TopicPartition| krafka::consumer::TopicPartition::new(at.topic.as_str(), at.partition);
        let options = ListConsumerGroupOffsetsOptions::default()
            .require_stable(true)
            .partitions(partitions.iter().map(named).collect::<Vec<_>>())
            .timeout(LOOK_UP);
        let found = self.kafka.admin().list_consumer_group_offsets(group.as_str(), options).await;
        let mut found = found.map_err(|error| refused(&doing, error))?;
        let mut offsets = BTreeMap::new();
        for at in partitions {
            let Some(answer) = found.remove(&named(at)) else {
                let text = format!("{at}: the coordinator of the consumer group {group} did not answer for it");
                return Err(Fault::transient(codes::UNAVAILABLE, text));
            };
            let answer = answer.map_err(|error| refused(&doing, error))?;
            let Some(offset) = answer.offset else { continue };
            let committed = Committed {
                offset,
                leader_epoch: answer.leader_epoch.unwrap_or(-1),
                metadata: answer.metadata.unwrap_or_default().into(),
            };
            offsets.insert(at.clone(), committed);
        }
        Ok(offsets)
    }

    /// Sends one commit. Returns the partitions that must be sent again.
    pub(super) async fn commit_once(&self, offsets: &Offsets) -> Result<Offsets, Fault> {
        let (member, generation, offsets) = {
            let state = self.state();
            let is_owned = |(at, (tenure, _)): &(&TopicPartition, &(Tenure, Committed))| {
                state.owned.get(*at).is_some_and(|owned| owned == tenure)
            };
            let owned = offsets.iter().filter(is_owned);
            let owned: Offsets = owned.map(|(at, offset)| (at.clone(), offset.clone())).collect();
            (state.member.clone(), state.generation, owned)
        };
        if offsets.is_empty() {
            return Ok(offsets);
        }
        let mut topics: BTreeMap<&str, Vec<wire::OffsetCommitRequestPartition>> = BTreeMap::new();
        for (at, (_, committed)) in &offsets {
            topics.entry(&at.topic).or_default().push(wire::OffsetCommitRequestPartition {
                partition_index: at.partition,
                committed_offset: committed.offset,
                committed_leader_epoch: committed.leader_epoch,
                commit_timestamp: -1,
                committed_metadata: Some(committed.metadata.to_string()),
            });
        }
        let topic = |(name, partitions): (&str, Vec<_>)| wire::OffsetCommitRequestTopic {
            name: name.to_owned(),
            topic_id: None,
            partitions,
        };
        let request = wire::OffsetCommitRequest {
            group_id: self.settings.group.to_string(),
            generation_id: generation,
            member_id: member,
            group_instance_id: self.settings.instance.as_ref().map(Str::to_string),
            retention_time_ms: -1,
            topics: topics.into_iter().map(topic).collect(),
        };
        let doing = Doing::Group(&self.settings.group);
        let answer: wire::OffsetCommitResponse = match self.coordinator.ask(COMMIT, &request, ANSWER).await {
            Ok(answer) => answer,
            Err(error) => {
                let fault = refused(&doing, error);
                return if fault.class() == FaultClass::Transient { Ok(offsets) } else { Err(fault) };
            }
        };
        let mut again = Offsets::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let at = TopicPartition { topic: topic.name.as_str().into(), partition: partition.partition_index };
                match partition.error_code {
                    ErrorCode::None => continue,
                    // The next owner reads the records again.
                    ErrorCode::FencedInstanceId => continue,
                    // The topic was deleted.
                    ErrorCode::UnknownTopicOrPartition => continue,
                    // The generation may have ended after it was read. If the tenure continues, the next attempt has the new
                    // one.
                    ErrorCode::RebalanceInProgress
                    | ErrorCode::IllegalGeneration
                    | ErrorCode::StaleMemberEpoch
                    | ErrorCode::UnknownMemberId
                    | ErrorCode::RequestTimedOut => {}
                    code if is_of_coordinator(code) => self.coordinator.forget(),
                    ErrorCode::TopicAuthorizationFailed => {
                        return Err(answered(&Doing::Reading(&at.topic), partition.error_code, ""));
                    }
                    code => return Err(answered(&doing, code, "")),
                }
                again.extend(offsets.get_key_value(&at).map(|(at, offset)| (at.clone(), offset.clone())));
            }
        }
        Ok(again)
    }
}
