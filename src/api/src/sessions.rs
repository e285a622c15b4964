//! Open inspections, which are limited in number and end with the service.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::codes;
use crate::error::{ApiError, Kind};

/// Maximum number of concurrent inspections.
const MOST: usize = 64;
/// The open inspections.
pub(crate) struct Sessions {
    permits: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { permits: Arc::new(Semaphore::new(MOST)), closing: watch::Sender::new(false) }
    }
}

/// The permit for one inspection, returned on drop.
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
    closing: watch::Receiver<bool>,
}

impl Sessions {
    pub(crate) fn enter(&self) -> Result<Permit, ApiError> {
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| {
            let what = format!("{MOST} inspections are open already, which is the maximum");
            ApiError::new(Kind::ResourceExhausted, codes::INSPECT_TOO_MANY, what).suggest("close an inspection")
        })?;
        Ok(Permit { _permit: permit, closing: self.closing.subscribe() })
    }

    /// Ends all inspections, and waits until they have ended.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        // This fails only if the semaphore is closed, which never happens.
        let _ = self.permits.acquire_many(MOST as u32).await;
    }
}

impl Permit {
    /// Returns when the service ends.
    pub(crate) async fn closing(&mut self) {
        // An error means that the sender is gone, which also means that the service ends.
        let _ = self.closing.wait_for(|closing| *closing).await;
    }
}
