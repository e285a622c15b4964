//! The protobuf form of records, `opencdc.v1.Record`, in which plugins in other processes and in WebAssembly exchange
//! them with the service.
//!
//! Records are encoded and decoded directly, because every record of a plugin's pipeline passes through here. A
//! [`Reader`] and the functions of [`write`] do the same for the messages around records. Plugins name metadata with
//! `opencdc.` and `conduit.`, this service with `recfmt.` and `svc.`: names are translated only here.

mod read;
mod record;
mod same;
pub mod specification;
pub mod write;

pub use read::{DecodeError, Field, Reader};
pub use record::{decode_answer, decode_into, decode_record, encode_record};
pub use same::keep_types;

#[cfg(test)]
mod tests;
