//! Measures the cost of a record: workloads, and growth series.
//!
//! The cost is the CPU time of the whole process (user and system) divided by the number of records at the destination,
//! because it is stable on a busy machine. Everything is run interleaved with a second run under another name. The
//! difference between the two is the noise floor; smaller differences do not count as changes.

mod bench;
mod comparison;
mod grown;
mod growth;
mod instructions;
mod job;
mod kafka;
mod plot;
mod postgres;
mod process;
mod samples;
mod webhook;
mod workload;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Parser;

use workload::WORKLOADS;

/// Measure the cost of a record.
#[derive(Parser)]
struct Arguments {
    /// Workloads (w1, w2, …) and growth series (chain, pipelines, record-size, destinations, workers). Default: all
    #[arg(value_name = "NAME", value_parser = known)]
    names: Vec<String>,
    /// Number of records of a run; workloads with expensive records use a fixed fraction of it
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    records: u64,
    /// Number of repetitions; the best one counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Binary to measure, instead of building this workspace
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Binary to compare with
    #[arg(long)]
    against: Option<PathBuf>,
    /// Directory for results.json and the plots
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench"))]
    out: PathBuf,
    /// Do not count instructions, which takes longer than everything else
    #[arg(long)]
    no_instructions: bool,
}

fn known(name: &str) -> Result<String, String> {
    let series = growth::series();
    let known: Vec<&str> = WORKLOADS.iter().map(|w| w.name).chain(series.iter().map(|s| s.name)).collect();
    if known.contains(&name) { Ok(name.to_owned()) } else { Err(format!("known are {}", known.join(", "))) }
}

fn main() -> anyhow::Result<()> {
    let raw: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [first, rest @ ..] = &raw[..]
        && first == "--measure"
    {
        return job::measure(rest);
    }
    let arguments = Arguments::parse();
    let binary = match &arguments.binary {
        Some(binary) => binary.canonicalize().with_context(|| format!("{} is missing", binary.display()))?,
        None => build()?,
    };
    let against = arguments.against.as_ref().map(|path| path.canonicalize().context("--against")).transpose()?;
    let plugins = plugins(&binary)?;
    let counting = !arguments.no_instructions && instructions::available();
    if !counting && !arguments.no_instructions {
        eprintln!("valgrind is missing: instructions are not counted");
    }
    let wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|n| n == name);
    let bench = bench::Bench { binary, against, records: arguments.records, repeat: arguments.repeat, counting };

    let mut chosen = Vec::new();
    for workload in WORKLOADS.iter().filter(|w| wanted(w.name)) {
        match workload.needs.filter(|plugin| !plugins.iter().any(|p| p == plugin)) {
            Some(plugin) => eprintln!("{} is left out: this build has no {plugin}", workload.name),
            None => chosen.push(workload),
        }
    }
    let compared = comparison::run(&bench, &chosen)?;
    compared.print();
    let chosen: Vec<_> = growth::series().into_iter().filter(|series| wanted(series.name)).collect();
    let mut grown = Vec::new();
    for series in &chosen {
        let result = grown::grow(&bench, series)?;
        result.print();
        grown.push(result);
    }

    fs::create_dir_all(&arguments.out)?;
    let results = serde_json::json!({
        "records": bench.records,
        "repeat": bench.repeat,
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "comparison": compared,
        "series": grown,
    });
    fs::write(arguments.out.join("results.json"), serde_json::to_string_pretty(&results)? + "\n")?;
    if let Some(svg) = compared.plot() {
        fs::write(arguments.out.join("workloads.svg"), svg)?;
    }
    for series in &grown {
        fs::write(arguments.out.join(format!("{}.svg", series.name)), series.plot())?;
    }
    println!("\nresults.json and plots are in {}", arguments.out.display());
    Ok(())
}

/// Builds the release binary of this workspace.
fn build() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "-p", "anabranch", "--features", "full"])
        .current_dir(&root)
        .status()?;
    ensure!(status.success(), "the binary does not build");
    // The binary is next to this program, so that a custom target directory is respected.
    let here = std::env::current_exe()?.with_file_name("anabranch");
    let there = root.join("target/release/anabranch");
    Ok(if here.is_file() { here } else { there }.canonicalize()?)
}

/// Returns the names of the processors and connectors of a binary.
fn plugins(binary: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for list in ["processors", "connectors"] {
        let output = Command::new(binary).args([list, "list", "--json"]).output()?;
        ensure!(output.status.success(), "{} {list} list: {}", binary.display(), output.status);
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let listed = listed["result"][list].as_array().with_context(|| format!("{list} list prints no list"))?;
        names.extend(listed.iter().filter_map(|plugin| Some(plugin["name"].as_str()?.to_owned())));
    }
    Ok(names)
}
