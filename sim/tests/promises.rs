//! What every change has to pass: new graphs for a while, and all planted faults.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_graph::mutant::Mutant;
use anabranch_sim::cluster::PlantedFault;
use anabranch_sim::mutants::{KILLERS, killer};
use anabranch_sim::origins::ORIGINS;
use anabranch_sim::run::{Failure, simulate};
use anabranch_sim::scenario::{Execution, Scenario};
use anabranch_sim::{capture, cluster};

/// Graphs that are simulated, unless the time is up before.
const GRAPHS: u64 = 2000;
const TIME: Duration = Duration::from_secs(10);

/// New seeds each time; `ANABRANCH_SIM_SEED` repeats those of another time.
fn first_seed() -> u64 {
    let given = std::env::var("ANABRANCH_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() * 10_000)
}

/// Simulates new seeds for a while. `flag` is what the simulator needs to repeat one.
fn simulate_for(time: Duration, what: &str, flag: &str, simulate: impl Fn(u64) -> Result<(), Failure>) {
    anabranch_sim::hush();
    let first = first_seed();
    let started = Instant::now();
    let mut done = 0;
    while done < GRAPHS && started.elapsed() < time {
        let seed = first + done;
        if let Err(failure) = simulate(seed) {
            panic!("seed {seed}: {}\nrun `cargo run -p anabranch-sim --{flag} --seed {seed}`", failure.what);
        }
        done += 1;
    }
    // Write to standard error directly: a captured line would not show what was checked.
    let _ = writeln!(std::io::stderr(), "{done} {what} from seed {first}: no promise is broken");
    assert!(done > 0);
}

#[test]
fn no_promise_is_broken() {
    simulate_for(TIME, "graphs", "", |seed| simulate(&Arc::new(Scenario::generate(seed)), false));
}

#[test]
fn a_database_arrives_whole_and_in_order() {
    simulate_for(TIME / 2, "databases", " --capture", |seed| capture::simulate(seed, false));
}

#[test]
fn the_nodes_of_a_cluster_lose_nothing_and_do_no_harm() {
    simulate_for(TIME, "clusters", " --cluster", |seed| cluster::simulate(seed, None, false));
}

/// Seeds that reveal the planted faults of a cluster. If they do not any more, others below [`CLUSTERS`] are tried.
const REVEALING: [u64; 12] = [76, 1, 3, 5, 8, 11, 14, 25, 38, 67, 120, 141];
const CLUSTERS: u64 = 400;

#[test]
fn every_planted_fault_of_a_cluster_is_found() {
    anabranch_sim::hush();
    for fault in PlantedFault::ALL {
        let found = REVEALING
            .into_iter()
            .chain(0..CLUSTERS)
            .find_map(|seed| Some((seed, cluster::simulate(seed, Some(*fault), false).err()?)));
        let Some((seed, failure)) = found else { panic!("{fault:?} is not found") };
        let _ = writeln!(std::io::stderr(), "{:<24} {seed:>6}  {:.110}", format!("{fault:?}"), failure.what);
    }
}

#[test]
fn every_planted_fault_is_found() {
    anabranch_sim::hush();
    for mutant in Mutant::ALL {
        let Some((seed, failure)) = killer(*mutant) else {
            panic!(
                "{mutant:?} is not found: record its seeds again with `cargo run --profile simulate -p anabranch-sim -- --seed 1 --mutants 60`"
            );
        };
        let (name, recorded) = (format!("{mutant:?}"), KILLERS.iter().find(|(killed, _)| killed == mutant));
        let stale = if recorded.is_some_and(|(_, seeds)| seeds.contains(&seed)) { "" } else { " (not recorded)" };
        let what = mutant.describe();
        let _ = writeln!(std::io::stderr(), "{name:<24} {seed:>6}{stale}  {what} -> {:.90}", failure.what);
    }
    let _ = writeln!(std::io::stderr(), "\n{}", anabranch_sim::origins::table());
}

#[test]
fn every_known_mistake_is_planted() {
    assert_eq!(ORIGINS.len(), 38);
    assert!(ORIGINS.iter().all(|origin| !origin.faults.is_empty()));
}

#[test]
fn a_seed_takes_the_same_course_every_time() {
    anabranch_sim::hush();
    let mut seen = 0;
    for seed in 0..100 {
        let scenario = Scenario::generate(seed);
        if scenario.all_processors().any(|processor| processor.execution == Execution::Isolate) {
            continue;
        }
        // A scenario that breaks a promise at its end shows its log.
        // Inspections do not change the course.
        let course = |watched| anabranch_sim::run::course(&Arc::new(scenario.clone()), watched);
        let (first, _) = course(false);
        let (second, shown) = course(true);
        seen += shown;
        if first.is_empty() || first != second {
            // The hook that would print a panic is hushed.
            let _ = writeln!(std::io::stderr(), "seed {seed}:\n{}\n---\n{}", first.join("\n"), second.join("\n"));
        }
        assert!(!first.is_empty());
        assert_eq!(first, second, "seed {seed}");
    }
    assert!(seen > 1000, "{seen} records were looked at");
}
