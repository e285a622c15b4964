//! Comparisons: only of like with like, as in Go. Integers compare whatever their size and sign.

use std::cmp::Ordering;

use super::is_nil;
use crate::template::functions::{CallError, Context};
use crate::template::val::{Kind, Val};

/// Whether the first argument equals one of the others.
pub(super) fn eq(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let [first, others @ ..] = args else { return Err(CallError::arguments()) };
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        if equal(first, other)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}

pub(super) fn ne(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    pair(args, |a, b| Ok(!equal(a, b)?))
}

pub(super) fn lt(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    pair(args, less)
}

pub(super) fn le(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    pair(args, less_or_equal)
}

pub(super) fn gt(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    pair(args, |a, b| Ok(!less_or_equal(a, b)?))
}

pub(super) fn ge(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    pair(args, |a, b| Ok(!less(a, b)?))
}

fn pair(args: &[Val], compare: impl Fn(&Val, &Val) -> Result<bool, CallError>) -> Result<Val, CallError> {
    let [a, b] = args else { return Err(CallError::arguments()) };
    compare(a, b).map(Val::Bool)
}

/// What `eq` says about two values.
pub(crate) fn equal(a: &Val, b: &Val) -> Result<bool, CallError> {
    match (a.kind(), b.kind()) {
        (Kind::Int | Kind::Uint, Kind::Int | Kind::Uint) => Ok(integers(a, b) == Some(Ordering::Equal)),
        (Kind::Bool, Kind::Bool) | (Kind::Float, Kind::Float) | (Kind::String, Kind::String) => Ok(match (a, b) {
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Float(a), Val::Float(b)) => a == b,
            (Val::Text(a), Val::Text(b)) => a == b,
            _ => false,
        }),
        // A nil equals a nil map, and is unlike everything else.
        (Kind::Invalid, _) | (_, Kind::Invalid) => Ok(is_nil(a) && is_nil(b)),
        (ours, theirs) if ours != theirs => Err(incompatible(a, b)),
        _ if is_nil(a) || is_nil(b) => Ok(is_nil(a) == is_nil(b)),
        _ => match (a, b) {
            (Val::Time(a), Val::Time(b)) => Ok(a == b),
            (Val::Version(a), Val::Version(b)) => Ok(std::rc::Rc::ptr_eq(a, b)),
            _ => Err(format!("values of type {} cannot be compared", b.type_name()).into()),
        },
    }
}

/// What `lt` says about two values.
pub(crate) fn less(a: &Val, b: &Val) -> Result<bool, CallError> {
    for val in [a, b] {
        if !matches!(val.kind(), Kind::Bool | Kind::Int | Kind::Uint | Kind::Float | Kind::String) {
            return Err(format!("values of type {} have no order", val.type_name()).into());
        }
    }
    match (a, b) {
        (Val::Float(a), Val::Float(b)) => Ok(a < b),
        (Val::Text(a), Val::Text(b)) => Ok(a.as_bytes() < b.as_bytes()),
        (Val::Bool(_), Val::Bool(_)) => Err("values of type bool have no order".into()),
        _ => match integers(a, b) {
            Some(order) => Ok(order == Ordering::Less),
            None => Err(incompatible(a, b)),
        },
    }
}

/// What `le` says about two values.
pub(crate) fn less_or_equal(a: &Val, b: &Val) -> Result<bool, CallError> {
    Ok(less(a, b)? || equal(a, b)?)
}

fn integers(a: &Val, b: &Val) -> Option<Ordering> {
    let wide = |val: &Val| val.as_int().map(i128::from).or_else(|| val.as_uint().map(i128::from));
    Some(wide(a)?.cmp(&wide(b)?))
}

fn incompatible(a: &Val, b: &Val) -> CallError {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name()).into()
}
