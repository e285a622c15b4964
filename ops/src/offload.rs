//! Blocking work for a future that may be dropped at any time.

use tokio::task::{JoinError, JoinHandle};

/// State for blocking work: either present, or moved to a blocking thread.
///
/// If a call is dropped, its work continues. The next call waits for that work and gets its outcome, so nothing is done
/// twice and no outcome is lost.
#[derive(Debug)]
pub(crate) enum Offload<S, T> {
    /// No work is running.
    Here(S),
    /// Work is running and owns the state.
    Away(JoinHandle<(S, T)>),
    /// The work panicked, and the state is lost.
    Gone,
}

/// The work panicked, in this call or an earlier one.
#[derive(Debug, thiserror::Error)]
#[error("an input or output thread panicked")]
pub(crate) struct Panicked(#[source] Option<JoinError>);

impl<S: Send + 'static, T: Send + 'static> Offload<S, T> {
    /// Runs `work` on a blocking thread. If earlier work is still running, waits for it, returns its outcome and does
    /// not run `work`.
    pub(crate) async fn run(&mut self, work: impl FnOnce(&mut S) -> T + Send + 'static) -> Result<T, Panicked> {
        match std::mem::replace(self, Offload::Gone) {
            Offload::Here(mut state) => {
                *self = Offload::Away(tokio::task::spawn_blocking(move || {
                    let outcome = work(&mut state);
                    (state, outcome)
                }));
            }
            other => *self = other,
        }
        self.settle().await.ok_or(Panicked(None))?
    }

    /// Waits for running work; returns `None` if there is none.
    pub(crate) async fn settle(&mut self) -> Option<Result<T, Panicked>> {
        let Offload::Away(handle) = self else { return None };
        match handle.await {
            Ok((state, outcome)) => {
                *self = Offload::Here(state);
                Some(Ok(outcome))
            }
            Err(e) => {
                *self = Offload::Gone;
                Some(Err(Panicked(Some(e))))
            }
        }
    }

    /// Returns the state if no work is running.
    pub(crate) fn here(&mut self) -> Option<&mut S> {
        match self {
            Offload::Here(state) => Some(state),
            Offload::Away(_) | Offload::Gone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_dropped_call_is_finished_by_the_next() {
        let (go, wait) = mpsc::channel();
        let mut offload = Offload::Here(vec![1]);
        let first = offload.run(move |state: &mut Vec<i32>| {
            wait.recv().unwrap();
            state.push(2);
            "first"
        });
        assert!(tokio::time::timeout(Duration::from_millis(1), first).await.is_err());
        assert!(offload.here().is_none());
        go.send(()).unwrap();
        assert_eq!(offload.run(|_| "second").await.unwrap(), "first");
        assert_eq!(offload.here(), Some(&mut vec![1, 2]));
        assert_eq!(offload.run(|_| "third").await.unwrap(), "third");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_for_good() {
        let mut offload = Offload::Here(());
        assert!(offload.run(|()| -> i32 { panic!("of the test") }).await.is_err());
        assert!(offload.run(|()| 1).await.is_err());
    }
}
