//! Inspections: records in flight, streamed over websockets.
//!
//! Errors are sent in a frame and not as the HTTP status, because pages in a browser cannot read the status of a
//! websocket.

mod frame;
mod request;
mod stream;

use std::sync::Arc;

use anabranch_graph::exec::Side;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::View;
use super::error::{ApiError, Kind};
use frame::Form;
use request::{Asked, Request};

/// Maximum number of concurrent inspections.
const MOST: usize = 64;
/// Maximum size of a client message in bytes; clients do not send data.
const FROM_CLIENT: usize = 512;

/// The open inspections.
pub(super) struct Sessions {
    seats: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { seats: Arc::new(Semaphore::new(MOST)), closing: watch::Sender::new(false) }
    }
}

/// The permit for one inspection, returned on drop.
struct Seat {
    _permit: OwnedSemaphorePermit,
    closing: watch::Receiver<bool>,
}

impl Sessions {
    fn enter(&self) -> Result<Seat, ApiError> {
        let permit = self.seats.clone().try_acquire_owned().map_err(|_| {
            let what = format!("{MOST} inspections are open already, which is the maximum");
            ApiError::new(Kind::ResourceExhausted, "inspect.too_many", what).suggest("close an inspection")
        })?;
        Ok(Seat { _permit: permit, closing: self.closing.subscribe() })
    }

    /// Ends all inspections, and waits until they have ended.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        // This fails only if the semaphore is closed, which never happens.
        let _ = self.seats.acquire_many(MOST as u32).await;
    }
}

impl Seat {
    /// Returns when the service ends.
    async fn closing(&mut self) {
        // An error means that the sender is gone, which also means that the service ends.
        let _ = self.closing.wait_for(|closing| *closing).await;
    }
}

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
/// failed; `{"status": …}` at the start and when the status changes; `{"error": …}` before it ends.
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/inspect", tag = "inspect",
    params(("id" = String, Path, description = "Id of the pipeline"), Asked),
    responses((status = 101, description = "The websocket")),
)]
async fn of_pipeline(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
    socket: WebSocketUpgrade,
) -> Response {
    let request = Request::of_pipeline(&view, &id, &asked).await;
    upgrade(socket, view, request, Form::Own)
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
async fn of_connector(State(view): State<Arc<View>>, Path(id): Path<String>, socket: WebSocketUpgrade) -> Response {
    let request = Request::of_connector(&view, &id);
    upgrade(socket, view, request, Form::Protobuf)
}

/// Inspect records that enter a processor
///
/// The frames are those of a connector.
#[utoipa::path(
    get, path = "/v1/processors/{id}/inspect-in", tag = "inspect",
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 101, description = "The websocket")),
)]
async fn into_processor(State(view): State<Arc<View>>, Path(id): Path<String>, socket: WebSocketUpgrade) -> Response {
    let request = Request::of_processor(&view, &id, Side::Before);
    upgrade(socket, view, request, Form::Protobuf)
}

/// Inspect records that leave a processor
///
/// The frames are those of a connector.
#[utoipa::path(
    get, path = "/v1/processors/{id}/inspect-out", tag = "inspect",
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 101, description = "The websocket")),
)]
async fn out_of_processor(State(view): State<Arc<View>>, Path(id): Path<String>, socket: WebSocketUpgrade) -> Response {
    let request = Request::of_processor(&view, &id, Side::After);
    upgrade(socket, view, request, Form::Protobuf)
}

fn upgrade(socket: WebSocketUpgrade, view: Arc<View>, request: Result<Request, ApiError>, form: Form) -> Response {
    let socket = socket.max_message_size(FROM_CLIENT).max_frame_size(FROM_CLIENT);
    socket.on_upgrade(async move |socket| match request.and_then(|request| Ok((request, view.sessions.enter()?))) {
        Ok((request, seat)) => stream::run(socket, &view, &request, form, seat).await,
        Err(error) => stream::refuse(socket, error).await,
    })
}
