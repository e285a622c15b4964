//! The input of a simulation: a pipeline, its ends, and the failures, all generated from one seed.

mod properties;

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// The input of one simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Sources with their processors.
    pub sources: Vec<Upstream>,
    /// The processors of all records.
    pub processors: Vec<ScenarioProcessor>,
    /// Destinations with their processors.
    pub sinks: Vec<Sink>,
    /// The destination of dead letters.
    pub letters: Sink,
    /// `true` if records for no destination become dead letters; otherwise they are dropped.
    pub unmatched_fails: bool,
    /// Number of latest outcomes that count for the dead-letter threshold; 0 = any number of failures is allowed.
    pub window: u64,
    /// Number of failures among them that are allowed.
    pub threshold: u64,
    /// Limit of rows of a lane that are read and not stored.
    pub replay_rows: usize,
    /// Limit of the bytes of one queue.
    pub queue_bytes: usize,
    /// Limit of the bytes of all records.
    pub held_bytes: usize,
    /// `true` if sources end when they have caught up.
    pub once: bool,
    /// Duration of a commit, in milliseconds.
    pub store_delay: u64,
    /// One in this many commits fails; 0 = none.
    pub store_fails: u64,
    /// One in this many sources, processors, destinations and claims cannot be opened: with a transient fault, a fatal
    /// fault or a panic; 0 = none.
    pub open_fails: u64,
    /// One in this many opens never returns; 0 = none.
    pub open_hangs: u64,
    /// One in this many calls of a source or a destination panics; 0 = none.
    pub panics: u64,
    /// The interruptions of runs 0, 1, …
    pub interruptions: Vec<Interruption>,
}

/// A source.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Rows of each partition.
    pub partitions: Vec<u32>,
    /// Maximum number of rows of one read.
    pub per_read: usize,
    /// Maximum duration of a read, in milliseconds.
    pub delay: u64,
    /// `true` if it ends; otherwise it catches up and waits.
    pub ends: bool,
    /// After one in this many rows, the position moves without a record; 0 = never.
    pub progress: u64,
    /// One in this many reads fails; 0 = none.
    pub read_fails: u64,
    /// One in this many acknowledgements fails; 0 = none.
    pub ack_fails: u64,
    /// One in this many acknowledgements never returns; 0 = none.
    pub ack_hangs: u64,
    /// One in this many reads finds that a partition is revoked; 0 = none.
    pub revokes: u64,
    /// Number of reads after which a partition comes back; 0 = only in the next run.
    pub comes_back: u64,
    /// The source itself fails one in this many rows; 0 = none.
    pub fails_rows: u64,
    /// `true` if its partitions finish when all their rows are read.
    pub finishes: bool,
    /// `true` if every second row has the position of the previous one.
    pub twins: bool,
    /// The consumer group that the source is a member of.
    pub group: Option<ConsumerGroup>,
    /// `sdk.batch.size` and `sdk.batch.delay` in milliseconds.
    pub batch: Option<(usize, u64)>,
    /// Its own processors.
    pub processors: Vec<ScenarioProcessor>,
}

/// A consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerGroup {
    /// Maximum number of rows that another member delivers of a partition that it takes over.
    pub takes: u32,
    /// An operator moves the offset of one in this many partitions that the source does not own; 0 = none.
    pub resets: u64,
    /// One in this many partitions that the source does not own loses its oldest records; 0 = none.
    pub gaps: u64,
    /// Maximum duration of an acknowledgement, in milliseconds.
    pub ack_delay: u64,
}

/// A processor.
#[derive(Clone, Debug)]
pub struct ScenarioProcessor {
    /// Seed of its random numbers.
    pub salt: u64,
    /// Its execution class.
    pub execution: Execution,
    /// Number of workers.
    pub workers: u32,
    /// The records that it is applied to.
    pub when: AppliesTo,
    /// The action for one in `one_in` records; the others are only tagged.
    pub action: ProcessorAction,
    /// See `action`.
    pub one_in: u64,
}

/// Execution class of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Fused with its neighbours.
    Inline,
    /// Waits asynchronously; can return verdicts for a part of its rows, and can hang.
    Async {
        /// Maximum delay in milliseconds.
        delay: u64,
        /// `true` if it may return verdicts for only a part of the rows.
        partial: bool,
        /// One in this many calls hangs; 0 = none.
        hangs: u64,
        /// One in this many calls waits for half a minute and then fails; 0 = none.
        late: u64,
        /// One in this many records receives no verdict; 0 = none.
        mute: u64,
    },
    /// On its own thread.
    Isolate,
}

/// The records that a processor is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliesTo {
    /// All records.
    Always,
    /// No records, which the compiler detects.
    Never,
    /// Records with this mark.
    Is(u8),
    /// The mark is the result of the condition: 0 is false, 1 is true, anything else makes the condition fail.
    Text,
}

/// The action of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessorAction {
    /// Changes the payload.
    Tag,
    /// Changes the mark, and the payload.
    Set(u8),
    /// Drops the record.
    Filter,
    /// Fails the record.
    Fail,
    /// Panics the first time that it processes the record.
    Panic,
    /// Splits the record into up to this many records, possibly none.
    Split {
        /// Maximum number of pieces.
        most: u32,
        /// `true` if the pieces have positions of their own.
        astray: bool,
        /// `true` if the metadata of the pieces contains their numbers.
        numbered: bool,
    },
    /// Returns exactly this many copies.
    Clone(u32),
}

/// A destination.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Seed of its random numbers.
    pub salt: u64,
    /// The records that it receives.
    pub when: AppliesTo,
    /// `true` if it receives the records that fulfil no condition; if it has no condition, it receives only these.
    pub otherwise: bool,
    /// Durability of the rows that it accepted.
    pub takes: AcceptedDurability,
    /// Retry policy after a write with an unknown outcome.
    pub retry: WriteRetry,
    /// One in this many records is refused permanently; 0 = none.
    pub refuses: u64,
    /// `true` if a refusal fails the whole call.
    pub whole: bool,
    /// One in this many calls fails with a transient fault; 0 = none.
    pub fails: u64,
    /// `true` if a failing call may have written rows.
    pub ambiguous: bool,
    /// One in this many calls fails with a transient fault for some of its rows; 0 = none.
    pub partial: u64,
    /// One in this many calls never returns; 0 = none.
    pub hangs: u64,
    /// One in this many calls returns a verdict too many or too few; 0 = none.
    pub miscounts: u64,
    /// One in this many flushes fails; 0 = none.
    pub flush_fails: u64,
    /// Maximum duration of a call, in milliseconds.
    pub delay: u64,
    /// Maximum number of rows of a call.
    pub rows: usize,
    /// How long a call waits for more rows, in milliseconds.
    pub linger: u64,
    /// Before one in this many calls, a transactional destination loses transactions that it had confirmed; 0 = none.
    pub goes_back: u64,
    /// One in this many transactions is answered with an error, and may still be committed later; 0 = none.
    pub late: u64,
    /// `true` if a transactional destination lets a writer that was fenced take over again, when it reads the marks.
    pub reinitialises: bool,
    /// Maximum number of rows per second; 0 = no limit.
    pub rate: u32,
    /// Its own processors.
    pub processors: Vec<ScenarioProcessor>,
}

/// Durability of the rows that a destination accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedDurability {
    /// They are durable immediately.
    Durable,
    /// They are durable after a flush.
    Accepted,
    /// Mixed, row by row.
    Mixed,
}

/// The retry policy of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRetry {
    /// Writes are repeated.
    Idempotent,
    /// Writes are not repeated.
    AtMostOnce,
    /// Writes are transactions.
    Transactional,
}

/// An interruption of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// None.
    None,
    /// The process crashes at the event with this number.
    Crash(u64),
    /// The run is ordered to stop at this event, within this many milliseconds or without a limit.
    Stop(u64, Option<u64>),
    /// Another run claims the pipeline at this event.
    Fence(u64),
}

/// Hashes two numbers to one.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = (a ^ b.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^= z >> 29;
    z = (z ^ b).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns `true` for one in `one_in` numbers.
pub fn hits(salt: u64, number: u64, one_in: u64) -> bool {
    one_in > 0 && mix(salt, number).is_multiple_of(one_in)
}

/// Returns zero in most cases, otherwise a number from the range.
fn seldom(rng: &mut Rng, one_in: u32, of: std::ops::Range<u64>) -> u64 {
    if rng.u32(..one_in) == 0 { rng.u64(of) } else { 0 }
}

impl Scenario {
    /// Generates the scenario of a seed.
    pub fn generate(seed: u64) -> Scenario {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let isolates = seed.is_multiple_of(97);
        // Half of the scenarios have few kinds of failures, so that these are tested alone.
        let calm = rng.bool();
        let mut sources: Vec<Upstream> =
            (0..1 + rng.usize(..3) * rng.usize(..2)).map(|_| Upstream::generate(rng, calm)).collect();
        let processors = ScenarioProcessor::several(rng, 6, isolates);
        let mut sinks: Vec<Sink> = (0..1 + rng.usize(..3)).map(|_| Sink::generate(rng, calm)).collect();
        let letters = Sink {
            refuses: 0,
            retry: WriteRetry::Idempotent,
            rate: 0,
            linger: 0,
            processors: Vec::new(),
            ..Sink::generate(rng, calm)
        };
        let runs = rng.usize(..4);
        let window = [0, 0, 0, 1, rng.u64(1..30)][rng.usize(..5)];
        let interruption = |_| match rng.u32(..6) {
            0 => Interruption::None,
            1 => Interruption::Stop(rng.u64(..120), (rng.u32(..3) > 0).then(|| rng.u64(..3000))),
            2 if rng.bool() => Interruption::Fence(rng.u64(..160)),
            _ => Interruption::Crash(rng.u64(..160)),
        };
        let interruptions = (0..runs).map(interruption).collect();
        // Derived from the seed, like `Sink::goes_back`. Rows of a finished partition cannot be read again, so no
        // destination may lose them.
        let goes_back = |sink: &Sink| sink.retry == WriteRetry::Transactional && sink.goes_back > 0;
        if !sinks.iter().any(goes_back) {
            let finishes = |(i, source): (usize, &mut Upstream)| source.finishes = hits(seed ^ 41, i as u64, 4);
            sources.iter_mut().enumerate().for_each(finishes);
        }
        // A destination that loses what it had confirmed is checked without other changes of the generation.
        if !sinks.iter().any(goes_back) {
            let joins = |(i, source): (usize, &mut Upstream)| source.joins(mix(seed ^ 44, i as u64));
            sources.iter_mut().enumerate().for_each(joins);
        }
        let fails = |(i, source): (usize, &mut Upstream)| {
            let salt = mix(seed ^ 45, i as u64);
            source.fails_rows = if hits(salt, 1, 6) { 2 + mix(salt, 2) % 20 } else { 0 };
        };
        sources.iter_mut().enumerate().for_each(fails);
        if hits(seed ^ 46, 0, 5) {
            let kinds = [
                AppliesTo::Always,
                AppliesTo::Is(0),
                AppliesTo::Is(1),
                AppliesTo::Is(2),
                AppliesTo::Text,
                AppliesTo::Never,
            ];
            for (i, sink) in sinks.iter_mut().enumerate() {
                sink.when = kinds[(mix(seed ^ 47, i as u64) % 6) as usize];
            }
            let otherwise = (mix(seed ^ 48, 0) % (2 * sinks.len() as u64)) as usize;
            if let Some(sink) = sinks.get_mut(otherwise) {
                sink.otherwise = true;
            }
        }
        let revokes = sources.iter().any(|source| source.revokes > 0);
        let store_delay = if revokes && hits(seed ^ 42, 0, 2) { mix(seed, 43) % 300 } else { 0 };
        Scenario {
            seed,
            unmatched_fails: hits(seed ^ 49, 0, 2),
            store_delay,
            sources,
            processors,
            sinks,
            letters,
            window,
            threshold: if window > 1 { rng.u64(..window.min(6)) } else { 0 },
            replay_rows: [1, rng.usize(2..12), rng.usize(4..60), 1000][rng.usize(..4)],
            queue_bytes: [200, 1500, 8 << 20][rng.usize(..3)],
            held_bytes: [600, 4000, 64 << 20][rng.usize(..3)],
            once: rng.u32(..4) == 0,
            store_fails: seldom(rng, if calm { 20 } else { 4 }, 2..9),
            open_fails: seldom(rng, if calm { 40 } else { 10 }, 4..30),
            open_hangs: seldom(rng, if calm { 120 } else { 40 }, 4..30),
            panics: seldom(rng, if calm { 40 } else { 10 }, 5..60),
            interruptions,
        }
    }
}

impl Upstream {
    fn generate(rng: &mut Rng, calm: bool) -> Upstream {
        let trouble = if calm { 30 } else { 5 };
        let rows = if rng.u32(..40) == 0 { 280 } else { [6, 20, 40][rng.usize(..3)] };
        let revokes = seldom(rng, trouble, 2..12);
        Upstream {
            partitions: (0..[1, 1, 2, 3][rng.usize(..4)]).map(|_| rng.u32(..rows)).collect(),
            per_read: [1, rng.usize(1..8), 1000][rng.usize(..3)],
            delay: [0, 0, 3, 80][rng.usize(..4)],
            ends: rng.u32(..3) > 0,
            progress: seldom(rng, 4, 2..6),
            read_fails: seldom(rng, trouble, 3..20),
            ack_fails: seldom(rng, trouble, 2..6),
            ack_hangs: seldom(rng, 3 * trouble, 3..9),
            revokes,
            comes_back: seldom(rng, 2, 1..5),
            fails_rows: 0,
            finishes: false,
            group: None,
            twins: rng.u32(..12) == 0 && revokes == 0,
            batch: (rng.u32(..4) == 0).then(|| (rng.usize(1..20), rng.u64(..60))),
            processors: ScenarioProcessor::several(rng, 2, false),
        }
    }
}

impl Upstream {
    /// Makes the source a member of a consumer group, in some cases.
    fn joins(&mut self, salt: u64) {
        let is_member = hits(salt, 1, if self.revokes > 0 { 2 } else { 4 });
        if !is_member || self.finishes || self.twins {
            return;
        }
        if self.revokes == 0 {
            self.revokes = 2 + mix(salt, 2) % 10;
        }
        if self.comes_back == 0 && !hits(salt, 3, 4) {
            self.comes_back = 1 + mix(salt, 3) % 4;
        }
        if self.partitions.len() == 1 && hits(salt, 10, 2) {
            self.partitions.push(mix(salt, 11) as u32 % 20);
        }
        self.group = Some(ConsumerGroup {
            takes: [0, 3, 20][mix(salt, 4) as usize % 3],
            resets: if hits(salt, 5, 3) { 2 + mix(salt, 6) % 5 } else { 0 },
            gaps: if hits(salt, 7, 3) { 2 + mix(salt, 8) % 5 } else { 0 },
            ack_delay: [0, 30, 300][mix(salt, 9) as usize % 3],
        });
    }
}

impl ScenarioProcessor {
    fn several(rng: &mut Rng, most: usize, isolates: bool) -> Vec<ScenarioProcessor> {
        (0..rng.usize(..=most)).map(|_| ScenarioProcessor::generate(rng, isolates)).collect()
    }

    fn generate(rng: &mut Rng, isolates: bool) -> ScenarioProcessor {
        let action = match rng.u32(..20) {
            0..6 => ProcessorAction::Tag,
            6..9 => ProcessorAction::Set(rng.u8(..3)),
            9..12 => ProcessorAction::Filter,
            12..15 => ProcessorAction::Fail,
            15 => ProcessorAction::Panic,
            16..19 => {
                let most = if rng.u32(..40) == 0 { 200 } else { rng.u32(1..5) };
                ProcessorAction::Split { most, astray: rng.bool(), numbered: rng.bool() }
            }
            _ => ProcessorAction::Clone(rng.u32(1..4)),
        };
        let execution = match rng.u32(..10) {
            0 | 1 => Execution::Async {
                delay: [0, 5, 200][rng.usize(..3)],
                partial: rng.u32(..3) == 0,
                hangs: seldom(rng, 12, 3..12),
                late: seldom(rng, 10, 3..12),
                mute: seldom(rng, 20, 5..60),
            },
            2 | 3 if isolates => Execution::Isolate,
            _ => Execution::Inline,
        };
        ScenarioProcessor {
            salt: rng.u64(..),
            execution,
            workers: [1, 1, 1, 2, 3][rng.usize(..5)],
            when: [
                AppliesTo::Always,
                AppliesTo::Always,
                AppliesTo::Is(rng.u8(..3)),
                AppliesTo::Is(1),
                AppliesTo::Text,
                AppliesTo::Never,
            ][rng.usize(..6) * rng.usize(..2)],
            action,
            one_in: [1, 2, 5, 15, 40][if action == ProcessorAction::Panic { 4 } else { rng.usize(..5) }],
        }
    }
}

impl Sink {
    fn generate(rng: &mut Rng, calm: bool) -> Sink {
        let trouble = if calm { 25 } else { 4 };
        let salt = rng.u64(..);
        Sink {
            salt,
            when: AppliesTo::Always,
            otherwise: false,
            takes: [AcceptedDurability::Durable, AcceptedDurability::Accepted, AcceptedDurability::Mixed]
                [rng.usize(..3)],
            retry: [WriteRetry::Idempotent, WriteRetry::Idempotent, WriteRetry::AtMostOnce, WriteRetry::Transactional]
                [rng.usize(..4)],
            refuses: seldom(rng, 4, 2..25),
            whole: rng.bool(),
            fails: seldom(rng, trouble, 2..9),
            ambiguous: rng.bool(),
            partial: seldom(rng, trouble, 2..9),
            hangs: seldom(rng, 6 * trouble, 3..12),
            miscounts: seldom(rng, 4 * trouble, 2..12),
            flush_fails: seldom(rng, 2 * trouble, 3..9),
            // Sometimes longer than the engine waits for a revoked partition.
            delay: if rng.u32(..16) == 0 { 9000 } else { [0, 0, 4, 90, 600][rng.usize(..5)] },
            rows: [1, rng.usize(1..9), 1000][rng.usize(..3)],
            linger: [0, 0, 20][rng.usize(..3)],
            // Derived from the salt, so that the random numbers after it do not change: the seeds of the planted faults
            // depend on them.
            goes_back: if hits(salt, 17, 4) { 2 + mix(salt, 18) % 6 } else { 0 },
            late: if hits(salt, 19, 2) { 2 + mix(salt, 20) % 8 } else { 0 },
            reinitialises: hits(salt, 21, 2),
            rate: if rng.u32(..12) == 0 { rng.u32(20..400) } else { 0 },
            processors: ScenarioProcessor::several(rng, 2, false),
        }
    }

    /// Returns the duration of call `number`.
    pub fn takes_time(&self, number: u64) -> Duration {
        Duration::from_millis(if self.delay == 0 { 0 } else { mix(self.salt, number) % (self.delay + 1) })
    }
}

impl fmt::Display for ScenarioProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScenarioProcessor { execution, workers, when, action, one_in, .. } = self;
        write!(f, "{action:?} one in {one_in}, {when:?}, {execution:?}, {workers} workers")
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processors = |f: &mut fmt::Formatter<'_>, processors: &[ScenarioProcessor], pad: &str| {
            processors.iter().enumerate().try_for_each(|(i, processor)| writeln!(f, "{pad}p{i}: {processor}"))
        };
        writeln!(f, "seed {}", self.seed)?;
        for (i, source) in self.sources.iter().enumerate() {
            let shown = Upstream { processors: Vec::new(), ..source.clone() };
            writeln!(f, "s{i}: {}", format!("{shown:?}").trim_end_matches(", processors: [] }"))?;
            processors(f, &source.processors, "    ")?;
        }
        processors(f, &self.processors, "")?;
        for (name, sink) in self
            .sinks
            .iter()
            .enumerate()
            .map(|(i, sink)| (format!("d{i}"), sink))
            .chain(Some((format!("letters (window {}, threshold {})", self.window, self.threshold), &self.letters)))
        {
            let shown = Sink { processors: Vec::new(), ..sink.clone() };
            writeln!(f, "{name}: {}", format!("{shown:?}").trim_end_matches(", processors: [] }"))?;
            processors(f, &sink.processors, "    ")?;
        }
        writeln!(
            f,
            "replay_rows {}, queue_bytes {}, held_bytes {}, once {}, store_delay {}, store_fails {}, open_fails {}, open_hangs {}, \
             panics {}, interruptions {:?}",
            self.replay_rows,
            self.queue_bytes,
            self.held_bytes,
            self.once,
            self.store_delay,
            self.store_fails,
            self.open_fails,
            self.open_hangs,
            self.panics,
            self.interruptions
        )
    }
}
