//! What a monitoring system reads, in the text format of Prometheus.
//!
//! Nothing is recorded between two reads: the executor counts anyway, and each answer is made of its counters. So a
//! metric costs a record nothing, and none of a pipeline that is gone lingers.

mod samples;

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anabranch_graph::exec::{LaneCount, Progress, SourceBacklog};
use anabranch_graph::text::Str;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::samples::{Labels, Metric, Samples, counter, oldest, seconds, sum, times};
use super::View;
use super::live::unacknowledged;
use super::status::StatusNow;
use crate::service::lifecycle::Seen;
use crate::store::StoreNumbers;

const INFO: Metric = sum("anabranch_info", "1; the version is in a label.");
const PIPELINES: Metric = sum("anabranch_pipelines", "Pipelines of this service by status.");
const STATE: Metric = sum("anabranch_pipeline_state", "1 for the status that a pipeline has, 0 for the others.");
const STALLED: Metric =
    sum("anabranch_pipeline_stalled", "1 where records are on their way and none has moved for long.");
const RUNS: Metric = counter(
    "anabranch_pipeline_runs_total",
    "Runs that were begun: by starts and by recoveries. Other counters begin anew with each.",
);
const RECOVERING: Metric = sum(
    "anabranch_pipeline_recovery_attempt",
    "Number of the attempt that comes next while a pipeline recovers, else 0.",
);
const INSPECTIONS: Metric = sum("anabranch_pipeline_inspections", "Inspections that are open.");
const READ: Metric = counter("anabranch_records_read_total", "Records read.");
const SETTLED: Metric =
    counter("anabranch_records_settled_total", "Records of which every copy is delivered, filtered or dead-lettered.");
const BORN: Metric =
    counter("anabranch_records_born_total", "Copies made in addition, by split, clone and several destinations.");
const DELIVERED: Metric = counter("anabranch_records_delivered_total", "Copies that a destination has made durable.");
const FILTERED: Metric = counter("anabranch_records_filtered_total", "Copies that were filtered.");
const FAILED: Metric = counter("anabranch_records_failed_total", "Copies that failed.");
const DEAD_LETTERED: Metric = counter("anabranch_records_dead_lettered_total", "Copies whose dead letter is durable.");
const LETTERS: Metric = sum("anabranch_dead_letters", "Dead letters that the state store keeps.");
const LETTER_BYTES: Metric = sum("anabranch_dead_letter_bytes", "Their size.");
const LETTERS_EVICTED: Metric = counter(
    "anabranch_dead_letters_evicted_total",
    "Dead letters that the bounds of the queue removed, since the pipeline was created.",
);
const IN_FLIGHT: Metric = sum("anabranch_records_in_flight", "Copies on their way.");
const PARTITIONS: Metric = sum("anabranch_source_partitions", "Partitions that a source has read in this run.");
const BACKLOG_RECORDS: Metric =
    sum("anabranch_source_backlog_records", "Records that a source has not read yet, where it knows their number.");
const BACKLOG_BYTES: Metric =
    sum("anabranch_source_backlog_bytes", "Bytes that a source has not read yet, where it knows their number.");
const BACKLOG_OBJECTS: Metric = sum(
    "anabranch_source_backlog_objects",
    "Objects that a source has listed and not read yet, where it reads objects.",
);
const BACKLOG_AGE: Metric = oldest(
    "anabranch_source_backlog_age_seconds",
    "Age of the next record that a source will read, at least, where it is known; 0 = nothing is left to read.",
);
const MISSED: Metric = counter(
    "anabranch_source_missed_total",
    "Files or objects that were gone before a source could read them: their records are lost to the pipeline.",
);
const LAG_RECORDS: Metric =
    sum("anabranch_source_lag_records", "Records that a source read and of which some copy is in flight.");
const LAG_SECONDS: Metric = oldest(
    "anabranch_source_lag_seconds",
    "Age of the oldest record that a source read and of which some copy is in flight; 0 = there is none.",
);
const POSITION_AGE: Metric = oldest(
    "anabranch_source_position_age_seconds",
    "How far the stored position of a source is behind what was read of it; 0 = not at all.",
);
const NODE_IN: Metric = counter("anabranch_node_records_in_total", "Records that came to a node.");
const NODE_OUT: Metric = counter(
    "anabranch_node_records_out_total",
    "Records that went on from a node; for a destination, those delivered.",
);
const NODE_FILTERED: Metric = counter("anabranch_node_records_filtered_total", "Records that a node filtered.");
const NODE_FAILED: Metric = counter("anabranch_node_records_failed_total", "Records that failed in a node.");
const NODE_HELD: Metric = sum(
    "anabranch_node_records_held",
    "Records in a node: in a call, or accepted by a destination and not durable yet.",
);
const NODE_BUSY: Metric = seconds(
    "anabranch_node_busy_seconds_total",
    "Time in calls of a node, over all of its workers. Waiting for records or answers counts.",
);
const QUEUE_RECORDS: Metric = sum("anabranch_queue_records", "Records that wait in front of a node.");
const QUEUE_BYTES: Metric = sum("anabranch_queue_bytes", "Their rough size in memory.");
const QUEUE_FULL: Metric = sum("anabranch_queue_full", "1 where who feeds the queue has to wait.");

const LATENCY: Metric = times(
    "anabranch_record_latency_seconds",
    "Time from the read of a record until it is delivered and its position stored.",
);
const SUCCEEDED: Metric = oldest(
    "anabranch_pipeline_last_success_timestamp_seconds",
    "When records were delivered and their positions stored last, in seconds since 1970.",
);
const STORE_UP: Metric =
    sum("anabranch_store_up", "1 where the last read and the last write of the store were done, else 0.");
const STORE_TIMES: Metric = times("anabranch_store_operation_seconds", "Time that reads and writes of the store took.");
const STORE_ERRORS: Metric = counter("anabranch_store_errors_total", "Reads and writes of the store that failed.");
const DISK_FREE: Metric = sum("anabranch_store_disk_free_bytes", "Free space of the file system that the store is in.");
const DISK_SIZE: Metric = sum("anabranch_store_disk_size_bytes", "Size of the file system that the store is in.");

const SPANS_SENT: Metric = counter("anabranch_trace_spans_sent_total", "Spans of traces that the collector has.");
const SPANS_DROPPED: Metric = counter(
    "anabranch_trace_spans_dropped_total",
    "Spans of traces that there was no room for, or that the collector did not take.",
);

/// All that are made here. What is told of the process is in `metrics-process`.
const ALL: &[&Metric] = &[
    &INFO,
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
    &PARTITIONS,
    &BACKLOG_RECORDS,
    &BACKLOG_BYTES,
    &BACKLOG_OBJECTS,
    &BACKLOG_AGE,
    &MISSED,
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
    &LATENCY,
    &SUCCEEDED,
    &STORE_UP,
    &STORE_TIMES,
    &STORE_ERRORS,
    &DISK_FREE,
    &DISK_SIZE,
    &SPANS_SENT,
    &SPANS_DROPPED,
];

/// Pipelines with series of their own; those after them, by id, are `other` together.
const MOST_PIPELINES: usize = 500;
/// Nodes with series of their own, over all pipelines.
const MOST_NODES: usize = 2000;
const OTHER: Str = Str::from_static("other");

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Metrics for Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain")),
)]
async fn metrics(State(view): State<Arc<View>>) -> impl IntoResponse {
    let pipelines = view.control.all();
    let inspections = |id: &Str| view.control.watch(id).map_or(0, |(taps, _)| taps.inspections());
    let mut samples = sampled(&pipelines, inspections);
    for (id, _) in pipelines.iter().take(MOST_PIPELINES) {
        // Where the store does not answer, everything else is told all the same.
        let Ok(letters) = view.store.letter_totals(id).await else { break };
        samples.add(&LETTERS, Labels::pipeline(id), letters.count as f64);
        samples.add(&LETTER_BYTES, Labels::pipeline(id), letters.bytes as f64);
        samples.add(&LETTERS_EVICTED, Labels::pipeline(id), letters.evicted as f64);
    }
    if let Some(numbers) = view.store.numbers().await {
        add_store(&mut samples, &numbers);
    }
    let spans = view.control.spans();
    samples.add(&SPANS_SENT, Labels::default(), spans.sent as f64);
    samples.add(&SPANS_DROPPED, Labels::default(), spans.dropped as f64);
    let text = samples.exposed(ALL);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

fn sampled(pipelines: &[(Str, Seen)], inspections: impl Fn(&Str) -> usize) -> Samples {
    let mut samples = Samples::default();
    samples.add(&INFO, Labels::of("version", Str::from_static(env!("CARGO_PKG_VERSION"))), 1.0);
    for word in StatusNow::WORDS {
        samples.add(&PIPELINES, Labels::of("status", Str::from_static(word)), 0.0);
    }
    let mut nodes_left = MOST_NODES;
    for (number, (id, seen)) in pipelines.iter().enumerate() {
        let own = number < MOST_PIPELINES;
        let pipeline = if own { id.clone() } else { OTHER };
        let status = StatusNow::of(seen, None);
        samples.add(&PIPELINES, Labels::of("status", Str::from_static(status.word)), 1.0);
        if own {
            for word in StatusNow::WORDS {
                let is = if word == status.word { 1.0 } else { 0.0 };
                samples.add(&STATE, Labels::pipeline(&pipeline).with("state", Str::from_static(word)), is);
            }
        }
        let whole = Labels::pipeline(&pipeline);
        let attempt = seen.retry.map_or(0, |retry| retry.attempt);
        samples.add(&STALLED, whole.clone(), if status.stalled.is_some() { 1.0 } else { 0.0 });
        samples.add(&RUNS, whole.clone(), seen.run as f64);
        samples.add(&RECOVERING, whole.clone(), attempt as f64);
        samples.add(&INSPECTIONS, whole, inspections(id) as f64);
        add_sources(&mut samples, &pipeline, &seen.lanes());
        add_backlogs(&mut samples, &pipeline, &seen.backlogs());
        if let Some(at) = seen.succeeded().and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
            samples.add(&SUCCEEDED, Labels::pipeline(&pipeline), at.as_secs_f64());
        }
        if let Some(progress) = &seen.progress {
            add_totals(&mut samples, &pipeline, progress);
            samples.add_times(&LATENCY, Labels::pipeline(&pipeline), &progress.latency());
            add_nodes(&mut samples, &pipeline, progress, &mut nodes_left);
        }
    }
    samples
}

fn add_totals(samples: &mut Samples, pipeline: &Str, progress: &Progress) {
    let totals = progress.totals();
    let all = [
        (&READ, totals.read),
        (&SETTLED, totals.settled),
        (&BORN, totals.born),
        (&DELIVERED, totals.delivered),
        (&FILTERED, totals.filtered),
        (&FAILED, totals.failed),
        (&DEAD_LETTERED, totals.dead_lettered),
        (&IN_FLIGHT, totals.in_flight),
    ];
    for (metric, value) in all {
        samples.add(metric, Labels::pipeline(pipeline), value as f64);
    }
}

fn add_store(samples: &mut Samples, numbers: &StoreNumbers) {
    samples.add(&STORE_UP, Labels::default(), if numbers.works { 1.0 } else { 0.0 });
    for operation in &numbers.operations {
        let labels = || Labels::of("operation", Str::from_static(operation.kind));
        samples.add_times(&STORE_TIMES, labels(), &operation.times);
        samples.add(&STORE_ERRORS, labels(), operation.errors as f64);
    }
    if let Some((free, size)) = numbers.disk {
        samples.add(&DISK_FREE, Labels::default(), free as f64);
        samples.add(&DISK_SIZE, Labels::default(), size as f64);
    }
}

/// Labels of what is told of a source.
fn of_source(pipeline: &Str, connector: &Str) -> Labels {
    Labels::pipeline(pipeline).with("connector", if *pipeline == OTHER { OTHER } else { connector.clone() })
}

fn add_backlogs(samples: &mut Samples, pipeline: &Str, sources: &[SourceBacklog]) {
    for source in sources {
        let backlog = &source.backlog;
        let known = [
            (&BACKLOG_RECORDS, backlog.records.map(|count| count as f64)),
            (&BACKLOG_BYTES, backlog.bytes.map(|count| count as f64)),
            (&BACKLOG_OBJECTS, backlog.objects.map(|count| count as f64)),
            (&BACKLOG_AGE, source.age().map(|age| age.as_secs_f64())),
            (&MISSED, Some(backlog.missed as f64)),
        ];
        for (metric, value) in known {
            if let Some(value) = value {
                samples.add(metric, of_source(pipeline, &source.connector), value);
            }
        }
    }
}

/// By connector: a source may have any number of partitions.
fn add_sources(samples: &mut Samples, pipeline: &Str, lanes: &[LaneCount]) {
    for lane in lanes {
        let source = || of_source(pipeline, &lane.id.connector);
        samples.add(&PARTITIONS, source(), 1.0);
        samples.add(&LAG_RECORDS, source(), unacknowledged(lane) as f64);
        samples.add(&LAG_SECONDS, source(), lane.lag.as_secs_f64());
        samples.add(&POSITION_AGE, source(), lane.unstored.as_secs_f64());
    }
}

fn add_nodes(samples: &mut Samples, pipeline: &Str, progress: &Progress, left: &mut usize) {
    let stages = progress.stages();
    let queues = stages.iter().flat_map(|stage| {
        // The queue of a stage is in front of its first node; sources have none.
        let queue = (stage.queue.bound_rows > 0).then_some(stage.queue);
        stage.nodes.iter().enumerate().map(move |(step, node)| (node, queue.filter(|_| step == 0)))
    });
    let letters = progress.dead_letters();
    for (node, queue) in queues.chain([(&letters, None)]) {
        let own = *pipeline != OTHER && *left > 0;
        *left = left.saturating_sub(usize::from(own));
        let labels = || match own {
            // A connector and a processor may have the same id.
            true => {
                let kind = Str::from_static(node.station.as_str());
                Labels::pipeline(pipeline).with("node", node.node.clone()).with("kind", kind)
            }
            false => Labels::pipeline(&OTHER).with("node", OTHER).with("kind", OTHER),
        };
        let count = &node.count;
        for (metric, value) in [
            (&NODE_IN, count.rows_in),
            (&NODE_OUT, count.rows_out),
            (&NODE_FILTERED, count.filtered),
            (&NODE_FAILED, count.failed),
            (&NODE_HELD, count.held),
        ] {
            samples.add(metric, labels(), value as f64);
        }
        samples.add(&NODE_BUSY, labels(), count.busy.as_secs_f64());
        if let Some(queue) = queue {
            samples.add(&QUEUE_RECORDS, labels(), queue.rows as f64);
            samples.add(&QUEUE_BYTES, labels(), queue.bytes as f64);
            samples.add(&QUEUE_FULL, labels(), if queue.full { 1.0 } else { 0.0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Status;

    #[test]
    fn there_are_so_many_series_however_many_pipelines_there_are() {
        let pipeline = |number: usize| (Str::from(format!("p{number:04}")), Seen::new(Status::Finished));
        let pipelines: Vec<_> = (0..MOST_PIPELINES + 200).map(pipeline).collect();
        let text = sampled(&pipelines, |_| 0).exposed(ALL);
        let line = |name: &str| text.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
        assert_eq!(line("anabranch_pipeline_runs_total{").len(), MOST_PIPELINES + 1);
        assert_eq!(
            line("anabranch_pipeline_stalled{pipeline=\"other\"}"),
            ["anabranch_pipeline_stalled{pipeline=\"other\"} 0"]
        );
        assert_eq!(line("anabranch_pipelines{status=\"finished\"}"), ["anabranch_pipelines{status=\"finished\"} 700"]);
        assert_eq!(line("anabranch_pipelines{status=\"degraded\"}"), ["anabranch_pipelines{status=\"degraded\"} 0"]);
    }
}
