use anabranch_plugin::diagnostic::{Files, RenderStyle, Severity, Span};

use super::*;

mod fields;
mod hostile;
mod interpolation;
mod reports;
mod versions;

/// Variables of the tests; `SECRET` is what must never be shown.
struct Environment;

impl Variables for Environment {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "SECRET" => Some("hunter22".to_owned()),
            "N" => Some("4".to_owned()),
            "STATUS" => Some("stopped".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${SECRET}".to_owned()),
            _ => None,
        }
    }

    fn file(&self, path: &str) -> Result<String, String> {
        match path {
            "/run/secrets/key" => Ok("hunter22\n".to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }
}

fn files(texts: &[&str]) -> Files {
    let mut files = Files::new();
    match texts {
        [text] => {
            files.add("p.yaml", *text);
        }
        texts => {
            for (index, text) in texts.iter().enumerate() {
                files.add(format!("{}.yaml", index + 1), *text);
            }
        }
    }
    files
}

fn load_text(text: &str) -> Loaded {
    load(&files(&[text]), &Environment)
}

/// Returns the output of `validate`.
fn report(texts: &[&str]) -> String {
    let files = files(texts);
    let loaded = load(&files, &Environment);
    assert_errors_stop(&loaded);
    let report = loaded.diagnostics.render(&files, RenderStyle::default());
    assert!(!report.contains("hunter22"), "{report}");
    report
}

/// Every error keeps the pipeline around it from running, and a block beside them all pipelines of its file.
fn assert_errors_stop(loaded: &Loaded) {
    let errors = loaded.diagnostics.iter().filter(|finding| finding.severity == Severity::Error);
    for (error, place) in errors.filter_map(|error| Some((error, error.label.as_ref()?.span))) {
        let holds = |span: Span| span.file == place.file && (span.start..=span.end).contains(&place.start);
        let is_block = ["config.field_misplaced", "config.field_misspelt"].contains(&error.code.name());
        let beside = is_block && !loaded.invalid.iter().any(|invalid| holds(invalid.span));
        for pipeline in loaded.pipelines.iter().filter(|pipeline| pipeline.span.file == place.file) {
            assert!(!holds(pipeline.span) && !beside, "{} runs in spite of {error:?}", pipeline.id.value);
        }
    }
}

#[test]
fn an_error_beside_the_pipelines_of_a_file_stops_them_all() {
    for beside in [
        "processors:\n  - {id: hide, plugin: field.exclude}\n",
        "dead-letter-queue: {plugin: store}\n",
        "pipelnes: []\n",
        "connectors: []\n",
        "---\nversion: 2.2\nprocessors: []\n",
        "status: stopped\n",
        "procesors: []\n",
        "dead-letter-que: {plugin: store}\n",
        "version: 9.9\n",
    ] {
        let loaded = load_text(&format!("{}{beside}", pipeline("")));
        assert!(loaded.diagnostics.has_errors(), "{beside}");
        assert_eq!(loaded.pipelines.len(), 0, "{beside}");
        assert_eq!(loaded.invalid.len(), 1, "{beside}");
    }
    // Ids in other files, pipelines and documents are independent.
    let two = format!("{}  - {{id: wrong, conectors: []}}\n", pipeline(""));
    let files = files(&[&two, &pipeline("").replace("id: p", "id: q"), "version: 2.2\nprocessors: []\n"]);
    let loaded = load(&files, &Environment);
    assert_errors_stop(&loaded);
    let ids: Vec<_> = loaded.pipelines.iter().map(|pipeline| pipeline.id.value.as_str()).collect();
    assert_eq!(ids, ["p", "q"]);
}

/// The pipelines of a text without findings.
fn clean(text: &str) -> Vec<PipelineConfig> {
    let loaded = load_text(text);
    assert_eq!(loaded.diagnostics.render(&files(&[text]), RenderStyle::default()), "");
    assert!(loaded.invalid.is_empty() && loaded.broken.is_empty());
    loaded.pipelines
}

/// A sound pipeline of version 2.2 with further lines at its end, indented as its fields are.
fn pipeline(rest: &str) -> String {
    let rest: String = rest.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "version: 2.2
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: generator}}
      - {{id: out, type: destination, plugin: log}}
{rest}"
    )
}

/// The only pipeline of a text without findings.
fn one(text: &str) -> PipelineConfig {
    let mut pipelines = clean(text);
    assert_eq!(pipelines.len(), 1);
    pipelines.remove(0)
}

/// Names and values of settings.
fn pairs(settings: &Settings) -> Vec<(&str, &str)> {
    settings.entries.iter().map(|s| (&*s.name.value, &**s.value.value())).collect()
}

/// Codes, messages and first lines of findings, for tests that need no picture.
fn codes(text: &str) -> Vec<String> {
    let files = files(&[text]);
    let loaded = load(&files, &Environment);
    assert_errors_stop(&loaded);
    let findings = loaded.diagnostics.findings(&files);
    findings.iter().map(|f| format!("{}: {}", f.place.as_ref().map_or(0, |p| p.line), f.code)).collect()
}

#[test]
fn debug_output_holds_no_substituted_value() {
    let text = pipeline(
        "processors:
  - id: a
    plugin: field.set
    condition: '{{ eq .Metadata.key \"${SECRET}\" }}'
    settings: {value: 'x ${SECRET} y', key: '${file:/run/secrets/key}'}",
    );
    let loaded = load_text(&text);
    assert_eq!(pairs(&loaded.pipelines[0].processors[0].settings)[0].1, "x hunter22 y");
    assert!(!format!("{loaded:?}").contains("hunter22"));
}

/// Text and typed settings survive being written out as YAML and read again.
#[test]
fn settings_of_any_text_come_back() {
    use proptest::prelude::*;
    let texts =
        proptest::collection::vec(("[a-z][a-z.]{0,9}", "\\PC{0,40}|[ -~\n\t\"'#:{}\\[\\]|>&*!%@`-]{0,40}"), 0..6);
    proptest!(|(texts in texts)| {
        let mut given: Vec<(String, String)> = Vec::new();
        for (name, value) in texts {
            if !value.contains('$') && given.iter().all(|(other, _)| *other != name) && name != "null" {
                given.push((name, value));
            }
        }
        let map: serde_json::Map<_, _> = given.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let text = pipeline(&format!(
            "processors:\n  - id: a\n    plugin: field.set\n    settings: {}",
            serde_json::Value::Object(map)
        ));
        let loaded = load_text(&text);
        prop_assert!(!loaded.diagnostics.has_errors(), "{:?}", loaded.diagnostics);
        given.sort();
        let mut read: Vec<(String, String)> = pairs(&loaded.pipelines[0].processors[0].settings)
            .into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        read.sort();
        prop_assert_eq!(read, given);
    });
}
