//! Arithmetic: integers, decimals, rounding, sequences.

use std::fmt::Write as _;

use super::cast::{NoInteger, plain_integer, to_float64, to_int64};
use super::signature::function;
use super::{CallError, Context, Function};
use crate::template::format;
use crate::template::val::{Elements, List, Val};

mod decimal;

use decimal::Decimal;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("int", (value: Any) => Val::Int(to_int64(value))),
    function!("int64", (value: Any) => Val::Int64(to_int64(value))),
    function!("float64", (value: Any) => to_float64(value)),
    function!("atoi", (text: Text) => Val::Int(atoi(&text.lossy()))),
    function!("toDecimal", (value: Any) => try format::to_text(value).map(|text| {
        Val::Int64(text.as_str().and_then(|text| plain_integer(text, 8).ok()).unwrap_or(0))
    })),
    function!("add1", (value: Any) => Val::Int64(to_int64(value).wrapping_add(1))),
    function!("add", (; all: Any) => Val::Int64(all.iter().fold(0, |sum, v| i64::wrapping_add(sum, to_int64(v))))),
    function!("sub", (a: Any, b: Any) => Val::Int64(to_int64(a).wrapping_sub(to_int64(b)))),
    function!("div", (a: Any, b: Any) => try by_nonzero(b).map(|b| Val::Int64(to_int64(a).wrapping_div(b)))),
    function!("mod", (a: Any, b: Any) => try by_nonzero(b).map(|b| Val::Int64(to_int64(a).wrapping_rem(b)))),
    function!("mul", (a: Any; rest: Any) => Val::Int64(
        rest.iter().fold(to_int64(a), |product, v| product.wrapping_mul(to_int64(v)))
    )),
    function!("max", (a: Any; rest: Any) => largest(a, rest)),
    function!("biggest", (a: Any; rest: Any) => largest(a, rest)),
    function!("min", (a: Any; rest: Any) => Val::Int64(
        rest.iter().fold(to_int64(a), |least, v| least.min(to_int64(v)))
    )),
    function!("maxf", (a: Any; rest: Any) => rest.iter().fold(to_float64(a), |most, v| maximum(most, to_float64(v)))),
    function!("minf", (a: Any; rest: Any) => {
        rest.iter().fold(to_float64(a), |least, v| -maximum(-least, -to_float64(v)))
    }),
    function!("add1f", (value: Any) => try decimals(value, &[Val::Int(1)], Decimal::plus)),
    function!("addf", (; all: Any) => try decimals(&Val::Int(0), all, Decimal::plus)),
    function!("subf", (a: Any; rest: Any) => try decimals(a, rest, Decimal::minus)),
    function!("mulf", (a: Any; rest: Any) => try decimals(a, rest, Decimal::times)),
    function!("divf", (a: Any; rest: Any) => try decimals(a, rest, Decimal::divided_by)),
    function!("floor", (value: Any) => to_float64(value).floor()),
    function!("ceil", (value: Any) => to_float64(value).ceil()),
    function!("round", (value: Any, places: Int; on: Float) => {
        let on = match on {
            [Val::Float(on), ..] => *on,
            _ => 0.5,
        };
        round(to_float64(value), places, on)
    }),
    function!("until", |cx| (count: Int) => try steps(cx, 0, count, if count < 0 { -1 } else { 1 })),
    function!("untilStep", |cx| (start: Int, stop: Int, step: Int) => try steps(cx, start, stop, step)),
    function!("seq", |cx| (; bounds: Int) => try seq(cx, bounds)),
];

/// Parses decimal digits; out of range, the result is the nearest integer in range.
fn atoi(text: &str) -> i64 {
    match plain_integer(text, 10) {
        Ok(value) | Err(NoInteger::Range(value)) => value,
        Err(NoInteger::Syntax) => 0,
    }
}

fn by_nonzero(divisor: &Val) -> Result<i64, CallError> {
    match to_int64(divisor) {
        0 => Err("division by zero".into()),
        divisor => Ok(divisor),
    }
}

fn largest(first: &Val, rest: &[Val]) -> Val {
    Val::Int64(rest.iter().fold(to_int64(first), |most, v| most.max(to_int64(v))))
}

/// Returns the larger number; NaN unless one of them is infinite. 0 is larger than -0.
fn maximum(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_negative() { b } else { a }
    } else {
        a.max(b)
    }
}

fn decimals(first: &Val, rest: &[Val], operation: fn(Decimal, Decimal) -> Option<Decimal>) -> Result<f64, CallError> {
    let decimal = |value: &Val| {
        let f = to_float64(value);
        Decimal::new(f).ok_or_else(|| CallError::from(format!("{f} is not a decimal number")))
    };
    let mut result = decimal(first)?;
    for value in rest {
        result = operation(result, decimal(value)?).ok_or("division by zero or a result that is too large")?;
    }
    Ok(result.to_f64())
}

/// Rounds to `places` decimal places, up from a fraction of `on`.
fn round(value: f64, places: i64, on: f64) -> f64 {
    let power = power_of_ten(places);
    let shifted = power * value;
    let fraction = if shifted.is_infinite() { f64::NAN } else { shifted.fract() };
    let whole = if fraction >= on { shifted.ceil() } else { shifted.floor() };
    whole / power
}

/// Raises 10 to a power by repeated squaring, with the rounding of Go's `Pow`, which affects the last digit of large
/// powers.
fn power_of_ten(exponent: i64) -> f64 {
    let Some(mut bits) = u32::try_from(exponent.unsigned_abs()).ok().filter(|bits| *bits < 4_096) else {
        return if exponent < 0 { 0.0 } else { f64::INFINITY };
    };
    // 10 = 0.625 * 2^4; fractions stay between 0.5 and 1.
    let (mut square, mut square_exponent) = (0.625, 4);
    let (mut fraction, mut binary_exponent) = (1.0, 0);
    while bits > 0 {
        if bits & 1 == 1 {
            fraction *= square;
            binary_exponent += square_exponent;
        }
        square *= square;
        square_exponent *= 2;
        if square < 0.5 {
            square += square;
            square_exponent -= 1;
        }
        bits >>= 1;
    }
    if exponent < 0 {
        fraction = 1.0 / fraction;
        binary_exponent = -binary_exponent;
    }
    // In two steps, because the power alone may be out of range even if the product is not.
    let half = binary_exponent / 2;
    fraction * 2f64.powi(half) * 2f64.powi(binary_exponent - half)
}

/// Returns the count of numbers from `start`, before `stop`, by `step`.
fn count(start: i64, stop: i64, step: i64) -> u64 {
    let (distance, step) = (i128::from(stop) - i128::from(start), i128::from(step));
    if distance.signum() * step.signum() != 1 {
        return 0;
    }
    u64::try_from((distance.abs() + step.abs() - 1) / step.abs()).unwrap_or(u64::MAX)
}

/// Returns these numbers and subtracts one step for each.
fn numbers(cx: &mut Context, start: i64, stop: i64, step: i64) -> Result<impl Iterator<Item = i64>, CallError> {
    let count = count(start, stop, step);
    cx.take_steps(usize::try_from(count).unwrap_or(usize::MAX))?;
    Ok(std::iter::successors(Some(start), move |n| n.checked_add(step)).take(usize::try_from(count).unwrap_or(0)))
}

fn steps(cx: &mut Context, start: i64, stop: i64, step: i64) -> Result<List, CallError> {
    Ok(List::of(Elements::Int, numbers(cx, start, stop, step)?.map(Val::Int).collect()))
}

/// Returns the numbers with spaces between them, both ends included.
fn seq(cx: &mut Context, bounds: &[Val]) -> Result<String, CallError> {
    let bounds: Vec<i64> = bounds.iter().map(to_int64).collect();
    let direction = |from: i64, to: i64| if to < from { -1 } else { 1 };
    let (start, end, step) = match bounds[..] {
        [end] => (1, end, direction(1, end)),
        [start, end] => (start, end, direction(start, end)),
        [start, step, end] if direction(start, end) > 0 || step <= 0 => (start, end, step),
        _ => return Ok(String::new()),
    };
    let stop = end.saturating_add(direction(start, end));
    let mut out = String::new();
    for (i, number) in numbers(cx, start, stop, step)?.enumerate() {
        // Writing to a `String` cannot fail.
        let _ = if i == 0 { write!(out, "{number}") } else { write!(out, " {number}") };
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_counted_before_they_are_made() {
        assert_eq!(count(0, 10, 3), 4);
        assert_eq!(count(10, 0, -3), 4);
        assert_eq!(count(0, 10, 0), 0);
        assert_eq!(count(0, 10, -1), 0);
        assert_eq!(count(i64::MIN, i64::MAX, 1), u64::MAX);
        assert!(steps(&mut Context::new(), 0, i64::MAX, 1).is_err());
        assert!(seq(&mut Context::new(), &[Val::Int(i64::MAX)]).is_err());
        assert_eq!(
            seq(&mut Context::new(), &[Val::Int(i64::MAX - 1), Val::Int(i64::MAX)]).unwrap(),
            "9223372036854775806"
        );
    }

    #[test]
    fn powers_of_ten_are_exact_where_floats_are() {
        assert_eq!(power_of_ten(0), 1.0);
        assert_eq!(power_of_ten(22), 1e22);
        assert_eq!(power_of_ten(-1), 0.1);
        assert_eq!(power_of_ten(400), f64::INFINITY);
        assert_eq!(power_of_ten(-400), 0.0);
        assert_eq!(power_of_ten(i64::MIN), 0.0);
    }

    #[test]
    fn decimals_are_exact_or_the_nearest_float() {
        let sum = |a: f64, b: f64| Decimal::new(a).and_then(|a| a.plus(Decimal::new(b)?)).map(Decimal::to_f64);
        assert_eq!(sum(0.1, 0.2), Some(0.3));
        assert_eq!(sum(1e300, 1e-300), Some(1e300));
        let quotient =
            |a: f64, b: f64| Decimal::new(a).and_then(|a| a.divided_by(Decimal::new(b)?)).map(Decimal::to_f64);
        assert_eq!(quotient(1e300, 3e9), Some(1e300 / 3e9));
        assert_eq!(quotient(1e-300, 3.0), Some(0.0));
        assert_eq!(quotient(1.0, 0.0), None);
        assert_eq!(quotient(-2.0, 3.0), Some(-0.666_666_666_666_666_7));
    }
}
