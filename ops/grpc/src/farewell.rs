//! What a plugin is told when a connector is deleted.

use std::sync::Arc;

use anabranch_plugin::host::Host;
use anabranch_plugin::registry::{Farewell, Role};
use anabranch_plugin::written::Written;
use anabranch_record::fault::Fault;
use async_trait::async_trait;

use crate::active::Active;
use crate::protocol;
use crate::session::{Plugin, Session};

/// What connectors that used a plugin leave behind.
pub(crate) struct Left(pub(crate) Arc<Plugin>);

#[async_trait]
impl Farewell for Left {
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
        // Not configured: what it is told holds its settings.
        Session::start(self.0.clone(), role, host).await?.tell_deleted(config).await
    }
}
