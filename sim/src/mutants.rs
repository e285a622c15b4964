//! Planted faults and the graphs that reveal them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::mutant::{Mutant, activate};

use crate::run::{Failure, simulate};
use crate::scenario::Scenario;

/// Planted faults, and seeds that reveal them.
///
/// A change of the executor or of the scenario generator changes the course of a seed. If the seeds of a fault do not
/// reveal it, replace them with the output of `cargo run --profile simulate -p anabranch-sim -- --seed 1 --mutants 60`.
pub const KILLERS: &[(Mutant, &[u64])] = &[
    (Mutant::AckBeforeStore, &[1, 2, 3]),
    (Mutant::AckDropped, &[2, 7, 22]),
    (Mutant::NoLastCommit, &[1, 35, 37]),
    (Mutant::GapInPrefix, &[5, 9, 11]),
    (Mutant::RoomBeforeStored, &[16, 20, 29]),
    (Mutant::WholeSegmentStored, &[5, 9, 10]),
    (Mutant::PartialResultSkips, &[9, 15, 18]),
    (Mutant::PartialResultFilters, &[15, 18, 25]),
    (Mutant::SplitHeadSettles, &[11, 17, 34]),
    (Mutant::PiecesGoAstray, &[2, 12, 15]),
    (Mutant::EmptySplitForgotten, &[5, 6, 12]),
    (Mutant::FirstDestinationSettles, &[1, 6, 7]),
    (Mutant::LettersShareNames, &[17, 36, 37]),
    (Mutant::AcksToFirstSource, &[2, 4, 10]),
    (Mutant::WorkerFailsSilently, &[7872]),
    (Mutant::LetterFailureIgnored, &[10, 28, 92]),
    (Mutant::LetterNotFlushed, &[2, 3, 7]),
    (Mutant::ThresholdOffByOne, &[26, 44, 52]),
    (Mutant::LingerForever, &[2, 8, 9]),
    (Mutant::CollectedForgotten, &[1660, 3844, 4522]),
    (Mutant::FilteredUnsettled, &[1, 3, 5]),
    (Mutant::AcceptedIsDurable, &[1, 4, 5]),
    (Mutant::CommitWithoutFlush, &[4, 5, 7]),
    (Mutant::FlushFailureIgnored, &[24, 33, 45]),
    (Mutant::AtMostOnceRepeats, &[16, 19, 43]),
    (Mutant::TransientIsFinal, &[3, 4, 16]),
    (Mutant::RetryReorders, &[706, 2411, 3036]),
    (Mutant::BisectionRepeats, &[66, 86, 96]),
    (Mutant::VerdictsShift, &[38, 43, 47]),
    (Mutant::WindowUnbounded, &[2, 3, 6]),
    (Mutant::ResumeForgotten, &[2, 3, 4]),
    (Mutant::CallsLandInReverse, &[1, 4, 9]),
    (Mutant::WorkersOutOfTurn, &[2, 6, 7]),
    (Mutant::FailedConditionPasses, &[3, 6, 8]),
    (Mutant::MaskNotCarried, &[673, 744, 2362]),
    (Mutant::SharesTooMuch, &[1348, 3857]),
    (Mutant::LeftOverIsDrained, &[3, 16, 21]),
    (Mutant::BytesLeak, &[2, 4, 5]),
    (Mutant::LentForNothing, &[418, 1052, 1180]),
    (Mutant::RemainderLost, &[3, 5, 6]),
    (Mutant::MarksTooFar, &[6, 10, 12]),
    (Mutant::PanicForgotten, &[53, 71, 82]),
    (Mutant::StripsForgotten, &[144, 174, 258]),
    (Mutant::StopWithoutEnd, &[157, 180, 369]),
    (Mutant::IdleNotStored, &[4, 7, 9]),
    (Mutant::EqualPositionsMerge, &[15, 36, 72]),
    (Mutant::VerdictsMadeUp, &[9, 11, 28]),
    (Mutant::TailForgotten, &[1, 18, 22]),
    (Mutant::EmptiedForgotten, &[1, 2, 3]),
    (Mutant::AskedForEver, &[25, 39, 254]),
    (Mutant::FencedGoesOn, &[5, 33, 44]),
    (Mutant::RevokedLingers, &[236, 1325, 1349]),
    (Mutant::ReturnsTooSoon, &[404, 888, 3104]),
    (Mutant::GivenUpIsStored, &[740, 4285, 9118]),
    (Mutant::CommitPanicUnseen, &[71, 729, 759]),
    (Mutant::StagePanicUnseen, &[47, 107, 198]),
    (Mutant::BytesUnbounded, &[4, 5, 9]),
    (Mutant::CollectsTooMuch, &[28, 59, 89]),
    (Mutant::WentBackGoesOn, &[6]),
];

/// Simulates a seed with a planted fault.
///
/// # Errors
/// The guarantee that the fault breaks.
pub fn simulate_with(mutant: Mutant, seed: u64) -> Result<(), Failure> {
    activate(Some(mutant));
    let result = simulate(&Arc::new(Scenario::generate(seed)), false);
    activate(None);
    result
}

/// Number of seeds that are recorded for a fault, because a change of the executor can change the course of some of
/// them.
const RECORDED: usize = 3;

/// Searches for seeds that reveal each planted fault, for a limited time per fault, and prints them in the form of the
/// table above. Returns `true` if every fault was found.
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

/// Returns a seed that reveals a fault: a recorded one, or else one of the first.
pub fn killer(mutant: Mutant) -> Option<(u64, Failure)> {
    let recorded = KILLERS.iter().filter(|(killed, _)| *killed == mutant).flat_map(|(_, seeds)| seeds.iter().copied());
    recorded.chain(1..FIRST).find_map(|seed| Some((seed, simulate_with(mutant, seed).err()?)))
}

/// Seeds below this one are tried if no recorded seed reveals a fault.
const FIRST: u64 = 300;
