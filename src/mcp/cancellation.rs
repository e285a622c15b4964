//! Cancellation of calls.

use std::sync::{Arc, Mutex, PoisonError};

/// Cancellation flag of a call, shared between the call and its canceller. Cheap to clone.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_cancelled: bool,
    /// Ends the call.
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Cancellation {
    /// Cancels the call: runs the function that was set with [`Cancellation::ended_by`].
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

    /// Returns `true` if the call was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_cancelled
    }

    /// Sets the function that ends the call. It runs at once if the call is already cancelled.
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
