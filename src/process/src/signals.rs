//! Signals of the operating system.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::flag::register_conditional_default;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the service, and the signal to reload credentials.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The signal to reload credentials; without it a hangup ends the process.
    pub hangups: Option<Signal>,
    last: Option<Arrival>,
}

/// A repeated signal within this time is the same request: `timeout` and some supervisors signal a process and then its
/// whole group. A person is never as fast.
const ECHO: Duration = Duration::from_millis(100);

/// A signal and the time when it arrived.
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

/// SIGXFSZ: a file grew beyond the limit of the process. Without a signal handler it kills the process; with one, the
/// write fails with an error that a pipeline can report.
const FILE_SIZE_EXCEEDED: i32 = 25;

impl Signals {
    /// Registers the signals, so that they do not end the process by themselves. Must be called on a runtime with I/O.
    ///
    /// # Errors
    /// The operating system refuses the registration.
    pub fn listen() -> io::Result<Signals> {
        // The signal handler stays registered after its stream is dropped.
        drop(signal(SignalKind::from_raw(FILE_SIZE_EXCEEDED))?);
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangups: None,
            last: None,
        })
    }

    /// Adds hangups, so that they do not end the process either.
    ///
    /// # Errors
    /// The operating system refuses the registration.
    pub fn with_hangups(self) -> io::Result<Signals> {
        Ok(Signals { hangups: Some(signal(SignalKind::hangup())?), ..self })
    }

    /// Waits for the next signal and returns its number.
    pub async fn next(&mut self) -> i32 {
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

/// Restores the default effect of signals after a short delay, so that a signal can end a process that blocks on its
/// last output.
pub fn end_the_process_again() {
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SignalKind::interrupt(), SignalKind::terminate()] {
        if let Err(error) = register_conditional_default(signal.as_raw_value(), again.clone()) {
            tracing::debug!(%error, "signals cannot end the process");
        }
    }
    // An echo of the signal that ended the service must not change how the process ends.
    let later = move || {
        std::thread::sleep(ECHO * 5);
        again.store(true, Ordering::Relaxed);
    };
    // If the thread cannot start, signals stay without effect until the process ends.
    let _ = std::thread::Builder::new().name("anabranch-end".to_owned()).spawn(later);
}

/// Returns at the next hangup.
pub async fn hung_up(hangups: &mut Option<Signal>) {
    match hangups {
        // The stream ends only with the runtime.
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
