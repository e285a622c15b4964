//! Client of Confluent's schema registry, and of others with the same REST protocol.
//!
//! Requests run on a separate thread, because the caller may be on any runtime, or on one that is not driven meanwhile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_ops_http::client::{
    Accept, Answer, Client, HttpError, Method, Policy, Request, RequestProblem, Retry, Tls, Url, header,
};
use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::host::Network;
use anabranch_plugin::schema::{Definition, Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry, SchemaVersion};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use async_trait::async_trait;
use base64::Engine as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};

use crate::codes;
use crate::inline::inline;

/// Function that returns the current URL and credentials. May block to read files.
type Renew = dyn Fn() -> (String, Login) + Send + Sync;

/// Credentials.
#[derive(Clone)]
pub enum Login {
    /// None, or those in the URL.
    None,
    /// User and password.
    Basic(Str, Str),
    /// A bearer token.
    Bearer(Str),
}

/// Error in the address of the registry.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The text is not the URL of a server.
    #[error("is not the URL of a server, for example https://registry:8081")]
    NotAUrl,
    /// The user, password or token contains characters that are invalid in a header.
    #[error("the credentials contain characters that an HTTP header cannot contain")]
    Credentials,
    /// The HTTP client cannot be created.
    #[error("{0}")]
    System(String),
}

type Response = oneshot::Sender<Result<Answer, HttpError>>;

/// A registry at an address.
pub struct ConfluentRegistry {
    access: Mutex<Arc<Access>>,
    renew: Option<Arc<Renew>>,
    requests: mpsc::UnboundedSender<(Request, Response)>,
}

const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY: Retry = Retry { count: 4, delays: Backoff::doubling(Duration::from_millis(100), Duration::from_secs(2)) };
/// Statuses whose body contains an error about schemas.
const SPEAKING: [&str; 5] = ["401", "403", "404", "409", "422"];
/// Maximum number of schemas to which a schema refers, directly and through others.
const MOST_REFERENCES: usize = 100;
const MEDIA: &str = "application/vnd.schemaregistry.v1+json";

/// An address with its credentials.
#[derive(PartialEq)]
struct Access {
    base: Url,
    login: Option<header::HeaderValue>,
}

impl Access {
    fn new(url: &str, login: &Login) -> Result<Access, AddressError> {
        let base = Url::parse(url.trim()).map_err(|_| AddressError::NotAUrl)?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(AddressError::NotAUrl);
        }
        let value = match login {
            Login::None => None,
            Login::Basic(user, password) => {
                let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {pair}"))
            }
            Login::Bearer(token) => Some(format!("Bearer {}", token.trim())),
        };
        let login = value.map(header::HeaderValue::try_from).transpose().map_err(|_| AddressError::Credentials)?;
        let login = login.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Ok(Access { base, login })
    }

    /// Returns `true` if both give access to the same registry.
    fn is_same_registry(&self, other: &Access) -> bool {
        let place = |access: &Access| {
            let mut url = access.base.clone();
            let _ = (url.set_username(""), url.set_password(None));
            url
        };
        place(self) == place(other)
    }

    fn request(&self, method: Method, path: &[&str], body: Option<&Json>) -> Result<Request, SchemaError> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            Err(()) => return Err(unavailable("the URL has no path")),
        };
        let credentials = (url.username().to_owned(), url.password().map(str::to_owned));
        let _ = (url.set_username(""), url.set_password(None));
        let mut request = Request::new(method, url);
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, header::HeaderValue::from_static(MEDIA));
        match (&self.login, credentials) {
            (Some(login), _) => drop(headers.insert(header::AUTHORIZATION, login.clone())),
            (None, (user, password)) if !user.is_empty() || password.is_some() => {
                let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
                let pair = format!("{}:{}", decode(&user), decode(&password.unwrap_or_default()));
                let value = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
                let mut value =
                    header::HeaderValue::try_from(value).map_err(|_| unavailable("unusable credentials"))?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
            _ => {}
        }
        if let Some(body) = body {
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(MEDIA));
            *request.body_mut() = Some(body.to_string().into());
        }
        Ok(request)
    }
}

impl ConfluentRegistry {
    /// Creates a client for the registry at this URL. Does not connect.
    ///
    /// # Errors
    /// Fails if the URL or the credentials are invalid.
    pub fn new(url: &str, login: &Login) -> Result<ConfluentRegistry, AddressError> {
        Self::with(Access::new(url, login)?, None)
    }

    /// Creates a client whose URL and credentials come from `renew`. It is called now, and again if the registry
    /// rejects the credentials, because they may have been replaced.
    ///
    /// # Errors
    /// As [`ConfluentRegistry::new`].
    pub fn renewing(
        renew: impl Fn() -> (String, Login) + Send + Sync + 'static,
    ) -> Result<ConfluentRegistry, AddressError> {
        let (url, login) = renew();
        Self::with(Access::new(&url, &login)?, Some(Arc::new(renew)))
    }

    fn with(access: Access, renew: Option<Arc<Renew>>) -> Result<ConfluentRegistry, AddressError> {
        let mut accept = Accept::default();
        for status in SPEAKING {
            accept.add(status).map_err(|error| AddressError::System(error.to_string()))?;
        }
        let policy = Policy {
            concurrency: 4,
            per_minute: None,
            timeout: Some(TIMEOUT),
            retry: RETRY,
            accept,
            body_limit: 16 << 20,
            disguised: None,
        };
        let client = Client::new(&Tls::default(), Network::Open, policy)
            .map_err(|fault| AddressError::System(fault.message()))?;
        let (requests, waiting) = mpsc::unbounded_channel();
        let system = |error: std::io::Error| AddressError::System(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let live = move || runtime.block_on(live(client, waiting));
        std::thread::Builder::new().name("schema-registry".to_owned()).spawn(live).map_err(system)?;
        Ok(ConfluentRegistry { access: Mutex::new(Arc::new(access)), renew, requests })
    }

    fn access(&self) -> Arc<Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the credentials again, on a thread that may block. Returns `None` if they are unchanged.
    async fn renewed(&self, before: &Access) -> Option<Arc<Access>> {
        let renew = self.renew.clone()?;
        let (sender, receiver) = oneshot::channel();
        let read = move || drop(sender.send(renew()));
        std::thread::Builder::new().name("schema-registry-login".to_owned()).spawn(read).ok()?;
        let (url, login) = receiver.await.ok()?;
        let access = match Access::new(&url, &login) {
            Ok(access) => access,
            Err(error) => {
                tracing::warn!(%error, "the new address or credentials of the schema registry cannot be used");
                return None;
            }
        };
        if access == *before {
            return None;
        }
        if !access.is_same_registry(before) {
            tracing::warn!("the settings specify a different schema registry: restart the service to use it");
            return None;
        }
        tracing::info!("the credentials of the schema registry are read again");
        let access = Arc::new(access);
        *self.access.lock().unwrap_or_else(PoisonError::into_inner) = access.clone();
        Some(access)
    }

    async fn ask(&self, method: Method, path: &[&str], body: Option<&Json>) -> Result<Json, RegistryRefusal> {
        let access = self.access();
        let answer = self.ask_as(&access, method.clone(), path, body).await;
        if let Err(RegistryRefusal::Other(SchemaError::Denied(_))) = &answer
            && let Some(renewed) = self.renewed(&access).await
        {
            return self.ask_as(&renewed, method, path, body).await;
        }
        answer
    }

    async fn ask_as(
        &self,
        access: &Access,
        method: Method,
        path: &[&str],
        body: Option<&Json>,
    ) -> Result<Json, RegistryRefusal> {
        let request = access.request(method, path, body).map_err(RegistryRefusal::Other)?;
        let (done, answer) = oneshot::channel();
        let gone = || RegistryRefusal::Other(unavailable("its thread has ended"));
        self.requests.send((request, done)).map_err(|_| gone())?;
        let answer = answer.await.map_err(|_| gone())?.map_err(|error| RegistryRefusal::Other(failed(error)))?;
        let body: Option<Json> = serde_json::from_slice(&answer.body).ok();
        if answer.status.is_success() {
            return body.ok_or_else(|| {
                RegistryRefusal::Other(unavailable("the answer is not JSON; is this a schema registry?"))
            });
        }
        let field = |name| body.as_ref().and_then(|body| body.get(name));
        let status = u64::from(answer.status.as_u16());
        let code = field("error_code").and_then(Json::as_u64);
        let message = field("message").and_then(Json::as_str).unwrap_or("no reason given");
        let message: String = message.chars().take(1000).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Err(match (status, code) {
            (401 | 403, _) => {
                RegistryRefusal::Other(SchemaError::Denied(format!("{}: {message}", answer.status).into()))
            }
            (_, Some(code)) => RegistryRefusal::Code(code, message.into()),
            (409 | 422, None) => RegistryRefusal::Code(status, message.into()),
            (_, None) => RegistryRefusal::Other(unavailable(&format!("{}: {message}", answer.status))),
        })
    }

    /// Returns the version of a subject with this text.
    async fn look_up(&self, subject: &Str, body: &Json) -> Result<Arc<Schema>, RegistryRefusal> {
        let found = self.ask(Method::POST, &["subjects", subject], Some(body)).await?;
        self.schema(subject, &found).await.map_err(RegistryRefusal::Other)
    }

    /// Returns the version of a subject in an answer.
    async fn schema(&self, subject: &Str, answer: &Json) -> Result<Arc<Schema>, SchemaError> {
        let incomplete = || unavailable("an answer has no valid id and version");
        let version = number(answer, "version").and_then(SchemaVersion::new).ok_or_else(incomplete)?;
        let id = number(answer, "id").and_then(SchemaId::new).ok_or_else(incomplete)?;
        let text = self.complete(&version_of(subject, version.get()), answer).await?;
        Ok(Arc::new(Schema { subject: subject.clone(), version, id, kind: SchemaKind::Avro, text }))
    }

    /// Returns the text of the schema in an answer, with the types of the schemas to which it refers.
    async fn complete(&self, what: &str, answer: &Json) -> Result<Str, SchemaError> {
        let text = text_of(what, answer)?;
        let mut references = references_of(answer)?;
        let mut others = Vec::new();
        while let Some((subject, version)) = references.get(others.len()).cloned() {
            if others.len() == MOST_REFERENCES {
                return Err(SchemaError::Invalid(
                    format!("{what} refers to more than {MOST_REFERENCES} schemas").into(),
                ));
            }
            let found = self.ask(Method::GET, &["subjects", &subject, "versions", &version.to_string()], None).await;
            let found = found.map_err(|refusal| refusal.of_subject(&subject, SchemaVersion::new(version)))?;
            others.push(text_of(&version_of(&subject, version), &found)?.to_owned());
            for reference in references_of(&found)? {
                if !references.contains(&reference) {
                    references.push(reference);
                }
            }
        }
        if others.is_empty() {
            return Ok(text.into());
        }
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let whole = inline(text, &others);
        whole.map(Str::from).map_err(|error| SchemaError::Invalid(format!("{what}: {error}").into()))
    }
}

/// Error answer of the registry.
enum RegistryRefusal {
    /// Error with the registry's own code, such as 40401 or 42201.
    Code(u64, Str),
    Other(SchemaError),
}

impl RegistryRefusal {
    fn of_subject(self, subject: &Str, version: Option<SchemaVersion>) -> SchemaError {
        match self {
            RegistryRefusal::Code(40402, _) if version.is_some() => match version {
                Some(version) => SchemaError::VersionNotFound { subject: subject.clone(), version },
                None => SchemaError::SubjectNotFound(subject.clone()),
            },
            RegistryRefusal::Code(40401 | 40402, _) => SchemaError::SubjectNotFound(subject.clone()),
            RegistryRefusal::Code(40403, message) => SchemaError::SchemaNotFound(message),
            RegistryRefusal::Code(409 | 40901, message) => {
                SchemaError::Incompatible { subject: subject.clone(), message }
            }
            RegistryRefusal::Code(422 | 42201..=42299, message) => SchemaError::Invalid(message),
            RegistryRefusal::Code(code, message) => unavailable(&format!("error {code}: {message}")),
            RegistryRefusal::Other(error) => error,
        }
    }
}

fn unavailable(what: &str) -> SchemaError {
    let error: Box<dyn std::error::Error + Send + Sync> = what.into();
    SchemaError::Unavailable(error.into())
}

fn failed(error: HttpError) -> SchemaError {
    match error.problem() {
        RequestProblem::Invalid(_) | RequestProblem::TooLarge { .. } => SchemaError::Unusable(error.to_string().into()),
        _ => SchemaError::Unavailable(Arc::new(error)),
    }
}

/// Executes requests until all senders are dropped.
async fn live(client: Client, mut waiting: mpsc::UnboundedReceiver<(Request, Response)>) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            next = waiting.recv() => match next {
                Some((request, done)) => running.push(async {
                    let turn = client.turn().await;
                    // The caller may be gone, and then the answer is not needed.
                    let _ = done.send(client.send(turn, request).await);
                }),
                None => return,
            },
            Some(()) = running.next() => {}
        }
    }
}

/// Returns the text of the schema in an answer.
fn text_of<'a>(what: &str, answer: &'a Json) -> Result<&'a str, SchemaError> {
    let kind = match answer.get("schemaType").and_then(Json::as_str) {
        None | Some("AVRO") => {
            let text = answer.get("schema").and_then(Json::as_str);
            return text.ok_or_else(|| unavailable("an answer has no schema"));
        }
        Some("JSON") => "a JSON Schema",
        Some("PROTOBUF") => "a Protobuf schema",
        Some(other) => other,
    };
    Err(SchemaError::Invalid(format!("{what} is {kind}; only Avro schemas are supported").into()))
}

/// Returns the subjects and versions of the schemas to which the schema in an answer refers.
fn references_of(answer: &Json) -> Result<Vec<(Str, u32)>, SchemaError> {
    let reference = |given: &Json| {
        let subject = given.get("subject").and_then(Json::as_str).map(Str::from);
        subject.zip(number(given, "version"))
    };
    let list = answer.get("references").and_then(Json::as_array).into_iter().flatten();
    let all: Option<Vec<_>> = list.map(reference).collect();
    all.ok_or_else(|| unavailable("an answer has a reference without subject and version"))
}

fn version_of(subject: &Str, version: u32) -> String {
    format!("version {version} of the subject {subject:?}")
}

fn number(answer: &Json, name: &str) -> Option<u32> {
    answer.get(name)?.as_u64()?.try_into().ok()
}

#[async_trait]
impl SchemaRegistry for ConfluentRegistry {
    /// Searches for the schema first, because registering needs more permissions than reading. A new subject gets the
    /// compatibility level NONE, because an inferred schema changes with the data.
    async fn create(&self, subject: &Str, _kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        let body = json!({ "schema": text.as_str() });
        let found = match self.look_up(subject, &body).await {
            Ok(found) => found,
            Err(RegistryRefusal::Code(code @ (40401 | 40403), _)) => {
                let registered = self.ask(Method::POST, &["subjects", subject, "versions"], Some(&body)).await;
                registered.map_err(|refusal| refusal.of_subject(subject, None))?;
                if code == 40401 {
                    let level = json!({ "compatibility": "NONE" });
                    if let Err(refusal) = self.ask(Method::PUT, &["config", subject], Some(&level)).await {
                        let error = refusal.of_subject(subject, None);
                        tracing::warn!(
                            %subject, %error,
                            "the compatibility of a new subject cannot be set and stays unchanged"
                        );
                    }
                }
                self.look_up(subject, &body).await.map_err(|refusal| refusal.of_subject(subject, None))?
            }
            Err(refusal) => return Err(refusal.of_subject(subject, None)),
        };
        Ok(found)
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        let path = ["subjects", subject, "versions", &version.to_string()];
        let answer = self.ask(Method::GET, &path, None).await;
        let answer = answer.map_err(|refusal| refusal.of_subject(subject, Some(version)))?;
        self.schema(subject, &answer).await
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        let answer = match self.ask(Method::GET, &["schemas", "ids", &id.to_string()], None).await {
            Ok(answer) => answer,
            Err(RegistryRefusal::Code(40401..=40403, _)) => {
                return Err(SchemaError::SchemaNotFound(format!("id {id}").into()));
            }
            Err(refusal) => return Err(refusal.of_subject(&Str::default(), None)),
        };
        let text = self.complete(&format!("the schema with the id {id}"), &answer).await?;
        Ok(Arc::new(Definition { id, kind: SchemaKind::Avro, text }))
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        let answer = self.ask(Method::GET, &["subjects", subject, "versions"], None).await;
        let answer = answer.map_err(|refusal| refusal.of_subject(subject, None))?;
        let numbers = answer.as_array().into_iter().flatten();
        let versions = numbers.filter_map(|n| n.as_u64()?.try_into().ok().and_then(SchemaVersion::new));
        Ok(versions.collect())
    }
}

impl From<AddressError> for Fault {
    fn from(error: AddressError) -> Fault {
        Fault::fatal(codes::SCHEMA_REGISTRY_ADDRESS, error)
    }
}

#[cfg(test)]
mod tests;
