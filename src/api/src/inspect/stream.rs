//! One inspection over its websocket, from the first frame to the last.

use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::exec::{Inspection, InspectionParameters, TapPoint, TappedRecord, Taps};
use anabranch_plugin::secret::mask;
use anabranch_service::lifecycle::LifecycleState;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep_until, timeout};

use super::elsewhere::{self, Elsewhere};
use super::frame::{self, FrameFormat};
use super::request::Request;
use crate::codes;
use crate::error::{ApiError, Kind};
use crate::sessions::Permit;
use crate::status::StatusNow;
use crate::view::View;

/// Time between two pings to the client.
const PING: Duration = Duration::from_secs(54);
/// A client that was silent for this long, or does not receive a frame within this time, is considered gone.
const SILENCE: Duration = Duration::from_secs(60);
/// Time between two reports of skipped records.
const ACCOUNT: Duration = Duration::from_secs(1);
/// A record of at least this weight is written on another thread, because this one handles signals and timers.
const HEAVY: usize = 64 << 10;
/// Time limit of a last frame.
const LAST: Duration = Duration::from_secs(5);

/// Why an inspection ended.
enum StreamEnd {
    /// The client is gone.
    Gone,
    /// The client closed the websocket.
    Farewell,
    /// The service ends.
    Closing,
    /// The inspection cannot continue.
    Error(ApiError),
}

/// Sends an error and closes the websocket.
pub(super) async fn refuse(mut socket: WebSocket, error: ApiError) {
    let code = if matches!(error.kind, Kind::ResourceExhausted) { close_code::AGAIN } else { close_code::POLICY };
    let close = CloseFrame { code, reason: error.reason.name().into() };
    let last = async {
        socket.send(frame::error(error)).await?;
        socket.send(Message::Close(Some(close))).await?;
        // Waits until the client has closed too: otherwise the last frame might not reach it.
        while let Some(Ok(_)) = socket.recv().await {}
        Ok::<_, axum::Error>(())
    };
    let _ = timeout(LAST, last).await;
}

/// Streams records until the client leaves, the service ends, or the place does not exist any more.
pub(super) async fn run(mut socket: WebSocket, view: &View, request: &Request, form: FrameFormat, permit: Permit) {
    let end = match RecordStream::begin(view, request, form) {
        Ok(mut showing) => showing.run(&mut socket, permit).await,
        Err(error) => StreamEnd::Error(error),
    };
    match end {
        StreamEnd::Gone => {}
        // The library sends the close frame while this reads.
        StreamEnd::Farewell => drop(timeout(LAST, async { while let Some(Ok(_)) = socket.recv().await {} }).await),
        StreamEnd::Closing => {
            let close = CloseFrame { code: close_code::AWAY, reason: "the service is stopping".into() };
            let _ = timeout(LAST, socket.send(Message::Close(Some(close)))).await;
        }
        StreamEnd::Error(error) => refuse(socket, error).await,
    }
}

struct RecordStream<'a> {
    view: &'a View,
    request: &'a Request,
    form: FrameFormat,
    taps: Arc<Taps>,
    seen: tokio::sync::watch::Receiver<LifecycleState>,
    places: Vec<TapPoint>,
    inspection: Inspection,
    /// `None` if the records of other nodes are not shown.
    elsewhere: Option<Elsewhere<'a>>,
}

impl<'a> RecordStream<'a> {
    fn begin(view: &'a View, request: &'a Request, form: FrameFormat) -> Result<Self, ApiError> {
        let id = &request.pipeline;
        let (taps, mut seen) = view.control.watch(id).ok_or_else(|| ApiError::no_pipeline(id))?;
        // The current status is sent first.
        seen.mark_changed();
        let places = Self::places(view, request)?;
        let inspection = Self::look(&taps, request, &places);
        let cluster = view.peers.as_ref().zip(request.elsewhere.as_ref());
        let elsewhere = cluster.map(|(peers, target)| Elsewhere::new(peers, id, target));
        Ok(RecordStream { view, request, form, taps, seen, places, inspection, elsewhere })
    }

    fn places(view: &View, request: &Request) -> Result<Vec<TapPoint>, ApiError> {
        let id = &request.pipeline;
        let compiled = view.control.compiled(id).ok_or_else(|| {
            let what = match view.control.invalid(id) {
                Some(error) => format!("pipeline {id} has errors, so it has no nodes: {error}"),
                None => format!("the plugins of pipeline {id} are still being loaded: its nodes are not known yet"),
            };
            ApiError::new(Kind::FailedPrecondition, codes::PIPELINE_INVALID, what)
        })?;
        request.places(&compiled)
    }

    fn look(taps: &Taps, request: &Request, places: &[TapPoint]) -> Inspection {
        let condition = request.condition.clone();
        taps.inspect(InspectionParameters { places: places.to_vec(), condition, per_second: request.per_second })
    }

    async fn run(&mut self, socket: &mut WebSocket, mut permit: Permit) -> StreamEnd {
        let mut ping = interval_at(Instant::now() + PING, PING);
        let mut account = interval(ACCOUNT);
        account.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent_until = Instant::now() + SILENCE;
        loop {
            let frames = tokio::select! {
                biased;
                () = permit.closing() => return StreamEnd::Closing,
                heard = socket.recv() => match heard {
                    None | Some(Err(_)) => return StreamEnd::Gone,
                    Some(Ok(Message::Close(_))) => return StreamEnd::Farewell,
                    Some(Ok(_)) => {
                        silent_until = Instant::now() + SILENCE;
                        continue;
                    }
                },
                () = sleep_until(silent_until) => return StreamEnd::Gone,
                _ = ping.tick() => vec![Message::Ping(Vec::new().into())],
                changed = self.seen.changed() => match changed.map_err(|_| self.deleted()).and_then(|()| self.changed()) {
                    Ok(frames) => frames,
                    Err(error) => return StreamEnd::Error(error),
                },
                _ = account.tick() => self.account(),
                relayed = elsewhere::next(&mut self.elsewhere) => vec![relayed],
                tapped = self.inspection.next() => written(self.form, &self.places, tapped).await.into_iter().collect(),
            };
            if send(socket, frames).await.is_break() {
                return StreamEnd::Gone;
            }
        }
    }

    fn deleted(&self) -> ApiError {
        let what = format!("pipeline {} was deleted", self.request.pipeline);
        ApiError::new(Kind::NotFound, codes::PIPELINE_NOT_FOUND, what)
    }

    /// Handles a change of the status; the pipeline may be another one.
    fn changed(&mut self) -> Result<Vec<Message>, ApiError> {
        let seen = self.seen.borrow_and_update().clone();
        let places = Self::places(self.view, self.request)?;
        if places != self.places {
            self.inspection = Self::look(&self.taps, self.request, &places);
            self.places = places;
        }
        Ok(match self.form {
            FrameFormat::Own => vec![frame::status(&StatusNow::of(&seen, None))],
            FrameFormat::Protobuf => Vec::new(),
        })
    }

    /// Returns frames that report skipped records.
    fn account(&self) -> Vec<Message> {
        let dropped = self.inspection.take_left_out();
        let unjudged = self.inspection.take_unjudged();
        if self.form == FrameFormat::Protobuf {
            return Vec::new();
        }
        let failed = unjudged.map(|unjudged| {
            let compiled = self.view.control.compiled(&self.request.pipeline);
            let message = unjudged.fault.message();
            let shown = compiled.map(|pipeline| mask(&message, &pipeline.compiled.secrets));
            frame::failed(unjudged.rows, shown.as_deref().unwrap_or("the condition failed"))
        });
        (dropped > 0).then(|| frame::dropped(dropped)).into_iter().chain(failed).collect()
    }
}

/// Writes a record as a frame; `None` if it cannot be written and the format has no frame that says so.
async fn written(form: FrameFormat, places: &[TapPoint], tapped: TappedRecord) -> Option<Message> {
    let written = if tapped.record.weight() < HEAVY {
        frame::record(form, &tapped, places)
    } else {
        let places = places.to_vec();
        match spawn_blocking(move || frame::record(form, &tapped, &places)).await {
            Ok(written) => written,
            // The service ends.
            Err(_) => pending().await,
        }
    };
    match written {
        Ok(message) => Some(message),
        Err(fault) => (form == FrameFormat::Own).then(|| frame::failed(1, &fault.message())),
    }
}

/// Sends frames. Ends if the client has disconnected or receives nothing for [`SILENCE`].
async fn send(socket: &mut WebSocket, frames: Vec<Message>) -> ControlFlow<()> {
    for frame in frames {
        match timeout(SILENCE, socket.send(frame)).await {
            Ok(Ok(())) => {}
            _ => return ControlFlow::Break(()),
        }
    }
    ControlFlow::Continue(())
}
