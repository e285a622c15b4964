//! Finds values that exceed the length or precision of their column. PostgreSQL names neither value nor column for
//! bound parameters.

use crate::column::Column;
use crate::name::Quoted;

const NUMERIC: u32 = 1700;
const CHAR: u32 = 1042;
const VARCHAR: u32 = 1043;
/// `atttypmod` includes the header of a value.
const HEADER: i32 = 4;
/// Decimal digits per digit in base 10000.
const GROUP: i64 = 4;

/// Returns the column with its full type if an encoded value does not fit it.
pub(super) fn exceeded(column: &Column, value: &[u8]) -> Option<String> {
    let (oid, modifier) = column.type_of;
    let modifier = modifier.checked_sub(HEADER).filter(|modifier| *modifier >= 0)?;
    let name = Quoted(&column.name);
    match oid {
        NUMERIC => {
            let precision = i64::from(modifier >> 16 & 0xffff);
            // The scale is a signed number of eleven bits.
            let scale = i64::from((modifier & 0x7ff) ^ 0x400) - 0x400;
            (whole_digits(value, scale)? > precision - scale).then(|| format!("{name} (numeric({precision},{scale}))"))
        }
        CHAR | VARCHAR => {
            let most = usize::try_from(modifier).ok()?;
            // PostgreSQL cuts spaces at the end.
            let length = std::str::from_utf8(value).ok()?.trim_end_matches(' ').chars().count();
            let kind = if oid == CHAR { "char" } else { "varchar" };
            (length > most).then(|| format!("{name} ({kind}({most}))"))
        }
        _ => None,
    }
}

/// Returns the number of digits before the point of an encoded number after it is rounded to `scale` fraction digits.
/// Returns `None` if it is not a finite number.
fn whole_digits(value: &[u8], scale: i64) -> Option<i64> {
    let word = |at: usize| Some(u16::from_be_bytes(value.get(at * 2..at * 2 + 2)?.try_into().ok()?));
    let (count, weight, sign) = (word(0)?, word(1)?.cast_signed(), word(2)?);
    if !matches!(sign, 0 | 0x4000) {
        return None;
    }
    let mut digits = String::new();
    for group in 0..count {
        digits.push_str(&format!("{:04}", word(4 + usize::from(group))?));
    }
    let zeros = digits.bytes().take_while(|digit| *digit == b'0').count();
    let digits = &digits.as_bytes()[zeros..];
    if digits.is_empty() {
        return Some(0);
    }
    let whole = (i64::from(weight) + 1) * GROUP - zeros as i64;
    // If all kept digits are nines, rounding up adds a digit.
    let kept = usize::try_from(whole + scale).ok();
    let carries = kept.is_some_and(|kept| {
        digits.get(kept).is_some_and(|digit| *digit >= b'5') && digits[..kept].iter().all(|digit| *digit == b'9')
    });
    Some(whole + i64::from(carries))
}

#[cfg(test)]
mod tests {
    use anabranch_record::value::Value;

    use super::*;
    use crate::column::{ColumnEncoding, Equality, GeneratedColumn};
    use crate::encode::encode;

    fn told(kind: ColumnEncoding, type_of: (u32, i32), value: &str) -> Option<String> {
        let column = Column {
            name: "c".into(),
            sql_type: String::new(),
            kind,
            filled: GeneratedColumn::No,
            equality: Equality::Server,
            required: false,
            type_of,
        };
        let mut out = Vec::new();
        encode(&column.kind, &Value::from(value), &mut out).unwrap();
        exceeded(&column, &out[4..])
    }

    #[test]
    fn numbers_fit_their_precision_as_postgres_rounds_them() {
        let modifier = |precision: i32, scale: i32| (precision << 16 | (scale & 0x7ff)) + HEADER;
        for (precision, scale, fits, exceeds) in [
            (5, 2, "999.99", "1000"),
            (5, 2, "999.994", "999.995"),
            (5, 2, "-0.001", "-1000.0"),
            (5, 0, "99999", "99999.5"),
            (12, 2, "9999999999.99", "12345678901"),
            (3, 5, "0.00999", "0.01"),
            (2, -3, "99000", "99500"),
            (4, 4, "0.9999", "0.99995"),
        ] {
            let told = |text: &str| told(ColumnEncoding::Numeric, (NUMERIC, modifier(precision, scale)), text);
            assert_eq!(told(fits), None, "{fits}");
            assert_eq!(told(exceeds), Some(format!("\"c\" (numeric({precision},{scale}))")), "{exceeds}");
        }
        assert_eq!(told(ColumnEncoding::Numeric, (NUMERIC, -1), "1e100"), None, "any precision");
        assert_eq!(told(ColumnEncoding::Numeric, (NUMERIC, modifier(5, 2)), "NaN"), None);
    }

    #[test]
    fn texts_fit_their_length_without_spaces_at_the_end() {
        for (text, exceeds) in [("äöü", false), ("abc  ", false), ("abcd", true), ("", false)] {
            assert_eq!(told(ColumnEncoding::Text, (VARCHAR, 3 + HEADER), text).is_some(), exceeds, "{text}");
        }
        assert_eq!(told(ColumnEncoding::Text, (CHAR, 3 + HEADER), "abcd").unwrap(), "\"c\" (char(3))");
        assert_eq!(told(ColumnEncoding::Text, (VARCHAR, -1), "abcd"), None);
        assert_eq!(told(ColumnEncoding::Text, (25, -1), "abcd"), None);
    }
}
