//! Errors of requests.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use reqwest::header::LOCATION;
use reqwest::{Method, Response, StatusCode, Url};

use super::retry::LONGEST_WAIT;
use crate::codes;

/// Maximum number of characters shown of an error answer's body, or of a redirect's target.
const SHOWN: usize = 300;

/// A failed request. It shows the URL without credentials and query.
#[derive(Debug)]
pub struct HttpError {
    request: String,
    problem: RequestProblem,
    attempts: u32,
}

/// Reason of the failure.
#[derive(Debug, thiserror::Error)]
pub enum RequestProblem {
    /// The answer has an error status.
    #[error("answered {status}{}{}", said_after(.said), wish(*.retry_after))]
    Status {
        /// Status of the answer.
        status: StatusCode,
        /// Beginning of the body.
        said: String,
        /// Delay that the server requests.
        retry_after: Option<Duration>,
    },
    /// The answer has a success status, and its body is an error.
    #[error("answered {status} with an error: {said}")]
    Disguised {
        /// Status of the answer.
        status: StatusCode,
        /// Message of the error.
        said: String,
        /// True if a retry may succeed.
        transient: bool,
    },
    /// The answer is a redirect.
    #[error("answered {status} and points to {to}; redirects are not followed: {advice}")]
    Redirect {
        /// Status of the answer.
        status: StatusCode,
        /// Target without credentials and query.
        to: String,
        /// Remedy.
        advice: Str,
    },
    /// The connection cannot be established.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// There was no answer within the time limit.
    #[error("no answer in time (request.timeout)")]
    Timeout,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The body of the answer is too large.
    #[error("the body of the answer has more than {limit} bytes (response.maxBytes)")]
    TooLarge {
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

impl HttpError {
    pub(super) fn new(request: String, problem: RequestProblem) -> Self {
        HttpError { request, problem, attempts: 1 }
    }

    pub(super) fn of(request: String, error: reqwest::Error) -> Self {
        HttpError::new(request, RequestProblem::from(error))
    }

    pub(super) fn after(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Returns the reason of the failure.
    pub fn problem(&self) -> &RequestProblem {
        &self.problem
    }

    /// Returns the request without credentials and query.
    pub(super) fn request(&self) -> &str {
        &self.request
    }

    /// Returns `true` if a retry may succeed.
    pub(super) fn is_worth_another_attempt(&self) -> bool {
        match &self.problem {
            RequestProblem::Status { status, retry_after, .. } => {
                let transient = matches!(status.as_u16(), 408 | 429 | 500..=599);
                transient && retry_after.is_none_or(|wait| wait <= LONGEST_WAIT)
            }
            RequestProblem::Disguised { transient, .. } => *transient,
            RequestProblem::Connect(_) | RequestProblem::Timeout | RequestProblem::Broken(_) => true,
            RequestProblem::Redirect { .. } | RequestProblem::TooLarge { .. } | RequestProblem::Invalid(_) => false,
        }
    }

    /// Returns `true` if the same request may succeed later, even if the server asks to wait for long.
    pub(crate) fn is_transient(&self) -> bool {
        match &self.problem {
            RequestProblem::Status { status, .. } => matches!(status.as_u16(), 408 | 429 | 500..=599),
            _ => self.is_worth_another_attempt(),
        }
    }

    /// Returns the status of the answer, if there is one.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match &self.problem {
            RequestProblem::Status { status, .. }
            | RequestProblem::Disguised { status, .. }
            | RequestProblem::Redirect { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the status with which the server requests a delay, and the delay.
    pub(super) fn throttled_for(&self) -> Option<(StatusCode, Duration)> {
        match &self.problem {
            RequestProblem::Status { status, retry_after, .. } if matches!(status.as_u16(), 429 | 503) => {
                retry_after.filter(|wait| *wait <= LONGEST_WAIT).map(|wait| (*status, wait))
            }
            _ => None,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match &self.problem {
            RequestProblem::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns `true` if the server or a proxy did not authenticate the caller: status 401 or 407. With a 403, it knows
    /// the caller and denies the request.
    pub fn is_of_login(&self) -> bool {
        matches!(&self.problem, RequestProblem::Status { status, .. } if matches!(status.as_u16(), 401 | 407))
    }

    /// Returns the fault that concerns all requests with these credentials, whatever the record. The credentials may be
    /// in the process of being replaced.
    pub fn into_login_fault(self) -> Fault {
        Fault::fatal(codes::CREDENTIALS_REFUSED, self).of_login()
    }

    fn code(&self) -> Code {
        match &self.problem {
            RequestProblem::Status { .. } | RequestProblem::Disguised { .. } | RequestProblem::Redirect { .. } => {
                codes::HTTP_STATUS
            }
            RequestProblem::Connect(_) => codes::HTTP_CONNECT,
            RequestProblem::Timeout => codes::HTTP_TIMEOUT,
            RequestProblem::Broken(_) => codes::HTTP_BROKEN,
            RequestProblem::TooLarge { .. } => codes::HTTP_TOO_LARGE,
            RequestProblem::Invalid(_) => codes::HTTP_INVALID,
        }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.request, self.problem)?;
        match self.attempts {
            0 | 1 => Ok(()),
            n => write!(f, " (after {n} attempts)"),
        }
    }
}

impl Error for HttpError {}

impl From<HttpError> for Fault {
    /// Returns the fault of the record of the request.
    fn from(error: HttpError) -> Fault {
        Fault::record(error.code(), error)
    }
}

impl From<reqwest::Error> for RequestProblem {
    fn from(error: reqwest::Error) -> RequestProblem {
        let why = root(&error);
        match () {
            () if error.is_timeout() && !error.is_connect() => RequestProblem::Timeout,
            () if error.is_connect() => RequestProblem::Connect(why),
            () if error.is_builder() => RequestProblem::Invalid(why),
            () => RequestProblem::Broken(why),
        }
    }
}

/// Returns the innermost cause; the outer ones say only that something failed.
fn root(error: &reqwest::Error) -> String {
    if let Some(words) = anabranch_ops_tls::within(error) {
        return words;
    }
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.source() {
        // The outermost text contains the URL.
        None => "the request cannot be made".to_owned(),
        Some(_) => cause.to_string(),
    }
}

/// Returns a request as shown in errors.
pub(super) fn shown(method: &Method, url: Option<&Url>) -> String {
    let Some(url) = url else { return method.to_string() };
    format!("{method} {}", masked(url))
}

/// Returns a URL without the parts that may contain credentials.
fn masked(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Returns the masked target of a redirect; `None` if the answer is not a redirect or has no target.
pub(super) fn pointed_at(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    let to = response.url().join(&String::from_utf8_lossy(location.as_bytes())).ok()?;
    to.has_host().then(|| beginning(masked(&to).chars()))
}

/// Returns the beginning of a body, on one line.
pub(super) async fn said(response: &mut Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < 4 * SHOWN
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    in_a_line(&String::from_utf8_lossy(&bytes))
}

/// Returns the beginning of a text, on one line.
pub(super) fn in_a_line(text: &str) -> String {
    beginning(text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }))
}

fn beginning(mut text: impl Iterator<Item = char>) -> String {
    let mut shown: String = text.by_ref().take(SHOWN).collect();
    if text.next().is_some() {
        shown.push('…');
    }
    shown
}

fn said_after(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

fn wish(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(wait) if wait > LONGEST_WAIT => {
            format!(
                " (the server asks to wait {} s, longer than the limit of {} s)",
                wait.as_secs(),
                LONGEST_WAIT.as_secs()
            )
        }
        _ => String::new(),
    }
}
