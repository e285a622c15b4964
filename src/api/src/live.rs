//! Endpoints with live numbers of pipelines, for clients that poll.
//!
//! They add no counters: they read the counters of the executor and compute the numbers from them.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime};

use anabranch_graph::exec::{LaneCount, NodeCount, Progress, QueueCount, SourceBacklog, StageCount, Totals};
use anabranch_graph::plan::Compiled;
use anabranch_picture::{EdgePlace, EdgeRuns, NodePlace, NodeRuns};
use anabranch_record::text::Str;
use anabranch_service::backlog::{BacklogNumbers, RetentionNumbers};
use anabranch_service::lifecycle::LifecycleState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::cluster;
use crate::error::{ApiError, Error};
use crate::status::{StatusNow, rfc3339};
use crate::view::View;

/// Time since which the API accepts requests.
static SERVING: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    LazyLock::force(&SERVING);
    OpenApiRouter::new().routes(routes!(live_of_all)).routes(routes!(live_of_one))
}

/// All pipelines of a service at one moment.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Live {
    /// Time of the sample.
    at: String,
    /// Version of the program.
    version: &'static str,
    /// How long the service has accepted requests.
    uptime_seconds: f64,
    pipelines: Vec<PipelineNumbers>,
    /// Names of the nodes of the cluster that did not answer in time: of their pipelines, only the stored status is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent_nodes: Vec<String>,
}

/// A pipeline at one moment. Counters belong to the current run, whose number is in the status.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PipelineNumbers {
    #[schema(value_type = String)]
    id: Str,
    #[schema(value_type = String)]
    name: Str,
    status: StatusNow,
    /// Records read.
    read: u64,
    /// Copies delivered: a record that goes to two destinations counts twice.
    delivered: u64,
    /// Copies that were filtered.
    filtered: u64,
    /// Copies that failed.
    failed: u64,
    /// Copies whose dead letter is stored.
    dead_lettered: u64,
    /// Copies in flight.
    in_flight: u64,
    /// Records read with at least one copy in flight.
    unacknowledged: u64,
    /// Age of the oldest of them; 0 = there is none.
    oldest_unacknowledged_seconds: f64,
    /// Backlog of its sources; absent if none of them reports one.
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<BacklogNumbers>,
    /// When records were last delivered and their positions stored, since the service started.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<String>,
    /// In a cluster: names of the nodes that run it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    run_by: Vec<String>,
}

/// All parts of a pipeline at one moment. Counters belong to the current run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PipelineLive {
    #[schema(value_type = String)]
    id: Str,
    /// Time of the sample.
    at: String,
    status: StatusNow,
    totals: TotalNumbers,
    /// Partitions of its sources, in the order in which they appeared.
    lanes: Vec<LaneNumbers>,
    /// Backlogs of the sources that report one.
    backlogs: Vec<SourceNumbers>,
    /// In the order of the fused graph.
    nodes: Vec<NodeNumbers>,
    edges: Vec<EdgeNumbers>,
    /// In a cluster: names of the nodes that run it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    run_by: Vec<String>,
}

/// Totals of all records: `read + born = delivered + filtered + deadLettered + inFlight`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TotalNumbers {
    read: u64,
    /// Records of which every copy is delivered, filtered or dead-lettered.
    settled: u64,
    /// Copies made by split, clone, and several destinations.
    born: u64,
    delivered: u64,
    filtered: u64,
    failed: u64,
    dead_lettered: u64,
    /// Dead letters that were evicted because of the limits of the queue in this run.
    letters_evicted: u64,
    in_flight: u64,
}

/// A partition of a source.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LaneNumbers {
    #[schema(value_type = String)]
    connector: Str,
    /// Empty if the source has only one.
    #[schema(value_type = String)]
    partition: Str,
    read: u64,
    settled: u64,
    /// Positions stored.
    stored: u64,
    /// Records read with at least one copy in flight.
    unacknowledged: u64,
    /// Age of the oldest of them; 0 = there is none.
    oldest_unacknowledged_seconds: f64,
    /// Age of the first position that was read after the stored one; 0 = there is none.
    position_age_seconds: f64,
    /// Records of the partition that the source has not read yet; absent if the source does not know their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog_records: Option<u64>,
}

/// The backlog of a source.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceNumbers {
    #[schema(value_type = String)]
    connector: Str,
    #[serde(flatten)]
    backlog: BacklogNumbers,
    /// Files, objects or records that disappeared before the source could read them, in this run.
    missed: u64,
    /// Data that the external system retains for the source; absent if it retains nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<RetentionNumbers>,
}

/// A node of the fused graph.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeNumbers {
    /// Its `index` in the graph.
    node: usize,
    #[schema(value_type = String)]
    id: Str,
    /// `source`, `processor`, `destination` or `dead-letter-queue`; absent if the run does not have the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    rows_in: u64,
    /// Records that match its condition.
    selected: u64,
    rows_out: u64,
    filtered: u64,
    failed: u64,
    /// Records in it now.
    held: u64,
    /// Time in its calls, summed over all of its workers; includes waiting for records or responses.
    busy_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<NodeError>,
}

/// The latest failure in a node: of a record, or of a call that is retried.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeError {
    message: String,
    code: &'static str,
    at: String,
}

/// An edge of the fused graph.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EdgeNumbers {
    /// `index` of the node that records come from.
    from: usize,
    /// `index` of the node that they go to.
    to: usize,
    /// Records that passed along it.
    rows: u64,
    /// Records in the queue of the edge; edges to the same node share it.
    queued_rows: u64,
    queued_bytes: u64,
    bound_rows: u64,
    /// Maximum bytes of the queue; 0 = there is no queue.
    bound_bytes: u64,
    /// True if the sender has to wait for room in the queue.
    full: bool,
}

/// Get live numbers of all pipelines
#[utoipa::path(
    get, path = "/v1/live", tag = "pipelines",
    responses((status = 200, description = "All pipelines with the counters of their current runs", body = Live)),
)]
async fn live_of_all(State(view): State<Arc<View>>, headers: HeaderMap) -> Json<Value> {
    let pipelines = view.control.all().into_iter().map(|(id, seen)| {
        let totals = seen.progress.as_ref().map(|progress| progress.totals()).unwrap_or_default();
        let lanes = seen.lanes();
        PipelineNumbers {
            name: view.control.compiled(&id).map_or_else(|| id.clone(), |found| found.config.name.value.clone()),
            status: StatusNow::of(&seen, view.control.invalid(&id)),
            id,
            read: totals.read,
            delivered: totals.delivered,
            filtered: totals.filtered,
            failed: totals.failed,
            dead_lettered: totals.dead_lettered,
            in_flight: totals.in_flight,
            unacknowledged: lanes.iter().map(unacknowledged).sum(),
            oldest_unacknowledged_seconds: lanes.iter().map(|lane| lane.lag).max().unwrap_or_default().as_secs_f64(),
            backlog: BacklogNumbers::of_all(&seen.backlogs()),
            last_success: seen.succeeded().map(rfc3339),
            run_by: Vec::new(),
        }
    });
    let sample = Live {
        at: rfc3339(SystemTime::now()),
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: SERVING.elapsed().as_secs_f64(),
        pipelines: pipelines.collect(),
        silent_nodes: Vec::new(),
    };
    Json(cluster::live::of_all(&view, &headers, json(&sample)).await)
}

/// Returns a sample as JSON, to which other nodes add theirs.
fn json(sample: &impl Serialize) -> Value {
    // It cannot fail: all keys are text.
    serde_json::to_value(sample).unwrap_or_default()
}

/// Get live numbers of all parts of a pipeline
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/live", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    responses((status = 200, description = "Numbers per partition, node and edge", body = PipelineLive),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn live_of_one(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    let seen = view.control.seen(&id).ok_or_else(|| ApiError::no_pipeline(&id))?;
    let pipeline = view.control.compiled(&id);
    let compiled = pipeline.as_ref().map(|pipeline| &pipeline.compiled);
    let own = PipelineLive::of(id.as_str().into(), &seen, view.control.invalid(&id), compiled);
    Ok(Json(cluster::live::of_one(&view, &headers, &id, json(&own)).await))
}

impl PipelineLive {
    fn of(id: Str, seen: &LifecycleState, invalid: Option<Str>, compiled: Option<&Compiled>) -> Self {
        let progress = seen.progress.as_deref();
        let totals = progress.map(Progress::totals).unwrap_or_default();
        let lanes = seen.lanes();
        let counted = RunCounters {
            stages: progress.map(Progress::stages).unwrap_or_default(),
            letters: progress.map(Progress::dead_letters),
        };
        let places = compiled.map(anabranch_picture::Places::of);
        let nodes = places.iter().flat_map(|places| places.nodes.iter().enumerate());
        let edges = places.iter().flat_map(|places| &places.edges);
        let backlogs = seen.backlogs();
        PipelineLive {
            id,
            at: rfc3339(SystemTime::now()),
            status: StatusNow::of(seen, invalid),
            totals: TotalNumbers::of(totals),
            lanes: lanes.iter().map(|lane| LaneNumbers::of(lane, &backlogs)).chain(unread(&lanes, &backlogs)).collect(),
            backlogs: backlogs.iter().map(SourceNumbers::of).collect(),
            nodes: nodes.map(|(index, place)| NodeNumbers::of(index, place, counted.at(place.runs))).collect(),
            edges: edges.filter_map(|edge| Some(EdgeNumbers::of(edge, compiled?, &counted))).collect(),
            run_by: Vec::new(),
        }
    }
}

/// Returns the partitions of which nothing is read yet, and which have a backlog.
fn unread(lanes: &[LaneCount], backlogs: &[SourceBacklog]) -> impl Iterator<Item = LaneNumbers> {
    let known: HashSet<(&Str, &Str)> = lanes.iter().map(|lane| (&lane.id.connector, &lane.id.partition.0)).collect();
    let all =
        backlogs.iter().flat_map(|source| source.backlog.partitions.iter().map(move |left| (&source.connector, left)));
    all.filter(move |(connector, (partition, _))| !known.contains(&(*connector, &partition.0))).map(
        |(connector, (partition, left))| LaneNumbers {
            connector: connector.clone(),
            partition: partition.0.clone(),
            read: 0,
            settled: 0,
            stored: 0,
            unacknowledged: 0,
            oldest_unacknowledged_seconds: 0.0,
            position_age_seconds: 0.0,
            backlog_records: Some(*left),
        },
    )
}

/// Returns the number of records of a lane with at least one copy in flight.
pub(super) fn unacknowledged(lane: &LaneCount) -> u64 {
    lane.read.saturating_sub(lane.settled)
}

/// The counters of a run. Empty without a run, and for nodes that the plan has and the run does not.
struct RunCounters {
    stages: Vec<StageCount>,
    letters: Option<NodeCount>,
}

impl RunCounters {
    fn at(&self, runs: NodeRuns) -> Option<&NodeCount> {
        match runs {
            NodeRuns::Step(stage, step) => self.stages.get(stage.0)?.nodes.get(step),
            NodeRuns::DeadLetters => self.letters.as_ref(),
        }
    }

    fn rows_out(&self, stage: usize, step: impl FnOnce(&[NodeCount]) -> Option<&NodeCount>) -> u64 {
        self.stages.get(stage).and_then(|stage| step(&stage.nodes)).map_or(0, |node| node.count.rows_out)
    }
}

impl TotalNumbers {
    fn of(totals: Totals) -> Self {
        let Totals { read, settled, born, delivered, filtered, failed, dead_lettered, letters_evicted, in_flight } =
            totals;
        TotalNumbers { read, settled, born, delivered, filtered, failed, dead_lettered, letters_evicted, in_flight }
    }
}

impl LaneNumbers {
    fn of(lane: &LaneCount, backlogs: &[SourceBacklog]) -> Self {
        let source = backlogs.iter().find(|source| source.connector == lane.id.connector);
        LaneNumbers {
            connector: lane.id.connector.clone(),
            partition: lane.id.partition.0.clone(),
            read: lane.read,
            settled: lane.settled,
            stored: lane.persisted,
            unacknowledged: unacknowledged(lane),
            oldest_unacknowledged_seconds: lane.lag.as_secs_f64(),
            position_age_seconds: lane.unstored.as_secs_f64(),
            backlog_records: source.and_then(|source| source.backlog.partitions.get(&lane.id.partition)).copied(),
        }
    }
}

impl SourceNumbers {
    fn of(source: &SourceBacklog) -> Self {
        SourceNumbers {
            connector: source.connector.clone(),
            backlog: BacklogNumbers::of(source),
            missed: source.backlog.missed,
            retention: source.backlog.retention.as_ref().map(RetentionNumbers::of),
        }
    }
}

impl NodeNumbers {
    fn of(index: usize, place: &NodePlace, counted: Option<&NodeCount>) -> Self {
        let count = counted.map(|counted| counted.count).unwrap_or_default();
        let last_error = counted.and_then(|counted| counted.last_error.as_ref());
        NodeNumbers {
            node: index,
            id: place.id.clone(),
            kind: counted.map(|counted| counted.role.as_str()),
            rows_in: count.rows_in,
            selected: count.selected,
            rows_out: count.rows_out,
            filtered: count.filtered,
            failed: count.failed,
            held: count.held,
            busy_seconds: count.busy.as_secs_f64(),
            last_error: last_error.map(|error| NodeError {
                message: error.message.clone(),
                code: error.code.name(),
                at: rfc3339(error.at),
            }),
        }
    }
}

impl EdgeNumbers {
    fn of(edge: &EdgePlace, compiled: &Compiled, counted: &RunCounters) -> Self {
        let (rows, queue) = match edge.runs {
            EdgeRuns::Inside(stage, step) => {
                (counted.rows_out(stage.0, |nodes| nodes.get(step)), QueueCount::default())
            }
            EdgeRuns::Wire(wire) => {
                let wire = compiled.stages.wires.get(wire);
                let rows = wire.map_or(0, |wire| counted.rows_out(wire.from.0, <[_]>::last));
                let queue = wire.and_then(|wire| counted.stages.get(wire.to.0)).map(|stage| stage.queue);
                (rows, queue.unwrap_or_default())
            }
            EdgeRuns::Failed(stage) => {
                let nodes = counted.stages.get(stage.0).map(|stage| stage.nodes.as_slice()).unwrap_or_default();
                (nodes.iter().map(|node| node.count.failed).sum(), QueueCount::default())
            }
        };
        EdgeNumbers {
            from: edge.from,
            to: edge.to,
            rows,
            queued_rows: queue.rows,
            queued_bytes: queue.bytes,
            bound_rows: queue.bound_rows,
            bound_bytes: queue.bound_bytes,
            full: queue.full,
        }
    }
}
