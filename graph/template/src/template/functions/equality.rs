//! Deep equality for `has`, `uniq` and `deepEqual`.

use super::{CallError, Context};
use crate::template::val::{Map, Val};

/// Returns `true` if both values have the same type and are deeply equal. `1` and `1.0` are not equal, nor are a nil
/// list and an empty one. Each compared value is a step.
///
/// # Errors
/// The allowance is exhausted or the values nest too deeply.
pub(super) fn equal(cx: &mut Context, a: &Val, b: &Val) -> Result<bool, CallError> {
    at_depth(cx, a, b, 0)
}

fn at_depth(cx: &mut Context, a: &Val, b: &Val, depth: usize) -> Result<bool, CallError> {
    if depth > Context::MAX_DEPTH {
        return Err("the values are nested too deeply to be compared".into());
    }
    cx.take_steps(1)?;
    Ok(match (a, b) {
        (a, b) if a.is_nil() && b.is_nil() => true,
        (a, b) if a.type_name() != b.type_name() => false,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::Float(a), Val::Float(b)) => a == b,
        (Val::Text(a), Val::Text(b)) => a == b,
        (Val::List(a), Val::List(b)) => {
            if a.len() != b.len() || a.is_nil() != b.is_nil() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !at_depth(cx, &a, &b, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Val::Map(a), Val::Map(b)) => {
            if let (Map::Dict(a), Map::Dict(b)) = (a, b)
                && a.is_same(b)
            {
                return Ok(true);
            }
            if a.len() != b.len() || a.is_nil() != b.is_nil() {
                return Ok(false);
            }
            for ((key_a, a), (key_b, b)) in a.entries().iter().zip(b.entries().iter()) {
                if key_a != key_b || !at_depth(cx, a, b, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Val::Record(a), Val::Record(b)) => a == b,
        (Val::Payload(a), Val::Payload(b)) => a == b,
        (Val::Time(a), Val::Time(b)) => a == b,
        (Val::Version(a), Val::Version(b)) => a == b,
        (a, b) => a.as_int() == b.as_int() && a.as_uint() == b.as_uint() && a.as_bytes() == b.as_bytes(),
    })
}
