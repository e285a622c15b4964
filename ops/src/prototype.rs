//! Inline processors without resources: configured once, cloned for each worker.

use std::sync::Arc;

use anabranch_graph::arguments::Arguments;
use anabranch_graph::diagnostic::Diagnostics;
use anabranch_graph::fault::Fault;
use anabranch_graph::operator::{BuiltOperator, ConfiguredOperator, Host, Operator, OperatorKind, Signature};
use anabranch_graph::specification::Specification;

/// Makes an operator and its signature from settings that passed the specification.
pub(crate) type Configure<O> = fn(&Arguments) -> Result<(Signature, O), Diagnostics>;

/// A kind of processor of which every worker gets a copy of one prototype.
pub(crate) fn kind<O>(specification: Specification, configure: Configure<O>) -> Arc<dyn OperatorKind>
where
    O: Operator + Clone + Send + Sync + 'static,
{
    Arc::new(Kind { specification, configure })
}

struct Kind<O> {
    specification: Specification,
    configure: Configure<O>,
}

impl<O: Operator + Clone + Send + Sync + 'static> OperatorKind for Kind<O> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
        let (signature, operator) = (self.configure)(arguments)?;
        Ok(Arc::new(Prototype { signature, operator }))
    }
}

struct Prototype<O> {
    signature: Signature,
    operator: O,
}

impl<O: Operator + Clone + Send + Sync + 'static> ConfiguredOperator for Prototype<O> {
    fn signature(&self) -> Signature {
        self.signature.clone()
    }

    fn build(&self, _worker: usize, _host: &Host) -> Result<BuiltOperator, Fault> {
        Ok(BuiltOperator::Inline(Box::new(self.operator.clone())))
    }
}
