//! The partitions of the slots of a run. The nodes of a cluster share the partitions by their own leases, so the brokers
//! distribute nothing: nobody joins the group, and there is no rebalance. Offsets are committed as a consumer without a
//! membership does (generation -1), which the coordinator accepts as long as the group has no members.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_plugin::state::Slots;
use anabranch_record::fault::FaultClass;
use anabranch_record::mark::Partition;
use krafka::Kafka;
use tokio::time::{Instant, sleep};

use super::member::{Group, GroupSettings, PAUSE, begin};
use super::rebalance::Rebalanced;
use super::topics::{Subscription, counts};
use super::watch::LOOK;
use super::{Change, Membership, TopicPartition};

/// Takes the partitions that these slots have, and those that are added later. The result has none yet:
/// [`Membership::change`] reports them.
pub(crate) fn take_slots(kafka: Kafka, settings: GroupSettings, slots: Slots) -> Arc<dyn Membership> {
    // The coordinator knows no member.
    let settings = GroupSettings { instance: None, ..settings };
    begin(kafka, settings, move |group| group.follow_slots(slots))
}

impl Group {
    async fn follow_slots(self: Arc<Self>, slots: Slots) {
        let (mut pause, mut is_settled) = (PAUSE.0, false);
        let mut missing: Option<(String, Instant)> = None;
        loop {
            let found = match self.partitions(slots, &mut missing).await {
                Ok(found) => found,
                // A failed look-up is not a change.
                Err(error) if is_settled => {
                    tracing::debug!(group = %self.settings.group, %error, "the topics cannot be looked up");
                    sleep(LOOK).await;
                    continue;
                }
                Err(error) => {
                    let fault = self.fault(error);
                    if fault.class() != FaultClass::Transient || !self.settings.retry_errors {
                        self.report_fault(fault);
                        return;
                    }
                    sleep(pause.mul_f64(fastrand::f64().mul_add(0.5, 0.75))).await;
                    pause = (pause * 2).min(PAUSE.1);
                    continue;
                }
            };
            let is_new = found.iter().any(|at| !self.state().owned.contains_key(at));
            if is_new {
                // A partition whose topic is missing for a moment stays.
                let known: BTreeSet<TopicPartition> = self.state().owned.keys().cloned().collect();
                self.take_over(&Rebalanced { assigned: &found | &known, eager: false, counts: None });
            }
            if is_new || !is_settled {
                self.report(Change::Settled);
                is_settled = true;
            }
            sleep(LOOK).await;
        }
    }

    /// Returns the partitions that exist now and that the slots have.
    async fn partitions(
        &self,
        slots: Slots,
        missing: &mut Option<(String, Instant)>,
    ) -> krafka::Result<BTreeSet<TopicPartition>> {
        let subscription = &self.settings.subscription;
        let topics = subscription.topics(&self.kafka).await?;
        let found = counts(&self.kafka, &topics).await?;
        if let Subscription::Topics(_) = subscription {
            self.report_missing(topics.iter().find(|topic| !found.contains_key(*topic)), missing);
        }
        let all = found.iter().flat_map(|(topic, count)| {
            (0..*count).map(|partition| TopicPartition { topic: topic.as_str().into(), partition })
        });
        Ok(all.filter(|at| slots.has(&Partition(at.to_string().into()))).collect())
    }
}
