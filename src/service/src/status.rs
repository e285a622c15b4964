//! The states of a pipeline and the moves between them.
//!
//! ```text
//!            start            open              sources ended
//! stopped ─────────► starting ─────► running ─────────────────► finished
//!    ▲                 ▲  │            │ transient fault, tries left
//!    │      stop       │  └────────────┴──────────► recovering ─┐
//!    ├─────────────────┼─────────────────────────────────┘      │
//!    │                 └────────────────────────── again ───────┤
//!    │            any other fault                               │ tries used up
//!    └───────────── degraded ◄──────────────────────────────────┘
//! ```

use anabranch_store::{Status, StopReason};

/// An event in the life of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifecycleEvent {
    /// A run begins.
    Start,
    /// Its sources, operators and destinations are open.
    Open,
    /// Its sources ended and everything is delivered.
    End,
    /// It was ordered to stop, and has stopped.
    Stop(StopReason),
    /// It failed, and restarts after a wait.
    Retry {
        /// The error.
        error: String,
    },
    /// It failed permanently.
    Fail {
        /// The error.
        error: String,
    },
}

/// A transition that does not exist: a defect of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pipeline with the status {from} does not accept the event {event:?}")]
pub struct InvalidTransition {
    /// The current status.
    pub from: &'static str,
    /// The event.
    pub event: LifecycleEvent,
}

/// Returns the status after an event.
///
/// # Errors
/// The event cannot happen in this status.
pub fn next(status: &Status, event: LifecycleEvent) -> Result<Status, InvalidTransition> {
    match (status, event) {
        (
            Status::Stopped { .. }
            | Status::Degraded { .. }
            | Status::Finished
            | Status::Invalid
            | Status::Recovering { .. },
            LifecycleEvent::Start,
        ) => Ok(Status::Starting),
        (Status::Starting, LifecycleEvent::Open) => Ok(Status::Running),
        (Status::Starting | Status::Running, LifecycleEvent::End) => Ok(Status::Finished),
        (Status::Starting | Status::Running | Status::Recovering { .. }, LifecycleEvent::Stop(reason)) => {
            Ok(Status::Stopped { reason })
        }
        (Status::Starting | Status::Running, LifecycleEvent::Retry { error }) => Ok(Status::Recovering { error }),
        (Status::Starting | Status::Running | Status::Recovering { .. }, LifecycleEvent::Fail { error }) => {
            Ok(Status::Degraded { error })
        }
        (from, event) => Err(InvalidTransition { from: from.word(), event }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_move_is_decided() {
        let error = || "x".to_owned();
        let states = [
            Status::Starting,
            Status::Running,
            Status::Recovering { error: error() },
            Status::Stopped { reason: StopReason::User },
            Status::Stopped { reason: StopReason::System },
            Status::Degraded { error: error() },
            Status::Finished,
            Status::Invalid,
        ];
        let events = [
            LifecycleEvent::Start,
            LifecycleEvent::Open,
            LifecycleEvent::End,
            LifecycleEvent::Stop(StopReason::System),
            LifecycleEvent::Retry { error: error() },
            LifecycleEvent::Fail { error: error() },
        ];
        let table: Vec<String> = states
            .iter()
            .map(|state| {
                let moves: Vec<_> =
                    events.iter().map(|event| next(state, event.clone()).map_or("-", |to| to.word())).collect();
                format!("{}: {}", state.word(), moves.join(" "))
            })
            .collect();
        assert_eq!(
            table,
            [
                "starting: - running finished stopped recovering degraded",
                "running: - - finished stopped recovering degraded",
                "recovering: starting - - stopped - degraded",
                "stopped: starting - - - - -",
                "stopped: starting - - - - -",
                "degraded: starting - - - - -",
                "finished: starting - - - - -",
                "invalid: starting - - - - -",
            ]
        );
    }
}
