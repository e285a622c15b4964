//! `anabranch-sim`: simulates until something breaks, the time is up, or there were enough graphs.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_sim::run::simulate;
use anabranch_sim::scenario::Scenario;
use anabranch_sim::shrink::explain;
use clap::Parser;

/// Runs random pipelines through random failures and checks that nothing is lost.
#[derive(Parser)]
struct Options {
    /// The first seed; with nothing else, only this one, and it is shown.
    #[arg(long)]
    seed: Option<u64>,
    /// How many graphs.
    #[arg(long)]
    graphs: Option<u64>,
    /// How long.
    #[arg(long)]
    seconds: Option<u64>,
    /// Go on after a failure, and only count them.
    #[arg(long)]
    all: bool,
}

fn show(scenario: &Scenario) {
    let (smallest, failure) = explain(scenario);
    println!("{smallest}");
    failure.log.iter().for_each(|line| println!("  {line}"));
    println!("{}", failure.what);
}

fn main() -> ExitCode {
    let options = Options::parse();
    anabranch_sim::hush();
    let first = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    if options.seed.is_some() && options.graphs.is_none() && options.seconds.is_none() {
        let scenario = Scenario::generate(first);
        return match simulate(&Arc::new(scenario.clone()), false) {
            Ok(()) => {
                println!("{scenario}no promise is broken");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("{scenario}{}\n\nsmaller:", failure.what);
                show(&scenario);
                ExitCode::FAILURE
            }
        };
    }
    let until = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let most = options.graphs.unwrap_or(if until.is_some() { u64::MAX } else { 10_000 });
    let started = Instant::now();
    let (mut graphs, mut failures) = (0u64, 0u64);
    while graphs < most && until.is_none_or(|until| Instant::now() < until) {
        let seed = first.wrapping_add(graphs);
        graphs += 1;
        let scenario = Scenario::generate(seed);
        if let Err(failure) = simulate(&Arc::new(scenario.clone()), false) {
            failures += 1;
            println!("seed {seed}: {}", failure.what);
            if !options.all {
                show(&scenario);
                break;
            }
        }
    }
    let took = started.elapsed().as_secs_f64();
    println!("{graphs} graphs from seed {first}, {failures} failed, {:.0} graphs/s", graphs as f64 / took);
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
