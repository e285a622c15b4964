//! `csv.decode`: decodes a row of CSV.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Field, Fields, Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::phrase::counted;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use memchr::{memchr, memchr_iter};

use super::{BYTE_ORDER_MARK, Dialect};
use crate::codes;
use crate::field::convert::ScalarType;
use crate::parse::text_of;

/// Returns the `csv.decode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Decode>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the row: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// Names of the columns in their order, each with an optional type after a colon: string (default), int, float, bool or
    /// time. With header, the columns that every row must have, in any order; others are strings.
    #[parameter(example = "id:int,name,price:float")]
    columns: Argument<Vec<Str>>,
    /// The field with the names of the columns as a row of CSV, such as .Metadata["file.header"], which the file source
    /// sets with framing: csv. By default, columns names all columns.
    #[parameter(within = [".Metadata", ".Key", ".Payload"])]
    header: Option<Argument<Reference>>,
    /// The character between two values; \t is a tab.
    #[parameter(default = ",")]
    delimiter: Argument<Str>,
    /// The character around values that contain a delimiter, a line break or this character, which is doubled then.
    #[parameter(default = "\"")]
    quote: Argument<Str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: Str,
    ty: ScalarType,
}

struct Decode {
    field: Reference,
    /// The columns of the settings.
    columns: Arc<[Column]>,
    header: Option<Reference>,
    /// The columns of the next row in their order.
    layout: Arc<[Column]>,
    /// The header that `layout` is of.
    named: String,
    dialect: Dialect,
    reader: Reader,
    /// The values of a row, one after the other; reused.
    values: Vec<u8>,
    /// Their ends; reused.
    ends: Vec<usize>,
}

impl Clone for Decode {
    fn clone(&self) -> Self {
        Decode::new(self.field.clone(), self.columns.clone(), self.header.clone(), self.dialect)
    }
}

impl InlineOperator for Decode {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("csv.decode", "Decodes a row of CSV.")
            .describe(
                "Replaces a row of CSV (RFC 4180) with an object that has the columns as fields. Quoted values may contain \
                 line breaks. After the closing quote of a value, there is a delimiter or the end of the row; a text \
                 there fails the record. A quote within a value that does not begin with one is a character like \
                 others. A byte order mark at the beginning is left out. The row must have all columns and no others. An empty value is an empty text in a column of \
                 strings, and null in the others. A value that does not have the type of its column fails the record. A \
                 field that is missing or null stays as it is.\n\nTo drop the row with the names of the columns, put \
                 `filter` with a condition before this processor.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let field = settings.field.one_side()?;
        let mut columns: Vec<Column> = Vec::new();
        for text in settings.columns.iter() {
            let (name, ty) = text.split_once(':').unwrap_or((text, "string"));
            let (name, ty) = (name.trim(), ty.trim());
            let known = ScalarType::CHOICES.iter().find(|(known, _)| *known == ty);
            let Some((_, ty)) = known else {
                let names = ScalarType::CHOICES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                let what = format!("the column {name:?} has the unknown type {ty:?}; the types are {names}");
                return Err(settings.columns.invalid(what).into());
            };
            if name.is_empty() || columns.iter().any(|column| *column.name == *name) {
                let what = if name.is_empty() {
                    "a column has no name".to_owned()
                } else {
                    format!("{name:?} is named twice")
                };
                return Err(settings.columns.invalid(what).into());
            }
            columns.push(Column { name: name.into(), ty: *ty });
        }
        if columns.is_empty() && settings.header.is_none() {
            let missing = settings.columns.finding(codes::SETTINGS_REQUIRED, "columns is required without header");
            return Err(missing.into());
        }
        let dialect = Dialect::new(&settings.delimiter, &settings.quote)?;
        let header = settings.header.map(|header| (*header).clone());
        Ok(Decode::new(field, columns.into(), header, dialect))
    }

    fn signature(&self) -> Signature {
        let signature = Signature::new().reads(self.field.access()).writes(self.field.access());
        match &self.header {
            Some(header) => signature.reads(header.access()),
            None => signature,
        }
    }

    fn flow(&self, flow: &mut Flow) {
        let texts = Kinds::TEXT | Kinds::BYTES;
        let row = flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, (texts, "a row of CSV"), true);
        // A record without a row needs no header.
        if let Some(header) = self.header.as_ref().filter(|_| !row.missing && row.ty.kinds.within(texts)) {
            flow.need(codes::FLOW_NOT_A_TEXT, "header", header, (texts, "a row of CSV"), false);
        }
        flow.may_fail();
        let field = |Column { name, ty }: &Column| {
            let kinds = if *ty == ScalarType::String { ty.kind() } else { ty.kind() | Kinds::NULL };
            (name.clone(), Field::present(Type::of(kinds)))
        };
        let mut fields = if self.header.is_some() { Fields::any() } else { Fields::closed([]) };
        self.columns.iter().map(field).for_each(|(name, field)| fields.insert(name, field));
        flow.replace("field", &self.field, Type::map(fields));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        let (field, header) = (self.field.clone(), self.header.clone());
        rows.for_each(|record| {
            if let Some(text) = text_of(&field, record)? {
                if let Some(header) = &header {
                    let names = text_of(header, record)?;
                    let names =
                        names.ok_or_else(|| invalid(format!("{header}, which names the columns, is missing")))?;
                    self.follow(names)?;
                }
                let object = self.decode(text)?;
                field.set(record, Value::Map(object.into()))?;
            }
            Ok(Decision::Keep)
        });
        // A single huge row must not keep its memory allocated.
        if self.values.capacity() > 1 << 20 {
            self.values = Vec::new();
        }
    }
}

impl Decode {
    fn new(field: Reference, columns: Arc<[Column]>, header: Option<Reference>, dialect: Dialect) -> Decode {
        // A clone of a reader has another state machine than the original (csv-core 0.1.13).
        let reader = ReaderBuilder::new().delimiter(dialect.delimiter).quote(dialect.quote).build();
        let (layout, named) = (columns.clone(), String::new());
        Decode { field, columns, header, layout, named, dialect, reader, values: Vec::new(), ends: Vec::new() }
    }

    /// Takes the columns of the next row from a header. The rows of a file have the same one.
    fn follow(&mut self, header: &str) -> Result<(), Fault> {
        if header == self.named && !header.is_empty() {
            return Ok(());
        }
        let wrong = |what: String| Err(invalid(format!("the header {header:?} {what}")));
        let ends = match self.read(header.as_bytes()) {
            Ok(ends) => ends,
            Err(what) => return wrong(format!("is not a row of CSV: {what}")),
        };
        let mut layout = Vec::with_capacity(ends);
        for name in self.texts(ends).map(str::trim) {
            if layout.iter().any(|column: &Column| *column.name == *name) {
                return wrong(format!("names {name:?} twice"));
            }
            let known = self.columns.iter().find(|column| *column.name == *name);
            layout.push(Column { name: name.into(), ty: known.map_or(ScalarType::String, |column| column.ty) });
        }
        let missing = self.columns.iter().find(|wanted| layout.iter().all(|column| column.name != wanted.name));
        if let Some(missing) = missing {
            return wrong(format!("has no column {:?}", missing.name));
        }
        self.layout = layout.into();
        self.named.clear();
        self.named.push_str(header);
        Ok(())
    }

    fn decode(&mut self, text: &str) -> Result<Object, Fault> {
        let ends = self.read(text.as_bytes()).map_err(invalid)?;
        let wrong = |what: String| Err(invalid(what));
        if ends != self.layout.len() {
            let of = if self.header.is_some() { "the header" } else { "columns" };
            return wrong(format!("the row has {}, and {of} has {}", counted(ends, "value"), self.layout.len()));
        }
        let mut entries = Vec::with_capacity(ends);
        for (Column { name, ty }, text) in self.layout.iter().zip(self.texts(ends)) {
            let value = match ty {
                ScalarType::String => Value::from(text),
                _ if text.is_empty() => Value::Null,
                ty => match ty.read(text) {
                    Some(value) => value,
                    None => return wrong(format!("the value of the column {name:?} is not {}", ty.demands())),
                },
            };
            entries.push((name.clone(), value));
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Object::from_entries(entries))
    }

    /// Returns the values in the buffers. Those of a text are texts.
    fn texts(&self, count: usize) -> impl Iterator<Item = &str> {
        let mut from = 0;
        self.ends[..count].iter().map(move |end| {
            let value = &self.values[std::mem::replace(&mut from, *end)..*end];
            std::str::from_utf8(value).unwrap_or_default()
        })
    }

    /// Reads the values of a row into the buffers, and returns their number.
    fn read(&mut self, row: &[u8]) -> Result<usize, String> {
        check_quotes(row, self.dialect)?;
        self.reader.reset();
        // The values are not longer than the row, and each but the last has a delimiter after it. The reader stops when a
        // buffer is full, so each has room for one more.
        self.values.resize(row.len() + 1, 0);
        self.ends.resize(memchr_iter(self.dialect.delimiter, row).count() + 2, 0);
        let (result, read, written, mut ended) = self.reader.read_record(row, &mut self.values, &mut self.ends);
        if result == ReadRecordResult::InputEmpty {
            // The row ends with the text.
            ended += self.reader.read_record(&[], &mut self.values[written..], &mut self.ends[ended..]).3;
        }
        match row[read..].iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            true => Ok(ended),
            false => Err("the text has several rows".to_owned()),
        }
    }
}

fn invalid(what: String) -> Fault {
    Fault::record(codes::CSV_INVALID, what)
}

/// Checks that each quoted value ends, and that no text is between its closing quote and the next delimiter.
fn check_quotes(row: &[u8], Dialect { delimiter, quote }: Dialect) -> Result<(), String> {
    let ends_value = |byte: u8| byte == delimiter || matches!(byte, b'\r' | b'\n');
    let mut at = if row.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    // Most rows have no quote.
    if memchr(quote, &row[at..]).is_none() {
        return Ok(());
    }
    for number in 1_usize.. {
        if row.get(at) == Some(&quote) {
            let begin = at;
            at += 1;
            loop {
                let Some(found) = memchr(quote, &row[at..]).map(|found| at + found) else {
                    let begin = begin + 1;
                    return Err(format!("the quoted value {number}, which begins at byte {begin}, does not end"));
                };
                at = found + 1;
                match row.get(at) {
                    Some(byte) if *byte == quote => at += 1,
                    Some(byte) if !ends_value(*byte) => {
                        return Err(format!(
                            "text follows the closing quote of the value {number}, at byte {}: double a quote that is a \
                             part of the value",
                            at + 1
                        ));
                    }
                    _ => break,
                }
            }
        }
        match row[at..].iter().position(|byte| ends_value(*byte)) {
            Some(end) => at += end + 1,
            None => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{self, findings};

    const FIELD: (&str, &str) = ("field", ".Payload.After");

    fn decode(settings: &[(&str, &str)], text: &str) -> Result<String, String> {
        let told = |error: String| error.strip_prefix("csv_invalid: ").unwrap().to_owned();
        testing::of_text(&kind(), settings, text).map_err(told)
    }

    #[test]
    fn rows_of_the_standard_are_decoded() {
        // The cases of RFC 4180, section 2.
        for (row, expected) in [
            ("aaa,bbb,ccc\r\n", ["aaa", "bbb", "ccc"]),
            ("zzz,yyy,xxx", ["zzz", "yyy", "xxx"]),
            ("\"aaa\",\"bbb\",\"ccc\"\n", ["aaa", "bbb", "ccc"]),
            ("\"aaa\",\"b\r\nbb\",\"ccc\"", ["aaa", "b\r\nbb", "ccc"]),
            ("\"aaa\",\"b\"\"bb\",\"c,c\"", ["aaa", "b\"bb", "c,c"]),
            (" a , b,c ", [" a ", " b", "c "]),
            (",\"\",é", ["", "", "é"]),
        ] {
            let [x, y, z] = expected.map(|text| serde_json::to_string(text).unwrap());
            let expected = format!(r#"{{"x":{x},"y":{y},"z":{z}}}"#);
            assert_eq!(decode(&[("columns", "x,y,z")], row), Ok(expected), "{row:?}");
        }
    }

    #[test]
    fn values_have_the_types_of_their_columns() {
        let columns = ("columns", "name, id:int, price:float, sold:bool, at:time");
        let expected = r#"{"at":"2026-11-21T06:00:00Z","id":7,"name":"tea","price":2.5,"sold":true}"#;
        assert_eq!(decode(&[columns], "tea,7,2.5,true,2026-11-21T06:00:00Z").as_deref(), Ok(expected));
        let nothing = r#"{"at":null,"id":null,"name":"","price":null,"sold":null}"#;
        assert_eq!(decode(&[columns], ",,,,").as_deref(), Ok(nothing));
        let said = "the value of the column \"id\" is not an integer in base 10 that fits 64 bits";
        assert_eq!(decode(&[columns], "tea,seven,1,true,0"), Err(said.to_owned()));
    }

    #[test]
    fn bad_rows_fail() {
        let columns = ("columns", "x,y");
        let after = |value: usize, at: usize| {
            format!(
                "text follows the closing quote of the value {value}, at byte {at}: double a quote that is a part of the value"
            )
        };
        for (row, why) in [
            ("a", "the row has 1 value, and columns has 2"),
            ("a,b,c", "the row has 3 values, and columns has 2"),
            ("", "the row has 0 values, and columns has 2"),
            ("a,\"b", "the quoted value 2, which begins at byte 3, does not end"),
            ("\"a\"b,c", &*after(1, 4)),
            ("a,\"b\" ", &*after(2, 6)),
            ("\"a\"\"b\"c,d", &*after(1, 7)),
            ("\u{feff}\"a\"b,c", &*after(1, 7)),
            ("a,b\nc,d", "the text has several rows"),
        ] {
            assert_eq!(decode(&[columns], row), Err(why.to_owned()), "{row:?}");
        }
        assert!(decode(&[columns], "a,b\n\n").is_ok());
        assert!(decode(&[columns], "\"a\",\"b\"\r\n").is_ok());
        // A quote within a value that does not begin with one.
        let inches = decode(&[columns], "5\" disk,b");
        assert_eq!(inches.as_deref(), Ok(r#"{"x":"5\" disk","y":"b"}"#));
        testing::failed_rows_stay(&kind(), &[FIELD, columns]);
    }

    #[test]
    fn a_header_names_the_columns_in_any_order() {
        let field = ("field", ".Payload.After.row");
        let settings = [field, ("columns", "id:int,price:float"), ("header", ".Metadata.h")];
        let record = |header: &str, row: &str| {
            serde_json::json!({ "operation": "create", "metadata": { "h": header }, "payload": { "after": { "row": row } } })
                .to_string()
        };
        let decode = |header: &str, row: &str| {
            let after = testing::outcome(&kind(), &settings, &record(header, row))?;
            let record: serde_json::Value = serde_json::from_str(&after).unwrap();
            Ok::<_, String>(record["payload"]["after"]["row"].to_string())
        };
        let both = Ok(r#"{"id":7,"name":"tea","price":2.5}"#.to_owned());
        assert_eq!(decode("id,name,price", "7,tea,2.5"), both);
        assert_eq!(decode("\u{feff}price,\"name\",id", "2.5,tea,7"), both);
        let said = |header: &str, why: &str| Err(format!("csv_invalid: the header {header:?} {why}"));
        assert_eq!(decode("id,name", "7,tea"), said("id,name", "has no column \"price\""));
        assert_eq!(decode("id,id,price", "7,7,1"), said("id,id,price", "names \"id\" twice"));
        let few = Err("csv_invalid: the row has 2 values, and the header has 3".to_owned());
        assert_eq!(decode("id,name,price", "7,tea"), few);
        let bare = r#"{"operation":"create","payload":{"after":{"row":"7,tea"}}}"#;
        let missing = "csv_invalid: .Metadata.h, which names the columns, is missing";
        assert_eq!(testing::outcome(&kind(), &settings, bare), Err(missing.to_owned()));
        // Without columns, all values are texts.
        let settings = [field, ("header", ".Metadata.h")];
        let after = testing::outcome(&kind(), &settings, &record("a,b", "1,2")).unwrap();
        assert!(after.contains(r#"{"a":"1","b":"2"}"#), "{after}");
        assert_eq!(findings(&kind(), &[FIELD]), ["columns is required without header"]);
    }

    #[test]
    fn the_compiler_knows_what_comes_out() {
        testing::shapes_are_large_enough(&kind(), &[FIELD, ("columns", "a:int,b")]);
        testing::shapes_are_large_enough(&kind(), &[FIELD, ("columns", "a:int"), ("header", ".Metadata.a")]);
    }

    #[test]
    fn other_characters_separate_and_quote() {
        let said =
            |delimiter, quote, row| decode(&[("columns", "x,y"), ("delimiter", delimiter), ("quote", quote)], row);
        assert_eq!(said(";", "'", "'a;b';c").as_deref(), Ok(r#"{"x":"a;b","y":"c"}"#));
        assert_eq!(said("\\t", "\"", "a\tb").as_deref(), Ok(r#"{"x":"a","y":"b"}"#));
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |settings: &[(&str, &str)]| findings(&kind(), &[&[FIELD], settings].concat()).join("; ");
        assert!(
            said(&[("columns", "a:number")])
                .contains("the column \"a\" has the unknown type \"number\"; the types are string")
        );
        assert!(said(&[("columns", "a,a")]).contains("\"a\" is named twice"));
        assert!(said(&[("columns", "a"), ("delimiter", "ab")]).contains("expected one ASCII character"));
        assert!(said(&[("columns", "a"), ("quote", ",")]).contains("delimiter and quote are the same"));
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_decoded(values in prop::collection::vec(".*", 3)) {
            let quoted = |value: &String| format!("\"{}\"", value.replace('"', "\"\""));
            let row = values.iter().map(quoted).collect::<Vec<_>>().join(",");
            let [x, y, z] = [0, 1, 2].map(|at| serde_json::to_string(&values[at]).unwrap());
            let found = decode(&[("columns", "x,y,z")], &row).unwrap();
            let expected = format!(r#"{{"x":{x},"y":{y},"z":{z}}}"#);
            let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            prop_assert_eq!(parsed(&found), parsed(&expected));
        }

        #[test]
        fn no_text_stops_the_decoder(text in "[a,\"\r\n;é]{0,40}") {
            let _ = decode(&[("columns", "x,y")], &text);
        }
    }
}
