//! Functions of the library, with limits, the log of the service, and types that are right.

use vrl::compiler::prelude::*;
use vrl::path::OwnedTargetPath;

use super::bounded::Growth;
use super::decompression::Compression;
use super::limits::MostBytes;
use super::mapped::Mapping;
use super::nesting::Nesting;
use crate::weight::weight;

/// Functions whose result can be a few times as large as their arguments, so that calls in calls grow without limit.
const GROWING: [&str; 19] = [
    "append",
    "decode_charset",
    "decode_mime_q",
    "decode_punycode",
    "encode_base16",
    "encode_base64",
    "encode_charset",
    "encode_csv",
    "encode_json",
    "encode_percent",
    "encode_punycode",
    "merge",
    "parse_yaml",
    "push",
    "tag_types_externally",
    "to_entries",
    "to_string",
    "truncate",
    "zip",
];

/// Returns the function as programs call it.
pub(super) fn adapted(inner: Box<dyn Function>) -> Box<dyn Function> {
    let name = inner.identifier();
    let own = Compression::of_function(name).map(Change::Decompression);
    let own = own.or_else(|| Growth::of_function(name).map(Change::Bounded));
    let own = own.or_else(|| Mapping::of_function(name).map(Change::Mapped));
    let own = own.or_else(|| Nesting::of_function(name).map(Change::Nested));
    let change = match (own, name) {
        (Some(own), _) => own,
        (None, "unnest") => Change::Copies,
        (None, "log") => Change::Lines,
        (None, "redact") => Change::Redaction,
        (None, name) if GROWING.contains(&name) => Change::Result,
        _ => return inner,
    };
    Box::new(Wrapped { inner, change })
}

/// How a function differs from that of the library.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The size of its result.
    Decompression(Compression),
    /// The size of its result, checked before it is made.
    Bounded(Growth),
    /// The size of all results of its closure.
    Mapped(Mapping),
    /// The levels of its result, and its size, checked after it is made.
    Nested(Nesting),
    /// The size of its result, checked after it is made.
    Result,
    /// The size of all copies of an object, one per element of a list in it.
    Copies,
    /// The lines go to the log of the service.
    Lines,
    /// The size of its result, checked before and after it is made.
    Redaction,
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
            Change::Bounded(growth) => {
                let inner = self.inner.compile(state, context, arguments.clone())?;
                Ok(growth.compile(state, context, &arguments, inner))
            }
            Change::Mapped(mapping) => {
                let inner = self.inner.compile(state, context, arguments.clone())?;
                mapping.compile(context, &arguments, inner)
            }
            Change::Nested(nesting) => {
                let most = MostBytes::of(context);
                let inner = self.inner.compile(state, context, arguments.clone())?;
                Ok(Checked { inner: nesting.compile(&arguments, inner), most }.as_expr())
            }
            Change::Redaction => {
                let inner = self.inner.compile(state, context, arguments.clone())?;
                super::redaction::compile(state, context, &arguments, inner)
            }
            Change::Result => {
                let most = MostBytes::of(context);
                let inner = self.inner.compile(state, context, arguments)?;
                Ok(Checked { inner, most }.as_expr())
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

/// A call of a function of [`GROWING`].
#[derive(Clone, Debug)]
struct Checked {
    inner: Box<dyn Expression>,
    most: MostBytes,
}

impl FunctionExpression for Checked {
    fn resolve(&self, context: &mut Context) -> Resolved {
        let value = self.inner.resolve(context)?;
        self.most.check(weight(&value))?;
        Ok(value)
    }

    fn type_def(&self, state: &TypeState) -> TypeDef {
        self.inner.type_def(state)
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
