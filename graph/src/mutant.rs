//! Planted faults. Each is a mistake that an engine of this kind has made, or could make; the simulator must find all of
//! them. Without the feature `mutants` none of this is compiled.

/// Whether a planted fault is active; without the feature `mutants` it is `false`, known when compiling.
macro_rules! mutant {
    ($name:ident) => {{
        #[cfg(feature = "mutants")]
        let active = crate::mutant::is_active(crate::mutant::Mutant::$name);
        #[cfg(not(feature = "mutants"))]
        let active = false;
        active
    }};
}

/// Whether this build looks for planted faults, which costs instructions.
pub const COMPILED: bool = cfg!(feature = "mutants");

#[cfg(feature = "mutants")]
pub use planted::{Mutant, activate, credit, is_active, set_credit};

#[cfg(feature = "mutants")]
mod planted {
    use std::cell::Cell;

    macro_rules! mutants {
        ($($(#[doc = $doc:literal])* $name:ident;)*) => {
            /// A planted fault.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum Mutant {
                $($(#[doc = $doc])* $name,)*
            }

            impl Mutant {
                /// All of them.
                pub const ALL: &[Mutant] = &[$(Mutant::$name),*];

                /// What is wrong.
                pub fn describe(self) -> &'static str {
                    match self {
                        $(Mutant::$name => concat!($($doc),*).trim_ascii(),)*
                    }
                }
            }
        };
    }

    mutants! {
        /// The source is told before the position is stored.
        AckBeforeStore;
        /// An acknowledgement that fails for the time being is dropped.
        AckDropped;
        /// The last commit of a run is left out.
        NoLastCommit;
        /// What is settled is taken although a row before it is open.
        GapInPrefix;
        /// Rows count as stored before the store says so.
        RoomBeforeStored;
        /// Only the last position of a batch is kept, whatever of it is settled.
        WholeSegmentStored;
        /// A call that answered for some rows is given the rest, less one.
        PartialResultSkips;
        /// Rows that a call did not answer for count as filtered.
        PartialResultFilters;
        /// The first piece of a split row settles it.
        SplitHeadSettles;
        /// Pieces keep whatever position the processor gave them.
        PiecesGoAstray;
        /// A split into nothing is no filter: its row is never settled.
        EmptySplitForgotten;
        /// The first destination that has a row settles it for all.
        FirstDestinationSettles;
        /// Different letters get the same name.
        LettersShareNames;
        /// The acknowledgements of all sources go to the first.
        AcksToFirstSource;
        /// A worker that fails does not say so before it drops its rows.
        WorkerFailsSilently;
        /// A letter that cannot be written counts as written.
        LetterFailureIgnored;
        /// A letter that was only accepted counts as durable.
        LetterNotFlushed;
        /// One failure more than the threshold is let pass.
        ThresholdOffByOne;
        /// A write waits for ever for a batch that does not fill.
        LingerForever;
        /// Rows that were collected when the run is stopped are forgotten.
        CollectedForgotten;
        /// Filtered rows are not settled.
        FilteredUnsettled;
        /// What a destination accepted counts as durable.
        AcceptedIsDurable;
        /// A commit does not ask the destinations to flush.
        CommitWithoutFlush;
        /// A failed flush counts as a flush.
        FlushFailureIgnored;
        /// What must not be written twice is written again after an unknown outcome.
        AtMostOnceRepeats;
        /// A transient failure of one row fails it for good.
        TransientIsFinal;
        /// Rows of a failed write are written again after those that follow.
        RetryReorders;
        /// Of a write that one row fails, the second half is written twice.
        BisectionRepeats;
        /// A row that is refused takes the verdict of its neighbour.
        VerdictsShift;
        /// The window of a lane has no bound.
        WindowUnbounded;
        /// A lane starts its count anew after a restart.
        ResumeForgotten;
        /// Of several calls in flight the latest lands first.
        CallsLandInReverse;
        /// Workers take turns in the wrong order.
        WorkersOutOfTurn;
        /// Rows whose condition fails pass.
        FailedConditionPasses;
        /// A shared condition is not carried over decisions.
        MaskNotCarried;
        /// A shared condition is taken over although the step before changed what it reads.
        SharesTooMuch;
        /// Rows that were given up by a stop count as drained.
        LeftOverIsDrained;
        /// The bytes of settled rows are never given back.
        BytesLeak;
        /// Credit is lent and not written down.
        LentForNothing;
        /// What was divided loses its remainder.
        RemainderLost;
        /// A transactional destination is told of rows that others do not have.
        MarksTooFar;
        /// A panic fails no row.
        PanicForgotten;
        /// A chain forgets the pieces of a row that make more than one strip.
        StripsForgotten;
        /// A budget for stopping has no end.
        StopWithoutEnd;
        /// A source that has caught up is not told until there is more.
        IdleNotStored;
        /// Equal positions that follow on each other count as one.
        EqualPositionsMerge;
        /// Rows that a destination gave no verdict on count as delivered.
        VerdictsMadeUp;
        /// The last batch of a destination, not full yet, is forgotten when the input ends.
        TailForgotten;
        /// A strip of which nothing is left is not settled.
        EmptiedForgotten;
        /// A processor that never answers is asked for ever.
        AskedForEver;
        /// A run that is not the owner any more goes on.
        FencedGoesOn;
        /// A partition that is somebody else's is acknowledged for ever.
        RevokedLingers;
        /// A partition that comes back is read again while a transaction still holds rows of it.
        ReturnsTooSoon;
        /// Rows that were given up with their partition are stored as settled when it comes back.
        GivenUpIsStored;
        /// A panic where positions are stored and acknowledged is not seen while there is more to read.
        CommitPanicUnseen;
        /// A panic of a source or a destination is not seen.
        StagePanicUnseen;
        /// The bytes that may be held have no bound.
        BytesUnbounded;
        /// A batch that a source collects has no bound in bytes.
        CollectsTooMuch;
        /// A destination that lost what it had confirmed is not noticed: what it lost is never delivered again.
        WentBackGoesOn;
    }

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
        static CREDIT: Cell<u32> = const { Cell::new(1 << 31) };
    }

    /// Plants a fault in everything that runs on this thread, or none.
    pub fn activate(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    /// Whether this fault is planted.
    pub fn is_active(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }

    /// Makes rows owe so little on this thread that credit runs out soon; a power of two, and more than the pieces
    /// that a row may be split in.
    pub fn set_credit(full: u32) {
        CREDIT.set(full);
    }

    /// What a row owes.
    pub fn credit() -> u32 {
        CREDIT.get()
    }
}
