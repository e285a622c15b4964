//! Checks answers before the SDK reads them: limits their size, and rejects answers that an S3 server does not give.
//!
//! The SDK reads all answers except successful ones to `GetObject` into memory, whatever their length, and accepts any
//! success status for a `PutObject`. A proxy in front of the server may answer with its own pages.

use std::error::Error;

use aws_sdk_s3::config::http::{HttpRequest, HttpResponse};
use aws_sdk_s3::config::{ConfigBag, HttpClient, RuntimeComponents, RuntimeComponentsBuilder, SharedHttpClient};
use aws_sdk_s3::error::{BoxError, ConnectorError};
use aws_sdk_s3::primitives::{ByteStream, SdkBody};
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};

/// Maximum size of an answer that is not an object: a page of a thousand keys takes at most 4 MiB.
const LONGEST: usize = 8 << 20;
/// Maximum number of bytes read of an error answer, which has a code and a message.
const LONGEST_REFUSAL: usize = 64 << 10;
/// Maximum number of quoted characters.
const QUOTED: usize = 80;

/// An answer that an S3 server does not give.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForeignAnswer {
    /// An unexpected answer to the request.
    #[error("{}; check objstore.endpoint, and proxies in front of it", .0)]
    Strange(String),
    /// The answer is too long.
    #[error("the answer ({0}) has more than {LONGEST} bytes; check objstore.endpoint, and proxies in front of it")]
    TooLong(String),
    /// The answer was cut off.
    #[error("the answer ({0}) is incomplete: {1}")]
    Cut(String, String),
}

impl ForeignAnswer {
    /// Finds this error among the causes of another one.
    pub(super) fn within<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a ForeignAnswer> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(foreign) = error.downcast_ref() {
                return Some(foreign);
            }
            next = error.source();
        }
        None
    }
}

/// A client that limits the size of answers.
#[derive(Debug)]
pub(super) struct LimitedClient(pub(super) SharedHttpClient);

impl HttpClient for LimitedClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Connector(self.0.http_connector(settings, components)))
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        HttpClient::validate_base_client_config(&self.0, components, config)
    }

    fn validate_final_config(&self, components: &RuntimeComponents, config: &ConfigBag) -> Result<(), BoxError> {
        HttpClient::validate_final_config(&self.0, components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.0.connector_metadata()
    }
}

#[derive(Debug)]
struct Connector(SharedHttpConnector);

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let expected = Expected::of(&request);
        let answer = self.0.call(request);
        HttpConnectorFuture::new(async move {
            let answer = answer.await?;
            expected.take(answer).await.map_err(|foreign| ConnectorError::other(foreign.into(), None))
        })
    }
}

/// Expected answer to a successful request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Status 200 and the object, which the caller reads.
    Object,
    /// Status 200 and the `ETag` of the stored object.
    Stored,
    /// Status 200 and a document.
    Document,
}

impl Expected {
    fn of(request: &HttpRequest) -> Expected {
        // The SDK adds the name of the operation if method and path do not identify it.
        let query = request.uri().split_once('?').map_or("", |(_, query)| query);
        let operation = query.split('&').find_map(|pair| pair.strip_prefix("x-id="));
        match operation {
            Some("GetObject") => Expected::Object,
            Some("PutObject") => Expected::Stored,
            _ => Expected::Document,
        }
    }

    async fn take(self, mut answer: HttpResponse) -> Result<HttpResponse, ForeignAnswer> {
        let status = answer.status();
        let good = status.as_u16() == 200;
        if good && self == Expected::Object {
            return Ok(answer);
        }
        let (body, more) = read(&mut answer, if good { LONGEST } else { LONGEST_REFUSAL }).await?;
        if good && more {
            return Err(ForeignAnswer::TooLong(named(&answer)));
        }
        if status.is_success() && !good {
            let what = match self {
                Expected::Object => "a request for a whole object",
                Expected::Stored => "a request to store an object",
                Expected::Document => "the request",
            };
            // The content of an object must not be logged.
            let is_of_object = self == Expected::Object && answer.headers().get("etag").is_some();
            let came = if is_of_object { named(&answer) } else { shown(&answer, &body) };
            return Err(ForeignAnswer::Strange(format!(
                "the server answered {came}, but the expected answer to {what} is 200"
            )));
        }
        let etag = answer.headers().get("etag").unwrap_or_default().trim();
        if good && self == Expected::Stored && etag.is_empty() && !is_error(&body) {
            return Err(ForeignAnswer::Strange(format!(
                "the server answered {} without the ETag that confirms a stored object",
                shown(&answer, &body)
            )));
        }
        *answer.body_mut() = SdkBody::from(body);
        Ok(answer)
    }
}

/// Reads the body up to a limit; also returns whether there is more.
async fn read(answer: &mut HttpResponse, most: usize) -> Result<(Vec<u8>, bool), ForeignAnswer> {
    let mut pieces = ByteStream::new(answer.take_body());
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| ForeignAnswer::Cut(named(answer), error.to_string()))?;
        let room = most - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            return Ok((body, true));
        }
    }
    Ok((body, false))
}

/// Returns `true` if a body is an error document.
pub(crate) fn is_error(body: &[u8]) -> bool {
    root(body).is_some_and(|root| root == "Error")
}

/// Returns the name of the root element of an XML document.
pub(crate) fn root(body: &[u8]) -> Option<&str> {
    let start = &body[..body.len().min(1024)];
    let text =
        str::from_utf8(start).unwrap_or_else(|error| str::from_utf8(&start[..error.valid_up_to()]).unwrap_or(""));
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    while let Some(declared) = rest.strip_prefix("<?").or_else(|| rest.strip_prefix("<!")) {
        rest = declared.split_once('>')?.1.trim_start();
    }
    let name = rest.strip_prefix('<')?;
    Some(&name[..name.find(|c: char| c.is_whitespace() || c == '>' || c == '/')?])
}

/// Returns status and content type: `200 (text/html)`.
fn named(answer: &HttpResponse) -> String {
    let kind = answer.headers().get("content-type").and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind_shown(answer.status().as_u16(), kind)
}

fn kind_shown(status: u16, kind: &str) -> String {
    match kind.trim() {
        "" => status.to_string(),
        kind => format!("{status} ({})", words(kind.as_bytes())),
    }
}

/// Returns status, content type and first words.
fn shown(answer: &HttpResponse, body: &[u8]) -> String {
    described(&named(answer), body)
}

/// Like `shown`, for an answer whose body is in memory.
pub(super) fn of_answer(answer: &HttpResponse) -> String {
    shown(answer, answer.body().bytes().unwrap_or_default())
}

/// Like `shown`, for a successful answer of which only these parts are available.
pub(crate) fn of_object(kind: Option<&str>, body: &[u8]) -> String {
    described(&kind_shown(200, kind.and_then(|kind| kind.split(';').next()).unwrap_or_default()), body)
}

fn described(named: &str, body: &[u8]) -> String {
    match words(body) {
        words if words.is_empty() => named.to_owned(),
        words => format!("{named} and `{words}`"),
    }
}

/// Returns the first words of a text, on one line.
fn words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(8 * QUOTED)]);
    let text: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|it| !it.is_empty()).collect();
    let text = text.join(" ").replace('`', "'");
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_known_by_its_name_and_not_by_a_key_that_looks_like_it() {
        let of = |method: &str, uri: &str| {
            let mut request = HttpRequest::get(uri).unwrap();
            request.set_method(method).unwrap();
            Expected::of(&request)
        };
        assert_eq!(of("GET", "http://s/b/k?versionId=3&x-id=GetObject"), Expected::Object);
        assert_eq!(of("PUT", "http://s/b/k?x-id=PutObject"), Expected::Stored);
        assert_eq!(of("GET", "http://s/b/?list-type=2&prefix=x-id%3DGetObject"), Expected::Document);
        assert_eq!(of("GET", "http://s/b/x-id=GetObject"), Expected::Document);
    }

    #[tokio::test]
    async fn a_page_is_quoted_and_a_piece_of_an_object_is_not() {
        let refused = async |expected: Expected, status: u16, etag: Option<&'static str>| {
            let mut answer = HttpResponse::new(status.try_into().unwrap(), SdkBody::from("<p>some words"));
            answer.headers_mut().insert("content-type", "text/html; charset=utf-8");
            if let Some(etag) = etag {
                answer.headers_mut().insert("etag", etag);
            }
            expected.take(answer).await.unwrap_err().to_string()
        };
        for words in [refused(Expected::Object, 203, None).await, refused(Expected::Stored, 200, None).await] {
            assert!(words.contains("(text/html) and `<p>some words`"), "{words}");
        }
        let words = refused(Expected::Object, 206, Some("\"e\"")).await;
        assert!(words.contains("206 (text/html)") && !words.contains("some words"), "{words}");
    }

    #[test]
    fn a_document_is_known_by_its_root() {
        assert_eq!(root(b"<?xml version=\"1.0\"?>\n<Error><Code>x"), Some("Error"));
        assert_eq!(root(b"\xef\xbb\xbf <!DOCTYPE html><html lang=\"en\">"), Some("html"));
        assert_eq!(root(b"<VersioningConfiguration/>"), Some("VersioningConfiguration"));
        for none in [&b""[..], b"<", b"<?xml", b"text", b"\xff\xff", b"<Error"] {
            assert_eq!(root(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_quotation_is_a_short_line() {
        assert_eq!(described("200", b" \n"), "200");
        assert_eq!(described("200", b"<a>\n\x1b[1m `b`"), "200 and `<a> [1m 'b'`");
        let long = described("200", "ü".repeat(5000).as_bytes());
        assert!(long.chars().count() < QUOTED + 20, "{long}");
    }
}
