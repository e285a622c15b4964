//! Trials with synthetic records: what fails for every record is reported before there are any, and nothing else is.

mod right;
mod rows;

use std::path::Path;
use std::time::Duration;

use anabranch_graph::plan::CompileOptions;
use anabranch_registry::registry;
use anabranch_service::pipelines::Pipelines;
use anabranch_trial::codes;
use anabranch_trial::synthetic::{TrialLimits, try_pipelines};
use regex::{Captures, Regex};
use right::{RIGHT, ROWS_OF_TABLES};
use rows::ROWS;
use serde_json::Value;

use crate::docs::below;
use crate::process::{DECODE, TO_FILE, Workspace, lines_to};

/// Time enough on any machine.
const LIMITS: TrialLimits = TrialLimits { one: Duration::from_secs(60), all: Duration::from_secs(600) };
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
    try_pipelines(&mut pipelines, LIMITS);
    pipelines
}

/// Line and message of what the trial found.
fn found(pipelines: &Pipelines) -> Vec<(u32, String)> {
    let trial = pipelines.findings.iter().filter(|finding| finding.code == codes::TRIAL_ALWAYS_FAILS);
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

/// A pipeline of [`RIGHT`], from `N.txt` to the log.
fn right(number: usize) -> String {
    let processors = RIGHT[number].processors.trim().lines().map(|line| format!("      {line}\n"));
    format!(
        "version: \"2.2\"\npipelines:\n  - id: p{number}\n    connectors:\n      - {{ id: in, type: source, plugin: file, \
         settings: {{ path: {number}.txt }} }}\n      - {{ id: out, type: destination, plugin: log }}\n    \
         dead-letter-queue: {{ plugin: log, window-size: 0 }}\n    processors:\n{}",
        processors.collect::<String>()
    )
}

#[test]
fn what_data_of_a_certain_form_make_right_is_not_reported() {
    let options = CompileOptions { split: true, ..CompileOptions::default() };
    let reported = (0..RIGHT.len()).filter_map(|number| {
        let mut pipelines = Pipelines::of_text("p.yaml", right(number), &registry(), &options);
        try_pipelines(&mut pipelines, LIMITS);
        // A step with a finding is not judged.
        (pipelines.good.is_empty() || !pipelines.findings.is_empty())
            .then(|| format!("{}: {:?}", RIGHT[number].of, pipelines.findings))
    });
    let reported: Vec<String> = reported.collect();
    assert!(reported.is_empty(), "{}", reported.join("\n"));
}

#[test]
fn keys_that_some_data_make_right_are_not_reported() {
    let options = CompileOptions { split: true, ..CompileOptions::default() };
    let mut reported = Vec::new();
    for processors in ROWS_OF_TABLES {
        let processors: String = processors.trim().lines().map(|line| format!("      {line}\n")).collect();
        let to = "plugin: postgres, settings: { url: 'postgresql://u@localhost/d', table: lines }";
        let text = lines_to(to, &format!("{DECODE}{processors}"));
        let mut pipelines = Pipelines::of_text("p.yaml", text, &registry(), &options);
        try_pipelines(&mut pipelines, LIMITS);
        if pipelines.good.is_empty() || !pipelines.findings.is_empty() {
            reported.push(format!("{processors}{:?}", pipelines.findings));
        }
    }
    assert!(reported.is_empty(), "{}", reported.join("\n"));
}

#[test]
fn pipelines_for_data_of_a_certain_form_deliver_such_data() {
    let workspace = Workspace::new();
    for (number, row) in RIGHT.iter().enumerate() {
        workspace.write(&format!("{number}.txt"), row.lines);
        workspace.write(&format!("pipelines/{number}.yaml"), right(number));
    }
    let text = workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(0).both();
    for (number, row) in RIGHT.iter().enumerate() {
        let ended = text.lines().find(|line| line.starts_with(&format!("p{number} finished:")));
        assert!(ended.is_some_and(|line| line.contains(" 0 dead-lettered")), "{}\n{text}", row.of);
    }
}

/// The pipelines of the repository: those of pages, examples, benchmarks and templates, with values for their variables.
fn published() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| (path.display().to_string(), std::fs::read_to_string(path).unwrap());
    let mut texts = Vec::new();
    for (name, page) in below(&root.join("docs"), ".md").iter().chain([&root.join("README.md")]).map(|path| read(path))
    {
        let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
        texts.extend(blocks.map(|block| (name.clone(), block)));
    }
    for directory in ["examples", "bench/workloads", "src/cli/templates"] {
        let files = below(&root.join(directory), ".yaml");
        texts.extend(files.iter().filter(|path| !path.ends_with(".test.yaml")).map(|path| read(path)));
    }
    let variable = Regex::new(r"\$\{([A-Z_0-9]+)(?::-([^}]*))?\}").unwrap();
    let value = |found: &Captures<'_>| match (&found[1], found.get(2)) {
        (_, Some(default)) => default.as_str().to_owned(),
        (name, _) if name.contains("POSTGRES") || name.contains("DATABASE") => "postgresql://u@localhost/d".to_owned(),
        (name, _) if name.contains("RECORDS") || name.contains("COUNT") => "10".to_owned(),
        (name, _) if name.contains("BUCKET") => "lake".to_owned(),
        (name, _) if name.contains("URL") => "http://x".to_owned(),
        (name, _) => name.to_lowercase(),
    };
    texts.into_iter().map(|(name, text)| (name, variable.replace_all(&text, value).into_owned())).collect()
}

#[test]
fn no_published_pipeline_is_reported() {
    let options = CompileOptions { split: true, ..CompileOptions::default() };
    let (mut tried, mut reported) = (0, Vec::new());
    for (name, text) in published() {
        let mut pipelines = Pipelines::of_text(&name, text, &registry(), &options);
        try_pipelines(&mut pipelines, LIMITS);
        tried += pipelines.good.len();
        reported.extend(found(&pipelines).into_iter().map(|found| format!("{name}: {found:?}")));
    }
    assert!(reported.is_empty(), "{}", reported.join("\n"));
    assert!(tried > 25, "{tried}");
}

#[test]
fn commands_that_check_pipelines_try_them() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{}\n");
    let steps = "      - { id: set, plugin: field.set, settings: { field: .Payload.After.n, value: n/a } }\n      \
                 - { id: convert, plugin: field.convert, settings: { field: .Payload.After.n, type: int } }\n";
    workspace.write("pipelines/p.yaml", lines_to(TO_FILE, &format!("{DECODE}{steps}")));
    for command in ["validate", "lint", "plan"] {
        let text = workspace.run(&["pipelines", command]).expect_code(0).both();
        assert!(
            text.contains(codes::TRIAL_ALWAYS_FAILS.name()) && text.contains("pipelines/p.yaml:10:"),
            "{command}: {text}"
        );
        workspace.run(&["pipelines", command, "--strict"]).expect_code(2);
        let without = workspace.run(&["pipelines", command, "--strict", "--no-try"]).expect_code(0).both();
        assert!(!without.contains(codes::TRIAL_ALWAYS_FAILS.name()), "{command}: {without}");
        let all = workspace.run(&["pipelines", command, "--try"]).expect_code(0).both();
        assert!(all.contains(codes::TRIAL_ALWAYS_FAILS.name()) && !all.contains("not tried"), "{command}: {all}");
    }
    for form in ["github", "sarif"] {
        let text = workspace.run(&["pipelines", "validate", "--format", form]).expect_code(0).stdout;
        assert!(text.contains(codes::TRIAL_ALWAYS_FAILS.name()) && text.contains("pipelines/p.yaml"), "{form}: {text}");
    }
    let json = workspace.run(&["pipelines", "lint", "--json"]).expect_code(0).stdout;
    let report: Value = serde_json::from_str(&json).unwrap();
    let finding = &report["result"]["files"][0]["findings"][0];
    assert_eq!((&finding["code"], &finding["line"]), (&codes::TRIAL_ALWAYS_FAILS.name().into(), &10.into()), "{json}");
}

#[test]
fn pipelines_for_which_there_is_no_time_are_counted() {
    let mut pipelines = tried(&[r#"{ id: a, plugin: field.exclude, settings: { fields: .Key } }"#]);
    assert_eq!(try_pipelines(&mut pipelines, LIMITS), 0);
    assert_eq!(try_pipelines(&mut pipelines, TrialLimits { all: Duration::ZERO, ..LIMITS }), 1);
}
