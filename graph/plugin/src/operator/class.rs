//! The class of an operator, which the type of what [`ConfiguredOperator::build`] returns says.

use std::sync::Arc;
use std::time::Duration;

use anabranch_record::fault::Fault;

use super::{AsyncOperator, ConfiguredOperator, Operator, OperatorContext, Signature};
use crate::flow::Flow;

/// Execution class of an operator.
///
/// The engine treats each class differently, so the enum is exhaustive: a further class needs a place in the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Computes and returns: fused with adjacent operators into one future.
    Inline,
    /// Waits for external systems: several batches in flight, in order.
    Async,
    /// Has state that is bound to one thread: runs on a thread of its own.
    Isolate,
}

/// An opened operator of [`Class::Inline`].
pub type BuiltInline = Box<dyn Operator + Send>;

/// An opened operator of [`Class::Isolate`]. It stays on the thread that built it.
pub type BuiltIsolate = Box<dyn Operator>;

/// An opened operator of [`Class::Async`].
pub type BuiltAsync = Arc<dyn AsyncOperator>;

/// The types that an operator can be built as: [`BuiltInline`], [`BuiltAsync`] and [`BuiltIsolate`].
pub trait Built: sealed::Built {}

impl<B: sealed::Built> Built for B {}

mod sealed {
    use std::sync::Arc;

    use super::{BuiltAsync, BuiltInline, BuiltIsolate, Configured, ConfiguredOperator, Layer};
    use super::{Fault, OperatorContext};

    pub trait Built: Sized + 'static {
        fn configured(operator: Arc<dyn ConfiguredOperator<Built = Self>>) -> Configured;

        fn layered<L: Layer>(
            layer: &L,
            inner: &dyn ConfiguredOperator<Built = Self>,
            context: &OperatorContext,
        ) -> Result<Self, Fault>;
    }

    impl Built for BuiltInline {
        fn configured(operator: Arc<dyn ConfiguredOperator<Built = Self>>) -> Configured {
            Configured::Inline(operator)
        }

        fn layered<L: Layer>(
            layer: &L,
            inner: &dyn ConfiguredOperator<Built = Self>,
            context: &OperatorContext,
        ) -> Result<Self, Fault> {
            layer.inline(inner, context)
        }
    }

    impl Built for BuiltIsolate {
        fn configured(operator: Arc<dyn ConfiguredOperator<Built = Self>>) -> Configured {
            Configured::Isolate(operator)
        }

        fn layered<L: Layer>(
            layer: &L,
            inner: &dyn ConfiguredOperator<Built = Self>,
            context: &OperatorContext,
        ) -> Result<Self, Fault> {
            layer.isolate(inner, context)
        }
    }

    impl Built for BuiltAsync {
        fn configured(operator: Arc<dyn ConfiguredOperator<Built = Self>>) -> Configured {
            Configured::Async(operator)
        }

        fn layered<L: Layer>(
            layer: &L,
            inner: &dyn ConfiguredOperator<Built = Self>,
            context: &OperatorContext,
        ) -> Result<Self, Fault> {
            layer.asynchronous(inner, context)
        }
    }
}

/// A configured processor of any class. The plan contains it. Cloning is O(1).
///
/// Every [`ConfiguredOperator`] converts into it. The engine matches it, and a variant is a class, so it is exhaustive.
#[derive(Clone)]
pub enum Configured {
    /// A processor of [`Class::Inline`].
    Inline(Arc<dyn ConfiguredOperator<Built = BuiltInline>>),
    /// A processor of [`Class::Async`].
    Async(Arc<dyn ConfiguredOperator<Built = BuiltAsync>>),
    /// A processor of [`Class::Isolate`].
    Isolate(Arc<dyn ConfiguredOperator<Built = BuiltIsolate>>),
}

impl<O: ConfiguredOperator> From<O> for Configured {
    fn from(operator: O) -> Self {
        <O::Built as sealed::Built>::configured(Arc::new(operator))
    }
}

impl Configured {
    /// Returns the class.
    pub fn class(&self) -> Class {
        match self {
            Configured::Inline(_) => Class::Inline,
            Configured::Async(_) => Class::Async,
            Configured::Isolate(_) => Class::Isolate,
        }
    }

    /// See [`ConfiguredOperator::signature`].
    pub fn signature(&self) -> Signature {
        match self {
            Configured::Inline(operator) => operator.signature(),
            Configured::Async(operator) => operator.signature(),
            Configured::Isolate(operator) => operator.signature(),
        }
    }

    /// See [`ConfiguredOperator::flow`].
    pub fn flow(&self, flow: &mut Flow) {
        match self {
            Configured::Inline(operator) => operator.flow(flow),
            Configured::Async(operator) => operator.flow(flow),
            Configured::Isolate(operator) => operator.flow(flow),
        }
    }

    /// See [`ConfiguredOperator::patience`].
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Configured::Inline(operator) => operator.patience(),
            Configured::Async(operator) => operator.patience(),
            Configured::Isolate(operator) => operator.patience(),
        }
    }

    /// Returns the processor with a layer around its opened operators. Its class stays the same.
    #[must_use]
    pub fn layered(self, layer: impl Layer) -> Configured {
        match self {
            Configured::Inline(inner) => Layered { inner, layer }.into(),
            Configured::Async(inner) => Layered { inner, layer }.into(),
            Configured::Isolate(inner) => Layered { inner, layer }.into(),
        }
    }
}

/// A wrapper of operators of every class.
///
/// A method for a class opens the inner operator with [`ConfiguredOperator::build`] and returns it wrapped, as it is, or
/// another one in its place.
pub trait Layer: Send + Sync + 'static {
    /// Opens an operator of [`Class::Inline`].
    ///
    /// # Errors
    /// Those of the inner operator.
    fn inline(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltInline>,
        context: &OperatorContext,
    ) -> Result<BuiltInline, Fault>;

    /// Opens an operator of [`Class::Isolate`].
    ///
    /// # Errors
    /// Those of the inner operator.
    fn isolate(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltIsolate>,
        context: &OperatorContext,
    ) -> Result<BuiltIsolate, Fault>;

    /// Opens an operator of [`Class::Async`].
    ///
    /// # Errors
    /// Those of the inner operator.
    fn asynchronous(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltAsync>,
        context: &OperatorContext,
    ) -> Result<BuiltAsync, Fault>;

    /// Returns the properties of the wrapped operator, from those of the inner one.
    fn signature(&self, inner: Signature) -> Signature {
        inner
    }

    /// Applies the effect of the wrapped operator to the record shape in `flow`. `inner` applies that of the inner
    /// operator.
    fn flow(&self, flow: &mut Flow, inner: &dyn Fn(&mut Flow)) {
        inner(flow);
    }
}

struct Layered<B, L> {
    inner: Arc<dyn ConfiguredOperator<Built = B>>,
    layer: L,
}

impl<B: Built, L: Layer> ConfiguredOperator for Layered<B, L> {
    type Built = B;

    fn signature(&self) -> Signature {
        self.layer.signature(self.inner.signature())
    }

    fn flow(&self, flow: &mut Flow) {
        self.layer.flow(flow, &|flow| self.inner.flow(flow));
    }

    fn patience(&self) -> Option<Duration> {
        self.inner.patience()
    }

    fn build(&self, context: &OperatorContext) -> Result<B, Fault> {
        B::layered(&self.layer, &*self.inner, context)
    }
}
