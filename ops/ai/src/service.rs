//! A JSON service: its address, its key, and the common settings of all processors that use it.

use std::time::Duration;

use anabranch_ops_http::client::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use anabranch_ops_http::client::{Accept, Client, Disguised, HttpError, Method, Policy, Problem, Retry, Tls, Url};
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Network;
use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::finding::finding;

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
pub(crate) enum Refusal {
    /// The service rejects the content of the request; other requests may succeed.
    Content(Fault),
    /// Any other reason.
    Other(Fault),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        match refusal {
            Refusal::Content(fault) | Refusal::Other(fault) => fault,
        }
    }
}

/// Returns the request parameters that all such processors have.
pub(crate) fn request_parameters() -> Vec<Parameter> {
    use ParameterKind::{Duration, Float, Int};
    vec![
        Parameter::new("request.timeout", Duration, "Time limit of one attempt, including the answer; 0 = unlimited.")
            .default_value("120s"),
        Parameter::new("request.concurrency", Int, "Maximum number of requests in flight.")
            .default_value("4")
            .validate(Validation::GreaterThan(0.0))
            .validate(Validation::LessThan(10_001.0)),
        Parameter::new(
            "request.perMinute",
            Float,
            "Maximum number of attempts per minute, evenly spaced; 0 = unlimited.",
        )
        .default_value("0")
        .validate(Validation::GreaterThan(-1.0)),
        Parameter::new("response.maxBytes", ParameterKind::Bytes, "Maximum size of an answer.")
            .default_value("64MiB")
            .validate(Validation::GreaterThan(0.0)),
    ]
}

/// Returns the parameters `backoffRetry.*` for retries.
pub(crate) fn backoff_parameters(count: &'static str) -> Vec<Parameter> {
    use ParameterKind::{Duration, Float, Int};
    vec![
        Parameter::new("backoffRetry.count", Int, "Maximum number of retries after 408, 429, 5xx or no answer.")
            .default_value(count)
            .validate(Validation::GreaterThan(-1.0)),
        Parameter::new("backoffRetry.factor", Float, "Growth factor of the delay between attempts.")
            .default_value("2")
            .validate(Validation::GreaterThan(0.0))
            .only_with("backoffRetry.count"),
        Parameter::new(
            "backoffRetry.min",
            Duration,
            "Delay before the first retry; a random part of up to a quarter is added.",
        )
        .default_value("100ms")
        .only_with("backoffRetry.count"),
        Parameter::new("backoffRetry.max", Duration, "Maximum delay, unless the service asks for more.")
            .default_value("5s")
            .only_with("backoffRetry.count"),
    ]
}

/// Reads the settings of [`backoff_parameters`].
pub(crate) fn backoff(arguments: &Arguments) -> Retry {
    Retry {
        count: count(arguments, "backoffRetry.count"),
        delays: Backoff {
            first: arguments.duration("backoffRetry.min").unwrap_or_default(),
            longest: arguments.duration("backoffRetry.max").unwrap_or_default(),
            factor: arguments.float("backoffRetry.factor").unwrap_or(1.0),
        },
    }
}

/// Returns a number of retries.
pub(crate) fn count(arguments: &Arguments, name: &str) -> u32 {
    arguments.int(name).and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX)
}

impl Address {
    /// Builds the address from the setting `base`, with `path` appended.
    ///
    /// # Errors
    /// Fails if the address is not a URL, or the key is not a valid header.
    pub(crate) fn configure(
        arguments: &Arguments,
        base: &str,
        path: &str,
        key: Option<&str>,
        retry: Retry,
    ) -> Result<Address, Diagnostics> {
        Self::configure_or(arguments, (base, ""), path, key, retry)
    }

    /// Like [`Address::configure`], with the default `otherwise` for a missing setting.
    ///
    /// # Errors
    /// As [`Address::configure`].
    pub(crate) fn configure_or(
        arguments: &Arguments,
        (base, otherwise): (&str, &str),
        path: &str,
        key: Option<&str>,
        retry: Retry,
    ) -> Result<Address, Diagnostics> {
        let mut findings = Diagnostics::new();
        let text = arguments.text(base).map_or(otherwise, Str::as_str).trim();
        let url = match url(text, path) {
            Ok(url) => Some(url),
            Err(what) => {
                findings.push(
                    finding(arguments, base, format!("{base}: {what}")).with_hint("for example http://localhost:11434"),
                );
                None
            }
        };
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if let Some((key, text)) = key.and_then(|key| Some((key, arguments.text(key)?))) {
            match HeaderValue::try_from(format!("Bearer {}", text.trim())) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.insert(AUTHORIZATION, value);
                }
                Err(_) => findings.push(finding(
                    arguments,
                    key,
                    format!("{key}: this is not a valid key: it contains control characters"),
                )),
            }
        }
        let policy = Policy {
            concurrency: arguments.size("request.concurrency").unwrap_or(1),
            per_minute: arguments.float("request.perMinute").filter(|most| *most > 0.0),
            timeout: arguments.duration("request.timeout").filter(|limit| *limit > Duration::ZERO),
            retry,
            accept: Accept::default(),
            body_limit: arguments.bytes("response.maxBytes").unwrap_or(u64::MAX),
            disguised: Some(disguised),
        };
        match url {
            Some(url) if !findings.has_errors() => Ok(Address { setting: Str::from(base), url, headers, policy }),
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
    pub(crate) async fn ask<Q: Serialize, A: DeserializeOwned>(&self, question: &Q) -> Result<A, Refusal> {
        let turn = self.client.turn().await;
        let body =
            serde_json::to_vec(question).map_err(|error| Refusal::Other(Fault::record("question_invalid", error)))?;
        let mut request = self.client.request(Method::POST, self.url.clone()).map_err(refusal)?;
        request.headers_mut().extend(self.headers.clone());
        *request.body_mut() = Some(body.into());
        let answer = self.client.send(turn, request).await.map_err(refusal)?;
        serde_json::from_slice(&answer.body).map_err(|error| Refusal::Other(self.unusable(error)))
    }

    /// Returns the fault for an answer in an unexpected format.
    pub(crate) fn unusable(&self, why: impl std::fmt::Display) -> Fault {
        let host = self.url.host_str().unwrap_or_default();
        Fault::record(
            "answer_unusable",
            format!("{host}{} returned an answer that cannot be used: {why}", self.url.path()),
        )
    }
}

/// Maximum size in bytes of an error.
const LONGEST_ERROR: usize = 64 << 10;

/// Finds the error that a model gateway sends with a success status: `{"error": {"message": …, "type": …}}`.
fn disguised(body: &[u8]) -> Option<Disguised> {
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
    (!said.is_empty()).then(|| Disguised { said, transient: ["type", "code", "status"].iter().any(kind) })
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

fn refusal(error: HttpError) -> Refusal {
    match error.problem() {
        _ if error.is_of_login() => Refusal::Other(error.into_login_fault()),
        Problem::Status { status, .. } if matches!(status.as_u16(), 400 | 413 | 422) => Refusal::Content(error.into()),
        _ => Refusal::Other(error.into()),
    }
}
