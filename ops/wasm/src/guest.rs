//! One running guest: a thread that is inside `_start` for as long as the guest lives.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_graph::schema::SchemaRegistry;
use anabranch_graph::text::Str;
use anabranch_ops_opencdc::wire::{CommandRequest, CommandResponse, Request, Response};
use bytes::Bytes;
use prost::Message as _;
use wasmtime::{Linker, Memory, Module, Store, StoreLimits, StoreLimitsBuilder, Trap};

use crate::calls::{self, Parked};
use crate::module::{TICK, engine};
use crate::output::{Output, level};
use crate::wasi::{self, Exit};

/// More than the stack that wasmtime lets a guest use, for the calls of ours below it.
const STACK: usize = 4 << 20;
/// A guest that is over its time by this much sits in a call of ours and is left behind.
const GRACE: Duration = Duration::from_secs(10);
/// How long a guest may take to start and to end.
const EDGE: Duration = Duration::from_secs(10);

const COOKIE: &str = "3stnegqd0x02axggy0vrc4izjeq2zik6g7somyb3ye4vy5iivvjm5s1edppl5oja";

/// What a guest may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest time for one command.
    pub(crate) time: Duration,
    /// Bytes of its memory.
    pub(crate) memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_secs(60), memory: 1 << 30 }
    }
}

/// Why a guest does not answer, now or ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Death {
    #[error("the processor did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("the processor trapped: {0}")]
    Trapped(String),
    #[error("the processor stopped with exit code {0} while it had a command to answer")]
    Exited(i32),
    #[error("the processor answered with something that is no response: {0}")]
    Garbled(String),
    #[error("the processor cannot be started: {0}")]
    Unstartable(String),
}

impl Death {
    /// The stable code of the fault.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Death::TimedOut(_) => "wasm_timeout",
            Death::Trapped(_) => "wasm_trap",
            Death::Exited(_) => "wasm_exited",
            Death::Garbled(_) => "wasm_bad_response",
            Death::Unstartable(_) => "wasm_start",
        }
    }
}

/// An encoded command and how long it may take.
pub(crate) struct Command {
    pub(crate) bytes: Vec<u8>,
    pub(crate) time: Duration,
}

/// What the calls of a guest work on.
pub(crate) struct State {
    pub(crate) commands: Receiver<Command>,
    pub(crate) replies: Sender<Result<Bytes, Death>>,
    /// A command that did not fit into the guest's buffer.
    pub(crate) waiting: Option<Command>,
    /// A command was handed over and is not answered.
    pub(crate) outstanding: bool,
    pub(crate) parked: Parked,
    pub(crate) schemas: Arc<dyn SchemaRegistry>,
    pub(crate) runtime: Option<tokio::runtime::Handle>,
    pub(crate) memory: Option<Memory>,
    pub(crate) environment: Vec<String>,
    pub(crate) output: Output,
    pub(crate) started: Instant,
    /// When the guest will be stopped.
    pub(crate) deadline: Instant,
    limits: StoreLimits,
}

/// A guest that commands can be given to.
pub(crate) struct Guest {
    commands: Sender<Command>,
    replies: Receiver<Result<Bytes, Death>>,
    limits: Limits,
}

impl Guest {
    /// Starts a guest. `node` is what it is called in the log.
    pub(crate) fn start(
        module: &Module,
        node: &Str,
        schemas: Arc<dyn SchemaRegistry>,
        limits: Limits,
    ) -> Result<Guest, Death> {
        let (commands, inbox) = mpsc::channel();
        let (outbox, replies) = mpsc::channel();
        let environment = vec![
            format!("CONDUIT_MAGIC_COOKIE={COOKIE}"),
            format!("CONDUIT_PROCESSOR_ID={node}"),
            format!("CONDUIT_LOG_LEVEL={}", level()),
        ];
        let now = Instant::now();
        let state = State {
            commands: inbox,
            replies: outbox,
            waiting: None,
            outstanding: false,
            parked: Parked::default(),
            schemas,
            runtime: tokio::runtime::Handle::try_current().ok(),
            memory: None,
            environment,
            output: Output::new(node.clone()),
            started: now,
            deadline: now + EDGE,
            limits: StoreLimitsBuilder::new().memory_size(limits.memory).build(),
        };
        let module = module.clone();
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        thread::Builder::new()
            .name(format!("wasm {node}"))
            .stack_size(STACK)
            .spawn(move || tracing::dispatcher::with_default(&dispatch, || live(&module, state)))
            .map_err(|error| Death::Unstartable(format!("no thread: {error}")))?;
        Ok(Guest { commands, replies, limits })
    }

    /// Gives a command and waits for its answer.
    pub(crate) fn ask(&self, request: Request) -> Result<Response, Death> {
        self.ask_encoded(CommandRequest { request: Some(request) }.encode_to_vec())
    }

    /// The same with a command that is encoded already.
    pub(crate) fn ask_encoded(&self, bytes: Vec<u8>) -> Result<Response, Death> {
        let time = self.limits.time;
        // A guest that is gone said why before.
        let _ = self.commands.send(Command { bytes, time });
        let reply = match self.replies.recv_timeout(time + GRACE) {
            Ok(reply) => reply?,
            Err(RecvTimeoutError::Timeout) => return Err(Death::TimedOut(time)),
            Err(RecvTimeoutError::Disconnected) => return Err(Death::Trapped("it is gone".to_owned())),
        };
        let response = CommandResponse::decode(reply).map_err(|error| Death::Garbled(error.to_string()))?;
        response.response.ok_or_else(|| Death::Garbled("it is empty".to_owned()))
    }
}

/// The number of ticks that make up a time, rounded up.
pub(crate) fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u64::MAX).saturating_add(1)
}

fn linker() -> Result<&'static Linker<State>, String> {
    static LINKER: OnceLock<Result<Linker<State>, String>> = OnceLock::new();
    let made = LINKER.get_or_init(|| {
        let mut linker = Linker::new(engine()?);
        calls::define(&mut linker).and_then(|()| wasi::define(&mut linker)).map_err(|error| format!("{error:#}"))?;
        Ok(linker)
    });
    made.as_ref().map_err(Clone::clone)
}

/// The life of the thread.
fn live(module: &Module, state: State) {
    let replies = state.replies.clone();
    let begin = || -> Result<_, String> {
        let linker = linker()?;
        let mut store = Store::new(linker.engine(), state);
        store.limiter(|state| &mut state.limits);
        store.set_epoch_deadline(ticks(EDGE));
        Ok((linker, store))
    };
    let (linker, mut store) = match begin() {
        Ok(begun) => begun,
        Err(error) => {
            let _ = replies.send(Err(Death::Unstartable(error)));
            return;
        }
    };
    let start = linker.instantiate(&mut store, module).and_then(|instance| {
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
        Ok(start)
    });
    let ended = match start {
        Ok(start) => start.call(&mut store, ()),
        Err(error) => {
            let _ = replies.send(Err(Death::Unstartable(format!("{error:#}"))));
            return;
        }
    };
    let state = store.data_mut();
    state.output.flush();
    let time = state.deadline.saturating_duration_since(state.started);
    let death = match ended {
        Ok(()) => Death::Exited(0),
        Err(error) => match (error.downcast_ref::<Exit>(), error.downcast_ref::<Trap>()) {
            (Some(exit), _) => Death::Exited(exit.0),
            (_, Some(Trap::Interrupt)) => Death::TimedOut(time),
            (_, Some(trap)) => Death::Trapped(trap.to_string()),
            _ => Death::Trapped(error.root_cause().to_string()),
        },
    };
    let _ = replies.send(Err(death));
}
