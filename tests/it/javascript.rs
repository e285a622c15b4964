//! Pipelines with scripts.

use serde_json::{Value, json};

use crate::process::{Workspace, file_to_file, numbered_lines};

fn parsed(workspace: &Workspace, name: &str) -> Vec<Value> {
    workspace.lines(name).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn scripts_keep_the_order_whatever_the_number_of_workers() {
    const LINES: usize = 5_000;
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(LINES));
    workspace.write(
        "pipelines/p.yaml",
        r#"
version: "2.2"
pipelines:
  - id: scripts
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson } }
    processors:
      - id: parse
        plugin: custom.javascript
        workers: 2
        settings:
          script: |
            let n = 0;
            function process(rec) {
              n++;
              const text = new TextDecoder().decode(rec.Payload.After);
              if (n % 10 === 0) return null;
              rec.Payload.After = { text, n };
              return rec;
            }
      - id: copy
        plugin: custom.javascript
        condition: '{{ eq .Payload.After.n 1 }}'
        settings:
          script: |
            const process = (rec) => [rec, { ...rec, Metadata: { copy: "1" } }];
"#,
    );
    workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(0);
    let lines = numbered_lines(LINES);
    let mut lines = lines.lines();
    let out = parsed(&workspace, "out.ndjson");
    let mut last = "";
    let mut copies = 0;
    for record in &out {
        let text = record["payload"]["after"]["text"].as_str().unwrap();
        if record["metadata"]["copy"] == json!("1") {
            assert_eq!(text, last);
            copies += 1;
        } else {
            assert!(lines.any(|line| line == text), "{text} is out of order");
        }
        last = text;
    }
    // Each worker counts for itself: of what is left of its last ten records none is dropped.
    let dropped = LINES - (out.len() - copies);
    assert!((LINES / 10 - 1..=LINES / 10).contains(&dropped), "{dropped} dropped");
    assert_eq!(copies, 2, "each worker has globals of its own");
}

#[test]
fn a_failing_script_dead_letters_its_records_as_they_were() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(20));
    let script = r#"      - id: picky
        plugin: custom.javascript
        settings:
          timeout: 300ms
          script: |
            function process(rec) {
              const n = Number(new TextDecoder().decode(rec.Payload.After).match(/\d+/)[0]);
              rec.Metadata.touched = "yes";
              switch (n) {
                case 3: throw new Error("three");
                case 5: for (;;);
                case 7: /^(a+)+$/.test("a".repeat(50) + "!"); break;
              }
              return rec;
            }
    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }
"#;
    workspace.write("pipelines/p.yaml", file_to_file("picky", script));
    let output = workspace.once();
    let letters = parsed(&workspace, "dlq.ndjson");
    let shown: Vec<String> = letters
        .iter()
        .map(|letter| {
            assert!(!letter.to_string().contains("touched"), "{letter}");
            letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned()
        })
        .collect();
    let expected = [
        "Error: three (at script:5:19) (at pipelines/p.yaml:26:31)",
        "script was stopped after 300ms (setting timeout)",
        "the script could not be stopped, and its process was ended after 1.3s (setting timeout)",
    ];
    assert_eq!(shown, expected, "{}", output.both());
    assert_eq!(workspace.lines("out.ndjson").len(), 17);
}

#[test]
fn a_list_needs_the_newer_architecture() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(2));
    let script = r#"      - { id: two, plugin: custom.javascript, settings: { script: 'const process = (rec) => [rec, rec];' } }
    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }
"#;
    workspace.write("pipelines/p.yaml", file_to_file("two", script));
    workspace.run(&["run", "--once"]);
    let letters = parsed(&workspace, "dlq.ndjson");
    assert_eq!(letters.len(), 2);
    assert_eq!(letters[0]["metadata"]["svc.dlq.nack.code"], "needs_arch_v2");
    workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(0);
}

#[test]
fn what_a_script_logs_is_in_the_log_with_its_processor_and_level() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1));
    let script = r#"      - id: talker
        plugin: custom.javascript
        settings:
          script: |
            function process(rec) {
              logger.Error().Msg("hello");
              logger.Info().Str("a", "b").Msg("fine");
              logger.Debug().Msg("too fine");
              logger.trace("finest");
              console.error("c");
              console.log("d", { e: 1 });
              return rec;
            }
"#;
    workspace.write("pipelines/p.yaml", file_to_file("talk", script));
    let said = |level: &str| {
        let output = workspace.run(&["run", "--once", "--log.format", "json", "--log.level", level]).expect_code(0);
        let lines = output.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_script = |line: &Value| line["processor"].as_str().is_some_and(|id| id.ends_with("talker"));
        let shown = |line: Value| format!("{} {}", line["level"].as_str().unwrap(), line["message"].as_str().unwrap());
        let said = lines.filter(of_script).map(shown).collect::<Vec<_>>();
        std::fs::remove_dir_all(workspace.path("anabranch.db")).ok();
        said
    };
    let (errors, info) = (["error hello", "error c"], ["info fine a=b", "info d {\"e\":1}"]);
    let [finer, finest] = ["debug too fine", "trace finest"];
    assert_eq!(said("info"), [errors[0], info[0], errors[1], info[1]]);
    workspace.append("in.txt", "one more\n");
    assert_eq!(said("error"), errors);
    workspace.append("in.txt", "one more\n");
    assert_eq!(said("trace"), [errors[0], info[0], finer, finest, errors[1], info[1]]);
}

#[test]
fn a_flaw_of_a_script_is_shown_in_the_pipeline_file() {
    let workspace = Workspace::new();
    let script = r#"      - id: broken
        plugin: custom.javascript
        settings:
          script: |
            function process(rec) {
              retrun rec;
            }
      - id: importing
        plugin: custom.javascript
        settings:
          script: |
            const fs = require("fs");
            function process(rec) { return rec; }
      - { id: nothing, plugin: custom.javascript }
      - { id: lost, plugin: custom.javascript, settings: { script.path: no/such.js } }
      - { id: latin, plugin: custom.javascript, settings: { script.path: latin.js } }
"#;
    workspace.write("latin.js", b"// caf\xe9\nfunction process(rec) { return rec }\n");
    workspace.write("pipelines/p.yaml", file_to_file("flaws", script));
    let output = workspace.run(&["pipelines", "validate"]);
    assert_ne!(output.code(), Some(0));
    let shown = output.both();
    for expected in [
        "error[script.syntax]: script:2:10: expected `;`, found `rec`",
        "retrun rec;",
        "error[script.module]: script:1:19: require is not available to scripts",
        "error[script.missing]: custom.javascript needs a script",
        "error[script.unreadable]: cannot read the script \"no/such.js\"",
        "a relative path is resolved against the directory of the pipeline file",
        "error[script.unreadable]: cannot read the script \"latin.js\": it is not text: byte 6 is not valid UTF-8",
        "save the script as UTF-8, for example with `iconv -f latin1 -t utf-8`",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
}

#[test]
fn a_copied_time_keeps_its_digits() {
    let workspace = Workspace::new();
    let pipeline = r#"
version: "2.2"
pipelines:
  - id: times
    connectors:
      - id: in
        type: source
        plugin: generator
        settings: { format.type: structured, format.options.t: time, recordCount: "20" }
      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson } }
    processors:
      - id: js
        plugin: custom.javascript
        settings:
          script: |
            function process(rec) {
              rec.Payload.After = { ...rec.Payload.After, v: rec.Payload.After.t };
              return rec;
            }
"#;
    workspace.write("pipelines/p.yaml", pipeline);
    workspace.once();
    let times: Vec<_> =
        parsed(&workspace, "out.ndjson").into_iter().map(|record| record["payload"]["after"].clone()).collect();
    assert_eq!(times.len(), 20);
    assert!(times.iter().all(|after| after["t"].is_string() && after["t"] == after["v"]), "{times:?}");
    // A clock may tick in whole milliseconds now and then, not always.
    assert!(
        times.iter().any(|after| after["t"].as_str().unwrap().len() > "2024-02-29T12:00:00.123Z".len()),
        "{times:?}"
    );
}

#[test]
fn memory_stays_flat() {
    let resident = |records: usize| {
        let workspace = Workspace::new();
        workspace.write(
            "pipelines/p.yaml",
            format!(
                r#"
version: "2.2"
pipelines:
  - id: flat
    connectors:
      - id: in
        type: source
        plugin: generator
        settings: {{ format.type: structured, format.options.id: int, format.options.name: string, recordCount: "{records}" }}
      - {{ id: out, type: destination, plugin: drop }}
    processors:
      - id: js
        plugin: custom.javascript
        settings:
          script: |
            function process(rec) {{
              rec.Payload.After = {{ ...rec.Payload.After, copy: [rec.Payload.After.name, rec.Key], at: new Date() }};
              return rec;
            }}
"#
            ),
        );
        workspace.peak(&[])
    };
    let (few, many) = (resident(10_000), resident(50_000));
    assert!(many < few + few / 4 + 8192, "{few} kB for 10,000 records, {many} kB for 50,000");
}
