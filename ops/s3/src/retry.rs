//! Retries while a server is unavailable.

use std::time::Duration;

use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::host::Host;
use anabranch_record::fault::{Fault, FaultClass};
use tokio::time::{Instant, sleep, timeout};

use crate::codes;

/// Time without success after which the fault is returned. The pipeline then recovers from its stored positions.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pauses between attempts.
const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(5));

/// Time without an answer after which a warning is logged.
const SILENCE: Duration = Duration::from_secs(5);
/// Time limits while a connector is opened: for an answer, and for retries after errors. After that the fault is
/// returned, so that the state of the pipeline shows the reason.
const OPENING: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(2));

/// Server and purpose of a request, for messages: `http://127.0.0.1:9000`, `whether bucket b keeps versions`.
#[derive(Clone, Copy)]
pub(crate) struct RequestPurpose<'a> {
    pub(crate) server: &'a str,
    pub(crate) what: &'a str,
}

/// Waits for an answer, and logs a warning if it takes long.
pub(crate) async fn attended<T>(host: &Host, asked: RequestPurpose<'_>, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    if let Ok(answer) = timeout(SILENCE, &mut answer).await {
        return answer;
    }
    tracing::warn!(
        pipeline = %host.pipeline, connector = %host.node,
        "waiting for {} to report {}", asked.server, asked.what
    );
    answer.await
}

/// Retries a request while a connector is opened: like [`patiently`], but only for a short time. A pipeline that is
/// opening shows no reason; one that is recovering does.
///
/// # Errors
/// Returns the last fault; transient if the server did not answer.
pub(crate) async fn opening<T, F>(
    host: &Host,
    asked: RequestPurpose<'_>,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let again = Instant::now() + OPENING.1;
    let mut failures = 0;
    loop {
        failures += 1;
        let pause = PAUSES.after(failures);
        let answer = timeout(OPENING.0, attended(host, asked, attempt())).await.unwrap_or_else(|_| {
            let (RequestPurpose { server, what }, seconds) = (asked, OPENING.0.as_secs());
            let text = format!("{server} did not report {what} within {seconds} s; check objstore.endpoint");
            Err(Fault::transient(codes::S3_UNAVAILABLE, text))
        });
        match answer {
            Err(fault) if fault.class() == FaultClass::Transient && Instant::now() + pause < again => {
                if failures == 1 {
                    tracing::warn!(pipeline = %host.pipeline, connector = %host.node, "{fault}; trying again");
                }
            }
            done => return done,
        }
        sleep(pause).await;
    }
}

/// Retries until the request succeeds, fails permanently, or has failed for [`PATIENCE`].
///
/// # Errors
/// Returns the last fault.
pub(crate) async fn patiently<T, F>(host: &Host, mut attempt: impl FnMut() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut failing: Option<(Instant, u32)> = None;
    loop {
        let fault = match attempt().await {
            Ok(value) => return Ok(value),
            Err(fault) if fault.class() != FaultClass::Transient => return Err(fault),
            Err(fault) => fault,
        };
        let failures = match &mut failing {
            None => {
                tracing::warn!(pipeline = %host.pipeline, connector = %host.node, "{fault}; trying again");
                failing = Some((Instant::now(), 1));
                1
            }
            Some((since, _)) if since.elapsed() >= PATIENCE => return Err(fault),
            Some((_, failures)) => {
                *failures += 1;
                *failures
            }
        };
        sleep(PAUSES.after(failures)).await;
    }
}
