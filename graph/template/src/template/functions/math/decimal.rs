//! Decimal arithmetic, so that 0.1 + 0.2 is 0.3.

use std::cmp::Ordering;

/// `coefficient * 10^exponent`, exact while 38 digits are enough; beyond that the nearest float.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal {
    coefficient: i128,
    exponent: i32,
}

/// Decimal places of a quotient.
const QUOTIENT_PLACES: i32 = 16;

impl Decimal {
    /// Returns the shortest decimal that reads back as `f`; `None` for infinities and NaN.
    pub(super) fn new(f: f64) -> Option<Decimal> {
        if !f.is_finite() {
            return None;
        }
        // `{:e}` is the shortest text that reads back as `f`: `-1.25e-7`.
        let text = format!("{f:e}");
        let (digits, exponent) = text.split_once('e')?;
        let places = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let coefficient = digits.replace('.', "").parse().ok()?;
        let exponent = exponent.parse::<i32>().ok()? - i32::try_from(places).ok()?;
        Some(Decimal { coefficient, exponent })
    }

    /// Returns the nearest float.
    pub(super) fn to_f64(self) -> f64 {
        let Decimal { coefficient, exponent } = self;
        format!("{coefficient}e{exponent}").parse().unwrap_or(f64::NAN)
    }

    /// Returns the sum.
    pub(super) fn plus(self, other: Decimal) -> Option<Decimal> {
        self.aligned(other)
            .and_then(|(a, b, exponent)| Some(Decimal { coefficient: a.checked_add(b)?, exponent }))
            .or_else(|| Decimal::new(self.to_f64() + other.to_f64()))
    }

    /// Returns the difference.
    pub(super) fn minus(self, other: Decimal) -> Option<Decimal> {
        self.plus(Decimal { coefficient: other.coefficient.checked_neg()?, ..other })
    }

    /// Returns the product.
    pub(super) fn times(self, other: Decimal) -> Option<Decimal> {
        self.coefficient
            .checked_mul(other.coefficient)
            .and_then(|coefficient| Some(Decimal { coefficient, exponent: self.exponent.checked_add(other.exponent)? }))
            .or_else(|| Decimal::new(self.to_f64() * other.to_f64()))
    }

    /// Returns the quotient, rounded to 16 places, halves away from zero; `None` for a division by zero.
    pub(super) fn divided_by(self, other: Decimal) -> Option<Decimal> {
        if other.coefficient == 0 {
            return None;
        }
        let shift = self.exponent - other.exponent + QUOTIENT_PLACES;
        let (numerator, denominator) = if shift >= 0 {
            (scaled(self.coefficient, shift), Some(other.coefficient))
        } else {
            (Some(self.coefficient), scaled(other.coefficient, -shift))
        };
        match (numerator, denominator) {
            (Some(numerator), Some(denominator)) => {
                let quotient = numerator.checked_div(denominator)?;
                let rest = numerator.checked_rem(denominator)?.unsigned_abs();
                let up = rest.saturating_mul(2) >= denominator.unsigned_abs();
                let away = if (numerator < 0) == (denominator < 0) { 1 } else { -1 };
                let coefficient = if up { quotient.checked_add(away)? } else { quotient };
                Some(Decimal { coefficient, exponent: -QUOTIENT_PLACES })
            }
            // Too large for exact digits, so the float has no significant digits after the sixteenth place.
            (None, _) => Decimal::new(self.to_f64() / other.to_f64()),
            // The divisor is so much larger that the quotient rounds to 0.
            (_, None) => Some(Decimal { coefficient: 0, exponent: 0 }),
        }
    }

    /// Returns both coefficients at the smaller exponent.
    fn aligned(self, other: Decimal) -> Option<(i128, i128, i32)> {
        match self.exponent.cmp(&other.exponent) {
            Ordering::Greater => {
                Some((scaled(self.coefficient, self.exponent - other.exponent)?, other.coefficient, other.exponent))
            }
            Ordering::Less => {
                Some((self.coefficient, scaled(other.coefficient, other.exponent - self.exponent)?, self.exponent))
            }
            Ordering::Equal => Some((self.coefficient, other.coefficient, self.exponent)),
        }
    }
}

/// Returns `coefficient * 10^digits`.
fn scaled(coefficient: i128, digits: i32) -> Option<i128> {
    if coefficient == 0 {
        return Some(0);
    }
    10i128.checked_pow(u32::try_from(digits).ok()?)?.checked_mul(coefficient)
}
