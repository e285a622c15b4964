//! Live numbers of pipelines that several nodes run.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use futures::future::join_all;
use serde_json::{Map, Value, json};

use super::merge::join;
use crate::access::FORWARDED;
use crate::peers::Peers;
use crate::view::View;

/// Member of a pipeline with the names of the nodes that run it.
const RUN_BY: &str = "runBy";

/// The name of a node, and its numbers of a pipeline.
type Part = (String, Map<String, Value>);

/// Returns the other nodes, if the request is one of a client and the service is a node.
fn peers<'v>(view: &'v View, headers: &HeaderMap) -> Option<&'v Peers> {
    view.peers.as_ref().filter(|_| !headers.contains_key(FORWARDED))
}

/// Adds the pipelines that other nodes run to a sample of this node. Another node gets only what this one runs.
pub(crate) async fn of_all(view: &View, headers: &HeaderMap, mut sample: Value) -> Value {
    let Some(peers) = peers(view, headers) else {
        if view.peers.is_some()
            && let Some(own) = sample["pipelines"].as_array_mut()
        {
            own.retain(|pipeline| pipeline["id"].as_str().is_some_and(|id| view.control.has(id)));
        }
        return sample;
    };
    let others = peers.others().await;
    let answers = join_all(others.iter().map(|peer| peers.get(peer, "/v1/live"))).await;
    let mut parts: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    let mut silent = Vec::new();
    for (peer, answer) in others.iter().zip(answers) {
        let Some(Value::Array(pipelines)) = answer.map(|mut answer| answer["pipelines"].take()) else {
            silent.push(peer.name.to_string());
            continue;
        };
        for pipeline in pipelines {
            if let (Some(id), Value::Object(part)) = (pipeline["id"].as_str().map(str::to_owned), pipeline) {
                parts.entry(id).or_default().push((peer.name.to_string(), part));
            }
        }
    }
    for pipeline in sample["pipelines"].as_array_mut().into_iter().flatten() {
        let Some(id) = pipeline["id"].as_str().map(str::to_owned) else { continue };
        let others = parts.remove(&id).unwrap_or_default();
        *pipeline = with_others(view, peers, &id, pipeline.take(), others);
    }
    if !silent.is_empty() {
        sample["silentNodes"] = json!(silent);
    }
    sample
}

/// Adds the numbers of the other nodes that run units of a pipeline.
pub(crate) async fn of_one(view: &View, headers: &HeaderMap, id: &str, own: Value) -> Value {
    let Some(peers) = peers(view, headers) else { return own };
    let others = peers.owners(id).await;
    let path =
        format!("/v1/pipelines/{}/live", percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC));
    let answers = join_all(others.iter().map(|peer| peers.get(peer, &path))).await;
    let parts = others.iter().zip(answers).filter_map(|(peer, answer)| match answer {
        Some(Value::Object(part)) => Some((peer.name.to_string(), part)),
        _ => None,
    });
    with_others(view, peers, id, own, parts)
}

/// Joins the numbers that this node has of a pipeline with those of the other nodes that run it.
fn with_others(view: &View, peers: &Peers, id: &str, own: Value, others: impl IntoIterator<Item = Part>) -> Value {
    let Value::Object(mut sample) = own else { return own };
    let mut nodes = Vec::new();
    if view.control.has(id) {
        nodes.push(peers.membership().name().to_string());
    }
    for (node, part) in others {
        match nodes.is_empty() {
            // This node knows only the stored status.
            true => sample = part,
            false => join(&mut sample, part),
        }
        nodes.push(node);
    }
    if !nodes.is_empty() {
        sample.insert(RUN_BY.to_owned(), json!(nodes));
    }
    Value::Object(sample)
}
