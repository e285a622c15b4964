//! What every change has to pass: new graphs for a while, and all planted faults.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_graph::mutant::Mutant;
use anabranch_sim::mutants::{KILLERS, simulate_with};
use anabranch_sim::run::simulate;
use anabranch_sim::scenario::{Place, Scenario};

/// Graphs that are simulated, unless the time is up before.
const GRAPHS: u64 = 2000;
const TIME: Duration = Duration::from_secs(10);

#[test]
fn no_promise_is_broken() {
    anabranch_sim::hush();
    // New graphs each time; `ANABRANCH_SIM_SEED` repeats those of another time.
    let given = std::env::var("ANABRANCH_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 10_000);
    let started = Instant::now();
    let mut graphs = 0;
    while graphs < GRAPHS && started.elapsed() < TIME {
        let seed = first + graphs;
        if let Err(failure) = simulate(&Arc::new(Scenario::generate(seed)), false) {
            panic!("seed {seed}: {}\nrun `cargo run -p anabranch-sim -- --seed {seed}`", failure.what);
        }
        graphs += 1;
    }
    // Not to be captured: whoever reads the output of a check wants to know what was checked.
    let _ = writeln!(std::io::stderr(), "{graphs} graphs from seed {first}: no promise is broken");
    assert!(graphs > 0);
}

#[test]
fn every_planted_fault_is_found() {
    anabranch_sim::hush();
    for mutant in Mutant::ALL {
        let seed = KILLERS.iter().find(|(killed, _)| killed == mutant).map(|(_, seed)| *seed);
        let found = seed.map(|seed| simulate_with(*mutant, seed));
        let Some(Err(failure)) = found else {
            panic!(
                "{mutant:?} is not found by {seed:?}: record anew with `cargo run --release -p anabranch-sim -- --seed 1 --mutants 60`"
            );
        };
        let name = format!("{mutant:?}");
        let _ = writeln!(
            std::io::stderr(),
            "{name:<24} {:>6}  {} -> {:.90}",
            seed.unwrap(),
            mutant.describe(),
            failure.what
        );
    }
}

#[test]
fn a_seed_takes_the_same_course_every_time() {
    anabranch_sim::hush();
    for seed in 0..100 {
        let scenario = Scenario::generate(seed);
        if scenario.all_steps().any(|step| step.place == Place::Isolate) {
            continue;
        }
        // A scenario that breaks a promise at its end shows its log.
        let course = || anabranch_sim::run::course(&Arc::new(scenario.clone()));
        let first = course();
        assert!(!first.is_empty());
        assert_eq!(first, course(), "seed {seed}");
    }
}
