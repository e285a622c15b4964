//! Connection to a bucket: the client, and the settings that source and destination share.

pub(crate) mod answers;
mod credentials;
mod refusal;

use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use aws_credential_types::Credentials;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder as HttpBuilder, Connector};

use answers::LimitedClient;
use credentials::{Chain, Environment};

use crate::codes;
pub(crate) use refusal::refused;

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit until the head of an answer arrives.
const ANSWER: Duration = Duration::from_secs(60);
/// Region for signing requests to a custom server, if none is set.
const ANY_REGION: &str = "us-east-1";

/// Name of the server if there is no endpoint.
const AMAZON: &str = "amazonaws.com";

const REGION: &str = "objstore.region";

/// Parameters of the connection, for source and destination.
#[derive(Parameters)]
pub(crate) struct Options {
    /// The bucket.
    #[parameter(name = "objstore.bucket", aliases = ["aws.bucket"])]
    bucket: Argument<Str>,
    /// Access key id. Without keys, these places are searched: AWS_ACCESS_KEY_ID and related variables, the shared
    /// credentials and config files, the credentials of the container, and those of the machine.
    #[parameter(
        name = "objstore.access_key_id",
        secret,
        aliases = ["objstore.accessKeyId", "aws.accessKeyId"]
    )]
    access_key: Argument<Option<Str>>,
    /// Secret access key.
    #[parameter(
        name = "objstore.secret_access_key",
        secret,
        aliases = ["objstore.secretAccessKey", "aws.secretAccessKey"]
    )]
    secret_key: Argument<Option<Str>>,
    /// Session token of temporary keys.
    #[parameter(
        name = "objstore.session_token",
        secret,
        aliases = ["objstore.sessionToken", "aws.sessionToken"]
    )]
    token: Argument<Option<Str>>,
    /// Region of the bucket. The default comes from AWS_REGION, AWS_DEFAULT_REGION or the profile; with an endpoint it
    /// is us-east-1.
    #[parameter(name = REGION, aliases = ["aws.region"])]
    region: Option<Str>,
    /// URL of the server, http or https, if it is not Amazon's. If your own authority signed its certificate, set the
    /// environment variable SSL_CERT_FILE to the authority's certificate.
    #[parameter(name = "objstore.endpoint", aliases = ["aws.endpoint"])]
    endpoint: Option<Argument<Str>>,
    /// Whether the bucket is a part of the path and not of the host name; the default is true with an endpoint.
    #[parameter(name = "objstore.path_style", aliases = ["objstore.pathStyle", "aws.pathStyle"])]
    path_style: Option<bool>,
    /// Profile of the shared credentials and config files. The default is AWS_PROFILE, or `default`.
    #[parameter(name = "objstore.profile", aliases = ["aws.profile"])]
    profile: Option<Str>,
}

/// Settings of the connection to a bucket.
pub(crate) struct Connection {
    bucket: Str,
    keys: Option<Credentials>,
    region: Option<Str>,
    endpoint: Option<Str>,
    path_style: bool,
    profile: Option<Str>,
}

impl Connection {
    /// Builds the connection.
    ///
    /// # Errors
    /// Fails if only one of the two keys is set, or the endpoint is invalid.
    pub(crate) fn new(options: &Options) -> Result<Connection, Diagnostics> {
        let Options { bucket, access_key, secret_key, token, region, endpoint, path_style, profile } = options;
        let mut findings = Diagnostics::new();
        let keys = match (access_key.as_ref(), secret_key.as_ref(), token.as_ref()) {
            (Some(id), Some(secret), token) => Some(Credentials::new(
                id.trim(),
                secret.trim(),
                token.map(|token| token.trim().to_owned()),
                None,
                "settings",
            )),
            (None, None, None) => None,
            (id, secret, _) => {
                let missing = [(access_key, id), (secret_key, secret)].into_iter().filter(|(_, key)| key.is_none());
                let missing: Vec<&str> = missing.map(|(setting, _)| setting.name().as_str()).collect();
                let at = [access_key, secret_key].into_iter().find(|key| key.is_some()).unwrap_or(token);
                let finding =
                    at.finding(codes::SETTINGS_REQUIRED, format!("{:?} needs {}", at.name(), missing.join(" and ")));
                findings.push(finding.with_hint("set both keys, or none to use those of the environment"));
                None
            }
        };
        let server = endpoint.as_ref().map(|text| Str::from(text.trim().trim_end_matches('/')));
        if let (Some(setting), Some(server)) = (endpoint, &server)
            && let Some(why) = not_an_endpoint(server)
        {
            let finding = setting.finding(codes::SETTINGS_INVALID, format!("{} {why}", setting.name()));
            findings.push(finding.with_hint("for example https://storage.example.com or http://127.0.0.1:9000"));
        }
        if let Some((why, remedy)) = not_a_bucket(bucket) {
            let finding = bucket.finding(codes::SETTINGS_INVALID, format!("{} {why}", bucket.name()));
            findings.push(finding.with_hint(remedy));
        }
        if findings.has_errors() {
            return Err(findings);
        }
        let trimmed = |text: &Option<Str>| text.as_ref().map(|text| Str::from(text.trim()));
        Ok(Connection {
            bucket: bucket.trim().into(),
            keys,
            region: trimmed(region),
            path_style: path_style.unwrap_or(server.is_some()),
            endpoint: server,
            profile: trimmed(profile),
        })
    }

    /// Returns the name of the bucket.
    pub(crate) fn bucket(&self) -> &Str {
        &self.bucket
    }

    /// Returns the server, for messages.
    pub(crate) fn server(&self) -> &str {
        self.endpoint.as_deref().unwrap_or("Amazon S3")
    }

    /// Returns the namespace of the object names. Settings with the same bucket of the same server give the same value.
    pub(crate) fn space(&self) -> Str {
        let server = self.endpoint.as_deref().map_or_else(|| AMAZON.to_owned(), server);
        format!("{server}/{}", self.bucket).into()
    }

    /// Creates a client. Sends no request.
    ///
    /// # Errors
    /// Fails if there is no region, or a configured file cannot be read.
    pub(crate) async fn open(&self) -> Result<Client, Fault> {
        let environment = Environment::of_process();
        let chain = Chain::new(environment, self.profile.clone());
        let region = match (&self.region, &self.endpoint) {
            (Some(region), _) => region.to_string(),
            (None, endpoint) => match (chain.region().await, endpoint) {
                (Some(region), _) => region,
                (None, Some(_)) => ANY_REGION.to_owned(),
                (None, None) => {
                    return Err(Fault::fatal(
                        codes::REGION_MISSING,
                        format!("the region of bucket {} is unknown: set {REGION} or AWS_REGION", self.bucket),
                    ));
                }
            },
        };
        let credentials = match &self.keys {
            Some(keys) => SharedCredentialsProvider::new(keys.clone()),
            None => SharedCredentialsProvider::new(chain),
        };
        let mut config = Builder::new()
            .behavior_version(BehaviorVersion::latest())
            .http_client(LimitedClient(http_client()))
            .region(Region::new(region))
            .credentials_provider(credentials)
            .force_path_style(self.path_style)
            // Callers retry: they know which requests can be repeated, and for how long.
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ANSWER).build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            // Many servers support only the checksums that the protocol requires.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
        if let Some(endpoint) = &self.endpoint {
            config = config.endpoint_url(endpoint.as_str());
        }
        Ok(Client::from_conf(config.build()))
    }
}

/// Creates an HTTP client with TLS by ring. Uses a proxy if HTTPS_PROXY or a similar variable is set.
fn http_client() -> SharedHttpClient {
    HttpBuilder::new().build_with_connector_fn(|settings, _| {
        let mut connector =
            Connector::builder().proxy_config(ProxyConfig::from_env()).tls_provider(Provider::Rustls(CryptoMode::Ring));
        connector.set_connector_settings(settings.cloned());
        connector.build()
    })
}

/// Normalizes the server of an endpoint: lower-case host, without the scheme's default port.
fn server(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority = authority.to_ascii_lowercase();
    let usual = if scheme == "http" { ":80" } else { ":443" };
    let authority = authority.strip_suffix(usual).unwrap_or(&authority);
    let (host, port) = match authority.rfind(':').filter(|at| !authority[*at..].contains(']')) {
        Some(at) => authority.split_at(at),
        None => (authority, ""),
    };
    match host {
        "localhost" | "[::1]" => format!("127.0.0.1{port}{path}"),
        host if host.ends_with(".amazonaws.com") => AMAZON.to_owned(),
        host => format!("{host}{port}{path}"),
    }
}

/// Returns the problem with a bucket name and its remedy. Does not quote the name, which may come from a variable.
fn not_a_bucket(bucket: &str) -> Option<(&'static str, &'static str)> {
    let bucket = bucket.trim();
    // Names of access points contain a slash.
    if bucket.starts_with("arn:") {
        return None;
    }
    if bucket.contains("://") {
        let remedy =
            "write only the name, for example lake; put the server in objstore.endpoint, and the rest in prefix";
        return Some(("is the address of a bucket, not its name", remedy));
    }
    if bucket.contains('/') {
        return Some((
            "contains a slash, which a bucket name cannot contain",
            "put the part after the slash in prefix",
        ));
    }
    bucket
        .contains(char::is_whitespace)
        .then_some(("contains white space, which a bucket name cannot contain", "remove the white space"))
}

/// Returns the problem with an endpoint. Does not quote it, because it may contain a password.
fn not_an_endpoint(endpoint: &str) -> Option<&'static str> {
    let Some(rest) = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://")) else {
        return Some("must begin with http:// or https://");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("must not contain a user or a password");
    }
    (authority.is_empty() || rest.contains(['?', '#', ' '])).then_some("is not the URL of a server")
}

#[cfg(test)]
mod tests;
