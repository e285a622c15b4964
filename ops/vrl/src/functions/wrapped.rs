//! Functions of the library, with limits and with the log of the service.

use vrl::compiler::prelude::*;
use vrl::path::OwnedTargetPath;

use super::decompression::Compression;
use super::limits::MostBytes;
use crate::weight::weight;

/// Returns the function with a limit of the memory that it takes, if it can make a large value of a small one, and `log` with
/// the log of the service.
pub(super) fn limited(inner: Box<dyn Function>) -> Box<dyn Function> {
    let compile = match (Compression::of_function(inner.identifier()), inner.identifier()) {
        (Some(compression), _) => Limit::Decompression(compression),
        (None, "unnest") => Limit::Copies,
        (None, "log") => Limit::Lines,
        _ => return inner,
    };
    Box::new(Limited { inner, limit: compile })
}

/// The limit of a function.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// The size of its result.
    Decompression(Compression),
    /// The size of all copies of an object, one per element of a list in it.
    Copies,
    /// The lines go to the log of the service.
    Lines,
}

#[derive(Debug)]
struct Limited {
    inner: Box<dyn Function>,
    limit: Limit,
}

impl Function for Limited {
    fn identifier(&self) -> &'static str {
        self.inner.identifier()
    }

    fn summary(&self) -> &'static str {
        self.inner.summary()
    }

    fn usage(&self) -> &'static str {
        self.inner.usage()
    }

    fn category(&self) -> &'static str {
        self.inner.category()
    }

    fn internal_failure_reasons(&self) -> &'static [&'static str] {
        self.inner.internal_failure_reasons()
    }

    fn return_kind(&self) -> u16 {
        self.inner.return_kind()
    }

    fn return_rules(&self) -> &'static [&'static str] {
        self.inner.return_rules()
    }

    fn notices(&self) -> &'static [&'static str] {
        self.inner.notices()
    }

    fn pure(&self) -> bool {
        self.inner.pure()
    }

    fn parameters(&self) -> &'static [Parameter] {
        self.inner.parameters()
    }

    fn examples(&self) -> &'static [Example] {
        self.inner.examples()
    }

    fn compile(&self, state: &TypeState, context: &mut FunctionCompileContext, arguments: ArgumentList) -> Compiled {
        match self.limit {
            Limit::Decompression(compression) => compression.compile(context, &arguments),
            Limit::Lines => super::log::compile(state, &arguments),
            Limit::Copies => {
                let path = arguments.required_query("path")?;
                let most = MostBytes::of(context);
                let inner = self.inner.compile(state, context, arguments)?;
                Ok(Copies { path, inner, most }.as_expr())
            }
        }
    }
}

/// A call of `unnest`.
#[derive(Clone, Debug)]
struct Copies {
    path: expression::Query,
    inner: Box<dyn Expression>,
    most: MostBytes,
}

impl Copies {
    /// Returns the object and the list in it; `None` if only an evaluation of the path finds them.
    fn operands<'c>(&self, context: &'c Context) -> Option<(&'c Value, &'c [Value])> {
        let root = match (self.path.external_path(), self.path.variable_ident()) {
            (Some(path), _) => context.target().target_get(&OwnedTargetPath::root(path.prefix)).ok().flatten(),
            (None, Some(ident)) => context.state().variable(ident),
            (None, None) => None,
        }?;
        Some((root, root.get(self.path.path())?.as_array()?))
    }
}

impl FunctionExpression for Copies {
    fn resolve(&self, context: &mut Context) -> Resolved {
        if let Some((root, list)) = self.operands(context) {
            let elements: usize = list.iter().map(weight).sum();
            let bytes = weight(root).saturating_sub(elements).saturating_mul(list.len());
            if bytes > self.most.0 {
                let (most, count) = (self.most.0, list.len());
                return Err(
                    format!("{count} copies of the object have {bytes} bytes, at most {most} are allowed").into()
                );
            }
        }
        self.inner.resolve(context)
    }

    fn type_def(&self, state: &TypeState) -> TypeDef {
        self.inner.type_def(state)
    }
}
