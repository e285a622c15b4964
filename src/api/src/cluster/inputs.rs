//! What each node of the cluster reads from its own machine.

use std::sync::Arc;

use anabranch_service::inputs::NodeInputs;
use anabranch_store::StoredPipeline;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::overview::no_cluster;
use crate::access::FORWARDED;
use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::view::View;

const PATH: &str = "/v1/cluster/inputs";

pub(crate) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(inputs))
}

/// What the nodes read from their own machines.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterInputs {
    /// The nodes that answered.
    nodes: Vec<NodeWithInputs>,
    /// Names of the nodes that did not answer.
    #[serde(default)]
    silent_nodes: Vec<String>,
}

/// A node, and what it reads.
#[derive(Serialize, Deserialize, ToSchema)]
struct NodeWithInputs {
    /// Its name.
    node: String,
    #[serde(flatten)]
    inputs: NodeInputs,
}

/// Compare what the nodes read from their own machines
///
/// Hashes of the files of plugins and of the variables that pipelines name. Without the token of the nodes, nobody can try
/// whether a value has a hash.
#[utoipa::path(
    get, path = "/v1/cluster/inputs", tag = "cluster",
    responses((status = 200, description = "The inputs of each node", body = ClusterInputs),
              (status = 404, description = "`cluster.none`", body = Error),
              (status = 503, description = "`store.unavailable`", body = Error)),
)]
async fn inputs(State(view): State<Arc<View>>, headers: HeaderMap) -> Result<Json<ClusterInputs>, ApiError> {
    let peers = view.peers.as_ref().ok_or_else(no_cluster)?;
    let unavailable =
        |error| ApiError::new(Kind::Unavailable, codes::STORE_UNAVAILABLE, format!("state store: {error}"));
    let pipelines: Vec<StoredPipeline> = view.store.pipelines().await.map_err(unavailable)?;
    let places = view.inputs.clone();
    let own = tokio::task::spawn_blocking(move || places.read(&pipelines));
    // A node asks this one only for its own.
    let others = if headers.contains_key(FORWARDED) { Vec::new() } else { peers.others().await };
    let answers = join_all(others.iter().map(|peer| peers.get(peer, PATH))).await;
    let mut silent_nodes = Vec::new();
    let mut nodes: Vec<NodeWithInputs> = Vec::new();
    if let Ok(inputs) = own.await {
        nodes.push(NodeWithInputs { node: peers.membership().name().to_string(), inputs });
    }
    for (peer, answer) in others.iter().zip(answers) {
        match answer.and_then(|answer| serde_json::from_value::<ClusterInputs>(answer).ok()) {
            Some(of_peer) => nodes.extend(of_peer.nodes),
            None => silent_nodes.push(peer.name.to_string()),
        }
    }
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(Json(ClusterInputs { nodes, silent_nodes }))
}
