//! Standalone connectors: separate programs, found when the first reference needs one.

use std::sync::{Arc, OnceLock};

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use async_trait::async_trait;

use super::ResolveError;
use crate::destination::DestinationKind;
use crate::host::Host;
use crate::registry::Role;
use crate::source::SourceKind;
use crate::specification::Specification;
use crate::written::Written;

/// A version of a standalone connector, with its roles.
#[derive(Clone)]
pub struct StandaloneConnector {
    /// The source, if it has this role.
    pub source: Option<Arc<dyn SourceKind>>,
    /// The destination, if it has this role.
    pub destination: Option<Arc<dyn DestinationKind>>,
    /// The notification about deleted connectors, if the plugin supports it.
    pub farewell: Option<Arc<dyn DeletionNotice>>,
}

/// Notifies a plugin that a connector which used it is deleted: the plugin may hold external resources for it.
#[async_trait]
pub trait DeletionNotice: Send + Sync {
    /// Returns `true` if this plugin, in any version, stored `active` with
    /// [`ActiveSettings::set_active`](crate::state::ActiveSettings::set_active).
    fn has_stored(&self, active: &[u8]) -> bool;

    /// Notifies the plugin that the connector of `host` is deleted. The connector was last active with the settings in
    /// `active`. `value` returns the current value of a text in a file; settings without one are omitted.
    ///
    /// # Errors
    /// The plugin cannot be started, or fails.
    async fn tell(
        &self,
        role: Role,
        active: &[u8],
        value: &(dyn for<'a> Fn(&'a str) -> Option<Written> + Send + Sync),
        host: &Host,
    ) -> Result<(), Fault>;
}

impl StandaloneConnector {
    /// Returns the name and version, which are the same in every role. `None` if it has no role.
    pub fn specification(&self) -> Option<&Specification> {
        let source = self.source.as_ref().map(|kind| kind.specification());
        source.or_else(|| self.destination.as_ref().map(|kind| kind.specification()))
    }
}

type Load = dyn Fn() -> Vec<StandaloneConnector> + Send + Sync;

/// The loader of standalone connectors and its result. Loading starts programs, so it happens once and only on demand.
pub(super) struct Standalone {
    load: Box<Load>,
    found: OnceLock<Vec<StandaloneConnector>>,
}

impl Standalone {
    pub(super) fn new(load: impl Fn() -> Vec<StandaloneConnector> + Send + Sync + 'static) -> Self {
        Standalone { load: Box::new(load), found: OnceLock::new() }
    }

    pub(super) fn connectors(&self) -> &[StandaloneConnector] {
        self.found.get_or_init(|| (self.load)())
    }

    /// Returns the connector that stored `active`: the version that the reference requests, otherwise the latest.
    pub(super) fn of_active(&self, reference: &str, active: &[u8]) -> Option<&StandaloneConnector> {
        let asked = reference.split_once('@').map(|(_, version)| version.trim_start_matches('v'));
        let is_asked = |connector: &&StandaloneConnector| {
            let version = connector.specification().map(|specification| specification.version.trim_start_matches('v'));
            asked.is_some() && version == asked
        };
        let own = || {
            let has =
                |connector: &&StandaloneConnector| connector.farewell.as_ref().is_some_and(|f| f.has_stored(active));
            self.connectors().iter().filter(has)
        };
        own().find(is_asked).or_else(|| own().next_back())
    }

    /// Returns the connector for a reference and a role. `None` if no connector has the name or the reference is
    /// limited to built-in ones; an inner error if it does not have the version or the role.
    pub(super) fn resolve<'a, K: ?Sized>(
        &'a self,
        reference: &str,
        wanted: &'static str,
        role: impl Fn(&'a StandaloneConnector) -> Option<&'a Arc<K>>,
    ) -> Option<Result<&'a Arc<K>, ResolveError>> {
        let (prefix, rest) = reference.split_once(':').unwrap_or(("any", reference));
        if !matches!(prefix, "any" | "standalone") {
            return None;
        }
        let (name, asked) = rest.split_once('@').unwrap_or((rest, "latest"));
        let named: Vec<(&StandaloneConnector, &Str)> = self
            .connectors()
            .iter()
            .filter_map(|connector| Some((connector, connector.specification()?)))
            .filter(|(_, specification)| specification.name == *name)
            .map(|(connector, specification)| (connector, &specification.version))
            .collect();
        let plain = |version: &str| version.trim_start_matches('v').to_owned();
        let (latest, _) = named.last()?;
        let found = match asked {
            "latest" => Some(*latest),
            asked => named.iter().find(|(_, version)| plain(version) == plain(asked)).map(|(connector, _)| *connector),
        };
        let Some(found) = found else {
            let versions: Vec<&str> = named.iter().map(|(_, version)| version.as_str()).collect();
            return Some(Err(ResolveError::WrongVersion {
                name: name.into(),
                wanted: asked.into(),
                found: versions.join(", ").into(),
            }));
        };
        Some(role(found).ok_or_else(|| {
            let roles = match found.source {
                Some(_) => "a source",
                None => "a destination",
            };
            ResolveError::WrongRole { name: name.into(), wanted, roles: roles.to_owned() }
        }))
    }
}
