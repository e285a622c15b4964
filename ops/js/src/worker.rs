//! The process that runs a script for the service, so that what a script does to its interpreter ends this process and
//! not the service.
//!
//! Standard input is a socket on which orders come and answers go. Standard error is a socket on which the service asks
//! which record is at hand; there the service also reads what the runtime says last, and its end is the end of the
//! service. The script has a thread of its own, with the stack that an interpreter needs.

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

use crate::globals::log::{LEVELS, Lines};
use crate::interpreter::Interpreter;
use crate::nesting;
use crate::wire::orders::{Opening, write_fault, write_line, write_outcome};
use crate::wire::{self, Kind, Malformed, Names, Reader, Wants, write_number};

/// The argument that makes our program a worker: `run-script PIPELINE PROCESSOR`. The names are for people who list
/// processes.
pub const RUN: &str = "run-script";

/// Interpreters recurse. Of a stack only what was used takes memory.
pub(crate) const STACK: usize = 64 << 20;
/// Answers are sent when there are so many bytes of them,
const FLUSH_BYTES: usize = 64 << 10;
/// and after a record when the last ones were sent so long ago.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// So long a worker may be without a processor, beyond the time that a record may take: a busy machine is no flaw of a
/// script.
pub(crate) const UNSCHEDULED: Duration = Duration::from_secs(20);

/// Processor time that this process has taken. Every system has this clock; one that lacks it counts no time.
fn taken() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Runs scripts, where the arguments of this process ask for that, until the service ends; `None` where they ask for
/// anything else. To be called before anything else, and while there is one thread.
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
    // What a panic says goes with the answer.
    std::panic::set_hook(Box::new(|_| {}));
    let data = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut control = UnixStream::from(io::stderr().as_fd().try_clone_to_owned()?);
    let mut orders = BufReader::with_capacity(FLUSH_BYTES, data.try_clone()?);
    let Some((Kind::Open, content)) = wire::receive(&mut orders)? else { return Err(Malformed.into()) };
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
    // From here on for as long as the service is there, whatever the script does.
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

/// Bounds what this process may hold; says whether that worked.
fn limit(memory: usize, stack: usize) -> bool {
    // An image of a script's memory is of no use to anybody, and holds records.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let Some(held) = held() else { return false };
    let bytes = (held + stack).saturating_add(memory) as u64;
    let most = getrlimit(Resource::Data).maximum;
    let bytes = most.map_or(bytes, |most| most.min(bytes));
    setrlimit(Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) }).is_ok()
}

/// Bytes of data that this process holds now.
fn held() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// Lines of the script, sent as they are written: what a script says before it is ended is what its author needs.
struct Sent {
    to: RefCell<UnixStream>,
    level: u8,
}

impl Lines for Sent {
    fn enabled(&self, level: Level) -> bool {
        LEVELS.iter().skip(self.level.into()).any(|kept| *kept == level)
    }

    fn write(&self, level: Level, text: &str) {
        let level = LEVELS.iter().position(|known| *known == level).unwrap_or_default();
        let mut frame = Vec::new();
        write_line(&mut frame, level as u8, text);
        // A service that is not there any more reads no log.
        let _ = wire::send(&mut frame, &mut *self.to.borrow_mut());
    }
}

/// Runs the script on what comes, until nothing more can come.
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
        lines.write(Level::WARN, "the memory of this script is not limited: the system does not let it be");
    }
    let mut frame = Vec::new();
    let opened = catch_unwind(AssertUnwindSafe(|| {
        Interpreter::open(opening.program, opening.limits, lines).and_then(Desk::new)
    }));
    let mut desk = match opened.unwrap_or_else(|panic| Err(panicked(&*panic))) {
        Ok(desk) => {
            let desk = Desk { since, ..desk };
            wire::begin(&mut frame, Kind::Opened);
            desk.wants.write(&mut frame);
            wire::send(&mut frame, &mut answers)?;
            desk
        }
        Err(fault) => {
            wire::begin(&mut frame, Kind::Refused);
            write_fault(&mut frame, &fault);
            return wire::send(&mut frame, &mut answers);
        }
    };
    for order in 1u64.. {
        let Some(content) = next_order(&mut orders)? else { break };
        desk.process(content, &mut answers, |row| at.store(order << 32 | row, Ordering::Relaxed))?;
    }
    Ok(())
}

/// Waits for records; `None` where there will be no more. The benchmark's gate counts what is between two calls.
fn next_order(orders: &mut impl Read) -> io::Result<Option<Bytes>> {
    Ok(match wire::receive(orders)? {
        Some((Kind::Process, content)) => Some(content),
        _ => None,
    })
}

/// Where orders are carried out.
pub(crate) struct Desk {
    interpreter: Interpreter,
    /// What the service was told that the script wants.
    wants: Rc<Wants>,
    names: Names,
    frame: Vec<u8>,
    /// Answers that are not sent yet.
    made: Vec<u8>,
    /// Processor time of this process, in nanoseconds, when the order came or answers were sent last.
    since: Arc<AtomicU64>,
}

impl Desk {
    pub(crate) fn new(mut interpreter: Interpreter) -> Result<Desk, Fault> {
        let wants = interpreter.wants()?;
        let (names, since) = (Names::default(), Arc::default());
        Ok(Desk { interpreter, wants, names, frame: Vec::new(), made: Vec::new(), since })
    }

    #[cfg(test)]
    pub(crate) fn wants(&self) -> &Wants {
        &self.wants
    }

    /// Runs the script on the records of an order, each of which is begun with a call of `at`. Where the script wants to
    /// see more of them than there is, the service is told so, and the rest of the order is left undone.
    pub(crate) fn process(
        &mut self,
        content: Bytes,
        answers: &mut impl Write,
        at: impl Fn(u64),
    ) -> Result<(), io::Error> {
        let Desk { interpreter, wants: told, names, frame, made, since } = self;
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
                wire::begin(frame, Kind::Made);
                write_number(frame, done);
                frame.append(made);
                wire::send(frame, answers)?;
                (done, sent) = (0, Instant::now());
                begin();
            }
            if outcome.is_none() {
                *told = interpreter.wants().unwrap_or_else(|_| Rc::new(Wants::ALL));
                wire::begin(frame, Kind::Wants);
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
    Fault::record("operator_panicked", format!("the interpreter panicked: {text}"))
}
