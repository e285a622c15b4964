//! `redact` with a limit that is checked before the memory is used: what it puts in the place of a match may be much longer
//! than the match. Its results, errors and types are those of the library.

use vrl::compiler::prelude::*;

use super::limits::MostBytes;
use crate::weight::weight;

/// The text of the default redactor.
const FULL: &str = "[REDACTED]";

/// The longest text of a hash, that of 64 bytes in hexadecimal.
const HASH: usize = 128;

/// How many times a result may be as large as its value before it is checked: that of the default redactor, and of texts of
/// this length.
const FEW: usize = 16;

/// Compiles a call. `inner` is the call of the library's function, which has checked the arguments.
pub(super) fn compile(
    state: &TypeState,
    context: &FunctionCompileContext,
    arguments: &ArgumentList,
    inner: Box<dyn Expression>,
) -> Compiled {
    let growth = growth(state, arguments);
    let value = arguments.required("value");
    Ok(Redact { value, inner, growth, most: MostBytes::of(context) }.as_expr())
}

/// Returns how many times a result can be as large as its value, if each filter matches each byte.
fn growth(state: &TypeState, arguments: &ArgumentList) -> usize {
    let constant = |name| arguments.optional(name).and_then(|argument| argument.resolve_constant(state));
    let redactor = constant("redactor");
    let replacement = match &redactor {
        None => Some(FULL.to_owned()),
        Some(Value::Object(options)) => match options.get("type").map(Value::to_string_lossy).as_deref() {
            Some("text") => options.get("replacement").map(|text| text.to_string_lossy().into_owned()),
            Some("full") => Some(FULL.to_owned()),
            _ => None,
        },
        Some(name) if name.to_string_lossy() == "full" => Some(FULL.to_owned()),
        Some(_) => None,
    };
    let length = replacement.as_ref().map_or(HASH, String::len).max(1);
    let filters = constant("filters").and_then(|filters| filters.try_array().ok());
    // A filter may match what the ones before it have put there.
    let again = filters.map_or(0, |filters| {
        let later = filters.iter().skip(1);
        later.filter(|filter| may_match(filter, replacement.as_deref())).count()
    });
    length.saturating_pow(1 + u32::try_from(again).unwrap_or(u32::MAX))
}

/// Returns `true` if a filter may match in a text; `None` is a hash.
fn may_match(filter: &Value, text: Option<&str>) -> bool {
    let patterns = match filter {
        Value::Object(options) => options.get("patterns").and_then(Value::as_array).unwrap_or_default(),
        one => std::slice::from_ref(one),
    };
    let Some(text) = text else { return true };
    patterns.iter().any(|pattern| match pattern {
        Value::Regex(regex) => regex.is_match(text),
        Value::Bytes(_) | Value::String(_) => text.contains(&*pattern.to_string_lossy()),
        _ => true,
    })
}

/// A call of `redact`.
#[derive(Clone, Debug)]
struct Redact {
    value: Box<dyn Expression>,
    inner: Box<dyn Expression>,
    growth: usize,
    most: MostBytes,
}

impl FunctionExpression for Redact {
    fn resolve(&self, context: &mut Context) -> Resolved {
        if self.growth > FEW {
            // The library's function evaluates it again. That has an effect only if it assigns.
            let value = self.value.resolve(context)?;
            self.most.check(weight(&value).saturating_mul(self.growth))?;
        }
        let result = self.inner.resolve(context)?;
        self.most.check(weight(&result))?;
        Ok(result)
    }

    fn type_def(&self, state: &TypeState) -> TypeDef {
        self.inner.type_def(state)
    }
}
