//! Trials with synthetic records: what fails for every record is reported before there are any, and nothing else is.

mod rows;

use std::time::Duration;

use anabranch_graph::plan::CompileOptions;
use anabranch_registry::registry;
use anabranch_service::pipelines::Pipelines;
use anabranch_trial::synthetic::{ALWAYS_FAILS, Patience, try_pipelines};

use rows::ROWS;

use crate::process::{DECODE, TO_FILE, Workspace, lines_to};

/// Time enough on any machine.
const PATIENCE: Patience = Patience { one: Duration::from_secs(60), all: Duration::from_secs(600) };
/// The line of the first processor behind `json.decode`.
const FIRST: u32 = 8;

fn tried(processors: &[&str]) -> Pipelines {
    let mut text = String::from(
        "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - { id: in, type: source, plugin: file, \
         settings: { path: in.ndjson } }\n      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson } }\n    \
         processors: [ { id: x0, plugin: json.decode, settings: { field: .Payload.After } },\n",
    );
    text.push_str(&processors.join(",\n"));
    text.push_str(" ]\n");
    let options = CompileOptions { split: true, ..CompileOptions::default() };
    let mut pipelines = Pipelines::of_text("p.yaml", text, &registry(), &options);
    try_pipelines(&mut pipelines, PATIENCE);
    pipelines
}

/// Line and message of what the trial found.
fn found(pipelines: &Pipelines) -> Vec<(u32, String)> {
    let trial = pipelines.findings.iter().filter(|finding| finding.code == ALWAYS_FAILS);
    let placed = trial.filter_map(|finding| {
        let place = pipelines.files.locate(finding.label.as_ref()?.span)?;
        Some((place.line, finding.message.clone()))
    });
    placed.collect()
}

#[test]
fn what_fails_for_every_record_is_reported_with_its_place_and_cause() {
    let mut wrong = Vec::new();
    for (processors, node, cause) in ROWS {
        let pipelines = tried(processors);
        let line = processors.iter().position(|text| text.contains(&format!("\"id\": \"{node}\"")));
        let line = line.map(|at| FIRST + u32::try_from(at).unwrap());
        match &found(&pipelines)[..] {
            [(at, message)] if Some(*at) == line && message.starts_with(node) && message.contains(cause) => {}
            other => wrong.push(format!("{processors:?}: {other:?}, not {cause}; {:?}", pipelines.findings)),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ROWS.len(), wrong.join("\n"));
}

#[test]
fn what_some_data_make_right_is_not_reported() {
    let right: &[&[&str]] = &[
        &[r#"{ id: a, plugin: field.convert, settings: { field: .Payload.After.n, type: int } }"#],
        &[r#"{ id: a, plugin: field.convert, settings: { field: .Payload.After.at, type: time } }"#],
        &[r#"{ id: a, plugin: split, settings: { field: .Payload.After.items } }"#],
        &[
            r#"{ id: a, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ (index .Payload.After.items 0).sku }}' } }"#,
        ],
        &[
            r#"{ id: a, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ index (splitList "::" .Payload.After.csv) 1 }}' } }"#,
        ],
        &[
            r#"{ id: a, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ index (regexFindAll "[A-Z]{3}" .Payload.After.t 1) 0 }}' } }"#,
        ],
        &[
            r#"{ id: a, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ upper .Payload.After.name }}{{ first .Payload.After.tags }}' } }"#,
        ],
        &[r#"{ id: a, plugin: filter, condition: '{{ gt .Payload.After.n 10 }}', settings: {} }"#],
        &[
            r#"{ id: a, plugin: filter, condition: '{{ range .Payload.After.items }}{{ if eq .sku "x" }}true{{ end }}{{ end }}', settings: {} }"#,
        ],
        &[
            r#"{ id: a, plugin: field.set, settings: { field: .Payload.After.o, value: '{"a": {{ .Payload.After.id }}}' } }"#,
            r#"{ id: b, plugin: json.decode, settings: { field: .Payload.After.o } }"#,
        ],
        &[
            r#"{ id: a, plugin: field.set, settings: { field: .Payload.After.t, value: '{{ .Payload.After.day }}T00:00:00Z' } }"#,
            r#"{ id: b, plugin: field.convert, settings: { field: .Payload.After.t, type: time } }"#,
        ],
        &[r#"{ id: a, plugin: error, settings: { message: no } }"#],
        &[r#"{ id: a, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ fail "no" }}' } }"#],
        &[
            r#"{ id: a, plugin: custom.javascript, settings: { script: "function process(rec) { throw new Error('not mine'); }" } }"#,
        ],
        &[
            r#"{ id: a, plugin: custom.javascript, settings: { script: "function process(rec) { rec.Payload.After.t = rec.Payload.After.items.map(i => i.sku).join(','); return rec; }" } }"#,
        ],
        &[r#"{ id: a, plugin: field.exclude, settings: { fields: .Key } }"#],
    ];
    for processors in right {
        let pipelines = tried(processors);
        assert_eq!(found(&pipelines), [], "{processors:?}");
        assert!(!pipelines.good.is_empty(), "{processors:?}: {:?}", pipelines.findings);
    }
}

#[test]
fn validate_tries_pipelines_if_it_is_asked_to() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{}\n");
    let steps = "      - { id: set, plugin: field.set, settings: { field: .Payload.After.n, value: n/a } }\n      \
                 - { id: convert, plugin: field.convert, settings: { field: .Payload.After.n, type: int } }\n";
    workspace.write("pipelines/p.yaml", lines_to(TO_FILE, &format!("{DECODE}{steps}")));
    let without = workspace.run(&["pipelines", "validate", "--strict"]).expect_code(0).both();
    assert!(!without.contains(ALWAYS_FAILS), "{without}");
    let with = workspace.run(&["pipelines", "validate", "--strict", "--try"]).expect_code(2).both();
    assert!(with.contains(ALWAYS_FAILS) && with.contains("convert"), "{with}");
}
