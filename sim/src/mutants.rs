//! Planted faults and the graphs that show them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::mutant::{Mutant, activate};

use crate::run::{Failure, simulate};
use crate::scenario::Scenario;

/// A planted fault and a seed that shows it, recorded by `anabranch-sim --mutants`.
pub const KILLERS: &[(Mutant, u64)] = &[
    (Mutant::AckBeforeStore, 1),
    (Mutant::AckDropped, 18),
    (Mutant::NoLastCommit, 5),
    (Mutant::GapInPrefix, 1),
    (Mutant::RoomBeforeStored, 5),
    (Mutant::WholeSegmentStored, 1),
    (Mutant::PartialResultSkips, 6),
    (Mutant::PartialResultFilters, 6),
    (Mutant::SplitHeadSettles, 3),
    (Mutant::PiecesGoAstray, 1),
    (Mutant::EmptySplitForgotten, 1),
    (Mutant::FirstDestinationSettles, 2),
    (Mutant::LettersShareNames, 3),
    (Mutant::AcksToFirstSource, 2),
    (Mutant::WorkerFailsSilently, 2735),
    (Mutant::LetterFailureIgnored, 16),
    (Mutant::LetterNotFlushed, 3),
    (Mutant::ThresholdOffByOne, 9),
    (Mutant::LingerForever, 3),
    (Mutant::CollectedForgotten, 1030),
    (Mutant::FilteredUnsettled, 1),
    (Mutant::AcceptedIsDurable, 1),
    (Mutant::CommitWithoutFlush, 1),
    (Mutant::FlushFailureIgnored, 7),
    (Mutant::AtMostOnceRepeats, 9),
    (Mutant::TransientIsFinal, 1),
    (Mutant::RetryReorders, 111),
    (Mutant::BisectionRepeats, 28),
    (Mutant::VerdictsShift, 22),
    (Mutant::WindowUnbounded, 1),
    (Mutant::ResumeForgotten, 1),
    (Mutant::CallsLandInReverse, 2),
    (Mutant::WorkersOutOfTurn, 4),
    (Mutant::FailedConditionPasses, 4),
    (Mutant::MaskNotCarried, 1550),
    (Mutant::SharesTooMuch, 1185),
    (Mutant::LeftOverIsDrained, 22),
    (Mutant::BytesLeak, 2),
    (Mutant::LentForNothing, 486),
    (Mutant::RemainderLost, 1),
    (Mutant::MarksTooFar, 2),
    (Mutant::PanicForgotten, 15),
    (Mutant::StripsForgotten, 112),
    (Mutant::StopWithoutEnd, 37),
    (Mutant::IdleNotStored, 2),
];

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
