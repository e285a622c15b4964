//! Handling of errors.

use super::draft::Draft;
use super::kafka;
use crate::document::{DeadLetters, Part};

/// Converts the settings `errors.*`. Without them, the first failure stops the task, and the pipeline.
pub(super) fn convert(draft: &mut Draft<'_>) {
    let tolerance = draft.take("errors.tolerance");
    let topic = draft.take("errors.deadletterqueue.topic.name");
    let is_tolerant = match tolerance.as_deref() {
        None => false,
        Some("none") => {
            draft.carried("errors.tolerance", "");
            false
        }
        Some("all") => true,
        Some(_) => {
            draft.blocked("errors.tolerance", "this is neither none nor all");
            false
        }
    };
    match (is_tolerant, topic) {
        (true, Some(topic)) => {
            let mut queue = Part::new("dead-letter-queue", "kafka");
            kafka::client(draft, &mut queue, "producer");
            let topic_text = draft.text("errors.deadletterqueue.topic.name", &topic);
            queue.set("topic", topic_text);
            draft.set_dead_letters(DeadLetters { plugin: "kafka", settings: queue.settings });
            draft.carried("errors.tolerance", "dead-letter-queue.window-size");
            draft.changed(
                "errors.deadletterqueue.topic.name",
                "dead-letter-queue.settings.topic",
                "a dead letter is a record with the failed record, the error and the place in it, not the message itself",
            );
        }
        (true, None) => {
            let settings = vec![("when-full", "drop-oldest".into())];
            draft.set_dead_letters(DeadLetters { plugin: "store", settings });
            draft.changed(
                "errors.tolerance",
                "dead-letter-queue",
                "failed records are not discarded: the state store keeps the latest of them, and `anabranch dlq` lists and replays them",
            );
        }
        (false, Some(_)) => draft.left_out(
            "errors.deadletterqueue.topic.name",
            "without errors.tolerance=all, the first failure stops the pipeline, as it stops the task",
        ),
        (false, None) => {}
    }
    draft.leave_out(
        &["errors.deadletterqueue.topic.replication.factor"],
        "set createTopics.replicas of the dead-letter queue if its topic does not exist yet",
    );
    draft.leave_out(
        &["errors.deadletterqueue.context.headers.enable"],
        "dead letters always contain the error and the place",
    );
    draft.leave_out(
        &["errors.log.enable", "errors.log.include.messages"],
        "the service logs failures, without the records",
    );
    draft.leave_out(
        &["errors.retry.timeout", "errors.retry.delay.max.ms"],
        "temporary errors are retried without limit, with the delays of pipelines.error-recovery.* in anabranch.yaml",
    );
}
