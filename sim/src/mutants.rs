//! Planted faults and the graphs that show them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::mutant::{Mutant, activate};

use crate::run::{Failure, simulate};
use crate::scenario::Scenario;

/// A planted fault and a seed that shows it, recorded by `anabranch-sim --mutants`.
pub const KILLERS: &[(Mutant, u64)] = &[];

/// Simulates a seed with a fault planted.
///
/// # Errors
/// The promise that the fault breaks.
pub fn simulate_with(mutant: Mutant, seed: u64) -> Result<(), Failure> {
    activate(Some(mutant));
    let result = simulate(&Arc::new(Scenario::generate(seed)), false);
    activate(None);
    result
}

/// Looks for a seed that shows each planted fault, and prints the table. Says whether all were found.
pub fn hunt(first: u64, patience: Duration) -> bool {
    let mut all = true;
    println!("{:<24} {:>10} {:>7}  what breaks", "fault", "seed", "graphs");
    for &mutant in Mutant::ALL {
        let until = Instant::now() + patience;
        let seeds = (first..).take_while(|_| Instant::now() < until);
        let killed = seeds.map(|seed| (seed, simulate_with(mutant, seed))).find(|(_, result)| result.is_err());
        all &= killed.is_some();
        match killed {
            Some((seed, Err(failure))) => {
                let what: String = failure.what.chars().take(90).collect();
                println!("{:<24} {seed:>10} {:>7}  {what}", format!("{mutant:?}"), seed - first + 1);
            }
            _ => println!("{:<24} survives: {}", format!("{mutant:?}"), mutant.describe()),
        }
    }
    all
}
