//! Inspections: records in flight, streamed over websockets.
//!
//! Errors are sent in a frame and not as the HTTP status, because pages in a browser cannot read the status of a
//! websocket.

mod elsewhere;
mod frame;
mod request;
mod stream;

use std::sync::Arc;

use anabranch_graph::exec::Side;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::FORWARDED;
use crate::error::ApiError;
use crate::peers::target;
use crate::view::View;
use frame::FrameFormat;
use request::{InspectQuery, Request};

/// Maximum size of a client message in bytes; clients do not send data.
const FROM_CLIENT: usize = 512;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(of_pipeline))
        .routes(routes!(of_connector))
        .routes(routes!(into_processor))
        .routes(routes!(out_of_processor))
}

/// Inspect records at a node of a pipeline
///
/// A websocket with one JSON object per text frame: `{"result": record, "at": {"node", "side"}}` for each record;
/// `{"dropped": n}`, at most once a second, if records were skipped; `{"failed": n, "message"}` if the condition
/// failed; `{"status": …}` at the start and when the status changes; `{"error": …}` before it ends. In a cluster, the
/// records are those of all nodes that run the pipeline; a node that takes units later is joined within seconds.
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/inspect", tag = "inspect",
    params(("id" = String, Path, description = "Id of the pipeline"), InspectQuery),
    responses((status = 101, description = "The websocket")),
)]
async fn of_pipeline(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Query(asked): Query<InspectQuery>,
    uri: Uri,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    let request = Request::of_pipeline(&view, &id, &asked).await;
    upgrade(socket, view, everywhere(request, &uri, &headers), FrameFormat::Own)
}

/// Inspect records of a connector
///
/// Shows records that a source has read, or that a destination is about to write. A websocket with one JSON object per
/// text frame: `{"result": record}`, and `{"error": …}` before it ends. Key and payload are `{"rawData": base64}`,
/// `{"structuredData": …}` or `null`.
#[utoipa::path(
    get, path = "/v1/connectors/{id}/inspect", tag = "inspect",
    params(("id" = String, Path, description = "`pipeline:connector`")),
    responses((status = 101, description = "The websocket")),
)]
async fn of_connector(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    let request = Request::of_connector(&view, &id);
    upgrade(socket, view, everywhere(request, &uri, &headers), FrameFormat::Protobuf)
}

/// Inspect records that enter a processor
///
/// The frames are those of a connector.
#[utoipa::path(
    get, path = "/v1/processors/{id}/inspect-in", tag = "inspect",
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 101, description = "The websocket")),
)]
async fn into_processor(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    let request = Request::of_processor(&view, &id, Side::Before);
    upgrade(socket, view, everywhere(request, &uri, &headers), FrameFormat::Protobuf)
}

/// Inspect records that leave a processor
///
/// The frames are those of a connector.
#[utoipa::path(
    get, path = "/v1/processors/{id}/inspect-out", tag = "inspect",
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 101, description = "The websocket")),
)]
async fn out_of_processor(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    let request = Request::of_processor(&view, &id, Side::After);
    upgrade(socket, view, everywhere(request, &uri, &headers), FrameFormat::Protobuf)
}

/// Adds the records of the other nodes to an inspection that a client asks for.
fn everywhere(request: Result<Request, ApiError>, uri: &Uri, headers: &HeaderMap) -> Result<Request, ApiError> {
    let mut request = request?;
    if !headers.contains_key(FORWARDED) {
        request.elsewhere = Some(target(uri).to_string());
    }
    Ok(request)
}

fn upgrade(
    socket: WebSocketUpgrade,
    view: Arc<View>,
    request: Result<Request, ApiError>,
    form: FrameFormat,
) -> Response {
    let socket = socket.max_message_size(FROM_CLIENT).max_frame_size(FROM_CLIENT);
    socket.on_upgrade(async move |socket| match request.and_then(|request| Ok((request, view.sessions.enter()?))) {
        Ok((request, permit)) => stream::run(socket, &view, &request, form, permit).await,
        Err(error) => stream::refuse(socket, error).await,
    })
}
