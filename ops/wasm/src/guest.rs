//! A running guest: a thread that runs `_start` for the whole life of the guest.

mod calls;
mod wasi;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_ops_opencdc::wire::{CommandRequest, CommandResponse, Request, Response};
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_record::clock;
use anabranch_record::code::Code;
use anabranch_record::text::Str;
use bytes::Bytes;
use prost::Message as _;
use wasmtime::{Linker, Memory, Store, Trap, UpdateDeadline};

use crate::budget::Budget;
use crate::codes;
use crate::compiler::{Compiler, MachineCode};
use crate::egress::Network;
use crate::output::{Output, level};
use calls::Parked;
use wasi::Exit;

/// Stack of the thread: more than wasmtime lets a guest use, for the host functions that it calls.
const STACK: usize = 4 << 20;
/// Time limit for the end of a guest after its last command.
const LAST: Duration = Duration::from_secs(2);

const COOKIE: &str = "3stnegqd0x02axggy0vrc4izjeq2zik6g7somyb3ye4vy5iivvjm5s1edppl5oja";

/// Resource limits of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit of one command, which handles the records of one call; `None` = unlimited.
    pub time: Option<Duration>,
    /// Maximum number of bytes of all its memories and tables, and of the decoded records of one answer.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Some(Duration::from_secs(60)), memory: 1 << 30 }
    }
}

/// Reason why a guest no longer answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GuestEnd {
    #[error("the processor did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("the processor trapped: {0}")]
    Trapped(String),
    #[error("the processor stopped with exit code {code} while it had a command to answer{}", last_words(.said))]
    Exited { code: i32, said: Option<String> },
    #[error("the processor returned data that is not a response: {0}")]
    Garbled(String),
    #[error("the processor cannot be started: {0}")]
    Unstartable(String),
}

/// Returns the last output of a guest.
fn last_words(said: &Option<String>) -> String {
    said.as_ref().map(|said| format!(": {said}")).unwrap_or_default()
}

impl GuestEnd {
    /// Returns the stable code of the fault.
    pub(crate) fn code(&self) -> Code {
        match self {
            GuestEnd::TimedOut(_) => codes::WASM_TIMEOUT,
            GuestEnd::Trapped(_) => codes::WASM_TRAP,
            GuestEnd::Exited { .. } => codes::WASM_EXITED,
            GuestEnd::Garbled(_) => codes::WASM_BAD_RESPONSE,
            GuestEnd::Unstartable(_) => codes::WASM_START,
        }
    }
}

/// Error of a guest that has ended.
#[derive(Clone, Debug)]
pub(crate) struct GuestEnded {
    pub(crate) death: GuestEnd,
    /// True if the guest had received the command, so that the command may be the reason.
    pub(crate) took_command: bool,
}

/// State of a guest for the host functions.
pub(crate) struct State {
    pub(crate) node: Str,
    /// Encoded commands.
    pub(crate) commands: Receiver<Bytes>,
    pub(crate) replies: Sender<Result<CommandResponse, GuestEnded>>,
    /// A command that did not fit into the guest's buffer.
    pub(crate) waiting: Option<Bytes>,
    /// True if a command was passed to the guest and is not answered.
    pub(crate) outstanding: bool,
    pub(crate) parked: Parked,
    pub(crate) schemas: Arc<dyn SchemaRegistry>,
    /// Network access; `None` = no requests.
    pub(crate) network: Option<Arc<Network>>,
    pub(crate) runtime: Option<tokio::runtime::Handle>,
    pub(crate) memory: Option<Memory>,
    pub(crate) environment: Vec<String>,
    pub(crate) output: Output,
    /// Deadline of blocking calls; `None` = never.
    pub(crate) deadline: Option<Instant>,
    pub(crate) limits: Limits,
    /// True if the result of the guest is no longer awaited.
    pub(crate) abandoned: Arc<AtomicBool>,
    budget: Budget,
}

impl State {
    /// Returns how long a call may block, at most `most`.
    pub(crate) fn patience(&self, most: Duration) -> Duration {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(most, |left| left.min(most))
    }

    /// Resets the limits at the start of a command.
    pub(crate) fn begin(&mut self) {
        self.deadline = self.limits.time.map(|time| Instant::now() + time);
        self.output.forget();
        self.budget.forget();
    }

    fn gone(&mut self, death: GuestEnd) -> GuestEnded {
        GuestEnded { death, took_command: self.outstanding || self.waiting.is_some() }
    }
}

/// Settings of a guest at its start.
pub(crate) struct Setting<'a> {
    /// Name in the log.
    pub(crate) node: &'a Str,
    pub(crate) schemas: Arc<dyn SchemaRegistry>,
    pub(crate) network: Option<Arc<Network>>,
    pub(crate) limits: Limits,
}

/// A guest that accepts commands. On drop, the guest learns that there are no more; if it does not end then, it is
/// stopped.
pub(crate) struct Guest {
    /// Channel of commands; `None` after the last one.
    commands: Option<Sender<Bytes>>,
    replies: Receiver<Result<CommandResponse, GuestEnded>>,
    /// The compiler of its code.
    compiler: Compiler,
    limits: Limits,
    abandoned: Arc<AtomicBool>,
    /// True if the guest reported why it ended, or was given up.
    over: bool,
}

impl Guest {
    /// Starts a guest.
    pub(crate) fn start(code: &MachineCode, setting: &Setting<'_>) -> Result<Guest, GuestEnd> {
        let Setting { node, limits, .. } = *setting;
        let (commands, inbox) = mpsc::channel();
        let (outbox, replies) = mpsc::channel();
        let environment = vec![
            format!("CONDUIT_MAGIC_COOKIE={COOKIE}"),
            format!("CONDUIT_PROCESSOR_ID={node}"),
            format!("CONDUIT_LOG_LEVEL={}", level()),
        ];
        let abandoned = Arc::new(AtomicBool::new(false));
        let state = State {
            node: node.clone(),
            commands: inbox,
            replies: outbox,
            waiting: None,
            outstanding: false,
            parked: Parked::default(),
            schemas: setting.schemas.clone(),
            network: setting.network.clone(),
            runtime: tokio::runtime::Handle::try_current().ok(),
            memory: None,
            environment,
            output: Output::new(node.clone()),
            deadline: limits.time.map(|time| Instant::now() + time),
            limits,
            abandoned: abandoned.clone(),
            budget: Budget::new(limits.memory),
        };
        let (code, compiler) = (code.clone(), code.compiler);
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let held = clock::held();
        thread::Builder::new()
            .name(format!("wasm {node}"))
            .stack_size(STACK)
            .spawn(move || {
                clock::hold(held);
                tracing::dispatcher::with_default(&dispatch, || live(&code, state));
            })
            .map_err(|error| GuestEnd::Unstartable(format!("cannot start a thread: {error}")))?;
        Ok(Guest { commands: Some(commands), replies, compiler, limits, abandoned, over: false })
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Response, GuestEnd> {
        self.ask_within(request, self.limits.time)
    }

    /// Like `ask`, with a shorter time limit.
    pub(crate) fn ask_within(&mut self, request: Request, time: Option<Duration>) -> Result<Response, GuestEnd> {
        let command = CommandRequest { request: Some(request) }.encode_to_vec().into();
        let time = self.limits.time.into_iter().chain(time).min();
        self.give(command, time).map_err(|gone| gone.death)
    }

    /// Like `ask`, with an encoded command.
    pub(crate) fn ask_encoded(&mut self, command: Bytes) -> Result<Response, GuestEnded> {
        self.give(command, self.limits.time)
    }

    fn give(&mut self, command: Bytes, time: Option<Duration>) -> Result<Response, GuestEnded> {
        if let Some(commands) = &self.commands {
            // A guest that has ended reports why.
            let _ = commands.send(command);
        }
        let reply = match time {
            Some(time) => self.replies.recv_timeout(time).map_err(|error| match error {
                RecvTimeoutError::Timeout => GuestEnd::TimedOut(time),
                RecvTimeoutError::Disconnected => vanished(),
            }),
            None => self.replies.recv().map_err(|_| vanished()),
        };
        let reply = reply.map_err(|death| GuestEnded { death, took_command: true }).flatten();
        let response = reply.and_then(|reply| {
            let empty = || GuestEnded { death: GuestEnd::Garbled("it is empty".to_owned()), took_command: true };
            reply.response.ok_or_else(empty)
        });
        if response.is_err() {
            self.over = true;
        }
        response
    }
}

fn vanished() -> GuestEnd {
    GuestEnd::Trapped("its thread has ended".to_owned())
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.commands = None;
        if !self.over && matches!(self.replies.recv_timeout(LAST), Ok(Err(_))) {
            return;
        }
        // The guest checks this when it runs its own code; host functions end by themselves.
        self.abandoned.store(true, Ordering::Release);
        if let Ok(engine) = self.compiler.engine() {
            engine.increment_epoch();
        }
    }
}

/// Returns the functions that the host offers to guests with code of this compiler.
fn linker(compiler: Compiler) -> Result<&'static Linker<State>, String> {
    static BASELINE: OnceLock<Result<Linker<State>, String>> = OnceLock::new();
    static OPTIMISED: OnceLock<Result<Linker<State>, String>> = OnceLock::new();
    let made = match compiler {
        Compiler::Baseline => &BASELINE,
        Compiler::Optimising => &OPTIMISED,
    };
    let make = || {
        let mut linker = Linker::new(compiler.engine()?);
        calls::define(&mut linker).and_then(|()| wasi::define(&mut linker)).map_err(|error| format!("{error:#}"))?;
        Ok(linker)
    };
    made.get_or_init(make).as_ref().map_err(Clone::clone)
}

/// Appends further messages to a text.
fn with(text: String, more: impl IntoIterator<Item = String>) -> String {
    more.into_iter().fold(text, |text, more| format!("{text}; {more}"))
}

/// Runs the guest on its thread.
fn live(code: &MachineCode, state: State) {
    let replies = state.replies.clone();
    let unstartable = |text| GuestEnded { death: GuestEnd::Unstartable(text), took_command: false };
    let (linker, mut store) = match linker(code.compiler) {
        Ok(linker) => (linker, Store::new(linker.engine(), state)),
        Err(error) => {
            let _ = replies.send(Err(unstartable(error)));
            return;
        }
    };
    store.limiter(|state| &mut state.budget);
    // The epoch advances when any guest is abandoned.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| match context.data().abandoned.load(Ordering::Acquire) {
        true => Err(Trap::Interrupt.into()),
        false => Ok(UpdateDeadline::Continue(1)),
    });
    let start = linker
        .instantiate(&mut store, &code.module)
        .and_then(|instance| instance.get_typed_func::<(), ()>(&mut store, "_start"));
    let ended = match start {
        Ok(start) => start.call(&mut store, ()),
        Err(error) => {
            let text = with(format!("{error:#}"), store.data().budget.reason());
            let _ = replies.send(Err(unstartable(text)));
            return;
        }
    };
    let state = store.data_mut();
    state.output.flush();
    let said = || state.output.said().map(str::to_owned).into_iter().chain(state.budget.reason());
    let exited = |code| GuestEnd::Exited { code, said: said().reduce(|said, reason| format!("{said}; {reason}")) };
    let trapped = |text: String| GuestEnd::Trapped(with(text, said()));
    let death = match ended {
        Ok(()) => exited(0),
        Err(error) => match (error.downcast_ref::<Exit>(), error.downcast_ref::<Trap>()) {
            (Some(exit), _) => exited(exit.0),
            (_, Some(trap)) => trapped(trap.to_string()),
            _ => trapped(error.root_cause().to_string()),
        },
    };
    let gone = state.gone(death);
    let _ = replies.send(Err(gone));
}
