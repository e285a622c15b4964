//! What existing plugins read and write: the protobuf forms of records, parameters and schemas.
//!
//! Records are written and read directly ([`record`]), since every record of a plugin's pipeline passes here; small
//! messages are `prost` types ([`wire`]). A message that holds records holds them as bytes, which is the same on
//! the wire. Plugins know metadata under `opencdc.` and `conduit.`, we under `recfmt.` and `svc.`: the names change
//! here and nowhere else. What plugins print is read in [`line`].

pub mod http;
pub mod line;
mod read;
mod record;
mod same;
pub mod specification;
pub mod wire;
mod write;

pub use self::record::{DecodeError, decode_answer, decode_record, encode_record};
pub use self::same::keep_types;
