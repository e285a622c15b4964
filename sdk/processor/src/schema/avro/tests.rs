use super::*;
use crate::tests::arbitrary::Random;

fn map(fields: &[(&str, Value)]) -> Map {
    fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn both_ways(schema: &str, map: &Map) -> Vec<u8> {
    let avro = Avro::parse(schema).unwrap();
    let mut bytes = Vec::new();
    assert!(avro.encode(map, &mut bytes), "{map:?} does not fit {schema}");
    assert_eq!(avro.decode(&bytes, Map::new()).as_ref(), Ok(map));
    bytes
}

fn fits(schema: &str, map: &Map) -> bool {
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
        let avro = Avro::parse(&crate::schema::infer::infer(&map).unwrap()).unwrap();
        let mut bytes = Vec::new();
        assert!(avro.encode(&map, &mut bytes));
        assert_eq!(avro.decode(&bytes, random.map(3)), Ok(map));
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
        ("bytes", vec![0u8, 255].into()),
        ("fixed", vec![1u8, 2].into()),
        ("again", vec![3u8, 4].into()),
        ("enum", "B".into()),
        ("array", vec![Value::Int(i64::MIN), i64::MAX.into()].into()),
        ("map", Value::Map(map(&[("k", "v".into())]))),
        ("union", 7.into()),
        ("time", 1_700_000_000_000_000_i64.into()),
        ("next", Value::Null),
    ]);
    fields.insert("next".to_owned(), Value::Map(fields.clone()));
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
        map(&[("a", 1.0.into())]),
        map(&[("a", "1".into())]),
    ] {
        assert!(!fits(&schema, &other), "{other:?}");
    }
    assert!(!fits(&record(r#"{"name":"a","type":"float"}"#), &map(&[("a", 0.1.into())])));
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
        assert!(schema.decode(bytes, Map::new()).is_err(), "{bytes:?}");
    }
    let endless = Avro::parse(&record(r#"{"name":"next","type":"r"}"#)).unwrap();
    assert!(endless.decode(&[], Map::new()).is_err());
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
