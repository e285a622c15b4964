//! A request body that reports when it is complete.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};

use super::slots::Slot;

/// A body that informs its slot when it is complete: until then the service waits for the client, and after it the
/// client waits for the service.
pub(super) struct RequestBody {
    body: Incoming,
    slot: Option<Arc<Slot>>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, slot: Arc<Slot>) -> Self {
        slot.awaits_body();
        let mut request = RequestBody { body, slot: Some(slot) };
        request.look();
        request
    }

    /// Informs the slot once, when the body has ended.
    fn look(&mut self) {
        if self.body.is_end_stream() {
            self.complete();
        }
    }

    fn complete(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.answers();
        }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            // A body of a known length is complete with its last byte.
            Poll::Ready(Some(Ok(_))) => self.look(),
            Poll::Ready(_) => self.complete(),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
