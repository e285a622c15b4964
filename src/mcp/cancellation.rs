//! Calls that are given up before they end.

use std::sync::{Arc, Mutex, PoisonError};

/// Whether a call was given up, shared between who gives it up and the call. Cheap to clone.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_cancelled: bool,
    /// What ends the call.
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Cancellation {
    /// Gives the call up: what it set with [`Cancellation::ended_by`] is run.
    pub fn cancel(&self) {
        let end = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_cancelled = true;
            state.end.take()
        };
        if let Some(end) = end {
            end();
        }
    }

    /// Whether the call was given up.
    pub fn is_cancelled(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_cancelled
    }

    /// Sets what ends the call; it is run at once where the call was given up before.
    pub fn ended_by(&self, end: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !state.is_cancelled {
                state.end = Some(Box::new(end));
                return;
            }
        }
        end();
    }
}
