//! Registration of scripted sources and destinations and of closures under names for pipeline files.

use std::sync::Arc;

use super::destination::DownstreamDestination;
use super::source::UpstreamSource;
use super::{Downstream, Upstream};
use crate::arguments::Arguments;
use crate::destination::{Destination, DestinationKind};
use crate::diagnostic::Diagnostics;
use crate::operator::{Configured, OperatorKind};
use crate::parameters::shared;
use crate::registry::Registry;
use crate::source::{Source, SourceKind};
use crate::specification::Specification;

struct Kind<T> {
    specification: Specification,
    configured: T,
}

impl SourceKind for Kind<Arc<Upstream>> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(Arc::new(UpstreamSource(self.configured.clone())))
    }
}

impl DestinationKind for Kind<Arc<Downstream>> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(Arc::new(DownstreamDestination(self.configured.clone())))
    }
}

impl OperatorKind for Kind<Configured> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Configured, Diagnostics> {
        Ok(self.configured.clone())
    }
}

/// Registers `upstream` as the source plugin `name`.
pub fn add_source(registry: &mut Registry, name: &'static str, upstream: &Arc<Upstream>) {
    let specification = Specification::builtin(name, "Reads scripted rows.").with_all(shared::source());
    registry.add_source(Arc::new(Kind { specification, configured: upstream.clone() }));
}

/// Registers `shelf` as the destination plugin `name`.
pub fn add_destination(registry: &mut Registry, name: &'static str, shelf: &Arc<Downstream>) {
    let specification = Specification::builtin(name, "Stores records in memory.").with_all(shared::destination());
    registry.add_destination(Arc::new(Kind { specification, configured: shelf.clone() }));
}

/// Registers `operator` as the processor plugin `name`.
pub fn add_operator(registry: &mut Registry, name: &'static str, operator: &Configured) {
    let specification = Specification::builtin(name, "Calls a closure.").with_all(shared::processor());
    registry.add_operator(Arc::new(Kind { specification, configured: operator.clone() }));
}
