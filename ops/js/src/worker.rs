//! The process that runs a script for the service. If a script crashes its interpreter, only this process ends.
//!
//! Standard input is a socket for orders and answers. Standard error is a socket on which the service asks for the
//! current record. The service also reads the last message of the runtime there. If this socket closes, the service has
//! ended. The script has its own thread, with the stack that an interpreter needs.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anabranch_record::clock;
use anabranch_record::fault::Fault;
use bytes::Bytes;
use nix::time::{ClockId, clock_gettime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::Level;

use crate::codes;
use crate::interpreter::Interpreter;
use crate::log::{LEVELS, LineReceiver};
use crate::nesting;
use crate::wire::orders::{Opening, write_fault, write_line, write_outcome};
use crate::wire::{self, FrameKind, Malformed, NameCache, Reader, Wants, write_number};

/// First argument that makes this program a worker: `run-script PIPELINE PROCESSOR`. The names are only for people who
/// list processes.
pub const RUN: &str = "run-script";

/// Stack size in bytes of the script's thread: interpreters recurse. Only the used part takes memory.
pub(crate) const STACK: usize = 64 << 20;
/// Number of bytes of answers at which they are sent.
const FLUSH_BYTES: usize = 64 << 10;
/// Time since the last answers were sent after which they are sent at the end of a record.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// Returns the processor time of this process. Returns zero if the system lacks the clock.
fn taken() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Runs scripts until the service ends, if the arguments of this process ask for it; otherwise returns `None`. Call it
/// first in `main`, while there is only one thread.
pub fn requested(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != *RUN {
        return None;
    }
    Some(match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "this command is for the service itself: {error}");
            ExitCode::from(2)
        }
    })
}

fn serve() -> io::Result<()> {
    // The answer contains the panic message.
    std::panic::set_hook(Box::new(|_| {}));
    let data = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut control = UnixStream::from(io::stderr().as_fd().try_clone_to_owned()?);
    let mut orders = BufReader::with_capacity(FLUSH_BYTES, data.try_clone()?);
    let Some((FrameKind::Open, content)) = wire::receive(&mut orders)? else { return Err(Malformed.into()) };
    let opening = Opening::read(content)?;
    let stack = STACK + nesting::stack(&opening.program.text);
    let limited = limit(opening.memory, stack);
    let at = Arc::new(AtomicU64::new(0));
    let since = Arc::new(AtomicU64::new(0));
    let (bench_at, bench_since) = (at.clone(), since.clone());
    std::thread::Builder::new().name("script".to_owned()).stack_size(stack).spawn(move || {
        let ended = work(opening, orders, data, &bench_at, bench_since, limited);
        std::process::exit(ended.is_err().into());
    })?;
    // Answer questions for as long as the service runs, whatever the script does.
    let mut asked = [0; 16];
    loop {
        match control.read(&mut asked) {
            Ok(0) => break,
            Ok(_) => {
                let at = at.load(Ordering::Relaxed);
                let since = Duration::from_nanos(since.load(Ordering::Relaxed));
                let taken = taken().saturating_sub(since).as_millis();
                control.write_all(format!("\x01{}:{}:{taken}\n", at >> 32, at & 0xffff_ffff).as_bytes())?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    std::process::exit(0);
}

/// Limits the memory of this process; returns whether that succeeded.
fn limit(memory: usize, stack: usize) -> bool {
    // A core dump of a script is of no use, and contains records.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let Some(held) = held() else { return false };
    let bytes = (held + stack).saturating_add(memory) as u64;
    let most = getrlimit(Resource::Data).maximum;
    let bytes = most.map_or(bytes, |most| most.min(bytes));
    setrlimit(Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) }).is_ok()
}

/// Returns the number of bytes of data that this process holds.
fn held() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// Sends log lines as they are written, so that the lines before a crash are not lost.
struct Sent {
    to: RefCell<UnixStream>,
    level: u8,
}

impl LineReceiver for Sent {
    fn enabled(&self, level: Level) -> bool {
        LEVELS.iter().skip(self.level.into()).any(|kept| *kept == level)
    }

    fn write(&self, level: Level, text: &str) {
        let level = LEVELS.iter().position(|known| *known == level).unwrap_or_default();
        let mut frame = Vec::new();
        write_line(&mut frame, level as u8, text);
        // If the service has ended, nothing reads the log.
        let _ = wire::send(&mut frame, &mut *self.to.borrow_mut());
    }
}

/// Runs the script on incoming orders until the service closes the connection.
fn work(
    opening: Opening,
    mut orders: BufReader<UnixStream>,
    mut answers: UnixStream,
    at: &AtomicU64,
    since: Arc<AtomicU64>,
    limited: bool,
) -> io::Result<()> {
    clock::hold(opening.held);
    let lines = Rc::new(Sent { to: RefCell::new(answers.try_clone()?), level: opening.level });
    if !limited {
        lines.write(Level::WARN, "the memory of this script is not limited: the system does not support a limit");
    }
    let mut frame = Vec::new();
    let opened = catch_unwind(AssertUnwindSafe(|| {
        Interpreter::open(opening.program, opening.limits, lines).and_then(Executor::new)
    }));
    let mut executor = match opened.unwrap_or_else(|panic| Err(panicked(&*panic))) {
        Ok(executor) => {
            let executor = Executor { since, ..executor };
            wire::begin(&mut frame, FrameKind::Opened);
            executor.wants.write(&mut frame);
            wire::send(&mut frame, &mut answers)?;
            executor
        }
        Err(fault) => {
            wire::begin(&mut frame, FrameKind::Refused);
            write_fault(&mut frame, &fault);
            return wire::send(&mut frame, &mut answers);
        }
    };
    for order in 1u64.. {
        let Some(content) = next_order(&mut orders)? else { break };
        executor.process(content, &mut answers, |row| at.store(order << 32 | row, Ordering::Relaxed))?;
    }
    Ok(())
}

/// Waits for an order; returns `None` at the end of the connection. The benchmark's gate counts the work between two
/// calls.
fn next_order(orders: &mut impl Read) -> io::Result<Option<Bytes>> {
    Ok(match wire::receive(orders)? {
        Some((FrameKind::Process, content)) => Some(content),
        _ => None,
    })
}

/// Executes orders.
pub(crate) struct Executor {
    interpreter: Interpreter,
    /// Parts of records that the service was asked to send.
    wants: Rc<Wants>,
    names: NameCache,
    frame: Vec<u8>,
    /// Answers that are not sent yet.
    made: Vec<u8>,
    /// Processor time of this process in nanoseconds when the order arrived or answers were last sent.
    since: Arc<AtomicU64>,
}

impl Executor {
    pub(crate) fn new(mut interpreter: Interpreter) -> Result<Executor, Fault> {
        let wants = interpreter.wants()?;
        let (names, since) = (NameCache::default(), Arc::default());
        Ok(Executor { interpreter, wants, names, frame: Vec::new(), made: Vec::new(), since })
    }

    #[cfg(test)]
    pub(crate) fn wants(&self) -> &Wants {
        &self.wants
    }

    /// Runs the script on the records of an order; calls `at` at the start of each. If the script needs more parts of
    /// the records, reports it to the service and skips the rest of the order.
    pub(crate) fn process(
        &mut self,
        content: Bytes,
        answers: &mut impl Write,
        at: impl Fn(u64),
    ) -> Result<(), io::Error> {
        let Executor { interpreter, wants: told, names, frame, made, since } = self;
        let begin = || since.store(u64::try_from(taken().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        begin();
        let mut reader = Reader::new(content, names);
        let careful = reader.byte()? != 0;
        let count = reader.count()? as u64;
        let mut before = None;
        let (mut done, mut sent) = (0, Instant::now());
        for row in 0..count {
            let record = reader.record(told, before.as_ref())?;
            at(row);
            let ready = catch_unwind(AssertUnwindSafe(|| interpreter.wants()));
            let outcome = match ready.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                Ok(wants) if Rc::ptr_eq(&wants, told) || wants == *told => {
                    *told = wants;
                    let outcome = catch_unwind(AssertUnwindSafe(|| match **told == Wants::ALL {
                        true => interpreter.process(&record).map(Some),
                        false => interpreter.process_part(&record),
                    }));
                    outcome.unwrap_or_else(|panic| Err(panicked(&*panic))).transpose()
                }
                Ok(_) => None,
                Err(fault) => Some(Err(fault)),
            };
            if let Some(outcome) = &outcome {
                write_outcome(made, outcome, &record, told);
                done += 1;
            }
            let last = row + 1 == count || outcome.is_none();
            if (last || careful || made.len() >= FLUSH_BYTES || sent.elapsed() >= FLUSH_AFTER) && done > 0 {
                wire::begin(frame, FrameKind::Made);
                write_number(frame, done);
                frame.append(made);
                wire::send(frame, answers)?;
                (done, sent) = (0, Instant::now());
                begin();
            }
            if outcome.is_none() {
                *told = interpreter.wants().unwrap_or_else(|_| Rc::new(Wants::ALL));
                wire::begin(frame, FrameKind::Wants);
                told.write(frame);
                return wire::send(frame, answers);
            }
            before = Some(record);
        }
        Ok(())
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Fault::record(codes::OPERATOR_PANICKED, format!("the interpreter panicked: {text}"))
}
