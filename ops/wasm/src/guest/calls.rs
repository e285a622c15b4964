//! The five host functions of the module `conduit`, each `(ptr, len) -> size or code`.

use std::time::Duration;

use anabranch_ops_opencdc::http;
use anabranch_ops_opencdc::wire::{self, CommandResponse};
use anabranch_plugin::schema::{Schema, SchemaError, SchemaKind, SchemaVersion};
use anabranch_record::Record;
use bytes::Bytes;
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use wasmtime::{Caller, Linker, Result};

use crate::egress::RequestFailure;
use crate::guest::wasi::memory;
use crate::guest::{GuestEnd, GuestEnded, State};

/// Error codes, which are greater than every size.
mod code {
    pub(super) const NO_MORE_COMMANDS: u32 = 0xFFFF_FFFE;
    pub(super) const UNKNOWN_RESPONSE: u32 = 0xFFFF_FFFC;
    pub(super) const OUT_OF_RANGE: u32 = 0xFFFF_FFFB;
    pub(super) const INTERNAL: u32 = 0xFFFF_FFFA;
    pub(super) const SUBJECT_NOT_FOUND: u32 = 0xFFFF_FFF9;
    pub(super) const VERSION_NOT_FOUND: u32 = 0xFFFF_FFF8;
    pub(super) const INVALID_SCHEMA: u32 = 0xFFFF_FFF7;
    pub(super) const EGRESS_DISABLED: u32 = 0xFFFF_FFF6;
    pub(super) const EGRESS_FORBIDDEN: u32 = 0xFFFF_FFF5;
    pub(super) const EGRESS_INVALID: u32 = 0xFFFF_FFF4;
    pub(super) const EGRESS_DNS: u32 = 0xFFFF_FFF3;
    pub(super) const EGRESS_TIMEOUT: u32 = 0xFFFF_FFF2;
    pub(super) const EGRESS_TOO_LARGE: u32 = 0xFFFF_FFF1;
    pub(super) const EGRESS_TRANSPORT: u32 = 0xFFFF_FFF0;
    /// The lowest error code.
    pub(super) const FIRST: u32 = u32::MAX - 100;
}

/// Time limit for the schema registry.
const REGISTRY: Duration = Duration::from_secs(30);

/// Answers that did not fit, each with its request, by function.
#[derive(Default)]
pub(crate) struct Parked([Option<(Vec<u8>, Vec<u8>)>; 3]);

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
    linker.func_wrap(MODULE, "http_request", |caller: Caller<'_, State>, at: u32, length: u32| {
        exchange(caller, at, length, 2, http_request)
    })?;
    Ok(())
}

fn range(memory: &[u8], at: u32, length: u32) -> Option<std::ops::Range<usize>> {
    let end = usize::try_from(u64::from(at) + u64::from(length)).ok().filter(|end| *end <= memory.len())?;
    Some(at as usize..end)
}

fn command_request(mut caller: Caller<'_, State>, at: u32, length: u32) -> Result<u32> {
    let state = caller.data_mut();
    if state.outstanding {
        return Err(wasmtime::Error::msg("it requested a command before it answered the last one"));
    }
    let command = match state.waiting.take() {
        Some(command) => command,
        None => match state.commands.recv() {
            Ok(command) => {
                state.begin();
                command
            }
            Err(_) => return Ok(code::NO_MORE_COMMANDS),
        },
    };
    let size = command.len();
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
    memory[range].copy_from_slice(&command);
    state.outstanding = true;
    Ok(told)
}

fn command_response(mut caller: Caller<'_, State>, at: u32, length: u32) -> Result<u32> {
    let (memory, state) = memory(&mut caller)?;
    let Some(range) = range(memory, at, length) else { return Ok(code::OUT_OF_RANGE) };
    if !state.outstanding {
        return Err(wasmtime::Error::msg("it answered without a command"));
    }
    // An empty record takes two bytes in the message and about a hundred here.
    if records(&memory[range.clone()]).saturating_mul(size_of::<Record>()) > state.limits.memory {
        let text = "it returned more records than fit into the memory of `processors.max-memory`";
        return Err(wasmtime::Error::msg(text));
    }
    state.outstanding = false;
    let bytes = Bytes::copy_from_slice(&memory[range]);
    let (reply, told) = match CommandResponse::decode(bytes) {
        Ok(response) => (Ok(response), 0),
        Err(error) => (
            Err(GuestEnded { death: GuestEnd::Garbled(error.to_string()), took_command: true }),
            code::UNKNOWN_RESPONSE,
        ),
    };
    let _ = state.replies.send(reply);
    Ok(told)
}

/// Counts the records of a response, including each piece of a split. If the message is malformed, counts those before
/// the error.
fn records(response: &[u8]) -> usize {
    let mut count = 0;
    fields(response, 5, |processed| {
        fields(processed, 1, |result| {
            count += 1;
            fields(result, 4, |parts| fields(parts, 1, |_| count += 1));
        });
    });
    count
}

/// Calls `each` with every length-delimited field of this number.
fn fields(mut message: &[u8], number: u32, mut each: impl FnMut(&[u8])) {
    let mut next = || -> Option<(u32, Option<&[u8]>)> {
        let (key, wire_type) = decode_key(&mut message).ok()?;
        let length = match wire_type {
            WireType::Varint => {
                decode_varint(&mut message).ok()?;
                return Some((key, None));
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut message).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let (content, rest) = message.split_at_checked(length)?;
        message = rest;
        Some((key, (wire_type == WireType::LengthDelimited).then_some(content)))
    };
    while let Some((key, content)) = next() {
        if let Some(content) = content.filter(|_| key == number) {
            each(content);
        }
    }
}

/// Executes a call whose answer replaces its request in the buffer. An answer that is too long is kept for the next
/// call, in which the guest repeats the request in a longer buffer, padded with zeros.
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
    let patience = state.patience(REGISTRY);
    let found = runtime.block_on(async { tokio::time::timeout(patience, call).await }).map_err(|_| code::INTERNAL)?;
    found.map_err(|error| match error {
        SchemaError::SubjectNotFound(_) => code::SUBJECT_NOT_FOUND,
        SchemaError::VersionNotFound { .. } => code::VERSION_NOT_FOUND,
        SchemaError::Invalid(_) | SchemaError::Incompatible { .. } => code::INVALID_SCHEMA,
        _ => {
            tracing::warn!(processor = %state.node, "a schema cannot be reached: {error}");
            code::INTERNAL
        }
    })
}

fn http_request(state: &State, request: Bytes) -> Result<Vec<u8>, u32> {
    let (Some(network), Some(runtime)) = (&state.network, &state.runtime) else { return Err(code::EGRESS_DISABLED) };
    let request = http::Request::decode(request).map_err(|_| code::INTERNAL)?;
    let answer = runtime.block_on(network.call(&state.node, request, state.patience(Duration::MAX)));
    answer.map(|answer| answer.encode_to_vec()).map_err(|refusal| match refusal {
        RequestFailure::Invalid(_) => code::EGRESS_INVALID,
        RequestFailure::Forbidden(_) => code::EGRESS_FORBIDDEN,
        RequestFailure::Dns(_) => code::EGRESS_DNS,
        RequestFailure::Timeout(_) => code::EGRESS_TIMEOUT,
        RequestFailure::TooLarge(_) => code::EGRESS_TOO_LARGE,
        RequestFailure::Transport(_) => code::EGRESS_TRANSPORT,
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
