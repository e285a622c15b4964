//! Classifies error answers of a server, and missing answers.

use std::error::Error;

use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use super::answers::{self, ForeignAnswer};
use crate::codes;

/// Returns the fault for a failed request. `what` describes the request, such as `cannot list bucket b`.
pub(crate) fn refused<E>(what: &str, error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let Some(foreign) = ForeignAnswer::within(error) {
        return Fault::transient(codes::S3_UNAVAILABLE, format!("{what}: {foreign}"));
    }
    let status = error.raw_response().map(|response| response.status().as_u16());
    let region = error.raw_response().and_then(|response| response.headers().get("x-amz-bucket-region"));
    let (service_code, message) = match error {
        SdkError::ServiceError(context) => (context.err().code(), context.err().message()),
        _ => (None, None),
    };
    let (class, code) = classify(status, service_code, matches!(error, SdkError::ConstructionFailure(_)));
    let mut text = format!("{what}: ");
    match (service_code, message, status) {
        (Some(code), Some(message), _) => text.push_str(&format!("{message} ({code})")),
        (Some(code), None, _) => text.push_str(code),
        (None, _, Some(status)) => {
            text.push_str("the server answered ");
            text.push_str(&error.raw_response().map(answers::of_answer).unwrap_or_default());
            // An error may come without a body. A body that is not an error document comes from another server.
            if status < 300 || error.raw_response().is_some_and(is_foreign) {
                text.push_str(
                    ", which is not the answer of an S3 server: check objstore.endpoint, and proxies in \
                               front of it",
                );
            }
        }
        (None, _, None) => text.push_str(&causes(error)),
    }
    if let (301 | 400, Some(region)) = (status.unwrap_or_default(), region) {
        text.push_str(&format!("; the bucket is in region {region}: set objstore.region"));
    }
    let fault = Fault::new(class, code, text);
    if matches!(code, codes::CREDENTIALS_REFUSED | codes::ACCESS_DENIED) { fault.of_login() } else { fault }
}

/// Returns `true` if an error answer has a body that is not an error document.
fn is_foreign(answer: &HttpResponse) -> bool {
    answer.body().bytes().is_some_and(|body| !body.trim_ascii().is_empty() && !answers::is_error(body))
}

fn classify(status: Option<u16>, code: Option<&str>, never_sent: bool) -> (FaultClass, Code) {
    use FaultClass::{Fatal, Transient};
    match (code.unwrap_or_default(), status) {
        ("NoSuchBucket", _) => (Fatal, codes::BUCKET_MISSING),
        ("PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException", _) => {
            (Fatal, codes::WRONG_REGION)
        }
        ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken", _) => (Fatal, codes::CREDENTIALS_REFUSED),
        // The credentials chain fetches new ones.
        ("ExpiredToken" | "RequestExpired" | "RequestTimeTooSkewed", _) => (Transient, codes::CREDENTIALS_REFUSED),
        ("InvalidObjectState", _) => (Fatal, codes::OBJECT_ARCHIVED),
        ("AccessDenied" | "AllAccessDisabled" | "AccountProblem", _) | (_, Some(401 | 403)) => {
            (Fatal, codes::ACCESS_DENIED)
        }
        (
            "SlowDown" | "Throttling" | "RequestTimeout" | "InternalError" | "ServiceUnavailable" | "OperationAborted",
            _,
        )
        | (_, Some(408 | 429 | 500..=599)) => (Transient, codes::S3_UNAVAILABLE),
        (_, Some(301 | 307)) => (Fatal, codes::WRONG_REGION),
        (_, Some(404)) => (Fatal, codes::NOT_FOUND),
        (_, Some(400..=499)) => (Fatal, codes::REQUEST_REFUSED),
        _ if never_sent => (Fatal, codes::REQUEST_INVALID),
        // No answer, or one that was cut off or is malformed.
        _ => (Transient, codes::S3_UNAVAILABLE),
    }
}

/// Returns an error with its causes, without repetitions.
fn causes(error: &(dyn Error + 'static)) -> String {
    if let Some(words) = anabranch_ops_tls::within(error) {
        return words;
    }
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let part = error.to_string();
        if !text.contains(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_away_is_transient_and_nothing_else() {
        let class = |status, code| classify(status, code, false);
        for (status, code) in [(Some(503), Some("SlowDown")), (Some(500), None), (Some(429), None), (None, None)] {
            assert_eq!(class(status, code), (FaultClass::Transient, codes::S3_UNAVAILABLE), "{status:?} {code:?}");
        }
        // A body that is cut comes with a good status.
        assert_eq!(class(Some(200), None).0, FaultClass::Transient);
        assert_eq!(class(Some(404), Some("NoSuchBucket")), (FaultClass::Fatal, codes::BUCKET_MISSING));
        assert_eq!(class(Some(403), None), (FaultClass::Fatal, codes::ACCESS_DENIED));
        assert_eq!(class(Some(403), Some("SignatureDoesNotMatch")), (FaultClass::Fatal, codes::CREDENTIALS_REFUSED));
        assert_eq!(class(Some(301), Some("PermanentRedirect")), (FaultClass::Fatal, codes::WRONG_REGION));
        assert_eq!(classify(None, None, true), (FaultClass::Fatal, codes::REQUEST_INVALID));
    }
}
