//! Findings and plans as people see them.

use anabranch_picture::{Format, Pass, TextStyle};
use insta::assert_snapshot;

use super::ends::{compiled, pipeline, registry, yaml};

fn findings(sources: &[&str], processors: &[&str], destination: &str) -> String {
    let processors: Vec<String> = processors.iter().map(|&p| p.to_owned()).collect();
    let (files, _, findings) = compiled(&yaml(sources, &processors, destination), &registry());
    findings.render(&files, Default::default())
}

#[test]
fn a_split_of_raw_lines() {
    assert_snapshot!(findings(
        &["lines"],
        &["plugin: split, settings: { field: .Payload.After.items }"],
        "plugin: drop"
    ));
}

#[test]
fn a_table_of_encoded_data() {
    assert_snapshot!(findings(
        &["created"],
        &["plugin: json.encode, settings: { field: .Payload.After }"],
        "plugin: table"
    ));
}

#[test]
fn slips_of_the_pen() {
    assert_snapshot!(findings(
        &["lines"],
        &[
            "plugin: field.exclude, settings: { fields: .Key }",
            "plugin: field.set, settings: { field: .Key.order, value: '{{ index .Metadata \"file.paht\" }}' }",
            "plugin: field.set, condition: '{{ and true (eq .Key.odrer 7) }}', settings: { field: .Metadata.a, value: x }",
            "plugin: field.set, settings: { field: .Metadata.a, value: y }",
            "plugin: filter, condition: '{{ eq .Operation \"create\" }}'",
        ],
        "plugin: drop"
    ));
}

/// The correction of a mistake in a template.
#[test]
fn remedies_in_templates() {
    let set = |value: &str| format!("plugin: field.set, settings: {{ field: .Metadata.x, value: '{value}' }}");
    let filter = |condition: &str| format!("plugin: filter, condition: '{condition}'");
    for (step, said) in [
        (filter("{{ gt (len .Payload.After.name) 1.0 }}"), "the other side is a whole number: write 1\n"),
        (filter("{{ lt (int .Payload.After.id) 10.0 }}"), "the other side is a whole number: write 10\n"),
        (filter("{{ gt (len .Payload.After.name) 1.5 }}"), "write (float64 (len .Payload.After.name))"),
        (filter("{{ gt .Payload.After.price 10 }}"), "write the number with a decimal point: 10.0"),
        (filter("{{ or (eq .Payload.After.name \"order\") \"return\" }}"), "write (eq .Payload.After.name \"return\")"),
        (filter("{{ regexMatch \"/order/i\" .Payload.After.name }}"), "write \"(?i)order\", or [/] to match a slash"),
        (set("{{ toJson .Key }}"), "write printf \"%s\" .Key for its text, or toJson (printf \"%s\" .Key)"),
        (set("{{ int .Key }}"), "write (printf \"%s\" .Key) for its text"),
        (set("{{ add .Payload.After.at 1 }}"), "write (int64 (unixEpoch .Payload.After.at))"),
        (set("{{ index .Payload.After.name 0 }}"), "substr 0 1 .Payload.After.name for its first letter"),
        (set("{{ list 1 2 }}"), "write list 1 2 | toJson, or list 1 2 | join \", \""),
        (set("{{ .Payload.After.at }}"), "write date \"2006-01-02T15:04:05Z07:00\" .Payload.After.at"),
        (set("{{ urlquery .Key }}"), "write printf \"%s\" .Key"),
    ] {
        let found = findings(&["created"], &[&step], "plugin: drop");
        assert!(found.contains(said), "{step}\n{found}");
    }
}

#[test]
fn shapes_on_edges() {
    let processors = [
        "plugin: field.rename, settings: { mapping: '.Payload.After.name:title' }",
        "plugin: field.set, condition: '{{ .Payload.After.active }}', settings: { field: .Payload.After.in.tag, value: x }",
        "plugin: field.convert, settings: { field: .Payload.After.id, type: string }",
        "plugin: json.encode, settings: { field: .Payload.After }",
    ];
    let text = yaml(&["created"], &processors.map(str::to_owned), "plugin: drop");
    let (_, plan, _) = compiled(&text, &registry());
    let plan = plan.unwrap();
    let style = TextStyle { unicode: true, color: false };
    assert_snapshot!("shapes_text", anabranch_picture::explain(&plan, Pass::Rewritten, Format::Text, style));
    assert_snapshot!("shapes_fused", anabranch_picture::explain(&plan, Pass::Fused, Format::Text, style));
    assert_snapshot!("shapes_dot", anabranch_picture::explain(&plan, Pass::Rewritten, Format::Dot, style));
    assert_snapshot!("shapes_mermaid", anabranch_picture::explain(&plan, Pass::Rewritten, Format::Mermaid, style));
    let json: serde_json::Value =
        serde_json::from_str(&anabranch_picture::explain(&plan, Pass::Lowered, Format::Json, style)).unwrap();
    let shapes: Vec<_> = json["edges"].as_array().unwrap().iter().map(|edge| edge["shape"].clone()).collect();
    assert_eq!(shapes[0], "key: raw, after: {active bool, at time, id int, name text, price float}");
    assert!(anabranch_picture::explain(&plan, Pass::Fused, Format::Text, TextStyle::default()).is_ascii());
}

/// Names of fields may come out of variables.
#[test]
fn substituted_names_are_shown_in_no_finding_and_no_plan() {
    let text = |destination| {
        yaml(
            &["created"],
            &[
                "plugin: field.set, settings: { field: '.Payload.After.${SECRET}', value: x }".to_owned(),
                "plugin: filter, condition: '{{ eq .Payload.After.${SECRET}s \"x\" }}'".to_owned(),
                "plugin: split, condition: '{{ .Payload.After.active }}', settings: { field: '.Payload.After.${SECRET}' }".to_owned(),
            ],
            destination,
        )
    };
    let (_, config) = pipeline(&text("plugin: drop"));
    assert!(format!("{config:?}").contains("${SECRET}"));
    let (files, plan, findings) = compiled(&text("plugin: drop"), &registry());
    let rendered = findings.render(&files, Default::default());
    assert!(findings.iter().count() >= 2 && !rendered.contains("hunter22"), "{rendered}");
    for pass in [Pass::Lowered, Pass::Rewritten, Pass::Fused] {
        for format in [Format::Text, Format::Dot, Format::Mermaid, Format::Json] {
            let shown = anabranch_picture::explain(plan.as_ref().unwrap(), pass, format, TextStyle::default());
            assert!(!shown.contains("hunter22"), "{shown}");
            assert!(shown.contains("***") || shown.contains("#42;#42;#42;"), "{shown}");
        }
    }
}
