//! The five calls of the module `conduit`, each `(ptr, len) -> size or code`.

use std::time::{Duration, Instant};

use anabranch_graph::schema::{Schema, SchemaError, SchemaKind, SchemaVersion};
use anabranch_ops_opencdc::wire::{self, CommandResponse};
use bytes::Bytes;
use prost::Message as _;
use wasmtime::{AsContextMut as _, Caller, Linker, Result};

use crate::guest::{Death, State, ticks};
use crate::wasi::memory;

/// Error codes, which are above every size.
mod code {
    pub(super) const NO_MORE_COMMANDS: u32 = 0xFFFF_FFFE;
    pub(super) const UNKNOWN_RESPONSE: u32 = 0xFFFF_FFFC;
    pub(super) const OUT_OF_RANGE: u32 = 0xFFFF_FFFB;
    pub(super) const INTERNAL: u32 = 0xFFFF_FFFA;
    pub(super) const SUBJECT_NOT_FOUND: u32 = 0xFFFF_FFF9;
    pub(super) const VERSION_NOT_FOUND: u32 = 0xFFFF_FFF8;
    pub(super) const INVALID_SCHEMA: u32 = 0xFFFF_FFF7;
    pub(super) const EGRESS_DISABLED: u32 = 0xFFFF_FFF6;
    /// The lowest of them all.
    pub(super) const FIRST: u32 = u32::MAX - 100;
}

/// How long a guest may take to end after its last command.
const LAST: Duration = Duration::from_secs(10);
/// How long the registry of schemas may take.
const REGISTRY: Duration = Duration::from_secs(30);

/// Answers that did not fit, each with the request it answers, by call.
#[derive(Default)]
pub(crate) struct Parked([Option<(Vec<u8>, Vec<u8>)>; 2]);

type Answer = fn(&State, Bytes) -> Result<Vec<u8>, u32>;

pub(crate) fn define(linker: &mut Linker<State>) -> Result<()> {
    const MODULE: &str = "conduit";
    linker.func_wrap(MODULE, "command_request", command_request)?;
    linker.func_wrap(MODULE, "command_response", command_response)?;
    linker.func_wrap(MODULE, "create_schema", |caller: Caller<'_, State>, at: u32, length: u32| {
        exchange(caller, at, length, 0, create_schema)
    })?;
    linker.func_wrap(MODULE, "get_schema", |caller: Caller<'_, State>, at: u32, length: u32| {
        exchange(caller, at, length, 1, get_schema)
    })?;
    linker.func_wrap(MODULE, "http_request", |_: Caller<'_, State>, _: u32, _: u32| code::EGRESS_DISABLED)?;
    Ok(())
}

fn range(memory: &[u8], at: u32, length: u32) -> Option<std::ops::Range<usize>> {
    let end = usize::try_from(u64::from(at) + u64::from(length)).ok().filter(|end| *end <= memory.len())?;
    Some(at as usize..end)
}

fn command_request(mut caller: Caller<'_, State>, at: u32, length: u32) -> Result<u32> {
    let state = caller.data_mut();
    if state.outstanding {
        return Err(wasmtime::Error::msg("it asked for a command before it answered the last one"));
    }
    let command = match state.waiting.take() {
        Some(command) => command,
        None => match state.commands.recv() {
            Ok(command) => {
                let time = command.time;
                state.started = Instant::now();
                state.deadline = state.started + time;
                caller.as_context_mut().set_epoch_deadline(ticks(time));
                command
            }
            Err(_) => {
                state.deadline = Instant::now() + LAST;
                caller.as_context_mut().set_epoch_deadline(ticks(LAST));
                return Ok(code::NO_MORE_COMMANDS);
            }
        },
    };
    let size = command.bytes.len();
    let told = u32::try_from(size).ok().filter(|size| *size < code::FIRST);
    let told = told.ok_or_else(|| wasmtime::Error::msg("a command is larger than 4 GiB"))?;
    let (memory, state) = memory(&mut caller)?;
    if length < told {
        state.waiting = Some(command);
        return Ok(told);
    }
    let Some(range) = range(memory, at, told) else {
        state.waiting = Some(command);
        return Ok(code::OUT_OF_RANGE);
    };
    memory[range].copy_from_slice(&command.bytes);
    state.outstanding = true;
    Ok(told)
}

fn command_response(mut caller: Caller<'_, State>, at: u32, length: u32) -> Result<u32> {
    let (memory, state) = memory(&mut caller)?;
    let Some(range) = range(memory, at, length) else { return Ok(code::OUT_OF_RANGE) };
    if !state.outstanding {
        return Err(wasmtime::Error::msg("it answered without a command"));
    }
    state.outstanding = false;
    let bytes = Bytes::copy_from_slice(&memory[range]);
    // Records stay slices of `bytes`: this is cheap, and done again by who asked.
    if let Err(error) = CommandResponse::decode(bytes.clone()) {
        let _ = state.replies.send(Err(Death::Garbled(error.to_string())));
        return Ok(code::UNKNOWN_RESPONSE);
    }
    let _ = state.replies.send(Ok(bytes));
    Ok(0)
}

/// A call whose answer takes the place of its request. An answer that is too long is kept for the next call, which
/// comes with the request, zeros after it, in a longer buffer.
fn exchange(mut caller: Caller<'_, State>, at: u32, length: u32, call: usize, answer: Answer) -> Result<u32> {
    let (memory, state) = memory(&mut caller)?;
    let Some(buffer) = range(memory, at, length).map(|range| &mut memory[range]) else {
        return Ok(code::OUT_OF_RANGE);
    };
    let (request, response) = match state.parked.0[call].take() {
        Some((request, response)) if buffer.starts_with(&request) => (request, response),
        _ => match answer(state, Bytes::copy_from_slice(buffer)) {
            Ok(response) => (buffer.to_vec(), response),
            Err(code) => return Ok(code),
        },
    };
    let Some(size) = u32::try_from(response.len()).ok().filter(|size| *size < code::FIRST) else {
        return Ok(code::INTERNAL);
    };
    match buffer.get_mut(..response.len()) {
        Some(place) => place.copy_from_slice(&response),
        None => state.parked.0[call] = Some((request, response)),
    }
    Ok(size)
}

fn asked<T>(state: &State, call: impl Future<Output = Result<T, SchemaError>>) -> Result<T, u32> {
    let Some(runtime) = &state.runtime else { return Err(code::INTERNAL) };
    let left = state.deadline.saturating_duration_since(Instant::now()).min(REGISTRY);
    let found = runtime.block_on(async { tokio::time::timeout(left, call).await }).map_err(|_| code::INTERNAL)?;
    found.map_err(|error| match error {
        SchemaError::SubjectNotFound(_) => code::SUBJECT_NOT_FOUND,
        SchemaError::VersionNotFound { .. } => code::VERSION_NOT_FOUND,
        SchemaError::Invalid(_) | SchemaError::Incompatible { .. } => code::INVALID_SCHEMA,
        _ => {
            tracing::warn!("a processor cannot reach its schema: {error}");
            code::INTERNAL
        }
    })
}

fn create_schema(state: &State, request: Bytes) -> Result<Vec<u8>, u32> {
    let request = wire::CreateSchema::decode(request).map_err(|_| code::INTERNAL)?;
    let text = std::str::from_utf8(&request.bytes).map_err(|_| code::INVALID_SCHEMA)?;
    if request.kind != 1 {
        return Err(code::INVALID_SCHEMA);
    }
    let (subject, text) = (request.subject.as_str().into(), text.into());
    asked(state, state.schemas.create(&subject, SchemaKind::Avro, &text)).map(|schema| found(&schema))
}

fn get_schema(state: &State, request: Bytes) -> Result<Vec<u8>, u32> {
    let request = wire::GetSchema::decode(request).map_err(|_| code::INTERNAL)?;
    let version = u32::try_from(request.version).ok().and_then(SchemaVersion::new).ok_or(code::VERSION_NOT_FOUND)?;
    let subject = request.subject.as_str().into();
    asked(state, state.schemas.get(&subject, version)).map(|schema| found(&schema))
}

fn found(schema: &Schema) -> Vec<u8> {
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let schema = wire::Schema {
        subject: schema.subject.to_string(),
        version: number(schema.version.get()),
        id: number(schema.id.get()),
        kind: 1,
        bytes: Bytes::copy_from_slice(schema.text.as_bytes()),
    };
    wire::FoundSchema { schema: Some(schema) }.encode_to_vec()
}
