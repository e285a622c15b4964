use std::collections::HashMap;

use anabranch_record::json::parse_value;
use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value as Avro;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::prelude::*;

use super::*;

fn codec(text: &str) -> Codec {
    Codec::parse(text).unwrap()
}

fn json(text: &str) -> Value {
    parse_value(text.as_bytes()).unwrap()
}

fn encoded(schema: &str, value: &Value) -> Result<Vec<u8>, String> {
    let mut out = vec![7];
    let result = codec(schema).encode(value, &mut out);
    let rest = out.split_off(1);
    assert!(result.is_ok() || rest.is_empty(), "an error leaves nothing behind");
    result.map(|()| rest).map_err(|error| error.to_string())
}

/// Decodes our bytes with the library.
fn read(schema: &str, bytes: &[u8]) -> Avro {
    let schema = Schema::parse_str(schema).unwrap();
    GenericDatumReader::builder(&schema).build().unwrap().read_value(&mut &bytes[..]).unwrap()
}

/// Schema, value, what the library reads, what we read back where that is another value.
#[test]
fn every_type_is_what_the_library_reads() {
    let time = |text: &str| Value::Time(text.parse().unwrap());
    let bytes = |bytes: &[u8]| Value::Bytes(bytes.into());
    let cases: Vec<(&str, Value, Avro)> = vec![
        (r#""null""#, Value::Null, Avro::Null),
        (r#""boolean""#, Value::Bool(true), Avro::Boolean(true)),
        (r#""int""#, Value::Int(-1), Avro::Int(-1)),
        (r#""int""#, Value::Int(i32::MIN.into()), Avro::Int(i32::MIN)),
        (r#""long""#, Value::Int(i64::MAX), Avro::Long(i64::MAX)),
        (r#""long""#, Value::Int(i64::MIN), Avro::Long(i64::MIN)),
        (r#""float""#, Value::Float(1.5), Avro::Float(1.5)),
        (r#""double""#, Value::Float(0.1), Avro::Double(0.1)),
        (r#""bytes""#, bytes(b"\0\xff"), Avro::Bytes(b"\0\xff".to_vec())),
        (r#""string""#, Value::from("äö"), Avro::String("äö".to_owned())),
        (r#"{"type":"array","items":"long"}"#, json("[1,2]"), Avro::Array(vec![Avro::Long(1), Avro::Long(2)])),
        (r#"{"type":"array","items":"long"}"#, json("[]"), Avro::Array(vec![])),
        (
            r#"{"type":"map","values":"string"}"#,
            json(r#"{"a":"x"}"#),
            Avro::Map(HashMap::from([("a".to_owned(), Avro::String("x".to_owned()))])),
        ),
        (r#"["null","long"]"#, Value::Int(3), Avro::Union(1, Box::new(Avro::Long(3)))),
        (r#"["string","null"]"#, Value::Null, Avro::Union(1, Box::new(Avro::Null))),
        (r#"{"type":"enum","name":"e","symbols":["A","B"]}"#, Value::from("B"), Avro::Enum(1, "B".to_owned())),
        (r#"{"type":"fixed","name":"f","size":2}"#, bytes(b"xy"), Avro::Fixed(2, b"xy".to_vec())),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"z","type":"long"},{"name":"a","type":"string"}]}"#,
            json(r#"{"a":"x","z":1}"#),
            Avro::Record(vec![("z".to_owned(), Avro::Long(1)), ("a".to_owned(), Avro::String("x".to_owned()))]),
        ),
        (
            r#"{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}"#,
            Value::from("-12.50"),
            Avro::Decimal(apache_avro::Decimal::from((-1250i16).to_be_bytes())),
        ),
        (
            r#"{"type":{"type":"fixed","name":"d","size":4},"logicalType":"decimal","precision":6,"scale":2}"#,
            Value::from("-0.01"),
            Avro::Decimal(apache_avro::Decimal::from((-1i32).to_be_bytes())),
        ),
        (
            r#"{"type":"bytes","logicalType":"big-decimal"}"#,
            Value::from("-123456789012345678901234567890.5"),
            Avro::BigDecimal("-123456789012345678901234567890.5".parse().unwrap()),
        ),
        (
            r#"{"type":"string","logicalType":"uuid"}"#,
            Value::from("550e8400-e29b-41d4-a716-446655440000"),
            Avro::Uuid("550e8400-e29b-41d4-a716-446655440000".parse().unwrap()),
        ),
        (
            r#"{"type":{"type":"fixed","name":"u","size":16},"logicalType":"uuid"}"#,
            Value::from("550e8400-e29b-41d4-a716-446655440000"),
            Avro::Uuid("550e8400-e29b-41d4-a716-446655440000".parse().unwrap()),
        ),
        (r#"{"type":"int","logicalType":"date"}"#, time("1969-12-31T00:00:00Z"), Avro::Date(-1)),
        (r#"{"type":"int","logicalType":"time-millis"}"#, Value::Int(7), Avro::TimeMillis(7)),
        (r#"{"type":"long","logicalType":"time-micros"}"#, Value::Int(7), Avro::TimeMicros(7)),
        (
            r#"{"type":"long","logicalType":"timestamp-millis"}"#,
            time("1970-01-01T00:00:01.002Z"),
            Avro::TimestampMillis(1002),
        ),
        (
            r#"{"type":"long","logicalType":"timestamp-micros"}"#,
            time("1969-12-31T23:59:59.999999Z"),
            Avro::TimestampMicros(-1),
        ),
        (
            r#"{"type":"long","logicalType":"timestamp-nanos"}"#,
            time("1970-01-01T00:00:00.000000001Z"),
            Avro::TimestampNanos(1),
        ),
        (
            r#"{"type":"long","logicalType":"local-timestamp-micros"}"#,
            time("1970-01-01T00:00:00.000001Z"),
            Avro::LocalTimestampMicros(1),
        ),
        (
            r#"{"type":{"type":"fixed","name":"d","size":12},"logicalType":"duration"}"#,
            json(r#"{"months":1,"days":2,"millis":3}"#),
            Avro::Duration(apache_avro::Duration::new(
                apache_avro::Months::new(1),
                apache_avro::Days::new(2),
                apache_avro::Millis::new(3),
            )),
        ),
    ];
    for (schema, value, expected) in cases {
        let bytes = encoded(schema, &value).unwrap_or_else(|error| panic!("{schema}: {error}"));
        assert_eq!(read(schema, &bytes), expected, "{schema}");
        assert_eq!(codec(schema).decode(&bytes).as_ref(), Ok(&value), "{schema}");
        let parsed = Schema::parse_str(schema).unwrap();
        let written = GenericDatumWriter::builder(&parsed).build().unwrap().write_value_to_vec(expected).unwrap();
        assert_eq!(codec(schema).decode(&written), Ok(value), "{schema}: as the library writes it");
    }
}

#[test]
fn decimals_of_any_declared_size_are_read_or_refused() {
    let bytes = |scale: usize| {
        format!(r#"{{"type":"bytes","logicalType":"decimal","precision":{},"scale":{scale}}}"#, scale.max(1))
    };
    assert_eq!(codec(&bytes(4096)).decode(b"\x02\x05"), Ok(Value::from(format!("0.{}5", "0".repeat(4095)))));
    let fixed = |size: usize| {
        let size = format!(r#"{{"type":"fixed","name":"d","size":{size}}}"#);
        format!(r#"{{"type":{size},"logicalType":"decimal","precision":6,"scale":2}}"#)
    };
    assert!(codec(&fixed(4096)).decode(&[0; 4096]).is_ok());
    for schema in [bytes(4097), bytes(70_000), bytes(2_000_000_000), fixed(4097), fixed(1_000_000)] {
        let error = Codec::parse(&schema).unwrap_err().to_string();
        assert!(error.contains("at most 4096"), "{error}");
    }
}

#[test]
fn numbers_and_texts_are_taken_where_nothing_is_lost() {
    let timestamp = r#"{"type":"long","logicalType":"timestamp-millis"}"#;
    let decimal = r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}"#;
    let same = |schema: &str, a: Value, b: Value| {
        assert_eq!(encoded(schema, &a).unwrap(), encoded(schema, &b).unwrap(), "{schema}");
    };
    same(r#""int""#, Value::Float(3.0), Value::Int(3));
    same(r#""double""#, Value::Int(3), Value::Float(3.0));
    same(timestamp, Value::from("1970-01-01T01:00:00.5+01:00"), Value::Int(500));
    same(r#"{"type":"int","logicalType":"date"}"#, Value::from("1970-01-03"), Value::Int(2));
    same(decimal, Value::Float(1.5), Value::from("1.50"));
    same(decimal, Value::Int(-3), Value::from("-3"));
    same(decimal, Value::from("125e-2"), Value::from("1.25"));
    for (schema, value, message) in [
        (r#""int""#, Value::Int(1 << 31), "the number does not fit into int"),
        (r#""long""#, Value::UInt(u64::MAX), "the number does not fit into long"),
        (r#""int""#, Value::Float(1.5), "a value of type float cannot be written as int"),
        (r#""long""#, Value::from("1"), "a value of type text cannot be written as long"),
        (r#""double""#, Value::Int(i64::MAX), "a value of type integer cannot be written as double"),
        (r#""float""#, Value::Float(1e300), "the number does not fit into float"),
        (r#""bytes""#, Value::from("YQ=="), "a value of type text cannot be written as bytes"),
        (
            decimal,
            Value::from("1.234"),
            "\"1.234\" is not a number with at most 4 digits, 2 of them after the decimal point",
        ),
        (
            decimal,
            Value::from("123.4"),
            "\"123.4\" is not a number with at most 4 digits, 2 of them after the decimal point",
        ),
        (
            decimal,
            Value::from("1e999999999"),
            "\"1e999999999\" is not a number with at most 4 digits, 2 of them after the decimal point",
        ),
        (timestamp, Value::from("now"), "\"now\" is not an RFC 3339 time"),
        (r#"["null","long"]"#, Value::from("x"), "a value of type text fits none of null, long"),
        (r#"{"type":"enum","name":"e","symbols":["A"]}"#, Value::from("C"), "the enum has no symbol \"C\""),
        (
            r#"{"type":"map","values":{"type":"array","items":"int"}}"#,
            json(r#"{"k":[1,"x"]}"#),
            "k.1: a value of type text cannot be written as int",
        ),
    ] {
        assert_eq!(encoded(schema, &value), Err(message.to_owned()), "{schema}");
    }
}

#[test]
fn records_may_lack_what_has_a_default_or_may_be_null() {
    let schema = r#"{"type":"record","name":"r","fields":[
        {"name":"id","type":"long"},
        {"name":"tag","type":"string","default":"none"},
        {"name":"raw","type":"bytes","default":"\u00ff"},
        {"name":"opt","type":["null","long"]},
        {"name":"next","type":["null","r"],"default":null}]}"#;
    let bytes = encoded(schema, &json(r#"{"id":1,"next":{"id":2,"tag":"x"}}"#)).unwrap();
    let Value::Map(decoded) = codec(schema).decode(&bytes).unwrap() else { panic!() };
    assert_eq!(decoded.get("tag"), Some(&Value::from("none")));
    assert_eq!(decoded.get("raw"), Some(&Value::Bytes([0xff].as_slice().into())));
    assert_eq!(decoded.get("opt"), Some(&Value::Null));
    assert_eq!(decoded.get("next").and_then(Value::as_map).and_then(|next| next.get("id")), Some(&Value::Int(2)));
    assert_eq!(encoded(schema, &json(r#"{"tag":"x"}"#)), Err("id: missing, and the schema has no default".to_owned()));
    assert_eq!(
        encoded(schema, &json(r#"{"id":1,"next":{"id":1,"idd":2}}"#)),
        Err("next.idd: the schema has no such field".to_owned())
    );
}

/// With values of the right types, names decide alone.
#[test]
fn names_that_no_values_make_fit_are_those_that_do_not_fit() {
    let schemas = [
        r#"{"type":"record","name":"r","fields":[]}"#,
        r#"{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}"#,
        r#"{"type":"record","name":"r","fields":[{"name":"a","type":"long"},{"name":"b","type":"long","default":1}]}"#,
        r#"{"type":"record","name":"r","fields":[{"name":"a","type":["long","null"]},{"name":"c","type":"long"}]}"#,
        r#"{"type":"map","values":"long"}"#,
    ];
    let (mut fitting, mut misfits) = (0, 0);
    for schema in schemas {
        for names in 0..8u8 {
            let given = ["a", "b", "c"].into_iter().enumerate().filter(|(bit, _)| names & (1 << bit) != 0);
            let fields: Object = given.map(|(_, name)| (Str::from(name), Value::Int(1))).collect();
            let fits = codec(schema).encode_fields(&fields, &mut Vec::new()).is_ok();
            assert_eq!(codec(schema).misfits_names_of(&fields), !fits, "{schema} {fields:?}");
            if fits { fitting += 1 } else { misfits += 1 }
        }
    }
    assert!(fitting > 5 && misfits > 5, "{fitting} {misfits}");
}

#[test]
fn a_union_takes_the_type_that_suits_best() {
    let schema = r#"["null","int","long","double","string",{"type":"long","logicalType":"timestamp-micros"}]"#;
    // Two of them are long, which Avro forbids.
    assert!(Codec::parse(schema).is_err() || encoded(schema, &Value::Int(1)).is_ok());
    let schema = r#"["null","double","long","string"]"#;
    assert_eq!(encoded(schema, &Value::Int(1)).unwrap()[0], 4);
    assert_eq!(encoded(schema, &Value::Float(1.0)).unwrap()[0], 2);
    let records = r#"[{"type":"record","name":"a","fields":[{"name":"x","type":"long"}]},
                      {"type":"record","name":"b","fields":[{"name":"y","type":"long"}]}]"#;
    assert_eq!(encoded(records, &json(r#"{"y":1}"#)).unwrap(), [2, 2]);
}

#[test]
fn damaged_bytes_are_refused() {
    let long = r#""long""#;
    for (schema, bytes) in [
        (long, &b""[..]),
        (long, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
        (long, b"\x02\x02"),
        (r#""int""#, b"\xff\xff\xff\xff\xff\x01"),
        (r#""boolean""#, b"\x02"),
        (r#""string""#, b"\x02\xff"),
        (r#""bytes""#, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (r#""bytes""#, b"\x01"),
        (r#"["null","long"]"#, b"\x04"),
        (r#"{"type":"array","items":"null"}"#, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (r#"{"type":"array","items":"null"}"#, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
        (r#"{"type":"record","name":"r","fields":[{"name":"n","type":"r"}]}"#, b""),
        (r#"{"type":"int","logicalType":"date"}"#, b"\xfe\xff\xff\xff\x0f"),
    ] {
        let result = Codec::parse(schema).and_then(|codec| codec.decode(bytes));
        assert!(matches!(result, Err(CodecError::Damaged { .. })), "{schema}: {result:?}");
    }
}

#[test]
fn bad_schemas_are_refused() {
    for text in ["", "{}", "\"strin\"", r#"{"type":"record","name":"r"}"#, &"[".repeat(100_000)] {
        assert!(
            matches!(Codec::parse(text), Err(CodecError::Schema(_))),
            "{}",
            text.chars().take(40).collect::<String>()
        );
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-1e300f64..1e300).prop_map(Value::Float),
        ".{0,8}".prop_map(Value::from),
        proptest::collection::vec(any::<u8>(), 0..8).prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(".{0,4}", inner, 0..4)
                .prop_map(|map| Value::from(map.into_iter().collect::<Object>())),
        ]
    })
}

proptest! {
    #[test]
    fn inferred_schemas_give_back_what_they_are_given(
        fields in proptest::collection::btree_map("[a-zA-Z_][a-zA-Z0-9_]{0,4}", values(), 0..6),
        micros in any::<i32>(),
    ) {
        let mut fields: Object = fields.into_iter().collect();
        fields.insert("time", Value::Time(chrono::DateTime::from_timestamp_micros(micros.into()).unwrap()));
        let mut text = String::new();
        anabranch_record::avro::infer(&fields, &mut text).unwrap();
        let codec = codec(&text);
        let mut bytes = Vec::new();
        codec.encode_fields(&fields, &mut bytes).unwrap();
        prop_assert_eq!(codec.decode_fields(&bytes).unwrap(), fields);
        read(&text, &bytes);
    }

    #[test]
    fn garbage_is_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let schema = r#"{"type":"record","name":"r","fields":[
            {"name":"m","type":{"type":"map","values":["null","long","r"]}},
            {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":3}},
            {"name":"b","type":{"type":"bytes","logicalType":"big-decimal"}},
            {"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}]}"#;
        let codec = codec(schema);
        if let Ok(value) = codec.decode(&bytes) {
            codec.encode(&value, &mut Vec::new()).unwrap();
        }
    }
}
