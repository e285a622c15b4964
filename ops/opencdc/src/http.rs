//! Messages of HTTP requests that the service makes for plugins: package `procutils.v1`.

#![allow(missing_docs, reason = "the fields of a published protocol")]

use bytes::Bytes;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, repeated, tag = "2")]
    pub values: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub method: String,
    #[prost(string, tag = "2")]
    pub url: String,
    #[prost(message, repeated, tag = "3")]
    pub headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "4")]
    pub body: Bytes,
    #[prost(string, tag = "5")]
    pub auth_secret_ref: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    #[prost(int32, tag = "1")]
    pub status_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}
