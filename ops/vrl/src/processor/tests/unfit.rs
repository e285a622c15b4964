//! Values that a record cannot hold, found before the first record.

use super::*;

fn raw() -> RecordShape {
    RecordShape::create(Shape::ABSENT, Shape::RAW)
}

/// Findings for records of which nothing is known.
fn of_any(program: &str) -> Vec<String> {
    flow(&of(program), RecordShape::create(Shape::unknown(), Shape::unknown())).1
}

#[test]
fn constants_that_no_record_can_hold_are_refused() {
    for (program, said) in [
        ("%operation = \"upsert\"", "!program:1:14: %operation becomes \"upsert\", which is not an operation"),
        ("%operation = s'remove'", "!program:1:14: %operation becomes \"remove\", which is not an operation"),
        ("%operation = (\"new\")", "!program:1:15: %operation becomes \"new\", which is not an operation"),
        ("%operation = 7", "!program:1:1: %operation becomes a value of type integer, and it can only be an operation"),
        ("%operation = null", "!program:1:1: %operation becomes a value of type null, and it can only be an operation"),
        (
            "del(%operation)",
            "!program:1:5: %operation becomes a value of type undefined, and it can only be an operation",
        ),
        (
            "%metadata = null",
            "!program:1:1: %metadata becomes a value of type null, and it can only be an object of strings",
        ),
        (
            "%metadata = \"a\"",
            "!program:1:1: %metadata becomes a value of type string, and it can only be an object of strings",
        ),
        (
            "%metadata.a = [1]",
            "!program:1:1: the metadata \"a\" becomes a value of type array, and it can only be a text",
        ),
        (
            "%metadata.a = {}",
            "!program:1:1: the metadata \"a\" becomes a value of type object, and it can only be a text",
        ),
        (
            "%metadata.a = r'x'",
            "!program:1:1: the metadata \"a\" becomes a value of type regex, and it can only be a text",
        ),
        (
            "%metadata = {\"a\": {}}",
            "!program:1:1: the metadata \"a\" becomes a value of type object, and it can only be a text",
        ),
        (
            "%key = 7",
            "!program:1:1: .Key becomes a value of type integer, and it can only be an object, a string or null",
        ),
        (
            "%before = now()",
            "!program:1:1: .Payload.Before becomes a value of type timestamp, and it can only be an object, a string or null",
        ),
        (
            ". = true",
            "!program:1:1: .Payload.After becomes a value of type boolean, and it can only be an object, a string or null",
        ),
        (
            ". = [{}, 7]",
            "!program:1:1: each element of the array becomes a record, whose .Payload.After is a value of type integer; it can only be an object, a string or null",
        ),
    ] {
        assert_eq!(of_any(program), [said], "{program}");
    }
}

#[test]
fn values_that_may_be_unfit_are_warnings() {
    for (program, said) in [
        (
            "if .a == 1 { %operation = \"upsert\" }",
            "program:1:27: %operation becomes \"upsert\", which is not an operation",
        ),
        (
            "%operation = if .a == 1 { \"update\" } else { \"upsert\" }",
            "program:1:45: %operation becomes \"upsert\", which is not an operation",
        ),
        (
            "%operation = string(.op) ?? \"none\"",
            "program:1:29: %operation becomes \"none\", which is not an operation",
        ),
        (
            "%operation = \"x\"\nif .a == 1 { %operation = \"update\" }",
            "program:1:14: %operation becomes \"x\", which is not an operation",
        ),
        // It may be empty.
        (". = map_values(array!(.l)) -> |v| { length(string!(v)) }", ""),
    ] {
        let expected: Vec<&str> = Some(said).into_iter().filter(|said| !said.is_empty()).collect();
        let found: Vec<String> = of_any(program).into_iter().filter(|said| !said.contains("this is null")).collect();
        assert_eq!(found, expected, "{program}");
    }
}

#[test]
fn values_that_fit_are_not_reported() {
    for program in [
        "%operation = \"update\"",
        "%operation = if .a == 1 { \"create\" } else { \"delete\" }",
        "%operation = .op",
        "%operation = downcase(string!(.op))",
        "%metadata = {}",
        "%metadata = {\"a\": 1, \"b\": null, \"c\": now(), \"d\": true, \"e\": 1.5}",
        "%metadata.a = .a",
        "del(%metadata.a)",
        "%key = {\"id\": .id}",
        "%key = null",
        "del(%before)",
        ". = [{}, \"text\", null]",
        ". = .l",
        "for_each([1]) -> |_i, v| { %metadata.a = v }",
    ] {
        let found = flow(&of(program), RecordShape::create(Shape::unknown(), Shape::unknown())).1;
        assert_eq!(found, Vec::<String>::new(), "{program}");
    }
}

#[test]
fn a_field_of_a_key_that_is_not_structured_is_refused() {
    let found = |program: &str, key: Shape| flow(&of(program), RecordShape::create(key, Shape::RAW)).1;
    assert_eq!(
        found("%key.id = 1", Shape::RAW),
        ["!program:1:1: every record fails here: %key is raw data, so it has no field %key.id"]
    );
    assert_eq!(
        found("%key.id = 1", Shape::ABSENT),
        ["!program:1:1: every record fails here: %key is absent, so it has no field %key.id"]
    );
    assert!(found("%key = parse_json!(%key)\n%key.id = 1", Shape::RAW).is_empty());
    assert!(found("if %operation == \"create\" { %key.id = 1 }", Shape::RAW).is_empty());
    assert!(found("%key.id = 1", Shape::unknown()).is_empty());
    let (_, said) = flow(&of("%before.a = 1"), raw());
    assert_eq!(said, ["!program:1:1: every record fails here: %before is absent, so it has no field %before.a"]);
}
