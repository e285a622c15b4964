//! Texts that nobody writes by accident.

use std::time::Duration;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Span};
use anabranch_template::processor_time::taken_by_thread;
use proptest::prelude::*;

use super::*;

const SIZE: usize = 64 << 10;

/// Loads and renders; neither may panic or take long.
fn swallow(text: &str) -> Loaded {
    let files = files(&[text]);
    let before = taken_by_thread();
    let loaded = load(&files, &Environment);
    let spent = taken_by_thread() - before;
    // Far above the 0.1 s of an optimised build: this one is not.
    assert!(spent < Duration::from_secs(4), "{spent:?} for {:?}", text.chars().take(80).collect::<String>());
    let blamed = !loaded.invalid.is_empty() || !loaded.broken.is_empty();
    assert_eq!(loaded.diagnostics.has_errors(), blamed, "{:?}", loaded.diagnostics);
    let first = Diagnostics(loaded.diagnostics.iter().take(20).cloned().collect());
    let _ = first.render(&files, RenderStyle { color: true, width: 80 });
    let _ = first.findings(&files);
    loaded
}

#[test]
fn texts_that_multiply_themselves_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..60 {
        let alias = format!("*a{},", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", alias.repeat(10)));
    }
    let loaded = swallow(&bomb);
    assert!(
        loaded.diagnostics.iter().any(|d| d.message.contains("aliases expand to more")),
        "{:?}",
        loaded.diagnostics
    );
    assert_eq!(loaded.broken.len(), 1);

    let mut merged = "a0: &a0 {k: v}\n".to_owned();
    for level in 1..200 {
        merged.push_str(&format!("a{level}: &a{level} {{<<: *a{}, k{level}: v}}\n", level - 1));
    }
    swallow(&merged);

    let big = "s".repeat(SIZE / 2);
    let many = "*a,".repeat(SIZE / 6);
    swallow(&format!("a: &a {big}\nb: [{many}]\n"));
    swallow(&format!(
        "version: 2.2\nx-a: &a {{id: a, type: source, plugin: b, settings: {{x: '{}'}}}}\npipelines: [{{id: p, connectors: [{many}]}}]\n",
        "${N}".repeat(2000)
    ));
}

#[test]
fn deep_and_long_texts_are_refused() {
    for unit in [
        "[",
        "{",
        "- ",
        "? ",
        "&a ",
        "*a ",
        "!a ",
        "a: {",
        "{a: ",
        "\"",
        "'",
        "${",
        "<<: ",
        "%",
        "---\n@\n",
        "---\n",
        "|\n",
        ": ",
        "\t",
        "#",
        "\r",
        "[a,",
        "- - \n",
        "é",
        "\u{feff}",
        "{{",
        "a: 1\n",
        "? a\n: b\n",
    ] {
        swallow(&unit.repeat(SIZE / unit.len()));
        let rest = unit.repeat(SIZE / unit.len());
        swallow(&format!("version: 2.2\npipelines:\n- id: {rest}"));
    }
    let nested: String = (0..2000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    swallow(&nested);
    let chain: String = (1..3000).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
    swallow(&format!("a0: &a0 x\n{chain}"));
    let script = format!("`{}}}", "${a".repeat(SIZE / 3));
    swallow(&pipeline(&format!("processors: [{{id: a, plugin: b, settings: {{script: '{script}'}}}}]")));
    let keys: String = (0..8000).map(|n| format!("    k{n}: 1\n")).collect();
    swallow(&format!("{}{keys}", pipeline("")));
    let ids: String = (0..3000).map(|_| "- {id: a, name: b}\n".to_owned()).collect();
    swallow(&format!("version: 2.2\npipelines:\n{ids}"));
}

#[test]
fn what_is_not_text_is_refused() {
    let mut files = Files::new();
    files.add_bytes("utf16.yaml", vec![0xff, 0xfe, b'v', 0]);
    files.add_bytes("binary.yaml", (0..=255u8).collect());
    files.add("zero.yaml", "version: 2.2\n\0");
    files.add("control.yaml", "version: \u{1b}[31m\n");
    files.add("large.yaml", "#".repeat(MAX_FILE_BYTES + 1));
    files.add_bytes("good.yaml", pipeline("").into_bytes());
    let loaded = load(&files, &Environment);
    assert_eq!(loaded.broken, (0..5).map(FileId).collect::<Vec<_>>());
    assert_eq!(loaded.pipelines.len(), 1);
    insta::assert_snapshot!(loaded.diagnostics.render(&files, RenderStyle::default()), @r###"
    error[config.parse_error]: the file is not UTF-8 text
     --> utf16.yaml:1:1
      |
    1 | ��v␀
      | ^
      |
      = help: save it as UTF-8

    error[config.parse_error]: the file is not UTF-8 text
     --> binary.yaml:2:118
      |
    2 | 0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrstuvwxyz{|}~␡�����������������������������������������������������...
      |                                                                                 ^
      |
      = help: save it as UTF-8

    error[config.parse_error]: the file is not text: it contains a zero byte
     --> zero.yaml:2:1
      |
    2 | ␀
      | ^
      |
      = help: save it as UTF-8

    error[config.parse_error]: the control character '\u{1b}' is not allowed
     --> control.yaml:1:10
      |
    1 | version: ␛[31m
      |          ^
      |
      = help: check that this is a text file

    error[config.file_too_large]: the file is too large: at most 8 MiB are read
     --> large.yaml:1:1
      |
    1 | #####################################################################################################################################...
      | ^
    "###);
}

#[test]
fn any_span_can_be_shown() {
    let texts = ["", "\n", "a", "žlutý\tkůň 漢字\r\nb\r\n", "\u{feff}x: 1", "\u{1b}[31m\u{7f}\u{202e}\0", "\r\r\n\n"];
    let long = "漢".repeat(400_000);
    for text in texts.into_iter().chain([long.as_str()]) {
        let files = files(&[text]);
        let places =
            [0, 1, 2, 3, 4, 5, 7, 9, 20, text.len() / 2, text.len().saturating_sub(1), text.len(), text.len() + 9];
        for start in places {
            for end in places {
                let span = |a: usize, b: usize| Span { file: FileId(0), start: a as u32, end: b as u32 };
                let finding = Diagnostic::error(anabranch_plugin::testing::codes::TEST, "me\nss\u{1b}age")
                    .with_label(span(start, end), "la\nbel")
                    .with_related(span(end, start), "")
                    .with_related(Span { file: FileId(7), start: 1, end: 2 }, "no such file")
                    .with_hint("hint\u{1b}");
                let findings = Diagnostics::from(finding);
                let shown = findings.render(&files, RenderStyle { color: false, width: 0 });
                assert!(shown.len() < 4000 && !shown.contains('\u{1b}'), "{}", shown.len());
                assert_eq!(findings.findings(&files)[0].place.as_ref().unwrap().file, "p.yaml");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_swallowed(text in "\\PC{0,200}|[-a-z:{}\\[\\],&*!|>'\"%@` \n\t#?$<~0-9.]{0,200}") {
        swallow(&text);
    }

    #[test]
    fn a_pipeline_file_with_mistakes_is_swallowed(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[-a-w:{}\\[\\],&*|>'\" \n\t#$<~]{0,6}"), 1..6)
    ) {
        let mut text: Vec<char> = SAMPLE.chars().collect();
        for (at, cut, insert) in edits {
            let at = at.index(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        let loaded = swallow(&text);
        // Text that is not a pipeline any more is already reported.
        if loaded.pipelines.len() < 2 {
            prop_assert!(!loaded.diagnostics.is_empty(), "{text}");
        }
        for finding in loaded.diagnostics.iter() {
            let span = finding.label.as_ref().unwrap().span;
            prop_assert!(text.get(span.start as usize..span.end as usize).is_some(), "{finding:?}");
        }
    }
}

const SAMPLE: &str = "version: 2.2
x-set: &set
  plugin: field.set
  settings: {field: .Key, value: '${N}'}
pipelines:
  - id: first
    status: running
    connectors:
      - id: in
        type: source
        plugin: generator
        settings:
          rate: 1.50
          format.type: structured
      - {id: out, type: destination, plugin: log}
    processors:
      - <<: *set
        id: a
        condition: |
          {{ eq .Operation \"create\" }}
      - {id: b, plugin: custom.javascript, settings: {script: \"`${rec.Key}`\"}}
    dead-letter-queue:
      window-size: ${N}
      window-nack-threshold: 2
---
version: 2.1
pipelines:
  - id: second
    connectors:
      - {id: in, type: source, plugin: generator}
      - {id: out, type: destination, plugin: log, processors: [{id: c, type: filter}]}
";

#[test]
fn the_sample_is_good() {
    assert_eq!(clean(SAMPLE).len(), 2);
}

#[test]
fn a_thousand_findings_of_a_file_are_enough() {
    let files = files(&[&pipeline(""), &"a: 1\n".repeat(5000)]);
    let findings = load(&files, &Environment).diagnostics;
    assert_eq!(findings.0.len(), 1001);
    let last = findings.0.last().unwrap();
    assert_eq!(
        (last.code.name(), &*last.message),
        ("config.too_many", "4001 more findings in this file are not shown")
    );
    assert_eq!(files.locate(last.label.as_ref().unwrap().span).unwrap().file, "2.yaml");
}
