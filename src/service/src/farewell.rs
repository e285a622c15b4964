//! Notification of plugins when a connector that used them is deleted. They may hold external resources for it, such as
//! a replication slot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::plan::stage::StageKind;
use anabranch_plugin::host::{Host, Network};
use anabranch_plugin::registry::Role;
use anabranch_plugin::secret::MASKED_FROM;
use anabranch_plugin::source::Source;
use anabranch_plugin::state::{ActiveSettings as _, DiscardingState, Slots, StoreError};
use anabranch_plugin::written::Written;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use anabranch_store::{StoredConnector, StoredPipeline, StoredProcessor};
use bytes::Bytes;
use futures::future::join_all;
use tokio::time::timeout;

use crate::control::Control;
use crate::document::Read;
use crate::variables::value_of;

/// How long plugins may take. All are notified at the same time, and the request that deletes waits for them.
const PATIENCE: Duration = Duration::from_secs(20);

/// A deleted connector whose plugin is to be notified.
pub(super) struct DeletedConnector {
    connector: StoredConnector,
    plugin: NotifiedPlugin,
}

/// The plugin of a deleted connector.
enum NotifiedPlugin {
    /// A program of its own, with the settings with which the connector was last active, as the plugin stored them.
    Program(Bytes),
    /// A source of this program with the last marks of the connector, or the reason why its settings cannot be used.
    BuiltIn(Result<Arc<dyn Source>, String>, BTreeMap<Partition, Mark>),
}

/// Result of notifying a plugin.
pub(super) struct Notification {
    /// The connector.
    pub(super) connector: Str,
    /// True if the external resource is gone, so that the positions of the connector are of no use.
    is_released: bool,
    /// Reason why the notification failed, if it did.
    pub(super) warning: Option<String>,
}

/// The destination beside a source that is compiled alone.
const PLACEHOLDER: &str = "log";

impl Control {
    /// Returns those of the given connectors of a pipeline whose plugin was notified when they were created, and the sources
    /// that have read.
    pub(super) async fn to_notify(
        &self,
        pipeline: &StoredPipeline,
        connectors: impl Iterator<Item = &StoredConnector>,
    ) -> Result<Vec<DeletedConnector>, StoreError> {
        let (shared, id) = (self.shared(), &pipeline.id);
        let mut to_notify = Vec::new();
        let mut seen = BTreeSet::new();
        for connector in connectors.filter(|connector| seen.insert(&connector.id)) {
            if let Some(active) = shared.store.active(id, &connector.id).await? {
                to_notify
                    .push(DeletedConnector { connector: connector.clone(), plugin: NotifiedPlugin::Program(active) });
                continue;
            }
            if !connector.is_source() {
                continue;
            }
            let stored = shared.store.positions(id).await?.into_iter().chain(shared.store.detached_marks(id).await?);
            let marks = stored.filter(|(lane, _)| lane.connector == connector.id);
            let marks: BTreeMap<Partition, Mark> = marks.map(|(lane, mark)| (lane.partition, mark)).collect();
            if !marks.is_empty() {
                let plugin = NotifiedPlugin::BuiltIn(self.built_in(pipeline, connector).await, marks);
                to_notify.push(DeletedConnector { connector: connector.clone(), plugin });
            }
        }
        Ok(to_notify)
    }

    /// Returns a built-in source with its stored settings. The rest of its pipeline may have errors.
    async fn built_in(
        &self,
        pipeline: &StoredPipeline,
        connector: &StoredConnector,
    ) -> Result<Arc<dyn Source>, String> {
        let source = StoredConnector { processors: Vec::new(), ..connector.clone() };
        let destination = StoredConnector {
            id: format!("{}-{PLACEHOLDER}", connector.id).into(),
            role: "destination".into(),
            plugin: PLACEHOLDER.into(),
            name: PLACEHOLDER.into(),
            condition: None,
            settings: Vec::new(),
            processors: Vec::new(),
        };
        let processors: Vec<StoredProcessor> = Vec::new();
        let connectors = vec![source, destination];
        let alone = StoredPipeline { connectors, processors, unmatched: None, ..pipeline.clone() };
        let read = Read::stored(self.shared(), &alone).await.map_err(|error| error.to_string())?;
        let why = read.errors().next().map(|finding| finding.message.clone()).unwrap_or_default();
        let compiled = read.into_pipeline().ok_or(why)?;
        let of_source = compiled.compiled.stages.stages.iter().find_map(|stage| match &stage.kind {
            StageKind::Read(read) => Some(read.source.clone()),
            _ => None,
        });
        of_source.ok_or_else(|| "it has no source".to_owned())
    }

    /// Notifies the plugins of the connectors. A failure is logged and does not prevent the deletion.
    pub(super) async fn notify_deleted(&self, pipeline: &Str, connectors: Vec<DeletedConnector>) -> Vec<Notification> {
        let notified = join_all(connectors.into_iter().map(|deleted| async move {
            let DeletedConnector { connector, plugin } = deleted;
            let id = connector.id.clone();
            let (what, notified) = match plugin {
                NotifiedPlugin::Program(active) => {
                    let notified = self.notify(pipeline, connector, active).await.map(|()| true);
                    ("was not notified of the deletion", notified)
                }
                NotifiedPlugin::BuiltIn(source, marks) => {
                    ("could not remove what it has created elsewhere", self.release(source, marks).await)
                }
            };
            let is_released = matches!(notified, Ok(true));
            let warning = notified.err().map(|reason| {
                let reason = self.shared().log.masked(&reason);
                format!("the plugin of connector {pipeline}:{id} {what}: {reason}")
            });
            Notification { connector: id, is_released, warning }
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
        for Notification { connector, is_released, warning } in self.notify_deleted(pipeline, connectors).await {
            let forgotten = match is_released {
                true => self.shared().store.forget(pipeline, &connector).await,
                false => Ok(()),
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

    /// Has a built-in source remove what it has created elsewhere. Returns `true` if it has.
    async fn release(
        &self,
        source: Result<Arc<dyn Source>, String>,
        marks: BTreeMap<Partition, Mark>,
    ) -> Result<bool, String> {
        let source = source?;
        // Its connections belong to the runtime of the pipelines.
        let released = self.shared().executor.spawn(async move { timeout(PATIENCE, source.deleted(&marks)).await });
        match released.await {
            Ok(Ok(released)) => released.map_err(|fault| fault.to_string()),
            Ok(Err(_)) => Err(format!("it did not respond within {} s", PATIENCE.as_secs())),
            Err(_) => Err("it panicked".to_owned()),
        }
    }

    async fn notify(&self, pipeline: &Str, connector: StoredConnector, active: Bytes) -> Result<(), String> {
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
            slots: Slots::WHOLE,
            node: connector.id.clone(),
            log: shared.log.clone(),
            result_cache: std::sync::Arc::new(shared.store.clone()),
            active: std::sync::Arc::new(shared.store.clone()),
            marks: std::sync::Arc::new(DiscardingState),
            schemas: shared.schemas.clone(),
            network: Network::Open,
            shared: None,
            once: false,
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
