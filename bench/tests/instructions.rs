//! The gate on the cost of a record: instructions per record must not increase.
//!
//! Instructions are counted by callgrind, in a process of its own that runs the compiler, the executor and the
//! operators on one thread with a paused clock, so that a count does not depend on the load of the machine. Each
//! workload runs at two lengths; the difference of the counts, divided by the difference of the lengths, does not
//! include start-up.
//!
//! Scripts run in processes of their own, which are counted too, except for the first strip and the last: the count of
//! the last can be lost with the process. Workloads with scripts are the sum of both.
//!
//! The code is not optimised, like that of the tests. A count is about ten times that of a release build and does not
//! show the effect of the optimiser on a change, but it shows added and removed work. The expected counts are in
//! `instructions.json`, per compiler, because compilers generate different code. To record new counts, with the reason
//! in the commit message:
//!
//! ```sh
//! ANABRANCH_BENCH_RECORD=1 cargo test -p anabranch-bench --test instructions
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_config::Variables;
use anabranch_graph::exec::{self, Ending, InspectionParameters, RunOptions, Taps};
use anabranch_graph::plan::{self, CompileOptions};
use anabranch_graph::testing::services;
use anabranch_plugin::diagnostic::Files;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::testing::{Journal, MemoryStore};
use anabranch_plugin::trace::{Share, Span, SpanKind, SpanSink, Tracing};

/// Tolerance above the expected count, in percent: about six times the difference between repeated runs, because other
/// machines have other versions of the C library, which also selects code by the CPU.
const ABOVE: f64 = 2.0;
/// Number of times that counts above the tolerance are taken. Waits between the threads and processes of a script add
/// instructions on a busy machine, and never save any: the lowest count is compared.
const ATTEMPTS: usize = 3;
/// A lower count must be recorded if it is below by this percentage, so that the improvement cannot be lost unnoticed.
const BELOW: f64 = 5.0;
/// Lengths in records read, multiples of a strip.
const SHORT: u64 = STRIP;
const LONG: u64 = 5 * STRIP;
const STRIP: u64 = 128;

/// Pipeline and the line of its input file.
const WORKLOADS: &[(&str, &str, &str)] = &[
    ("w1", include_str!("../workloads/w1.yaml"), ""),
    (INSPECTED, include_str!("../workloads/w1.yaml"), ""),
    (TRACED, include_str!("../workloads/w1.yaml"), ""),
    ("w3", include_str!("../workloads/w3.yaml"), ""),
    ("w3json", include_str!("../workloads/w3json.yaml"), ""),
    ("w4half", include_str!("../workloads/w4half.yaml"), ""),
    ("w4none", include_str!("../workloads/w4none.yaml"), ""),
    ("w5", include_str!("../workloads/w5.yaml"), ""),
    ("w6", include_str!("../workloads/w6.yaml"), LIST),
    ("w6js", include_str!("../workloads/w6js.yaml"), LIST),
    (
        "w9",
        include_str!("../workloads/w9.yaml"),
        "line 000000000001 of a file whose lines are about eighty-five bytes long, as logs often are",
    ),
];

const LIST: &str = r#"{"id":1,"name":"name","list":[{"n":1,"v":"a"},{"n":2,"v":"b"},{"n":3,"v":"c"}]}"#;

/// W1 with an inspection at every place.
const INSPECTED: &str = "w1inspected";
/// Maximum additional cost of inspections, in percent.
const INSPECTION: f64 = 5.0;
/// W1 with one record in a hundred traced.
const TRACED: &str = "w1traced";
/// Maximum additional cost of traces, in percent.
const TRACES: f64 = 5.0;

/// Expected counts: compiler → workload → instructions per record read.
type Expected = BTreeMap<String, BTreeMap<String, f64>>;

fn main() -> ExitCode {
    if let Some(ended) = anabranch_ops_js::worker::requested(std::env::args_os()) {
        return ended;
    }
    if let Some(directory) = std::env::var_os("ANABRANCH_BENCH_COUNTED") {
        work(Path::new(&directory));
        return ExitCode::SUCCESS;
    }
    // The arguments of the usual test harness: a name that does not match excludes the gate.
    let mut arguments = std::env::args().skip(1);
    if arguments
        .any(|argument| argument == "--list" || !argument.starts_with('-') && !"instructions".contains(&argument))
    {
        println!("\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out");
        return ExitCode::SUCCESS;
    }
    println!("\nrunning 1 test");
    match gate() {
        Ok(()) => {
            println!(
                "test instructions ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!(
                "test instructions ... FAILED\n\n{why}\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"
            );
            ExitCode::FAILURE
        }
    }
}

fn gate() -> Result<(), String> {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        if std::env::var_os("ANABRANCH_TEST_REQUIRE").is_some() {
            return Err("valgrind is missing".into());
        }
        eprintln!("skipped: valgrind is missing, so instructions are not counted");
        return Ok(());
    }
    let compiler = compiler();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.json");
    let mut expected: Expected = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    if std::env::var_os("ANABRANCH_BENCH_RECORD").is_some() {
        let rounded = count().into_iter().map(|(name, count)| (name, count.round())).collect();
        expected.insert(compiler, rounded);
        fs::write(&file, serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
        println!("recorded in {}", file.display());
        return Ok(());
    }
    let Some(expected) = expected.get(&compiler) else {
        // Nothing was compared: the message makes the check count as skipped, not passed.
        eprintln!(
            "skipped: no instructions per record are recorded for {compiler}; ANABRANCH_BENCH_RECORD=1 records them"
        );
        return Ok(());
    };
    let mut counts = count();
    let is_above = |(name, count): (&String, &f64)| {
        expected.get(name).is_some_and(|expected| *count > expected * (1.0 + ABOVE / 100.0))
    };
    for _ in 1..ATTEMPTS {
        if !counts.iter().any(is_above) {
            break;
        }
        for (name, again) in count() {
            counts.entry(name).and_modify(|count| *count = count.min(again));
        }
    }
    let mut wrong = Vec::new();
    let more = (counts[INSPECTED] / counts["w1"] - 1.0) * 100.0;
    println!("an open inspection costs {more:.2} %");
    if more > INSPECTION {
        wrong.push(format!("an open inspection costs {more:.1} %, which is more than {INSPECTION} %"));
    }
    let more = (counts[TRACED] / counts["w1"] - 1.0) * 100.0;
    println!("traces of one record in a hundred cost {more:.2} %");
    if more > TRACES {
        wrong.push(format!("traces of one record in a hundred cost {more:.1} %, which is more than {TRACES} %"));
    }
    for (name, count) in &counts {
        let Some(expected) = expected.get(name) else {
            wrong.push(format!("{name}: {count:.0} instructions per record, none recorded"));
            continue;
        };
        let change = (count / expected - 1.0) * 100.0;
        println!("{name:8} {count:9.0} instructions per record, {expected:9.0} expected, {change:+.2} %");
        if change > ABOVE {
            wrong.push(format!("{name}: a record costs {change:.1} % more instructions than recorded"));
        } else if change < -BELOW {
            wrong.push(format!(
                "{name}: a record costs {:.1} % less than recorded: record it, so that it stays so",
                -change
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\n\nWhere it went: valgrind's callgrind_annotate on two builds. Where it is meant, record it and say why in \
         the commit:\n  ANABRANCH_BENCH_RECORD=1 cargo test -p anabranch-bench --test instructions",
        wrong.join("\n")
    ))
}

/// Returns the version and target of the compiler.
fn compiler() -> String {
    let output = Command::new("rustc").arg("-vV").current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown").to_owned();
    format!("rustc {} {}", line("release: "), line("host: "))
}

/// Counts the instructions per record of every workload.
fn count() -> BTreeMap<String, f64> {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--trace-children=yes"])
        .args(["--dump-before=*section_boundary*", "--dump-before=*next_order*"])
        .arg(format!("--callgrind-out-file={}", directory.path().join("counts.%p").display()))
        .arg(std::env::current_exe().unwrap())
        .env("ANABRANCH_BENCH_COUNTED", directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let processes = Counted::read(directory.path());
    let (this, scripts): (Vec<_>, Vec<_>) = processes.iter().partition(|process| process.script.is_none());
    let [this] = this[..] else { panic!("{} processes were counted", this.len()) };
    let per_record = |(i, (name, pipeline, _)): (usize, &(&str, &str, &str))| {
        // Each dump contains the instructions since the previous one.
        let more = this.dumps[3 * i + 2] - this.dumps[3 * i + 1];
        let of_script = scripts.iter().filter(|process| process.script.as_deref() == Some(*name));
        // The worker of the long run has the most orders.
        let orders = of_script.map(|process| &process.dumps[..]).max_by_key(|dumps| dumps.len());
        let is_scripted = pipeline.contains("custom.javascript");
        let script = if is_scripted { of_worker(orders.expect("the worker was counted")) } else { 0.0 };
        ((*name).to_owned(), more / (LONG - SHORT) as f64 + script)
    };
    WORKLOADS.iter().enumerate().map(per_record).collect()
}

/// Returns the instructions of a worker per record read. It receives the first order after it is opened, and may be
/// ended while it asks for the one after the last. The first strip and the last are left out.
fn of_worker(dumps: &[f64]) -> f64 {
    let strips = (LONG / STRIP) as usize;
    // The last order may be missing.
    let orders = (dumps.len() - 1).div_ceil(strips);
    let counted = &dumps[1 + orders..1 + orders * (strips - 1)];
    counted.iter().sum::<f64>() / ((strips - 2) as u64 * STRIP) as f64
}

/// The output of callgrind for a process.
#[derive(Default)]
struct Counted {
    /// The pipeline whose script it runs, if it is a worker.
    script: Option<String>,
    /// Instructions of each dump since the previous one.
    dumps: Vec<f64>,
}

impl Counted {
    /// Reads the output for all processes.
    fn read(directory: &Path) -> Vec<Counted> {
        let mut dumps: BTreeMap<(u32, u32), PathBuf> = BTreeMap::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // Instructions after the last boundary, for example at the end of a process, have no dump number.
            let Some((process, dump)) = name.strip_prefix("counts.").and_then(|name| name.split_once('.')) else {
                continue;
            };
            dumps.insert((process.parse().unwrap(), dump.parse().unwrap()), path);
        }
        let mut processes: BTreeMap<u32, Counted> = BTreeMap::new();
        for ((process, _), path) in dumps {
            let text = fs::read_to_string(&path).unwrap();
            let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            // The dump is incomplete.
            let Some(count) = line("summary: ") else { continue };
            let found = processes.entry(process).or_default();
            found.dumps.push(count.parse().unwrap());
            let mut words = line("cmd: ").unwrap().split_whitespace();
            if words.any(|word| word == anabranch_ops_js::worker::RUN) {
                found.script = words.next().map(str::to_owned);
            }
        }
        processes.into_values().collect()
    }
}

/// Runs the counted work: every workload short and long, with a boundary before, between and after.
fn work(directory: &Path) {
    for (name, pipeline, line) in WORKLOADS {
        // The first run includes work that is done once per process.
        run(name, pipeline, line, SHORT, directory);
        section_boundary();
        run(name, pipeline, line, SHORT, directory);
        section_boundary();
        run(name, pipeline, line, LONG, directory);
        section_boundary();
    }
}

/// The function at which callgrind writes a dump and resets its counters.
#[inline(never)]
fn section_boundary() {
    std::hint::black_box(());
}

/// Receives spans, and counts the traces.
#[derive(Default)]
struct Spans(AtomicU64);

impl SpanSink for Spans {
    fn take(&self, span: Span) {
        self.0.fetch_add(u64::from(span.kind == SpanKind::Record), Ordering::Relaxed);
    }
}

struct Paths {
    records: u64,
    input: PathBuf,
    output: PathBuf,
}

impl Variables for Paths {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "N" => Some(self.records.to_string()),
            "IN" => Some(self.input.display().to_string()),
            "OUT" => Some(self.output.display().to_string()),
            _ => None,
        }
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Err("there are no files here".to_owned())
    }
}

fn run(name: &str, pipeline: &str, line: &str, records: u64, directory: &Path) {
    let paths = Paths { records, input: directory.join("in.txt"), output: directory.join("out.ndjson") };
    fs::write(&paths.input, format!("{line}\n").repeat(records as usize)).unwrap();
    let _ = fs::remove_file(&paths.output);
    let mut files = Files::new();
    files.add(name, pipeline);
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    let program = std::env::current_exe().unwrap().into();
    anabranch_ops_js::register(&mut registry, Some(anabranch_ops_js::Launch { program, memory: 1 << 30 }));
    let loaded = anabranch_config::load(&files, &paths);
    let options = CompileOptions { split: true, once: true, ..CompileOptions::default() };
    let compiled = plan::compile(&loaded.pipelines[0], &registry, &options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let taps = Arc::new(Taps::default());
    let look = InspectionParameters { places: exec::places(&compiled.stages), condition: None, per_second: 100 };
    let inspection = (name == INSPECTED).then(|| taps.inspect(look));
    let traced = Arc::new(Spans::default());
    let share = Share::new(0.01).filter(|_| name == TRACED);
    let traces = share.map(|share| Tracing { sink: traced.clone(), share, past: None });
    let ending = runtime.block_on(async {
        let services = services(&Arc::new(MemoryStore::new(&Journal::default())));
        let options = RunOptions { once: true, taps, traces, ..RunOptions::default() };
        exec::start(compiled.stages, services, options).join().await
    });
    let traced = traced.0.load(Ordering::Relaxed);
    assert!(if share.is_some() { (1..records / 20).contains(&traced) } else { traced == 0 }, "{name}: {traced}");
    assert!(matches!(ending, Ending::Finished), "{name}: {ending:?}");
    let shown = inspection.map(|mut inspection| std::iter::from_fn(|| inspection.try_next()).count());
    assert!(shown.is_none_or(|shown| shown == 100), "{name}: {shown:?}");
    let arrived = fs::read(&paths.output).unwrap().iter().filter(|byte| **byte == b'\n').count() as u64;
    let copies = if name.starts_with("w6") { 6 } else { 1 };
    assert_eq!(arrived, records * copies, "{name}");
}
