//! The host of processors that are not WebAssembly: of those in tests.

use std::cell::RefCell;

use bytes::Bytes;

use super::Respond;
use crate::error::HostError;
use crate::http::{self, message::host_side as http_side};
use crate::schema::{Schema, message::host_side as schema_side};

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

/// Host functions with their buffers.
pub(crate) trait Calls {
    fn command_request(&mut self, buffer: &mut [u8]) -> u32;
    fn command_response(&mut self, buffer: &[u8]) -> u32;
    fn in_out(&mut self, call: Call, buffer: &mut [u8]) -> u32;
}

/// A call with one buffer for request and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    CreateSchema,
    GetSchema,
    Http,
}

#[derive(Default)]
struct Host {
    /// A host that implements the protocol of the buffers itself.
    scripted: Option<Box<dyn Calls>>,
    schemas: Vec<Schema>,
    respond: Option<Box<Respond>>,
    /// A response that did not fit, with its call and request.
    parked: Option<(Call, Vec<u8>, Vec<u8>)>,
}

/// Makes `calls` answer all calls of this thread.
#[cfg(test)]
pub(crate) fn script(calls: impl Calls + 'static) {
    HOST.with_borrow_mut(|host| host.scripted = Some(Box::new(calls)));
}

pub(crate) fn forget() {
    HOST.take();
}

pub(crate) fn respond_with(respond: Box<Respond>) {
    HOST.with_borrow_mut(|host| host.respond = Some(respond));
}

pub(crate) fn command_request(buffer: &mut [u8]) -> u32 {
    HOST.with_borrow_mut(|host| match &mut host.scripted {
        Some(calls) => calls.command_request(buffer),
        None => HostError::NO_MORE_COMMANDS.code(),
    })
}

pub(crate) fn command_response(buffer: &mut [u8]) -> u32 {
    HOST.with_borrow_mut(|host| match &mut host.scripted {
        Some(calls) => calls.command_response(buffer),
        None => HostError::UNKNOWN_COMMAND_RESPONSE.code(),
    })
}

pub(crate) fn create_schema(buffer: &mut [u8]) -> u32 {
    HOST.with_borrow_mut(|host| host.in_out(Call::CreateSchema, buffer))
}

pub(crate) fn get_schema(buffer: &mut [u8]) -> u32 {
    HOST.with_borrow_mut(|host| host.in_out(Call::GetSchema, buffer))
}

pub(crate) fn http_request(buffer: &mut [u8]) -> u32 {
    HOST.with_borrow_mut(|host| host.in_out(Call::Http, buffer))
}

impl Host {
    fn in_out(&mut self, call: Call, buffer: &mut [u8]) -> u32 {
        if let Some(calls) = &mut self.scripted {
            return calls.in_out(call, buffer);
        }
        let response = match self.parked.take() {
            Some((parked, request, response)) if parked == call && buffer.starts_with(&request) => response,
            _ => match self.answer(call, buffer) {
                Ok(response) => response,
                Err(error) => return error.code(),
            },
        };
        let size = response.len();
        match buffer.get_mut(..size) {
            Some(place) => place.copy_from_slice(&response),
            None => self.parked = Some((call, buffer.to_vec(), response)),
        }
        size as u32
    }

    fn answer(&mut self, call: Call, request: &[u8]) -> Result<Vec<u8>, HostError> {
        let request = &Bytes::copy_from_slice(request);
        if call == Call::Http {
            let request = http_side::read_request(request).map_err(|_| HostError::INTERNAL)?;
            let respond = self.respond.as_mut().ok_or(HostError::HTTP_DISABLED)?;
            let response: http::Response = respond(&request)?;
            return Ok(http_side::write_response(&response));
        }
        let creates = call == Call::CreateSchema;
        let asked = schema_side::asked(request, creates).map_err(|_| HostError::INTERNAL)?;
        let mut versions = self.schemas.iter().filter(|schema| schema.subject == asked.subject);
        if creates {
            serde_json::from_str::<serde_json::Value>(asked.text).map_err(|_| HostError::INVALID_SCHEMA)?;
            if let Some(schema) = versions.clone().find(|schema| schema.text == asked.text) {
                return Ok(schema_side::write_schema(schema));
            }
            let version = versions.count() as i32 + 1;
            let id = self.schemas.len() as i32 + 1;
            let schema = Schema { subject: asked.subject.to_owned(), version, id, text: asked.text.to_owned() };
            let response = schema_side::write_schema(&schema);
            self.schemas.push(schema);
            return Ok(response);
        }
        if versions.clone().next().is_none() {
            return Err(HostError::SUBJECT_NOT_FOUND);
        }
        versions
            .find(|schema| schema.version == asked.version)
            .map(schema_side::write_schema)
            .ok_or(HostError::VERSION_NOT_FOUND)
    }
}
