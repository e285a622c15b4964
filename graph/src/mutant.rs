//! Planted faults: mistakes that an engine of this kind has made, or could make. The simulator must find all of them.
//! The engine checks for them only in builds with debug assertions.

use std::cell::Cell;

/// Evaluates to `true` if a planted fault is active. If [`CHECKED`] is `false`, it is `false` at compile time.
macro_rules! mutant {
    ($name:ident) => {
        crate::mutant::CHECKED && crate::mutant::is_active(crate::mutant::Mutant::$name)
    };
}

/// `true` if this build checks for planted faults, which costs instructions.
pub const CHECKED: bool = cfg!(debug_assertions);

macro_rules! mutants {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {
        /// A planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[doc = $doc])* $name,)*
        }

        impl Mutant {
            /// All planted faults.
            pub const ALL: &[Mutant] = &[$(Mutant::$name),*];

            /// Returns a description of the fault.
            pub fn describe(self) -> &'static str {
                match self {
                    $(Mutant::$name => concat!($($doc),*).trim_ascii(),)*
                }
            }
        }
    };
}

mutants! {
    /// Positions are acknowledged to the source before they are stored.
    AckBeforeStore;
    /// An acknowledgement that fails with a transient error is dropped.
    AckDropped;
    /// The last commit of a run is left out.
    NoLastCommit;
    /// Settled rows are removed although a row before them is open.
    GapInPrefix;
    /// Rows count as stored before the store confirms it.
    RoomBeforeStored;
    /// The last position of a batch is stored although some of its rows are not settled.
    WholeSegmentStored;
    /// After a call that returned results for some rows, the next call skips one row.
    PartialResultSkips;
    /// Rows without a result from a call count as filtered.
    PartialResultFilters;
    /// The first piece of a split row settles it.
    SplitHeadSettles;
    /// Pieces keep the position that the processor gave them.
    PiecesGoAstray;
    /// A split into zero records does not count as a filter: the row is never settled.
    EmptySplitForgotten;
    /// The first destination that has a row settles it for all destinations.
    FirstDestinationSettles;
    /// Different dead letters get the same name.
    LettersShareNames;
    /// The acknowledgements of all sources go to the first source.
    AcksToFirstSource;
    /// A worker that fails drops its rows before it reports the failure.
    WorkerFailsSilently;
    /// A dead letter that cannot be written counts as written.
    LetterFailureIgnored;
    /// A dead letter that was accepted but not flushed counts as durable.
    LetterNotFlushed;
    /// One failure more than the threshold is accepted.
    ThresholdOffByOne;
    /// A write waits forever for a batch that does not fill.
    LingerForever;
    /// Collected rows are dropped when the run stops.
    CollectedForgotten;
    /// Filtered rows are not settled.
    FilteredUnsettled;
    /// A row that fulfils the conditions of several destinations is given to the first of them only.
    FirstWayOnly;
    /// Rows for which the condition of a destination fails go to the other destinations, without a dead letter.
    FailedRuleIsFalse;
    /// Rows that fulfil no condition are dropped, whatever is to become of them.
    UnmatchedForgotten;
    /// Rows that a destination accepted but did not flush count as durable.
    AcceptedIsDurable;
    /// A commit does not flush the destinations.
    CommitWithoutFlush;
    /// A failed flush counts as a flush.
    FlushFailureIgnored;
    /// A write that must not be repeated is repeated after an unknown outcome.
    AtMostOnceRepeats;
    /// A transient failure of one row fails it permanently.
    TransientIsFinal;
    /// Rows of a failed write are retried after the rows that follow them.
    RetryReorders;
    /// When one row fails a write, the second half of the write is written twice.
    BisectionRepeats;
    /// A rejected row gets the verdict of the row next to it.
    VerdictsShift;
    /// The window of a lane has no bound.
    WindowUnbounded;
    /// The row count of a lane starts from zero after a restart.
    ResumeForgotten;
    /// Of several calls in flight, the latest is completed first.
    CallsLandInReverse;
    /// Workers take turns in the wrong order.
    WorkersOutOfTurn;
    /// Rows whose condition fails pass the condition.
    FailedConditionPasses;
    /// Shared condition results are not updated after decisions.
    MaskNotCarried;
    /// Condition results are reused although the processor before changed what the condition reads.
    SharesTooMuch;
    /// Rows abandoned by a stop count as drained.
    LeftOverIsDrained;
    /// The bytes of settled rows are never released.
    BytesLeak;
    /// Lent credit is not added to the ledger.
    LentForNothing;
    /// Division of credit loses the remainder.
    RemainderLost;
    /// A transactional destination gets a mark above rows that other destinations do not have.
    MarksTooFar;
    /// A panic does not fail a row.
    PanicForgotten;
    /// A chain drops the pieces of a row that exceed one strip.
    StripsForgotten;
    /// The time limit for stopping is not enforced.
    StopWithoutEnd;
    /// The positions of a source that has caught up are not acknowledged until it has more records.
    IdleNotStored;
    /// Consecutive equal positions count as one.
    EqualPositionsMerge;
    /// Rows without a verdict from a destination count as delivered.
    VerdictsMadeUp;
    /// The last, incomplete batch of a destination is dropped when the input ends.
    TailForgotten;
    /// A strip whose rows are all removed is not settled.
    EmptiedForgotten;
    /// A processor that never answers is retried forever.
    AskedForEver;
    /// A run that is fenced continues.
    FencedGoesOn;
    /// The positions of a revoked partition are acknowledged forever.
    RevokedLingers;
    /// A partition that is assigned again is read before it is given up, or while a commit or a transaction holds rows
    /// of it.
    ReturnsTooSoon;
    /// Rows abandoned with their revoked partition are stored as settled when it is assigned again.
    GivenUpIsStored;
    /// The mark of a finished partition is removed before its rows are settled.
    FinishedTooSoon;
    /// The mark of a finished partition is not removed.
    FinishedLingers;
    /// A panic while storing or acknowledging positions is not noticed while there are more records to read.
    CommitPanicUnseen;
    /// A panic in a source or a destination is not noticed.
    StagePanicUnseen;
    /// The bytes held have no limit.
    BytesUnbounded;
    /// A batch that a source collects has no limit in bytes.
    CollectsTooMuch;
    /// A destination that lost confirmed rows is not noticed: they are never delivered again.
    WentBackGoesOn;
    /// Positions of a lost partition are stored.
    LostIsStored;
    /// Positions of a lost partition are acknowledged, if they were stored meanwhile.
    LostIsAcknowledged;
    /// While a partition is assigned again, other partitions are not read.
    ReturnStallsOthers;
    /// While a revoked partition is drained, other partitions are not read.
    RevokeStallsOthers;
    /// Rows of a partition that is taken away wait for room in it, and other partitions are not read.
    RoomOfLostAwaited;
    /// Stored positions are acknowledged although the source knows that their partition is given up.
    AckAfterRelease;
    /// A lost partition that is revoked before it is resumed counts as revoked only.
    LostIsForgotten;
    /// A revoked partition is given up at once, and its positions are still stored and acknowledged.
    CommitAfterRevoke;
    /// A source counts acknowledgements over all partitions: it takes each for the next position that it read.
    AcksCounted;
    /// The results of a write are in the order of completion: those of rejected rows come last.
    VerdictsByCompletion;
    /// A transaction with an unknown outcome is repeated although the destination may have it.
    OutcomeNotAsked;
    /// A destination reads the marks before the transactions of earlier writers have ended.
    MarksReadTooSoon;
    /// A destination accepts a transaction of a writer after a later one has taken over.
    ZombieWrites;
    /// A destination's mark of an earlier generation counts as one of the current generation.
    OldGenerationCounts;
    /// A run of a node whose claim is not the latest continues, because it was the last to open the destinations.
    OpenedTooLate;
    /// A source that starts elsewhere does not begin a new generation.
    ElsewhereContinues;
    /// A source of changes confirms the place of a keepalive message although changes before it are not stored.
    ConfirmsFromKeepalive;
    /// A source of changes takes the place of a commit for the identity of each change of the transaction.
    PlaceAloneIsIdentity;
    /// The rows of a chunk are passed on before the changes that the chunk contains.
    ChunkOvertakesStream;
    /// A chunk is merged with the changes although it does not contain a transaction that had arrived before it was read.
    ChunkMissesTransaction;
    /// The rest of a snapshot is read under a new snapshot, and the changes before that are read afterwards.
    RangeResumedWithoutThePoint;
}

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    static CREDIT: Cell<u32> = const { Cell::new(1 << 31) };
}

/// Plants a fault in all code that runs on this thread; `None` removes it.
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

/// Returns `true` if this fault is planted.
pub fn is_active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Sets the credit of a row on this thread to a small amount, so that it runs out soon. It must be a power of two
/// and larger than the number of pieces of a row.
pub fn set_credit(full: u32) {
    CREDIT.set(full);
}

/// Returns the credit that a row owes.
pub fn credit() -> u32 {
    CREDIT.get()
}
