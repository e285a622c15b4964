//! Inspections: records on their way, over websockets.
//!
//! What is wrong with a request is told in a frame, and not by the status of the answer: pages in a browser cannot read
//! that of a websocket.

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

/// Most inspections at a time.
const MOST: usize = 64;
/// Largest message that a client may send: it has nothing to say.
const FROM_CLIENT: usize = 512;

/// The inspections that are open.
pub(super) struct Sessions {
    seats: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { seats: Arc::new(Semaphore::new(MOST)), closing: watch::Sender::new(false) }
    }
}

/// The right to one, until it is dropped.
struct Seat {
    _permit: OwnedSemaphorePermit,
    closing: watch::Receiver<bool>,
}

impl Sessions {
    fn enter(&self) -> Result<Seat, ApiError> {
        let permit = self.seats.clone().try_acquire_owned().map_err(|_| {
            let what = format!("{MOST} inspections are open already, which is as many as there may be");
            ApiError::new(Kind::ResourceExhausted, "inspect.too_many", what).suggest("close one")
        })?;
        Ok(Seat { _permit: permit, closing: self.closing.subscribe() })
    }

    /// Tells all of them to end, and waits until they have.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        // It fails when it is closed, which it never is.
        let _ = self.seats.acquire_many(MOST as u32).await;
    }
}

impl Seat {
    /// Returns when the service ends.
    async fn closing(&mut self) {
        // So it does where nobody is left to say it.
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

/// Records at a node of a pipeline
///
/// A websocket with a JSON object per text frame: `{"result": record, "at": {"node", "side"}}`; `{"dropped": n}`, at
/// most once a second, where records passed that are not shown; `{"failed": n, "message"}` where the condition gave no
/// verdict; `{"status": …}` first of all and when the pipeline does something else; `{"error": …}` before it ends.
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

/// Records that a source has read, or that a destination is about to write
///
/// A websocket with a JSON object per text frame: `{"result": record}`, and `{"error": …}` before it ends. Key and
/// payload are `{"rawData": base64}`, `{"structuredData": …}` or `null`.
#[utoipa::path(
    get, path = "/v1/connectors/{id}/inspect", tag = "inspect",
    params(("id" = String, Path, description = "Id of the connector, after that of its pipeline and a colon")),
    responses((status = 101, description = "The websocket")),
)]
async fn of_connector(State(view): State<Arc<View>>, Path(id): Path<String>, socket: WebSocketUpgrade) -> Response {
    let request = Request::of_connector(&view, &id);
    upgrade(socket, view, request, Form::Protobuf)
}

/// Records that come to a processor
///
/// As those of a connector.
#[utoipa::path(
    get, path = "/v1/processors/{id}/inspect-in", tag = "inspect",
    params(("id" = String, Path, description = "Id of the processor, after that of what it belongs to and a colon")),
    responses((status = 101, description = "The websocket")),
)]
async fn into_processor(State(view): State<Arc<View>>, Path(id): Path<String>, socket: WebSocketUpgrade) -> Response {
    let request = Request::of_processor(&view, &id, Side::Before);
    upgrade(socket, view, request, Form::Protobuf)
}

/// Records that leave a processor
///
/// As those of a connector.
#[utoipa::path(
    get, path = "/v1/processors/{id}/inspect-out", tag = "inspect",
    params(("id" = String, Path, description = "Id of the processor, after that of what it belongs to and a colon")),
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
