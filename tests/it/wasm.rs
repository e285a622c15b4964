//! Processors in WebAssembly, from the directory to the pipeline: guests in the text format, of which each does one
//! thing that a guest may do or should not.

mod c;
mod code;
mod egress;
mod faults;
mod loading;
mod trials;

use std::fmt::Write as _;
use std::path::Path;

use crate::process::{Output, Workspace, raw_after};

/// A guest.
struct Guest<'a> {
    name: &'a str,
    version: &'a str,
    /// Encoded parameters, made by [`parameter`].
    parameters: &'a [Vec<u8>],
    /// The action on records, as `guest.wat` names it.
    process: &'a str,
    /// More of the module: data.
    more: &'a str,
}

impl Default for Guest<'_> {
    fn default() -> Self {
        Guest { name: "test.guest", version: "v0.1.0", parameters: &[], process: "call $all_kept", more: "" }
    }
}

/// A field of a protobuf message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(content);
    out
}

/// An entry of a specification: name, default, number of the type, and a number of a rule with its value.
fn parameter(name: &str, default: &str, kind: u8, rule: Option<(u8, &str)>) -> Vec<u8> {
    let mut content = [field(1, default.as_bytes()), field(2, b"What it is."), vec![0x18, kind]].concat();
    if let Some((rule, value)) = rule {
        content.extend(field(4, &[vec![0x08, rule], field(2, value.as_bytes())].concat()));
    }
    field(6, &[field(1, name.as_bytes()), field(2, &content)].concat())
}

/// Bytes as a string of the text format.
fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "\\{byte:02x}");
    }
    text
}

impl Guest<'_> {
    fn wasm(&self) -> Vec<u8> {
        let specification =
            [field(1, self.name.as_bytes()), field(4, self.version.as_bytes()), self.parameters.concat()].concat();
        let answer = field(2, &specification);
        let module = include_str!("../guests/guest.wat");
        let module = module
            .replacen("(i32.const 1024) (i32.const 22)", &format!("(i32.const 16384) (i32.const {})", answer.len()), 1)
            .replacen("    PROCESS", self.process, 1);
        let end = module.rfind(')').unwrap();
        let data = text(&answer);
        wat::parse_str(format!("{} (data (i32.const 16384) \"{data}\") {})", &module[..end], self.more)).unwrap()
    }
}

/// A directory with guests in `processors`, by the name of their file.
fn workspace(guests: &[(&str, Guest<'_>)]) -> Workspace {
    let mut workspace = Workspace::new();
    // Compiled modules remain from one test to the next.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm");
    workspace.env("XDG_CACHE_HOME", cache.to_str().unwrap());
    for (file, guest) in guests {
        workspace.write(&format!("processors/{file}"), guest.wasm());
    }
    workspace
}

/// Lines through one guest to a file, failures to another.
fn pipeline(processor: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: guests
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt, maxLineBytes: 32MiB }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - {processor}
    dead-letter-queue: {{ plugin: file, settings: {{ path: dlq.ndjson }}, window-size: 0 }}
"#
    )
}

/// Runs lines through one guest.
fn run(process: &str, lines: &[&str], flags: &[&str]) -> (Workspace, Output) {
    let workspace = workspace(&[("guest.wasm", Guest { process, ..Guest::default() })]);
    workspace.write("in.txt", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: \"standalone:test.guest\" }"));
    let output = workspace.run(&[&["run", "--once"], flags].concat());
    (workspace, output)
}

/// The lines that came out.
fn delivered(workspace: &Workspace) -> Vec<String> {
    workspace.lines("out.ndjson").iter().map(|line| raw_after(line)).collect()
}

/// Why each dead letter failed.
fn failures(workspace: &Workspace) -> Vec<String> {
    let lines = workspace.lines("dlq.ndjson");
    let error = |line: &String| {
        let letter: serde_json::Value = serde_json::from_str(line).unwrap();
        letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned()
    };
    lines.iter().map(error).collect()
}

#[test]
fn records_go_through_as_they_are() {
    let large = "x".repeat(10_000_000);
    let mut lines: Vec<String> = (0..1_000).map(|i| format!("line {i}")).collect();
    lines.insert(500, large);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (workspace, output) = run("call $all_kept", &lines, &[]);
    output.expect_code(0);
    assert_eq!(delivered(&workspace), lines);
    let first: serde_json::Value = serde_json::from_str(&workspace.lines("out.ndjson")[0]).unwrap();
    let names: Vec<&String> = first["metadata"].as_object().unwrap().keys().collect();
    assert!(names.iter().any(|name| name.starts_with("recfmt.")), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("opencdc.") || name.starts_with("conduit.")), "{names:?}");
}

#[test]
fn a_guest_may_leave_records_for_the_next_call() {
    let lines: Vec<String> = (0..300).map(|i| i.to_string()).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (workspace, output) = run("call $keep", &lines, &[]);
    output.expect_code(0);
    assert_eq!(delivered(&workspace), lines);
}

#[test]
fn workers_are_guests_of_their_own_and_keep_the_order() {
    let workspace = workspace(&[("guest.wasm", Guest::default())]);
    let lines: Vec<String> = (0..2_000).map(|i| i.to_string()).collect();
    workspace.write("in.txt", lines.join("\n") + "\n");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: test.guest, workers: 3 }"));
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(delivered(&workspace), lines);
}

/// One result: a filter, an error, an empty one.
fn result(tag: u8) -> String {
    format!(
        "(call $byte (i32.const 0x0a)) (call $byte (i32.const 2)) (call $byte (i32.const {tag})) (call $byte (i32.const 0))"
    )
}

#[test]
fn records_are_filtered_and_refused() {
    let process = format!("call $keep {} {}", result(0x12), result(0x1a));
    let (workspace, output) = run(&process, &["a", "b", "c"], &[]);
    output.expect_code(0);
    assert_eq!(delivered(&workspace), ["a"]);
    let failures = failures(&workspace);
    assert_eq!(failures.len(), 1);
    assert!(failures[0].contains("an error without a message"), "{failures:?}");
}

#[test]
fn several_records_of_one_need_the_newer_architecture() {
    let process = "call $double call $keep";
    let (workspace, output) = run(process, &["a", "b"], &["--preview.pipeline-arch-v2"]);
    output.expect_code(0);
    assert_eq!(delivered(&workspace), ["a", "a", "b"]);
    let (workspace, output) = run(process, &["a", "b"], &[]);
    output.expect_code(0);
    assert_eq!(delivered(&workspace), ["b"]);
    assert!(failures(&workspace)[0].contains("--preview.pipeline-arch-v2"), "{:?}", failures(&workspace));
}

#[test]
fn what_a_guest_prints_is_in_the_log_with_its_processor_and_level() {
    let process =
        "(drop (call $fd_write (i32.const 1) (i32.const 1088) (i32.const 1) (i32.const 1104))) call $all_kept";
    let workspace = workspace(&[("guest.wasm", Guest { process, ..Guest::default() })]);
    workspace.write("in.txt", "a\n");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: test.guest }"));
    let output = workspace.run(&["run", "--once", "--log.format", "json"]).expect_code(0);
    let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok().filter(|line| line["message"] == "x");
    let line = output.stdout.lines().find_map(line).unwrap_or_else(|| panic!("{}", output.stdout));
    assert_eq!(line["level"], "warn", "{line}");
    assert!(line["processor"].as_str().is_some_and(|id| id.ends_with("guest")), "{line}");
}

#[test]
fn a_condition_keeps_records_from_a_guest() {
    let workspace = workspace(&[("guest.wasm", Guest { process: &result(0x12), ..Guest::default() })]);
    workspace.write("in.txt", "a\nb\nc\n");
    let condition = r#"{{ eq (printf "%s" .Payload.After) "b" }}"#;
    workspace
        .write("pipelines/p.yaml", pipeline(&format!("{{ id: guest, plugin: test.guest, condition: '{condition}' }}")));
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(delivered(&workspace), ["a", "c"]);
}
