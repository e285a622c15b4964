//! The cluster at one moment: its nodes, and the places of its units.

use std::sync::Arc;
use std::time::SystemTime;

use anabranch_cluster::{NodeId, NodeState, Overview, UnitPlace};
use anabranch_record::text::Str;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::status::rfc3339;
use crate::view::View;

pub(crate) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(cluster))
}

/// The nodes of a cluster, and the places of its units.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    /// Time of the answer.
    at: String,
    /// Nodes with a lease, in the order of their names.
    nodes: Vec<ClusterNode>,
    /// Units, in the order of pipelines and slots.
    units: Vec<ClusterUnit>,
}

/// A node with a lease.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterNode {
    /// Its name.
    #[schema(value_type = String)]
    name: Str,
    /// Differs each time the node joins.
    id: String,
    /// URL of its API; empty if the other nodes do not reach it.
    #[schema(value_type = String)]
    url: Str,
    /// Version of its program.
    #[schema(value_type = String)]
    version: Str,
    /// Its labels.
    #[schema(value_type = Vec<String>)]
    labels: Vec<Str>,
    /// True for the node that answers.
    is_this: bool,
    /// True if it gives its units away and takes none.
    is_leaving: bool,
    /// Number of its units.
    units: usize,
    /// Seconds since it joined.
    age_seconds: f64,
    /// Seconds since it renewed its lease.
    silence_seconds: f64,
}

/// A unit: a pipeline, or a share of its partitions.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterUnit {
    #[schema(value_type = String)]
    pipeline: Str,
    /// Number of the share, from 0.
    slot: u32,
    /// Name of the node that has it; absent if it is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    node: Option<Str>,
    /// Name of the node that it moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    moves_to: Option<Str>,
    /// Label that a node needs to run it; absent if any node may.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    label: Option<Str>,
    /// True if the pipeline is being stopped: the node delivers what it has read.
    is_ending: bool,
}

/// Get the nodes of the cluster
#[utoipa::path(
    get, path = "/v1/cluster", tag = "cluster",
    responses((status = 200, description = "The nodes and the units", body = Cluster),
              (status = 404, description = "`cluster.none`", body = Error),
              (status = 503, description = "`store.unavailable`", body = Error)),
)]
async fn cluster(State(view): State<Arc<View>>) -> Result<Json<Cluster>, ApiError> {
    let peers = view.peers.as_ref().ok_or_else(no_cluster)?;
    let unavailable =
        |error| ApiError::new(Kind::Unavailable, codes::STORE_UNAVAILABLE, format!("state store: {error}"));
    let overview = peers.membership().overview(None).await.map_err(unavailable)?;
    let here = peers.membership().standing().borrow().id;
    Ok(Json(Cluster::of(&overview, here)))
}

/// Returns the error of a request for a cluster to a service that runs alone.
pub(super) fn no_cluster() -> ApiError {
    let what = "this service is not a node of a cluster";
    ApiError::new(Kind::NotFound, codes::CLUSTER_NONE, what).suggest("set cluster.url")
}

impl Cluster {
    fn of(overview: &Overview, here: Option<NodeId>) -> Cluster {
        let name = |id: Option<NodeId>| id.and_then(|id| overview.node(id)).map(|node| node.announced.name.clone());
        let node = |node: &NodeState| ClusterNode {
            name: node.announced.name.clone(),
            id: node.id.to_string(),
            url: node.announced.url.clone(),
            version: node.announced.version.clone(),
            labels: node.announced.labels.clone(),
            is_this: Some(node.id) == here,
            is_leaving: node.is_leaving,
            units: overview.units.iter().filter(|place| place.node == Some(node.id)).count(),
            age_seconds: node.age.as_secs_f64(),
            silence_seconds: node.silence.as_secs_f64(),
        };
        let unit = |place: &UnitPlace| ClusterUnit {
            pipeline: place.unit.pipeline.clone(),
            slot: place.unit.slot,
            node: name(place.node),
            moves_to: name(place.wanted_by),
            label: Some(place.label.clone()).filter(|label| !label.is_empty()),
            is_ending: place.is_ending,
        };
        Cluster {
            at: rfc3339(SystemTime::now()),
            nodes: overview.nodes.iter().map(node).collect(),
            units: overview.units.iter().map(unit).collect(),
        }
    }
}
