//! Standard output, written whole lines at a time, with a status line below them on a terminal.
//!
//! A terminal may be stopped, and a pipe may have a reader that does not read. Only a thread of its own, and threads that
//! write records, wait for them then; who logs does not.

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

/// A line is written at once when the buffer has grown to this; the end of a batch writes the rest.
const BUFFER_BYTES: usize = 64 << 10;

/// Most bytes of lines that wait for the thread that writes them. Lines beyond it are lost, and counted.
const WAITING_BYTES: usize = 4 << 20;

/// Erases the status line. The cursor always stands at its end.
const ERASE: &[u8] = b"\r\x1b[2K";

/// Where log lines and the status line go. One lock for both, so that neither tears the other.
pub struct Output {
    shared: Arc<Shared>,
    /// To the thread that writes; it ends with this.
    pieces: Sender<Piece>,
    /// What lines go to, to be watched without the lock.
    watched: Option<File>,
    colored: bool,
    /// Whether somebody is looking.
    live: bool,
    /// Whether lines go to a terminal.
    terminal: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Whether there is a status line.
    live: bool,
    /// Bytes of lines that the thread has not written.
    waiting: AtomicUsize,
    /// Pieces that the thread has done with: who waits for it sees that it gets on.
    done: AtomicU64,
    /// Lines that found no room since this was last asked.
    lost: AtomicU64,
    /// Told when the reader of the lines went away.
    reader_gone: Notify,
}

/// What the thread does next.
enum Piece {
    Line(String),
    Status(String),
    /// Says that all before it is written.
    Flush(Sender<()>),
}

struct State {
    lines: File,
    /// Standard error, where only that is a terminal.
    beside: Option<File>,
    status: String,
    buffer: Vec<u8>,
}

impl Output {
    /// Standard output, coloured if it may be. On a terminal it has a status line if `status` says so; with output in a
    /// pipe the status line goes to standard error, if that is a terminal.
    ///
    /// # Errors
    /// Standard output is closed; the system has no thread.
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

    /// Standard error in the place of standard output, for commands that print something else on that.
    ///
    /// # Errors
    /// Standard error is closed; the system has no thread.
    pub fn standard_error() -> io::Result<Arc<Output>> {
        let stderr = io::stderr();
        let file = File::from(stderr.as_fd().try_clone_to_owned()?);
        Output::start(file, None, false, false, stderr.is_terminal())
    }

    /// A file in the place of standard output, without colour and status line.
    ///
    /// # Errors
    /// The system has no thread.
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

    /// Whether lines are coloured.
    pub fn is_colored(&self) -> bool {
        self.colored
    }

    /// Whether lines go to a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether there is a status line.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Has a line written, without waiting for it. It is lost where too much waits already.
    pub fn tell(&self, line: String) {
        let bytes = line.len();
        if self.shared.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > WAITING_BYTES {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // The thread is there as long as this is.
        let _ = self.pieces.send(Piece::Line(line));
    }

    /// How many lines were lost since this was last asked.
    pub fn take_lost(&self) -> u64 {
        self.shared.lost.swap(0, Ordering::Relaxed)
    }

    /// Waits until all that was told is written, or nothing of it could be for `patience`.
    pub fn flush(&self, patience: Duration) {
        let (tell, written) = channel();
        let _ = self.pieces.send(Piece::Flush(tell));
        let mut before = self.shared.done.load(Ordering::Relaxed);
        while written.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let done = self.shared.done.load(Ordering::Relaxed);
            if std::mem::replace(&mut before, done) == done {
                return;
            }
        }
    }

    /// Writes the lines that `next` appends until it returns false, under one lock, at most one write per
    /// 64 KiB, and waits as long as the reader needs for them. `next` must not log.
    ///
    /// # Errors
    /// The reader is gone, the disk is full. Lines before the failing write are out.
    pub fn write_lines(&self, next: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> io::Result<()> {
        self.shared.write_lines(next)
    }

    /// Waits until the reader of the lines has gone away: nothing that is written can arrive any more. The end of a pipe
    /// is noticed although nothing is written.
    pub async fn reader_gone(&self) {
        let pipe = self.pipe();
        let closed = async {
            match &pipe {
                // Of a pipe that is written, an error is that nobody reads it.
                Some(pipe) => drop(pipe.ready(Interest::ERROR).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shared.reader_gone.notified() => {}
            () = closed => {}
        }
    }

    /// What lines go to, where that is a pipe that the runtime can watch.
    fn pipe(&self) -> Option<pipe::Sender> {
        let lines = self.watched.as_ref()?.try_clone().ok()?;
        // It is only watched, so that nobody who shares it finds it non-blocking.
        pipe::Sender::from_file_unchecked(lines).ok()
    }

    /// Replaces the status line; an empty one removes it.
    pub fn set_status(&self, text: &str) {
        // One that nobody has seen yet is not worth the next one.
        if self.live && (text.is_empty() || self.shared.waiting.load(Ordering::Relaxed) == 0) {
            let text = shown(text).into_owned();
            self.shared.waiting.fetch_add(text.len(), Ordering::Relaxed);
            let _ = self.pieces.send(Piece::Status(text));
        }
    }
}

impl Shared {
    /// Writes what comes, as much at once as there is, until nobody can send any more.
    fn write_pieces(&self, todo: &Receiver<Piece>) {
        while let Ok(first) = todo.recv() {
            let mut next = Some(first);
            while let Some(piece) = next.take() {
                match piece {
                    Piece::Line(line) => next = self.write_told(line, todo),
                    Piece::Status(text) => {
                        let bytes = text.len();
                        self.draw(text);
                        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
                    }
                    // Nobody waits any more.
                    Piece::Flush(written) => drop(written.send(())),
                }
                self.done.fetch_add(1, Ordering::Relaxed);
                next = next.or_else(|| todo.try_recv().ok());
            }
        }
    }

    /// Writes a line and those that wait behind it. Returns what is no line.
    fn write_told(&self, first: String, todo: &Receiver<Piece>) -> Option<Piece> {
        let (mut line, mut other, mut taken) = (Some(first), None, 0);
        // There is nobody left to tell that the log itself cannot be written.
        let _ = self.write_lines(&mut |buffer| {
            let Some(text) = line.take() else { return false };
            buffer.extend_from_slice(text.as_bytes());
            taken += text.len();
            if buffer.len() < BUFFER_BYTES {
                match todo.try_recv() {
                    Ok(Piece::Line(next)) => line = Some(next),
                    Ok(piece) => other = Some(piece),
                    Err(_) => {}
                }
            }
            true
        });
        // What was taken out after a write that failed is lost with it.
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
        // A status line that cannot be drawn is no loss.
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

    /// Draws the status line with wrapping off: what does not fit is cut by the terminal.
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
                // Somebody who shares the pipe made it non-blocking; its reader needs a moment.
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
