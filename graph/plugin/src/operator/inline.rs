//! Processors that compute, as one type.

use super::{BuiltInline, Configured, ConfiguredOperator, Operator, OperatorContext, Rows, Signature};
use crate::diagnostic::Diagnostics;
use crate::flow::Flow;
use crate::parameters::Parameters;
use crate::specification::Specification;
use anabranch_record::fault::Fault;

/// A processor that computes, without other resources. It is configured once, and each worker gets a clone.
///
/// [`kind::inline`](crate::kind::inline) makes it a kind of processor.
pub trait InlineOperator: Clone + Send + Sync + 'static {
    /// The parameters.
    type Parameters: Parameters + 'static;

    /// Returns the name and documentation, and the parameters that the executor implements.
    fn specification() -> Specification;

    /// Checks settings across several parameters and creates the processor.
    ///
    /// # Errors
    /// All findings, with the places of the settings.
    fn configure(parameters: Self::Parameters) -> Result<Self, Diagnostics>;

    /// Returns the properties that the compiler uses: [`Signature::new`], narrowed.
    fn signature(&self) -> Signature;

    /// Applies the effect of the processor to the record shape in `flow` and reports problems. By default, the output is
    /// unknown.
    fn flow(&self, flow: &mut Flow) {
        flow.forget();
    }

    /// Processes the selected rows of a strip; see [`Operator::process`].
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext);

    /// Returns the processor for a plan.
    fn configured(self) -> Configured {
        Inline(self).into()
    }
}

struct Inline<O>(O);

impl<O: InlineOperator> ConfiguredOperator for Inline<O> {
    type Built = BuiltInline;

    fn signature(&self) -> Signature {
        self.0.signature()
    }

    fn flow(&self, flow: &mut Flow) {
        self.0.flow(flow);
    }

    fn build(&self, _: &OperatorContext) -> Result<BuiltInline, Fault> {
        Ok(Box::new(Worker(self.0.clone())))
    }
}

struct Worker<O>(O);

impl<O: InlineOperator> Operator for Worker<O> {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        self.0.process(rows, context);
    }
}
