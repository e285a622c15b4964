//! Traces: the way of single records through a graph, told in spans.
//!
//! A source record that is sampled has one trace. Its root span lasts from the read until the source was told that the
//! record is stored; every node that the record, or a piece or copy of it, goes through adds a span below the root.
//! The names of identifiers and their written form are those of the W3C's recommendation *Trace Context*.
//!
//! The executor makes spans and gives them to a [`SpanSink`]. It never waits for one.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use anabranch_record::text::Str;

/// Name of the metadata in which a record brings the span that it belongs to.
pub const TRACE_PARENT: &str = "traceparent";

/// Names a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub NonZeroU128);

/// Names a span in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub NonZeroU64);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A span of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
}

/// What a record says of the span it belongs to: `00-<trace>-<span>-<flags>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The span.
    pub context: SpanContext,
    /// Whether it is recorded.
    pub sampled: bool,
}

/// The text is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent")]
pub struct NoTraceParent;

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpanContext { trace, span } = self.context;
        write!(f, "00-{trace}-{span}-{:02x}", u8::from(self.sampled))
    }
}

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        fn hex(text: &str, digits: usize) -> Result<&str, NoTraceParent> {
            let sound = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            if sound { Ok(text) } else { Err(NoTraceParent) }
        }
        let mut parts = text.trim().split('-');
        let mut part = |digits| hex(parts.next().unwrap_or_default(), digits);
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may say more, the first does not.
        if version == "ff" || version == "00" && parts.next().is_some() {
            return Err(NoTraceParent);
        }
        let trace = u128::from_str_radix(trace, 16).ok().and_then(NonZeroU128::new).ok_or(NoTraceParent)?;
        let span = u64::from_str_radix(span, 16).ok().and_then(NonZeroU64::new).ok_or(NoTraceParent)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| NoTraceParent)?;
        let context = SpanContext { trace: TraceId(trace), span: SpanId(span) };
        Ok(TraceParent { context, sampled: flags & 1 == 1 })
    }
}

/// What happened to a record somewhere, finished.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its own name.
    pub context: SpanContext,
    /// The span above it.
    pub parent: Option<SpanId>,
    /// Whether the span above it is somebody else's.
    pub parent_is_remote: bool,
    /// The span in which the record failed before: this is its replay.
    pub link: Option<SpanContext>,
    /// What people see: the id of the pipeline or of a node.
    pub name: Str,
    /// What kind of work it was.
    pub kind: SpanKind,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// What else is known, by names of [`attribute`]. Nothing of what the record holds.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// Why it failed; secrets are masked.
    pub error: Option<SpanError>,
}

/// What kind of work a span was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The root: from the read to the acknowledgement.
    Record,
    /// In the process.
    Step,
    /// A step that waits for the outside world.
    Request,
    /// Writing a destination or the dead-letter queue.
    Write,
}

/// Why a span failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanError {
    /// Stable code.
    pub code: Str,
    /// In words.
    pub message: Str,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Text.
    Text(Str),
    /// A number.
    Number(i64),
    /// Yes or no.
    Bool(bool),
}

impl From<Str> for Attribute {
    fn from(text: Str) -> Self {
        Attribute::Text(text)
    }
}

impl From<&'static str> for Attribute {
    fn from(text: &'static str) -> Self {
        Attribute::Text(Str::from_static(text))
    }
}

impl From<usize> for Attribute {
    fn from(number: usize) -> Self {
        Attribute::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Attribute::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Attribute {
    fn from(is: bool) -> Self {
        Attribute::Bool(is)
    }
}

/// Names of attributes.
pub mod attribute {
    /// Id of the pipeline.
    pub const PIPELINE: &str = "anabranch.pipeline";
    /// Id of the source.
    pub const CONNECTOR: &str = "anabranch.connector";
    /// Partition of the source; not there where it has but one.
    pub const PARTITION: &str = "anabranch.partition";
    /// Number of the record in its partition.
    pub const ROW: &str = "anabranch.row";
    /// Position of the record in its source; in hexadecimal digits where it is no text.
    pub const POSITION: &str = "anabranch.position";
    /// Whether the source was told that the record is stored: if not, it is read again.
    pub const ACKNOWLEDGED: &str = "anabranch.acknowledged";
    /// Whether the record was a dead letter.
    pub const REPLAY: &str = "anabranch.replay";
    /// Spans of the trace that were left out because there were too many.
    pub const SPANS_LEFT_OUT: &str = "anabranch.spans_left_out";
    /// Id of the processor or destination.
    pub const NODE: &str = "anabranch.node";
    /// Its plugin.
    pub const PLUGIN: &str = "anabranch.plugin";
    /// Which side of its condition was taken; not there where it has none.
    pub const CONDITION: &str = "anabranch.condition";
    /// What became of the record: `kept`, `passed_by`, `filtered`, `split`, `failed`, `accepted`, `durable`.
    pub const OUTCOME: &str = "anabranch.outcome";
    /// Number of pieces or copies that it was replaced by.
    pub const PIECES: &str = "anabranch.pieces";
    /// Which piece of `split` it is.
    pub const SPLIT_INDEX: &str = "anabranch.split.index";
    /// Which copy of `clone` it is.
    pub const CLONE_INDEX: &str = "anabranch.clone.index";
    /// Number of records that the time of the span was spent on together.
    pub const BATCH_ROWS: &str = "anabranch.batch.rows";
    /// Name of the dead letter.
    pub const LETTER: &str = "anabranch.dead_letter";
}

/// Who takes spans.
pub trait SpanSink: Send + Sync {
    /// Takes a span. It does not wait: what there is no room for is dropped, and counted by the sink.
    fn take(&self, span: Span);
}

/// What is known of rows that were traced before: those of a replay.
pub trait Past: Send + Sync {
    /// The span in which the row of this number failed before.
    fn failed_in(&self, row: u64) -> Option<SpanContext>;
}

/// How a run is traced.
#[derive(Clone)]
pub struct Tracing {
    /// Who takes the spans.
    pub sink: Arc<dyn SpanSink>,
    /// How many of the records that do not belong to a trace already. Of those that do, a trace goes on where it is
    /// recorded.
    pub share: Share,
    /// For a replay, where its records come from: those that were traced when they failed are traced again.
    pub past: Option<Arc<dyn Past>>,
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").field("share", &self.share).finish_non_exhaustive()
    }
}

/// A share of all records, chosen by the number of a record: a record that is read again is chosen again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// No record.
    pub const NONE: Share = Share(0.0);
    /// Every record.
    pub const ALL: Share = Share(1.0);

    /// The share from 0 to 1; `None` for anything else.
    pub fn new(share: f64) -> Option<Share> {
        (0.0..=1.0).contains(&share).then_some(Share(share))
    }

    /// It as a number from 0 to 1.
    pub fn as_f64(self) -> f64 {
        self.0
    }

    /// Whether a row is in it; `salt` tells apart rows of the same number. O(1).
    pub fn takes(self, salt: u64, row: u64) -> bool {
        // The upper 53 bits: as many as an f64 has.
        (mixed(salt ^ mixed(row)) >> 11) as f64 / (1u64 << 53) as f64 <= self.0 && self.0 > 0.0
    }
}

/// Every bit of the outcome depends on every bit of `x` (the finalizer of SplitMix64).
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Makes names for traces and spans that nobody else has.
#[derive(Debug)]
pub struct Ids {
    seed: [u64; 2],
    next: AtomicU64,
}

impl Ids {
    /// From a random seed.
    pub fn new() -> Self {
        // Where the system has no random numbers the time has to do.
        let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        let random = || getrandom::u64().unwrap_or_else(|_| clock());
        Ids { seed: [random(), random()], next: AtomicU64::new(0) }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The next id of a trace.
    pub fn trace(&self) -> TraceId {
        let n = self.number();
        let id = u128::from(mixed(self.seed[0].wrapping_add(n))) << 64 | u128::from(mixed(self.seed[1] ^ mixed(n)));
        TraceId(NonZeroU128::new(id).unwrap_or(NonZeroU128::MIN))
    }

    /// The next id of a span.
    pub fn span(&self) -> SpanId {
        let id = mixed(self.seed[1].wrapping_sub(self.number()));
        SpanId(NonZeroU64::new(id).unwrap_or(NonZeroU64::MIN))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_parent_is_read_as_it_is_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceParent = text.parse().unwrap();
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), text);
        assert_eq!(parent.context.span.to_string(), "00f067aa0ba902b7");
        let flags: TraceParent = text.replace("-01", "-02").parse().unwrap();
        assert!(!flags.sampled, "only the first flag says so");
        let later: TraceParent = (text.replace("00-4b", "cc-4b") + "-what-comes-later").parse().unwrap();
        assert_eq!(later, parent);
    }

    #[test]
    fn what_is_no_parent_is_refused() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-é4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(NoTraceParent), "{text}");
        }
    }

    #[test]
    fn a_share_is_about_the_share_and_the_same_each_time() {
        let taken = |share: f64, salt| (0..100_000).filter(|row| Share::new(share).unwrap().takes(salt, *row)).count();
        assert_eq!((taken(0.0, 1), taken(1.0, 1)), (0, 100_000));
        for (share, low, high) in [(0.5, 49_000, 51_000), (0.01, 880, 1_120)] {
            let count = taken(share, 7);
            assert!((low..=high).contains(&count), "{share}: {count}");
            assert_eq!(count, taken(share, 7));
        }
        let rows = |salt| (0..10_000).filter(|row| Share(0.01).takes(salt, *row)).collect::<Vec<u64>>();
        assert_ne!(rows(1), rows(2), "partitions do not choose the same rows");
        assert_eq!([Share::new(-0.1), Share::new(1.1), Share::new(f64::NAN)], [None; 3]);
    }

    #[test]
    fn no_two_names_are_the_same() {
        let (one, other) = (Ids::new(), Ids::new());
        let traces: HashSet<TraceId> = (0..1000).flat_map(|_| [one.trace(), other.trace()]).collect();
        let spans: HashSet<SpanId> = (0..1000).flat_map(|_| [one.span(), other.span()]).collect();
        assert_eq!((traces.len(), spans.len()), (2000, 2000));
    }
}
