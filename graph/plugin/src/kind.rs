//! Plugin kinds that consist of a specification and a function that reads the settings.

use std::sync::Arc;

use crate::arguments::Arguments;
use crate::destination::{Destination, DestinationKind};
use crate::diagnostic::Diagnostics;
use crate::operator::{ConfiguredOperator, OperatorKind};
use crate::source::{Source, SourceKind};
use crate::specification::Specification;

/// Creates a plugin from settings that match the specification; opens nothing.
pub type Configure<P> = fn(&Arguments) -> Result<Arc<P>, Diagnostics>;

/// Creates a kind of source.
pub fn source(specification: Specification, configure: Configure<dyn Source>) -> Arc<dyn SourceKind> {
    Arc::new(Kind { specification, configure })
}

/// Creates a kind of destination.
pub fn destination(specification: Specification, configure: Configure<dyn Destination>) -> Arc<dyn DestinationKind> {
    Arc::new(Kind { specification, configure })
}

/// Creates a kind of processor.
pub fn operator(specification: Specification, configure: Configure<dyn ConfiguredOperator>) -> Arc<dyn OperatorKind> {
    Arc::new(Kind { specification, configure })
}

struct Kind<P: ?Sized> {
    specification: Specification,
    configure: Configure<P>,
}

impl SourceKind for Kind<dyn Source> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        (self.configure)(arguments)
    }
}

impl DestinationKind for Kind<dyn Destination> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        (self.configure)(arguments)
    }
}

impl OperatorKind for Kind<dyn ConfiguredOperator> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
        (self.configure)(arguments)
    }
}
