//! A limit of variables: a variable that an assignment doubles or nests fills the memory or the stack, in a closure, which runs for each element
//! of a list, or in a program with many assignments.

use vrl::compiler::prelude::*;

use super::limits::MostBytes;
use crate::weight::{MOST_LEVELS, TOO_DEEP, weight};

/// Name of the function, which no program can write.
pub(crate) const NAME: &str = "=";

/// Checks the size of a variable after an assignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assigned;

impl Function for Assigned {
    fn identifier(&self) -> &'static str {
        NAME
    }

    fn usage(&self) -> &'static str {
        "Checks the size of a variable."
    }

    fn category(&self) -> &'static str {
        Category::Debug.as_ref()
    }

    fn return_kind(&self) -> u16 {
        kind::NULL
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[Parameter::required("variable", kind::ANY, "The variable.")];
        PARAMETERS
    }

    fn examples(&self) -> &'static [Example] {
        &[]
    }

    fn compile(&self, _: &TypeState, context: &mut FunctionCompileContext, arguments: ArgumentList) -> Compiled {
        let variable = arguments.required_query("variable")?;
        Ok(Check { variable, most: MostBytes::of(context) }.as_expr())
    }
}

#[derive(Clone, Debug)]
struct Check {
    variable: expression::Query,
    most: MostBytes,
}

impl FunctionExpression for Check {
    fn resolve(&self, context: &mut Context) -> Resolved {
        let value = self.variable.variable_ident().and_then(|name| context.state().variable(name));
        let bytes = value.map_or(0, weight);
        match bytes > self.most.0 {
            true if bytes == TOO_DEEP => Err(format!("the variable has more than {MOST_LEVELS} levels").into()),
            true => Err(format!("the variable has {bytes} bytes, at most {} are allowed", self.most.0).into()),
            false => Ok(Value::Null),
        }
    }

    fn type_def(&self, _: &TypeState) -> TypeDef {
        TypeDef::null().infallible()
    }
}
