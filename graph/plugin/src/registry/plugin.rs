//! A plugin of any role, as a program registers it.

use std::sync::Arc;

use crate::destination::DestinationKind;
use crate::operator::OperatorKind;
use crate::source::SourceKind;
use crate::specification::Specification;

/// A plugin of any role.
#[derive(Clone)]
pub enum Plugin {
    /// Reads records.
    Source(Arc<dyn SourceKind>),
    /// Changes records.
    Processor(Arc<dyn OperatorKind>),
    /// Writes records.
    Destination(Arc<dyn DestinationKind>),
}

impl Plugin {
    /// Returns the name, documentation and parameters.
    pub fn specification(&self) -> &Specification {
        match self {
            Plugin::Source(kind) => kind.specification(),
            Plugin::Processor(kind) => kind.specification(),
            Plugin::Destination(kind) => kind.specification(),
        }
    }

    /// Returns the role, as messages print it: `source`, `processor` or `destination`.
    pub const fn role(&self) -> &'static str {
        match self {
            Plugin::Source(_) => "source",
            Plugin::Processor(_) => "processor",
            Plugin::Destination(_) => "destination",
        }
    }
}

impl From<Arc<dyn SourceKind>> for Plugin {
    fn from(kind: Arc<dyn SourceKind>) -> Self {
        Plugin::Source(kind)
    }
}

impl From<Arc<dyn OperatorKind>> for Plugin {
    fn from(kind: Arc<dyn OperatorKind>) -> Self {
        Plugin::Processor(kind)
    }
}

impl From<Arc<dyn DestinationKind>> for Plugin {
    fn from(kind: Arc<dyn DestinationKind>) -> Self {
        Plugin::Destination(kind)
    }
}
