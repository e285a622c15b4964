//! HTTP requests, which the host makes for the processor.
//!
//! A module that calls [`send`] needs a host that has this call, and a pipeline that allows the destination
//! (`sdk.egress.allow`); modules that do not call it run everywhere.

use crate::error::Error;
use crate::{host, wire};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method; empty for `GET`.
    pub method: String,
    /// The URL, `http` or `https`.
    pub url: String,
    /// The headers. The host sets `Host`, `Authorization` and those of the connection.
    pub headers: Vec<Header>,
    /// The body; may be empty.
    pub body: Vec<u8>,
    /// Name of a secret of the host, which is sent as `Authorization`; the processor never sees it.
    pub auth_secret: Option<String>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Request { method: method.into(), url: url.into(), headers: Vec::new(), body: Vec::new(), auth_secret: None }
    }
}

/// A header with one value; a name may occur more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name; its case has no meaning.
    pub name: String,
    /// The value.
    pub value: String,
}

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status, such as 200. Any status is a response, not an error.
    pub status: u16,
    /// The headers.
    pub headers: Vec<Header>,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// Sends a request and waits for its response.
///
/// # Errors
/// One of the `HTTP_…` of [`HostError`](crate::HostError), such as `HTTP_FORBIDDEN`.
pub fn send(request: &Request) -> Result<Response, Error> {
    Ok(wire::http_response(&host::http_request(wire::http_request(request))?)?)
}
