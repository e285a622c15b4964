//! A kind of processor: its specification, and how its settings are read.

use std::sync::Arc;

use anabranch_graph::arguments::Arguments;
use anabranch_graph::diagnostic::{Diagnostic, Diagnostics};
use anabranch_graph::operator::{ConfiguredOperator, OperatorKind};
use anabranch_graph::specification::Specification;

/// Reads settings that passed the specification.
pub(crate) type Configure = fn(&Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics>;

/// A kind, for the registry.
pub(crate) fn kind(specification: Specification, configure: Configure) -> Arc<dyn OperatorKind> {
    Arc::new(Kind { specification, configure })
}

/// Something is wrong with a setting.
pub(crate) fn finding(arguments: &Arguments, name: &str, what: impl Into<String>) -> Diagnostic {
    Diagnostic::error("settings.invalid", what).with_span(arguments.span(name)).with_path(format!("/{name}"))
}

struct Kind {
    specification: Specification,
    configure: Configure,
}

impl OperatorKind for Kind {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
        (self.configure)(arguments)
    }
}
