//! Runs workloads with the release binary and prints what a record costs.
//!
//! CPU time of the whole process (user and system) divided by the records counted at the destination is the
//! figure: it holds on a busy machine. Repetitions are interleaved, and the best and the median are shown.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// One measured pipeline.
struct Workload {
    name: &'static str,
    what: &'static str,
    pipeline: &'static str,
    /// Lines of the input file, where it has one.
    input: Option<fn(u64) -> String>,
    /// Records at the destination for each record or line read.
    out_per_in: u64,
    /// The destination is the service log.
    to_log: bool,
}

const WORKLOADS: &[Workload] = &[
    Workload {
        name: "w1",
        what: "generator to file",
        pipeline: include_str!("../workloads/w1.yaml"),
        input: None,
        out_per_in: 1,
        to_log: false,
    },
    Workload {
        name: "w2",
        what: "generator to log",
        pipeline: include_str!("../workloads/w2.yaml"),
        input: None,
        out_per_in: 1,
        to_log: true,
    },
    Workload {
        name: "w3",
        what: "field.set, field.rename, base64.encode",
        pipeline: include_str!("../workloads/w3.yaml"),
        input: None,
        out_per_in: 1,
        to_log: false,
    },
    Workload {
        name: "w3json",
        what: "json.encode, json.decode, field.set",
        pipeline: include_str!("../workloads/w3json.yaml"),
        input: None,
        out_per_in: 1,
        to_log: false,
    },
    Workload {
        name: "w4half",
        what: "a condition true for half",
        pipeline: include_str!("../workloads/w4half.yaml"),
        input: None,
        out_per_in: 1,
        to_log: false,
    },
    Workload {
        name: "w4none",
        what: "a condition true for none",
        pipeline: include_str!("../workloads/w4none.yaml"),
        input: None,
        out_per_in: 1,
        to_log: false,
    },
    Workload {
        name: "w6",
        what: "json.decode, split, clone; per record out",
        pipeline: include_str!("../workloads/w6.yaml"),
        input: Some(list_line),
        out_per_in: 6,
        to_log: false,
    },
    Workload {
        name: "w9",
        what: "file to file, lines",
        pipeline: include_str!("../workloads/w9.yaml"),
        input: Some(plain_line),
        out_per_in: 1,
        to_log: false,
    },
];

fn list_line(i: u64) -> String {
    format!(
        "{{\"id\":{i},\"name\":\"name-{i}\",\"list\":[{{\"n\":1,\"v\":\"a\"}},{{\"n\":2,\"v\":\"b\"}},{{\"n\":3,\"v\":\"c\"}}]}}"
    )
}

fn plain_line(i: u64) -> String {
    format!("line {i:012} of a file whose lines are about eighty-five bytes long, as logs often are")
}

/// What one run cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cost {
    cpu_seconds: f64,
    wall_seconds: f64,
    peak_kib: i64,
    code: i32,
}

fn main() -> anyhow::Result<()> {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|a| a == "--measure") {
        return measure(&args.split_off(1));
    }
    let mut records = 1_000_000u64;
    let mut repeat = 3usize;
    let mut names: Vec<String> = Vec::new();
    let mut args = args.into_iter().map(|a| a.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        let mut number = || args.next().context("a number is missing")?.parse::<u64>().context("not a number");
        match arg.as_str() {
            "--records" => records = number()?,
            "--repeat" => repeat = number()? as usize,
            name if WORKLOADS.iter().any(|w| w.name == name) => names.push(arg),
            _ => bail!(
                "usage: anabranch-bench [--records N] [--repeat N] [{}]",
                WORKLOADS.iter().map(|w| w.name).collect::<Vec<_>>().join("|")
            ),
        }
    }
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/anabranch");
    ensure!(binary.is_file(), "{} is missing: run `cargo build --release` first", binary.display());
    let chosen: Vec<&Workload> =
        WORKLOADS.iter().filter(|w| names.is_empty() || names.iter().any(|n| n == w.name)).collect();
    let mut costs: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
    for _ in 0..repeat {
        for workload in &chosen {
            costs.entry(workload.name).or_default().push(run(&binary, workload, records)?);
        }
    }
    println!("{:8} {:42} {:>10} {:>10} {:>12} {:>9}", "", "", "µs CPU", "median", "records/s", "peak MB");
    for workload in &chosen {
        let mut runs = costs.remove(workload.name).unwrap_or_default();
        runs.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
        let (Some(best), Some(median)) = (runs.first(), runs.get(runs.len() / 2)) else { continue };
        let micros = |c: &Cost| c.cpu_seconds * 1e6 / records as f64;
        let wall = runs.iter().map(|c| c.wall_seconds).fold(f64::MAX, f64::min);
        let peak = runs.iter().map(|c| c.peak_kib).max().unwrap_or_default() as f64 / 1024.0;
        println!(
            "{:8} {:42} {:10.3} {:10.3} {:12.0} {peak:9.1}",
            workload.name,
            workload.what,
            micros(best),
            micros(median),
            records as f64 / wall
        );
    }
    Ok(())
}

/// Runs one workload in a fresh directory and counts what arrived.
fn run(binary: &Path, workload: &Workload, records: u64) -> anyhow::Result<Cost> {
    let base = Path::new("/dev/shm");
    let directory = if base.is_dir() { tempfile::tempdir_in(base)? } else { tempfile::tempdir()? };
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    fs::create_dir(path("pipelines"))?;
    fs::write(path("pipelines/p.yaml"), workload.pipeline)?;
    let read = records / workload.out_per_in;
    if let Some(line) = workload.input {
        let mut input = BufWriter::new(File::create(path("in.txt"))?);
        for i in 0..read {
            writeln!(input, "{}", line(i))?;
        }
        input.flush()?;
    }
    let out = if workload.to_log { path("log.txt") } else { path("out.ndjson") };
    let report = Command::new(std::env::current_exe()?)
        .arg("--measure")
        .arg(if workload.to_log { out.as_os_str() } else { "/dev/null".as_ref() })
        .arg(binary)
        .args(["run", "--once", "--preview.pipeline-arch-v2", "--log.level=warn"])
        .current_dir(directory.path())
        .env("N", read.to_string())
        .env("IN", path("in.txt"))
        .env("OUT", path("out.ndjson"))
        .stdin(Stdio::null())
        .output()?;
    let cost: Cost =
        serde_json::from_slice(&report.stdout).with_context(|| String::from_utf8_lossy(&report.stderr).into_owned())?;
    ensure!(cost.code == 0, "{} ended with {}: {}", workload.name, cost.code, String::from_utf8_lossy(&report.stderr));
    let arrived = BufReader::new(File::open(&out)?).split(b'\n').count() as u64;
    ensure!(
        arrived == read * workload.out_per_in,
        "{}: {arrived} of {} records arrived",
        workload.name,
        read * workload.out_per_in
    );
    Ok(cost)
}

/// In a process of its own, so that the usage of its children is that of one run: `--measure STDOUT PROGRAM ARGS..`
fn measure(args: &[OsString]) -> anyhow::Result<()> {
    let [stdout, program, args @ ..] = args else { bail!("--measure STDOUT PROGRAM ARGS..") };
    let start = Instant::now();
    let status = Command::new(program).args(args).stdout(File::create(stdout)?).status()?;
    let wall_seconds = start.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    let cost = Cost {
        cpu_seconds: seconds(usage.user_time()) + seconds(usage.system_time()),
        wall_seconds,
        peak_kib: usage.max_rss(),
        code: status.code().unwrap_or(-1),
    };
    println!("{}", serde_json::to_string(&cost)?);
    Ok(())
}
