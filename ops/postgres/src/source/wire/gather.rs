//! A socket that gathers what a busy server sends.
//!
//! A server sends each change on its own, and each packet would wake a thread of this process, which costs more than to
//! decode the change. While packets follow each other closely, the socket is therefore taken out of the poll for some
//! milliseconds at a time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Time for which bytes are gathered.
const GATHER: Duration = Duration::from_millis(4);
/// Time between two reads within which the server is busy.
const BUSY: Duration = Duration::from_millis(10);

/// The socket.
pub(super) struct Gathering {
    state: State,
    /// Time of the last read.
    heard: Option<Instant>,
    is_busy: bool,
}

enum State {
    /// A packet wakes the task.
    Polled(TcpStream),
    /// The end of the pause wakes the task.
    Paused(std::net::TcpStream, Pin<Box<Sleep>>),
    /// The socket failed.
    Broken,
}

impl Gathering {
    pub(super) fn new(stream: TcpStream) -> Gathering {
        Gathering { state: State::Polled(stream), heard: None, is_busy: false }
    }

    /// Returns the socket, and ends a pause.
    fn polled(&mut self) -> io::Result<&mut TcpStream> {
        if matches!(self.state, State::Paused(..))
            && let State::Paused(stream, _) = std::mem::replace(&mut self.state, State::Broken)
        {
            self.state = State::Polled(TcpStream::from_std(stream)?);
        }
        match &mut self.state {
            State::Polled(stream) => Ok(stream),
            State::Paused(..) | State::Broken => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Begins a pause.
    fn pause(&mut self) -> io::Result<()> {
        if let State::Polled(stream) = std::mem::replace(&mut self.state, State::Broken) {
            self.state = State::Paused(stream.into_std()?, Box::pin(sleep(GATHER)));
        }
        Ok(())
    }
}

impl AsyncRead for Gathering {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let State::Paused(_, pause) = &mut this.state {
            ready!(pause.as_mut().poll(cx));
        }
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(this.polled()?).poll_read(cx, buf) {
            let now = Instant::now();
            this.is_busy = buf.filled().len() > before && this.heard.is_some_and(|heard| now - heard < BUSY);
            this.heard = Some(now);
            return Poll::Ready(read);
        }
        // After a pause without a byte, the next packet wakes the task.
        if !std::mem::take(&mut this.is_busy) {
            return Poll::Pending;
        }
        this.pause()?;
        if let State::Paused(_, pause) = &mut this.state
            && pause.as_mut().poll(cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl AsyncWrite for Gathering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.polled()?).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.polled()?).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.polled()?).poll_shutdown(cx)
    }
}
