//! The request of an inspection, and its places in the current pipeline.

use std::sync::Arc;

use anabranch_graph::exec::{NodeRole, Side, TapPoint, places};
use anabranch_record::code::Code;
use anabranch_record::text::Str;
use anabranch_service::dead_letters::filter::{ConditionError, condition_of_client};
use anabranch_service::pipelines::Pipeline;
use anabranch_template::condition::CompiledCondition;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::codes;
use crate::error::{ApiError, Kind};
use crate::view::View;

/// Default number of records per second.
const USUAL: u32 = 100;
/// Maximum number of records per second.
const MOST: u32 = 1000;

/// The query of a request.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct InspectQuery {
    /// Id of a connector or processor, or `dead-letter-queue`; default: after all sources. If several have the same id:
    /// `source:ID`, `processor:ID` or `destination:ID`.
    at: Option<String>,
    /// Default: after the node, but before a destination and the dead-letter queue.
    #[param(inline)]
    side: Option<QuerySide>,
    /// A condition; default: all records.
    #[serde(rename = "where")]
    condition: Option<String>,
    /// Maximum records per second; default: 100.
    #[param(minimum = 1, maximum = 1000)]
    sample: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AskedSide)]
enum QuerySide {
    Before,
    After,
}

/// The place to inspect.
#[derive(Clone, Debug, PartialEq, Eq)]
enum InspectPoint {
    Sources,
    Node { id: Str, connector: Option<bool>, side: Option<Side> },
}

/// A validated request of an inspection.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) pipeline: Str,
    at: InspectPoint,
    pub(super) condition: Option<Arc<CompiledCondition>>,
    pub(super) per_second: u32,
    /// Path and query of the request, if the records of other nodes that run the pipeline are to be joined.
    pub(super) elsewhere: Option<String>,
}

impl Request {
    pub(super) async fn of_pipeline(view: &View, id: &str, asked: &InspectQuery) -> Result<Self, ApiError> {
        if view.control.seen(id).is_none() {
            return Err(missing(view, "pipeline", id, codes::PIPELINE_NOT_FOUND));
        }
        let side = asked.side.map(|side| match side {
            QuerySide::Before => Side::Before,
            QuerySide::After => Side::After,
        });
        let at = match asked.at.as_deref().map(str::trim).filter(|at| !at.is_empty()) {
            Some(at) => InspectPoint::Node { id: at.into(), connector: None, side },
            None if side == Some(Side::Before) => {
                let what = "there is nothing before the sources: `side=before` needs a node";
                return Err(ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), codes::INSPECT_SIDE_UNKNOWN, what));
            }
            None => InspectPoint::Sources,
        };
        let condition = asked.condition.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let condition = match condition {
            Some(text) => Some(compiled(text).await?),
            None => None,
        };
        let per_second = asked.sample.unwrap_or(USUAL);
        if !(1..=MOST).contains(&per_second) {
            let what = format!("the sample is {per_second}, but must be from 1 to {MOST} records per second");
            return Err(ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), codes::INSPECT_SAMPLE_INVALID, what));
        }
        Ok(Request { pipeline: id.into(), at, condition: condition.map(Arc::new), per_second, elsewhere: None })
    }

    /// Creates a request from `id`, which consists of the ids of the pipeline and the connector.
    pub(super) fn of_connector(view: &View, id: &str) -> Result<Self, ApiError> {
        let connector = |place: &TapPoint| matches!(place.role, NodeRole::Source | NodeRole::Destination);
        Request::of_part(view, id, None, true, connector)
            .ok_or_else(|| missing(view, "connector", id, codes::CONNECTOR_NOT_FOUND))
    }

    /// Creates a request from `id`, which consists of the ids of the pipeline, of the connector if the processor has
    /// one, and of the processor.
    pub(super) fn of_processor(view: &View, id: &str, side: Side) -> Result<Self, ApiError> {
        Request::of_part(view, id, Some(side), false, |place| place.role == NodeRole::Processor)
            .ok_or_else(|| missing(view, "processor", id, codes::PROCESSOR_NOT_FOUND))
    }

    fn of_part(
        view: &View,
        id: &str,
        side: Option<Side>,
        connector: bool,
        is_meant: impl Fn(&TapPoint) -> bool,
    ) -> Option<Self> {
        // Ids may contain colons, so the parts are matched against existing ids.
        view.control.all().into_iter().find_map(|(pipeline, _)| {
            let part = id.strip_prefix(pipeline.as_str())?.strip_prefix(':')?;
            let compiled = view.control.compiled(&pipeline)?;
            let found =
                places(&compiled.compiled.stages).into_iter().any(|place| is_meant(&place) && *place.node == *part);
            let at = InspectPoint::Node { id: part.into(), connector: Some(connector), side };
            found.then_some(Request { pipeline, at, condition: None, per_second: MOST, elsewhere: None })
        })
    }

    /// Returns the places in the current pipeline.
    pub(super) fn places(&self, pipeline: &Pipeline) -> Result<Vec<TapPoint>, ApiError> {
        let all = places(&pipeline.compiled.stages);
        let InspectPoint::Node { id, connector, side } = &self.at else {
            return Ok(all.into_iter().filter(|place| place.role == NodeRole::Source).collect());
        };
        // The id may begin with the id of the pipeline, as in other paths.
        let own = id.strip_prefix(self.pipeline.as_str()).and_then(|rest| rest.strip_prefix(':'));
        let is_connector = |place: &TapPoint| matches!(place.role, NodeRole::Source | NodeRole::Destination);
        let of = |id: &str, kind: Option<NodeRole>| -> Vec<TapPoint> {
            let fits = |place: &&TapPoint| {
                *place.node == *id
                    && kind.is_none_or(|kind| place.role == kind)
                    && connector.is_none_or(|connector| connector == is_connector(place))
            };
            let found: Vec<TapPoint> = all.iter().filter(fits).cloned().collect();
            // A connector and a processor may have the same id: the first one with the requested side is used.
            let role = found.iter().find(|place| side.is_none_or(|side| place.side == side)).map(|p| p.role);
            let role = role.or(found.first().map(|place| place.role));
            found.into_iter().filter(|place| Some(place.role) == role).collect()
        };
        let mut found = of(id, None);
        if found.is_empty() {
            found = own.map(|own| of(own, None)).unwrap_or_default();
        }
        if found.is_empty() {
            let named = NodeRole::ALL.into_iter().find_map(|kind| {
                let rest = id.strip_prefix(kind.as_str())?.strip_prefix(':')?;
                Some(of(rest, Some(kind)))
            });
            found = named.unwrap_or_default();
        }
        let Some(last) = found.last() else { return Err(self.no_such_node(id, pipeline, &all)) };
        // The side after the node, if the node has two sides.
        let side = side.unwrap_or(last.side);
        match found.iter().find(|place| place.side == side) {
            Some(place) => Ok(vec![place.clone()]),
            None => {
                let what = match last.role {
                    NodeRole::Source => format!("{id} is a source: there is nothing before it"),
                    NodeRole::Destination => format!("{id} is a destination: there is nothing after it"),
                    NodeRole::DeadLetters | NodeRole::Processor => format!("there is nothing {side} {id}"),
                };
                Err(ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), codes::INSPECT_SIDE_UNKNOWN, what))
            }
        }
    }

    fn no_such_node(&self, id: &str, pipeline: &Pipeline, all: &[TapPoint]) -> ApiError {
        let compiled = &pipeline.compiled;
        if compiled.lowered.node_weights().any(|node| *node.id == *id && node.kind.operator().is_some()) {
            let what = format!("no record reaches processor {id}: its condition is never true");
            return ApiError::new(Kind::NotFound, codes::INSPECT_NODE_UNREACHED, what);
        }
        let mut ids: Vec<&str> = all.iter().map(|place| place.node.as_str()).collect();
        ids.dedup();
        let what = format!("pipeline {} has no node {id:?}; its nodes are {}", self.pipeline, ids.join(", "));
        ApiError::new(Kind::NotFound, codes::INSPECT_NODE_UNKNOWN, what)
    }
}

/// Compiles a condition on a thread for expressions of clients.
async fn compiled(text: &str) -> Result<CompiledCondition, ApiError> {
    condition_of_client(text).await.map_err(|error| {
        let what = match &error {
            ConditionError::Fails(..) => error.to_string(),
            error => format!("the condition does not compile: {error}"),
        };
        let refused = ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), codes::INSPECT_WHERE_INVALID, what);
        match error.suggestion() {
            Some(suggestion) => refused.suggest(suggestion.to_owned()),
            None => refused,
        }
    })
}

fn missing(view: &View, what: &str, id: &str, reason: Code) -> ApiError {
    if !view.control.is_ready() {
        let error = ApiError::new(Kind::Unavailable, codes::SERVICE_STARTING, "the service is still starting");
        return error.suggest("try again in a moment");
    }
    ApiError::new(Kind::NotFound, reason, format!("there is no {what} {id:?}"))
}
