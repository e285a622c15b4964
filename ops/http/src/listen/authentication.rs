//! Who may send requests: credentials in a header, or a signature over the body.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::text::Str;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use subtle::{Choice as Equal, ConstantTimeEq as _};

use crate::codes;

/// Header with the signature of GitHub.
const GITHUB: &str = "x-hub-signature-256";
/// Header with the signature of Stripe.
const STRIPE: &str = "stripe-signature";
/// Maximum number of signatures that are checked in one header: a sender that changes its secret sends two.
const MOST_SIGNATURES: usize = 8;

/// Settings; at most one kind of credentials is given.
#[derive(Parameters)]
pub(super) struct Settings {
    /// Tokens of which a request needs one, in `Authorization: Bearer TOKEN`. Several are for the time of a change.
    #[parameter(secret)]
    bearer: Argument<Vec<Str>>,
    /// User name of basic authentication.
    username: Argument<Option<Str>>,
    /// Password of basic authentication.
    #[parameter(secret)]
    password: Argument<Option<Str>>,
    /// Secrets for the signatures of GitHub, and of services that sign like it: the header `X-Hub-Signature-256` is
    /// `sha256=` and the HMAC of the body.
    #[parameter(secret)]
    github: Argument<Vec<Str>>,
    /// Secrets for the signatures of Stripe: the header `Stripe-Signature` has a time and the HMAC of the time and the
    /// body.
    #[parameter(secret)]
    stripe: Argument<Vec<Str>>,
    /// Maximum difference between the time in a signature of Stripe and the clock.
    #[parameter(default = "5m", greater_than = 0, only_with = "auth.stripe")]
    tolerance: Duration,
}

/// Credentials that requests need.
pub(super) enum Authentication {
    /// None.
    Anyone,
    /// One of these values of the header `Authorization`, as hashes.
    Header { values: Vec<[u8; 32]>, scheme: &'static str },
    /// A signature as of GitHub, with one of these keys.
    GitHub(Vec<Hmac<Sha256>>),
    /// A signature as of Stripe, with one of these keys, and its maximum age.
    Stripe(Vec<Hmac<Sha256>>, Duration),
}

/// Reason why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// The header is absent or has other credentials.
    #[error("the header Authorization has no valid credentials")]
    Credentials(&'static str),
    /// The header with the signature is absent or has another form.
    #[error("the header {0} is missing or invalid")]
    NoSignature(&'static str),
    /// The signature was made with another secret, or over another body.
    #[error("the signature in the header {0} does not match the body")]
    WrongSignature(&'static str),
    /// The time of the signature is too far from the clock.
    #[error("the time in the header {STRIPE} is outside of the tolerance")]
    Expired,
}

impl Denied {
    /// Returns the value of the header `WWW-Authenticate`.
    pub(super) fn scheme(self) -> Option<&'static str> {
        match self {
            Denied::Credentials(scheme) => Some(scheme),
            Denied::NoSignature(_) | Denied::WrongSignature(_) | Denied::Expired => None,
        }
    }
}

impl Settings {
    /// Returns the credentials that requests need; adds errors to `findings`.
    pub(super) fn authentication(&self, findings: &mut Diagnostics) -> Authentication {
        let given = [
            (self.bearer.name(), self.bearer.is_given(), self.bearer.span()),
            (self.username.name(), self.username.is_given() || self.password.is_given(), self.username.span()),
            (self.github.name(), self.github.is_given(), self.github.span()),
            (self.stripe.name(), self.stripe.is_given(), self.stripe.span()),
        ];
        let mut given = given.into_iter().filter(|(_, is_given, _)| *is_given);
        if let (Some((first, _, place)), Some((second, ..))) = (given.next(), given.next()) {
            let finding = self.bearer.finding(
                codes::SETTINGS_INVALID,
                format!("{first} and {second} exclude each other: requests have one kind of credentials"),
            );
            findings.push(finding.with_span(place));
        }
        for list in [&self.bearer, &self.github, &self.stripe] {
            // A variable that is set to nothing must not open the source to anyone.
            if list.is_given() && (list.is_empty() || list.iter().any(|secret| secret.trim().is_empty())) {
                findings.push(list.invalid("the secret is blank").with_hint("set it, or remove the setting"));
            }
        }
        let keys = |secrets: &Argument<Vec<Str>>| {
            secrets.iter().filter_map(|secret| Hmac::new_from_slice(secret.as_bytes()).ok()).collect()
        };
        match (self.username.as_ref(), self.password.as_ref()) {
            (Some(user), Some(password)) if !user.contains(':') => {
                let value = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
                Authentication::Header { values: vec![Sha256::digest(value).into()], scheme: "Basic" }
            }
            (Some(_), Some(_)) => {
                findings.push(self.username.invalid("a user name of basic authentication has no colon"));
                Authentication::Anyone
            }
            (None, None) if self.username.is_given() || self.password.is_given() => {
                findings.push(self.password.invalid("the user name and the password are blank"));
                Authentication::Anyone
            }
            (Some(_), None) => {
                findings.push(
                    self.password.finding(codes::SETTINGS_REQUIRED, "auth.password is required with auth.username"),
                );
                Authentication::Anyone
            }
            (None, Some(_)) => {
                findings.push(
                    self.username.finding(codes::SETTINGS_REQUIRED, "auth.username is required with auth.password"),
                );
                Authentication::Anyone
            }
            (None, None) if self.bearer.is_given() => {
                let value = |token: &Str| Sha256::digest(format!("Bearer {}", token.trim())).into();
                Authentication::Header { values: self.bearer.iter().map(value).collect(), scheme: "Bearer" }
            }
            (None, None) if self.github.is_given() => Authentication::GitHub(keys(&self.github)),
            (None, None) if self.stripe.is_given() => Authentication::Stripe(keys(&self.stripe), self.tolerance),
            (None, None) => Authentication::Anyone,
        }
    }
}

impl Authentication {
    /// Checks the headers, before the body is read.
    ///
    /// # Errors
    /// The request has no valid credentials.
    pub(super) fn check_head(&self, headers: &HeaderMap) -> Result<(), Denied> {
        match self {
            Authentication::Anyone => Ok(()),
            Authentication::Header { values, scheme } => {
                let denied = Denied::Credentials(scheme);
                let given = headers.get(AUTHORIZATION).ok_or(denied)?.as_bytes();
                // The name of the scheme may be in upper or lower case.
                let credentials = given.get(scheme.len()..).ok_or(denied)?;
                if !given[..scheme.len()].eq_ignore_ascii_case(scheme.as_bytes()) {
                    return Err(denied);
                }
                let sum: [u8; 32] = Sha256::new().chain_update(scheme).chain_update(credentials).finalize().into();
                // Hashes have one length, so that the comparison shows neither the length nor a common beginning.
                let equal = values.iter().fold(Equal::from(0), |equal, value| equal | value.ct_eq(&sum));
                if bool::from(equal) { Ok(()) } else { Err(denied) }
            }
            Authentication::GitHub(_) => github_signature(headers).map(drop),
            Authentication::Stripe(..) => StripeSignature::of(headers).map(drop),
        }
    }

    /// Checks a signature over the body as it was received, before it is decompressed. `now` is the time of the clock.
    ///
    /// # Errors
    /// The signature does not match.
    pub(super) fn check_body(&self, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<(), Denied> {
        match self {
            Authentication::Anyone | Authentication::Header { .. } => Ok(()),
            Authentication::GitHub(keys) => {
                let signature = github_signature(headers)?;
                let is_valid = keys.iter().any(|key| key.clone().chain_update(body).verify_slice(&signature).is_ok());
                if is_valid { Ok(()) } else { Err(Denied::WrongSignature(GITHUB)) }
            }
            Authentication::Stripe(keys, tolerance) => {
                let signature = StripeSignature::of(headers)?;
                let signed =
                    |key: &Hmac<Sha256>| key.clone().chain_update(signature.time).chain_update(".").chain_update(body);
                let is_valid = keys.iter().any(|key| {
                    let signed = signed(key);
                    signature.signatures.iter().any(|signature| signed.clone().verify_slice(signature).is_ok())
                });
                // Only the sender knows whether it is late: the time of an invalid signature says nothing.
                match () {
                    () if !is_valid => Err(Denied::WrongSignature(STRIPE)),
                    () if signature.is_within(*tolerance, now) => Ok(()),
                    () => Err(Denied::Expired),
                }
            }
        }
    }
}

/// Checks a header as each kind of signature, with a key that nobody has. Returns `true` if one is valid.
pub(super) fn is_signed_by_nobody(header: &[u8], body: &[u8]) -> bool {
    let Ok(header) = HeaderValue::from_bytes(header) else { return false };
    let Ok(key) = Hmac::new_from_slice(&fastrand::u128(..).to_le_bytes()) else { return false };
    let kinds = [
        (GITHUB, Authentication::GitHub(vec![key.clone()])),
        (STRIPE, Authentication::Stripe(vec![key], Duration::from_secs(300))),
    ];
    kinds.into_iter().any(|(name, kind)| {
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), header.clone())]);
        kind.check_head(&headers).and_then(|()| kind.check_body(&headers, body, SystemTime::now())).is_ok()
    })
}

/// Returns the signature in `sha256=HEX`.
fn github_signature(headers: &HeaderMap) -> Result<[u8; 32], Denied> {
    let header = headers.get(GITHUB).and_then(|value| value.to_str().ok());
    header.and_then(|text| hexadecimal(text.strip_prefix("sha256=")?)).ok_or(Denied::NoSignature(GITHUB))
}

/// The content of `t=SECONDS,v1=HEX,v1=HEX`. Other parts, such as `v0`, are ignored.
struct StripeSignature<'a> {
    /// The time as it is written, which is a part of the signed text.
    time: &'a str,
    seconds: u64,
    signatures: Vec<[u8; 32]>,
}

impl StripeSignature<'_> {
    fn of(headers: &HeaderMap) -> Result<StripeSignature<'_>, Denied> {
        let header = headers.get(STRIPE).and_then(|value| value.to_str().ok());
        header.and_then(StripeSignature::parse).ok_or(Denied::NoSignature(STRIPE))
    }

    fn parse(text: &str) -> Option<StripeSignature<'_>> {
        let mut time = None;
        let mut signatures = Vec::new();
        for (name, value) in text.split(',').filter_map(|part| part.trim().split_once('=')) {
            match name {
                "t" => time = Some(value),
                "v1" if signatures.len() < MOST_SIGNATURES => signatures.extend(hexadecimal(value)),
                _ => {}
            }
        }
        let time = time?;
        let seconds = time.bytes().all(|byte| byte.is_ascii_digit()).then(|| time.parse().ok())??;
        Some(StripeSignature { time, seconds, signatures }).filter(|found| !found.signatures.is_empty())
    }

    fn is_within(&self, tolerance: Duration, now: SystemTime) -> bool {
        let signed = Duration::from_secs(self.seconds);
        // A clock before 1970 is as wrong as one at 1970.
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        now.abs_diff(signed) <= tolerance
    }
}

/// Returns the 32 bytes of a hexadecimal text.
fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
pub(super) mod tests;
