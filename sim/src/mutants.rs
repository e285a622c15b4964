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
    (Mutant::AckBeforeStore, &[1, 2, 3]),
    (Mutant::AckDropped, &[2, 7, 19]),
    (Mutant::NoLastCommit, &[6, 7, 20]),
    (Mutant::GapInPrefix, &[2, 3, 6]),
    (Mutant::RoomBeforeStored, &[2, 10, 16]),
    (Mutant::WholeSegmentStored, &[2, 3, 6]),
    (Mutant::PartialResultSkips, &[3, 6, 15]),
    (Mutant::PartialResultFilters, &[3, 6, 15]),
    (Mutant::SplitHeadSettles, &[1, 6, 10]),
    (Mutant::PiecesGoAstray, &[2, 10, 15]),
    (Mutant::EmptySplitForgotten, &[5, 6, 10]),
    (Mutant::FirstDestinationSettles, &[1, 3, 5]),
    (Mutant::LettersShareNames, &[17, 36, 37]),
    (Mutant::AcksToFirstSource, &[2, 4, 10]),
    (Mutant::WorkerFailsSilently, &[3625]),
    (Mutant::LetterFailureIgnored, &[9, 41, 100]),
    (Mutant::LetterNotFlushed, &[2, 3, 4]),
    (Mutant::ThresholdOffByOne, &[2, 27, 28]),
    (Mutant::LingerForever, &[8, 9, 10]),
    (Mutant::CollectedForgotten, &[322, 3122]),
    (Mutant::FilteredUnsettled, &[1, 3, 5]),
    (Mutant::AcceptedIsDurable, &[1, 3, 4]),
    (Mutant::CommitWithoutFlush, &[3, 4, 5]),
    (Mutant::FlushFailureIgnored, &[1, 24, 39]),
    (Mutant::AtMostOnceRepeats, &[16, 43, 45]),
    (Mutant::TransientIsFinal, &[4, 10, 11]),
    (Mutant::RetryReorders, &[200, 609, 624]),
    (Mutant::BisectionRepeats, &[15, 42, 47]),
    (Mutant::VerdictsShift, &[4, 10, 11]),
    (Mutant::WindowUnbounded, &[2, 3, 8]),
    (Mutant::ResumeForgotten, &[1, 2, 3]),
    (Mutant::CallsLandInReverse, &[4, 12, 19]),
    (Mutant::WorkersOutOfTurn, &[2, 10, 12]),
    (Mutant::FailedConditionPasses, &[3, 10, 12]),
    (Mutant::MaskNotCarried, &[673, 744, 2307]),
    (Mutant::SharesTooMuch, &[1348, 3857]),
    (Mutant::LeftOverIsDrained, &[16, 21, 53]),
    (Mutant::BytesLeak, &[3, 4, 5]),
    (Mutant::LentForNothing, &[1476, 1540, 1820]),
    (Mutant::RemainderLost, &[5, 6, 8]),
    (Mutant::MarksTooFar, &[1, 2, 6]),
    (Mutant::PanicForgotten, &[43, 71, 89]),
    (Mutant::StripsForgotten, &[144, 174, 218]),
    (Mutant::StopWithoutEnd, &[59, 92, 172]),
    (Mutant::IdleNotStored, &[2, 4, 9]),
    (Mutant::EqualPositionsMerge, &[2, 15, 20]),
    (Mutant::VerdictsMadeUp, &[11, 19, 42]),
    (Mutant::TailForgotten, &[9, 10, 18]),
    (Mutant::EmptiedForgotten, &[1, 2, 3]),
    (Mutant::AskedForEver, &[25, 181, 254]),
    (Mutant::FencedGoesOn, &[2, 28, 42]),
    (Mutant::CommitPanicUnseen, &[26, 223, 672]),
    (Mutant::StagePanicUnseen, &[13, 48, 53]),
    (Mutant::BytesUnbounded, &[3, 4, 5]),
    (Mutant::CollectsTooMuch, &[109, 246, 286]),
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

/// Faults that no seed is known to show: what showed them was partitions that come back, which are no longer simulated
/// together with transactional destinations.
pub const UNSHOWN: &[Mutant] = &[Mutant::RevokedLingers];

/// Seeds that are tried where no recorded one shows a fault any more.
const FIRST: u64 = 300;
