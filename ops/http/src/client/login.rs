//! Credentials in the header `Authorization`: fixed ones, or a token of OAuth 2.0.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Network;
use anabranch_plugin::parameters::{Argument, Choice, Parameters};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Accept, Answer, Client, HttpError, Policy, Tls};
use crate::codes;

/// Time before the end of a token at which another one is requested.
const EARLY: Duration = Duration::from_secs(30);
/// Life of a token whose answer names none.
const USUAL: Duration = Duration::from_secs(300);
/// Time limit of a request for a token.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of the answer with a token.
const LARGEST: u64 = 1 << 20;

/// Parameters of credentials; at most one kind is given.
#[derive(Parameters)]
pub(crate) struct LoginSettings {
    /// Token for `Authorization: Bearer TOKEN`.
    #[parameter(name = "auth.bearer", secret)]
    bearer: Argument<Option<Str>>,
    /// User name of basic authentication.
    #[parameter(name = "auth.username")]
    username: Argument<Option<Str>>,
    /// Password of basic authentication.
    #[parameter(name = "auth.password", secret)]
    password: Argument<Option<Str>>,
    /// URL at which OAuth 2.0 gives a token for the credentials of a client.
    #[parameter(name = "auth.oauth2.tokenURL")]
    token_url: Argument<Option<Str>>,
    /// Id of the client.
    #[parameter(name = "auth.oauth2.clientID")]
    client_id: Argument<Option<Str>>,
    /// Secret of the client.
    #[parameter(name = "auth.oauth2.clientSecret", secret)]
    client_secret: Argument<Option<Str>>,
    /// Where the id and the secret are: body (of the request for a token) or basic (the header of basic authentication).
    #[parameter(name = "auth.oauth2.method", default = "body", only_with = "auth.oauth2.tokenURL")]
    method: CredentialsPlace,
    /// Scopes of the token, separated by spaces.
    #[parameter(name = "auth.oauth2.scope")]
    scope: Argument<Option<Str>>,
}

/// The part of a request for a token that has the credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialsPlace {
    Body,
    Basic,
}

impl Choice for CredentialsPlace {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("body", CredentialsPlace::Body), ("basic", CredentialsPlace::Basic)];
}

/// Credentials of requests.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    /// None, or those of other settings.
    None,
    /// A value of the header `Authorization`.
    Header(HeaderValue),
    /// A token that a server gives.
    OAuth(ClientCredentials),
}

/// Credentials of a client of OAuth 2.0.
#[derive(Clone)]
pub(crate) struct ClientCredentials {
    url: Url,
    id: Str,
    secret: Str,
    scope: Option<Str>,
    place: CredentialsPlace,
}

/// Never shows the secret.
impl std::fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCredentials").field("id", &self.id).finish_non_exhaustive()
    }
}

impl LoginSettings {
    /// Returns the credentials; adds errors to `findings`.
    pub(crate) fn login(&self, findings: &mut Diagnostics) -> Login {
        let is_oauth =
            [&self.token_url, &self.client_id, &self.client_secret, &self.scope].iter().any(|s| s.is_given());
        let kinds = [
            (&self.bearer, self.bearer.is_given()),
            (&self.username, self.username.is_given() || self.password.is_given()),
            (&self.token_url, is_oauth),
        ];
        let mut given = kinds.iter().filter(|(_, is_given)| *is_given).map(|(setting, _)| setting);
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            let text = format!("{} and {} exclude each other", first.name(), second.name());
            findings.push(first.finding(codes::SETTINGS_INVALID, text));
            return Login::None;
        }
        if self.bearer.is_given() {
            let value = needed(&self.bearer, None, findings).map(|token| format!("Bearer {token}"));
            return value.map_or(Login::None, |value| fixed(&self.bearer, value, findings));
        }
        if self.username.is_given() || self.password.is_given() {
            let user = needed(&self.username, Some("auth.password"), findings);
            let password = needed(&self.password, Some("auth.username"), findings);
            let (Some(user), Some(password)) = (user, password) else { return Login::None };
            let value = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
            return fixed(&self.password, value, findings);
        }
        if !is_oauth {
            return Login::None;
        }
        let with = Some("the other settings auth.oauth2.*");
        let url = needed(&self.token_url, with, findings);
        let (id, secret) = (needed(&self.client_id, with, findings), needed(&self.client_secret, with, findings));
        let (Some(url), Some(id), Some(secret)) = (url, id, secret) else { return Login::None };
        match Url::parse(&url) {
            Ok(url) if url.has_host() && ["http", "https"].contains(&url.scheme()) => {
                let scope = self.scope.as_ref().map(|scope| Str::from(scope.trim()));
                Login::OAuth(ClientCredentials { url, id, secret, scope, place: self.method })
            }
            _ => {
                let finding = self.token_url.invalid("this is not a URL");
                findings.push(finding.with_hint("for example https://login.example.com/token"));
                Login::None
            }
        }
    }
}

/// Returns the value of a setting that is required with others; adds an error to `findings` if it is blank.
fn needed(setting: &Argument<Option<Str>>, with: Option<&str>, findings: &mut Diagnostics) -> Option<Str> {
    let value = setting.as_ref().map(|text| Str::from(text.trim())).filter(|text| !text.is_empty());
    match with {
        _ if value.is_some() => {}
        Some(with) if !setting.is_given() => {
            findings
                .push(setting.finding(codes::SETTINGS_REQUIRED, format!("{} is required with {with}", setting.name())));
        }
        _ => findings.push(setting.invalid("the value is blank").with_hint("set it, or remove the setting")),
    }
    value
}

/// Returns fixed credentials; adds an error to `findings` if a header cannot have them.
fn fixed(setting: &Argument<Option<Str>>, text: String, findings: &mut Diagnostics) -> Login {
    match HeaderValue::try_from(text) {
        Ok(mut value) => {
            value.set_sensitive(true);
            Login::Header(value)
        }
        Err(_) => {
            findings.push(setting.invalid("a header cannot contain control characters or line breaks"));
            Login::None
        }
    }
}

/// A client with credentials. It requests a token when it is needed, and another one when a server refuses it.
pub(crate) struct AuthorizedClient {
    client: Client,
    login: OpenedLogin,
}

#[allow(clippy::large_enum_variant, reason = "there is one per connector")]
enum OpenedLogin {
    None,
    Header(HeaderValue),
    OAuth {
        credentials: ClientCredentials,
        client: Box<Client>,
        token: Mutex<Option<Token>>,
        asking: tokio::sync::Mutex<()>,
    },
}

#[derive(Clone)]
struct Token {
    value: HeaderValue,
    until: Instant,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<f64>,
}

impl AuthorizedClient {
    /// Puts credentials before the requests of a client.
    ///
    /// # Errors
    /// `tls_invalid` if the roots are not certificates.
    pub(crate) fn new(client: Client, login: &Login, tls: &Tls, network: Network) -> Result<AuthorizedClient, Fault> {
        let login = match login {
            Login::None => OpenedLogin::None,
            Login::Header(value) => OpenedLogin::Header(value.clone()),
            Login::OAuth(credentials) => {
                let policy = Policy {
                    concurrency: 1,
                    per_minute: None,
                    timeout: Some(TIMEOUT),
                    retry: client.retry(),
                    accept: Accept::default(),
                    body_limit: LARGEST,
                    disguised: None,
                };
                let client = Client::new(tls, network, policy)?.advising("correct auth.oauth2.tokenURL");
                OpenedLogin::OAuth {
                    credentials: credentials.clone(),
                    client: Box::new(client),
                    token: Mutex::default(),
                    asking: tokio::sync::Mutex::default(),
                }
            }
        };
        Ok(AuthorizedClient { client, login })
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request with the credentials, like [`Client::send`]. If the server refuses a token, another token is
    /// requested, once.
    ///
    /// # Errors
    /// Why there is no answer, or no token.
    pub(crate) async fn send(&self, mut request: Request) -> Result<Answer, AuthorizedError> {
        let turn = self.client.turn().await;
        let spare = match self.login {
            OpenedLogin::OAuth { .. } => request.try_clone(),
            OpenedLogin::None | OpenedLogin::Header(_) => None,
        };
        let used = self.authorize(&mut request).await?;
        let error = match self.client.send(turn, request).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let (Some(mut again), Some(used), true) = (spare, used, error.is_of_login()) else {
            return Err(AuthorizedError::Request(error));
        };
        self.forget(&used);
        self.authorize(&mut again).await?;
        let turn = self.client.turn().await;
        self.client.send(turn, again).await.map_err(AuthorizedError::Request)
    }

    /// Adds the credentials, and returns them if they are a token.
    async fn authorize(&self, request: &mut Request) -> Result<Option<HeaderValue>, AuthorizedError> {
        match &self.login {
            OpenedLogin::None => Ok(None),
            OpenedLogin::Header(value) => {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
                Ok(None)
            }
            OpenedLogin::OAuth { credentials, client, token, asking } => {
                let current = || locked(token).clone().filter(|token| token.until > Instant::now());
                let value = match current() {
                    Some(token) => token.value,
                    None => {
                        // Others wait for this token instead of requesting their own.
                        let _asking = asking.lock().await;
                        match current() {
                            Some(token) => token.value,
                            None => {
                                let fresh = credentials.token(client).await.map_err(AuthorizedError::Unsent)?;
                                *locked(token) = Some(fresh.clone());
                                fresh.value
                            }
                        }
                    }
                };
                request.headers_mut().insert(AUTHORIZATION, value.clone());
                Ok(Some(value))
            }
        }
    }

    /// Forgets a token that a server refuses, unless there is another one already.
    fn forget(&self, used: &HeaderValue) {
        if let OpenedLogin::OAuth { token, .. } = &self.login {
            let mut token = locked(token);
            if token.as_ref().is_some_and(|token| token.value == *used) {
                *token = None;
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientCredentials {
    /// Returns a text in the form of a query.
    fn in_query(&self, text: &str) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.query_pairs_mut().append_key_only(text);
        url.query().unwrap_or_default().to_owned()
    }

    /// Requests a token.
    async fn token(&self, client: &Client) -> Result<Token, Fault> {
        let unavailable = |error: HttpError| {
            let is_transient = error.is_transient();
            match error.is_of_login() {
                true => error.into_login_fault(),
                false => {
                    Fault::from(error).with_class(if is_transient { FaultClass::Transient } else { FaultClass::Fatal })
                }
            }
        };
        let mut request = client.request(Method::POST, self.url.clone()).map_err(unavailable)?;
        // The query of a URL has the form of the body.
        let mut form = self.url.clone();
        form.set_query(None);
        let scope = self.scope.as_ref().map(|scope| ("scope", scope.as_str()));
        let credentials = [("client_id", self.id.as_str()), ("client_secret", &self.secret)];
        let credentials = credentials.into_iter().filter(|_| self.place == CredentialsPlace::Body);
        let grant = [("grant_type", "client_credentials")].into_iter();
        form.query_pairs_mut().extend_pairs(grant.chain(credentials).chain(scope));
        *request.body_mut() = Some(form.query().unwrap_or_default().to_owned().into());
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if self.place == CredentialsPlace::Basic {
            // As the standard says (RFC 6749, 2.3.1), both have the form of a query.
            let pair = format!("{}:{}", self.in_query(&self.id), self.in_query(&self.secret));
            let value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair)));
            // Base64 has only characters of headers.
            if let Ok(mut value) = value {
                value.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, value);
            }
        }
        let turn = client.turn().await;
        let asked = Instant::now();
        let answer = client.send(turn, request).await.map_err(unavailable)?;
        let invalid = |why: &str| {
            Fault::fatal(
                codes::HTTP_TOKEN,
                format!("the answer of {} has no usable token: {why}", self.url.origin().ascii_serialization()),
            )
        };
        let answer: TokenAnswer =
            serde_json::from_slice(&answer.body).map_err(|_| invalid("it is not JSON with the text access_token"))?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", answer.access_token))
            .map_err(|_| invalid("it contains control characters"))?;
        value.set_sensitive(true);
        let life = answer.expires_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(USUAL);
        // A token with a short life is used for half of it.
        let life = life.saturating_sub(EARLY).max(life / 2).min(Duration::from_secs(1 << 32));
        Ok(Token { value, until: asked + life })
    }
}

/// Reason why a request of a session failed.
#[derive(Debug)]
pub(crate) enum AuthorizedError {
    /// There is no request, because it is invalid or has no token.
    Unsent(Fault),
    /// The request failed.
    Request(HttpError),
}
