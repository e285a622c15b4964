//! Protobuf messages of the processor protocol, written and read without intermediate structures.

mod command;
mod read;
mod record;
pub(crate) mod refill;
mod schema;
mod write;

pub(crate) use command::{Command, Response};
pub(crate) use schema::{create_schema, get_schema, http_request, http_response, schema_answer};

/// The host's side of the messages.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use {command::host_side as command_side, schema::host_side as schema_side};

#[cfg(test)]
mod tests;
