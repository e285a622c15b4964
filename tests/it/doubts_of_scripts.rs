//! Scripts that are sound to `validate`, because nothing is known of the records, and wrong for all records that come.

mod keys;
mod values;

use serde_json::Value;

use crate::process::{DECODE, TO_FILE, Workspace, lines_to};

/// Lets through records of which the compiler knows nothing.
const OPAQUE: &str =
    "      - { id: opaque, plugin: custom.javascript, settings: { script: 'function process(rec) { return rec }' } }\n";

/// A pipeline that reads lines, hides from the compiler what they are, and runs the script on them.
fn workspace(lines: &str, before: &str, script: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", lines);
    let script = script.replace('\n', "\n            ");
    let steps = format!(
        "{before}{OPAQUE}      - id: t\n        plugin: custom.javascript\n        settings:\n          script: |\n            {script}"
    );
    workspace.write("pipelines/p.yaml", lines_to(TO_FILE, &steps));
    workspace.run(&["pipelines", "validate"]).expect_code(0);
    workspace
}

const LINES: &str = "{\"name\":\"tea\",\"price\":4.5}\n{\"name\":\"milk\",\"price\":2,\"tags\":[]}\n";

/// Returns the output of `dry-run`, which exits with this code.
fn dry_run(workspace: &Workspace, code: i32) -> String {
    workspace.run(&["pipelines", "dry-run", "p", "--no-color"]).expect_code(code).both()
}

fn body(body: &str) -> String {
    format!("function process(rec) {{\n  {body}\n  return rec;\n}}")
}

#[test]
fn a_method_that_no_payload_has_is_an_error_whatever_the_records_are() {
    for (script, method) in [
        ("rec.Metadata.x = rec.Payload.After.split(',')[0];", "split"),
        ("if (rec.Payload.After.match(/tea/)) return null;", "match"),
        ("rec.Payload.After = rec.Payload.After.replace('a', 'b');", "replace"),
    ] {
        let workspace = Workspace::new();
        workspace.write("in.txt", LINES);
        let script = body(script).replace('\n', "\n            ");
        let step = format!(
            "{OPAQUE}      - id: t\n        plugin: custom.javascript\n        settings:\n          script: |\n            {script}"
        );
        workspace.write("pipelines/p.yaml", lines_to(TO_FILE, &step));
        let text = workspace.run(&["pipelines", "validate", "--no-try"]).expect_code(2).both();
        let said = format!("neither raw nor structured data has a method \"{method}\"");
        assert!(text.contains("error[script.mistake]") && text.contains(&said), "{script}: {text}");
    }
}

#[test]
fn raw_data_that_a_script_takes_for_text_are_told_with_the_place() {
    const NUMBERS: &str = "\"123,34,105\": .Payload.After is raw data";
    for (script, said) in [
        ("rec.Metadata.x = String(rec.Payload.After);", NUMBERS),
        ("rec.Metadata.x = `${rec.Payload.After}`;", NUMBERS),
        ("rec.Metadata.x = rec.Payload.After.toString();", NUMBERS),
        ("rec.Payload.After = rec.Payload.After + '';", NUMBERS),
        ("return rec.Payload.After.includes('tea') ? rec : null;", "this is always false: .Payload.After is raw data"),
        ("if (rec.Payload.After.indexOf('tea') < 0) return null;", "this is always -1: .Payload.After is raw data"),
        ("const all = JSON.parse(rec.Payload.After);", ".Payload.After is raw data, bytes, not text"),
    ] {
        let workspace = workspace(LINES, "", &body(script));
        let text = dry_run(&workspace, 1);
        for part in ["warning[script.mistake]: t: script:2:", said, "for 2 of 2 records", "p.yaml:14:"] {
            assert!(text.contains(part), "{script}: {part:?} is not in:\n{text}");
        }
    }
}

#[test]
fn structured_data_that_a_script_takes_for_text_are_told() {
    for (script, said) in [
        ("const all = JSON.parse(rec.Payload.After);", "is already structured data, not JSON text"),
        ("rec.Metadata.x = String(rec.Payload.After);", "this is \"[object Object]\""),
        ("if (rec.Payload.After.includes('tea')) return null;", "which have no method \"includes\""),
    ] {
        let text = dry_run(&workspace(LINES, DECODE, &body(script)), 1);
        assert!(text.contains(said) && text.contains("for 2 of 2 records"), "{script}\n{text}");
    }
}

#[test]
fn a_field_that_no_record_has_is_told() {
    for (script, said) in [
        ("rec.Metadata.x = String(rec.Payload.After.nmae);", "rec.Payload.After.name"),
        ("if (rec.Payload.After.Name === 'tea') return null;", "rec.Payload.After.name"),
        ("const { pirce } = rec.Payload.After; rec.Metadata.x = String(pirce);", "rec.Payload.After.price"),
        ("const all = rec.Payload.After; if (all.Tags) return null;", "rec.Payload.After.tags"),
        ("rec.Metadata.x = `${rec.Payload.After?.nmae ?? ''}`;", "rec.Payload.After.name"),
        ("rec.Metadata.x = rec.Metadata['file.pathh'] ?? '';", "rec.Metadata[\"file.path\"]"),
    ] {
        let text = dry_run(&workspace(LINES, DECODE, &body(script)), 1);
        let hint = format!("did you mean {said}?");
        assert!(text.contains("this is undefined: ") && text.contains(&hint), "{script}: {hint}\n{text}");
        assert!(text.contains("for 2 of 2 records"), "{script}\n{text}");
    }
    // It may be optional: it is told, and nothing is wrong for certain.
    let text = dry_run(&workspace(LINES, DECODE, &body("rec.Metadata.x = `${rec.Payload.After.discount}`;")), 0);
    assert!(text.contains("warning[flow.no_field]: t: script:2:23: this is undefined"), "{text}");
}

#[test]
fn scripts_that_are_right_about_their_records_are_not_doubted() {
    let text = "const text = new TextDecoder().decode(rec.Payload.After); if (text.includes('x')) return null;";
    for (before, script) in [
        ("", text),
        ("", "if (rec.Payload.After.length > 1000) return null;"),
        (
            "",
            "rec.Payload.After = rec.Payload.After instanceof Uint8Array ? rec.Payload.After : String(rec.Payload.After);",
        ),
        (DECODE, "rec.Payload.After.names = [rec.Payload.After.name]; f(rec.Payload.After.names); function f() {}"),
        (DECODE, "Object.assign(rec.Payload.After, { nmae: 1 }); rec.Metadata.x = `${rec.Payload.After.nmae}`;"),
        (DECODE, "rec.Metadata.x = `${rec.Payload.After.names ?? rec.Payload.After.name}`;"),
        (DECODE, "if (rec.Payload.After.discount) return null;"),
        (DECODE, "const { discount = 0 } = rec.Payload.After; rec.Payload.After.discount = discount;"),
        // One record has it.
        (DECODE, "rec.Metadata.x = `${rec.Payload.After.tags}`;"),
        (DECODE, "if (rec.Metadata['a.b']) return null;"),
    ] {
        let text = dry_run(&workspace(LINES, before, &body(script)), 0);
        assert!(!text.contains("warning"), "{script}\n{text}");
    }
    // A payload that is raw in one record and structured in another is for the script to distinguish.
    let mixed = "{\"name\":\"tea\"}\n\"text\"\n";
    let text = dry_run(&workspace(mixed, DECODE, &body("rec.Metadata.x = String(rec.Payload.After.name);")), 0);
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn tests_of_pipelines_tell_it_and_pass() {
    let workspace = workspace(LINES, "", &body("rec.Metadata.x = String(rec.Payload.After);"));
    workspace.write(
        "pipelines/p.test.yaml",
        "tests:\n  - { name: bytes, input: ['{}'], expect: { records: [ { metadata: { x: '123,125' } } ] } }\n",
    );
    let text = workspace.run(&["pipelines", "test", "--no-color"]).expect_code(0).both();
    let place = text.find("p.yaml:14:").zip(text.find("this is a text of byte values"));
    assert!(place.is_some() && text.contains("warning[script.mistake]") && text.contains("1 passed"), "{text}");
}

#[test]
fn what_validate_says_is_not_said_again() {
    let workspace = workspace(LINES, "", &body("rec.Metadata.x = String(rec.Payload.After);"));
    let plain = workspace.read("pipelines/p.yaml").replace(OPAQUE, "");
    workspace.write("pipelines/p.yaml", plain);
    let text = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
    assert_eq!(text.matches("this is a text of byte values").count(), 1, "{text}");
    let text = dry_run(&workspace, 0);
    assert_eq!(text.matches("this is a text of byte values").count(), 1, "{text}");
    let json = workspace.run(&["pipelines", "dry-run", "p", "--json"]).expect_code(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["result"]["pipelines"][0]["doubts"], Value::Array(Vec::new()), "{json}");
}
