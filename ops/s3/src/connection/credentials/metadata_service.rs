//! Credentials that a container or a machine gets from a local service over plain HTTP.
//!
//! Protocols: "Container credential provider" and "IMDS credential provider" (version 2) of the AWS SDKs reference.

use std::io::{Error, Result};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Environment;

/// Time limits. On machines without the service, there is no answer.
const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(5);
/// Maximum size of an answer in bytes, above that of any valid one.
const LONGEST: u64 = 64 << 10;

/// Temporary credentials.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Temporary {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    pub(super) token: Option<String>,
    /// End of validity in RFC 3339.
    pub(super) expiration: Option<String>,
}

impl Temporary {
    /// Returns when they expire.
    pub(super) fn expiry(&self) -> Option<DateTime<Utc>> {
        self.expiration.as_deref().and_then(|text| text.parse().ok())
    }
}

/// Returns the credentials of the container, if the environment names their source.
pub(super) async fn of_container(environment: &Environment) -> Option<Result<Temporary>> {
    let url = match environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        Some(path) => format!("http://169.254.170.2{path}"),
        None => environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")?,
    };
    Some(from_container(environment, &url).await)
}

async fn from_container(environment: &Environment, url: &str) -> Result<Temporary> {
    let token = match environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(path) => Some(super::profile::read(path.into()).await?.trim().to_owned()),
        None => environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    };
    parsed(&ask("GET", url, token.as_deref().map(|token| ("Authorization", token))).await?)
}

/// Returns the credentials of the machine.
pub(super) async fn of_machine(environment: &Environment) -> Result<Temporary> {
    let service =
        environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| "http://169.254.169.254".to_owned());
    let service = service.trim_end_matches('/');
    let lifetime = Some(("X-aws-ec2-metadata-token-ttl-seconds", "21600"));
    let token = ask("PUT", &format!("{service}/latest/api/token"), lifetime).await?;
    let token = Some(("X-aws-ec2-metadata-token", token.trim()));
    let roles = format!("{service}/latest/meta-data/iam/security-credentials/");
    let role = ask("GET", &roles, token).await?;
    let role = role.lines().next().unwrap_or_default().trim();
    parsed(&ask("GET", &format!("{roles}{role}"), token).await?)
}

/// Parses credentials. The error does not quote the text, which may contain keys.
fn parsed(text: &str) -> Result<Temporary> {
    serde_json::from_str(text).map_err(|_| Error::other("the answer of the credentials service does not contain keys"))
}

/// Sends one request on its own connection and returns the body of the answer.
async fn ask(method: &str, url: &str, header: Option<(&str, &str)>) -> Result<String> {
    let Some(rest) = url.strip_prefix("http://") else {
        return Err(Error::other("the address of the credentials service must begin with http://"));
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let header = header.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
    let length = if method == "PUT" { "Content-Length: 0\r\n" } else { "" };
    // With HTTP/1.0, the answer ends with the connection and is never chunked.
    let request = format!("{method} /{path} HTTP/1.0\r\nHost: {authority}\r\nAccept: */*\r\n{length}{header}\r\n");
    if request.matches("\r\n\r\n").count() != 1 {
        return Err(Error::other("the request to the credentials service would contain a line break"));
    }
    let address = if authority.rsplit(']').next().is_some_and(|port| port.contains(':')) {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let mut stream = timeout(CONNECT, TcpStream::connect(&address)).await??;
    let mut answer = Vec::new();
    timeout(ANSWER, async {
        stream.write_all(request.as_bytes()).await?;
        stream.take(LONGEST).read_to_end(&mut answer).await
    })
    .await??;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => {
            let status = status.unwrap_or("nothing");
            Err(Error::other(format!("the credentials service at {authority} answered {status}")))
        }
    }
}
