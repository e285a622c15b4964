//! Signals of the operating system.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::flag::register_conditional_default;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the service, and the signal to reload credentials.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The one that has a service read its credentials again; without it a hangup ends the process.
    pub(crate) hangups: Option<Signal>,
    last: Option<Arrival>,
}

/// A signal that arrives again so soon is the same request: `timeout` and some supervisors tell a process and
/// then its whole group. No hand is as fast.
const ECHO: Duration = Duration::from_millis(100);

/// A signal, and when it came.
#[derive(Clone, Copy)]
struct Arrival {
    signal: i32,
    at: Instant,
}

impl Arrival {
    fn is_echo_of(self, earlier: Arrival) -> bool {
        self.signal == earlier.signal && self.at.duration_since(earlier.at) < ECHO
    }
}

/// A file grew beyond the limit of the process: without a handler this kills it, with one the write fails
/// with an error that a pipeline can report.
const FILE_SIZE_EXCEEDED: i32 = 25;

impl Signals {
    /// From now on signals arrive here and no longer end the process by themselves. Must be called on a
    /// runtime with I/O.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn listen() -> io::Result<Signals> {
        // The handler stays when its stream goes.
        drop(signal(SignalKind::from_raw(FILE_SIZE_EXCEEDED))?);
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangups: None,
            last: None,
        })
    }

    /// With hangups, which no longer end the process either.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn with_hangups(self) -> io::Result<Signals> {
        Ok(Signals { hangups: Some(signal(SignalKind::hangup())?), ..self })
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> i32 {
        loop {
            let signal = tokio::select! {
                _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            };
            let arrival = Arrival { signal, at: Instant::now() };
            if !self.last.is_some_and(|last| arrival.is_echo_of(last)) {
                self.last = Some(arrival);
                return signal;
            }
        }
    }
}

/// From a moment later on, signals end the process by themselves again: what it prints at its end, nobody may take.
pub(crate) fn end_the_process_again() {
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SignalKind::interrupt(), SignalKind::terminate()] {
        if let Err(error) = register_conditional_default(signal.as_raw_value(), again.clone()) {
            tracing::debug!(%error, "signals do not end the process any more");
        }
    }
    // An echo of the signal that ended the service must not change how the process ends.
    let later = move || {
        std::thread::sleep(ECHO * 5);
        again.store(true, Ordering::Relaxed);
    };
    // Without a thread the process ends as soon as its last words are taken.
    let _ = std::thread::Builder::new().name("anabranch-end".to_owned()).spawn(later);
}

/// Returns with the next hangup.
pub(crate) async fn hung_up(hangups: &mut Option<Signal>) {
    match hangups {
        // There is an end of it only with the runtime.
        Some(hangups) => drop(hangups.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_signal_at_once_is_an_echo() {
        let first = Arrival { signal: 2, at: Instant::now() };
        let later = |signal, ms| Arrival { signal, at: first.at + Duration::from_millis(ms) };
        assert!(later(2, 0).is_echo_of(first) && later(2, 99).is_echo_of(first));
        assert!(!later(2, 100).is_echo_of(first), "a second request");
        assert!(!later(15, 0).is_echo_of(first), "another signal");
    }
}
