//! Waiting for a server that is away for a while.

use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_record::fault::{Fault, FaultClass};
use tokio::time::{Instant, sleep, timeout};

/// After so long without success the pipeline is told; it then recovers from its stored positions.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before the second try, and the longest: doubled in between.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a server may take to answer until the log says that it is waited for.
const SILENCE: Duration = Duration::from_secs(5);
/// How long a connector that is opened waits for an answer, and how long it asks again after bad ones: then the pipeline
/// is told, and its state says why.
const OPENING: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(2));

/// The server that is asked, for messages, and what for: `http://127.0.0.1:9000`, `whether bucket b keeps versions`.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) server: &'a str,
    pub(crate) what: &'a str,
}

/// Waits for an answer; the log says so when it takes long.
pub(crate) async fn attended<T>(host: &Host, asked: Asked<'_>, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    if let Ok(answer) = timeout(SILENCE, &mut answer).await {
        return answer;
    }
    tracing::warn!(
        pipeline = %host.pipeline, connector = %host.node,
        "waits for {} to say {}", asked.server, asked.what
    );
    answer.await
}

/// Asks while a connector is opened: as [`patiently`], but not for long. A pipeline that opens says nothing; one that
/// recovers says why.
///
/// # Errors
/// The last one; transient where the server has not answered.
pub(crate) async fn opening<T, F>(host: &Host, asked: Asked<'_>, mut attempt: impl FnMut() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let again = Instant::now() + OPENING.1;
    let mut pause = PAUSES.0;
    loop {
        let answer = timeout(OPENING.0, attended(host, asked, attempt())).await.unwrap_or_else(|_| {
            let (Asked { server, what }, seconds) = (asked, OPENING.0.as_secs());
            let text = format!("{server} has not said {what} within {seconds} s; check objstore.endpoint");
            Err(Fault::transient("s3_unavailable", text))
        });
        match answer {
            Err(fault) if fault.class() == FaultClass::Transient && Instant::now() + pause < again => {
                if pause == PAUSES.0 {
                    tracing::warn!(pipeline = %host.pipeline, connector = %host.node, "{fault}; trying again");
                }
            }
            done => return done,
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Repeats what may be repeated until it succeeds, fails for good, or has failed for [`PATIENCE`].
///
/// # Errors
/// The last one.
pub(crate) async fn patiently<T, F>(host: &Host, mut attempt: impl FnMut() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut failing: Option<(Instant, Duration)> = None;
    loop {
        let fault = match attempt().await {
            Ok(value) => return Ok(value),
            Err(fault) if fault.class() != FaultClass::Transient => return Err(fault),
            Err(fault) => fault,
        };
        let pause = match &mut failing {
            None => {
                tracing::warn!(pipeline = %host.pipeline, connector = %host.node, "{fault}; trying again");
                failing = Some((Instant::now(), PAUSES.0));
                PAUSES.0
            }
            Some((since, _)) if since.elapsed() >= PATIENCE => return Err(fault),
            Some((_, pause)) => {
                *pause = (*pause * 2).min(PAUSES.1);
                *pause
            }
        };
        sleep(pause).await;
    }
}
