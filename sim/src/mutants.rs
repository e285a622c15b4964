//! Planted faults and the graphs that reveal them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::mutant::{Mutant, activate};

use crate::run::{Failure, simulate};
use crate::scenario::Scenario;
use crate::{capture, cluster};

/// Planted faults, and seeds that reveal them.
///
/// A change of the executor or of the scenario generator changes the course of a seed. If the seeds of a fault do not
/// reveal it, replace them with the output of `cargo run --profile simulate -p anabranch-sim -- --seed 1 --mutants 60`.
pub const KILLERS: &[(Mutant, &[u64])] = &[
    (Mutant::AckBeforeStore, &[1, 2, 3]),
    (Mutant::AckDropped, &[2, 22, 24]),
    (Mutant::NoLastCommit, &[1, 11, 29]),
    (Mutant::GapInPrefix, &[5, 9, 11]),
    (Mutant::RoomBeforeStored, &[2, 16, 20]),
    (Mutant::WholeSegmentStored, &[5, 9, 10]),
    (Mutant::PartialResultSkips, &[9, 15, 18]),
    (Mutant::PartialResultFilters, &[9, 15, 18]),
    (Mutant::SplitHeadSettles, &[11, 17, 36]),
    (Mutant::PiecesGoAstray, &[2, 12, 15]),
    (Mutant::EmptySplitForgotten, &[5, 6, 12]),
    (Mutant::FirstDestinationSettles, &[1, 6, 7]),
    (Mutant::LettersShareNames, &[17, 36, 37]),
    (Mutant::AcksToFirstSource, &[2, 4, 10]),
    (Mutant::WorkerFailsSilently, &[10140, 10404, 13600]),
    (Mutant::LetterFailureIgnored, &[10, 28, 92]),
    (Mutant::LetterNotFlushed, &[2, 3, 7]),
    (Mutant::ThresholdOffByOne, &[3, 26, 44]),
    (Mutant::LingerForever, &[2, 8, 9]),
    (Mutant::CollectedForgotten, &[1660, 4447, 4522]),
    (Mutant::FilteredUnsettled, &[1, 3, 5]),
    (Mutant::FirstWayOnly, &[5, 12, 47]),
    (Mutant::FailedRuleIsFalse, &[2, 82, 89]),
    (Mutant::UnmatchedForgotten, &[60, 89, 124]),
    (Mutant::AcceptedIsDurable, &[1, 4, 5]),
    (Mutant::CommitWithoutFlush, &[4, 5, 7]),
    (Mutant::FlushFailureIgnored, &[24, 33, 42]),
    (Mutant::AtMostOnceRepeats, &[16, 19, 43]),
    (Mutant::TransientIsFinal, &[3, 4, 11]),
    (Mutant::RetryReorders, &[2411, 3036, 3560]),
    (Mutant::BisectionRepeats, &[66, 86, 96]),
    (Mutant::VerdictsShift, &[38, 43, 63]),
    (Mutant::WindowUnbounded, &[2, 3, 6]),
    (Mutant::ResumeForgotten, &[2, 3, 4]),
    (Mutant::CallsLandInReverse, &[1, 4, 10]),
    (Mutant::WorkersOutOfTurn, &[2, 6, 12]),
    (Mutant::FailedConditionPasses, &[3, 6, 8]),
    (Mutant::MaskNotCarried, &[673, 744, 2362]),
    (Mutant::SharesTooMuch, &[1348, 3857, 4367]),
    (Mutant::LeftOverIsDrained, &[3, 15, 16]),
    (Mutant::BytesLeak, &[2, 4, 5]),
    (Mutant::LentForNothing, &[418, 1052, 1180]),
    (Mutant::RemainderLost, &[3, 5, 6]),
    (Mutant::MarksTooFar, &[6, 10, 12]),
    (Mutant::PanicForgotten, &[53, 71, 82]),
    (Mutant::StripsForgotten, &[144, 258, 285]),
    (Mutant::StopWithoutEnd, &[15, 73, 157]),
    (Mutant::IdleNotStored, &[4, 9, 10]),
    (Mutant::EqualPositionsMerge, &[15, 36, 38]),
    (Mutant::VerdictsMadeUp, &[11, 28, 77]),
    (Mutant::TailForgotten, &[18, 22, 43]),
    (Mutant::EmptiedForgotten, &[1, 2, 3]),
    (Mutant::AskedForEver, &[39, 254]),
    (Mutant::FencedGoesOn, &[5, 33, 38]),
    (Mutant::RevokedLingers, &[2, 7, 22]),
    (Mutant::ReturnsTooSoon, &[25, 38, 46]),
    (Mutant::GivenUpIsStored, &[555, 704, 998]),
    (Mutant::CommitPanicUnseen, &[729, 759, 1142]),
    (Mutant::StagePanicUnseen, &[47, 73, 107]),
    (Mutant::BytesUnbounded, &[4, 5, 9]),
    (Mutant::CollectsTooMuch, &[28, 59]),
    (Mutant::WentBackGoesOn, &[6, 20, 40]),
    (Mutant::FinishedTooSoon, &[17, 24, 27]),
    (Mutant::FinishedLingers, &[5, 19, 22]),
    (Mutant::ReturnStallsOthers, &[151, 398, 750]),
    (Mutant::LostIsStored, &[2, 7, 10]),
    (Mutant::LostIsAcknowledged, &[7, 25]),
    (Mutant::RevokeStallsOthers, &[80, 233]),
    (Mutant::RoomOfLostAwaited, &[478, 797, 950]),
    (Mutant::AckAfterRelease, &[28, 187]),
    (Mutant::LostIsForgotten, &[327, 1764, 1999]),
    (Mutant::CommitAfterRevoke, &[25, 34, 39]),
    (Mutant::AcksCounted, &[1, 3, 5]),
    (Mutant::VerdictsByCompletion, &[12, 16, 43]),
    (Mutant::OutcomeNotAsked, &[6, 10, 12]),
    (Mutant::MarksReadTooSoon, &[12, 13, 36]),
    (Mutant::ZombieWrites, &[184]),
    (Mutant::OldGenerationCounts, &[80, 218, 233]),
    (Mutant::OpenedTooLate, &[528, 612, 616]),
    (Mutant::ElsewhereContinues, &[7, 10, 11]),
    (Mutant::ConfirmsFromKeepalive, &[3, 11, 13]),
    (Mutant::PlaceAloneIsIdentity, &[11, 13, 24]),
    (Mutant::ChunkOvertakesStream, &[4, 7, 13]),
    (Mutant::ChunkMissesTransaction, &[65, 76, 188]),
    (Mutant::RangeResumedWithoutThePoint, &[9, 21, 31]),
];

/// Planted faults of a source that captures the changes of a database, which [`capture`] simulates.
const CAPTURE: &[Mutant] = &[
    Mutant::ConfirmsFromKeepalive,
    Mutant::PlaceAloneIsIdentity,
    Mutant::ChunkOvertakesStream,
    Mutant::ChunkMissesTransaction,
    Mutant::RangeResumedWithoutThePoint,
];

/// Planted faults of nodes of a cluster, which [`cluster`] simulates.
const CLUSTER: &[Mutant] = &[Mutant::OpenedTooLate];

/// Simulates a seed with a planted fault.
///
/// # Errors
/// The guarantee that the fault breaks.
pub fn simulate_with(mutant: Mutant, seed: u64) -> Result<(), Failure> {
    activate(Some(mutant));
    let result = match CAPTURE.contains(&mutant) {
        true => capture::simulate(seed, false),
        false if CLUSTER.contains(&mutant) => cluster::simulate(seed, None, false),
        false => simulate(&Arc::new(Scenario::generate(seed)), false),
    };
    activate(None);
    result
}

/// Number of seeds that are recorded for a fault, because a change of the executor can change the course of some of
/// them.
const RECORDED: usize = 3;

/// Searches for seeds that reveal each planted fault (those with these names, if any are given), for a limited time per
/// fault, and prints them in the form of the table above. Returns `true` if every fault was found.
pub fn hunt(first: u64, patience: Duration, names: &[String]) -> bool {
    let mut all = true;
    let is_named = |mutant: &&Mutant| names.is_empty() || names.contains(&format!("{mutant:?}"));
    for &mutant in Mutant::ALL.iter().filter(is_named) {
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
