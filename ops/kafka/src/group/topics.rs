//! The topics that a group reads, and their partitions.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_record::text::Str;
use krafka::__private::kafka_metadata;
use krafka::{Kafka, KrafkaError};
use regex::Regex;
use tokio::time::timeout;

use super::coordinator::ANSWER;

/// Topics of the brokers themselves, which a pattern never selects.
const INTERNAL: &str = "__";

/// The topics that a group reads.
#[derive(Clone, Debug)]
pub(crate) enum Subscription {
    /// These.
    Topics(Vec<Str>),
    /// Those whose whole name matches, now and later.
    Pattern(Regex),
}

impl Subscription {
    /// Returns `true` if a topic of this name is read.
    pub(crate) fn selects(&self, name: &str) -> bool {
        match self {
            Subscription::Topics(topics) => topics.iter().any(|topic| topic == name),
            Subscription::Pattern(pattern) => {
                !name.starts_with(INTERNAL) && pattern.find(name).is_some_and(|found| found.len() == name.len())
            }
        }
    }

    /// Returns the topics. Those of a pattern are from a fresh answer of the cluster.
    pub(super) async fn topics(&self, kafka: &Kafka) -> krafka::Result<BTreeSet<String>> {
        match self {
            Subscription::Topics(topics) => Ok(topics.iter().map(Str::to_string).collect()),
            Subscription::Pattern(_) => {
                refresh(kafka, None).await?;
                let all = kafka_metadata(kafka).topics_arc().into_iter();
                let found = all.filter(|topic| !topic.is_internal && self.selects(&topic.name));
                Ok(found.map(|topic| topic.name.clone()).collect())
            }
        }
    }
}

/// Returns the numbers of partitions of topics; those that do not exist are absent.
pub(super) async fn counts(kafka: &Kafka, topics: &BTreeSet<String>) -> krafka::Result<BTreeMap<String, i32>> {
    if topics.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    refresh(kafka, Some(&names)).await?;
    let known = topics.iter().filter_map(|name| Some((name, kafka_metadata(kafka).topic_arc(name)?)));
    Ok(known.map(|(name, topic)| (name.clone(), count(topic.partition_count()))).collect())
}

async fn refresh(kafka: &Kafka, topics: Option<&[&str]>) -> krafka::Result<()> {
    let refreshed = timeout(ANSWER, kafka_metadata(kafka).force_refresh(topics)).await;
    refreshed.unwrap_or_else(|_| Err(KrafkaError::timeout("looking up topics")))
}

fn count(partitions: usize) -> i32 {
    i32::try_from(partitions).unwrap_or(i32::MAX)
}
