//! Access control: a token if one is set, and the sites whose pages may send requests.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use anabranch_record::text::Str;
use anabranch_settings::Credential;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, UPGRADE, VARY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use percent_encoding::percent_decode_str;
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

use crate::codes;
use crate::connections::Slot;
use crate::error::{ApiError, Kind, RegistryError};

/// The header of a request that a node of a cluster forwards, with the name of that node.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("anabranch-forwarded-by");

/// Time limit of a response.
const ANSWER: Duration = Duration::from_secs(30);

/// The access rules of the listener.
pub struct Access {
    /// The required token. It changes with its file.
    token: RwLock<Option<Str>>,
    /// The token of requests that other nodes of a cluster forward.
    nodes: OnceLock<Credential>,
    /// True if only programs of this machine can reach the listener.
    local: bool,
    /// Other sites whose pages may send requests; `*` means all.
    origins: Vec<Str>,
}

/// Format of error responses of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// The format of this API.
    Own,
    /// The format of Confluent's schema registry.
    Registry,
}

impl ErrorBody {
    fn of(self, error: ApiError) -> Response {
        match self {
            ErrorBody::Own => error.into_response(),
            ErrorBody::Registry => {
                let status = error.kind.status();
                let body = RegistryError { error_code: status.as_u16(), message: error.message };
                (status, axum::Json(body)).into_response()
            }
        }
    }
}

impl Access {
    /// Creates the check of a listener: `local` if only programs of this machine reach it, `origins` are other sites whose
    /// pages may send requests.
    pub fn new(token: Option<Str>, local: bool, origins: Vec<Str>) -> Self {
        Access { token: RwLock::new(token), nodes: OnceLock::new(), local, origins }
    }

    /// Accepts this token too, in requests that other nodes forward.
    pub(super) fn accept_nodes(&self, token: Credential) {
        let _ = self.nodes.set(token);
    }

    /// Returns the token that requests must carry.
    pub(super) fn token(&self) -> Option<Str> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the token, if one is required. Returns `true` if it differs from the previous one.
    pub(super) fn change_token(&self, token: &Str) -> bool {
        let mut known = self.token.write().unwrap_or_else(PoisonError::into_inner);
        known.as_mut().is_some_and(|known| std::mem::replace(known, token.clone()) != *token)
    }

    /// Returns `true` if the request has the token, or none is required.
    pub(super) fn knows_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = self.token() else { return true };
        let knows = |given: &[u8]| {
            let is_of_node = || self.nodes.get().is_some_and(|token| equal(given, token.at_start().as_bytes()));
            equal(given, token.as_bytes()) || headers.contains_key(FORWARDED) && is_of_node()
        };
        let Some((scheme, given)) =
            headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|text| text.split_once(' '))
        else {
            return false;
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            return knows(given.trim().as_bytes());
        }
        // Clients of schema registries often support only user and password. The password is the token; the user is
        // ignored.
        let decoded = base64::engine::general_purpose::STANDARD.decode(given.trim());
        let password = decoded.ok().and_then(|pair| {
            let colon = pair.iter().position(|byte| *byte == b':')?;
            Some(pair[colon + 1..].to_vec())
        });
        scheme.eq_ignore_ascii_case("basic") && password.is_some_and(|password| knows(&password))
    }

    /// Like `knows_token`, but also accepts a token in the address of a websocket: pages in a browser have no other way
    /// to send it.
    fn knows_token_of(&self, request: &Request) -> bool {
        let upgrade = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
        let is_websocket = upgrade.is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
        let given = || {
            let query = request.uri().query()?;
            let token = query.split('&').find_map(|pair| pair.strip_prefix("token="))?;
            Some(percent_decode_str(token).collect::<Vec<u8>>())
        };
        self.knows_token(request.headers())
            || is_websocket && given().zip(self.token()).is_some_and(|(given, token)| equal(&given, token.as_bytes()))
    }

    /// Refuses a request that a page of another site sends through a browser of this machine: either openly, with an
    /// `Origin` header, or under a host name that the site resolves to this machine (DNS rebinding).
    fn refuses_site(&self, headers: &HeaderMap) -> Option<ApiError> {
        let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if self.local && self.token().is_none() && !is_local(host) {
            let what = format!("the host {host:?} is not a name of this machine");
            let error = ApiError::new(Kind::PermissionDenied, codes::API_FOREIGN_HOST, what);
            return Some(error.suggest("connect to 127.0.0.1 or localhost, or set a token"));
        }
        let origin = headers.get(ORIGIN)?;
        if self.allows_origin(origin, host) {
            return None;
        }
        let what = format!("pages from {:?} may not use this API", String::from_utf8_lossy(origin.as_bytes()));
        let error = ApiError::new(Kind::PermissionDenied, codes::API_FOREIGN_ORIGIN, what);
        Some(error.suggest("if pages from this origin may use the API, add it to api.http.cors.allowed-origins"))
    }

    fn allows_origin(&self, origin: &HeaderValue, host: &str) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
        same || self.is_listed(origin)
    }

    fn is_listed(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| *allowed == *"*" || allowed.eq_ignore_ascii_case(origin))
    }
}

/// Compares in a time that depends only on the lengths.
fn equal(given: &[u8], secret: &[u8]) -> bool {
    given.ct_eq(secret).into()
}

/// Returns `true` if a `Host` header contains a name of this machine that DNS cannot assign.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses pages of other sites, and answers preflight requests of browsers.
pub async fn same_site(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    if let Some(error) = access.refuses_site(request.headers()) {
        return error.into_response();
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let asks_first =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (&origin, asks_first) {
        (Some(_), true) => {
            let headers = [
                (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, DELETE")),
                (ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type")),
            ];
            (StatusCode::NO_CONTENT, headers).into_response()
        }
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Refuses requests without the token, and applies the time limit.
pub async fn guard(State((access, body)): State<(Arc<Access>, ErrorBody)>, request: Request, next: Next) -> Response {
    if !access.knows_token_of(&request) {
        let error = ApiError::new(
            Kind::Unauthenticated,
            codes::API_UNAUTHENTICATED,
            "this request needs the token of the service",
        );
        let mut response = body.of(error.suggest("send it as `Authorization: Bearer TOKEN`"));
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer, Basic"));
        return response;
    }
    if let Some(slot) = request.extensions().get::<Arc<Slot>>() {
        slot.authenticated();
    }
    match timeout(ANSWER, next.run(request)).await {
        Ok(response) => in_form(body, response).await,
        Err(_) => {
            body.of(ApiError::new(Kind::DeadlineExceeded, codes::API_TIMEOUT, "the response took longer than 30 s"))
        }
    }
}

/// Converts errors that the HTTP library produces before a handler runs to the format of all other errors.
async fn in_form(body: ErrorBody, response: Response) -> Response {
    let is_text = |value: &HeaderValue| value.as_bytes().starts_with(b"text/plain");
    if !response.status().is_client_error() || !response.headers().get(CONTENT_TYPE).is_some_and(is_text) {
        return response;
    }
    let status = response.status();
    let text = to_bytes(response.into_body(), 4096).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    body.of(ApiError::new(Kind::Malformed(status), codes::API_MALFORMED_REQUEST, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<Vec<_>>()
            .into_iter()
            .collect()
    }

    #[test]
    fn the_token_comes_as_bearer_or_as_password() {
        let access = Access::new(Some("secret".into()), true, Vec::new());
        let knows = |value: &str| access.knows_token(&headers(&[("authorization", value)]));
        let basic = |pair: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
        for good in ["Bearer secret".to_owned(), "bearer  secret".to_owned(), basic("anybody:secret"), basic(":secret")]
        {
            assert!(knows(&good), "{good}");
        }
        for bad in ["Bearer secre".to_owned(), "Bearer secrets".to_owned(), "secret".to_owned(), "Bearer".to_owned()] {
            assert!(!knows(&bad), "{bad}");
        }
        assert!(!knows(&basic("secret:")) && !knows(&basic("secret")) && !knows("Basic %") && !knows("Digest secret"));
        assert!(!access.knows_token(&HeaderMap::new()));
        assert!(Access::new(None, true, Vec::new()).knows_token(&HeaderMap::new()));
    }

    #[test]
    fn names_of_this_machine_are_known() {
        for local in
            ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "a.localhost", "localhost."]
        {
            assert!(is_local(local), "{local}");
        }
        for foreign in ["", "evil.example", "127.0.0.1.evil.example:8080", "10.0.0.1:8080", "[::2]:1", "localhost.evil"]
        {
            assert!(!is_local(foreign), "{foreign}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let local = Access::new(None, true, vec!["https://ok.example".into()]);
        let remote = Access::new(Some("t".into()), false, Vec::new());
        let code = |access: &Access, pairs: &[(&'static str, &str)]| {
            access.refuses_site(&headers(pairs)).map_or("", |error| error.reason.name())
        };
        let here = ("host", "127.0.0.1:8080");
        assert_eq!(code(&local, &[here]), "");
        assert_eq!(code(&local, &[here, ("origin", "http://127.0.0.1:8080")]), "");
        assert_eq!(code(&local, &[here, ("origin", "https://ok.example")]), "");
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9", "http://127.0.0.1:8080.evil.example"] {
            assert_eq!(code(&local, &[here, ("origin", origin)]), "api.foreign_origin", "{origin}");
        }
        assert_eq!(code(&local, &[("host", "evil.example")]), "api.foreign_host");
        assert_eq!(code(&remote, &[("host", "stream.example")]), "");
        assert_eq!(
            code(&remote, &[("host", "stream.example"), ("origin", "https://evil.example")]),
            "api.foreign_origin"
        );
    }
}
