//! A node of a cluster as one of several that answer: requests for a pipeline go to the node that runs it.
//!
//! A node forwards a request once: the node that receives it answers, whether or not it still runs the pipeline.

pub(crate) mod live;
mod merge;
mod overview;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;

use crate::access::FORWARDED;
use crate::view::View;
pub(crate) use overview::router;

/// Forwards a request for a pipeline that another node runs.
pub(crate) async fn forwarded(State(view): State<Arc<View>>, request: Request, next: Next) -> Response {
    let Some(peers) = view.peers.as_ref().filter(|_| !request.headers().contains_key(FORWARDED)) else {
        return next.run(request).await;
    };
    let Some(id) = pipeline_of(&view, request.uri().path()).filter(|id| !view.control.has(id)) else {
        return next.run(request).await;
    };
    if request.uri().path().ends_with("/live") {
        // Joined from all nodes that run units of the pipeline.
        return next.run(request).await;
    }
    let owners = peers.owners(&id).await;
    if owners.len() > 1 && request.uri().path().ends_with("/inspect") {
        // The inspection joins the records of all of them.
        return next.run(request).await;
    }
    let Some(peer) = owners.into_iter().next() else { return next.run(request).await };
    match peers.connect(&peer).await {
        Ok(connection) => peers.pass(&peer, connection, request, &view.sessions).await,
        // This node has the configuration and the stored status.
        Err(_) if request.method() == Method::GET => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Returns the id of the pipeline that a path concerns.
fn pipeline_of(view: &View, path: &str) -> Option<String> {
    let mut parts = path.strip_prefix("/v1/")?.split('/');
    let (kind, id) = (parts.next()?, parts.next()?);
    let id = percent_decode_str(id).decode_utf8().ok()?.into_owned();
    match kind {
        "pipelines" if !(is_of_all(&id) && parts.next().is_none()) => Some(id),
        "connectors" | "processors" => {
            // Ids may contain colons, so the parts are matched against existing ids.
            let known = view.control.all().into_iter().map(|(pipeline, _)| pipeline.to_string());
            known.filter(|known| id.strip_prefix(known.as_str()).is_some_and(|rest| rest.starts_with(':'))).max()
        }
        _ => None,
    }
}

/// Returns `true` for the paths below `/v1/pipelines` that concern no single pipeline.
fn is_of_all(part: &str) -> bool {
    matches!(part, "apply" | "plan" | "test")
}
