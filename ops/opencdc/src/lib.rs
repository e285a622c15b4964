//! Messages of existing plugins: commands, parameters, schemas and HTTP requests, as `prost` types ([`wire`], [`http`]).
//!
//! A message that contains records holds them as bytes, which is the same on the wire: `anabranch_record::protobuf`
//! encodes and decodes them. [`line`] parses the log output of plugins.

pub mod http;
pub mod line;
pub mod specification;
pub mod wire;
