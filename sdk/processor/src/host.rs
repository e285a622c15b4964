//! Calls of the host, and the protocol of the buffers that they share.

#[cfg(target_arch = "wasm32")]
mod imports;
#[cfg(target_arch = "wasm32")]
use imports as calls;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod stand_in;
#[cfg(not(target_arch = "wasm32"))]
use stand_in as calls;

use crate::error::HostError;

/// A host that cannot make up its mind about a size is broken.
const MOST_TRIES: usize = 4;

/// Waits for the next command; `buffer` then holds it, and grows where it must.
pub(crate) fn next_command(buffer: &mut Vec<u8>) -> Result<&[u8], HostError> {
    for _ in 0..MOST_TRIES {
        let size = size(calls::command_request(buffer))?;
        if size <= buffer.len() {
            return Ok(&buffer[..size]);
        }
        buffer.resize(size, 0);
    }
    Err(HostError::INTERNAL)
}

/// Hands over the response to the command.
pub(crate) fn respond(response: &mut [u8]) -> Result<(), HostError> {
    match calls::command_response(response) {
        0 => Ok(()),
        code => Err(HostError(code)),
    }
}

pub(crate) fn create_schema(request: Vec<u8>) -> Result<Vec<u8>, HostError> {
    in_out(calls::create_schema, request)
}

pub(crate) fn get_schema(request: Vec<u8>) -> Result<Vec<u8>, HostError> {
    in_out(calls::get_schema, request)
}

pub(crate) fn http_request(request: Vec<u8>) -> Result<Vec<u8>, HostError> {
    in_out(calls::http_request, request)
}

/// The host writes the response over the request. Where it does not fit, it is given once more with room: the
/// request, then zeros, by which the host knows that this is the same call.
fn in_out(call: fn(&mut [u8]) -> u32, mut buffer: Vec<u8>) -> Result<Vec<u8>, HostError> {
    for _ in 0..MOST_TRIES {
        let size = size(call(&mut buffer))?;
        if size <= buffer.len() {
            buffer.truncate(size);
            return Ok(buffer);
        }
        buffer.resize(size, 0);
    }
    Err(HostError::INTERNAL)
}

fn size(result: u32) -> Result<usize, HostError> {
    if result < HostError::LOWEST { Ok(result as usize) } else { Err(HostError(result)) }
}
