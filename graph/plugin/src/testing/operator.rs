//! Operators from closures.

use std::sync::{Arc, Mutex};

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use async_trait::async_trait;
use futures::future::BoxFuture;

use super::locked;
use crate::host::Host;
use crate::operator::{
    AsyncOperator, BuiltOperator, Class, ConfiguredOperator, Decision, Operator, Rows, Signature, Verdict,
};

type ProcessFn = dyn FnMut(&mut Record) -> Result<Decision, Fault> + Send;

struct Closure {
    class: Class,
    step: Arc<Mutex<ProcessFn>>,
}

/// Creates an inline operator. Its workers share the closure.
pub fn inline(
    step: impl FnMut(&mut Record) -> Result<Decision, Fault> + Send + 'static,
) -> Arc<dyn ConfiguredOperator> {
    Arc::new(Closure { class: Class::Inline, step: Arc::new(Mutex::new(step)) })
}

/// Creates an operator that is bound to a thread.
pub fn isolated(
    step: impl FnMut(&mut Record) -> Result<Decision, Fault> + Send + 'static,
) -> Arc<dyn ConfiguredOperator> {
    Arc::new(Closure { class: Class::Isolate, step: Arc::new(Mutex::new(step)) })
}

impl ConfiguredOperator for Closure {
    fn signature(&self) -> Signature {
        Signature { class: self.class, ..Signature::inline() }
    }

    fn build(&self, _: usize, _: &Host) -> Result<BuiltOperator, Fault> {
        let step = Calling { step: self.step.clone() };
        Ok(match self.class {
            Class::Isolate => BuiltOperator::Isolate(Box::new(step)),
            Class::Inline | Class::Async => BuiltOperator::Inline(Box::new(step)),
        })
    }
}

struct Calling {
    step: Arc<Mutex<ProcessFn>>,
}

impl Operator for Calling {
    fn process(&mut self, rows: &mut Rows<'_>) {
        let mut step = locked(&self.step);
        rows.for_each(&mut *step);
    }
}

type Call = dyn Fn(Vec<Record>) -> BoxFuture<'static, Vec<Verdict>> + Send + Sync;

struct Calls(Arc<Call>);

/// Creates an operator that waits.
pub fn asynchronous(
    call: impl Fn(Vec<Record>) -> BoxFuture<'static, Vec<Verdict>> + Send + Sync + 'static,
) -> Arc<dyn ConfiguredOperator> {
    Arc::new(Calls(Arc::new(call)))
}

impl ConfiguredOperator for Calls {
    fn signature(&self) -> Signature {
        Signature { class: Class::Async, ..Signature::inline() }
    }

    fn build(&self, _: usize, _: &Host) -> Result<BuiltOperator, Fault> {
        Ok(BuiltOperator::Async(Arc::new(Calls(self.0.clone()))))
    }
}

#[async_trait]
impl AsyncOperator for Calls {
    async fn call(&self, rows: Vec<Record>) -> Vec<Verdict> {
        (self.0)(rows).await
    }
}
