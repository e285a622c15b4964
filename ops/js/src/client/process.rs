//! A worker process and the messages to it. Dropping it ends the process.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_plugin::operator::Decision;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::{Record, clock};
use bytes::Bytes;

use crate::codes;
use crate::limits::UNSCHEDULED;
use crate::log::{LEVELS, LineReceiver};
use crate::wire::orders::{Opening, read_fault, read_line, read_outcome, write_order};
use crate::wire::{self, FrameKind, LastMetadata, Malformed, NameCache, Reader, Wants};
use crate::worker::{FLUSH_AFTER, RUN};

/// Time beyond the limit after which a script is assumed to be in code that cannot be interrupted.
const GRACE: Duration = Duration::from_secs(1);
/// Maximum time that a process may take to start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Maximum time for an answer from the thread that runs concurrently with the script.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a worker's last message that are read.
const LAST_WORDS: u64 = 4096;

/// Settings of the worker processes that run scripts.
#[derive(Clone, Debug)]
pub struct Launch {
    /// A program that calls [`crate::worker::requested`] first, usually this one.
    pub program: OsString,
    /// Maximum number of bytes that one script may hold in one worker, not counting the stack.
    pub memory: usize,
}

impl Launch {
    /// Uses this program, even if its file was replaced. Requires that this process has called
    /// [`crate::worker::requested`].
    pub fn own(memory: usize) -> Self {
        let program = match cfg!(target_os = "linux") {
            true => "/proc/self/exe".into(),
            false => std::env::current_exe().map_or_else(|_| "anabranch".into(), OsString::from),
        };
        Launch { program, memory }
    }
}

/// Maximum number of consecutive `Wants` messages without an answer.
const MOST_WISHES: usize = 8;

/// Reason why not all records of an order were answered.
pub(super) enum EndReason {
    /// A record cannot be sent. The worker has received nothing of the order and is alive.
    Unfit { row: usize, fault: Fault },
    /// The worker did not finish this record in time and was killed.
    Stuck { row: usize, fault: Fault },
    /// The worker has ended, or was killed because it did not answer.
    Died(Fault),
}

pub(super) struct Worker {
    child: Child,
    data: BufReader<UnixStream>,
    /// Channel on which the worker reports the record that it processes, and the last message of the runtime.
    control: UnixStream,
    orders: u64,
    frame: Vec<u8>,
    names: NameCache,
    /// Parts of records that the worker receives.
    wants: Wants,
    /// Number of `Wants` messages since its last answer.
    wishes: usize,
    /// Time limit per record.
    time: Duration,
    memory: usize,
}

impl Worker {
    /// Starts a process and waits until the script is ready.
    pub(super) fn start(
        launch: &Launch,
        opening: &Opening,
        names: &[Str; 2],
        lines: &dyn LineReceiver,
    ) -> Result<Worker, Fault> {
        let mut worker = Worker::spawn(launch, opening, names).map_err(|error| {
            Fault::transient(codes::NO_WORKER, format!("cannot start a process for a script: {error}"))
        })?;
        let opening = Opening { held: clock::held(), ..opening.clone() };
        opening.write(&mut worker.frame);
        let told = wire::send(&mut worker.frame, worker.data.get_mut());
        let opened = told.and_then(|()| match worker.receive(lines)? {
            Some((FrameKind::Opened, content)) => {
                worker.wants = Wants::read(&mut Reader::new(content, &mut NameCache::default()))?;
                Ok(None)
            }
            Some((FrameKind::Refused, content)) => {
                Ok(Some(read_fault(&mut Reader::new(content, &mut NameCache::default()))?))
            }
            Some(_) => Err(Malformed.into()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        });
        match opened {
            Ok(None) => {}
            Ok(Some(fault)) => return Err(Fault::fatal(fault.code(), fault.message())),
            Err(error) if is_late(&error) => {
                let text = format!("{} was stopped before it was ready (setting timeout)", opening.program.name);
                return Err(Fault::fatal(codes::SCRIPT_TIMEOUT, text));
            }
            Err(error) => {
                let fault = worker.died(&error);
                return Err(Fault::fatal(fault.code(), fault.message()));
            }
        }
        let patience =
            |error: io::Error| Fault::transient(codes::NO_WORKER, format!("cannot wait for a process: {error}"));
        worker.data.get_ref().set_read_timeout(Some(worker.time + GRACE + FLUSH_AFTER)).map_err(patience)?;
        Ok(worker)
    }

    fn spawn(launch: &Launch, opening: &Opening, names: &[Str; 2]) -> io::Result<Worker> {
        let (data, their_data) = UnixStream::pair()?;
        let (control, their_control) = UnixStream::pair()?;
        let time = opening.limits.time;
        data.set_read_timeout(Some(time + GRACE + START))?;
        data.set_write_timeout(Some(START))?;
        control.set_read_timeout(Some(AT_ONCE))?;
        control.set_write_timeout(Some(AT_ONCE))?;
        let mut command = Command::new(&launch.program);
        command
            .arg(RUN)
            .args(names.iter().map(Str::as_str))
            // The script must not see the environment of the service. The allocator setting keeps single reservations
            // below the memory limit.
            .env_clear()
            .env("MIMALLOC_ARENA_RESERVE", "32MiB")
            .envs(std::env::var_os("TZ").map(|zone| ("TZ", zone)))
            .current_dir("/")
            .stdin(OwnedFd::from(their_data))
            .stdout(Stdio::null())
            .stderr(OwnedFd::from(their_control))
            // Ctrl+C at the terminal must reach only the service, which delivers first what it has read.
            .process_group(0);
        let child = command.spawn()?;
        Ok(Worker {
            child,
            data: BufReader::with_capacity(64 << 10, data),
            control,
            orders: 0,
            frame: Vec::new(),
            names: NameCache::default(),
            wants: Wants::ALL,
            wishes: 0,
            time,
            memory: launch.memory,
        })
    }

    /// Processes records in place and appends the decisions to `made`, in order. There may be fewer decisions than
    /// records if the worker requests the others again with more parts.
    pub(super) fn process(
        &mut self,
        records: &mut [&mut Record],
        careful: bool,
        made: &mut Vec<Result<Decision, Fault>>,
        lines: &dyn LineReceiver,
    ) -> Result<(), EndReason> {
        if let Err((row, error)) = write_order(&mut self.frame, careful, records, &self.wants) {
            return Err(EndReason::Unfit { row, fault: Fault::record(codes::SCRIPT_RESULT, error.to_string()) });
        }
        self.orders += 1;
        let end = made.len() + records.len();
        let first = made.len();
        let told = wire::send(&mut self.frame, self.data.get_mut());
        told.and_then(|()| {
            while made.len() < end {
                match self.receive(lines)? {
                    Some((FrameKind::Made, content)) => self.take(content, &mut records[made.len() - first..], made)?,
                    Some((FrameKind::Wants, content)) => return Ok(self.wish(content)?),
                    Some(_) => return Err(Malformed.into()),
                    None => return Err(ErrorKind::UnexpectedEof.into()),
                }
            }
            Ok(())
        })
        .map_err(|error| match is_late(&error).then(|| self.at_hand()).flatten() {
            Some((Some(row), _)) if (made.len() - first..records.len()).contains(&row) => {
                let text =
                    format!("the script could not be stopped, and its process was ended after {:?}", self.time + GRACE);
                EndReason::Stuck {
                    row,
                    fault: Fault::record(codes::SCRIPT_TIMEOUT, format!("{text} (setting timeout)")),
                }
            }
            _ => EndReason::Died(self.died(&error)),
        })
    }

    /// Applies the answers of a message to the first of these records and those after it.
    fn take(
        &mut self,
        content: Bytes,
        records: &mut [&mut Record],
        made: &mut Vec<Result<Decision, Fault>>,
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(content, &mut self.names);
        let mut remembered = LastMetadata::default();
        let count = reader.count()?;
        for record in records.get_mut(..count).ok_or(Malformed)? {
            made.push(read_outcome(&mut reader, record, &self.wants, &mut remembered)?);
            self.wishes = 0;
        }
        if reader.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    /// Handles a `Wants` message of the worker.
    fn wish(&mut self, content: Bytes) -> Result<(), Malformed> {
        self.wants = Wants::read(&mut Reader::new(content, &mut self.names))?;
        self.wishes += 1;
        if self.wishes <= MOST_WISHES { Ok(()) } else { Err(Malformed) }
    }

    /// Waits for a message of the worker. Fails if the worker had enough processor time and sends nothing.
    fn wait(&mut self) -> io::Result<()> {
        let since = Instant::now();
        loop {
            match self.data.fill_buf().map(|_| ()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_late(&error) && since.elapsed() < self.time + UNSCHEDULED => match self.at_hand() {
                    Some((_, taken)) if taken < self.time + GRACE / 2 => {}
                    _ => return Err(error),
                },
                done => return done,
            }
        }
    }

    /// Returns the next message; writes log lines to `lines`.
    fn receive(&mut self, lines: &dyn LineReceiver) -> io::Result<Option<(FrameKind, Bytes)>> {
        loop {
            self.wait()?;
            match wire::receive(&mut self.data)? {
                Some((FrameKind::Line, content)) => {
                    let (level, text) = read_line(content)?;
                    let level = *LEVELS.get(usize::from(level)).ok_or(Malformed)?;
                    lines.write(level, &text);
                }
                other => return Ok(other),
            }
        }
    }

    /// Returns the record of the order that the script is at (if it has begun the order), and the processor time since
    /// the last answer. Returns `None` if the process does not answer.
    fn at_hand(&mut self) -> Option<(Option<usize>, Duration)> {
        self.control.write_all(b"?").ok()?;
        let mut said = Vec::new();
        let mut piece = [0; 256];
        while !said.ends_with(b"\n") || !said.contains(&1) {
            match self.control.read(&mut piece) {
                Ok(read @ 1..) if said.len() < LAST_WORDS as usize => said.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
        let said = String::from_utf8_lossy(&said);
        let (order, rest) = said.rsplit_once('\x01')?.1.trim_end().split_once(':')?;
        let (row, taken) = rest.split_once(':')?;
        let row = row.parse().ok().filter(|_| order.parse() == Ok(self.orders));
        Some((row, Duration::from_millis(taken.parse().ok()?)))
    }

    /// Returns why the process died. Kills it if it is still running.
    fn died(&mut self, error: &io::Error) -> Fault {
        let silent = is_late(error);
        let broken = error.kind() == ErrorKind::InvalidData;
        if silent || broken {
            let _ = self.child.kill();
        }
        let mut said = Vec::new();
        let _ = (&mut self.control).take(LAST_WORDS).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        let _ = self.child.kill();
        let how = match self.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("signal {signal}"),
                (None, code) => format!("exit code {}", code.unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        };
        if said.contains("memory allocation of") {
            let limit = self.memory >> 20;
            let text = format!("the script needs more memory than the {limit} MiB of processors.max-memory");
            return Fault::record(codes::SCRIPT_MEMORY, text);
        }
        let text = match said.contains("overflowed its stack") {
            true => {
                "the script crashed its process: it nests data or calls deeper than the interpreter supports".into()
            }
            false if silent => "the process of the script does not answer and was ended".to_owned(),
            false if broken => format!("the process of the script sent {error} and was ended"),
            false => format!("the process of the script ended ({how})"),
        };
        Fault::record(codes::SCRIPT_CRASHED, text)
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
