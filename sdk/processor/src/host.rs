//! Host functions, and their protocol for shared buffers.

#[cfg(target_arch = "wasm32")]
mod imports;
#[cfg(target_arch = "wasm32")]
use imports as calls;

#[cfg(not(target_arch = "wasm32"))]
use crate::testing::host as calls;

use crate::error::HostError;

/// Maximum number of attempts: a host that keeps changing the size is broken.
const MOST_TRIES: usize = 4;

/// Waits for the next command and returns its size. `buffer` begins with it and grows if necessary.
pub(crate) fn next_command(buffer: &mut Vec<u8>) -> Result<usize, HostError> {
    for _ in 0..MOST_TRIES {
        let size = size(calls::command_request(buffer))?;
        if size <= buffer.len() {
            return Ok(size);
        }
        buffer.resize(size, 0);
    }
    Err(HostError::INTERNAL)
}

/// Sends the response to the command.
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

/// Makes a call whose response overwrites the request. If the response does not fit, the call is repeated with a larger
/// buffer: the request and zeros after it, so that the host knows that it is the same call.
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
