//! Requests from outside to stop a service.

use std::future::pending;
use std::io;

use anabranch_process::signals::Signals;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::watch;

/// The source of requests to stop a service before its pipelines have ended.
#[derive(Clone, Debug)]
pub enum StopSource {
    /// The signals SIGINT and SIGTERM: the first one stops the service, a second one ends the process at once. A hangup
    /// reloads credentials, or stops the service if its terminal was closed.
    Signals,
    /// The program that contains the service: it sends `true`, or drops the sender. The service handles no signals.
    Program(watch::Receiver<bool>),
}

/// A [`StopSource`] that is listened to.
pub(crate) struct Stops {
    requests: Requests,
    /// The signal to reload credentials.
    pub(crate) hangups: Option<Signal>,
}

enum Requests {
    Signals(Signals),
    /// `None` after the request.
    Program(Option<watch::Receiver<bool>>),
}

impl Stops {
    /// Starts to listen. Must be called on a runtime with I/O.
    pub(crate) fn listen(source: StopSource) -> io::Result<Stops> {
        match source {
            StopSource::Signals => {
                let mut signals = Signals::listen()?.with_hangups()?;
                let hangups = signals.hangups.take();
                Ok(Stops { requests: Requests::Signals(signals), hangups })
            }
            StopSource::Program(requests) => Ok(Stops { requests: Requests::Program(Some(requests)), hangups: None }),
        }
    }

    /// Waits for the next request, which the second time must end the process with the returned signal. A program
    /// requests the stop once.
    pub(crate) async fn next(&mut self) -> i32 {
        match &mut self.requests {
            Requests::Signals(signals) => signals.next().await,
            Requests::Program(requests) => {
                let Some(receiver) = requests else { return pending().await };
                // An error means that the sender is dropped, which is a request too.
                let _ = receiver.wait_for(|stop| *stop).await;
                *requests = None;
                SIGTERM
            }
        }
    }

    /// Returns `true` if signals stop the service: the process is that of the service alone.
    pub(crate) fn are_signals(&self) -> bool {
        matches!(self.requests, Requests::Signals(_))
    }

    /// Returns the log message for the first request.
    pub(crate) fn message(&self) -> &'static str {
        match self.requests {
            Requests::Signals(_) => "stopping; a second signal ends the service at once",
            Requests::Program(_) => "stopping",
        }
    }
}

/// Number of the signal that a request of the program stands for.
const SIGTERM: i32 = SignalKind::terminate().as_raw_value();

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_program_stops_the_service_once_by_a_request_or_by_dropping_its_handle() {
        for drops in [false, true] {
            let (sender, requests) = watch::channel(false);
            let mut stops = Stops::listen(StopSource::Program(requests)).unwrap();
            let day = Duration::from_secs(86_400);
            assert!(tokio::time::timeout(day, stops.next()).await.is_err(), "nothing was requested");
            match drops {
                true => drop(sender),
                false => sender.send(true).unwrap(),
            }
            assert_eq!(stops.next().await, SIGTERM);
            assert!(tokio::time::timeout(day, stops.next()).await.is_err(), "a second request would end the process");
        }
    }
}
