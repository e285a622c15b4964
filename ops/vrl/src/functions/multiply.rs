//! Multiplication with a limit: the product of a string and an integer is a string of any length.

use vrl::compiler::prelude::*;

use super::limits::MostBytes;
use crate::weight::weight;

/// Name of the function, which no program can write.
pub(crate) const NAME: &str = "*";

/// The operator `*`, as a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiply;

impl Function for Multiply {
    fn identifier(&self) -> &'static str {
        NAME
    }

    fn usage(&self) -> &'static str {
        "Multiplies two numbers, or repeats a string."
    }

    fn category(&self) -> &'static str {
        Category::Number.as_ref()
    }

    fn return_kind(&self) -> u16 {
        kind::BYTES | kind::INTEGER | kind::FLOAT
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[
            Parameter::required("left", kind::ANY, "The left operand."),
            Parameter::required("right", kind::ANY, "The right operand."),
        ];
        PARAMETERS
    }

    fn examples(&self) -> &'static [Example] {
        &[]
    }

    fn compile(&self, _: &TypeState, context: &mut FunctionCompileContext, arguments: ArgumentList) -> Compiled {
        let (left, right) = (arguments.required("left"), arguments.required("right"));
        Ok(Product { left, right, most: MostBytes::of(context) }.as_expr())
    }
}

#[derive(Clone, Debug)]
struct Product {
    left: Box<dyn Expression>,
    right: Box<dyn Expression>,
    most: MostBytes,
}

impl FunctionExpression for Product {
    fn resolve(&self, context: &mut Context) -> Resolved {
        let (left, right) = (self.left.resolve(context)?, self.right.resolve(context)?);
        if let (text @ (Value::Bytes(_) | Value::String(_)), Value::Integer(times))
        | (Value::Integer(times), text @ (Value::Bytes(_) | Value::String(_))) = (&left, &right)
        {
            let bytes = weight(text).saturating_mul(usize::try_from(*times).unwrap_or(0));
            if bytes > self.most.0 {
                return Err(format!(
                    "the product would be a string of {bytes} bytes, at most {} are allowed",
                    self.most.0
                )
                .into());
            }
        }
        Ok(left.try_mul(right)?)
    }

    /// The same types as those of the operator.
    fn type_def(&self, state: &TypeState) -> TypeDef {
        let (left, right) = (self.left.type_def(state), self.right.type_def(state));
        if left.is_float() || right.is_float() {
            let numbers = || Kind::integer().or_float();
            return left.fallible_unless(numbers()).union(right.fallible_unless(numbers())).with_kind(Kind::float());
        }
        let kind = match () {
            () if left.is_integer() && right.is_integer() => Kind::integer(),
            () if (left.is_bytes() && right.is_integer()) || (left.is_integer() && right.is_bytes()) => Kind::bytes(),
            () => return left.union(right).fallible().with_kind(Kind::bytes().or_integer().or_float()),
        };
        left.union(right).with_kind(kind)
    }
}
