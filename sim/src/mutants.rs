//! Planted faults and the graphs that show them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::mutant::{Mutant, activate};

use crate::run::{Failure, simulate};
use crate::scenario::Scenario;

/// A planted fault and a seed that shows it, recorded by `anabranch-sim --mutants`.
pub const KILLERS: &[(Mutant, u64)] = &[
    (Mutant::AckBeforeStore, 1),
    (Mutant::AckDropped, 4),
    (Mutant::NoLastCommit, 4),
    (Mutant::GapInPrefix, 2),
    (Mutant::RoomBeforeStored, 2),
    (Mutant::WholeSegmentStored, 2),
    (Mutant::PartialResultSkips, 3),
    (Mutant::PartialResultFilters, 3),
    (Mutant::SplitHeadSettles, 3),
    (Mutant::PiecesGoAstray, 3),
    (Mutant::EmptySplitForgotten, 1),
    (Mutant::FirstDestinationSettles, 6),
    (Mutant::LettersShareNames, 1),
    (Mutant::AcksToFirstSource, 2),
    (Mutant::WorkerFailsSilently, 8835),
    (Mutant::LetterFailureIgnored, 113),
    (Mutant::LetterNotFlushed, 3),
    (Mutant::ThresholdOffByOne, 5),
    (Mutant::LingerForever, 3),
    (Mutant::CollectedForgotten, 1030),
    (Mutant::FilteredUnsettled, 1),
    (Mutant::AcceptedIsDurable, 3),
    (Mutant::CommitWithoutFlush, 3),
    (Mutant::FlushFailureIgnored, 82),
    (Mutant::AtMostOnceRepeats, 9),
    (Mutant::TransientIsFinal, 21),
    (Mutant::RetryReorders, 1487),
    (Mutant::BisectionRepeats, 22),
    (Mutant::VerdictsShift, 17),
    (Mutant::WindowUnbounded, 2),
    (Mutant::ResumeForgotten, 1),
    (Mutant::CallsLandInReverse, 3),
    (Mutant::WorkersOutOfTurn, 3),
    (Mutant::FailedConditionPasses, 3),
    (Mutant::MaskNotCarried, 407),
    (Mutant::SharesTooMuch, 614),
    (Mutant::LeftOverIsDrained, 10),
    (Mutant::BytesLeak, 2),
    (Mutant::LentForNothing, 500),
    (Mutant::RemainderLost, 1),
    (Mutant::MarksTooFar, 6),
    (Mutant::PanicForgotten, 84),
    (Mutant::StripsForgotten, 366),
    (Mutant::StopWithoutEnd, 22),
    (Mutant::IdleNotStored, 15),
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
