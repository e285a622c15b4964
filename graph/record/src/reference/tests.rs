use proptest::prelude::*;

use super::*;
use crate::arbitrary;
use crate::json;

fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

fn record(text: &str) -> Record {
    Record::from_json(text.as_bytes()).unwrap()
}

fn shown(record: &Record) -> String {
    let mut out = Vec::new();
    json::write_record(record, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const SAMPLE: &str = r#"{"position":"Nw==","operation":"update","metadata":{"a.b":"1","x":"2"},"key":"a2V5","payload":{"before":null,"after":{"list":[1],"map":{"deep":true},"none":null,"text":"t"}}}"#;

#[test]
fn references_have_one_canonical_text() {
    for (given, canonical) in [
        (".", "."),
        ("$", "."),
        ("$.", "."),
        (".payload.after.x", ".Payload.After.x"),
        ("$.payload.before", ".Payload.Before"),
        (".Payload[\"After\"].x", ".Payload.After.x"),
        (".metadata.collection", ".Metadata.collection"),
        (".Metadata[\"recfmt.collection\"]", ".Metadata[\"recfmt.collection\"]"),
        (".Metadata[\"plain\"]", ".Metadata.plain"),
        (".key[\"a b\"].c", ".Key[\"a b\"].c"),
        (".Key[\"q\\\"\\\\\\n\"]", ".Key[\"q\\\"\\\\\\n\"]"),
        (".Key[\"\"]", ".Key[\"\"]"),
        (".Key.payload.after", ".Key.payload.after"),
        (".Key.größe", ".Key.größe"),
        (".operation", ".Operation"),
        (".Position", ".Position"),
    ] {
        let parsed = reference(given);
        assert_eq!(parsed.as_str(), canonical);
        assert_eq!(reference(canonical), parsed);
    }
}

#[test]
fn wrong_texts_come_with_advice() {
    let told = |text: &str| {
        let error = Reference::parse(text).unwrap_err();
        (error.to_string(), error.hint().unwrap_or_default().to_owned())
    };
    for (text, hint) in [
        ("Payload.After.x", "did you mean .Payload.After.x?"),
        ("name", "did you mean .Payload.After.name?"),
        (".name", "did you mean .Payload.After.name?"),
        (".keyword", "did you mean .Payload.After.keyword?"),
        (".After.x", "did you mean .Payload.After.x?"),
        (".after", "did you mean .Payload.After?"),
        (".Payload.name", "did you mean .Payload.After.name?"),
        (".Payload.Aftr.x", "did you mean .Payload.After.x?"),
        (".Paylod.After", "did you mean .Payload.After?"),
        (".Metadata.a.b", "did you mean .Metadata[\"a.b\"]?"),
        (".Key.user-id", "write .Key[\"user-id\"]"),
        (".Key.1st", "write .Key[\"1st\"]"),
        (".Key['a']", "write .Key.a"),
        (".Key.items[0]", "the processor \"split\" makes each element a record"),
    ] {
        assert_eq!(told(text).1, hint, "{text}");
    }
    for (text, message) in [
        (".Key.", "invalid reference \".Key.\": a name must follow each dot"),
        (".Key[\"a", "invalid reference \".Key[\\\"a\": a quote is not closed"),
        (".Key[\"a\"", "invalid reference \".Key[\\\"a\\\"\": a bracket is not closed"),
        (".Key[\"a\"]b", "invalid reference \".Key[\\\"a\\\"]b\": a dot or a bracket must follow a closing bracket"),
        (".Key[\"a\"]ž", "invalid reference \".Key[\\\"a\\\"]ž\": a dot or a bracket must follow a closing bracket"),
        (".Position.x", "invalid reference \".Position.x\": it has no parts"),
    ] {
        assert_eq!(told(text).0, message);
    }
    assert!(Reference::parse(&format!(".Key{}", ".a".repeat(100))).is_err());
}

#[test]
fn reading_borrows_what_is_there() {
    let record = record(SAMPLE);
    let get = |text: &str| reference(text).get(&record);
    assert_eq!(get(".Metadata[\"a.b\"]").unwrap(), Some(Part::Entry(&"1".into())));
    assert_eq!(get(".Metadata.y").unwrap(), None);
    assert_eq!(get(".Operation").unwrap(), Some(Part::Operation(Operation::Update)));
    assert_eq!(get(".Payload.After.map.deep").unwrap(), Some(Part::Value(&Value::Bool(true))));
    assert_eq!(get(".Payload.After.none").unwrap(), Some(Part::Value(&Value::Null)));
    assert_eq!(get(".Payload.Before").unwrap(), Some(Part::Data(&Data::Absent)));
    for missing in [".Payload.After.no", ".Payload.After.no.way", ".Payload.After.none.x", ".Payload.Before.x.y"] {
        assert_eq!(get(missing).unwrap(), None, "{missing}");
    }
    for (text, message) in [
        (".Key.id", "cannot resolve reference .Key.id: .Key is raw data, not a map"),
        (
            ".Payload.After.list.x",
            "cannot resolve reference .Payload.After.list.x: .Payload.After.list is list, not a map",
        ),
        (
            ".Payload.After.map.deep.x.y",
            "cannot resolve reference .Payload.After.map.deep.x.y: .Payload.After.map.deep is bool, not a map",
        ),
    ] {
        let fault = get(text).unwrap_err();
        assert_eq!((fault.code().name(), fault.message().as_str()), ("reference_unresolved", message));
    }
}

#[test]
fn each_target_takes_its_own_values() {
    let set = |text: &str, value: Value| {
        let mut record = record(SAMPLE);
        let original = record.clone();
        reference(text).set(&mut record, value).map(|()| record.clone()).inspect_err(|_| assert_eq!(record, original))
    };
    let code = |text: &str, value: Value| set(text, value).unwrap_err().code().name();
    assert_eq!(set(".Operation", "delete".into()).unwrap().operation, Operation::Delete);
    assert_eq!(set(".Operation", Value::Int(4)).unwrap().operation, Operation::Snapshot);
    assert_eq!(code(".Operation", Value::Int(5)), "reference_type");
    assert_eq!(code(".Operation", "".into()), "reference_type");
    assert_eq!(code(".Position", "x".into()), "reference_read_only");
    assert_eq!(code(".Payload", Value::Null), "reference_read_only");
    assert_eq!(code(".", Value::Null), "reference_read_only");
    assert_eq!(set(".Metadata.x", Value::Null).unwrap().metadata.len(), 1);
    assert_eq!(code(".Metadata.x", Value::Int(1)), "reference_type");
    assert_eq!(code(".Metadata", "x".into()), "reference_type");
    assert_eq!(set(".Metadata", Value::Null).unwrap().metadata.len(), 0);
    let map: Object = [("k", "v")].into_iter().collect();
    assert_eq!(set(".Metadata", map.clone().into()).unwrap().metadata, [("k", "v")].into_iter().collect());
    let mixed: Object = [("k", 1i64)].into_iter().collect();
    assert_eq!(code(".Metadata", mixed.into()), "reference_type");
    assert_eq!(set(".Key", "new".into()).unwrap().key, Data::text("new"));
    assert_eq!(set(".Key", Value::Bytes(b"new".as_slice().into())).unwrap().key, Data::text("new"));
    assert_eq!(set(".Key", map.clone().into()).unwrap().key, Data::from(map));
    assert_eq!(set(".Key", Value::Null).unwrap().key, Data::Absent);
    assert_eq!(code(".Payload.After", Value::Int(1)), "reference_type");
    assert_eq!(code(".Payload.After", vec![Value::Null].into()), "reference_type");
    assert_eq!(code(".Key.id", Value::Int(1)), "reference_unresolved");
    assert_eq!(code(".Payload.After.text.x", Value::Int(1)), "reference_unresolved");
    assert_eq!(
        shown(&set(".Payload.Before.a.b", Value::Int(1)).unwrap()),
        SAMPLE.replace("\"before\":null", r#""before":{"a":{"b":1}}"#)
    );
    assert_eq!(
        shown(&set(".Payload.After.none.b", Value::Int(1)).unwrap()),
        SAMPLE.replace("\"none\":null", r#""none":{"b":1}"#)
    );
}

#[test]
fn deleting_removes_only_what_is_there() {
    let delete = |text: &str| {
        let mut record = record(SAMPLE);
        let was_there = reference(text).delete(&mut record).unwrap();
        (was_there, shown(&record))
    };
    for (text, from, to) in [
        (".Payload.After.map.deep", r#""map":{"deep":true}"#, r#""map":{}"#),
        (".Metadata.x", r#","x":"2""#, ""),
        (".Metadata", r#"{"a.b":"1","x":"2"}"#, "{}"),
        (".Key", r#""key":"a2V5""#, r#""key":null"#),
    ] {
        assert_eq!(delete(text), (true, SAMPLE.replace(from, to)), "{text}");
    }
    for text in [".Payload.After.no.way", ".Payload.After.no", ".Payload.Before", ".Metadata.y", ".Payload.Before.x"] {
        assert_eq!(delete(text), (false, SAMPLE.to_owned()), "{text}");
    }
    let mut record = record(SAMPLE);
    for (text, code) in [
        (".Position", "reference_read_only"),
        (".Operation", "reference_read_only"),
        (".", "reference_read_only"),
        (".Key.x", "reference_unresolved"),
    ] {
        assert_eq!(reference(text).delete(&mut record).unwrap_err().code().name(), code);
    }
    assert!(reference(".Payload").delete(&mut record).unwrap());
    assert_eq!(record.payload, Change::default());
}

#[test]
fn renaming_keeps_the_value() {
    let rename = |text: &str, name: &str| {
        let mut record = record(SAMPLE);
        reference(text).rename(&mut record, &name.into()).map(|there| (there, shown(&record)))
    };
    assert_eq!(
        rename(".Payload.After.map.deep", "b").unwrap(),
        (true, SAMPLE.replace(r#"{"deep":true}"#, r#"{"b":true}"#))
    );
    assert_eq!(rename(".Metadata.x", "y").unwrap(), (true, SAMPLE.replace(r#""x":"2""#, r#""y":"2""#)));
    assert_eq!(rename(".Metadata.x", "x").unwrap(), (true, SAMPLE.to_owned()));
    assert_eq!(rename(".Payload.After.no", "text").unwrap(), (false, SAMPLE.to_owned()));
    assert_eq!(rename(".Payload.After.no.way", "b").unwrap(), (false, SAMPLE.to_owned()));
    let fault = rename(".Payload.After.text", "list").unwrap_err();
    assert_eq!(
        (fault.code().name(), fault.message().as_str()),
        ("reference_exists", "cannot rename .Payload.After.text to \"list\": field already exists")
    );
    assert_eq!(rename(".Metadata.x", "a.b").unwrap_err().code().name(), "reference_exists");
    assert_eq!(rename(".Key", "b").unwrap_err().code().name(), "reference_read_only");
    assert_eq!(rename(".Key.x", "b").unwrap_err().code().name(), "reference_unresolved");
}

#[test]
fn access_names_the_parts() {
    let path = |text: &str| match reference(text).access() {
        Access::These(paths) => paths.into_iter().map(|p| p.join("/")).collect::<Vec<_>>().join(" "),
        Access::Everything => "*".to_owned(),
    };
    assert_eq!(path(".Metadata[\"split.index\"]"), "Metadata/split.index");
    assert_eq!(path(".Payload.After.a.b"), "Payload/After/a/b");
    assert_eq!(path(".Key"), "Key");
    assert_eq!(path("."), "*");
}

/// References to fields and data, near enough to what random records hold.
fn any_reference() -> impl Strategy<Value = Reference> {
    let roots = prop::sample::select(vec![
        ".Key",
        ".Payload.Before",
        ".Payload.After",
        ".Metadata",
        ".Payload",
        ".Position",
        ".Operation",
        ".",
    ]);
    (roots, prop::collection::vec(arbitrary::key(), 0..4)).prop_filter_map("a reference", |(root, keys)| {
        let mut text = String::from(root);
        keys.iter().for_each(|key| push_part(key, &mut text));
        Reference::parse(&text).ok()
    })
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "[.$]?([a-zPA.\\[\\]\"\\\\$é0-9]|Payload|After|Key){0,12}") {
        if let Ok(parsed) = Reference::parse(&text) {
            prop_assert_eq!(Reference::parse(parsed.as_str()).unwrap(), parsed);
        }
    }

    #[test]
    fn canonical_texts_parse_to_the_same(reference in any_reference()) {
        prop_assert_eq!(Reference::parse(reference.as_str()).unwrap(), reference);
    }

    #[test]
    fn what_was_set_is_there_and_a_failed_set_changes_nothing(
        record in arbitrary::record_of(arbitrary::json_value().boxed()), reference in any_reference(), value in arbitrary::json_value(),
    ) {
        let mut changed = record.clone();
        if reference.set(&mut changed, value.clone()).is_err() {
            prop_assert_eq!(changed, record);
        } else if let Target::Field(..) = reference.target() {
            prop_assert_eq!(reference.get(&changed).unwrap(), Some(Part::Value(&value)));
            prop_assert_eq!(changed.metadata, record.metadata);
        }
    }

    #[test]
    fn deleting_leaves_nothing_there_and_nothing_else_changed(
        record in arbitrary::record_of(arbitrary::json_value().boxed()), reference in any_reference(),
    ) {
        let mut changed = record.clone();
        match reference.delete(&mut changed) {
            Ok(true) => {
                prop_assert_ne!(&changed, &record);
                prop_assert!(matches!(
                    reference.get(&changed),
                    Ok(None | Some(Part::Data(Data::Absent) | Part::Metadata(_) | Part::Payload(_)))
                ));
                // Putting it back gives the record back.
                if let (Target::Field(..), Ok(Some(Part::Value(value)))) = (reference.target(), reference.get(&record)) {
                    reference.set(&mut changed, value.clone()).unwrap();
                    prop_assert_eq!(changed, record);
                }
            }
            Ok(false) | Err(_) => prop_assert_eq!(changed, record),
        }
    }

    #[test]
    fn renaming_there_and_back_changes_nothing(
        record in arbitrary::record_of(arbitrary::json_value().boxed()), reference in any_reference(), name in arbitrary::key(),
    ) {
        let mut changed = record.clone();
        let could = reference.can_rename(&record, &name).map_err(|fault| fault.message());
        let renamed = reference.rename(&mut changed, &name).map_err(|fault| fault.message());
        prop_assert_eq!(&renamed, &could);
        if let (Ok(true), Target::Field(_, path)) = (renamed, reference.target()) {
            prop_assert!(reference.has_parent(&record).unwrap());
            let new = reference.sibling(&name).unwrap();
            prop_assert_eq!(&Reference::parse(new.as_str()).unwrap(), &new);
            prop_assert_eq!(new.rename(&mut changed, path.last()).unwrap(), true);
        }
        if !matches!(reference.target(), Target::Entry(_)) {
            prop_assert_eq!(changed, record);
        }
    }
}

#[test]
fn other_notations_are_told_with_the_reference_that_is_meant() {
    for (text, meant) in [
        ("{{ .Payload.After.a }}", Some(".Payload.After.a")),
        ("{{.Key}}", Some(".Key")),
        ("{{ .Record.Key }}", Some(".Key")),
        ("{{ upper .Key }}", None),
        ("/Payload/After/a b", Some(".Payload.After[\"a b\"]")),
        ("Payload->After->a", Some(".Payload.After.a")),
        (".Record.Payload.After.id", Some(".Payload.After.id")),
        ("rec.Metadata[\"a.b\"]", Some(".Metadata[\"a.b\"]")),
        ("record.payload.after", Some(".Payload.After")),
        (".Payload.After.a-b.c", Some(".Payload.After[\"a-b\"].c")),
        (".Payload.After['a']", Some(".Payload.After.a")),
        (".Payload.After[a]", Some(".Payload.After.a")),
        (".Payload.After.a .Payload.After.b", None),
        (".Payload.After.a;.Payload.After.b", None),
        (".Payload.After.*", None),
        (".Payload.After.a.0", None),
        (".Payload.After.a }}", None),
    ] {
        let error = Reference::parse(text).unwrap_err();
        assert_eq!(error.meant(), meant, "{text}: {error}");
        let hint = error.hint().unwrap_or_default();
        assert!(!hint.contains("instead of"), "{text}: {hint}");
        if let Some(meant) = meant {
            assert_eq!(hint, format!("write {meant}"));
            assert!(Reference::parse(meant).is_ok(), "{meant}");
        }
    }
    let several = |text: &str| Reference::parse(text).unwrap_err().several().map(str::to_owned);
    assert_eq!(several(".Key.a .Key.b;.Key.c").as_deref(), Some(".Key.a,.Key.b,.Key.c"));
    assert_eq!(several(".Key.a b"), None);
}

#[test]
fn what_is_meant_by_the_paths_of_other_tools() {
    let told = |text: &str| {
        let error = Reference::parse(text).unwrap_err();
        (error.hint().unwrap_or_default().to_owned(), error.meant().map(str::to_owned))
    };
    for (text, hint, meant) in [
        (".Payload.After.{{ .Key }}", "name the field itself", None),
        (".{{ .Payload.After.x }}", "name the field itself", None),
        (".Payload.After.tags[]", "the processor \"split\" makes each element a record", None),
        (".Payload.After.tags[*]", "the processor \"split\" makes each element a record", None),
        (".Payload.After./email/", "name each field", None),
        (".a;.b", ".Payload.After.a,.Payload.After.b", None),
        (".a .b", ".Payload.After.a,.Payload.After.b", None),
        ("this.kind", "write .Payload.After.kind", Some(".Payload.After.kind")),
        (".record.kind", "write .Payload.After.kind, or .Payload.After.record.kind", None),
        ("payload.after.kind", "did you mean .Payload.After.kind?", Some(".Payload.After.kind")),
        ("rec.payload.after.kind", "write .Payload.After.kind", Some(".Payload.After.kind")),
    ] {
        let (found, fix) = told(text);
        assert!(found.contains(hint), "{text}: {found}");
        assert_eq!(fix.as_deref(), meant, "{text}");
    }
}
