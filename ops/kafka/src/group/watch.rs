//! Watching the topics of a group: topics and partitions that are added, and topics that are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_record::fault::Fault;
use tokio::time::{Instant, sleep};

use super::member::Group;
use super::rebalance::Rebalanced;
use super::topics::{Subscription, counts};
use crate::codes;

/// Time between two looks.
pub(super) const LOOK: Duration = Duration::from_secs(5);
/// Time after which a missing topic is reported: one that is created again at once is not.
const MISSING: Duration = Duration::from_secs(15);

impl Group {
    /// Waits until there are other topics or partitions than at the last rebalance. A failed look-up is not a change. Reports
    /// a fault if a topic of the settings is missing for some time: otherwise the source would wait for it in silence.
    pub(super) async fn topics_changed(&self, rebalanced: &Rebalanced) {
        let mut missing = None;
        loop {
            sleep(LOOK).await;
            let topics = self.settings.subscription.topics(&self.kafka).await;
            if topics.is_ok_and(|topics| topics != self.state().topics) {
                return;
            }
            let named: BTreeSet<String> = match &self.settings.subscription {
                Subscription::Topics(_) => self.state().topics.clone(),
                Subscription::Pattern(_) => BTreeSet::new(),
            };
            // The leader watches the topics of all members.
            let counted = rebalanced.counts.as_ref();
            let watched: BTreeSet<String> =
                counted.map(|(topics, _)| topics).into_iter().flatten().chain(&named).cloned().collect();
            let Ok(found) = counts(&self.kafka, &watched).await else { continue };
            if counted.is_some_and(|(topics, counted)| !is_same(&found, topics, counted)) {
                return;
            }
            self.report_missing(named.iter().find(|topic| !found.contains_key(*topic)), &mut missing);
        }
    }

    /// Reports a topic that is missing for the second time or more, if it is missing for long.
    pub(super) fn report_missing(&self, topic: Option<&String>, missing: &mut Option<(String, Instant)>) {
        let Some(topic) = topic else {
            *missing = None;
            return;
        };
        match missing {
            Some((before, since)) if before == topic => {
                if since.elapsed() >= MISSING {
                    let text = format!("the topic {topic} does not exist any more");
                    self.report_fault(Fault::transient(codes::TOPIC_MISSING, text));
                }
            }
            _ => *missing = Some((topic.clone(), Instant::now())),
        }
    }
}

/// Returns `true` if topics have as many partitions as they had.
fn is_same(found: &BTreeMap<String, i32>, topics: &BTreeSet<String>, counted: &BTreeMap<String, i32>) -> bool {
    topics.iter().all(|topic| found.get(topic) == counted.get(topic))
}
