//! Waits for brokers that the log reports.

use std::time::Duration;

use tokio::time::Instant;

/// Time after which a log line reports a wait. It is repeated in this interval.
const SILENCE: Duration = Duration::from_secs(15);

/// Waits, and calls `say` with the time that has passed whenever the wait has lasted [`SILENCE`] longer.
pub(crate) async fn aloud<T>(waiting: impl Future<Output = T>, say: impl Fn(Duration)) -> T {
    let mut waiting = std::pin::pin!(waiting);
    let begun = Instant::now();
    loop {
        match tokio::time::timeout(SILENCE, &mut waiting).await {
            Ok(done) => return done,
            Err(_) => say(begun.elapsed()),
        }
    }
}

/// Waits, and logs what the brokers have not done yet: a phrase such as `described the topic orders`.
pub(crate) async fn until_brokers<T>(what: impl Fn() -> String, waiting: impl Future<Output = T>) -> T {
    aloud(waiting, |elapsed| tracing::warn!("the brokers have not {} for {} s; waiting", what(), elapsed.as_secs()))
        .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_not_silent() {
        let said = RefCell::new(Vec::new());
        let waiting = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        aloud(waiting(14), |elapsed| said.borrow_mut().push(elapsed.as_secs())).await;
        assert!(said.borrow().is_empty());
        aloud(waiting(50), |elapsed| said.borrow_mut().push(elapsed.as_secs())).await;
        assert_eq!(*said.borrow(), [15, 30, 45]);
    }
}
