//! Planted faults and the graphs that show them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::mutant::{Mutant, activate};

use crate::run::{Failure, simulate};
use crate::scenario::Scenario;

/// A planted fault and seeds that show it.
///
/// A seed takes another course when the executor is changed, or what scenarios are made of. Where a fault is not found
/// by its seeds any more, put here what `cargo run --release -p anabranch-sim -- --seed 1 --mutants 60` prints.
pub const KILLERS: &[(Mutant, &[u64])] = &[
    (Mutant::AckBeforeStore, &[1]),
    (Mutant::AckDropped, &[4]),
    (Mutant::NoLastCommit, &[4]),
    (Mutant::GapInPrefix, &[2]),
    (Mutant::RoomBeforeStored, &[2]),
    (Mutant::WholeSegmentStored, &[2]),
    (Mutant::PartialResultSkips, &[3]),
    (Mutant::PartialResultFilters, &[3]),
    (Mutant::SplitHeadSettles, &[3]),
    (Mutant::PiecesGoAstray, &[3]),
    (Mutant::EmptySplitForgotten, &[1]),
    (Mutant::FirstDestinationSettles, &[6]),
    (Mutant::LettersShareNames, &[1]),
    (Mutant::AcksToFirstSource, &[2]),
    (Mutant::WorkerFailsSilently, &[8835]),
    (Mutant::LetterFailureIgnored, &[113]),
    (Mutant::LetterNotFlushed, &[3]),
    (Mutant::ThresholdOffByOne, &[5]),
    (Mutant::LingerForever, &[3]),
    (Mutant::CollectedForgotten, &[1030]),
    (Mutant::FilteredUnsettled, &[1]),
    (Mutant::AcceptedIsDurable, &[3]),
    (Mutant::CommitWithoutFlush, &[3]),
    (Mutant::FlushFailureIgnored, &[82]),
    (Mutant::AtMostOnceRepeats, &[9]),
    (Mutant::TransientIsFinal, &[19, 21]),
    (Mutant::RetryReorders, &[1487]),
    (Mutant::BisectionRepeats, &[22]),
    (Mutant::VerdictsShift, &[17]),
    (Mutant::WindowUnbounded, &[2]),
    (Mutant::ResumeForgotten, &[1]),
    (Mutant::CallsLandInReverse, &[3]),
    (Mutant::WorkersOutOfTurn, &[3]),
    (Mutant::FailedConditionPasses, &[3]),
    (Mutant::MaskNotCarried, &[407]),
    (Mutant::SharesTooMuch, &[614]),
    (Mutant::LeftOverIsDrained, &[10]),
    (Mutant::BytesLeak, &[2]),
    (Mutant::LentForNothing, &[500]),
    (Mutant::RemainderLost, &[1]),
    (Mutant::MarksTooFar, &[6]),
    (Mutant::PanicForgotten, &[25]),
    (Mutant::StripsForgotten, &[366]),
    (Mutant::StopWithoutEnd, &[22]),
    (Mutant::IdleNotStored, &[15]),
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

/// Seeds that are recorded for a fault: a change of the executor may make one of them take another course.
const RECORDED: usize = 3;

/// Looks for seeds that show each planted fault, each fault for so long, and prints the table as it is recorded here.
/// Says whether every fault was found.
pub fn hunt(first: u64, patience: Duration) -> bool {
    let mut all = true;
    for &mutant in Mutant::ALL {
        let until = Instant::now() + patience;
        let seeds = (first..).take_while(|_| Instant::now() < until);
        let killers = seeds.filter_map(|seed| Some((seed, simulate_with(mutant, seed).err()?)));
        let killers: Vec<(u64, Failure)> = killers.take(RECORDED).collect();
        let seeds: Vec<u64> = killers.iter().map(|(seed, _)| *seed).collect();
        match killers.first() {
            Some((_, failure)) => {
                println!("    (Mutant::{mutant:?}, &{seeds:?}), // {:.80}", failure.what);
            }
            None => println!("    // {mutant:?} survives: {}", mutant.describe()),
        }
        all &= !seeds.is_empty();
    }
    print!("\n{}", crate::origins::table());
    all
}

/// A seed that shows a fault: one that is recorded, or else one of the first.
pub fn killer(mutant: Mutant) -> Option<(u64, Failure)> {
    let recorded = KILLERS.iter().filter(|(killed, _)| *killed == mutant).flat_map(|(_, seeds)| seeds.iter().copied());
    recorded.chain(1..FIRST).find_map(|seed| Some((seed, simulate_with(mutant, seed).err()?)))
}

/// Seeds that are tried where no recorded one shows a fault any more.
const FIRST: u64 = 300;
