//! How pipelines are doing now: numbers for who asks again and again.
//!
//! Nothing is counted for it: the executor's counters are read, and what they mean is worked out here.

use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime};

use anabranch_graph::exec::{LaneCount, NodeCount, Progress, QueueCount, SourceBacklog, StageCount, Totals};
use anabranch_graph::plan::Compiled;
use anabranch_picture::{EdgePlace, EdgeRuns, NodePlace, NodeRuns};
use anabranch_record::text::Str;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::View;
use super::error::{ApiError, Error};
use super::status::{StatusNow, rfc3339};
use crate::backlog::BacklogNumbers;
use crate::service::lifecycle::Seen;

/// Since when there is somebody to ask.
static SERVING: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    LazyLock::force(&SERVING);
    OpenApiRouter::new().routes(routes!(live_of_all)).routes(routes!(live_of_one))
}

/// All pipelines of a service at one moment.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Live {
    /// When it was.
    at: String,
    /// Version of the program.
    version: &'static str,
    /// How long it has been serving.
    uptime_seconds: f64,
    pipelines: Vec<PipelineNumbers>,
}

/// A pipeline at one moment. Counters are of the current run, whose number is in the status.
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
    /// Copies on their way.
    in_flight: u64,
    /// Records read of which some copy is in flight.
    unacknowledged: u64,
    /// Age of the oldest of them; 0 = there is none.
    oldest_unacknowledged_seconds: f64,
    /// What its sources have not read yet; left out where none of them knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<BacklogNumbers>,
    /// When records were delivered and their positions stored last, since the service was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<String>,
}

/// What every part of a pipeline is doing at one moment. Counters are of the current run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PipelineLive {
    #[schema(value_type = String)]
    id: Str,
    /// When it was.
    at: String,
    status: StatusNow,
    totals: TotalNumbers,
    /// Partitions of its sources, in the order in which they appeared.
    lanes: Vec<LaneNumbers>,
    /// What its sources have not read yet, of those that know.
    backlogs: Vec<SourceNumbers>,
    /// In the order of the fused graph.
    nodes: Vec<NodeNumbers>,
    edges: Vec<EdgeNumbers>,
}

/// What became of all records: `read + born = delivered + filtered + deadLettered + inFlight`.
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
    /// Dead letters that the bounds of the queue removed in this run.
    letters_evicted: u64,
    in_flight: u64,
}

/// A partition of a source.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LaneNumbers {
    #[schema(value_type = String)]
    connector: Str,
    /// Empty where the source has only one.
    #[schema(value_type = String)]
    partition: Str,
    read: u64,
    settled: u64,
    /// Positions stored.
    stored: u64,
    /// Records read of which some copy is in flight.
    unacknowledged: u64,
    /// Age of the oldest of them; 0 = there is none.
    oldest_unacknowledged_seconds: f64,
    /// How far the stored position is behind what was read; 0 = not at all.
    position_age_seconds: f64,
}

/// What a source has not read yet.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceNumbers {
    #[schema(value_type = String)]
    connector: Str,
    #[serde(flatten)]
    backlog: BacklogNumbers,
    /// Files or objects that were gone before the source could read them, in this run.
    missed: u64,
}

/// A node of the fused graph.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeNumbers {
    /// Its `index` in the graph.
    node: usize,
    #[schema(value_type = String)]
    id: Str,
    /// `source`, `processor`, `destination` or `dead-letter-queue`; left out where the run does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    rows_in: u64,
    /// Those that its condition holds for.
    selected: u64,
    rows_out: u64,
    filtered: u64,
    failed: u64,
    /// Records in it now.
    held: u64,
    /// Time in its calls, over all of its workers; waiting for records or answers counts.
    busy_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<NodeError>,
}

/// The latest failure in a node: of a record, or of a call that is tried again.
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
    /// Records that went along it.
    rows: u64,
    /// Records in the queue between the two; edges that lead to the same node share it.
    queued_rows: u64,
    queued_bytes: u64,
    bound_rows: u64,
    /// Most bytes of the queue; 0 = there is no queue.
    bound_bytes: u64,
    /// Whether who feeds the queue has to wait.
    full: bool,
}

/// How all pipelines are doing now
#[utoipa::path(
    get, path = "/v1/live", tag = "pipelines",
    responses((status = 200, description = "Each with the counters of its current run", body = Live)),
)]
async fn live_of_all(State(view): State<Arc<View>>) -> Json<Live> {
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
        }
    });
    Json(Live {
        at: rfc3339(SystemTime::now()),
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: SERVING.elapsed().as_secs_f64(),
        pipelines: pipelines.collect(),
    })
}

/// What every part of a pipeline is doing now
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/live", tag = "pipelines",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "Numbers per partition, node and edge", body = PipelineLive),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn live_of_one(State(view): State<Arc<View>>, Path(id): Path<String>) -> Result<Json<PipelineLive>, ApiError> {
    let seen = view.control.seen(&id).ok_or_else(|| ApiError::no_pipeline(&id))?;
    let pipeline = view.control.compiled(&id);
    let compiled = pipeline.as_ref().map(|pipeline| &pipeline.compiled);
    Ok(Json(PipelineLive::of(id.as_str().into(), &seen, view.control.invalid(&id), compiled)))
}

impl PipelineLive {
    fn of(id: Str, seen: &Seen, invalid: Option<Str>, compiled: Option<&Compiled>) -> Self {
        let progress = seen.progress.as_deref();
        let totals = progress.map(Progress::totals).unwrap_or_default();
        let lanes = seen.lanes();
        let counted = Counted {
            stages: progress.map(Progress::stages).unwrap_or_default(),
            letters: progress.map(Progress::dead_letters),
        };
        let places = compiled.map(anabranch_picture::Places::of);
        let nodes = places.iter().flat_map(|places| places.nodes.iter().enumerate());
        let edges = places.iter().flat_map(|places| &places.edges);
        PipelineLive {
            id,
            at: rfc3339(SystemTime::now()),
            status: StatusNow::of(seen, invalid),
            totals: TotalNumbers::of(totals),
            lanes: lanes.iter().map(LaneNumbers::of).collect(),
            backlogs: seen.backlogs().iter().map(SourceNumbers::of).collect(),
            nodes: nodes.map(|(index, place)| NodeNumbers::of(index, place, counted.at(place.runs))).collect(),
            edges: edges.filter_map(|edge| Some(EdgeNumbers::of(edge, compiled?, &counted))).collect(),
        }
    }
}

/// Rows of a lane of which some copy is in flight.
pub(super) fn unacknowledged(lane: &LaneCount) -> u64 {
    lane.read.saturating_sub(lane.settled)
}

/// What a run counted. Nothing where there is none, nor for what the plan has by now and the run has not.
struct Counted {
    stages: Vec<StageCount>,
    letters: Option<NodeCount>,
}

impl Counted {
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
    fn of(lane: &LaneCount) -> Self {
        LaneNumbers {
            connector: lane.id.connector.clone(),
            partition: lane.id.partition.0.clone(),
            read: lane.read,
            settled: lane.settled,
            stored: lane.persisted,
            unacknowledged: unacknowledged(lane),
            oldest_unacknowledged_seconds: lane.lag.as_secs_f64(),
            position_age_seconds: lane.unstored.as_secs_f64(),
        }
    }
}

impl SourceNumbers {
    fn of(source: &SourceBacklog) -> Self {
        SourceNumbers {
            connector: source.connector.clone(),
            backlog: BacklogNumbers::of(source),
            missed: source.backlog.missed,
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
            kind: counted.map(|counted| counted.station.as_str()),
            rows_in: count.rows_in,
            selected: count.selected,
            rows_out: count.rows_out,
            filtered: count.filtered,
            failed: count.failed,
            held: count.held,
            busy_seconds: count.busy.as_secs_f64(),
            last_error: last_error.map(|error| NodeError {
                message: error.message.clone(),
                code: error.code,
                at: rfc3339(error.at),
            }),
        }
    }
}

impl EdgeNumbers {
    fn of(edge: &EdgePlace, compiled: &Compiled, counted: &Counted) -> Self {
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
