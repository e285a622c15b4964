//! Examination of topics for `anabranch doctor`: rights, replicas, and settings that endanger records.

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use krafka::admin::{AdminClient, ConfigResource, TopicDescription};
use krafka::error::ErrorCode;
use krafka::{Kafka, KrafkaError};

use crate::fault::{Doing, answered, refused};

/// The setting of a topic: replicas that must have a record before it counts as written.
const MIN_IN_SYNC: &str = "min.insync.replicas";

/// How a connector uses a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The source reads it.
    Read,
    /// The destination writes it.
    Write {
        /// True if the destination creates the topic if it is missing.
        creates: bool,
    },
}

impl Purpose {
    /// Returns the bit of the operation among those that a broker reports as authorised. Source: the codes of
    /// `org.apache.kafka.common.acl.AclOperation`.
    fn bit(self) -> i32 {
        match self {
            Purpose::Read => 1 << 3,
            Purpose::Write { .. } => 1 << 4,
        }
    }
}

/// Examines topics, and returns warnings. Changes nothing.
///
/// # Errors
/// The cluster does not answer, a topic is missing, or a right is missing.
pub(crate) async fn topics(kafka: &Kafka, names: &[Str], purpose: Purpose) -> Result<Vec<String>, Fault> {
    let admin = kafka.admin();
    let mut warnings = Vec::new();
    if names.is_empty() {
        return Ok(warnings);
    }
    let all = names.join(", ");
    let mut found = admin
        .describe_topics(names.iter().map(Str::as_str), Default::default())
        .await
        .map_err(|error| refused(&Doing::Describing(&all), error))?;
    for name in names {
        let Some(description) = found.remove(name.as_str()) else { continue };
        match description {
            Ok(topic) => {
                if topic.authorized_operations.is_some_and(|operations| operations & purpose.bit() == 0) {
                    let doing = match purpose {
                        Purpose::Read => Doing::Reading(name),
                        Purpose::Write { .. } => Doing::Writing(name),
                    };
                    return Err(answered(&doing, ErrorCode::TopicAuthorizationFailed, ""));
                }
                warnings.extend(without_leader(&topic));
                if matches!(purpose, Purpose::Write { .. }) {
                    warnings.extend(replication(&topic, min_in_sync(&admin, name).await));
                }
            }
            Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. })
                if purpose == (Purpose::Write { creates: true }) =>
            {
                warnings.push(format!("the topic {name} does not exist; the destination creates it"));
            }
            Err(error) => return Err(refused(&Doing::Describing(name), error)),
        }
    }
    Ok(warnings)
}

/// Returns `min.insync.replicas` of a topic; `None` if the broker does not tell.
async fn min_in_sync(admin: &AdminClient, topic: &Str) -> Option<usize> {
    let resource = ConfigResource::topic(topic.as_str());
    let answer = admin.describe_configs([resource], Default::default()).await.ok()?;
    let entries = answer.into_values().next()?.ok()?;
    entries.iter().find(|entry| entry.name == MIN_IN_SYNC)?.value.as_ref()?.parse().ok()
}

/// Warns of partitions that cannot be read or written now.
fn without_leader(topic: &TopicDescription) -> Option<String> {
    let count = topic.partitions.iter().filter(|partition| partition.leader.is_none()).count();
    let (partitions, have) = if count == 1 { ("partition", "has") } else { ("partitions", "have") };
    (count > 0).then(|| format!("the topic {}: {count} {partitions} {have} no leader", topic.name))
}

/// Warns of a topic of which a single broker may lose records although it confirmed them.
fn replication(topic: &TopicDescription, min_in_sync: Option<usize>) -> Option<String> {
    let name = &topic.name;
    let replicas = topic.partitions.iter().map(|partition| partition.replicas.len()).min()?;
    let in_sync = topic.partitions.iter().map(|partition| partition.isr.len()).min()?;
    if replicas == 1 {
        return Some(format!("the topic {name} has one replica: records are lost with the disk of one broker"));
    }
    match min_in_sync {
        Some(least) if in_sync < least => Some(format!(
            "the topic {name} cannot be written: {in_sync} replicas are in sync, and {MIN_IN_SYNC} is {least}"
        )),
        Some(1) => Some(format!(
            "{MIN_IN_SYNC} of the topic {name} is 1: a record may count as written while only one broker has it"
        )),
        _ => None,
    }
}
