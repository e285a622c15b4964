//! Messages of the packages `connector.v1`, `connector.v2` and `plugin`. Messages with the same fields share a type.
//!
//! Records are bytes: `anabranch-ops-opencdc` encodes and decodes them.

#![allow(missing_docs, reason = "the fields of a published protocol")]

use std::collections::HashMap;

use anabranch_ops_opencdc::wire::{Parameter, Validation};
use bytes::Bytes;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

/// `Specifier.Specify.Response` of version 2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Specified {
    #[prost(message, optional, tag = "1")]
    pub specification: Option<Specification>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Specification {
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
    pub destination_params: HashMap<String, Parameter>,
    #[prost(map = "string, message", tag = "7")]
    pub source_params: HashMap<String, Parameter>,
}

/// `Specifier.Specify.Response` of version 1.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpecifiedV1 {
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
    pub destination_params: HashMap<String, ParameterV1>,
    #[prost(map = "string, message", tag = "7")]
    pub source_params: HashMap<String, ParameterV1>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ParameterV1 {
    #[prost(string, tag = "1")]
    pub default: String,
    #[prost(bool, tag = "2")]
    pub required: bool,
    #[prost(string, tag = "3")]
    pub description: String,
    #[prost(int32, tag = "4")]
    pub kind: i32,
    #[prost(message, repeated, tag = "5")]
    pub validations: Vec<Validation>,
}

/// `Configure.Request`, `Lifecycle.OnCreated.Request` and `Lifecycle.OnDeleted.Request`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Configuration {
    #[prost(map = "string, string", tag = "1")]
    pub config: HashMap<String, String>,
}

/// `Lifecycle.OnUpdated.Request`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Updated {
    #[prost(map = "string, string", tag = "1")]
    pub before: HashMap<String, String>,
    #[prost(map = "string, string", tag = "2")]
    pub after: HashMap<String, String>,
}

/// A position: every message with a position as its only field.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PositionMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub position: Bytes,
}

/// `Source.Run.Request` of version 2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Positions {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub positions: Vec<Bytes>,
}

/// `Source.Run.Response` and `Destination.Run.Request` of version 2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Records {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub records: Vec<Bytes>,
}

/// `Source.Run.Response` and `Destination.Run.Request` of version 1.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OneRecord {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub record: Option<Bytes>,
}

/// `Destination.Run.Response` of version 2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Acks {
    #[prost(message, repeated, tag = "1")]
    pub acks: Vec<Ack>,
}

/// An acknowledgement of [`Acks`]; also `Destination.Run.Response` of version 1.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    #[prost(bytes = "bytes", tag = "1")]
    pub position: Bytes,
    #[prost(string, tag = "2")]
    pub error: String,
}

/// `plugin.StdioData`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Stdio {
    #[prost(int32, tag = "1")]
    pub channel: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}
