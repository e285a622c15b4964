//! Benchmarks of individual parts of the engine: `cargo bench -p anabranch-bench`. A name selects one: `cargo bench -p
//! anabranch-bench -- ledger`.
//!
//! They measure real time, to choose between two implementations on a quiet machine. Changes are judged by the whole,
//! as measured by `cargo run --release -p anabranch-bench`.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "the entry point that divan makes")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use anabranch_graph::ack::{LaneIndex, Ledger};
use anabranch_graph::batch::STRIP_ROWS;
use anabranch_graph::exec::{self, Ending, RunOptions};
use anabranch_graph::plan::stage::{StageKind, StagePlan};
use anabranch_graph::plan::{self, CompileOptions};
use anabranch_graph::testing::{NoVariables, services};
use anabranch_plugin::diagnostic::Files;
use anabranch_plugin::host::Host;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::source::{Read, Reader, Room};
use anabranch_plugin::testing::{Journal, MemoryStore, position};
use anabranch_record::json::write_record;
use anabranch_record::mask::Mask;
use anabranch_record::{Position, Record};
use anabranch_template::condition::CompiledCondition;
use anabranch_template::{MissingKey, Template};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

/// Opens a strip, returns it whole or in two parts, and settles it.
#[divan::bench(args = [1, 2])]
fn ledger(bencher: Bencher<'_, '_>, parts: usize) {
    let positions: Vec<Position> = (0..STRIP_ROWS as u64).map(position).collect();
    let mut ledger = Ledger::new(LaneIndex(0), None);
    bencher.counter(ItemsCount::new(STRIP_ROWS)).with_inputs(|| positions.clone()).bench_local_values(|positions| {
        let mut run = ledger.open(positions, 4096);
        for _ in 1..parts {
            ledger.settle(run.cut(STRIP_ROWS / parts)).unwrap();
        }
        ledger.settle(run).unwrap();
        ledger.advance()
    });
}

/// Sends records through the executor and this many processors to a destination that discards them.
#[divan::bench(args = [0, 1, 10, 100], sample_count = 20)]
fn chain(bencher: Bencher<'_, '_>, operators: usize) {
    const RECORDS: usize = 10_000;
    let plan = compiled(operators, RECORDS);
    let runtime = runtime();
    bencher.counter(ItemsCount::new(RECORDS)).bench_local(|| {
        let ending = runtime.block_on(async {
            let services = services(&Arc::new(MemoryStore::new(&Journal::default())));
            exec::start(plan.clone(), services, RunOptions { once: true, ..RunOptions::default() }).join().await
        });
        assert!(matches!(ending, Ending::Finished), "{ending:?}");
    });
}

/// Evaluates a condition on every record of a strip.
#[divan::bench(args = [
    r#"{{ eq (index .Metadata "x") "0" }}"#,
    r#"{{ eq (printf "%v" (index .Payload.After "active")) "true" }}"#,
    r#"{{ gt (len (printf "%v" .Payload.After)) 10 }}"#,
])]
fn predicate(bencher: Bencher<'_, '_>, text: &str) {
    let records = records();
    let mut condition = CompiledCondition::compile(text).unwrap().instantiate();
    let (mut mask, mut failed) = (Mask::none(STRIP_ROWS), Vec::new());
    bencher.counter(ItemsCount::new(STRIP_ROWS)).bench_local(|| {
        mask.reset(STRIP_ROWS);
        failed.clear();
        condition.select(black_box(&records), &mut mask, &mut failed);
        mask.count()
    });
}

/// Renders a template for every record of a strip.
#[divan::bench(args = ["x-{{ .Payload.After.city }}", r#"{{ printf "%s/%v" .Payload.After.name .Payload.After.id }}"#])]
fn template(bencher: Bencher<'_, '_>, text: &str) {
    let records = records();
    let template = Template::parse(text, MissingKey::Error).unwrap();
    let mut out = String::new();
    bencher.counter(ItemsCount::new(STRIP_ROWS)).bench_local(|| {
        for record in black_box(&records) {
            out.clear();
            template.render(record, &mut out).unwrap();
        }
    });
}

/// Encodes the records of a strip as JSON.
#[divan::bench]
fn encoder(bencher: Bencher<'_, '_>) {
    let records = records();
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(STRIP_ROWS)).bench_local(|| {
        out.clear();
        for record in black_box(&records) {
            write_record(record, &mut out).unwrap();
        }
        out.len()
    });
}

/// Generates records.
#[divan::bench]
fn generator(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let mut reader = reader(&runtime);
    bencher.counter(ItemsCount::new(STRIP_ROWS)).bench_local(|| read(&runtime, &mut *reader));
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Compiles a pipeline with the generator of the workloads, processors that set a metadata field, and a destination
/// that discards records.
fn compiled(operators: usize, records: usize) -> Arc<StagePlan> {
    let mut text = format!(
        r#"version: "2.2"
pipelines:
  - id: parts
    connectors:
      - id: src
        type: source
        plugin: generator
        settings:
          format.type: structured
          format.options.id: int
          format.options.name: string
          format.options.active: bool
          format.options.score: int
          format.options.city: string
          operations: create
          seed: 1
          recordCount: {records}
      - {{ id: dst, type: destination, plugin: drop }}
"#
    );
    text.push_str(if operators > 0 { "    processors:\n" } else { "" });
    for i in 0..operators {
        let _ = writeln!(
            text,
            "      - {{ id: p{i}, plugin: field.set, settings: {{ field: '.Metadata[\"k\"]', value: v{i} }} }}"
        );
    }
    let mut files = Files::new();
    files.add("parts.yaml", text);
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    let loaded = anabranch_config::load(&files, &NoVariables);
    let options = CompileOptions { once: true, ..CompileOptions::default() };
    plan::compile(&loaded.pipelines[0], &registry, &options).unwrap().stages
}

fn reader(runtime: &Runtime) -> Box<dyn Reader> {
    let plan = compiled(0, usize::MAX >> 1);
    let source = plan.stages.iter().find_map(|stage| match &stage.kind {
        StageKind::Read(spec) => Some(spec.source.clone()),
        _ => None,
    });
    let services = services(&Arc::new(MemoryStore::new(&Journal::default())));
    let host = Host {
        pipeline: "parts".into(),
        slots: Default::default(),
        node: "src".into(),
        log: services.log,
        result_cache: services.result_cache,
        active: services.active,
        marks: Arc::new(anabranch_plugin::state::DiscardingState),
        schemas: services.schemas,
        network: Default::default(),
        shared: None,
        once: false,
    };
    runtime.block_on(source.unwrap().open(&BTreeMap::new(), &host)).unwrap().reader
}

fn read(runtime: &Runtime, reader: &mut dyn Reader) -> Vec<Record> {
    match runtime.block_on(reader.read(Room { rows: STRIP_ROWS, bytes: usize::MAX })).unwrap() {
        Read::Rows { records, .. } => records,
        other => panic!("no rows: {other:?}"),
    }
}

/// Returns a strip of records as in the workloads.
fn records() -> Vec<Record> {
    let runtime = runtime();
    read(&runtime, &mut *reader(&runtime))
}
