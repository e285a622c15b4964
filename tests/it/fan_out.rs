//! Records that become very many: what `clone` and `split` make of one is never in memory as a whole.

use crate::process::Workspace;

/// The most memory in kB of a run over these lines, as JSON, with one more processor.
fn peak(lines: &str, processor: &str) -> u64 {
    let workspace = Workspace::new();
    workspace.write("in.txt", lines);
    workspace.write(
        "pipelines/p.yaml",
        format!(
            r#"
version: "2.2"
pipelines:
  - id: fan
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: drop }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: more, {processor} }}
"#
        ),
    );
    workspace.peak(&["--engine.held-bytes=16MiB"])
}

#[test]
fn copies_are_made_as_there_is_room() {
    let lines = "{\"a\":1}\n".repeat(32);
    for workers in [1, 2] {
        let copied =
            |count: usize| peak(&lines, &format!("plugin: clone, workers: {workers}, settings: {{ count: {count} }}"));
        let (few, many) = (copied(1), copied(10_000));
        assert!(many < few + 65_536, "{workers} workers: {few} kB with 1 copy of each record, {many} kB with 10,000");
    }
}

#[test]
fn a_long_list_is_split_as_there_is_room() {
    let line = format!("{{\"a\":[{}1]}}\n", "1,".repeat(299_999));
    let whole = peak(&line, "plugin: field.set, settings: { field: .Metadata.x, value: y }");
    for workers in [1, 2] {
        let split = peak(&line, &format!("plugin: split, workers: {workers}, settings: {{ field: .Payload.After.a }}"));
        assert!(split < whole + 65_536, "{workers} workers: {whole} kB in one piece, {split} kB in 300,000");
    }
}
