//! Waiting for a server that is away for a while.

use std::time::Duration;

use anabranch_graph::fault::{Fault, FaultClass};
use anabranch_graph::operator::Host;
use tokio::time::{Instant, sleep};

/// After so long without success the pipeline is told; it then recovers from its stored positions.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before the second try, and the longest: doubled in between.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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
