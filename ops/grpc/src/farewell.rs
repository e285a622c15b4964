//! Notifies a plugin of the deletion of a connector.

use std::sync::Arc;

use anabranch_plugin::host::Host;
use anabranch_plugin::registry::{DeletionNotice, Role};
use anabranch_plugin::written::Written;
use anabranch_record::fault::Fault;
use async_trait::async_trait;

use crate::active::Active;
use crate::protocol;
use crate::session::{Plugin, Session};

/// Cleanup of deleted connectors of a plugin.
pub(crate) struct DeletedConnectors(pub(crate) Arc<Plugin>);

#[async_trait]
impl DeletionNotice for DeletedConnectors {
    fn has_stored(&self, active: &[u8]) -> bool {
        Active::decode(active).is_some_and(|active| *active.plugin() == *self.0.name)
    }

    async fn tell(
        &self,
        role: Role,
        active: &[u8],
        value: &(dyn for<'a> Fn(&'a str) -> Option<Written> + Send + Sync),
        host: &Host,
    ) -> Result<(), Fault> {
        let Some(active) = Active::decode(active) else { return Ok(()) };
        let config = active.values(|_, written| value(written).map(|value| value.value().to_string()));
        let role = match role {
            Role::Source => protocol::Role::Source,
            Role::Destination => protocol::Role::Destination,
        };
        // The process is not configured: the notification contains the settings.
        Session::start(self.0.clone(), role, host).await?.tell_deleted(config).await
    }
}
