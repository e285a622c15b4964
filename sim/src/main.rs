//! `anabranch-sim`: simulates until a guarantee is broken, the time is up, or the number of graphs is reached.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anabranch_sim::run::{Failure, simulate};
use anabranch_sim::scenario::Scenario;
use anabranch_sim::shrink::explain;
use anabranch_sim::{capture, cluster};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: anabranch_allocator::Allocator = anabranch_allocator::Allocator;

/// Run random pipelines through random failures and check that nothing is lost.
#[derive(Parser)]
struct Options {
    /// The first seed. Without other options, simulate and show only this one.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of graphs.
    #[arg(long)]
    graphs: Option<u64>,
    /// Duration in seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Inject every planted fault in turn and search for a graph that reveals it, for this many seconds each.
    #[arg(long)]
    mutants: Option<u64>,
    /// With `--mutants`: inject only the planted fault with this name. Can be repeated.
    #[arg(long = "mutant", requires = "mutants")]
    names: Vec<String>,
    /// Use several threads and the real clock, to find races.
    #[arg(long)]
    race: bool,
    /// Simulate a source that captures the changes of a database.
    #[arg(long, conflicts_with = "race")]
    capture: bool,
    /// Simulate the nodes of a cluster.
    #[arg(long, conflicts_with_all = ["race", "capture"])]
    cluster: bool,
    /// Continue after a failure, and only count failures.
    #[arg(long)]
    all: bool,
}

fn show(scenario: &Scenario) {
    let (smallest, failure) = explain(scenario);
    println!("{smallest}");
    failure.log.iter().for_each(|line| println!("  {line}"));
    println!("{}", failure.what);
}

/// Number of concurrent graphs: most of them wait for a commit.
const AT_A_TIME: u64 = 12;

fn race(first: u64, most: u64, until: Option<Instant>) -> ExitCode {
    let graphs = AtomicU64::new(0);
    let failures = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while until.is_none_or(|until| Instant::now() < until) {
                    let graph = graphs.fetch_add(1, Ordering::Relaxed);
                    if graph >= most {
                        break;
                    }
                    let scenario = Scenario::generate(first.wrapping_add(graph));
                    if let Err(failure) = anabranch_sim::run::race(&scenario) {
                        failures.fetch_add(1, Ordering::Relaxed);
                        let log = failure.log.join("\n  ");
                        println!("seed {}: {}\n{scenario}\n  {log}", scenario.seed, failure.what);
                    }
                }
            });
        }
    });
    let [graphs, failures] = [graphs, failures].map(AtomicU64::into_inner);
    println!("{} graphs raced from seed {first}, {failures} failed", graphs.min(most));
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Simulates seeds of another kind than graphs, one after the other. `simulate` shows the scenario of a failure.
fn others(
    (first, most, until): (u64, u64, Option<Instant>),
    all: bool,
    what: &str,
    simulate: impl Fn(u64) -> Result<(), (String, Failure)>,
) -> ExitCode {
    let (mut runs, mut failures) = (0u64, 0u64);
    while runs < most && until.is_none_or(|until| Instant::now() < until) {
        let seed = first.wrapping_add(runs);
        runs += 1;
        if let Err((scenario, failure)) = simulate(seed) {
            failures += 1;
            println!("seed {seed}: {}", failure.what);
            if !all {
                println!("{scenario}");
                failure.log.iter().for_each(|line| println!("  {line}"));
                break;
            }
        }
    }
    println!("{runs} {what} from seed {first}, {failures} failed");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let options = Options::parse();
    anabranch_sim::hush();
    let first = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    if let Some(seconds) = options.mutants {
        std::panic::set_hook(Box::new(|_| ()));
        let found = anabranch_sim::mutants::hunt(first, Duration::from_secs(seconds), &options.names);
        return if found { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if options.capture || options.cluster {
        let until = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let most = options.graphs.unwrap_or(if until.is_some() { u64::MAX } else { 1 });
        let seeds = (first, most, until);
        return match options.cluster {
            true => others(seeds, options.all, "clusters", |seed| {
                let scenario = || cluster::ClusterScenario::generate(seed).to_string();
                cluster::simulate(seed, None, true).map_err(|failure| (scenario(), failure))
            }),
            false => others(seeds, options.all, "databases", |seed| {
                let scenario = || format!("{:#?}", capture::CaptureScenario::generate(seed));
                capture::simulate(seed, true).map_err(|failure| (scenario(), failure))
            }),
        };
    }
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
    if options.race {
        return race(first, most, until);
    }
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
