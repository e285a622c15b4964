//! The inputs of the nodes of a cluster: files of plugins and variables on their machines.

use std::sync::Arc;

use anabranch_service::inputs::NodeInputs;
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
use crate::error::{ApiError, Error};
use crate::view::View;

const PATH: &str = "/v1/cluster/inputs";

pub(crate) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(inputs))
}

/// The inputs of the nodes of a cluster.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterInputs {
    /// The nodes that answered.
    nodes: Vec<NodeWithInputs>,
    /// Names of the nodes that did not answer.
    #[serde(default)]
    silent_nodes: Vec<String>,
}

/// A node and its inputs.
#[derive(Serialize, Deserialize, ToSchema)]
struct NodeWithInputs {
    /// Its name.
    node: String,
    #[serde(flatten)]
    inputs: NodeInputs,
}

/// Compare the inputs of the nodes of the cluster
///
/// Returns hashes of the files of plugins on each node and of the variables that pipelines name. A caller needs the token of
/// the nodes to compute the hash of a value.
#[utoipa::path(
    get, path = "/v1/cluster/inputs", tag = "cluster",
    responses((status = 200, description = "The inputs of each node", body = ClusterInputs),
              (status = 404, description = "`cluster.none`", body = Error),
              (status = 503, description = "`store.unavailable`", body = Error)),
)]
async fn inputs(State(view): State<Arc<View>>, headers: HeaderMap) -> Result<Json<ClusterInputs>, ApiError> {
    let peers = view.peers.as_ref().ok_or_else(no_cluster)?;
    let pipelines = view.store.pipelines().await?;
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
