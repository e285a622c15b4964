//! From a file to a plan.

use anabranch_config::{Variables, load};
use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_graph::testing::scripted::registry;
use anabranch_plugin::diagnostic::{Files, RenderStyle};
use insta::assert_snapshot;

use crate::{Format, Pass, TextStyle, explain};

struct Environment;

impl Variables for Environment {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "PLACE").then(|| "somewhere".to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Err("no files here".to_owned())
    }
}

/// The findings on the only pipeline of a file as `validate` prints them, or its plan.
fn compiled(text: &str) -> String {
    let mut files = Files::new();
    files.add("p.yaml", text);
    let loaded = load(&files, &Environment);
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    match compile(&loaded.pipelines[0], &registry(), &CompileOptions::default()) {
        Ok(compiled) => explain(&compiled, Pass::Fused, Format::Text, TextStyle { unicode: true, color: false }),
        Err(findings) => findings.render(&files, RenderStyle::default()),
    }
}

#[test]
fn findings_underline_the_file() {
    let text = r#"version: "2.2"
pipelines:
  - id: orders
    connectors:
      - id: in
        type: source
        plugin: gen
      - id: to
        type: destination
        plugin: out
        settings:
          paht: x
    processors:
      - id: pieces
        plugin: split
      - { id: number, plugin: count, workers: 2 }
      - id: tag
        plugin: set
        condition: '{{ eq (index .Metadata "it''s") }'
        settings:
          key: refused
    dead-letter-queue:
      plugin: nowhere
"#;
    assert_snapshot!(compiled(text), @r#"
error[settings.unknown]: out has no parameter "paht"
  --> p.yaml:12:11
   |
12 |           paht: x
   |           ^^^^
   |
   = help: did you mean "path"?

error[plan.needs_arch_v2]: processor "split" creates several records from one
  --> p.yaml:15:17
   |
15 |         plugin: split
   |                 ^^^^^ this needs the newer pipeline architecture
   |
   = help: enable it with --preview.pipeline-arch-v2

error[plan.too_many_workers]: processor "count" allows at most 1 worker, not 2
  --> p.yaml:16:47
   |
16 |       - { id: number, plugin: count, workers: 2 }
   |                                               ^
   |
   = help: it keeps state between records: remove `workers`

error[plan.invalid_condition]: the condition does not compile: the action that `{{` opens ends with a single `}`
  --> p.yaml:19:53
   |
19 |         condition: '{{ eq (index .Metadata "it''s") }'
   |                                                     ^
   |
   = help: end it with `}}`

error[plan.unknown_plugin]: unknown destination "nowhere"
  --> p.yaml:23:15
   |
23 |       plugin: nowhere
   |               ^^^^^^^
   |
   = help: available destinations: once, out, tx; `anabranch connectors list` describes them
"#);
}

#[test]
fn a_file_becomes_a_plan() {
    let text = r#"version: "2.2"
pipelines:
  - id: orders
    connectors:
      - { id: in, type: source, plugin: gen, processors: [{ id: early, plugin: set, settings: { key: a } }] }
      - { id: to, type: destination, plugin: out, settings: { path: "${PLACE}/x" } }
    processors:
      - { id: tag, plugin: set, workers: 2, condition: '{{ eq (index .Metadata "k") "1" }}', settings: { key: b } }
    dead-letter-queue:
      plugin: out
      settings: { path: letters }
      window-size: 1000
      window-nack-threshold: 3
"#;
    assert_snapshot!(compiled(text), @r#"
orders: fused plan, 4 stages

╭ S0 read
│ in        source gen
╰─► S1    reading overlaps with the rest
╭ S1 chain
│ in:early  set
│   key=a
╰─► S2    workers differ: 1 before, 2 after
╭ S2 parallel ×2
│ tag       set
│   if {{ eq (index .Metadata "k") "1" }} (native)
│   key=b
╰─► S3    writing overlaps with the rest
╭ S3 write
│ to        destination out
│   path=${PLACE}/x
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered

delivery
  in ─► to: at least once, in the order of each source partition
    a crash repeats at most 16,384 records of a partition
  failed records ─► out: more than 3 failures among the last 1,000 records stop the pipeline
    path=letters
limits
  queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
"#);
}
