//! The answer to a request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::admission::AdmittedRequest;
use super::authentication::Authentication;
use super::body::{BodyFormat, InvalidBody, NotInflated, inflate};
use super::held::HeldRequests;
use super::intake::Intake;
use super::path::AcceptedPath;
use super::refusal::{RefusalLog, RefusedRequest};

/// Metadata with the method and the path of a request.
pub(super) const METHOD: Str = Str::from_static("http.method");
pub(super) const PATH: Str = Str::from_static("http.path");
/// Size above which a body is read on a thread for blocking work, because that takes milliseconds.
const LARGE: usize = 256 << 10;

/// When a request is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirm {
    /// When its records are delivered and stored.
    Delivered,
    /// When its records are accepted: they are lost with the process.
    Accepted,
}

/// The settings of a source that concern single requests.
pub(super) struct RequestRules {
    pub(super) paths: Vec<AcceptedPath>,
    pub(super) methods: Vec<Method>,
    /// Headers for the metadata, with the names of their entries.
    pub(super) headers: Vec<(HeaderName, Str)>,
    pub(super) format: BodyFormat,
    pub(super) confirm: Confirm,
    /// Time within which the records must be delivered.
    pub(super) timeout: Duration,
    /// Time within which the body must arrive.
    pub(super) read_timeout: Duration,
    pub(super) retry_after: Duration,
    /// Maximum size of a body, as received and decompressed.
    pub(super) body_bytes: usize,
    /// Maximum number of records of a body.
    pub(super) records: usize,
}

/// Answers the requests to one source.
pub(super) struct HttpReceiver {
    pub(super) rules: Arc<RequestRules>,
    pub(super) authentication: Arc<Authentication>,
    pub(super) held: Arc<HeldRequests>,
    pub(super) intake: Arc<Intake>,
    pub(super) refusals: RefusalLog,
}

impl HttpReceiver {
    /// Returns the answer to a request: at once if it is refused, otherwise when it is confirmed.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let taken = self.take(request).await;
        let (status, body) = match &taken {
            Ok(records) if self.rules.confirm == Confirm::Delivered => {
                (StatusCode::OK, serde_json::json!({ "records": records }))
            }
            Ok(records) => (StatusCode::ACCEPTED, serde_json::json!({ "records": records })),
            Err(refused) => (refused.status(), serde_json::json!({ "error": refused.to_string() })),
        };
        let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(date) = date(SystemTime::now()) {
            headers.insert(DATE, date);
        }
        if let Err(refused) = &taken {
            self.refusals.note(refused, &path);
            refused.add_headers(headers, self.rules.retry_after);
        }
        response
    }

    /// Takes the records of a request, and returns their number when the request is confirmed.
    async fn take(&self, request: Request<Incoming>) -> Result<usize, RefusedRequest> {
        let (head, body) = request.into_parts();
        let rules = &self.rules;
        if !rules.paths.iter().any(|path| path.accepts(head.uri.path())) {
            return Err(RefusedRequest::Path);
        }
        if !rules.methods.contains(&head.method) {
            return Err(RefusedRequest::Method(rules.methods.clone()));
        }
        self.authentication.check_head(&head.headers)?;
        if self.intake.is_closed() {
            return Err(RefusedRequest::Stopping);
        }
        let is_gzip = is_gzip(&head.headers)?;
        let mut admitted = self.held.admission.admit().ok_or(RefusedRequest::Busy)?;
        let reading = self.read(&head.headers, body, &mut admitted);
        let body = timeout(rules.read_timeout, reading).await.map_err(|_| RefusedRequest::Slow)??;
        self.authentication.check_body(&head.headers, &body, SystemTime::now())?;
        let (records, admitted) = self.decode(body, is_gzip, admitted).await?;
        let count = records.len();
        if count == 0 {
            return Ok(0);
        }
        let metadata = self.metadata(&head.method, head.uri.path(), &head.headers);
        if rules.confirm == Confirm::Accepted {
            self.intake.hold(records, metadata, admitted).ok_or(RefusedRequest::Stopping)?;
            return Ok(count);
        }
        let accepted = self.intake.accept(records, metadata, admitted);
        let mut accepted = accepted.ok_or(RefusedRequest::Stopping)?;
        match timeout(rules.timeout, accepted.delivered()).await {
            Ok(true) => Ok(count),
            Ok(false) => Err(RefusedRequest::Stopping),
            Err(_) => Err(RefusedRequest::Late),
        }
    }

    /// Reads the body. The announced length reserves no memory, only the bytes that arrive do.
    async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Incoming,
        admitted: &mut AdmittedRequest,
    ) -> Result<Bytes, RefusedRequest> {
        let limit = self.rules.body_bytes;
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit as u64) {
            return Err(RefusedRequest::TooLarge(limit));
        }
        let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| RefusedRequest::Incomplete)?;
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + whole.len() + data.len() > limit {
                return Err(RefusedRequest::TooLarge(limit));
            }
            if !admitted.grow(data.len()) {
                return Err(RefusedRequest::Busy);
            }
            match (first.is_empty(), whole.is_empty()) {
                (true, true) => first = data,
                (false, _) => {
                    whole.extend_from_slice(&std::mem::take(&mut first));
                    whole.extend_from_slice(&data);
                }
                (true, false) => whole.extend_from_slice(&data),
            }
        }
        // A small body is a slice of the read buffer of its connection, which may live for long: records keep a copy.
        Ok(if whole.is_empty() { Bytes::copy_from_slice(&first) } else { whole.freeze() })
    }

    async fn decode(
        &self,
        body: Bytes,
        is_gzip: bool,
        admitted: AdmittedRequest,
    ) -> Result<(Vec<anabranch_record::Data>, AdmittedRequest), RefusedRequest> {
        let rules = self.rules.clone();
        let is_large = body.len() > LARGE || is_gzip;
        let decode = move || rules.decode(body, is_gzip, admitted);
        match is_large {
            true => tokio::task::spawn_blocking(decode).await.map_err(|_| RefusedRequest::Stopping)?,
            false => decode(),
        }
    }

    fn metadata(&self, method: &Method, path: &str, headers: &HeaderMap) -> Metadata {
        let given = |(name, key): &(HeaderName, Str)| {
            let value = headers.get(name)?;
            Some((key.clone(), Str::from(&*String::from_utf8_lossy(value.as_bytes()))))
        };
        let request = [(METHOD, Str::from(method.as_str())), (PATH, Str::from(path))];
        Metadata::from_entries(request.into_iter().chain(self.rules.headers.iter().filter_map(given)).collect())
    }
}

impl RequestRules {
    fn decode(
        &self,
        body: Bytes,
        is_gzip: bool,
        mut admitted: AdmittedRequest,
    ) -> Result<(Vec<anabranch_record::Data>, AdmittedRequest), RefusedRequest> {
        let body = match is_gzip {
            false => body,
            true => inflate(&body, self.body_bytes, |more| admitted.grow(more)).map_err(|why| match why {
                NotInflated::Invalid => RefusedRequest::Invalid(InvalidBody::Gzip),
                NotInflated::TooLarge => RefusedRequest::TooLarge(self.body_bytes),
                NotInflated::Busy => RefusedRequest::Busy,
            })?,
        };
        match self.format.records(&body, self.records) {
            Ok(records) => Ok((records, admitted)),
            Err(InvalidBody::TooMany(most)) => Err(RefusedRequest::TooMany(most)),
            Err(invalid) => Err(invalid.into()),
        }
    }
}

/// Returns `true` if the body is compressed.
fn is_gzip(headers: &HeaderMap) -> Result<bool, RefusedRequest> {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let (first, second) = (encodings.next(), encodings.next());
    let Some(encoding) = first else { return Ok(false) };
    let encoding = encoding.as_bytes().trim_ascii();
    match () {
        () if second.is_some() => Err(RefusedRequest::Encoding),
        () if encoding.eq_ignore_ascii_case(b"identity") || encoding.is_empty() => Ok(false),
        () if encoding.eq_ignore_ascii_case(b"gzip") || encoding.eq_ignore_ascii_case(b"x-gzip") => Ok(true),
        () => Err(RefusedRequest::Encoding),
    }
}

/// Formats the time for a `Date` header; `None` if the clock is outside of the range of the header.
fn date(now: SystemTime) -> Option<HeaderValue> {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let at = chrono::DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
    HeaderValue::try_from(at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).ok()
}
