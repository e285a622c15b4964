//! Values that a script takes for something that they are in no record.

use super::{DECODE, body, dry_run, workspace};

const PEOPLE: &str = r#"{"name":"joe","addr":{"city":"Rome"},"tags":["a"],"lines":[{"sku":"x"}]}
{"name":"ann","addr":{"city":"Bern"},"tags":[],"lines":[]}
"#;

#[test]
fn what_is_the_same_in_every_record_has_its_place() {
    for (script, said) in [
        (
            "rec.Payload.After.note = 'at ' + rec.Payload.After.addr;",
            "this is \"[object Object]\": .Payload.After.addr",
        ),
        ("rec.Payload.After = { sku: rec.Payload.After.lines.sku };", "which has no field \"sku\""),
        ("const { tags } = rec.Payload.After; rec.Metadata.n = `${tags.len}`;", "write length"),
        ("rec.Metadata.n = `${rec.Payload.After.addr.length}`;", "Object.keys(rec.Payload.After.addr).length"),
        ("rec.Metadata.c = rec.Payload.After.addr.City;", "did you mean rec.Payload.After.addr.city?"),
        ("const seen = {}; if (seen[rec.Payload.After]) return null;", "this is the name \"[object Object]\""),
    ] {
        let text = dry_run(&workspace(PEOPLE, DECODE, &body(script)), 1);
        assert!(text.contains(said) && text.contains("for 2 of 2 records"), "{script}\n{text}");
        assert_eq!(text.matches("warning[").count(), 1, "{script}\n{text}");
    }
}

#[test]
fn the_text_of_an_object_in_what_a_script_makes_is_told() {
    // Of which field it is does not show in the script.
    let take = "const f = (o, n) => `at ${o[n]}`; ";
    for (script, code, said) in [
        (
            "rec.Payload.After = { a: { b: [f(rec.Payload.After, 'addr')] } };",
            1,
            "in .Payload.After.a.b, for 2 of 2 records",
        ),
        ("rec.Metadata.at = f(rec.Payload.After, 'addr');", 1, "in .Metadata.at, for 2 of 2 records"),
        ("rec.Payload.After = f(rec.Payload.After, 'addr');", 1, "in .Payload.After, for 2 of 2 records"),
        (
            "if (rec.Payload.After.name === 'joe') rec.Metadata.at = f(rec.Payload.After, 'addr');",
            0,
            "in .Metadata.at, for 1 of 2 records",
        ),
    ] {
        let text = dry_run(&workspace(PEOPLE, DECODE, &body(&format!("{take}{script}"))), code);
        assert!(
            text.contains("warning[script.mistake]: t: the script converts an object to the text \"[object Object]\""),
            "{text}"
        );
        assert!(text.contains(said), "{script}\n{text}");
    }
    // It came with the record.
    let odd = PEOPLE.replace("Rome", "[object Object]").replace("Bern", "[object Object]");
    let text = dry_run(&workspace(&odd, DECODE, &body("rec.Metadata.at = rec.Payload.After.addr.city;")), 0);
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn what_only_some_records_are_is_no_mistake() {
    let mixed = "{\"addr\":{\"city\":\"Rome\"},\"lines\":[1]}\n{\"addr\":\"Bern\",\"lines\":{\"sku\":1}}\n";
    for script in [
        "rec.Metadata.c = rec.Payload.After.addr.city ?? rec.Payload.After.addr;",
        "rec.Metadata.n = `${rec.Payload.After.lines.sku}`;",
        "rec.Metadata.n = `${rec.Payload.After.lines.length}`;",
    ] {
        let text = dry_run(&workspace(mixed, DECODE, &body(script)), 0);
        assert!(!text.contains("warning"), "{script}\n{text}");
    }
}
