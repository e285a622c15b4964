//! Messages of plugins other than records: packages `processor.v1`, `config.v1`, `schema.v1` and `procutils.v1`.
//!
//! A message that contains records holds the bytes of [`encode_record`](anabranch_record::protobuf::encode_record).

#![allow(missing_docs, reason = "the fields of a published protocol")]

use std::collections::HashMap;

use bytes::Bytes;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandRequest {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4, 5")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Request {
    #[prost(message, tag = "1")]
    Specify(Empty),
    #[prost(message, tag = "2")]
    Configure(Configure),
    #[prost(message, tag = "3")]
    Open(Empty),
    #[prost(message, tag = "4")]
    Process(Process),
    #[prost(message, tag = "5")]
    Teardown(Empty),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Configure {
    #[prost(map = "string, string", tag = "1")]
    pub parameters: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Process {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub records: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandResponse {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4, 5, 6")]
    pub response: Option<Response>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Response {
    #[prost(message, tag = "1")]
    Error(Error),
    #[prost(message, tag = "2")]
    Specify(Specified),
    #[prost(message, tag = "3")]
    Configure(Empty),
    #[prost(message, tag = "4")]
    Open(Empty),
    #[prost(message, tag = "5")]
    Process(Processed),
    #[prost(message, tag = "6")]
    Teardown(Empty),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Error {
    #[prost(uint32, tag = "1")]
    pub code: u32,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Specified {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub summary: String,
    #[prost(string, tag = "3")]
    pub description: String,
    #[prost(string, tag = "4")]
    pub version: String,
    #[prost(string, tag = "5")]
    pub author: String,
    #[prost(map = "string, message", tag = "6")]
    pub parameters: HashMap<String, Parameter>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Parameter {
    #[prost(string, tag = "1")]
    pub default: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(int32, tag = "3")]
    pub kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub validations: Vec<Validation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Validation {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Processed {
    #[prost(message, repeated, tag = "1")]
    pub records: Vec<ProcessedRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessedRecord {
    #[prost(oneof = "RecordOutcome", tags = "1, 2, 3, 4")]
    pub outcome: Option<RecordOutcome>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum RecordOutcome {
    #[prost(bytes = "bytes", tag = "1")]
    Single(Bytes),
    #[prost(message, tag = "2")]
    Filter(Empty),
    #[prost(message, tag = "3")]
    Error(ErrorRecord),
    #[prost(message, tag = "4")]
    Multi(Process),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ErrorRecord {
    #[prost(message, optional, tag = "1")]
    pub error: Option<Error>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Schema {
    #[prost(string, tag = "1")]
    pub subject: String,
    #[prost(int32, tag = "2")]
    pub version: i32,
    #[prost(int32, tag = "3")]
    pub id: i32,
    #[prost(int32, tag = "4")]
    pub kind: i32,
    #[prost(bytes = "bytes", tag = "5")]
    pub bytes: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSchema {
    #[prost(string, tag = "1")]
    pub subject: String,
    #[prost(int32, tag = "2")]
    pub kind: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub bytes: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSchema {
    #[prost(string, tag = "1")]
    pub subject: String,
    #[prost(int32, tag = "2")]
    pub version: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FoundSchema {
    #[prost(message, optional, tag = "1")]
    pub schema: Option<Schema>,
}

#[cfg(test)]
mod tests;
