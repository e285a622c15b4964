//! Metrics in the text format of Prometheus.
//!
//! Nothing is recorded between two scrapes: the executor counts in any case, and each response is computed from its
//! counters. So a metric costs nothing per record, and series of deleted pipelines disappear.

mod declaration;
mod samples;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anabranch_cluster::Membership;
use anabranch_graph::exec::{LaneCount, Progress, SourceBacklog};
use anabranch_record::text::Str;
use anabranch_service::lifecycle::LifecycleState;
use anabranch_store::StoreNumbers;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::declaration::*;
use self::samples::{Labels, Samples};
use crate::live::unacknowledged;
use crate::status::StatusNow;
use crate::view::View;

/// Maximum number of pipelines with their own series; the others, by id, are combined as `other`.
const MOST_PIPELINES: usize = 500;
/// Maximum number of nodes with their own series, over all pipelines.
const MOST_NODES: usize = 2000;
/// Maximum number of partitions with their own series, over all pipelines.
const MOST_PARTITIONS: usize = 2000;
const OTHER: Str = Str::from_static("other");

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Scrape metrics
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain")),
)]
async fn metrics(State(view): State<Arc<View>>) -> impl IntoResponse {
    let pipelines = view.control.all();
    let inspections = |id: &Str| view.control.watch(id).map_or(0, |(taps, _)| taps.inspections());
    let mut samples = sampled(&pipelines, inspections);
    for (id, _) in pipelines.iter().take(MOST_PIPELINES) {
        // If the store does not answer, the response contains all other metrics.
        let Ok(letters) = view.store.letter_totals(id).await else { break };
        samples.add(&LETTERS, Labels::pipeline(id), letters.count as f64);
        samples.add(&LETTER_BYTES, Labels::pipeline(id), letters.bytes as f64);
        samples.add(&LETTERS_EVICTED, Labels::pipeline(id), letters.evicted as f64);
    }
    if let Some(numbers) = view.store.numbers().await {
        add_store(&mut samples, &numbers);
    }
    if let Some(membership) = view.store.membership() {
        add_membership(&mut samples, membership);
    }
    let spans = view.control.spans();
    samples.add(&SPANS_SENT, Labels::default(), spans.sent as f64);
    samples.add(&SPANS_DROPPED, Labels::default(), spans.dropped as f64);
    let text = samples.exposed(ALL);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

fn sampled(pipelines: &[(Str, LifecycleState)], inspections: impl Fn(&Str) -> usize) -> Samples {
    let mut samples = Samples::default();
    samples.add(&INFO, Labels::of("version", Str::from_static(env!("CARGO_PKG_VERSION"))), 1.0);
    for word in StatusNow::WORDS {
        samples.add(&PIPELINES, Labels::of("status", Str::from_static(word)), 0.0);
    }
    let mut nodes_left = MOST_NODES;
    let mut partitions_left = MOST_PARTITIONS;
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
        add_backlogs(&mut samples, &pipeline, &seen.backlogs(), &mut partitions_left);
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

fn add_membership(samples: &mut Samples, membership: &Membership) {
    let standing = membership.standing().borrow().clone();
    let is_member = standing.id.is_some() && standing.lost.is_none();
    samples.add(&CLUSTER_MEMBER, Labels::of("node", membership.name().clone()), if is_member { 1.0 } else { 0.0 });
    let mut units: BTreeMap<&Str, u32> = BTreeMap::new();
    for unit in standing.units.keys() {
        *units.entry(&unit.pipeline).or_default() += 1;
    }
    for (number, (pipeline, units)) in units.into_iter().enumerate() {
        let pipeline = if number < MOST_PIPELINES { pipeline.clone() } else { OTHER };
        samples.add(&CLUSTER_UNITS, Labels::pipeline(&pipeline), f64::from(units));
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

/// Returns the labels of metrics of a source.
fn of_source(pipeline: &Str, connector: &Str) -> Labels {
    Labels::pipeline(pipeline).with("connector", if *pipeline == OTHER { OTHER } else { connector.clone() })
}

fn add_backlogs(samples: &mut Samples, pipeline: &Str, sources: &[SourceBacklog], left: &mut usize) {
    for source in sources {
        let backlog = &source.backlog;
        let kept = backlog.retention.as_ref();
        let known = [
            (&BACKLOG_RECORDS, backlog.records.map(|count| count as f64)),
            (&BACKLOG_BYTES, backlog.bytes.map(|count| count as f64)),
            (&BACKLOG_OBJECTS, backlog.objects.map(|count| count as f64)),
            (&BACKLOG_AGE, source.age().map(|age| age.as_secs_f64())),
            (&RETAINED, kept.and_then(|kept| kept.bytes).map(|count| count as f64)),
            (&RETENTION_SPARE, kept.and_then(|kept| kept.spare_bytes).map(|count| count as f64)),
            (&RETAINED_TRANSACTIONS, kept.and_then(|kept| kept.transactions).map(|count| count as f64)),
            (&MISSED, Some(backlog.missed as f64)),
        ];
        for (metric, value) in known {
            if let Some(value) = value {
                samples.add(metric, of_source(pipeline, &source.connector), value);
            }
        }
        if let Some(status) = kept.and_then(|kept| kept.status.clone()).filter(|_| *pipeline != OTHER) {
            samples.add(&RETENTION_STATUS, of_source(pipeline, &source.connector).with("retention", status), 1.0);
        }
        for (reason, requests) in backlog.refused.numbers() {
            let labels = of_source(pipeline, &source.connector).with("reason", Str::from_static(reason));
            samples.add(&REFUSED, labels, requests as f64);
        }
        for (partition, records) in &backlog.partitions {
            let own = *pipeline != OTHER && *left > 0;
            *left = left.saturating_sub(usize::from(own));
            let partition = if own { partition.0.clone() } else { OTHER };
            let labels = of_source(pipeline, &source.connector).with("partition", partition);
            samples.add(&PARTITION_BACKLOG, labels, *records as f64);
        }
    }
}

/// Adds metrics per connector: a source may have any number of partitions.
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
                let kind = Str::from_static(node.role.as_str());
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
    use anabranch_store::Status;

    use super::*;

    #[test]
    fn there_are_so_many_series_however_many_pipelines_there_are() {
        let pipeline = |number: usize| (Str::from(format!("p{number:04}")), LifecycleState::new(Status::Finished));
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
