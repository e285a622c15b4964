//! HTTP requests of guests. They are allowed only if the processor's settings name the host and the service permits it.
//!
//! A guest may reach a list of [`Endpoint`]s. Requests to other endpoints are rejected, and so are redirects and names that
//! resolve to this machine or its local network; addresses are checked when the connection is made. Proxies from the
//! environment are not used.

mod call;
mod endpoint;

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, ByteSize, Parameters};
use anabranch_record::text::Str;

pub(crate) use self::call::{Network, RequestFailure};
pub use self::endpoint::{Endpoint, InvalidEndpoint};

const ALLOW: &str = "sdk.egress.allow";
const TIMEOUT: &str = "sdk.egress.timeout";
const MOST: &str = "sdk.egress.maxResponseBytes";
const SECRETS: &str = "sdk.egress.secretRefs";
/// Prefix of the settings that are for the service and not for the guest.
pub(crate) const PREFIX: &str = "sdk.egress.";

/// Upper limit of the network access of all processors.
#[derive(Clone, Debug, Default)]
pub struct Ceiling {
    /// True if requests are allowed at all.
    pub enabled: bool,
    /// Allowed endpoints; `None` = any.
    pub endpoints: Option<Vec<Endpoint>>,
    /// Names of allowed secrets; `None` = any, unless `endpoints` names hosts.
    pub secrets: Option<Vec<String>>,
    /// Maximum time of a request.
    pub timeout: Option<Duration>,
    /// Maximum size of an answer in bytes.
    pub response_bytes: Option<u64>,
}

/// Network access of one processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) secrets: BTreeSet<String>,
    pub(crate) timeout: Duration,
    pub(crate) response_bytes: u64,
}

/// Result of a processor's request for network access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkAccess {
    /// Granted access; `None` = no requests.
    pub(crate) egress: Option<Egress>,
    /// Requested parts that are not granted.
    pub(crate) refused: Vec<String>,
}

/// Parameters for network access.
#[derive(Parameters)]
pub(crate) struct Settings {
    /// Hosts that it may send HTTP requests to, separated by commas.
    #[parameter(name = ALLOW)]
    allow: Argument<Option<Str>>,
    /// Time limit of an HTTP request.
    #[parameter(name = TIMEOUT, default = "30s")]
    timeout: Argument<Duration>,
    /// Maximum size of an HTTP answer.
    #[parameter(name = MOST, default = "4194304")]
    most: Argument<ByteSize>,
    /// Names of secrets that it may send as Authorization.
    #[parameter(name = SECRETS)]
    secrets: Option<Str>,
}

/// Reads the requested network access and removes the parts above the limit.
///
/// # Errors
/// Fails if a setting is invalid.
pub(crate) fn granted(settings: &Settings, ceiling: &Ceiling) -> Result<NetworkAccess, Diagnostics> {
    let entries = |text: &Option<Str>| -> Vec<String> {
        let text = text.as_ref().map_or("", |text| text.as_str());
        text.split(|c: char| c == ',' || c.is_whitespace()).filter(|e| !e.is_empty()).map(str::to_owned).collect()
    };
    let mut findings = Diagnostics::new();
    let mut endpoints = Vec::new();
    for entry in entries(&settings.allow) {
        match Endpoint::parse(&entry) {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(error) => findings.push(settings.allow.invalid(error)),
        }
    }
    let (timeout, response_bytes) = (*settings.timeout, settings.most.0);
    if timeout.is_zero() {
        findings.push(settings.timeout.invalid("it must be more than 0"));
    }
    if response_bytes == 0 {
        findings.push(settings.most.invalid("it must be more than 0"));
    }
    if findings.has_errors() {
        return Err(findings);
    }
    if endpoints.is_empty() {
        return Ok(NetworkAccess::default());
    }
    if !ceiling.enabled {
        let refused = vec![format!("{ALLOW} has no effect: processors.egress.enabled is false")];
        return Ok(NetworkAccess { egress: None, refused });
    }
    let mut refused = Vec::new();
    if let Some(most) = &ceiling.endpoints {
        endpoints.retain(|endpoint| {
            let kept = most.contains(endpoint);
            refused.extend(
                (!kept).then(|| format!("{endpoint} cannot be reached: processors.egress.allow does not contain it")),
            );
            kept
        });
    }
    let mut secrets: BTreeSet<String> = entries(&settings.secrets).into_iter().collect();
    let none = Vec::new();
    // If the limit names hosts but no secrets, no secrets are allowed.
    if let Some(most) = ceiling.secrets.as_ref().or(ceiling.endpoints.is_some().then_some(&none)) {
        secrets.retain(|secret| {
            let kept = most.contains(secret);
            let text =
                || format!("the secret {secret} cannot be used: processors.egress.secret-refs does not contain it");
            refused.extend((!kept).then(text));
            kept
        });
    }
    let egress = Egress {
        endpoints,
        secrets,
        timeout: ceiling.timeout.map_or(timeout, |most| most.min(timeout)),
        response_bytes: ceiling.response_bytes.map_or(response_bytes, |most| most.min(response_bytes)),
    };
    Ok(NetworkAccess { egress: Some(egress), refused })
}

#[cfg(test)]
mod tests;
