//! Notification of plugins when a connector that used them is deleted. They may hold external resources for it, such as
//! a replication slot.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_plugin::host::{Host, Network};
use anabranch_plugin::registry::Role;
use anabranch_plugin::secret::MASKED_FROM;
use anabranch_plugin::state::{ActiveSettings as _, StoreError};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;
use anabranch_store::StoredConnector;
use bytes::Bytes;
use futures::future::join_all;
use tokio::time::timeout;

use crate::control::Control;
use crate::variables::value_of;

/// How long plugins may take. All are notified at the same time, and the request that deletes waits for them.
const PATIENCE: Duration = Duration::from_secs(20);

/// A deleted connector whose plugin is to be notified.
pub(super) struct DeletedConnector {
    connector: StoredConnector,
    /// The settings with which it was last active, as its plugin stored them.
    active: Bytes,
}

/// Result of notifying a plugin.
pub(super) struct Notification {
    /// The connector.
    pub(super) connector: Str,
    /// Reason why the notification failed, if it did.
    pub(super) warning: Option<String>,
}

impl Control {
    /// Returns those of the given connectors whose plugin was notified when they were created.
    pub(super) async fn to_notify(
        &self,
        pipeline: &Str,
        connectors: impl Iterator<Item = &StoredConnector>,
    ) -> Result<Vec<DeletedConnector>, StoreError> {
        let mut to_notify = Vec::new();
        let mut seen = BTreeSet::new();
        for connector in connectors.filter(|connector| seen.insert(&connector.id)) {
            if let Some(active) = self.shared().store.active(pipeline, &connector.id).await? {
                to_notify.push(DeletedConnector { connector: connector.clone(), active });
            }
        }
        Ok(to_notify)
    }

    /// Notifies the plugins of the connectors. A failure is logged and does not prevent the deletion.
    pub(super) async fn notify_deleted(&self, pipeline: &Str, connectors: Vec<DeletedConnector>) -> Vec<Notification> {
        let notified = join_all(connectors.into_iter().map(|deleted| async move {
            let id = deleted.connector.id.clone();
            let failed = self.notify(pipeline, deleted).await.err();
            let warning = failed.map(|reason| {
                let reason = self.shared().log.masked(&reason);
                format!("the plugin of connector {pipeline}:{id} was not notified of the deletion: {reason}")
            });
            Notification { connector: id, warning }
        }));
        let notified = notified.await;
        for warning in notified.iter().filter_map(|notification| notification.warning.as_ref()) {
            tracing::warn!(pipeline = %pipeline, "{warning}");
        }
        notified
    }

    /// Notifies the plugins after their connectors were set aside. Removes the positions of connectors whose plugin was
    /// notified, since the external resource is gone.
    pub(super) async fn notify_set_aside(&self, pipeline: &Str, connectors: Vec<DeletedConnector>) -> Vec<String> {
        let mut warnings = Vec::new();
        for Notification { connector, warning } in self.notify_deleted(pipeline, connectors).await {
            let forgotten = match &warning {
                None => self.shared().store.forget(pipeline, &connector).await,
                Some(_) => Ok(()),
            };
            if let Err(error) = forgotten {
                tracing::warn!(
                    pipeline = %pipeline, connector = %connector,
                    "the positions of the connector could not be removed: {error}"
                );
            }
            warnings.extend(warning);
        }
        warnings
    }

    async fn notify(
        &self,
        pipeline: &Str,
        DeletedConnector { connector, active }: DeletedConnector,
    ) -> Result<(), String> {
        let shared = self.shared();
        let (registry, reference, stored) = (shared.registry.clone(), connector.plugin.clone(), active.clone());
        // The look-up may start plugins.
        let found = tokio::task::spawn_blocking(move || registry.of_active(&reference, &stored).cloned()).await;
        let farewell = found.ok().flatten().and_then(|found| found.farewell);
        let farewell = farewell.ok_or_else(|| {
            format!(
                "{:?} is not installed. Resources that it has created elsewhere for the connector remain",
                connector.plugin.as_str()
            )
        })?;
        let host = Host {
            pipeline: pipeline.clone(),
            slot: 0,
            node: connector.id.clone(),
            log: shared.log.clone(),
            result_cache: std::sync::Arc::new(shared.store.clone()),
            active: std::sync::Arc::new(shared.store.clone()),
            schemas: shared.schemas.clone(),
            network: Network::Open,
        };
        let role = if connector.role == "source" { Role::Source } else { Role::Destination };
        let log = shared.log.clone();
        let value = move |written: &str| -> Option<Written> {
            let value = value_of(written);
            let secrets = value.iter().flat_map(Written::substituted).filter(|secret| secret.len() >= MASKED_FROM);
            log.mask(secrets.cloned());
            value
        };
        let executor = shared.executor.clone();
        // A plugin may block, and files with values are read: this must not run on the control runtime.
        let notified = tokio::task::spawn_blocking(move || {
            executor.block_on(async { timeout(PATIENCE, farewell.tell(role, &active, &value, &host)).await })
        });
        match notified.await {
            Ok(Ok(notified)) => notified.map_err(|fault| fault.to_string()),
            Ok(Err(_)) => Err(format!("it did not respond within {} s", PATIENCE.as_secs())),
            Err(_) => Err("it panicked".to_owned()),
        }
    }
}
