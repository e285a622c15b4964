//! `csv.encode`: encodes fields as a row of CSV.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_value;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use super::Dialect;
use crate::codes;
use crate::scalar::push_scalar;

/// Returns the `csv.encode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Encode>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the map: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// Names of the fields in the order of the columns.
    #[parameter(required, example = "id,name,price")]
    columns: Argument<Vec<Str>>,
    /// The character between two values; \t is a tab.
    #[parameter(default = ",")]
    delimiter: Argument<Str>,
    /// The character around values that contain a delimiter, a line break or this character, which is doubled then.
    #[parameter(default = "\"")]
    quote: Argument<Str>,
}

#[derive(Clone)]
struct Encode {
    field: Reference,
    columns: Arc<[Str]>,
    dialect: Dialect,
    /// The row; reused.
    row: String,
    /// The text of a value; reused.
    text: String,
}

impl InlineOperator for Encode {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("csv.encode", "Encodes fields as a row of CSV.")
            .describe(
                "Replaces a map with a row of CSV (RFC 4180) that has the values of the named fields, without a line break at \
                 the end. Fields that are not named are left out. A value that is missing or null is empty. Lists and maps \
                 become JSON; bytes must be UTF-8. A value that is not a map fails the record; a field that is missing or \
                 null stays as it is.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let field = settings.field.one_side()?;
        let columns: Vec<Str> = settings.columns.iter().map(|name| Str::from(name.trim())).collect();
        if columns.iter().any(|name| name.is_empty()) {
            return Err(settings.columns.invalid("a column has no name").into());
        }
        let dialect = Dialect::new(&settings.delimiter, &settings.quote)?;
        Ok(Encode { field, columns: columns.into(), dialect, row: String::new(), text: String::new() })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.need(codes::FLOW_NOT_A_MAP, "field", &self.field, (Kinds::MAP, "a map"), true);
        flow.may_fail();
        flow.replace("field", &self.field, Type::of(Kinds::TEXT));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if self.encode(record)? {
                self.field.set_text(record, &self.row)?;
            }
            Ok(Decision::Keep)
        });
        // A single huge row must not keep its memory allocated.
        if self.row.capacity() > 1 << 20 {
            (self.row, self.text) = (String::new(), String::new());
        }
    }
}

impl Encode {
    /// Writes the row into the buffer; `false` if the record stays as it is.
    fn encode(&mut self, record: &Record) -> Result<bool, Fault> {
        let Encode { field, columns, dialect, row, text } = self;
        let object = match field.get(record)? {
            Some(Part::Data(Data::Structured(object))) => object,
            Some(Part::Value(Value::Map(object))) => object,
            None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(false),
            Some(other) => {
                let what = format!("cannot encode {field}: it is {}, not a map", with_article(other.type_name()));
                return Err(Fault::record(codes::CSV_NOT_ENCODED, what));
            }
        };
        row.clear();
        for (number, name) in columns.iter().enumerate() {
            if number > 0 {
                row.push(char::from(dialect.delimiter));
            }
            push_field(*dialect, (name, object), row, text)?;
        }
        // Without quotes, a single empty value is no row but an empty line.
        if row.is_empty() {
            let quote = char::from(dialect.quote);
            row.extend([quote, quote]);
        }
        Ok(true)
    }
}

/// Appends the value of a field to the row. `buffer` is overwritten.
fn push_field(
    dialect: Dialect,
    (name, object): (&Str, &Object),
    row: &mut String,
    buffer: &mut String,
) -> Result<(), Fault> {
    let refused =
        |what: &str| Fault::record(codes::CSV_NOT_ENCODED, format!("cannot encode the field {name:?}: it is {what}"));
    match object.get(name) {
        None | Some(Value::Null) => {}
        Some(Value::Text(text)) => push_value(dialect, text, row),
        Some(Value::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).map_err(|_| refused("not in UTF-8"))?;
            push_value(dialect, text, row);
        }
        Some(value @ (Value::List(_) | Value::Map(_))) => {
            let mut json = Vec::new();
            write_value(value, &mut json)?;
            let json = String::from_utf8(json).map_err(|_| refused("not in UTF-8"))?;
            push_value(dialect, &json, row);
        }
        Some(scalar) => {
            buffer.clear();
            push_scalar(scalar, buffer);
            push_value(dialect, buffer, row);
        }
    }
    Ok(())
}

/// Appends a value, in quotes if it needs them.
fn push_value(Dialect { delimiter, quote }: Dialect, text: &str, row: &mut String) {
    let is_special = |byte: u8| byte == delimiter || byte == quote || matches!(byte, b'\n' | b'\r');
    // Readers leave out a byte order mark at the beginning.
    if !text.bytes().any(is_special) && !text.starts_with('\u{feff}') {
        return row.push_str(text);
    }
    let quote = char::from(quote);
    row.push(quote);
    for (number, part) in text.split(quote).enumerate() {
        if number > 0 {
            row.extend([quote, quote]);
        }
        row.push_str(part);
    }
    row.push(quote);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{self, findings, process, record};

    const FIELD: (&str, &str) = ("field", ".Payload.After");

    fn encode(settings: &[(&str, &str)], after: Data) -> Result<String, String> {
        let mut sample = record(r#"{"operation":"create"}"#);
        sample.payload.after = after;
        let settings: Vec<_> = [FIELD].iter().chain(settings).copied().collect();
        let (found, decision) = process(&kind(), &settings, &sample);
        match decision {
            Decision::Keep => match &found.payload.after {
                Data::Raw(bytes) => Ok(String::from_utf8(bytes.to_vec()).unwrap()),
                other => panic!("{other:?}"),
            },
            Decision::Fail(fault) => {
                assert_eq!((fault.code().name(), &found), ("csv_not_encoded", &sample));
                Err(fault.message())
            }
            other => panic!("{other:?}"),
        }
    }

    fn object(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Data {
        Data::from(entries.into_iter().collect::<Object>())
    }

    #[test]
    fn values_are_quoted_where_they_must_be() {
        let after = object([
            ("id", Value::from(7)),
            ("name", Value::from("a, \"b\"")),
            ("price", Value::Float(2.5)),
            ("sold", Value::from(true)),
            ("tags", Value::from(vec![Value::from("x"), Value::from("y")])),
            ("two", Value::from("a\nb")),
            ("other", Value::from("left out")),
        ]);
        let columns = ("columns", "id, name, price, sold, gone, tags, two");
        let expected = "7,\"a, \"\"b\"\"\",2.5,true,,\"[\"\"x\"\",\"\"y\"\"]\",\"a\nb\"";
        assert_eq!(encode(&[columns], after.clone()).as_deref(), Ok(expected));
        let tabs = encode(&[("columns", "id,name"), ("delimiter", "\\t"), ("quote", "'")], after);
        assert_eq!(tabs.as_deref(), Ok("7\ta, \"b\""));
        assert_eq!(encode(&[("columns", "gone")], object([])).as_deref(), Ok("\"\""));
    }

    #[test]
    fn what_is_no_map_fails() {
        let columns = ("columns", "x");
        let said = encode(&[columns], Data::text("x"));
        assert_eq!(said, Err("cannot encode .Payload.After: it is raw data, not a map".to_owned()));
        let bytes = object([("x", Value::Bytes(vec![0xff].into()))]);
        assert_eq!(encode(&[columns], bytes), Err("cannot encode the field \"x\": it is not in UTF-8".to_owned()));
        testing::failed_rows_stay(&kind(), &[FIELD, ("columns", "a,b")]);
        testing::shapes_are_large_enough(&kind(), &[("field", ".Payload.After.a"), ("columns", "a,b")]);
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |settings: &[(&str, &str)]| findings(&kind(), &[&[FIELD], settings].concat()).join("; ");
        assert!(said(&[("columns", "a"), ("quote", ",")]).contains("delimiter and quote are the same"));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(x in ".*", y in ".*", delimiter in prop::sample::select(vec![",", ";", "\\t"])) {
            let after = object([("x", Value::from(x.as_str())), ("y", Value::from(y.as_str()))]);
            let settings = [("columns", "x,y"), ("delimiter", delimiter)];
            let row = encode(&settings, after.clone()).unwrap();
            let mut sample = record(r#"{"operation":"create"}"#);
            sample.payload.after = Data::text(row.as_str());
            let settings: Vec<_> = [FIELD].iter().chain(&settings).copied().collect();
            let (found, _) = process(&super::super::decode::kind(), &settings, &sample);
            prop_assert_eq!(found.payload.after, after, "{}", row);
        }
    }
}
