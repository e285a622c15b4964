use proptest::prelude::*;

use super::*;
use crate::arbitrary;
use crate::record::{Data, Operation, Position};
use crate::value::{Object, Value};

fn text(value: &Value) -> String {
    let mut out = Vec::new();
    write_value(value, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn record_text(record: &Record) -> String {
    let mut out = Vec::new();
    write_record(record, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_record_prints_in_its_fixed_order() {
    let after: Object =
        [("z", Value::from(1i64)), ("a", Value::from("x<y>&\u{2028}")), ("f", Value::from(1.0))].into_iter().collect();
    let mut record =
        Record::create(Position::copy_from(b"7"), Data::Raw(bytes::Bytes::from_static(b"key!")), Data::from(after));
    record.metadata = [("recfmt.readAt", "2"), ("file.path", "a\\b")].into_iter().collect();
    assert_eq!(
        record_text(&record),
        "{\"position\":\"Nw==\",\"operation\":\"create\",\"metadata\":{\"file.path\":\"a\\\\b\",\
         \"recfmt.readAt\":\"2\"},\"key\":\"a2V5IQ==\",\"payload\":{\"before\":null,\
         \"after\":{\"a\":\"x<y>&\u{2028}\",\"f\":1.0,\"z\":1}}}"
    );
}

#[test]
fn numbers_stay_what_they_are() {
    for exact in ["9223372036854775807", "-9223372036854775808", "18446744073709551615", "1234567890123456789", "0"] {
        assert_eq!(text(&parse_value(exact.as_bytes()).unwrap()), exact);
    }
    for (given, shown) in [
        ("1.0", "1.0"),
        ("-0.0", "-0.0"),
        ("1e2", "100.0"),
        ("0.1", "0.1"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("18446744073709551616", "1.8446744073709552e+19"),
    ] {
        assert_eq!(text(&parse_value(given.as_bytes()).unwrap()), shown);
    }
}

#[test]
fn times_are_rfc_3339() {
    for (seconds, nanos, shown) in [
        (0, 0, "1970-01-01T00:00:00Z"),
        (1_700_000_000, 120_000_000, "2023-11-14T22:13:20.120Z"),
        (1_700_000_000, 1_000, "2023-11-14T22:13:20.000001Z"),
        (1_700_000_000, 7, "2023-11-14T22:13:20.000000007Z"),
        (-62_167_219_200, 0, "0000-01-01T00:00:00Z"),
    ] {
        let time = chrono::DateTime::from_timestamp(seconds, nanos).unwrap();
        assert_eq!(text(&Value::Time(time)), format!("\"{shown}\""));
    }
}

#[test]
fn what_json_cannot_hold_is_a_fault_with_its_place_and_leaves_the_buffer() {
    let list = Value::from(vec![Value::from(1i64), Value::from(f64::NAN)]);
    let inner: Object = [("b c", list)].into_iter().collect();
    let after: Object = [("a", Value::from(inner))].into_iter().collect();
    let record = Record::create(Position::default(), Data::Absent, Data::from(after));
    let mut out = b"before".to_vec();
    let fault = write_record(&record, &mut out).unwrap_err();
    assert_eq!(
        (fault.code().name(), fault.message().as_str()),
        ("json_not_finite", "JSON cannot represent the number NaN at .Payload.After.a[\"b c\"][1]")
    );
    assert_eq!(out, b"before");

    let deep = (0..MAX_DEPTH).fold(Value::Null, |value, _| Value::from(vec![value]));
    assert!(write_value(&deep, &mut out).is_ok());
    out.truncate(6);
    let fault = write_value(&Value::from(vec![deep]), &mut out).unwrap_err();
    assert_eq!((fault.code().name(), out.as_slice()), ("json_too_deep", b"before".as_slice()));
}

#[test]
fn the_deepest_record_that_is_written_can_be_read() {
    let deep = (1..MAX_DEPTH).fold(Value::Null, |value, _| Value::from(vec![value]));
    let after: Object = [("a", deep)].into_iter().collect();
    let record = Record::create(Position::default(), Data::Absent, Data::from(after));
    let mut text = Vec::new();
    write_record(&record, &mut text).unwrap();
    assert_eq!(parse_record(&text).unwrap().payload, record.payload);
    assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
}

#[test]
fn errors_name_the_byte() {
    for (given, offset, message) in [
        ("", 0, "EOF while parsing a value"),
        ("{\"a\":1,}", 7, "trailing comma"),
        ("{\n\"a\": tru\n}", 11, "expected ident"),
        ("[1] 2", 4, "trailing characters"),
        ("\"\\ud800\"", 7, "unexpected end of hex escape"),
        ("\"\\ud800\\u0041\"", 12, "lone leading surrogate in hex escape"),
        ("\"\\udc00\"", 6, "lone leading surrogate in hex escape"),
        ("1e999", 4, "number out of range"),
        ("NaN", 0, "expected value"),
        ("01", 1, "invalid number"),
        ("\"a\nb\"", 3, "control character (\\u0000-\\u001F) found while parsing a string"),
    ] {
        let error = parse_value(given.as_bytes()).unwrap_err();
        assert_eq!((error.offset, error.message.as_str()), (offset, message), "{given:?}");
    }
    assert_eq!(parse_value(b"\"a\xff\"").unwrap_err().message, "invalid unicode code point");
}

#[test]
fn deep_nesting_is_refused_without_a_stack_overflow() {
    for bomb in ["[".repeat(5_000_000), "{\"a\":".repeat(1_000_000)] {
        assert_eq!(parse_value(bomb.as_bytes()).unwrap_err().message, "recursion limit exceeded");
        let record = format!("{{\"operation\":\"create\",\"other\":{bomb}");
        assert!(parse_record(record.as_bytes()).is_err());
    }
    assert!(parse_value(format!("{}{}", "[".repeat(127), "]".repeat(127)).as_bytes()).is_ok());
}

#[test]
fn the_last_of_equal_keys_wins() {
    let value = parse_value(br#"{"b":1,"a":2,"b":3}"#).unwrap();
    assert_eq!(text(&value), r#"{"a":2,"b":3}"#);
    let record = parse_record(br#"{"operation":"delete","operation":"update","metadata":{"a":"1","a":"2"}}"#).unwrap();
    assert_eq!((record.operation, record.metadata.get("a").unwrap().as_str()), (Operation::Update, "2"));
}

#[test]
fn what_is_no_record_is_refused() {
    for (given, message) in [
        (
            "[]",
            "invalid type: sequence, expected a record: an object with operation, position, metadata, key and payload",
        ),
        ("{}", "the record has no operation"),
        (r#"{"operation":"upsert"}"#, "unknown operation \"upsert\", expected one of create, update, delete, snapshot"),
        (r#"{"operation":"create","position":7}"#, "invalid type: integer `7`, expected base64 text or null"),
        (r#"{"operation":"create","position":"Nw"}"#, "the text is not base64: Invalid padding"),
        (r#"{"operation":"create","key":[]}"#, "invalid type: sequence, expected data: an object, base64 text or null"),
        (r#"{"operation":"create","metadata":{"a":1}}"#, "invalid type: integer `1`, expected a text"),
    ] {
        assert_eq!(parse_record(given.as_bytes()).unwrap_err().message, message, "{given}");
    }
    let record = parse_record(br#"{"operation":"create","extra":{"x":[1]},"metadata":null,"payload":null}"#).unwrap();
    assert_eq!(record, Record::default());
}

#[test]
fn fifty_megabytes_pass() {
    let long = "é\n".repeat(50 << 20 >> 2);
    let value = Value::from(long);
    assert_eq!(parse_value(text(&value).as_bytes()).unwrap(), value);
}

/// A value as it is after a trip through JSON.
fn as_read(value: &Value) -> Value {
    match value {
        Value::Bytes(_) | Value::Time(_) => Value::from(text(value).trim_matches('"')),
        Value::List(items) => Value::from(items.iter().map(as_read).collect::<Vec<_>>()),
        Value::Map(object) => Value::from(object.iter().map(|(k, v)| (k.clone(), as_read(v))).collect::<Object>()),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn records_survive_the_trip(record in arbitrary::record_of(arbitrary::json_value().boxed())) {
        let written = record_text(&record);
        prop_assert_eq!(parse_record(written.as_bytes()).unwrap(), record.clone());
        prop_assert_eq!(record_text(&parse_record(written.as_bytes()).unwrap()), written);
    }

    #[test]
    fn values_read_back_equal_or_are_not_written(value in arbitrary::value()) {
        let mut out = b"x".to_vec();
        match write_value(&value, &mut out) {
            Ok(()) => prop_assert_eq!(parse_value(&out[1..]).unwrap(), as_read(&value)),
            Err(fault) => prop_assert_eq!((fault.code().name(), out.as_slice()), ("json_not_finite", b"x".as_slice())),
        }
    }

    #[test]
    fn texts_are_escaped_as_serde_json_does(given in "[ -~\\x00-\\x20\"\\\\é\\u{7f}😀]{0,40}") {
        prop_assert_eq!(text(&Value::from(given.as_str())), serde_json::to_string(&given).unwrap());
    }

    #[test]
    fn times_print_as_chrono_prints_them(seconds in -100_000_000_000i64..300_000_000_000, nanos in 0..2_000_000_000u32) {
        if let Some(time) = chrono::DateTime::from_timestamp(seconds, nanos) {
            prop_assert_eq!(text(&Value::Time(time)), format!("\"{}\"", crate::value::timestamp_text(&time)));
        }
    }

    #[test]
    fn no_text_makes_it_panic(given in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = (parse_value(&given), parse_record(&given));
    }

    #[test]
    fn no_damaged_record_makes_it_panic(
        record in arbitrary::record_of(arbitrary::json_value().boxed()), at in any::<proptest::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut written = record_text(&record).into_bytes();
        let at = at.index(written.len());
        written[at] = byte;
        if let Err(error) = parse_record(&written) {
            prop_assert!(error.offset <= written.len());
        }
    }
}

#[test]
fn a_writer_of_many_records_writes_each_as_it_is_alone() {
    let shared: crate::metadata::Metadata = [("recfmt.readAt", "1"), ("file.path", "a\"b")].into_iter().collect();
    let number = |number: f64| Data::from([("n", Value::from(number))].into_iter().collect::<Object>());
    let record = |metadata: &crate::metadata::Metadata, n: f64| {
        let mut record = Record::create(Position::copy_from(b"1"), Data::Absent, number(n));
        record.metadata = metadata.clone();
        record
    };
    let mut changed = record(&shared, 3.0);
    changed.metadata.insert("recfmt.readAt", "2");
    let none = crate::metadata::Metadata::new();
    let records = [
        record(&none, 0.0),
        record(&shared, 1.0),
        record(&shared, f64::NAN),
        record(&shared, 2.0),
        changed,
        record(&shared, 4.0),
        record(&none, 5.0),
    ];
    let mut writer = RecordWriter::default();
    for record in &records {
        let (mut alone, mut after_others) = (b"before".to_vec(), b"before".to_vec());
        let expected = write_record(record, &mut alone).map_err(|fault| fault.to_string());
        let written = writer.write(record, &mut after_others).map_err(|fault| fault.to_string());
        assert_eq!((written, after_others), (expected, alone));
    }
}
