//! Plugin kinds that consist of a specification, a struct of parameters and a function that checks its values.
//!
//! The parameters of the struct come before those that the specification has already, for example those of
//! [`shared`](crate::parameters::shared).

use std::marker::PhantomData;
use std::sync::Arc;

use crate::arguments::Arguments;
use crate::destination::{Destination, DestinationKind};
use crate::diagnostic::Diagnostics;
use crate::operator::{Configured, InlineOperator, OperatorKind};
use crate::parameters::{Parameters, declared};
use crate::source::{Source, SourceKind};
use crate::specification::Specification;

/// Creates a kind of source. `configure` creates it from the values of its parameters; it opens nothing.
pub fn source<P, F>(specification: Specification, configure: F) -> Arc<dyn SourceKind>
where
    P: Parameters + 'static,
    F: Fn(P) -> Result<Arc<dyn Source>, Diagnostics> + Send + Sync + 'static,
{
    Arc::new(Kind::new(specification, configure, false))
}

/// Creates a kind of destination. `configure` creates it from the values of its parameters; it opens nothing.
pub fn destination<P, F>(specification: Specification, configure: F) -> Arc<dyn DestinationKind>
where
    P: Parameters + 'static,
    F: Fn(P) -> Result<Arc<dyn Destination>, Diagnostics> + Send + Sync + 'static,
{
    Arc::new(Kind::new(specification, configure, false))
}

/// Creates a kind of destination for dead letters only.
pub fn dead_letter_queue<P, F>(specification: Specification, configure: F) -> Arc<dyn DestinationKind>
where
    P: Parameters + 'static,
    F: Fn(P) -> Result<Arc<dyn Destination>, Diagnostics> + Send + Sync + 'static,
{
    Arc::new(Kind::new(specification, configure, true))
}

/// Creates a kind of processor. `configure` creates it from the values of its parameters; it opens nothing. It returns a
/// [`ConfiguredOperator`](crate::operator::ConfiguredOperator), or [`Configured`] if its class depends on settings.
pub fn operator<P, O, F>(specification: Specification, configure: F) -> Arc<dyn OperatorKind>
where
    P: Parameters + 'static,
    O: Into<Configured> + 'static,
    F: Fn(P) -> Result<O, Diagnostics> + Send + Sync + 'static,
{
    Arc::new(Kind::new(specification, move |parameters: P| configure(parameters).map(Into::into), false))
}

/// Creates the kind of a processor that computes.
pub fn inline<O: InlineOperator>() -> Arc<dyn OperatorKind> {
    operator(O::specification(), |parameters: O::Parameters| Ok(O::configure(parameters)?.configured()))
}

struct Kind<P, F> {
    specification: Specification,
    configure: F,
    takes_only_letters: bool,
    parameters: PhantomData<fn(P)>,
}

impl<P: Parameters, F> Kind<P, F> {
    fn new(mut specification: Specification, configure: F, takes_only_letters: bool) -> Self {
        specification.parameters.splice(0..0, declared::<P>());
        Kind { specification, configure, takes_only_letters, parameters: PhantomData }
    }
}

impl<P, F> SourceKind for Kind<P, F>
where
    P: Parameters,
    F: Fn(P) -> Result<Arc<dyn Source>, Diagnostics> + Send + Sync,
{
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        (self.configure)(arguments.read()?)
    }
}

impl<P, F> DestinationKind for Kind<P, F>
where
    P: Parameters,
    F: Fn(P) -> Result<Arc<dyn Destination>, Diagnostics> + Send + Sync,
{
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        (self.configure)(arguments.read()?)
    }

    fn takes_only_letters(&self) -> bool {
        self.takes_only_letters
    }
}

impl<P, F> OperatorKind for Kind<P, F>
where
    P: Parameters,
    F: Fn(P) -> Result<Configured, Diagnostics> + Send + Sync,
{
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Configured, Diagnostics> {
        (self.configure)(arguments.read()?)
    }
}
