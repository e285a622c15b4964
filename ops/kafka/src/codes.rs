//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{
    CREDENTIALS_REFUSED, FENCED, FORMAT_FAILED, MARKS_MOVED, POSITION_UNKNOWN, RECORD_TOO_LARGE, SETTINGS_INVALID,
    SETTINGS_REQUIRED, TEMPLATE_FAILED,
};

anabranch_record::codes! {
    /// The destination is set up so that it may lose records.
    ACKS_LOSE_RECORDS: "kafka.acks_lose_records", "Set acks: all.";

    /// The broker's response does not follow the protocol, or the broker is too old.
    BROKER_INCOMPATIBLE: "kafka.broker_incompatible",
        "Check that the servers are Kafka brokers of version 3.4 or later.";

    /// A record of the topic cannot be decoded.
    DATA_DAMAGED: "kafka.data_damaged", "Check the disks of the broker; the message names the partition and offset.";

    /// Records after the stored position no longer exist, or the topic was created again.
    GAP: "kafka.gap", "Set onGap: continue to resume at the next record that exists, or reset the position.";

    /// Another member of the group has the same static id.
    MEMBER_FENCED: "kafka.member_fenced", "Give each member of the group its own groupInstanceId.";

    /// A right is missing.
    NOT_AUTHORISED: "kafka.not_authorised", "Grant the right that the message names.";

    /// The stored position belongs to another consumer group.
    POSITION_OF_ANOTHER_GROUP: "kafka.position_of_another_group",
        "Correct groupID, reset the position, or give the connector another id.";

    /// The broker rejects a batch because of a record in it.
    BATCH_REJECTED: "kafka.batch_rejected",
        "Check the timestamp of the record (message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic).";

    /// The record cannot be sent: its topic, key, header or partition is invalid.
    RECORD_INVALID: "kafka.record_invalid", "Correct the template or the record; the message names the part.";

    /// The broker rejects the request as invalid.
    REQUEST_REFUSED: "kafka.request_refused", "The message has the reason of the broker.";

    /// The topic does not exist.
    TOPIC_MISSING: "kafka.topic_missing", "Create the topic, or correct its name.";

    /// The brokers do not respond as expected. The service retries.
    UNAVAILABLE: "kafka.unavailable", "No action is needed if it recovers.";

    /// The topic of the marks is not compacted.
    MARKS_TOPIC_NOT_COMPACTED: "kafka.marks_topic_not_compacted",
        "Set cleanup.policy=compact on the topic, or name another one in exactlyOnce.topic.";
}
