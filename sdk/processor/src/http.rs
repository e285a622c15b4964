//! HTTP requests, which the host makes for the processor.
//!
//! A module that calls [`send`] needs a host with this function, and a pipeline that allows the destination
//! (`sdk.egress.allow`). Modules that do not call it run in every host.

pub(crate) mod message;

use crate::error::Error;
use crate::host;

/// An HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method; empty for `GET`.
    pub method: String,
    /// URL with the scheme `http` or `https`.
    pub url: String,
    /// Headers. The host sets `Host`, `Authorization` and those of the connection.
    pub headers: Vec<Header>,
    /// Body; may be empty.
    pub body: Vec<u8>,
    /// Name of a secret of the host, which the host sends as `Authorization`. The processor never sees the secret.
    pub auth_secret: Option<String>,
}

impl Request {
    /// Creates a request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Request { method: method.into(), url: url.into(), headers: Vec::new(), body: Vec::new(), auth_secret: None }
    }
}

/// A header with one value; a name may occur more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name of the header, case-insensitive.
    pub name: String,
    /// Value of the header.
    pub value: String,
}

/// An HTTP response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Status, such as 200. A response with any status is not an error.
    pub status: u16,
    /// Headers of the response.
    pub headers: Vec<Header>,
    /// Body of the response, decompressed.
    pub body: Vec<u8>,
}

/// Sends a request and waits for its response.
///
/// # Errors
/// One of the `HTTP_…` constants of [`HostError`](crate::HostError), such as `HTTP_FORBIDDEN`.
pub fn send(request: &Request) -> Result<Response, Error> {
    Ok(message::response(host::http_request(message::request(request))?)?)
}
