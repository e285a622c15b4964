//! A JSON service: its address, its key, and the common settings of all processors that use it.

use std::time::Duration;

use anabranch_ops_http::client::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use anabranch_ops_http::client::{
    Accept, Client, HiddenError, HttpError, Method, Policy, RequestProblem, Retry, Tls, Url,
};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Network;
use anabranch_plugin::parameters::{Argument, ByteSize, Parameters};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::codes;

/// Address of a service, with the settings of its requests. Opens no connection.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Name of the setting with the address.
    setting: Str,
    url: Url,
    headers: HeaderMap,
    policy: Policy,
}

/// A service that is ready for requests.
pub(crate) struct Service {
    url: Url,
    headers: HeaderMap,
    client: Client,
    concurrency: usize,
}

/// Reason why a service gave no usable answer.
pub(crate) enum AiServiceFailure {
    /// The service rejects the content of the request; other requests may succeed.
    Content(Fault),
    /// Any other reason.
    Other(Fault),
}

impl From<AiServiceFailure> for Fault {
    fn from(refusal: AiServiceFailure) -> Fault {
        match refusal {
            AiServiceFailure::Content(fault) | AiServiceFailure::Other(fault) => fault,
        }
    }
}

/// Parameters of requests.
#[derive(Parameters)]
pub(crate) struct Requests {
    /// Time limit of one attempt, including the answer; 0 = unlimited.
    #[parameter(name = "request.timeout", default = "120s")]
    timeout: Duration,
    /// Maximum number of requests in flight.
    #[parameter(name = "request.concurrency", default = 4, greater_than = 0, less_than = 10001)]
    concurrency: usize,
    /// Maximum number of attempts per minute, evenly spaced; 0 = unlimited.
    #[parameter(name = "request.perMinute", default = 0, greater_than = -1)]
    per_minute: f64,
    /// Maximum size of an answer.
    #[parameter(name = "response.maxBytes", default = "64MiB", greater_than = 0)]
    max_bytes: ByteSize,
}

impl Address {
    /// Builds the address from the text of the setting `base`, with `path` appended.
    ///
    /// # Errors
    /// Fails if the address is not a URL, or the key is not a valid header.
    pub(crate) fn new<T>(
        (base, text): (&Argument<T>, &str),
        path: &str,
        key: Option<&Argument<Str>>,
        retry: Retry,
        requests: &Requests,
    ) -> Result<Address, Diagnostics> {
        let mut findings = Diagnostics::new();
        let url = match url(text.trim(), path) {
            Ok(url) => Some(url),
            Err(what) => {
                findings.push(base.invalid(what).with_hint("for example http://localhost:11434"));
                None
            }
        };
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if let Some(key) = key {
            match HeaderValue::try_from(format!("Bearer {}", key.trim())) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.insert(AUTHORIZATION, value);
                }
                Err(_) => findings.push(key.invalid("this is not a valid key: it contains control characters")),
            }
        }
        let policy = Policy {
            concurrency: requests.concurrency,
            per_minute: Some(requests.per_minute).filter(|most| *most > 0.0),
            timeout: Some(requests.timeout).filter(|limit| !limit.is_zero()),
            retry,
            accept: Accept::default(),
            body_limit: requests.max_bytes.0,
            disguised: Some(disguised),
        };
        match url {
            Some(url) if !findings.has_errors() => Ok(Address { setting: base.name().clone(), url, headers, policy }),
            _ => Err(findings),
        }
    }

    /// Opens the service. Connections are made when they are needed.
    pub(crate) fn open(&self, network: Network) -> Result<Service, Fault> {
        let client = Client::new(&Tls::default(), network, self.policy.clone())?;
        Ok(Service {
            url: self.url.clone(),
            headers: self.headers.clone(),
            client: client.advising(format!("correct {}", self.setting)),
            concurrency: self.policy.concurrency,
        })
    }

    /// Returns the address without credentials.
    pub(crate) fn shown(&self) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}{}", self.url.scheme(), self.url.host_str().unwrap_or_default(), self.url.path())
    }

    /// Returns the maximum number of workers. With one request at a time, it is one, so that requests are in order.
    pub(crate) fn max_workers(&self) -> Option<u32> {
        (self.policy.concurrency == 1).then_some(1)
    }
}

fn url(text: &str, path: &str) -> Result<Url, String> {
    let base = Url::parse(text).map_err(|error| format!("this is not a URL: {error}"))?;
    if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
        return Err("the URL begins with neither http:// nor https://".to_owned());
    }
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    Ok(url)
}

impl Service {
    /// Returns the maximum number of requests in flight.
    pub(crate) fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// Sends a request and reads the answer. Dropping the future aborts the request.
    pub(crate) async fn ask<Q: Serialize, A: DeserializeOwned>(&self, question: &Q) -> Result<A, AiServiceFailure> {
        let turn = self.client.turn().await;
        let body = serde_json::to_vec(question)
            .map_err(|error| AiServiceFailure::Other(Fault::record(codes::QUESTION_INVALID, error)))?;
        let mut request = self.client.request(Method::POST, self.url.clone()).map_err(refusal)?;
        request.headers_mut().extend(self.headers.clone());
        *request.body_mut() = Some(body.into());
        let answer = self.client.send(turn, request).await.map_err(refusal)?;
        serde_json::from_slice(&answer.body).map_err(|error| AiServiceFailure::Other(self.unusable(error)))
    }

    /// Returns the fault for an answer in an unexpected format.
    pub(crate) fn unusable(&self, why: impl std::fmt::Display) -> Fault {
        let host = self.url.host_str().unwrap_or_default();
        Fault::record(
            codes::ANSWER_UNUSABLE,
            format!("{host}{} returned an answer that cannot be used: {why}", self.url.path()),
        )
    }
}

/// Maximum size in bytes of an error.
const LONGEST_ERROR: usize = 64 << 10;

/// Finds the error that a model gateway sends with a success status: `{"error": {"message": …, "type": …}}`.
fn disguised(body: &[u8]) -> Option<HiddenError> {
    #[derive(Deserialize)]
    struct Found {
        error: Json,
    }
    if body.len() > LONGEST_ERROR {
        return None;
    }
    let Found { error } = serde_json::from_slice(body).ok()?;
    let said = match &error {
        Json::String(text) => text.clone(),
        Json::Object(fields) => match fields.get("message").and_then(Json::as_str) {
            Some(message) => message.to_owned(),
            None => error.to_string(),
        },
        _ => return None,
    };
    let kind = |name: &&str| error.get(*name).is_some_and(names_a_transient_error);
    (!said.is_empty()).then(|| HiddenError { said, transient: ["type", "code", "status"].iter().any(kind) })
}

/// Returns `true` if the type, code or status of an error denotes a transient one: those that services send with 408,
/// 429 and 5xx.
fn names_a_transient_error(kind: &Json) -> bool {
    const NAMES: [&str; 8] =
        ["server_error", "overloaded", "rate_limit", "timeout", "unavailable", "internal", "exhausted", "too_many"];
    let number = kind.as_u64().or_else(|| kind.as_str()?.trim().parse().ok());
    match number {
        Some(status) => matches!(status, 408 | 429 | 500..=599),
        None => kind.as_str().is_some_and(|kind| {
            let kind = kind.to_ascii_lowercase();
            NAMES.iter().any(|name| kind.contains(name))
        }),
    }
}

fn refusal(error: HttpError) -> AiServiceFailure {
    match error.problem() {
        _ if error.is_of_login() => AiServiceFailure::Other(error.into_login_fault()),
        RequestProblem::Status { status, .. } if matches!(status.as_u16(), 400 | 413 | 422) => {
            AiServiceFailure::Content(error.into())
        }
        _ => AiServiceFailure::Other(error.into()),
    }
}
