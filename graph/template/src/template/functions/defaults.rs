//! Defaults and conditions on empty values.

use super::signature::function;
use super::{CallError, Function};
use crate::template::val::Val;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("default", (other: Any; given: Any) => given.first().filter(|v| !is_empty(v)).unwrap_or(other).clone()),
    function!("empty", (value: Any) => is_empty(value)),
    function!("coalesce", (; values: Any) => values.iter().find(|v| !is_empty(v)).cloned().unwrap_or(Val::Nil)),
    function!("all", (; values: Any) => !values.iter().any(is_empty)),
    function!("any", (; values: Any) => values.iter().any(|v| !is_empty(v))),
    function!("ternary", (yes: Any, no: Any, choice: Bool) => if choice { yes.clone() } else { no.clone() }),
    function!("fail", (message: Text) => try Err::<Val, _>(CallError::on_purpose(message.to_key().as_str()))),
];

/// Returns `true` for nil, zero, false and values without elements, never for a struct.
pub(super) fn is_empty(value: &Val) -> bool {
    !value.is_true()
}
