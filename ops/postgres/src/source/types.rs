//! Types of columns, and their texts as values.
//!
//! A text becomes a value only if the value has the same text again. All others stay text, so that nothing is lost: times
//! before the year 1, after the year 9999 and at infinity, numbers that are not finite, and arrays with other bounds. A
//! text that is not UTF-8, in a database without an encoding, becomes bytes.

mod literal;
mod time;

use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

/// The type of a column, as far as its values depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// `boolean`.
    Bool,
    /// `smallint` and `integer`.
    Int,
    /// `bigint` and `oid`.
    Long,
    /// `real`.
    Float,
    /// `double precision`.
    Double,
    /// `bytea`.
    Bytes,
    /// `date`.
    Date,
    /// `timestamp`.
    Timestamp,
    /// `timestamp with time zone`.
    TimestampTz,
    /// `hstore`: texts by name.
    Hstore,
    /// An array of a type, whose elements are separated by this character.
    Array(Arc<ColumnType>, u8),
    /// Any other type: values are texts.
    Text,
}

/// A row of `pg_type`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(super) struct TypeRow {
    /// Object id.
    pub(super) oid: u32,
    /// Name.
    pub(super) name: String,
    /// `d` for a domain.
    pub(super) form: char,
    /// The type of a domain; 0 for other types.
    pub(super) base: u32,
    /// The type of the elements of an array; 0 for other types.
    pub(super) element: u32,
    /// The character between the elements of an array.
    pub(super) delimiter: char,
}

impl ColumnType {
    /// Returns a type that every server has under this object id; `None` for others.
    pub(super) fn builtin(oid: u32) -> Option<ColumnType> {
        Some(match oid {
            16 => ColumnType::Bool,
            21 | 23 => ColumnType::Int,
            20 | 26 => ColumnType::Long,
            700 => ColumnType::Float,
            701 => ColumnType::Double,
            17 => ColumnType::Bytes,
            1082 => ColumnType::Date,
            1114 => ColumnType::Timestamp,
            1184 => ColumnType::TimestampTz,
            // char, name, text, json, xml, money, bpchar, varchar, time, interval, timetz, bit, varbit, numeric, uuid,
            // jsonb.
            18 | 19 | 25 | 114 | 142 | 790 | 1042 | 1043 | 1083 | 1186 | 1266 | 1560 | 1562 | 1700 | 2950 | 3802 => {
                ColumnType::Text
            }
            _ => return None,
        })
    }

    /// Returns the type of an object id, with the rows of the types that it consists of.
    pub(super) fn of(oid: u32, rows: &[TypeRow]) -> ColumnType {
        if let Some(found) = ColumnType::builtin(oid) {
            return found;
        }
        match rows.iter().find(|row| row.oid == oid) {
            Some(row) if row.form == 'd' => ColumnType::of(row.base, rows),
            Some(row) if row.element != 0 => {
                ColumnType::Array(Arc::new(ColumnType::of(row.element, rows)), row.delimiter as u8)
            }
            Some(row) if row.name == "hstore" => ColumnType::Hstore,
            _ => ColumnType::Text,
        }
    }

    /// Returns the value of a text. Cost: O(length).
    pub(super) fn value(&self, text: &[u8]) -> Value {
        self.parsed(text).unwrap_or_else(|| as_text(text))
    }

    /// Returns the value of a text; `None` if only the text itself represents it.
    fn parsed(&self, text: &[u8]) -> Option<Value> {
        Some(match self {
            ColumnType::Text => return None,
            ColumnType::Bool => match text {
                b"t" => Value::Bool(true),
                b"f" => Value::Bool(false),
                _ => return None,
            },
            ColumnType::Int | ColumnType::Long => Value::Int(std::str::from_utf8(text).ok()?.parse().ok()?),
            ColumnType::Float | ColumnType::Double => {
                let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
                Value::Float(Some(number).filter(|number| number.is_finite())?)
            }
            ColumnType::Bytes => Value::Bytes(literal::bytes(text)?.into()),
            ColumnType::Date => Value::Time(time::date(text)?),
            ColumnType::Timestamp => Value::Time(time::timestamp(text)?),
            ColumnType::TimestampTz => Value::Time(time::timestamp(text.strip_suffix(b"+00")?)?),
            ColumnType::Hstore => Value::Map(Arc::new(Object::from_entries(literal::hstore(text)?))),
            ColumnType::Array(element, delimiter) => Value::List(Arc::new(literal::array(element, *delimiter, text)?)),
        })
    }
}

/// Returns a text as a value: as text, or as bytes if it is not UTF-8.
fn as_text(text: &[u8]) -> Value {
    match std::str::from_utf8(text) {
        Ok(text) => Value::Text(Str::from(text)),
        Err(_) => Value::Bytes(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::json;

    use super::*;

    fn shown(kind: &ColumnType, text: &str) -> String {
        let mut out = Vec::new();
        json::write_value(&kind.value(text.as_bytes()), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_text_becomes_a_value_that_has_the_same_text() {
        let ints = ColumnType::Array(Arc::new(ColumnType::Int), b',');
        let texts = ColumnType::Array(Arc::new(ColumnType::Text), b',');
        let boxes = ColumnType::Array(Arc::new(ColumnType::Text), b';');
        for (kind, text, json) in [
            (&ColumnType::Bool, "t", "true"),
            (&ColumnType::Long, "-9223372036854775808", "-9223372036854775808"),
            (&ColumnType::Float, "0.1", "0.1"),
            (&ColumnType::Double, "1e+300", "1e+300"),
            (&ColumnType::Double, "NaN", r#""NaN""#),
            (&ColumnType::Double, "-Infinity", r#""-Infinity""#),
            (&ColumnType::Bytes, "\\x00ff", r#""AP8=""#),
            (&ColumnType::Date, "2026-11-26", r#""2026-11-26T00:00:00Z""#),
            (&ColumnType::Date, "0044-03-15 BC", r#""0044-03-15 BC""#),
            (&ColumnType::Date, "infinity", r#""infinity""#),
            (&ColumnType::Timestamp, "2026-11-26 05:16:28.5", r#""2026-11-26T05:16:28.500Z""#),
            (&ColumnType::TimestampTz, "2026-11-26 05:16:28.000001+00", r#""2026-11-26T05:16:28.000001Z""#),
            (&ColumnType::TimestampTz, "12026-11-26 05:16:28+00", r#""12026-11-26 05:16:28+00""#),
            (&ColumnType::TimestampTz, "-infinity", r#""-infinity""#),
            (&ColumnType::Hstore, r#""a"=>"1", "b\"c"=>NULL"#, r#"{"a":"1","b\"c":null}"#),
            (&ColumnType::Hstore, "", "{}"),
            (&ints, "{1,NULL,3}", "[1,null,3]"),
            (&ints, "{{1,2},{3,4}}", "[[1,2],[3,4]]"),
            (&ints, "{}", "[]"),
            (&ints, "[0:1]={1,2}", r#""[0:1]={1,2}""#),
            (&texts, r#"{a,"b,c","d\"e","NULL",NULL,""}"#, r#"["a","b,c","d\"e","NULL",null,""]"#),
            (&boxes, "{(1,1),(0,0);(2,2),(0,0)}", r#"["(1,1),(0,0)","(2,2),(0,0)"]"#),
            (&ColumnType::Text, "1.10", r#""1.10""#),
        ] {
            assert_eq!(shown(kind, text), json, "{kind:?} {text}");
        }
        assert_eq!(ColumnType::Text.value(b"\xff"), Value::Bytes(Arc::from(&b"\xff"[..])));
    }

    #[test]
    fn types_consist_of_others() {
        let row = |oid, name: &str, form, base, element| TypeRow {
            oid,
            name: name.to_owned(),
            form,
            base,
            element,
            delimiter: ',',
        };
        let rows = [
            row(1007, "_int4", 'b', 0, 23),
            row(9000, "hstore", 'b', 0, 0),
            row(9001, "positive", 'd', 23, 0),
            row(9002, "_positive", 'b', 0, 9001),
            row(9003, "mood", 'e', 0, 0),
        ];
        let ints = ColumnType::Array(Arc::new(ColumnType::Int), b',');
        for (oid, kind) in [
            (1007, ints.clone()),
            (9000, ColumnType::Hstore),
            (9001, ColumnType::Int),
            (9002, ints),
            (9003, ColumnType::Text),
            (9999, ColumnType::Text),
        ] {
            assert_eq!(ColumnType::of(oid, &rows), kind, "{oid}");
        }
    }
}
