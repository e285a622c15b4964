//! HTTP requests of guests: none, unless the processor's settings name the host and the service lets processors
//! reach it.
//!
//! What a guest may reach is a list of [`Place`]s. A request to another one is refused, and so are redirects and
//! names that lead to this machine or its neighbours; addresses are looked at when they are connected to. Proxies
//! from the environment are not used.

mod call;
mod place;

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::specification::{Parameter, ParameterKind};

pub(crate) use self::call::{Network, Refusal};
pub use self::place::{InvalidPlace, Place};

const ALLOW: &str = "sdk.egress.allow";
const TIMEOUT: &str = "sdk.egress.timeout";
const MOST: &str = "sdk.egress.maxResponseBytes";
const SECRETS: &str = "sdk.egress.secretRefs";
/// What settings begin with that are ours and not the guest's.
pub(crate) const PREFIX: &str = "sdk.egress.";

/// What the service lets processors reach at most.
#[derive(Clone, Debug, Default)]
pub struct Ceiling {
    /// Whether there may be any requests.
    pub enabled: bool,
    /// Only these places; `None` = any.
    pub places: Option<Vec<Place>>,
    /// The names of secrets that may be used; `None` = any, where `places` does not name hosts.
    pub secrets: Option<Vec<String>>,
    /// Longest time of a request.
    pub timeout: Option<Duration>,
    /// Most bytes of an answer.
    pub response_bytes: Option<u64>,
}

/// What one processor may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    pub(crate) places: Vec<Place>,
    pub(crate) secrets: BTreeSet<String>,
    pub(crate) timeout: Duration,
    pub(crate) response_bytes: u64,
}

/// What became of what a processor asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    /// `None` = no requests.
    pub(crate) egress: Option<Egress>,
    /// What was asked for and is not let through.
    pub(crate) refused: Vec<String>,
}

/// The settings by which a processor asks for egress.
pub(crate) fn parameters() -> [Parameter; 4] {
    [
        Parameter::new(ALLOW, ParameterKind::Text, "Hosts it may send HTTP requests to, with commas between them."),
        Parameter::new(TIMEOUT, ParameterKind::Duration, "Longest time of one of its HTTP requests.")
            .default_value("30s"),
        Parameter::new(MOST, ParameterKind::Bytes, "Most bytes of an HTTP answer it gets.").default_value("4194304"),
        Parameter::new(SECRETS, ParameterKind::Text, "Names of secrets it may have sent as Authorization."),
    ]
}

/// Reads what a processor asks for, and takes from it what the ceiling does not let through.
///
/// # Errors
/// A setting that is none.
pub(crate) fn granted(arguments: &Arguments, ceiling: &Ceiling) -> Result<Granted, Diagnostics> {
    let entries = |name: &str| -> Vec<String> {
        let text = arguments.text(name).map_or("", |text| text.as_str());
        text.split(|c: char| c == ',' || c.is_whitespace()).filter(|e| !e.is_empty()).map(str::to_owned).collect()
    };
    let mut findings = Diagnostics::new();
    let invalid = |name: &str, message: String| {
        Diagnostic::error("settings.invalid", format!("{name}: {message}")).with_span(arguments.span(name))
    };
    let mut places = Vec::new();
    for entry in entries(ALLOW) {
        match Place::parse(&entry) {
            Ok(place) => places.push(place),
            Err(error) => findings.push(invalid(ALLOW, error.to_string())),
        }
    }
    let timeout = arguments.duration(TIMEOUT).unwrap_or(Duration::from_secs(30));
    let response_bytes = arguments.bytes(MOST).unwrap_or(4 << 20);
    if timeout.is_zero() {
        findings.push(invalid(TIMEOUT, "it must be more than 0".to_owned()));
    }
    if response_bytes == 0 {
        findings.push(invalid(MOST, "it must be more than 0".to_owned()));
    }
    if findings.has_errors() {
        return Err(findings);
    }
    if places.is_empty() {
        return Ok(Granted::default());
    }
    if !ceiling.enabled {
        let refused = vec![format!("{ALLOW} has no effect: processors.egress.enabled is false")];
        return Ok(Granted { egress: None, refused });
    }
    let mut refused = Vec::new();
    if let Some(most) = &ceiling.places {
        places.retain(|place| {
            let kept = most.contains(place);
            refused.extend((!kept).then(|| format!("{place} cannot be reached: processors.egress.allow has it not")));
            kept
        });
    }
    let mut secrets: BTreeSet<String> = entries(SECRETS).into_iter().collect();
    let none = Vec::new();
    // A ceiling that names hosts but no secrets lets none out.
    if let Some(most) = ceiling.secrets.as_ref().or(ceiling.places.is_some().then_some(&none)) {
        secrets.retain(|secret| {
            let kept = most.contains(secret);
            let text = || format!("the secret {secret} cannot be used: processors.egress.secret-refs has it not");
            refused.extend((!kept).then(text));
            kept
        });
    }
    let egress = Egress {
        places,
        secrets,
        timeout: ceiling.timeout.map_or(timeout, |most| most.min(timeout)),
        response_bytes: ceiling.response_bytes.map_or(response_bytes, |most| most.min(response_bytes)),
    };
    Ok(Granted { egress: Some(egress), refused })
}

#[cfg(test)]
mod tests;
