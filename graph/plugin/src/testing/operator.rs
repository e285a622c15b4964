//! Operators from closures.

use std::sync::{Arc, Mutex};

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use async_trait::async_trait;
use futures::future::BoxFuture;

use super::locked;
use crate::operator::{
    AsyncOperator, Built, BuiltAsync, BuiltInline, BuiltIsolate, Class, Configured, ConfiguredOperator, Decision,
    Operator, OperatorContext, Rows, Signature,
};

type ProcessFn = dyn FnMut(&mut Record) -> Result<Decision, Fault> + Send;

/// Creates an operator of any class that is built by `build` for each worker.
pub fn of_class<O: Operator + AsyncOperator + 'static>(
    class: Class,
    signature: Signature,
    build: impl Fn(&OperatorContext) -> Result<O, Fault> + Send + Sync + 'static,
) -> Configured {
    match class {
        Class::Inline => of_build::<BuiltInline>(signature, move |context| Ok(Box::new(build(context)?))),
        Class::Async => of_build::<BuiltAsync>(signature, move |context| Ok(Arc::new(build(context)?))),
        Class::Isolate => of_build::<BuiltIsolate>(signature, move |context| Ok(Box::new(build(context)?))),
    }
}

fn of_build<B: Built>(
    signature: Signature,
    build: impl Fn(&OperatorContext) -> Result<B, Fault> + Send + Sync + 'static,
) -> Configured {
    OfBuild { signature, build: Box::new(build) }.into()
}

type BuildFn<B> = dyn Fn(&OperatorContext) -> Result<B, Fault> + Send + Sync;

struct OfBuild<B> {
    signature: Signature,
    build: Box<BuildFn<B>>,
}

impl<B: Built> ConfiguredOperator for OfBuild<B> {
    type Built = B;

    fn signature(&self) -> Signature {
        self.signature.clone()
    }

    fn build(&self, context: &OperatorContext) -> Result<B, Fault> {
        (self.build)(context)
    }
}

#[derive(Clone)]
struct Closure(Arc<Mutex<ProcessFn>>);

/// Creates an inline operator. Its workers share the closure.
pub fn inline(step: impl FnMut(&mut Record) -> Result<Decision, Fault> + Send + 'static) -> Configured {
    let step = Closure(Arc::new(Mutex::new(step)));
    of_build::<BuiltInline>(Signature::new(), move |_| Ok(Box::new(step.clone())))
}

/// Creates an operator that is bound to a thread.
pub fn isolated(step: impl FnMut(&mut Record) -> Result<Decision, Fault> + Send + 'static) -> Configured {
    let step = Closure(Arc::new(Mutex::new(step)));
    of_build::<BuiltIsolate>(Signature::new(), move |_| Ok(Box::new(step.clone())))
}

impl Operator for Closure {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        let mut step = locked(&self.0);
        rows.for_each(&mut *step);
    }
}

/// Returns the decisions that keep all rows.
pub fn kept(rows: &[Record]) -> Vec<Decision> {
    rows.iter().map(|_| Decision::Keep).collect()
}

type Call = dyn for<'a> Fn(&'a mut [Record]) -> BoxFuture<'a, Vec<Decision>> + Send + Sync;

#[derive(Clone)]
struct Calls(Arc<Call>);

/// Creates an operator that waits.
pub fn asynchronous(
    call: impl for<'a> Fn(&'a mut [Record]) -> BoxFuture<'a, Vec<Decision>> + Send + Sync + 'static,
) -> Configured {
    let calls = Calls(Arc::new(call));
    of_build::<BuiltAsync>(Signature::new(), move |_| Ok(Arc::new(calls.clone())))
}

#[async_trait]
impl AsyncOperator for Calls {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        (self.0)(rows).await
    }
}
