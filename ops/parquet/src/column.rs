//! Types of columns: inferred from values, or declared by a schema.

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Timestamp, Value};

/// Maximum nesting of lists and maps in a record.
pub(crate) const DEEPEST: usize = 64;

/// Maximum number of fields of a file, nested ones included. Each takes memory while a file is written.
pub(crate) const MOST_FIELDS: usize = 10_000;

/// Largest magnitude up to which a 64-bit float holds every integer.
const EXACT: u64 = 1 << 53;

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// No value was seen.
    Unknown,
    Boolean,
    /// A declared 32-bit integer.
    Integer32,
    Integer(IntegerSpan),
    /// A declared 32-bit float.
    Float32,
    Float,
    Text,
    Bytes,
    /// Days.
    Date,
    Time(TimeResolution),
    /// A decimal number, as text in records: precision and scale.
    Decimal(u8, u8),
    List(Box<ColumnType>),
    /// A map with any keys, and one type of values.
    Map(Box<ColumnType>),
    /// A map with known keys.
    Fields(ColumnFields),
}

/// The integers of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IntegerSpan {
    /// True if one is below 0.
    pub(crate) negative: bool,
    /// True if one is above `i64::MAX`.
    pub(crate) large: bool,
    /// True if a 64-bit float may not hold one.
    pub(crate) inexact: bool,
}

/// The unit of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeResolution {
    /// Declared.
    Millis,
    /// `wide` if a time is outside of the years 1678 to 2261, the range of nanoseconds.
    Micros {
        wide: bool,
    },
    Nanos,
}

/// The fields of a map, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnFields(Vec<ColumnField>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnField {
    pub(crate) name: Str,
    pub(crate) column: ColumnType,
    /// Place in the schema that declares the field. Other fields come after the declared ones, sorted by name.
    rank: usize,
}

impl ColumnFields {
    /// Creates the fields of a schema, in its order.
    pub(crate) fn declared(fields: impl IntoIterator<Item = (Str, ColumnType)>) -> Self {
        let fields = fields.into_iter().enumerate().map(|(rank, (name, column))| ColumnField { name, column, rank });
        let mut fields: Vec<ColumnField> = fields.collect();
        fields.sort_by(|one, other| one.name.cmp(&other.name));
        ColumnFields(fields)
    }

    /// Returns the fields in the order of the file.
    pub(crate) fn in_order(&self) -> Vec<&ColumnField> {
        let mut fields: Vec<&ColumnField> = self.0.iter().collect();
        fields.sort_by_key(|field| field.rank);
        fields
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|field| field.name.as_str().cmp(name))
    }
}

/// Why a value cannot be in a column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}", place = if path.is_empty() { ".".to_owned() } else { PathText(path).to_string() })]
pub(crate) struct ColumnConflict {
    /// The keys of its path, the innermost first.
    path: Vec<Str>,
    why: String,
}

struct PathText<'a>(&'a [Str]);

impl std::fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().rev().try_for_each(|key| write!(f, ".{key}"))
    }
}

impl ColumnConflict {
    fn new(why: impl Into<String>) -> Self {
        ColumnConflict { path: Vec::new(), why: why.into() }
    }

    fn within(mut self, key: &Str) -> Self {
        self.path.push(key.clone());
        self
    }
}

impl IntegerSpan {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Int(number) => {
                IntegerSpan { negative: *number < 0, large: false, inexact: number.unsigned_abs() > EXACT }
            }
            Value::UInt(number) => IntegerSpan { negative: false, large: true, inexact: *number > EXACT },
            _ => return None,
        })
    }

    fn join(self, other: Self) -> Self {
        IntegerSpan {
            negative: self.negative || other.negative,
            large: self.large || other.large,
            inexact: self.inexact || other.inexact,
        }
    }
}

impl TimeResolution {
    /// Returns the unit for a time.
    fn of(time: &Timestamp) -> Result<Self, ColumnConflict> {
        let is_fine = !time.timestamp_subsec_nanos().is_multiple_of(1000);
        match (is_fine, time.timestamp_nanos_opt()) {
            (true, Some(_)) => Ok(TimeResolution::Nanos),
            (true, None) => Err(ColumnConflict::new(format!(
                "the time {time} has nanoseconds, and a Parquet column of nanoseconds holds only the years 1678 to 2261"
            ))),
            (false, within) => Ok(TimeResolution::Micros { wide: within.is_none() }),
        }
    }

    fn join(self, other: Self) -> Option<Self> {
        Some(match (self, other) {
            (TimeResolution::Millis, _) => TimeResolution::Millis,
            (TimeResolution::Micros { wide: one }, TimeResolution::Micros { wide: other }) => {
                TimeResolution::Micros { wide: one || other }
            }
            (TimeResolution::Nanos, TimeResolution::Nanos)
            | (TimeResolution::Nanos, TimeResolution::Micros { wide: false })
            | (TimeResolution::Micros { wide: false }, TimeResolution::Nanos) => TimeResolution::Nanos,
            _ => return None,
        })
    }
}

impl ColumnType {
    /// Returns the type of a column of any 64-bit signed integers.
    pub(crate) fn integer() -> Self {
        ColumnType::Integer(IntegerSpan { negative: true, large: false, inexact: true })
    }

    /// Returns `true` if the column holds the value as it is. This is the usual case, and allocates nothing.
    pub(crate) fn holds(&self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (ColumnType::Unknown, _) => false,
            (ColumnType::Boolean, Value::Bool(_))
            | (ColumnType::Text, Value::Text(_))
            | (ColumnType::Bytes, Value::Bytes(_)) => true,
            (ColumnType::Integer32, Value::Int(number)) => i32::try_from(*number).is_ok(),
            (ColumnType::Integer(range), value) => IntegerSpan::of(value).is_some_and(|of| range.join(of) == *range),
            (ColumnType::Float, value) => is_float(value),
            (ColumnType::Float32, Value::Float(number)) => number.is_nan() || f64::from(*number as f32) == *number,
            (ColumnType::Float32, Value::Int(number)) => number.unsigned_abs() <= 1 << 24,
            (ColumnType::Date, Value::Time(time)) => time.timestamp().rem_euclid(86_400) == 0 && is_whole_second(time),
            (ColumnType::Time(TimeResolution::Millis), Value::Time(time)) => {
                time.timestamp_subsec_nanos().is_multiple_of(1_000_000)
            }
            (ColumnType::Time(unit), Value::Time(time)) => {
                TimeResolution::of(time).is_ok_and(|of| unit.join(of) == Some(*unit))
            }
            (ColumnType::Decimal(precision, scale), Value::Text(text)) => decimal(text, *precision, *scale).is_some(),
            (ColumnType::List(items), Value::List(list)) => list.iter().all(|item| items.holds(item)),
            (ColumnType::Map(values), Value::Map(map)) => map.iter().all(|(_, value)| values.holds(value)),
            (ColumnType::Fields(fields), Value::Map(map)) => holds_fields(fields, map),
            _ => false,
        }
    }

    /// Widens the type so that the column holds the value too. On an error, the type may have been widened in part.
    pub(crate) fn widen(&mut self, value: &Value) -> Result<(), ColumnConflict> {
        self.widen_within(value, DEEPEST)
    }

    fn widen_within(&mut self, value: &Value, depth: usize) -> Result<(), ColumnConflict> {
        if *value == Value::Null {
            return Ok(());
        }
        let depth = depth.checked_sub(1).ok_or_else(|| {
            ColumnConflict::new(format!(
                "a Parquet file has at most {DEEPEST} levels of lists and maps, and this record has more"
            ))
        })?;
        if *self == ColumnType::Unknown {
            *self = ColumnType::start(value)?;
        }
        match (&mut *self, value) {
            (ColumnType::List(items), Value::List(list)) => {
                list.iter().try_for_each(|item| items.widen_within(item, depth))
            }
            (ColumnType::Map(values), Value::Map(map)) => {
                map.iter().try_for_each(|(key, value)| values.widen_within(value, depth).map_err(|e| e.within(key)))
            }
            (ColumnType::Fields(fields), Value::Map(map)) => widen_fields(fields, map, depth),
            (ColumnType::Integer(range), Value::Int(_) | Value::UInt(_)) => {
                *range = range.join(IntegerSpan::of(value).unwrap_or_default());
                Ok(())
            }
            (ColumnType::Integer(range), Value::Float(_)) if !range.inexact => {
                *self = ColumnType::Float;
                Ok(())
            }
            (ColumnType::Time(unit), Value::Time(time)) => match unit.join(TimeResolution::of(time)?) {
                Some(joined) if joined != TimeResolution::Millis || self.holds(value) => {
                    *self = ColumnType::Time(joined);
                    Ok(())
                }
                _ => Err(self.misfit(value)),
            },
            (column, value) if column.holds(value) => Ok(()),
            (column, value) => Err(column.misfit(value)),
        }
    }

    fn start(value: &Value) -> Result<ColumnType, ColumnConflict> {
        Ok(match value {
            Value::Null => ColumnType::Unknown,
            Value::Bool(_) => ColumnType::Boolean,
            Value::Int(_) | Value::UInt(_) => ColumnType::Integer(IntegerSpan::of(value).unwrap_or_default()),
            Value::Float(_) => ColumnType::Float,
            Value::Text(_) => ColumnType::Text,
            Value::Bytes(_) => ColumnType::Bytes,
            Value::Time(time) => ColumnType::Time(TimeResolution::of(time)?),
            Value::List(_) => ColumnType::List(Box::new(ColumnType::Unknown)),
            Value::Map(_) => ColumnType::Fields(ColumnFields::default()),
        })
    }

    fn misfit(&self, value: &Value) -> ColumnConflict {
        ColumnConflict::new(format!("{} and {} cannot be in one Parquet column", self.name(), value.type_name()))
    }

    fn name(&self) -> &'static str {
        match self {
            ColumnType::Unknown => "null",
            ColumnType::Boolean => "bool",
            ColumnType::Integer32 => "a 32-bit integer",
            ColumnType::Integer(_) => "integer",
            ColumnType::Float32 => "a 32-bit float",
            ColumnType::Float => "float",
            ColumnType::Text => "text",
            ColumnType::Bytes => "bytes",
            ColumnType::Date => "date",
            ColumnType::Time(_) => "time",
            ColumnType::Decimal(..) => "decimal",
            ColumnType::List(_) => "list",
            ColumnType::Map(_) | ColumnType::Fields(_) => "map",
        }
    }

    /// Returns the number of columns within this one, and itself.
    pub(crate) fn size(&self) -> usize {
        match self {
            ColumnType::List(items) => 1 + items.size(),
            ColumnType::Map(values) => 2 + values.size(),
            ColumnType::Fields(fields) => 1 + fields.0.iter().map(|field| field.column.size()).sum::<usize>(),
            _ => 1,
        }
    }

    /// Returns why a file cannot have so many columns; `None` if it can.
    pub(crate) fn is_too_wide(&self) -> Option<ColumnConflict> {
        let size = self.size();
        (size > MOST_FIELDS).then(|| {
            ColumnConflict::new(format!(
                "the record has {size} fields, and a Parquet file has at most {MOST_FIELDS} of them here"
            ))
        })
    }
}

fn is_whole_second(time: &Timestamp) -> bool {
    time.timestamp_subsec_nanos() == 0
}

fn is_float(value: &Value) -> bool {
    match value {
        Value::Float(_) => true,
        Value::Int(_) | Value::UInt(_) => IntegerSpan::of(value).is_some_and(|of| !of.inexact),
        _ => false,
    }
}

fn holds_fields(fields: &ColumnFields, map: &Object) -> bool {
    // Both are sorted by name.
    let mut known = fields.0.iter();
    map.iter().all(|(name, value)| {
        known.find(|field| field.name >= *name).is_some_and(|field| field.name == *name && field.column.holds(value))
    })
}

fn widen_fields(fields: &mut ColumnFields, map: &Object, depth: usize) -> Result<(), ColumnConflict> {
    for (name, value) in map.iter() {
        let place = match fields.place(name) {
            Ok(place) => place,
            Err(place) => {
                let field = ColumnField { name: name.clone(), column: ColumnType::Unknown, rank: usize::MAX };
                fields.0.insert(place, field);
                place
            }
        };
        fields.0[place].column.widen_within(value, depth).map_err(|unfit| unfit.within(name))?;
    }
    Ok(())
}

/// Returns the unscaled number of a decimal text with this scale. `None` if the text is not a decimal number, or does not
/// fit.
pub(crate) fn decimal(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let missing = usize::from(scale).checked_sub(fraction.len())?;
    let digits = whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat_n(b'0', missing));
    let mut number: i128 = 0;
    for digit in digits {
        number = number.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let most = 10_i128.checked_pow(u32::from(precision))?;
    (number < most).then_some(if negative { -number } else { number })
}

/// Returns the text of a decimal number, with all digits of its scale.
pub(crate) fn decimal_text(digits: &str, scale: i8) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    match usize::try_from(scale) {
        Ok(0) => format!("{sign}{digits}"),
        Ok(scale) => {
            let padded = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = padded.split_at(padded.len() - scale);
            format!("{sign}{whole}.{fraction}")
        }
        // The number is a multiple of a power of ten.
        Err(_) if digits == "0" => "0".to_owned(),
        Err(_) => format!("{sign}{digits}{}", "0".repeat(usize::from(scale.unsigned_abs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[Value]) -> Result<ColumnType, String> {
        let mut column = ColumnType::Unknown;
        for value in values {
            column.widen(value).map_err(|unfit| unfit.to_string())?;
            assert!(column.holds(value), "{column:?} {value:?}");
        }
        assert!(values.iter().all(|value| column.holds(value)), "{column:?}");
        Ok(column)
    }

    fn time(text: &str) -> Value {
        Value::Time(text.parse().unwrap())
    }

    fn map(entries: &[(&str, Value)]) -> Value {
        Value::from(Object::from_entries(entries.iter().map(|(k, v)| ((*k).into(), v.clone())).collect()))
    }

    #[test]
    fn a_column_widens_only_as_far_as_every_value_stays_exact() {
        let range = |negative, large, inexact| Ok(ColumnType::Integer(IntegerSpan { negative, large, inexact }));
        assert_eq!(column(&[Value::Null]), Ok(ColumnType::Unknown));
        assert_eq!(column(&[1i64.into(), Value::Null, (-1i64).into()]), range(true, false, false));
        assert_eq!(column(&[u64::MAX.into(), i64::MIN.into()]), range(true, true, true));
        assert_eq!(column(&[1i64.into(), 0.5.into(), 2i64.into()]), Ok(ColumnType::Float));
        assert_eq!(
            column(&[0.5.into(), i64::MAX.into()]),
            Err(".: float and integer cannot be in one Parquet column".into())
        );
        assert!(column(&[i64::MAX.into(), 0.5.into()]).is_err() && column(&["a".into(), 1i64.into()]).is_err());
        let micros = "2026-11-28T00:00:00.000001Z";
        assert_eq!(column(&[time(micros)]), Ok(ColumnType::Time(TimeResolution::Micros { wide: false })));
        assert_eq!(
            column(&[time(micros), time("2026-11-28T00:00:00.000000001Z")]),
            Ok(ColumnType::Time(TimeResolution::Nanos))
        );
        assert_eq!(
            column(&[time("9999-01-01T00:00:00Z")]),
            Ok(ColumnType::Time(TimeResolution::Micros { wide: true }))
        );
        assert!(column(&[time("9999-01-01T00:00:00Z"), time("2026-11-28T00:00:00.000000001Z")]).is_err());
        assert!(column(&[time("9999-01-01T00:00:00.000000001Z")]).is_err());
    }

    #[test]
    fn a_conflict_names_the_field() {
        let list = |items: &[Value]| Value::from(items.to_vec());
        let nested = map(&[("a", map(&[("b", list(&[1i64.into(), "x".into()]))]))]);
        assert_eq!(column(&[nested]), Err(".a.b: integer and text cannot be in one Parquet column".into()));
        let deep = (0..100).fold(Value::from(1i64), |inner, _| list(&[inner]));
        assert!(column(&[deep]).unwrap_err().contains("at most 64 levels"));
        let wide: Vec<(String, Value)> = (0..10_001).map(|n| (n.to_string(), Value::Null)).collect();
        let wide: Object = wide.into_iter().collect();
        let mut column = ColumnType::Unknown;
        column.widen(&Value::from(wide)).unwrap();
        assert!(column.is_too_wide().is_some());
    }

    #[test]
    fn declared_fields_come_first_in_their_order() {
        let fields =
            [("z", ColumnType::Text), ("a", ColumnType::Integer32)].map(|(name, column)| (name.into(), column));
        let mut column = ColumnType::Fields(ColumnFields::declared(fields));
        let row = map(&[("a", 1i64.into()), ("m", true.into()), ("b", true.into())]);
        assert!(!column.holds(&row));
        column.widen(&row).unwrap();
        assert!(column.holds(&row));
        let ColumnType::Fields(fields) = &column else { panic!() };
        let names: Vec<&str> = fields.in_order().into_iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["z", "a", "b", "m"]);
        assert!(column.widen(&map(&[("a", (1i64 << 40).into())])).is_err());
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("12.50", 4, 2), Some(1250));
        assert_eq!(decimal("-0.05", 4, 2), Some(-5));
        assert_eq!((decimal("1", 4, 2), decimal(".5", 4, 2), decimal("1.", 4, 2)), (Some(100), Some(50), Some(100)));
        for text in ["", ".", "1.005", "123.45", "1e3", "--1", "ä"] {
            assert_eq!(decimal(text, 4, 2), None, "{text}");
        }
        assert_eq!(decimal(&"9".repeat(38), 38, 0).unwrap().to_string(), "9".repeat(38));
        assert_eq!(decimal(&"9".repeat(60), 38, 0), None);
        for (number, scale, text) in
            [("1250", 2, "12.50"), ("-5", 2, "-0.05"), ("7", 0, "7"), ("12", -2, "1200"), ("0", -2, "0")]
        {
            assert_eq!(decimal_text(number, scale), text);
        }
    }
}
