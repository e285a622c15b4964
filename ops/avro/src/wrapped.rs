//! Processors that wrap others.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::{Configured, OperatorKind};
use anabranch_plugin::parameters::shared::Recoding;
use anabranch_plugin::specification::Specification;

/// Returns the kind with each configured processor wrapped by `wrap`, which receives its settings for schemas.
pub(crate) fn wrapped(
    kind: Arc<dyn OperatorKind>,
    wrap: impl Fn(Configured, &Recoding) -> Configured + Send + Sync + 'static,
) -> Arc<dyn OperatorKind> {
    Arc::new(Wrapped { kind, wrap })
}

struct Wrapped<W> {
    kind: Arc<dyn OperatorKind>,
    wrap: W,
}

impl<W> OperatorKind for Wrapped<W>
where
    W: Fn(Configured, &Recoding) -> Configured + Send + Sync,
{
    fn specification(&self) -> &Specification {
        self.kind.specification()
    }

    fn configure(&self, arguments: &Arguments) -> Result<Configured, Diagnostics> {
        Ok((self.wrap)(self.kind.configure(arguments)?, &arguments.read()?))
    }
}
