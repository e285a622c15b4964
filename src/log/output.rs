//! Standard output, written whole lines at a time, with a status line below them on a terminal.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::terminal::shown;

/// A line is written at once when the buffer has grown to this; the end of a batch writes the rest.
const BUFFER_BYTES: usize = 64 << 10;

/// Erases the status line. The cursor always stands at its end.
const ERASE: &[u8] = b"\r\x1b[2K";

/// Where log lines and the status line go. One lock for both, so that neither tears the other.
pub struct Output {
    state: Mutex<State>,
    colored: bool,
    /// Whether somebody is looking.
    live: bool,
    /// Whether lines go to a terminal.
    terminal: bool,
    /// Told when the reader of the lines went away.
    reader_gone: Notify,
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
    /// Standard output is closed.
    pub fn standard(color: bool, status: bool) -> io::Result<Arc<Output>> {
        let stdout = io::stdout();
        let stderr = io::stderr();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let on_terminal = stdout.is_terminal() && !dumb;
        let beside = !on_terminal && !stdout.is_terminal() && stderr.is_terminal() && !dumb;
        Ok(Arc::new(Output {
            state: Mutex::new(State {
                lines: File::from(stdout.as_fd().try_clone_to_owned()?),
                beside: if beside { Some(File::from(stderr.as_fd().try_clone_to_owned()?)) } else { None },
                status: String::new(),
                buffer: Vec::new(),
            }),
            colored: on_terminal && color,
            live: on_terminal && status || beside,
            terminal: stdout.is_terminal(),
            reader_gone: Notify::new(),
        }))
    }

    /// Standard error in the place of standard output, for commands that print something else on that.
    ///
    /// # Errors
    /// Standard error is closed.
    pub fn standard_error() -> io::Result<Arc<Output>> {
        let stderr = io::stderr();
        let file = File::from(stderr.as_fd().try_clone_to_owned()?);
        Ok(Output::of(file, stderr.is_terminal()))
    }

    /// A file in the place of standard output, without colour and status line.
    pub fn to_file(file: File) -> Arc<Output> {
        Output::of(file, false)
    }

    fn of(file: File, terminal: bool) -> Arc<Output> {
        Arc::new(Output {
            state: Mutex::new(State { lines: file, beside: None, status: String::new(), buffer: Vec::new() }),
            colored: false,
            live: false,
            terminal,
            reader_gone: Notify::new(),
        })
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

    /// Writes the lines that `next` appends until it returns false, under one lock, at most one write per
    /// 64 KiB. `next` must not log.
    ///
    /// # Errors
    /// The reader is gone, the disk is full. Lines before the failing write are out.
    pub fn write_lines(&self, next: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> io::Result<()> {
        let outcome = self.state().write_lines(self.live, next);
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            self.reader_gone.notify_one();
        }
        outcome
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
            () = self.reader_gone.notified() => {}
            () = closed => {}
        }
    }

    /// What lines go to, where that is a pipe that the runtime can watch.
    fn pipe(&self) -> Option<pipe::Sender> {
        let lines = self.state().lines.try_clone().ok()?;
        if !lines.metadata().ok()?.file_type().is_fifo() {
            return None;
        }
        // It is only watched, so that nobody who shares it finds it non-blocking.
        pipe::Sender::from_file_unchecked(lines).ok()
    }

    /// Replaces the status line; an empty one removes it.
    pub fn set_status(&self, text: &str) {
        if !self.live {
            return;
        }
        let text = shown(text).into_owned();
        let mut state = self.state();
        if state.status == text {
            return;
        }
        state.buffer.clear();
        // A status line that cannot be drawn is no loss.
        let _ = state.erase().and_then(|()| {
            state.status = text;
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
