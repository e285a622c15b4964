//! The parts of the service that the API uses.

use anabranch_plugin::registry::Registry;
use anabranch_service::control::Control;
use anabranch_service::inputs::InputPlaces;
use anabranch_service::listener::Served;
use anabranch_store::Store;

use crate::peers::Peers;
use crate::sessions::Sessions;

/// The parts of the service that the API uses.
pub(crate) struct View {
    /// The state store.
    pub(crate) store: Store,
    /// The plugin registry.
    pub(crate) registry: Registry,
    /// The handle for requests to pipelines.
    pub(crate) control: Control,
    /// Open inspections.
    pub(crate) sessions: Sessions,
    /// The other nodes of the cluster; `None` if the service runs alone.
    pub(crate) peers: Option<Peers>,
    /// The places of the inputs that the nodes of a cluster compare.
    pub(crate) inputs: InputPlaces,
}

impl View {
    /// Creates a view without open inspections.
    pub(crate) fn new(Served { store, registry, control, inputs, .. }: Served, peers: Option<Peers>) -> Self {
        View { store, registry, control, sessions: Sessions::default(), peers, inputs }
    }
}
