//! Requests that depend on records: method, URL, headers and body, compiled once.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Place, may_be_json};
use anabranch_plugin::parameters::{Argument, Declarations, Parameter, ParameterKind, Parameters, Settings as Reading};
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_template::{InSetting, MissingKey, Template};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use reqwest::{Method, Request, Url};

use crate::client::Client;
use crate::codes;

const UNUSABLE: &str = "a header cannot contain control characters or line breaks";
/// Headers that carry credentials.
const SECRET: [&str; 5] = ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"];
/// Parts of the names of other headers that may carry credentials.
const PERHAPS_SECRET: [&str; 5] = ["auth", "token", "secret", "session", "api-key"];
/// Methods of HTTP and of its extensions for files (WebDAV).
const METHODS: [&str; 22] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "QUERY",
    "PURGE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "LINK",
    "UNLINK",
];
/// Initial capacity for the text of a body.
const BODY: usize = 512;

/// Compiled request for all records.
pub(crate) struct Message {
    method: Method,
    /// True if the settings contain the method.
    is_method_given: bool,
    url: Address,
    /// Headers that are the same for every record.
    headers: HeaderMap,
    rendered: Vec<Rendered>,
    body: Option<Template>,
    /// Settings without a template that may have been intended as one, without secrets.
    same: Vec<(Str, Template)>,
}

enum Address {
    Same(Url),
    Rendered(Template),
}

/// A header that depends on the record.
struct Rendered {
    name: HeaderName,
    setting: Str,
    template: Template,
    sensitive: bool,
}

#[derive(Parameters)]
pub(crate) struct Settings {
    /// URL, such as `http://localhost:8000/items?key={{ urlquery (printf "%s" .Key) }}`.
    #[parameter(example = "http://localhost:8000/items")]
    url: Argument<Template>,
    /// Method of the request.
    #[parameter(default = "GET")]
    method: Argument<Str>,
    /// Time limit of one attempt, including the answer; 0 = unlimited.
    #[parameter(default = "60s")]
    pub(crate) timeout: Duration,
    /// Maximum number of attempts per minute, evenly spaced; 0 = unlimited.
    #[parameter(default = 0, greater_than = -1)]
    pub(crate) per_minute: f64,
}

/// Requests in flight.
#[derive(Parameters)]
pub(crate) struct Concurrency {
    /// Maximum number of requests in flight.
    #[parameter(name = "request.concurrency", default = 16, greater_than = 0, less_than = 10001)]
    pub(crate) requests: usize,
}

/// The body of a request that is sent for each record.
#[derive(Parameters)]
pub(crate) struct BodySettings {
    /// Body: `{{ toJson .Payload.After }}`, or `{{ printf "%s" .Payload.After }}` for raw data; empty = none.
    #[parameter(name = "request.body")]
    body: Option<Template>,
    /// Deprecated, use headers.Content-Type.
    #[parameter(name = "request.contentType")]
    content_type: Argument<Option<Str>>,
}

/// Any header, and by name those that carry credentials.
#[derive(Parameters)]
pub(crate) struct Headers {
    /// A header. The default of Content-Type is application/json.
    headers: BTreeMap<Str, Argument<Template>>,
    /// A header. The default of Content-Type is application/json.
    #[parameter(name = "request.headers")]
    of_request: BTreeMap<Str, Argument<Template>>,
    #[parameter(flatten)]
    _credentials: Credentials,
}

/// Declares the headers that carry credentials; their values are among the others.
struct Credentials;

impl Parameters for Credentials {
    fn declare(_: &str, declarations: &mut Declarations) {
        macro_rules! header {
            ($name:literal, $lower:literal) => {
                let description = "A header with credentials, which is never shown.";
                let parameter = Parameter::new(concat!("headers.", $name), ParameterKind::Template, description);
                let lower = [concat!("headers.", $lower), concat!("request.headers.", $lower)];
                let aliases = [lower[0], concat!("request.headers.", $name), lower[1]];
                declarations.add::<Option<Template>>("", parameter.aliases(&aliases).secret());
            };
        }
        header!("Authorization", "authorization");
        header!("Proxy-Authorization", "proxy-authorization");
        header!("Cookie", "cookie");
        header!("X-API-Key", "x-api-key");
        header!("API-Key", "api-key");
    }

    fn read(_: &str, _: &mut Reading<'_>) -> Option<Self> {
        Some(Credentials)
    }
}

impl Settings {
    /// Returns the setting of the URL, for findings about the request as a whole.
    pub(crate) fn place_of_url(&self) -> &Argument<Template> {
        &self.url
    }
}

impl Headers {
    fn all(&self) -> impl Iterator<Item = (&Str, &Argument<Template>)> {
        self.headers.iter().chain(&self.of_request)
    }
}

/// Compiles the settings; adds errors to `findings`. The content type is `media` if no header names another one. `missing` is
/// the output of templates for a field that a record does not have.
pub(crate) fn compile(
    settings: &Settings,
    given: &Headers,
    media: Option<&'static str>,
    missing: MissingKey,
    findings: &mut Diagnostics,
) -> Option<Message> {
    let method = match Method::from_bytes(settings.method.trim().to_ascii_uppercase().as_bytes()) {
        Ok(method) => Some(method),
        Err(_) => {
            let finding = settings.method.invalid("this is not an HTTP method");
            findings.push(finding.with_hint("for example GET, POST, PUT or DELETE"));
            None
        }
    };
    let url = match settings.url.literal() {
        None => {
            let template = compiled(&settings.url, missing, findings)?;
            if let Some(what) = wrong_origin(&template) {
                let hint = "for example http://localhost:8000/items/{{ .Payload.After.id }}";
                findings.push(settings.url.invalid(what).with_hint(hint));
            }
            Some(Address::Rendered(template))
        }
        Some(text) => match address(text) {
            Ok(url) => Some(Address::Same(url)),
            Err(what) => {
                findings.push(settings.url.invalid(what).with_hint("for example http://localhost:8000/path"));
                None
            }
        },
    };
    let (mut headers, rendered) = headers(given, missing, findings);
    if let Some(media) = media
        && !headers.contains_key(CONTENT_TYPE)
        && !rendered.iter().any(|header| header.name == CONTENT_TYPE)
    {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    }
    let shown = given.all().filter(|(name, _)| {
        let name = name.to_ascii_lowercase();
        !SECRET.contains(&name.as_str()) && !PERHAPS_SECRET.iter().any(|part| name.contains(part))
    });
    let texts = shown.map(|(_, header)| header).chain([&settings.url]);
    let texts = texts.map(|setting| (setting.name().clone(), setting.clone().into_value()));
    let same = texts.filter(|(_, template)| template.literal().is_some()).collect();
    let is_method_given = settings.method.is_given();
    Some(Message { method: method?, is_method_given, url: url?, headers, rendered, body: None, same })
}

/// Compiles the settings of a request that is sent for each record; adds errors to `findings`.
pub(crate) fn compile_with_body(
    settings: &Settings,
    body: BodySettings,
    given: &Headers,
    findings: &mut Diagnostics,
) -> Option<Message> {
    let message = compile(settings, given, Some("application/json"), MissingKey::NoValue, findings);
    let old = &body.content_type;
    let mut media = None;
    if let Some(text) = old.as_ref() {
        let header = given.all().find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()));
        match (header, value(text, false)) {
            (Some((_, header)), _) => {
                let (old_name, name) = (old.name(), header.name());
                let finding = old.finding(codes::SETTINGS_INVALID, format!("{old_name} and {name} exclude each other"));
                let finding = finding.with_hint(format!("keep {name}"));
                findings.push(finding.with_related(header.span(), "the same header"));
            }
            (None, None) => findings.push(old.invalid(UNUSABLE)),
            (None, given) => media = given,
        }
    }
    let mut message = message?;
    if let Some(media) = media {
        message.headers.insert(CONTENT_TYPE, media);
    }
    message.body = body.body;
    Some(message)
}

/// Returns the template of a setting with this output for missing fields; adds errors to `findings`.
fn compiled(setting: &Argument<Template>, missing: MissingKey, findings: &mut Diagnostics) -> Option<Template> {
    setting.compile_template(missing).map_err(|found| findings.0.extend(found)).ok()
}

fn headers(headers: &Headers, missing: MissingKey, findings: &mut Diagnostics) -> (HeaderMap, Vec<Rendered>) {
    let (mut same, mut rendered) = (HeaderMap::new(), Vec::<Rendered>::new());
    let mut given: Vec<(HeaderName, &Argument<Template>)> = Vec::new();
    for (written, setting) in headers.all() {
        let Ok(name) = HeaderName::from_bytes(written.as_bytes()) else {
            findings.push(setting.invalid(format_args!("{written:?} is not a valid header name")));
            continue;
        };
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            findings.push(setting.invalid("this header is derived from the body and cannot be set"));
            continue;
        }
        if let Some((_, first)) = given.iter().find(|(other, _)| *other == name) {
            let finding = setting.invalid(format_args!("{} already sets this header", first.name()));
            findings.push(finding.with_related(first.span(), "set here already"));
            continue;
        }
        given.push((name.clone(), setting));
        let sensitive = SECRET.contains(&name.as_str());
        match setting.literal().map(|text| value(text, sensitive)) {
            None => {
                let Some(template) = compiled(setting, missing, findings) else { continue };
                rendered.push(Rendered { name, setting: setting.name().clone(), template, sensitive });
            }
            Some(Some(value)) => {
                same.insert(name, value);
            }
            Some(None) => findings.push(setting.invalid(UNUSABLE)),
        }
    }
    (same, rendered)
}

/// Builds a header value without surrounding white space, such as the line break at the end of a file.
fn value(text: &str, sensitive: bool) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(text.trim().as_bytes()).ok()?;
    value.set_sensitive(sensitive);
    Some(value)
}

/// Parses a URL. The error does not quote it.
fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("this is not a URL: {error}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        "http" | "https" => Err("the URL has no host".to_owned()),
        _ => Err("the URL begins with neither http:// nor https://".to_owned()),
    }
}

/// Returns the reason why no rendering is a URL: the text before the first action reaches into the path, and its
/// scheme, host or port is wrong. The output of actions is then a part of the path or the query, which may be any text.
fn wrong_origin(template: &Template) -> Option<String> {
    let origin = template.pieces().next()??;
    let after_scheme = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    if !after_scheme.contains(['/', '?', '#']) {
        return None;
    }
    let text: String = template.pieces().map(|piece| piece.unwrap_or("x")).collect();
    address(&text).err()
}

impl Message {
    /// Builds the request for a record.
    ///
    /// # Errors
    /// `template_failed` if a template cannot be rendered; `http_invalid` if the result is not a valid URL or header.
    pub(crate) fn request(&self, record: &Record, client: &Client) -> Result<Request, Fault> {
        let url = match &self.url {
            Address::Same(url) => url.clone(),
            Address::Rendered(template) => {
                let text = render(template, record, "request.url", String::new())?;
                address(&text).map_err(|what| Fault::record(codes::HTTP_INVALID, format!("request.url: {what}")))?
            }
        };
        let mut request = client.request(self.method.clone(), url)?;
        match request.headers().is_empty() {
            true => *request.headers_mut() = self.headers.clone(),
            false => request.headers_mut().extend(self.headers.clone()),
        }
        for Rendered { name, setting, template, sensitive } in &self.rendered {
            let text = render(template, record, setting, String::new())?;
            let value = value(&text, *sensitive).ok_or_else(|| {
                Fault::record(codes::HTTP_INVALID, format!("{setting}: the rendered value contains control characters"))
            })?;
            request.headers_mut().insert(name, value);
        }
        if let Some(template) = &self.body {
            let text = match template.literal() {
                Some(text) => text.to_owned(),
                None => render(template, record, "request.body", String::with_capacity(BODY))?,
            };
            *request.body_mut() = Some(text.into());
        }
        Ok(request)
    }

    /// Builds the request for a record, with another body.
    ///
    /// # Errors
    /// Those of [`Message::request`].
    pub(crate) fn request_with(&self, record: &Record, body: Vec<u8>, client: &Client) -> Result<Request, Fault> {
        let mut request = self.request(record, client)?;
        *request.body_mut() = Some(body.into());
        Ok(request)
    }

    /// Returns `true` if the URL and the headers are the same for every record.
    pub(crate) fn is_same_for_all(&self) -> bool {
        matches!(self.url, Address::Same(_)) && self.rendered.is_empty()
    }

    /// Returns the URL, if it is the same for every record.
    pub(crate) fn same_url(&self) -> Option<&Url> {
        match &self.url {
            Address::Same(url) => Some(url),
            Address::Rendered(_) => None,
        }
    }

    /// Returns `true` if a header with this name is set.
    pub(crate) fn sets(&self, name: &HeaderName) -> bool {
        self.headers.contains_key(name) || self.rendered.iter().any(|header| header.name == *name)
    }

    /// Returns `true` if all requests go to the same server with the same credentials.
    pub(crate) fn is_one_login(&self) -> bool {
        let is_one_server = match &self.url {
            Address::Same(_) => true,
            // The text before the first template contains the server if it extends into the path.
            Address::Rendered(template) => {
                let fixed = template.source().split("{{").next().unwrap_or_default();
                fixed.split_once("://").is_some_and(|(_, rest)| rest.contains('/'))
            }
        };
        let may_log_in = |header: &Rendered| {
            header.sensitive || PERHAPS_SECRET.iter().any(|part| header.name.as_str().contains(part))
        };
        is_one_server && !self.rendered.iter().any(may_log_in)
    }

    /// Returns the fields that the request depends on.
    pub(crate) fn reads(&self) -> Access {
        let url = match &self.url {
            Address::Same(_) => None,
            Address::Rendered(template) => Some(template),
        };
        let body = self.body.as_ref().filter(|template| template.literal().is_none());
        let headers = self.rendered.iter().map(|header| &header.template);
        Access::union(url.into_iter().chain(body).chain(headers).map(Template::reads))
    }

    /// Warns about probable mistakes: a body that servers ignore, or a request without the record. `is_body_placed` is
    /// true if the settings contain the field for the answer.
    pub(crate) fn judge(&self, flow: &mut Flow, is_body_placed: bool) {
        if !METHODS.contains(&self.method.as_str()) {
            let message = format!("{} is not a method that servers know", self.method);
            let hint = match did_you_mean(self.method.as_str(), METHODS) {
                Some(near) => format!("did you mean {near}?"),
                None => "write GET, POST, PUT, PATCH or DELETE".to_owned(),
            };
            flow.warn(codes::FLOW_SUSPECT, "request.method", message, None, Some(hint));
        }
        if self.body.is_some() && !self.is_method_given {
            let message = "the request is a GET with a body, which most servers do not read";
            let hint = "set request.method to POST, or to GET if that is intended";
            flow.warn(codes::FLOW_SUSPECT, "request.body", message, None, Some(hint.to_owned()));
        }
        let sends = [Method::POST, Method::PUT, Method::PATCH].contains(&self.method);
        let depends = matches!(self.url, Address::Rendered(_)) || !self.rendered.is_empty();
        if sends && self.body.is_none() && !depends && !is_body_placed {
            let message = format!(
                "the {} request has no body and contains no data of the record, and the answer replaces .Payload.After",
                self.method
            );
            let hint = "set request.body to '{{ toJson .Payload.After }}', and response.body to keep the data";
            flow.warn(codes::FLOW_SUSPECT, "request.method", message, None, Some(hint.to_owned()));
        }
    }

    /// Checks the templates statically.
    pub(crate) fn flow(&self, flow: &mut Flow) {
        if let Address::Rendered(template) = &self.url {
            flow.template("request.url", template);
        }
        for (setting, template) in &self.same {
            flow.template(Place::within(setting.clone(), 0..template.source().len()), template);
        }
        for Rendered { setting, template, .. } in &self.rendered {
            flow.template(Place::within(setting.clone(), 0..template.source().len()), template);
        }
        if let Some(template) = &self.body {
            flow.template("request.body", template);
            let content_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            if media == "application/json" || media.ends_with("+json") {
                flow.json_template("request.body", template, true);
                // Another remark names the reason.
                if !flow.has_remark("request.body") && !may_be_json(template, false) {
                    let message = format!("the body is never JSON, and its Content-Type is {media}");
                    let hint = "write {{ toJson … }} for each value, or set headers.Content-Type to that of the body";
                    flow.warn(codes::FLOW_SUSPECT, "request.body", message, None, Some(hint.to_owned()));
                }
            }
        }
    }
}

fn render(template: &Template, record: &Record, setting: &str, mut out: String) -> Result<String, Fault> {
    match template.render(record, &mut out) {
        Ok(()) => Ok(out),
        Err(error) => Err(Fault::record(codes::TEMPLATE_FAILED, InSetting { setting: setting.into(), error })),
    }
}
