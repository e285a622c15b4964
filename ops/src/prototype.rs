//! Inline processors without resources: configured once and cloned for each worker.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{BuiltOperator, ConfiguredOperator, Operator, OperatorKind, Signature};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;

/// An operator that is cloned for each worker.
pub(crate) trait Prototype: Operator + Clone + Send + Sync + 'static {
    /// Updates `flow` from the shape of the input records to that of the output; calls [`Flow::forget`] if it is
    /// unknown.
    fn flow(&self, flow: &mut Flow);
}

/// Builds an operator and its signature from validated arguments.
pub(crate) type Configure<O> = fn(&Arguments) -> Result<(Signature, O), Diagnostics>;

/// Creates a processor kind whose workers each get a clone of one prototype.
pub(crate) fn kind<O>(specification: Specification, configure: Configure<O>) -> Arc<dyn OperatorKind>
where
    O: Prototype,
{
    Arc::new(Kind { specification, configure })
}

struct Kind<O> {
    specification: Specification,
    configure: Configure<O>,
}

impl<O: Prototype> OperatorKind for Kind<O> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
        let (signature, operator) = (self.configure)(arguments)?;
        Ok(Arc::new(Configured { signature, operator }))
    }
}

struct Configured<O> {
    signature: Signature,
    operator: O,
}

impl<O: Prototype> ConfiguredOperator for Configured<O> {
    fn signature(&self) -> Signature {
        self.signature.clone()
    }

    fn flow(&self, flow: &mut Flow) {
        self.operator.flow(flow);
    }

    fn build(&self, _worker: usize, _host: &Host) -> Result<BuiltOperator, Fault> {
        Ok(BuiltOperator::Inline(Box::new(self.operator.clone())))
    }
}
