//! Standard output, written in whole lines, with a status line below them on a terminal.
//!
//! A terminal may be stopped, and a pipe may have a reader that does not read. Then only the writer thread and threads
//! that write records block; threads that log do not.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::terminal::shown;

/// Size at which the buffer is written; the end of a batch writes the rest.
const BUFFER_BYTES: usize = 64 << 10;

/// Maximum bytes of lines that wait for the writer thread. Further lines are lost and counted.
const WAITING_BYTES: usize = 4 << 20;

/// Erases the status line. The cursor is always at its end.
const ERASE: &[u8] = b"\r\x1b[2K";

/// The output of log lines and the status line. One lock protects both, so that they do not interleave.
pub struct Output {
    shared: Arc<Shared>,
    /// Sends to the writer thread, which ends when this is dropped.
    pieces: Sender<OutputItem>,
    /// The output file, to be watched without the lock.
    watched: Option<File>,
    colored: bool,
    /// True if a status line is shown.
    live: bool,
    /// True if lines go to a terminal.
    terminal: bool,
}

struct Shared {
    state: Mutex<State>,
    /// True if there is a status line.
    live: bool,
    /// Bytes of lines that the writer thread has not written.
    waiting: AtomicUsize,
    /// Number of items that the writer thread has completed; a flush uses it to see progress.
    done: AtomicU64,
    /// Lines lost since the last call of `take_lost`.
    lost: AtomicU64,
    /// Notified when the reader of the lines is gone.
    reader_gone: Notify,
}

/// An item for the writer thread.
enum OutputItem {
    Line(String),
    Status(String),
    /// Reports that everything before it is written.
    Flush(Sender<()>),
}

struct State {
    lines: File,
    /// Standard error, if only that is a terminal.
    beside: Option<File>,
    status: String,
    buffer: Vec<u8>,
}

impl Output {
    /// Creates an output to standard output, in colour if allowed. On a terminal it has a status line if `status` is
    /// true. If output goes to a pipe, the status line goes to standard error, if that is a terminal.
    ///
    /// # Errors
    /// Standard output is closed, or the writer thread cannot start.
    pub fn standard(color: bool, status: bool) -> io::Result<Arc<Output>> {
        let stdout = io::stdout();
        let stderr = io::stderr();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let on_terminal = stdout.is_terminal() && !dumb;
        let beside = !on_terminal && !stdout.is_terminal() && stderr.is_terminal() && !dumb;
        let beside = if beside { Some(File::from(stderr.as_fd().try_clone_to_owned()?)) } else { None };
        let live = on_terminal && status || beside.is_some();
        let lines = File::from(stdout.as_fd().try_clone_to_owned()?);
        Output::start(lines, beside, live, on_terminal && color, stdout.is_terminal())
    }

    /// Creates an output to standard error, for commands that print data to standard output.
    ///
    /// # Errors
    /// Standard error is closed, or the writer thread cannot start.
    pub fn standard_error() -> io::Result<Arc<Output>> {
        let stderr = io::stderr();
        let file = File::from(stderr.as_fd().try_clone_to_owned()?);
        Output::start(file, None, false, false, stderr.is_terminal())
    }

    /// Creates an output to a file, without colour and status line.
    ///
    /// # Errors
    /// The writer thread cannot start.
    pub fn to_file(file: File) -> io::Result<Arc<Output>> {
        Output::start(file, None, false, false, false)
    }

    fn start(lines: File, beside: Option<File>, live: bool, colored: bool, terminal: bool) -> io::Result<Arc<Output>> {
        let watched = lines.metadata().ok().filter(|it| it.file_type().is_fifo()).and_then(|_| lines.try_clone().ok());
        let state = State { lines, beside, status: String::new(), buffer: Vec::new() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            live,
            waiting: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            reader_gone: Notify::new(),
        });
        let (pieces, todo) = channel();
        let writer = shared.clone();
        std::thread::Builder::new().name("anabranch-log".to_owned()).spawn(move || writer.write_pieces(&todo))?;
        Ok(Arc::new(Output { shared, pieces, watched, colored, live, terminal }))
    }

    /// Returns `true` if lines are coloured.
    pub fn is_colored(&self) -> bool {
        self.colored
    }

    /// Returns `true` if lines go to a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns `true` if there is a status line.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Queues a line without blocking. The line is lost if the queue is full.
    pub fn tell(&self, line: String) {
        let bytes = line.len();
        if self.shared.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > WAITING_BYTES {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // The thread exists as long as `self`.
        let _ = self.pieces.send(OutputItem::Line(line));
    }

    /// Returns the number of lines lost since the last call.
    pub fn take_lost(&self) -> u64 {
        self.shared.lost.swap(0, Ordering::Relaxed)
    }

    /// Waits until all queued lines are written, or none of them could be written for `patience`.
    pub fn flush(&self, patience: Duration) {
        let (tell, written) = channel();
        let _ = self.pieces.send(OutputItem::Flush(tell));
        let mut before = self.shared.done.load(Ordering::Relaxed);
        while written.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let done = self.shared.done.load(Ordering::Relaxed);
            if std::mem::replace(&mut before, done) == done {
                return;
            }
        }
    }

    /// Writes the lines that `next` appends until it returns false, under one lock and with at most one write per 64
    /// KiB. Blocks until the reader has received them. `next` must not log.
    ///
    /// # Errors
    /// The reader is gone or the disk is full. Lines before the failed write are written.
    pub fn write_lines(&self, next: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> io::Result<()> {
        self.shared.write_lines(next)
    }

    /// Waits until the reader of the lines is gone. The end of a pipe is detected even if nothing is written.
    pub async fn reader_gone(&self) {
        let pipe = self.pipe();
        let closed = async {
            match &pipe {
                // On the write end of a pipe, an error means that its reader is gone.
                Some(pipe) => drop(pipe.ready(Interest::ERROR).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shared.reader_gone.notified() => {}
            () = closed => {}
        }
    }

    /// Returns the output as a pipe that the runtime can watch, if it is one.
    fn pipe(&self) -> Option<pipe::Sender> {
        let lines = self.watched.as_ref()?.try_clone().ok()?;
        // It is only watched, so that the shared pipe does not become non-blocking for other processes.
        pipe::Sender::from_file_unchecked(lines).ok()
    }

    /// Replaces the status line; an empty one removes it.
    pub fn set_status(&self, text: &str) {
        // Skipped while an earlier one is still queued.
        if self.live && (text.is_empty() || self.shared.waiting.load(Ordering::Relaxed) == 0) {
            let text = shown(text).into_owned();
            self.shared.waiting.fetch_add(text.len(), Ordering::Relaxed);
            let _ = self.pieces.send(OutputItem::Status(text));
        }
    }
}

impl Shared {
    /// Writes queued items, as many at once as possible, until all senders are gone.
    fn write_pieces(&self, todo: &Receiver<OutputItem>) {
        while let Ok(first) = todo.recv() {
            let mut next = Some(first);
            while let Some(piece) = next.take() {
                match piece {
                    OutputItem::Line(line) => next = self.write_told(line, todo),
                    OutputItem::Status(text) => {
                        let bytes = text.len();
                        self.draw(text);
                        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
                    }
                    // The receiver may be gone.
                    OutputItem::Flush(written) => drop(written.send(())),
                }
                self.done.fetch_add(1, Ordering::Relaxed);
                next = next.or_else(|| todo.try_recv().ok());
            }
        }
    }

    /// Writes a line and the lines queued behind it. Returns the next item that is not a line.
    fn write_told(&self, first: String, todo: &Receiver<OutputItem>) -> Option<OutputItem> {
        let (mut line, mut other, mut taken) = (Some(first), None, 0);
        // A failure of the log itself cannot be reported.
        let _ = self.write_lines(&mut |buffer| {
            let Some(text) = line.take() else { return false };
            buffer.extend_from_slice(text.as_bytes());
            taken += text.len();
            if buffer.len() < BUFFER_BYTES {
                match todo.try_recv() {
                    Ok(OutputItem::Line(next)) => line = Some(next),
                    Ok(piece) => other = Some(piece),
                    Err(_) => {}
                }
            }
            true
        });
        // Lines that were taken from the queue after a failed write are lost as well.
        taken += line.map_or(0, |line| line.len());
        self.waiting.fetch_sub(taken, Ordering::Relaxed);
        other
    }

    fn write_lines(&self, next: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> io::Result<()> {
        let outcome = self.state().write_lines(self.live, next);
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            self.reader_gone.notify_one();
        }
        outcome
    }

    fn draw(&self, status: String) {
        let mut state = self.state();
        if state.status == status {
            return;
        }
        state.buffer.clear();
        // A failure to draw the status line is harmless.
        let _ = state.erase().and_then(|()| {
            state.status = status;
            state.draw()
        });
        let _ = state.flush();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write_lines(&mut self, live: bool, next: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> io::Result<()> {
        let status = live && !self.status.is_empty();
        self.buffer.clear();
        if status {
            self.erase()?;
        }
        while next(&mut self.buffer) {
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        if status {
            self.draw()?;
        }
        self.flush()
    }

    fn erase(&mut self) -> io::Result<()> {
        match &mut self.beside {
            Some(file) => file.write_all(ERASE),
            None => {
                self.buffer.extend_from_slice(ERASE);
                Ok(())
            }
        }
    }

    /// Draws the status line without line wrap: the terminal cuts off the rest.
    fn draw(&mut self) -> io::Result<()> {
        if self.status.is_empty() {
            return Ok(());
        }
        let text = format!("\x1b[?7l{}\x1b[?7h", self.status);
        match &mut self.beside {
            Some(file) => file.write_all(text.as_bytes()),
            None => {
                self.buffer.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let State { lines, buffer, .. } = self;
        let mut rest = &buffer[..];
        let mut outcome = Ok(());
        while !rest.is_empty() {
            match lines.write(rest) {
                Ok(0) => outcome = Err(ErrorKind::WriteZero.into()),
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process that shares the pipe made it non-blocking; its reader needs a moment.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => outcome = Err(error),
            }
            if outcome.is_err() {
                break;
            }
        }
        buffer.clear();
        outcome
    }
}
