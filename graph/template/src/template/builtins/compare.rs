//! Comparisons, only between values of the same kind as in Go. Integers compare regardless of size and sign.
//!
//! An integer of the record also compares with a float, so that `gt .Payload.After.price 10.0` works whether a source
//! delivers `12` or `12.0`.

use std::cmp::Ordering;

use super::is_nil;
use crate::template::functions::{CallError, Context};
use crate::template::val::{Kind, Val};

/// Returns true if the first argument equals one of the others.
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

/// Returns the result of `eq` for two values.
pub(crate) fn equal(a: &Val, b: &Val) -> Result<bool, CallError> {
    match (a.kind(), b.kind()) {
        (Kind::Int | Kind::Uint, Kind::Int | Kind::Uint) => Ok(integers(a, b) == Some(Ordering::Equal)),
        _ if let Some(order) = mixed(a, b) => Ok(order == Some(Ordering::Equal)),
        (Kind::Bool, Kind::Bool) | (Kind::Float, Kind::Float) | (Kind::String, Kind::String) => Ok(match (a, b) {
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Float(a), Val::Float(b)) => a == b,
            (Val::Text(a), Val::Text(b)) => a == b,
            _ => false,
        }),
        // A nil equals a nil map and nothing else.
        (Kind::Invalid, _) | (_, Kind::Invalid) => Ok(is_nil(a) && is_nil(b)),
        (ours, theirs) if ours != theirs => Err(incompatible(a, b)),
        _ if is_nil(a) || is_nil(b) => Ok(is_nil(a) == is_nil(b)),
        _ => match (a, b) {
            (Val::Time(a), Val::Time(b)) => Ok(a == b),
            (Val::Version(a), Val::Version(b)) => Ok(std::rc::Rc::ptr_eq(a, b)),
            _ => Err(CallError::of_kind(b, format!("{} cannot be compared with another", b.in_words()))),
        },
    }
}

/// Returns the result of `lt` for two values.
pub(crate) fn less(a: &Val, b: &Val) -> Result<bool, CallError> {
    for val in [a, b] {
        if !matches!(val.kind(), Kind::Bool | Kind::Int | Kind::Uint | Kind::Float | Kind::String) {
            return Err(CallError::of_kind(val, format!("{} has no order", val.in_words())));
        }
    }
    match (a, b) {
        (Val::Float(a), Val::Float(b)) => Ok(a < b),
        (Val::Text(a), Val::Text(b)) => Ok(a.as_bytes() < b.as_bytes()),
        (Val::Bool(_), Val::Bool(_)) => Err("a bool has no order".into()),
        _ => match (integers(a, b), mixed(a, b)) {
            (Some(order), _) | (None, Some(Some(order))) => Ok(order == Ordering::Less),
            (None, Some(None)) => Ok(false),
            (None, None) => Err(incompatible(a, b)),
        },
    }
}

/// Returns the result of `le` for two values.
pub(crate) fn less_or_equal(a: &Val, b: &Val) -> Result<bool, CallError> {
    Ok(less(a, b)? || equal(a, b)?)
}

fn integers(a: &Val, b: &Val) -> Option<Ordering> {
    let wide = |val: &Val| val.as_int().map(i128::from).or_else(|| val.as_uint().map(i128::from));
    Some(wide(a)?.cmp(&wide(b)?))
}

/// Compares an integer of the record with a float; the inner `None` is the result for NaN. `None` for other values.
fn mixed(a: &Val, b: &Val) -> Option<Option<Ordering>> {
    let integer = |val: &Val| match val {
        Val::Int64(n) => Some(i128::from(*n)),
        Val::Uint64(n) => Some(i128::from(*n)),
        _ => None,
    };
    match (a, b) {
        (a, Val::Float(b)) => integer(a).map(|a| with_float(a, *b)),
        (Val::Float(a), b) => integer(b).map(|b| with_float(b, *a).map(Ordering::reverse)),
        _ => None,
    }
}

/// Compares an integer of at most 64 bits with a float exactly.
pub(crate) fn with_float(n: i128, f: f64) -> Option<Ordering> {
    // The conversion saturates far outside the range of 64 bits, so the result is correct there too.
    let order = n.cmp(&(f as i128)).then(0.0.partial_cmp(&f.fract()).unwrap_or(Ordering::Equal));
    (!f.is_nan()).then_some(order)
}

fn incompatible(a: &Val, b: &Val) -> CallError {
    let message = format!("incompatible types for comparison: {} and {}", a.in_words(), b.in_words());
    CallError::of_kind(if a.is_nil() { a } else { b }, message)
}
