//! A stream that reports its activity to its slot and limits the time of writes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::slots::Slot;

/// Time limit for a client that receives nothing. The limit starts again whenever it receives data.
const PATIENCE: Duration = Duration::from_secs(30);

/// The stream of a connection. With TLS, it carries the encrypted bytes.
#[derive(Debug)]
pub(super) struct MonitoredStream {
    stream: TcpStream,
    slot: Arc<Slot>,
    /// Deadline of a client that receives nothing; created when first needed.
    patience: Option<Pin<Box<Sleep>>>,
    stalls: bool,
}

impl MonitoredStream {
    pub(super) fn new(stream: TcpStream, slot: Arc<Slot>) -> Self {
        MonitoredStream { stream, slot, patience: None, stalls: false }
    }

    /// Records the result of a write.
    fn wrote<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if std::mem::take(&mut self.stalls) {
                self.slot.written();
            }
            return written;
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        if !std::mem::replace(&mut self.stalls, true) {
            patience.as_mut().reset(Instant::now() + PATIENCE);
            self.slot.stalls();
        }
        ready!(patience.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for MonitoredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.slot.heard();
        }
        read
    }
}

impl AsyncWrite for MonitoredStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
