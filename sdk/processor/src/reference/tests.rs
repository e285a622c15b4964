use super::*;
use crate::metadata;

fn record() -> Record {
    let mut record =
        Record::create([("name", Value::from("x")), ("map", Value::Map([("in".to_owned(), 1.into())].into()))]);
    record.key = "k".into();
    record.set_collection("users");
    record
}

fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn got(text: &str, record: &Record) -> Option<Value> {
    reference(text).get(record).unwrap().map(Cow::into_owned)
}

#[test]
fn every_part_can_be_read() {
    let record = record();
    for (text, value) in [
        (".Position", Some(Vec::<u8>::new().into())),
        (".operation", Some("create".into())),
        (".Key", Some(b"k".to_vec().into())),
        (".Payload.After.name", Some("x".into())),
        (".payload.after[\"map\"].in", Some(1.into())),
        (".Payload.After.map.none", None),
        (".Payload.Before.any", None),
        (".Metadata[\"recfmt.collection\"]", Some("users".into())),
        (".Metadata[\"opencdc.collection\"]", Some("users".into())),
        (".Metadata.none", None),
    ] {
        assert_eq!(got(text, &record), value, "{text}");
    }
    assert!(matches!(got(".Metadata", &record), Some(Value::Map(map)) if map.len() == 1));
}

#[test]
fn texts_that_are_no_references_are_refused() {
    for text in [
        "",
        "Key",
        ".",
        ".Keys",
        ".Payload.x",
        ".Position.x",
        ".Metadata.a.b",
        ".Key.",
        ".Key.a-b",
        ".Key[0]",
        ".Key[\"a]",
        ".Key[\"a\"",
        ".Key[\"a\\x\"]",
        ".Key[\"a\"]b",
        ".Key.1a",
    ] {
        assert!(Reference::parse(text).is_err(), "{text}");
    }
}

#[test]
fn setting_makes_the_maps_on_the_way() {
    let mut record = record();
    reference(".Payload.Before.a.b").set(&mut record, 1).unwrap();
    assert_eq!(got(".Payload.Before.a.b", &record), Some(1.into()));
    reference(".Metadata.m").set(&mut record, "v").unwrap();
    reference(".Operation").set(&mut record, 3).unwrap();
    assert_eq!((record.metadata["m"].as_str(), record.operation), ("v", Operation::Delete));
    reference(".Metadata[\"opencdc.collection\"]").set(&mut record, Value::Null).unwrap();
    assert_eq!(record.collection(), None);
    reference(".Key").set(&mut record, Map::new()).unwrap();
    assert_eq!(record.key, Data::Structured(Map::new()));
}

#[test]
fn what_fails_leaves_the_record_as_it_was() {
    let before = record();
    let mut record = before.clone();
    for (text, value) in [
        (".Position", Value::from("x")),
        (".Payload", Value::Null),
        (".Operation", 5.into()),
        (".Key.a", 1.into()),
        (".Key", 1.into()),
        (".Payload.After.name.below", 1.into()),
        (".Metadata.m", 1.into()),
        (".Metadata", Value::Map([("m".to_owned(), 1.into())].into())),
    ] {
        assert!(reference(text).set(&mut record, value).is_err(), "{text}");
    }
    assert!(reference(".Operation").delete(&mut record).is_err());
    assert!(reference(".Key").rename(&mut record, "x").is_err());
    assert!(reference(".Payload.After.name").rename(&mut record, "map").is_err());
    assert_eq!(record, before);
}

#[test]
fn deleting_and_renaming_say_whether_there_was_anything() {
    let mut record = record();
    for (text, there) in [(".Payload.After.name", true), (".Payload.After.name", false), (".Payload.Before.x.y", false)]
    {
        assert_eq!(reference(text).delete(&mut record), Ok(there), "{text}");
    }
    assert_eq!(reference(".Payload.After.map.in").rename(&mut record, "out"), Ok(true));
    assert_eq!(reference(".Payload.After.map.in").rename(&mut record, "out"), Ok(false));
    assert_eq!(got(".Payload.After.map.out", &record), Some(1.into()));
    assert_eq!(reference(".Metadata[\"recfmt.collection\"]").rename(&mut record, "old"), Ok(true));
    assert_eq!((record.metadata.contains_key(metadata::COLLECTION), record.metadata["old"].as_str()), (false, "users"));
    assert_eq!(reference(".Payload").delete(&mut record), Ok(true));
    assert_eq!(record.payload, Change::default());
}
