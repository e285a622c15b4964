//! Origins of the planted faults: mistakes of other engines, with the planted faults that reproduce them.

use anabranch_graph::mutant::Mutant::{self, *};

/// A mistake that an engine has made.
pub struct EngineMistake {
    /// Description of the mistake.
    pub what: &'static str,
    /// The planted faults that reproduce it.
    pub faults: &'static [Mutant],
    /// The difference in this engine, if the exact mistake is not possible here.
    pub here: &'static str,
}

const fn origin(what: &'static str, faults: &'static [Mutant], here: &'static str) -> EngineMistake {
    EngineMistake { what, faults, here }
}

/// Known mistakes about acknowledgement, order, shutdown, rebalances and transactions. Each has a planted fault.
pub const ORIGINS: &[EngineMistake] = &[
    origin("acknowledged upstream before the position is durable", &[AckBeforeStore], ""),
    origin(
        "a deferred acknowledgement is lost, and a source that waits for it never reads more",
        &[AckDropped, IdleNotStored],
        "",
    ),
    origin("the stream is closed before the last acknowledgement is delivered", &[NoLastCommit], ""),
    origin(
        "two flushes confirm out of order, and the newer one hides the older",
        &[GapInPrefix, CommitWithoutFlush],
        "one commit at a time, and it takes a prefix",
    ),
    origin(
        "a writer of positions shared by connectors is torn down while another flushes",
        &[RoomBeforeStored, CommitPanicUnseen],
        "every run has a commit loop of its own, which ends last",
    ),
    origin("one acknowledgement stands for a batch: a slip skips the rest", &[WholeSegmentStored], ""),
    origin("a cursor moves by what a retried part grew to", &[PartialResultSkips, BisectionRepeats], ""),
    origin(
        "the head of a split row is acknowledged before its tail is delivered",
        &[SplitHeadSettles, RemainderLost],
        "",
    ),
    origin(
        "a processor rewrites a position, and pieces are not found again",
        &[PiecesGoAstray],
        "credit goes with the row, positions identify nothing",
    ),
    origin(
        "pieces have no position, and an empty one is stored",
        &[PiecesGoAstray],
        "pieces get the position of their row back",
    ),
    origin(
        "a partial result on pieces in front of a fan-out loops or loses",
        &[PartialResultFilters],
        "a strip moves on when all of its rows are answered",
    ),
    origin("a processor that never answers is asked until the stack is used up", &[AskedForEver], ""),
    origin(
        "marking filtered and split rows shifts the indices of those that follow",
        &[VerdictsShift, EmptySplitForgotten, MaskNotCarried],
        "",
    ),
    origin("one destination has a row, another refuses it, and it counts as settled", &[FirstDestinationSettles], ""),
    origin(
        "equal positions in a batch stall it for ever",
        &[EqualPositionsMerge],
        "rows are counted, positions are never compared",
    ),
    origin(
        "a destination shared by sources gives one the acknowledgements of another",
        &[AcksToFirstSource],
        "credit names its lane",
    ),
    origin(
        "a worker fails before all are registered, and nobody hears of it",
        &[WorkerFailsSilently, StagePanicUnseen],
        "nothing runs before everything is open",
    ),
    origin(
        "the dead-letter queue fails, and the row is neither delivered nor kept",
        &[LetterFailureIgnored, LetterNotFlushed],
        "",
    ),
    origin("the threshold of the dead-letter queue is one off", &[ThresholdOffByOne], ""),
    origin("a destination gives too many verdicts, too few, or in another order", &[VerdictsMadeUp, VerdictsShift], ""),
    origin(
        "a batch that does not fill waits for ever, or is forgotten at a stop",
        &[LingerForever, CollectedForgotten],
        "",
    ),
    origin(
        "a filtered record is not acknowledged, or overtakes one that is not filtered",
        &[FilteredUnsettled, GapInPrefix, ResumeForgotten],
        "",
    ),
    origin(
        "a record that is routed reaches only some of its destinations, or vanishes because no condition holds or one fails",
        &[FirstWayOnly, FailedRuleIsFalse, UnmatchedForgotten],
        "",
    ),
    origin(
        "the last partial batch behind a splitting processor is lost at close",
        &[TailForgotten, StripsForgotten],
        "",
    ),
    origin("a batch of which nothing is left never calls its acknowledgement", &[EmptiedForgotten], ""),
    origin(
        "a destination fails over to a copy that is behind, and what it had confirmed is never delivered again",
        &[WentBackGoesOn],
        "",
    ),
    origin(
        "acknowledgements are counted over one list of all partitions: a rebalance commits the wrong records",
        &[AcksCounted],
        "every acknowledgement names its partition and its positions",
    ),
    origin(
        "offsets are committed after their partition was revoked",
        &[CommitAfterRevoke, AckAfterRelease],
        "a source learns that a partition is given up after its last acknowledgement",
    ),
    origin(
        "records that were read before a partition was lost are committed after it was assigned again",
        &[LostIsStored, LostIsAcknowledged, LostIsForgotten],
        "",
    ),
    origin(
        "results are in the order of completion, and the wrong record is dead-lettered",
        &[VerdictsByCompletion],
        "",
    ),
    origin(
        "a rebalance stalls partitions that it does not move, or one that comes back",
        &[ReturnStallsOthers, RevokeStallsOthers, RoomOfLostAwaited],
        "",
    ),
    origin(
        "records are skipped after a gap, or after an operator moved the offset",
        &[ElsewhereContinues, OldGenerationCounts],
        "row numbers identify rows only within a generation",
    ),
    origin(
        "a transaction without an answer is committed after its position was read",
        &[OutcomeNotAsked, MarksReadTooSoon],
        "a writer reads the marks after every unknown outcome, and ends older transactions first",
    ),
    origin("a producer of an earlier run commits beside a later one", &[ZombieWrites], ""),
    origin(
        "a quiet slot is confirmed from keepalive messages, past changes that are not durable",
        &[ConfirmsFromKeepalive],
        "the place of a keepalive goes through the lane of the changes",
    ),
    origin(
        "a restart skips rows of interleaved transactions, because places in the log seem to rise and to be unique",
        &[PlaceAloneIsIdentity],
        "",
    ),
    origin(
        "rows that are read beside the changes replace newer ones",
        &[ChunkOvertakesStream, ChunkMissesTransaction],
        "a chunk knows by the ids of transactions what it contains",
    ),
    origin("the rest of a snapshot and the changes after it do not meet", &[RangeResumedWithoutThePoint], ""),
];

/// Formats them as a table.
pub fn table() -> String {
    let line = |origin: &EngineMistake| {
        let faults: Vec<String> = origin.faults.iter().map(|fault| format!("{fault:?}")).collect();
        let here = if origin.here.is_empty() { String::new() } else { format!(" ({})", origin.here) };
        format!("{}{here}: {}\n", origin.what, faults.join(", "))
    };
    ORIGINS.iter().map(line).collect()
}
