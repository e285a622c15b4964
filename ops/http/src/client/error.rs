//! Why a request has no good answer.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use reqwest::header::LOCATION;
use reqwest::{Method, Response, StatusCode, Url};

use super::retry::LONGEST_WAIT;

/// Most characters of a refusing answer's body, or of where it points, that are shown.
const SHOWN: usize = 300;

/// A request that failed. What it shows of the URL has neither credentials nor query.
#[derive(Debug)]
pub struct HttpError {
    request: String,
    problem: Problem,
    attempts: u32,
}

/// What was wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// There is an answer, with a status that is not good.
    #[error("answered {status}{}{}", said_after(.said), wish(*.retry_after))]
    Status {
        /// The status.
        status: StatusCode,
        /// The beginning of the body.
        said: String,
        /// How long the server wants us to wait.
        retry_after: Option<Duration>,
    },
    /// There is an answer whose status is good and whose body is an error.
    #[error("answered {status} with an error: {said}")]
    Disguised {
        /// The status.
        status: StatusCode,
        /// What the error says.
        said: String,
        /// Whether another attempt may go better.
        transient: bool,
    },
    /// There is an answer, and what was asked for is somewhere else.
    #[error("answered {status} and points to {to}; redirects are not followed: {advice}")]
    Redirect {
        /// The status.
        status: StatusCode,
        /// Where it points, without credentials and query.
        to: String,
        /// Remedy.
        advice: Str,
    },
    /// There is no connection.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// There was no answer in time.
    #[error("no answer in time (request.timeout)")]
    Timeout,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The body of the answer is larger than it may be.
    #[error("the body of the answer has more than {limit} bytes (response.maxBytes)")]
    TooLarge {
        /// The most bytes it may have.
        limit: u64,
    },
    /// The request cannot be made.
    #[error("{0}")]
    Invalid(String),
}

impl HttpError {
    pub(super) fn new(request: String, problem: Problem) -> Self {
        HttpError { request, problem, attempts: 1 }
    }

    pub(super) fn of(request: String, error: reqwest::Error) -> Self {
        HttpError::new(request, Problem::from(error))
    }

    pub(super) fn after(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// What was wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The request, without credentials and query.
    pub(super) fn request(&self) -> &str {
        &self.request
    }

    /// Whether another attempt may go better.
    pub(super) fn is_worth_another_attempt(&self) -> bool {
        match &self.problem {
            Problem::Status { status, retry_after, .. } => {
                let transient = matches!(status.as_u16(), 408 | 429 | 500..=599);
                transient && retry_after.is_none_or(|wait| wait <= LONGEST_WAIT)
            }
            Problem::Disguised { transient, .. } => *transient,
            Problem::Connect(_) | Problem::Timeout | Problem::Broken(_) => true,
            Problem::Redirect { .. } | Problem::TooLarge { .. } | Problem::Invalid(_) => false,
        }
    }

    /// With which status the server wants to be left alone, and how long.
    pub(super) fn throttled_for(&self) -> Option<(StatusCode, Duration)> {
        match &self.problem {
            Problem::Status { status, retry_after, .. } if matches!(status.as_u16(), 429 | 503) => {
                retry_after.filter(|wait| *wait <= LONGEST_WAIT).map(|wait| (*status, wait))
            }
            _ => None,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match &self.problem {
            Problem::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the server, or a proxy, does not know who asks: it says 401 or 407. A 403 says that it does, and that
    /// this is not for them.
    pub fn is_of_login(&self) -> bool {
        matches!(&self.problem, Problem::Status { status, .. } if matches!(status.as_u16(), 401 | 407))
    }

    /// The fault of all requests with these credentials, whatever the record: they may be being replaced.
    pub fn into_login_fault(self) -> Fault {
        Fault::fatal("credentials_refused", self).of_login()
    }

    fn code(&self) -> &'static str {
        match &self.problem {
            Problem::Status { .. } | Problem::Disguised { .. } | Problem::Redirect { .. } => "http_status",
            Problem::Connect(_) => "http_connect",
            Problem::Timeout => "http_timeout",
            Problem::Broken(_) => "http_broken",
            Problem::TooLarge { .. } => "http_too_large",
            Problem::Invalid(_) => "http_invalid",
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
    /// The fault of the record that the request was made for.
    fn from(error: HttpError) -> Fault {
        Fault::record(error.code(), error)
    }
}

impl From<reqwest::Error> for Problem {
    fn from(error: reqwest::Error) -> Problem {
        let why = root(&error);
        match () {
            () if error.is_timeout() && !error.is_connect() => Problem::Timeout,
            () if error.is_connect() => Problem::Connect(why),
            () if error.is_builder() => Problem::Invalid(why),
            () => Problem::Broken(why),
        }
    }
}

/// The innermost cause: the layers above say only that something failed.
fn root(error: &reqwest::Error) -> String {
    if let Some(words) = anabranch_ops_tls::within(error) {
        return words;
    }
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.source() {
        // The outermost text names the URL.
        None => "the request cannot be made".to_owned(),
        Some(_) => cause.to_string(),
    }
}

/// A request, as errors name it.
pub(super) fn shown(method: &Method, url: Option<&Url>) -> String {
    let Some(url) = url else { return method.to_string() };
    format!("{method} {}", masked(url))
}

/// A URL without the parts that may hold credentials.
fn masked(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Where a redirect points, masked; `None` where the answer is no redirect, or names no place.
pub(super) fn pointed_at(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    let to = response.url().join(&String::from_utf8_lossy(location.as_bytes())).ok()?;
    to.has_host().then(|| beginning(masked(&to).chars()))
}

/// The beginning of a body, on one line.
pub(super) async fn said(response: &mut Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < 4 * SHOWN
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    in_a_line(&String::from_utf8_lossy(&bytes))
}

/// The beginning of a text, on one line.
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
            format!(" (it asks to wait {} s, more than the {} s we would)", wait.as_secs(), LONGEST_WAIT.as_secs())
        }
        _ => String::new(),
    }
}
