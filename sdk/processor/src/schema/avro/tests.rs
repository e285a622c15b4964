use super::*;
use anabranch_record::avro::infer;

use crate::tests::arbitrary::Random;

fn map(fields: &[(&str, Value)]) -> Object {
    fields.iter().map(|(key, value)| (*key, value.clone())).collect()
}

fn inferred(map: &Object) -> Avro {
    let mut text = String::new();
    infer(map, &mut text).unwrap();
    Avro::parse(&text).unwrap()
}

fn both_ways(schema: &str, map: &Object) -> Vec<u8> {
    let avro = Avro::parse(schema).unwrap();
    let mut bytes = Vec::new();
    assert!(avro.encode(map, &mut bytes), "{map:?} does not fit {schema}");
    assert_eq!(avro.decode(&bytes, Arc::default()).as_deref(), Ok(map));
    bytes
}

fn fits(schema: &str, map: &Object) -> bool {
    Avro::parse(schema).unwrap().encode(map, &mut Vec::new())
}

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"r","fields":[{fields}]}}"#)
}

/// The example of the Avro specification, "Complex Types": long `a` = 27, string `b` = "foo".
#[test]
fn the_record_of_the_specification_has_its_bytes() {
    let schema = record(r#"{"name":"a","type":"long"},{"name":"b","type":"string"}"#);
    let bytes = both_ways(&schema, &map(&[("a", 27.into()), ("b", "foo".into())]));
    assert_eq!(bytes, [0x36, 0x06, 0x66, 0x6f, 0x6f]);
}

#[test]
fn nothing_shows_of_the_map_in_whose_memory_another_is_decoded() {
    let mut random = Random(4);
    for _ in 0..500 {
        let map = random.map(3);
        let avro = inferred(&map);
        let mut bytes = Vec::new();
        assert!(avro.encode(&map, &mut bytes));
        assert_eq!(avro.decode(&bytes, random.map(3).into()).as_deref(), Ok(&map));
    }
}

#[test]
fn every_type_survives() {
    let schema = record(
        r#"{"name":"null","type":"null"},{"name":"bool","type":"boolean"},{"name":"int","type":"int"},
        {"name":"float","type":"float"},{"name":"double","type":"double"},{"name":"bytes","type":"bytes"},
        {"name":"fixed","type":{"type":"fixed","name":"n.f","size":2}},{"name":"again","type":"n.f"},
        {"name":"enum","type":{"type":"enum","name":"e","symbols":["A","B"]}},
        {"name":"array","type":{"type":"array","items":"long"}},{"name":"map","type":{"type":"map","values":"string"}},
        {"name":"union","type":["null","string","int"]},{"name":"time","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"next","type":["null","r"]}"#,
    );
    let mut fields = map(&[
        ("null", Value::Null),
        ("bool", true.into()),
        ("int", (-65).into()),
        ("float", 0.5.into()),
        ("double", f64::MIN_POSITIVE.into()),
        ("bytes", Value::Bytes([0, 255].into())),
        ("fixed", Value::Bytes([1, 2].into())),
        ("again", Value::Bytes([3, 4].into())),
        ("enum", "B".into()),
        ("array", vec![Value::Int(i64::MIN), i64::MAX.into()].into()),
        ("map", Value::from(map(&[("k", "v".into())]))),
        ("union", 7.into()),
        ("time", 1_700_000_000_000_000_i64.into()),
        ("next", Value::Null),
    ]);
    fields.insert("next", Value::from(fields.clone()));
    both_ways(&schema, &fields);
}

#[test]
fn what_would_be_lost_does_not_fit() {
    let schema = record(r#"{"name":"a","type":"int"}"#);
    assert!(fits(&schema, &map(&[("a", 1.into())])));
    for other in [
        map(&[]),
        map(&[("a", 1.into()), ("b", 1.into())]),
        map(&[("a", (1_i64 << 40).into())]),
        map(&[("a", 1.5.into())]),
        map(&[("a", "1".into())]),
    ] {
        assert!(!fits(&schema, &other), "{other:?}");
    }
    assert!(!fits(&record(r#"{"name":"a","type":"float"}"#), &map(&[("a", 0.1.into())])));
    assert!(!fits(&record(r#"{"name":"a","type":"double"}"#), &map(&[("a", ((1_i64 << 53) + 1).into())])));
}

#[test]
fn numbers_are_written_as_another_type_if_they_keep_their_value() {
    let written = |kind: &str, value: Value| {
        let avro = Avro::parse(&record(&format!(r#"{{"name":"a","type":{kind}}}"#))).unwrap();
        let mut bytes = Vec::new();
        assert!(avro.encode(&map(&[("a", value)]), &mut bytes), "{kind}");
        avro.decode(&bytes, Arc::default()).unwrap().get("a").cloned().unwrap()
    };
    assert_eq!(written(r#""long""#, 3.0.into()), Value::Int(3));
    assert_eq!(written(r#""double""#, 3.into()), Value::Float(3.0));
    assert_eq!(written(r#"["null","double","long"]"#, 3.into()), Value::Int(3), "the same type comes first");
    assert_eq!(written(r#"["null","long"]"#, 3.0.into()), Value::Int(3));
    let time = Value::Time("2024-01-31T00:00:00.5Z".parse().unwrap());
    for (unit, number) in [("millis", 1_706_659_200_500), ("micros", 1_706_659_200_500_000)] {
        let kind = format!(r#"{{"type":"long","logicalType":"timestamp-{unit}"}}"#);
        assert_eq!(written(&kind, time.clone()), Value::Int(number));
    }
}

#[test]
fn every_shape_fits_the_schema_that_is_inferred_from_it() {
    let nested = Value::from(map(&[("a", Value::Int(1)), ("b", Value::Null)]));
    let lists =
        vec![Value::from(vec![nested.clone(), Value::from(Vec::new()), "x".into()]), Value::from(Object::new())];
    let map = map(&[
        ("null", Value::Null),
        ("bool", true.into()),
        ("float", f64::NEG_INFINITY.into()),
        ("bytes", Value::Bytes([1].into())),
        ("nested", nested),
        ("lists", lists.into()),
    ]);
    let mut bytes = Vec::new();
    assert!(inferred(&map).encode(&map, &mut bytes));
    assert_eq!(inferred(&map).decode(&bytes, Arc::default()).as_deref(), Ok(&map));
}

#[test]
fn damaged_data_are_refused_without_much_memory_or_time() {
    let schema =
        Avro::parse(&record(r#"{"name":"a","type":{"type":"array","items":"null"}},{"name":"b","type":"bytes"}"#))
            .unwrap();
    for bytes in [
        &[][..],
        &[0],
        // 2⁶² nulls.
        &[254, 255, 255, 255, 255, 255, 255, 255, 127, 0, 0],
        // A length of 2⁶², then one of -1.
        &[0, 254, 255, 255, 255, 255, 255, 255, 255, 127],
        &[0, 1],
        &[0, 0, 9],
        &[255; 20],
    ] {
        assert!(schema.decode(bytes, Arc::default()).is_err(), "{bytes:?}");
    }
    let endless = Avro::parse(&record(r#"{"name":"next","type":"r"}"#)).unwrap();
    assert!(endless.decode(&[], Arc::default()).is_err());
}

#[test]
fn schemas_that_are_none_are_refused() {
    for text in [
        "",
        "1",
        r#""r""#,
        r#"{"type":"record","name":"r"}"#,
        r#"{"type":"array"}"#,
        r#"{"type":"fixed","name":"f","size":-1}"#,
        &record(r#"{"name":"a"}"#),
        r#"["null","x"]"#,
        r#"[{"type":"fixed","name":"f","size":1},{"type":"fixed","name":"f","size":1}]"#,
    ] {
        assert!(Avro::parse(text).is_err(), "{text}");
    }
    assert!(Avro::parse(&r#"{"type":"#.repeat(10_000)).is_err());
}
