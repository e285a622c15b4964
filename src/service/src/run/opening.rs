//! Waiting for the state store while another process owns it, or its server cannot be reached.

use std::future::pending;
use std::time::{Duration, Instant};

use anabranch_cluster::Announcement;
use anabranch_plugin::backoff::Backoff;
use anabranch_settings::ClusterSettings;
use anabranch_store::{OpenError, Owner, Store, StoreOwnership};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::Service;
use crate::error::ServiceError;
use crate::listener::Listener;

/// The pauses between attempts to open the store. While another process owns it, the pause of the second failure is the
/// longest.
const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(15));
const MOST_WHILE_OWNED: u32 = 2;
/// Minimum time between two identical log lines about waiting for the store.
const WAITING_LINE: Duration = Duration::from_secs(60);

impl Service {
    /// Opens the store. Also returns the HTTP listener if it was started early to report that the service waits for the
    /// store.
    pub(super) async fn open<L: Listener>(&self) -> Result<(Store, Option<L>), ServiceError> {
        let (tell, mut why) = watch::channel(String::new());
        let (stop, stopped) = oneshot::channel::<()>();
        let told = async {
            if why.changed().await.is_err() {
                return None;
            }
            let api: L = match self.listen().await {
                Ok(api) => api?,
                // Another service on this machine may hold the address as long as it holds the store.
                Err(error) => {
                    tracing::warn!(
                        "this service does not answer probes while it waits for the state store: {error}; it tries to \
                         listen again when it owns the store"
                    );
                    return None;
                }
            };
            api.wait_for_store(why, async { stopped.await.unwrap_or_default() }).await;
            Some(api)
        };
        let opened = async {
            let store = self.open_store(&tell).await;
            drop((tell, stop));
            store
        };
        let (store, api) = tokio::join!(opened, told);
        Ok((store?, api))
    }

    /// Opens the store on a blocking thread, because a server or a disk may take long and signals must be handled
    /// meanwhile. Retries for as long as the settings allow, and sends the reason for each retry to `tell`.
    pub(super) async fn open_store(&self, tell: &watch::Sender<String>) -> Result<Store, ServiceError> {
        let begun = Instant::now();
        let mut logged: Option<(String, Instant)> = None;
        let mut failures = 0;
        loop {
            let (database, cluster) = (self.settings.database.clone(), self.settings.cluster.clone());
            let opened = tokio::task::spawn_blocking(move || match cluster {
                Some(cluster) => join(&cluster),
                None => Store::own(&database),
            })
            .await;
            let failed = |error| ServiceError::System { what: "open the store", error: std::io::Error::other(error) };
            let error = match opened.map_err(failed)? {
                Ok(store) => return Ok(store),
                Err(error) => error,
            };
            let left = self.settings.store_wait.saturating_sub(begun.elapsed());
            if left.is_zero() || !error.is_passing() {
                return Err(error.into());
            }
            let why = error.to_string();
            if logged.as_ref().is_none_or(|(before, at)| *before != why || at.elapsed() >= WAITING_LINE) {
                tracing::warn!("waiting for the state store: {why}");
                logged = Some((why.clone(), Instant::now()));
            }
            tell.send_if_modified(|before| std::mem::replace(before, why.clone()) != why);
            failures += 1;
            if matches!(error, OpenError::InUse { .. }) {
                // The owner releases the store at any time, and a question costs it nothing.
                failures = failures.min(MOST_WHILE_OWNED);
            }
            sleep(PAUSES.after(failures).min(left)).await;
        }
    }
}

/// Opens the store as a node of a cluster.
fn join(cluster: &ClusterSettings) -> Result<Store, OpenError> {
    let name = cluster.node.clone().unwrap_or_else(|| Owner::here().host);
    let url = cluster.address.as_deref().unwrap_or_default().into();
    let labels = cluster.labels.iter().map(|label| label.as_str().into()).collect();
    let announced = Announcement { name: name.into(), url, version: env!("CARGO_PKG_VERSION").into(), labels };
    Store::join(&cluster.database, announced)
}

/// Waits until this service has lost its store permanently. Returns the reason.
pub(super) async fn store_taken(holding: &mut watch::Receiver<StoreOwnership>) -> String {
    let taken = holding.wait_for(|holding| matches!(holding, StoreOwnership::Taken(_))).await;
    match taken.ok().and_then(|taken| taken.refusal().map(str::to_owned)) {
        Some(why) => why,
        None => pending().await,
    }
}
