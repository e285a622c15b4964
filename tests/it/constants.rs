//! Conditions on what a step before has set: whether they hold is known without a record.

use crate::process::{DECODE, TO_FILE, Workspace, lines_to};

/// A pipeline with these steps, one a line, on decoded lines.
fn validate(steps: &[&str]) -> String {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"kind\":\"a\",\"items\":[1,2]}\n");
    let steps: String = steps.iter().map(|step| format!("      - {{ {step} }}\n")).collect();
    workspace.write("pipelines/p.yaml", lines_to(TO_FILE, &format!("{DECODE}{steps}")));
    let run = ["pipelines", "validate", "--preview.pipeline-arch-v2"];
    workspace.run(&run).expect_code(0).both()
}

const CLONE: &str = "id: copy, plugin: clone, settings: { count: 2 }";
const SPLIT: &str = "id: pieces, plugin: split, settings: { field: .Payload.After.items }";
const SET: &str = "id: set, plugin: field.set, settings: { field: .Payload.After.kind, value: order }";
const ENTRY: &str = "id: set, plugin: field.set, settings: { field: .Metadata.kind, value: order }";

fn filter(condition: &str) -> String {
    format!("id: only, plugin: filter, condition: '{{{{ {condition} }}}}'")
}

#[test]
fn an_index_that_no_copy_has_is_told() {
    for (before, condition, said) in [
        (
            CLONE,
            "eq (index .Metadata \"clone.index\") \"7\"",
            "is a whole number from \"0\" to \"2\" here: the comparison is false",
        ),
        (CLONE, "eq (index .Metadata \"clone.index\") \"3\"", "\"0\" to \"2\" here: the comparison is false"),
        (CLONE, "ne (index .Metadata \"clone.index\") \"first\"", "\"0\" to \"2\" here: the comparison is true"),
        (CLONE, "eq \"01\" (index .Metadata \"clone.index\")", "the comparison is false"),
        (CLONE, "eq (int (index .Metadata \"clone.index\")) 3", "is 0 to 2 here: the comparison is false"),
        (CLONE, "gt (atoi (index .Metadata \"clone.index\")) 2", "is 0 to 2 here: the comparison is false"),
        (CLONE, "ge (index .Metadata \"clone.index\" | int) 0", "is 0 to 2 here: the comparison is true"),
        (
            SPLIT,
            "eq (index .Metadata \"split.index\") \"-1\"",
            "a whole number from \"0\" up here: the comparison is false",
        ),
    ] {
        let text = validate(&[before, &filter(condition)]);
        assert!(text.contains("warning[flow.never_true]") && text.contains(said), "{condition}\n{text}");
        assert!(text.contains("p.yaml:10:"), "{condition}\n{text}");
    }
    for (before, condition) in [
        (CLONE, "eq (index .Metadata \"clone.index\") \"0\""),
        (CLONE, "ne (index .Metadata \"clone.index\") \"2\""),
        (CLONE, "gt (int (index .Metadata \"clone.index\")) 1"),
        (SPLIT, "eq (index .Metadata \"split.index\") \"700\""),
    ] {
        let text = validate(&[before, &filter(condition)]);
        assert!(text.contains("0 errors, 0 warnings"), "{condition}\n{text}");
    }
}

#[test]
fn a_field_that_a_step_has_set_is_compared_in_vain() {
    for (before, condition, said) in [
        (
            SET,
            "eq .Payload.After.kind \"invoice\"",
            ".Payload.After.kind is always \"order\" here: the comparison is false",
        ),
        (
            SET,
            "eq .Payload.After.kind \"order\"",
            ".Payload.After.kind is always \"order\" here: the comparison is true",
        ),
        (
            SET,
            "ne \"invoice\" .Payload.After.kind",
            ".Payload.After.kind is always \"order\" here: the comparison is true",
        ),
        (ENTRY, "eq .Metadata.kind \"invoice\"", ".Metadata.kind is always \"order\" here: the comparison is false"),
        (ENTRY, "eq (index .Metadata \"kind\") \"invoice\"", "is always \"order\" here: the comparison is false"),
    ] {
        let text = validate(&[before, &filter(condition)]);
        assert!(text.contains("warning[flow.never_true]") && text.contains(said), "{condition}\n{text}");
    }
    // It goes with a field that is renamed, and past steps that leave it alone.
    let renamed = "id: rename, plugin: field.rename, settings: { mapping: '.Payload.After.kind:type' }";
    let other = "id: other, plugin: field.set, settings: { field: .Payload.After.x, value: invoice }";
    let text = validate(&[SET, renamed, other, &filter("eq .Payload.After.type \"invoice\"")]);
    assert!(text.contains(".Payload.After.type is always \"order\" here"), "{text}");
}

#[test]
fn what_may_have_changed_since_is_not_told() {
    let condition = filter("eq .Payload.After.kind \"invoice\"");
    let entry = filter("eq .Metadata.kind \"invoice\"");
    let sometimes = "id: set, plugin: field.set, condition: '{{ eq .Payload.After.items \"x\" }}', settings: { field: .Payload.After.kind, value: order }";
    let invoice = "id: second, plugin: field.set, condition: '{{ gt (len .Payload.After.items) 1 }}', settings: { field: .Payload.After.kind, value: invoice }";
    let rendered =
        "id: third, plugin: field.set, settings: { field: .Payload.After.kind, value: '{{ .Payload.After.items }}' }";
    let script = "id: script, plugin: custom.javascript, settings: { script: 'function process(rec) { return rec }' }";
    let variable = "id: set, plugin: field.set, settings: { field: .Payload.After.kind, value: '${KIND:-order}' }";
    for steps in [
        vec![SET, invoice, &condition],
        vec![SET, rendered, &condition],
        vec![SET, script, &condition],
        vec![ENTRY, script, &entry],
        vec![sometimes, &condition],
        vec![variable, &condition],
        vec![SET, &filter("eq .Payload.After.kind \"${KIND:-order}\"")],
        vec![SET, &filter("or (eq .Payload.After.kind \"invoice\") (gt (len .Payload.After.items) 1)")],
    ] {
        let text = validate(&steps);
        assert!(!text.contains("flow.never_true"), "{steps:?}\n{text}");
    }
}
