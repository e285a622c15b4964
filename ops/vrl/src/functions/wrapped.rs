//! Functions of the library, with limits, the log of the service, and types that are right.

use vrl::compiler::prelude::*;
use vrl::path::OwnedTargetPath;

use super::decompression::Compression;
use super::limits::MostBytes;
use crate::weight::weight;

/// Returns the function as programs call it.
pub(super) fn adapted(inner: Box<dyn Function>) -> Box<dyn Function> {
    let change = match (Compression::of_function(inner.identifier()), inner.identifier()) {
        (Some(compression), _) => Change::Decompression(compression),
        (None, "unnest") => Change::Copies,
        (None, "log") => Change::Lines,
        (None, "map_keys") => Change::Renames,
        _ => return inner,
    };
    Box::new(Wrapped { inner, change })
}

/// How a function differs from that of the library.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The size of its result.
    Decompression(Compression),
    /// The size of all copies of an object, one per element of a list in it.
    Copies,
    /// The lines go to the log of the service.
    Lines,
    /// The names of its fields are not known: the library's type has those before.
    Renames,
}

#[derive(Debug)]
struct Wrapped {
    inner: Box<dyn Function>,
    change: Change,
}

impl Function for Wrapped {
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

    fn closure(&self) -> Option<closure::Definition> {
        self.inner.closure()
    }

    fn compile(&self, state: &TypeState, context: &mut FunctionCompileContext, arguments: ArgumentList) -> Compiled {
        match self.change {
            Change::Decompression(compression) => compression.compile(context, &arguments),
            Change::Lines => super::log::compile(state, &arguments),
            Change::Renames => {
                let inner = self.inner.compile(state, context, arguments)?;
                Ok(Renamed { inner }.as_expr())
            }
            Change::Copies => {
                let path = arguments.required_query("path")?;
                let most = MostBytes::of(context);
                let inner = self.inner.compile(state, context, arguments)?;
                Ok(Copies { path, inner, most }.as_expr())
            }
        }
    }
}

/// A call of `map_keys`.
#[derive(Clone, Debug)]
struct Renamed {
    inner: Box<dyn Expression>,
}

impl FunctionExpression for Renamed {
    fn resolve(&self, context: &mut Context) -> Resolved {
        self.inner.resolve(context)
    }

    fn type_def(&self, state: &TypeState) -> TypeDef {
        self.inner.type_def(state).with_kind(Kind::object(Collection::any()))
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
