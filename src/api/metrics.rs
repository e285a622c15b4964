//! What a monitoring system reads, in the text format of Prometheus.
//!
//! Nothing is recorded between two reads: the executor counts anyway, and each answer is made of its counters. So a
//! metric costs a record nothing, and none of a pipeline that is gone lingers.

mod samples;

use std::sync::Arc;

use anabranch_graph::exec::{LaneCount, Progress};
use anabranch_graph::text::Str;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::samples::{Labels, Metric, Samples, counter, oldest, seconds, sum};
use super::View;
use super::live::lag_rows;
use super::status::StatusNow;
use crate::service::lifecycle::Seen;

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
const LAG_RECORDS: Metric =
    sum("anabranch_source_lag_records", "Records read of a source of which some copy is on its way.");
const LAG_SECONDS: Metric =
    oldest("anabranch_source_lag_seconds", "Age of the oldest record of a source that is on its way; 0 = none is.");
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
        if let Some(progress) = &seen.progress {
            add_totals(&mut samples, &pipeline, progress);
            add_sources(&mut samples, &pipeline, &progress.lanes());
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

/// By connector: a source may have any number of partitions.
fn add_sources(samples: &mut Samples, pipeline: &Str, lanes: &[LaneCount]) {
    for lane in lanes {
        let source = || match *pipeline == OTHER {
            true => Labels::pipeline(pipeline).with("connector", OTHER),
            false => Labels::pipeline(pipeline).with("connector", lane.id.connector.clone()),
        };
        samples.add(&PARTITIONS, source(), 1.0);
        samples.add(&LAG_RECORDS, source(), lag_rows(lane) as f64);
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
            true => Labels::pipeline(pipeline).with("node", node.node.clone()),
            false => Labels::pipeline(&OTHER).with("node", OTHER),
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
