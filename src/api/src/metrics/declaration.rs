//! All metrics of the service: names, labels and help texts, declared once.

use super::samples::{Label, Metric, counter, least, oldest, seconds, sum, times};

const VERSION: Label = Label::new("version", "version of the service");
const STATUS: Label =
    Label::new("status", "starting, running, idle, recovering, degraded, stopped, finished or invalid");
const STATE_OF: Label = Label::new("state", STATUS.meaning);
const PIPELINE: Label = Label::new("pipeline", "id of the pipeline");
const CONNECTOR: Label = Label::new("connector", "id of the source");
const PARTITION: Label = Label::new("partition", "partition of the source");
const RETENTION_STATE: Label =
    Label::new("retention", "state of what the external system keeps, such as wal_status of a replication slot");
const REFUSAL: Label = Label::new(
    "reason",
    "path, method, authentication, size, format, incomplete, back-pressure, timeout (not delivered in time) or stopping",
);
const CLUSTER_NODE: Label = Label::new("cluster_node", "name of the node of the cluster");
const NODE: Label = Label::new("node", "id of the connector or processor");
const KIND: Label = Label::new("kind", "source, processor, destination or dead-letter-queue");
const OPERATION: Label = Label::new("operation", "read or write");

const NONE: &[Label] = &[];
const OF_PIPELINE: &[Label] = &[PIPELINE];
const OF_SOURCE: &[Label] = &[PIPELINE, CONNECTOR];
const OF_PARTITION: &[Label] = &[PIPELINE, CONNECTOR, PARTITION];
const OF_RETENTION: &[Label] = &[PIPELINE, CONNECTOR, RETENTION_STATE];
const OF_REFUSAL: &[Label] = &[PIPELINE, CONNECTOR, REFUSAL];
const OF_NODE: &[Label] = &[PIPELINE, NODE, KIND];

pub(super) const INFO: Metric =
    sum("anabranch_info", &[VERSION], "Always 1. The label carries the version of the service.");
pub(super) const PIPELINES: Metric = sum("anabranch_pipelines", &[STATUS], "Number of pipelines in each status.");
pub(super) const CLUSTER_MEMBER: Metric = sum(
    "anabranch_cluster_member",
    &[CLUSTER_NODE],
    "1 if the node has a lease, 0 if it runs nothing because it has none. Only in a cluster.",
);
pub(super) const CLUSTER_UNITS: Metric = sum(
    "anabranch_cluster_units",
    OF_PIPELINE,
    "Units of the pipeline that this node runs. Only in a cluster, and only of pipelines of which it has some.",
);
pub(super) const STATE: Metric = sum(
    "anabranch_pipeline_state",
    &[PIPELINE, STATE_OF],
    "1 for the current status of the pipeline, 0 for every other status.",
);
pub(super) const STALLED: Metric = sum(
    "anabranch_pipeline_stalled",
    OF_PIPELINE,
    "1 if records are in flight in the pipeline and none has moved for 10 s or for the longer time that a plugin asks for, else 0.",
);
pub(super) const RUNS: Metric = counter(
    "anabranch_pipeline_runs_total",
    OF_PIPELINE,
    "Runs of the pipeline that the service has begun, by starts and by recoveries. Record counters begin at 0 with each run.",
);
pub(super) const RECOVERING: Metric = sum(
    "anabranch_pipeline_recovery_attempt",
    OF_PIPELINE,
    "Number of the next attempt to start the pipeline while it recovers, counted from 1; 0 if it does not recover.",
);
pub(super) const INSPECTIONS: Metric =
    sum("anabranch_pipeline_inspections", OF_PIPELINE, "Open inspections of the pipeline.");
pub(super) const READ: Metric =
    counter("anabranch_records_read_total", OF_PIPELINE, "Records that the sources have read in the current run.");
pub(super) const SETTLED: Metric = counter(
    "anabranch_records_settled_total",
    OF_PIPELINE,
    "Records of the current run of which every copy is delivered, filtered or dead-lettered.",
);
pub(super) const BORN: Metric = counter(
    "anabranch_records_born_total",
    OF_PIPELINE,
    "Copies of records that the pipeline has made in the current run, beyond the records read: by split, by clone and for several destinations.",
);
pub(super) const DELIVERED: Metric = counter(
    "anabranch_records_delivered_total",
    OF_PIPELINE,
    "Copies of records that a destination has made durable in the current run.",
);
pub(super) const FILTERED: Metric = counter(
    "anabranch_records_filtered_total",
    OF_PIPELINE,
    "Copies of records that processors have filtered out in the current run.",
);
pub(super) const FAILED: Metric = counter(
    "anabranch_records_failed_total",
    OF_PIPELINE,
    "Copies of records that a processor or a destination has failed in the current run.",
);
pub(super) const DEAD_LETTERED: Metric = counter(
    "anabranch_records_dead_lettered_total",
    OF_PIPELINE,
    "Copies of records whose dead letter the dead-letter queue has made durable in the current run.",
);
pub(super) const LETTERS: Metric =
    sum("anabranch_dead_letters", OF_PIPELINE, "Dead letters of the pipeline that the state store keeps.");
pub(super) const LETTER_BYTES: Metric = sum(
    "anabranch_dead_letter_bytes",
    OF_PIPELINE,
    "Size in bytes of the dead letters of the pipeline that the state store keeps.",
);
pub(super) const LETTERS_EVICTED: Metric = counter(
    "anabranch_dead_letters_evicted_total",
    OF_PIPELINE,
    "Dead letters that the bounds of the dead-letter queue have removed since the pipeline was created.",
);
pub(super) const IN_FLIGHT: Metric = sum(
    "anabranch_records_in_flight",
    OF_PIPELINE,
    "Copies of records that are in flight: read, and not yet delivered, filtered or dead-lettered.",
);
pub(super) const LATENCY: Metric = times(
    "anabranch_record_latency_seconds",
    OF_PIPELINE,
    "End-to-end latency in seconds: from the read of a record until it is delivered and its position is stored. Measured in steps of 10 ms.",
);
pub(super) const SUCCEEDED: Metric = oldest(
    "anabranch_pipeline_last_success_timestamp_seconds",
    OF_PIPELINE,
    "Unix time in seconds at which this process last delivered records and stored their positions.",
);
pub(super) const PARTITIONS: Metric =
    sum("anabranch_source_partitions", OF_SOURCE, "Partitions that the source has read in the current run.");
pub(super) const BACKLOG_RECORDS: Metric = sum(
    "anabranch_source_backlog_records",
    OF_SOURCE,
    "Records that the source has not read yet. Missing if the source does not know their number.",
);
pub(super) const PARTITION_BACKLOG: Metric = sum(
    "anabranch_source_partition_backlog_records",
    OF_PARTITION,
    "Records of the partition that the source has not read yet. Missing if the source does not know their number.",
);
pub(super) const BACKLOG_BYTES: Metric = sum(
    "anabranch_source_backlog_bytes",
    OF_SOURCE,
    "Bytes that the source has not read yet. Missing if the source does not know their number.",
);
pub(super) const BACKLOG_OBJECTS: Metric = sum(
    "anabranch_source_backlog_objects",
    OF_SOURCE,
    "Objects that the source has listed and not read yet. Missing if the source does not read objects.",
);
pub(super) const BACKLOG_AGE: Metric = oldest(
    "anabranch_source_backlog_age_seconds",
    OF_SOURCE,
    "Lower bound, in seconds, of the age of the next record that the source will read; 0 if nothing is left to read. Missing if it is not known.",
);
pub(super) const RETAINED: Metric = sum(
    "anabranch_source_retained_bytes",
    OF_SOURCE,
    "Bytes that the external system keeps until the source has acknowledged them, such as the log behind a replication slot. Missing if it keeps nothing.",
);
pub(super) const RETENTION_SPARE: Metric = least(
    "anabranch_source_retention_spare_bytes",
    OF_SOURCE,
    "Bytes that can still be added before the external system may remove what the source has not read. Missing if there is no limit.",
);
pub(super) const RETAINED_TRANSACTIONS: Metric = oldest(
    "anabranch_source_retained_transactions",
    OF_SOURCE,
    "Number of transactions for which the external system cannot remove old rows, because the source may need them.",
);
pub(super) const RETENTION_STATUS: Metric = sum(
    "anabranch_source_retention_status",
    OF_RETENTION,
    "1 for the state of what the external system keeps for the source, in its own word.",
);
pub(super) const MISSED: Metric = counter(
    "anabranch_source_missed_total",
    OF_SOURCE,
    "Files, objects or records that disappeared before the source could read them. The pipeline has lost their records.",
);
pub(super) const REFUSED: Metric = counter(
    "anabranch_source_requests_refused_total",
    OF_REFUSAL,
    "Requests that the source has refused in the current run. Missing if the source receives no requests.",
);
pub(super) const LAG_RECORDS: Metric = sum(
    "anabranch_source_lag_records",
    OF_SOURCE,
    "Records in flight: the source has read them, and some copy is not yet delivered, filtered or dead-lettered.",
);
pub(super) const LAG_SECONDS: Metric = oldest(
    "anabranch_source_lag_seconds",
    OF_SOURCE,
    "Time in seconds since the source read the oldest record that is in flight; 0 if none is in flight.",
);
pub(super) const POSITION_AGE: Metric = oldest(
    "anabranch_source_position_age_seconds",
    OF_SOURCE,
    "Time in seconds since the source read the first record that the stored position does not cover; 0 if the position covers all records read.",
);
pub(super) const NODE_IN: Metric =
    counter("anabranch_node_records_in_total", OF_NODE, "Records that have reached the node in the current run.");
pub(super) const NODE_OUT: Metric = counter(
    "anabranch_node_records_out_total",
    OF_NODE,
    "Records that have left the node in the current run. For a destination: records that it has delivered.",
);
pub(super) const NODE_FILTERED: Metric = counter(
    "anabranch_node_records_filtered_total",
    OF_NODE,
    "Records that the node has filtered out in the current run.",
);
pub(super) const NODE_FAILED: Metric =
    counter("anabranch_node_records_failed_total", OF_NODE, "Records that have failed in the node in the current run.");
pub(super) const NODE_HELD: Metric = sum(
    "anabranch_node_records_held",
    OF_NODE,
    "Records inside the node: it is processing them, or it is a destination that has accepted them and has not made them durable yet.",
);
pub(super) const NODE_BUSY: Metric = seconds(
    "anabranch_node_busy_seconds_total",
    OF_NODE,
    "Time in seconds that the workers of the node have spent in calls of its plugin in the current run. Waiting inside a call counts.",
);
pub(super) const QUEUE_RECORDS: Metric =
    sum("anabranch_queue_records", OF_NODE, "Records that wait in the queue before the node.");
pub(super) const QUEUE_BYTES: Metric = sum(
    "anabranch_queue_bytes",
    OF_NODE,
    "Approximate size in bytes, in memory, of the records that wait in the queue before the node.",
);
pub(super) const QUEUE_FULL: Metric = sum(
    "anabranch_queue_full",
    OF_NODE,
    "1 if the queue before the node is full, so that the node that fills it waits, else 0.",
);
pub(super) const STORE_UP: Metric =
    sum("anabranch_store_up", NONE, "1 if the state store can be read and written, as `/readyz` checks it, else 0.");
pub(super) const STORE_TIMES: Metric = times(
    "anabranch_store_operation_seconds",
    &[OPERATION],
    "Duration in seconds of operations of the state store, failed ones included.",
);
pub(super) const STORE_ERRORS: Metric =
    counter("anabranch_store_errors_total", &[OPERATION], "Operations of the state store that have failed.");
pub(super) const DISK_FREE: Metric = sum(
    "anabranch_store_disk_free_bytes",
    NONE,
    "Free bytes of the file system that holds the file of the state store. Missing if the store is not a file.",
);
pub(super) const DISK_SIZE: Metric = sum(
    "anabranch_store_disk_size_bytes",
    NONE,
    "Size in bytes of the file system that holds the file of the state store. Missing if the store is not a file.",
);
pub(super) const SPANS_SENT: Metric =
    counter("anabranch_trace_spans_sent_total", NONE, "Trace spans that the collector has accepted.");
pub(super) const SPANS_DROPPED: Metric = counter(
    "anabranch_trace_spans_dropped_total",
    NONE,
    "Trace spans that the service has dropped: its buffer was full, or the collector did not accept them.",
);

/// All metrics of the service, in the order of the documentation. Those of the process are in `metrics-process`.
pub(super) const ALL: &[&Metric] = &[
    &INFO,
    &CLUSTER_MEMBER,
    &CLUSTER_UNITS,
    &PIPELINES,
    &STATE,
    &STALLED,
    &RUNS,
    &RECOVERING,
    &INSPECTIONS,
    &READ,
    &SETTLED,
    &BORN,
    &DELIVERED,
    &FILTERED,
    &FAILED,
    &DEAD_LETTERED,
    &LETTERS,
    &LETTER_BYTES,
    &LETTERS_EVICTED,
    &IN_FLIGHT,
    &LATENCY,
    &SUCCEEDED,
    &PARTITIONS,
    &BACKLOG_RECORDS,
    &PARTITION_BACKLOG,
    &BACKLOG_BYTES,
    &BACKLOG_OBJECTS,
    &BACKLOG_AGE,
    &RETAINED,
    &RETENTION_SPARE,
    &RETAINED_TRANSACTIONS,
    &RETENTION_STATUS,
    &MISSED,
    &REFUSED,
    &LAG_RECORDS,
    &LAG_SECONDS,
    &POSITION_AGE,
    &NODE_IN,
    &NODE_OUT,
    &NODE_FILTERED,
    &NODE_FAILED,
    &NODE_HELD,
    &NODE_BUSY,
    &QUEUE_RECORDS,
    &QUEUE_BYTES,
    &QUEUE_FULL,
    &STORE_UP,
    &STORE_TIMES,
    &STORE_ERRORS,
    &DISK_FREE,
    &DISK_SIZE,
    &SPANS_SENT,
    &SPANS_DROPPED,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::status::StatusNow;

    /// The table of a page, as lines.
    fn rows(page: &str) -> Vec<&str> {
        let has_kind =
            |line: &&str| ["counter", "gauge", "histogram"].iter().any(|kind| line.contains(&format!("` | {kind} |")));
        page.lines().filter(|line| line.starts_with("| `anabranch_")).filter(has_kind).collect()
    }

    #[test]
    fn the_page_says_what_the_help_texts_say() {
        let page = include_str!("../../../../docs/metrics.md");
        let wanted: Vec<String> = ALL.iter().map(|metric| metric.row()).collect();
        assert!(rows(page) == wanted, "the table in docs/metrics.md must be:\n{}", wanted.join("\n"));
        let labels: BTreeSet<String> = ALL.iter().flat_map(|metric| metric.labels).map(Label::row).collect();
        let missing: Vec<_> = labels.iter().filter(|row| !page.lines().any(|line| line == **row)).collect();
        assert!(missing.is_empty(), "docs/metrics.md lacks:\n{missing:#?}");
    }

    /// A help text is read where no other text is: it is a sentence of its own and names its unit.
    #[test]
    fn every_help_text_reads_alone() {
        for metric in ALL {
            let help = metric.help;
            let is_sentence = help.ends_with('.') && help.starts_with(|c: char| c.is_ascii_uppercase() || c == '1');
            assert!(is_sentence, "{}: {help}", metric.name);
            for unit in ["seconds", "bytes"] {
                let in_name = metric.name.split('_').any(|word| word == unit);
                assert!(!in_name || help.to_lowercase().contains(unit), "{} does not say {unit}: {help}", metric.name);
            }
            // Each of these entries needs an explanation.
            let refers = ["Their ", "Its ", "It "].iter().any(|word| help.starts_with(word));
            let is_riddle = [" who ", " on their way", " anew", " told"].iter().any(|word| help.contains(word));
            assert!(!refers && !is_riddle, "{}: {help}", metric.name);
            let full = metric.full_help();
            assert!(metric.labels.iter().all(|label| full.contains(label.name)), "{full}");
        }
        let statuses = StatusNow::WORDS.join(", ");
        let (others, last) = statuses.rsplit_once(", ").unwrap();
        assert_eq!(STATUS.meaning, format!("{others} or {last}"));
    }
}
