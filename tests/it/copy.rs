//! A million lines from file to file.

use crate::process::{Workspace, file_to_file, numbered_lines, raw_after};

#[test]
fn a_million_lines_arrive_once_and_in_order() {
    const LINES: usize = 1_000_000;
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(LINES));
    workspace.write("pipelines/copy.yaml", file_to_file("copy", ""));
    workspace.once();
    let out = workspace.lines("out.ndjson");
    assert_eq!(out.len(), LINES);
    for (i, line) in out.iter().enumerate().step_by(997).chain([(LINES - 1, &out[LINES - 1])]) {
        assert_eq!(raw_after(line), format!("line {i}"));
    }
}

#[test]
fn a_second_run_continues_where_the_first_stopped() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1_000));
    workspace.write("pipelines/copy.yaml", file_to_file("copy", ""));
    workspace.once();
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 1_000);
    workspace.write("in.txt", numbered_lines(1_500));
    workspace.once();
    let out: Vec<String> = workspace.lines("out.ndjson").iter().map(|l| raw_after(l)).collect();
    assert_eq!(out, (0..1_500).map(|i| format!("line {i}")).collect::<Vec<_>>());
}

#[test]
fn integers_of_nineteen_digits_pass_unchanged() {
    const BIG: &str = "4038150355942701239";
    let workspace = Workspace::new();
    workspace.write("in.txt", format!("{{\"id\":{BIG},\"neg\":-{BIG},\"max\":18446744073709551615}}\n"));
    workspace.write(
        "pipelines/big.yaml",
        file_to_file(
            "big",
            r#"      - id: decode
        plugin: json.decode
        settings: { field: .Payload.After }
      - id: copy
        plugin: field.set
        condition: '{{ eq .Payload.After.id 4038150355942701239 }}'
        settings: { field: .Payload.After.text, value: "{{ .Payload.After.id }}/{{ toJson .Payload.After.neg }}/{{ printf \"%d\" .Payload.After.max }}" }
"#,
        ) + r#"
  - id: big-log
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: out, type: destination, plugin: log }
    processors:
      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: encode, plugin: json.encode, settings: { field: .Payload.After } }
      - { id: again, plugin: json.decode, settings: { field: .Payload.After } }
"#,
    );
    let output = workspace.once();
    let out = workspace.read("out.ndjson");
    for part in [
        format!("\"id\":{BIG}"),
        format!("\"neg\":-{BIG}"),
        "\"max\":18446744073709551615".to_owned(),
        format!("\"text\":\"{BIG}/-{BIG}/18446744073709551615\""),
    ] {
        assert!(out.contains(&part), "{part} is not in {out}");
    }
    assert!(output.stdout.contains(&format!("\"id\":{BIG}")), "{}", output.stdout);
}
