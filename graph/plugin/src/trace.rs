//! Traces: spans that follow individual records through a graph.
//!
//! A sampled source record has one trace. Its root span lasts from the read until the acknowledgement to the source;
//! every node that processes the record, or a piece or copy of it, adds a child span of the root. The names and text
//! forms of identifiers are those of the W3C recommendation *Trace Context*.
//!
//! The executor creates spans and passes them to a [`SpanSink`]. It never waits for the sink.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use anabranch_record::text::Str;

/// Name of the metadata entry with the span that a record belongs to.
pub const TRACE_PARENT: &str = "traceparent";

/// The id of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub NonZeroU128);

/// The id of a span in its trace.
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

/// A reference to a span of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
}

/// The span that a record belongs to, in its text form `00-<trace>-<span>-<flags>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The span.
    pub context: SpanContext,
    /// True if the span is recorded.
    pub sampled: bool,
}

/// Error: the text is not a `traceparent`.
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
        // Later versions may append fields, version 00 may not.
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

/// A finished span: the work on a record in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The id of the span.
    pub context: SpanContext,
    /// The parent span.
    pub parent: Option<SpanId>,
    /// True if another system created the parent span.
    pub parent_is_remote: bool,
    /// The span in which the record failed before, if this is its replay.
    pub link: Option<SpanContext>,
    /// Display name: the id of the pipeline or of a node.
    pub name: Str,
    /// The kind of work.
    pub kind: SpanKind,
    /// Start time.
    pub start: SystemTime,
    /// End time.
    pub end: SystemTime,
    /// Additional facts, by names of [`attribute`]. They contain no record data.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// The error; secrets are masked.
    pub error: Option<SpanError>,
}

/// The kind of work of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The root: from the read to the acknowledgement.
    Record,
    /// A processor that computes in the process.
    Step,
    /// A processor that waits for an external system.
    Request,
    /// A write to a destination or the dead-letter queue.
    Write,
}

/// The error of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanError {
    /// Stable code.
    pub code: Str,
    /// The message.
    pub message: Str,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Text.
    Text(Str),
    /// An integer.
    Number(i64),
    /// A boolean.
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
    /// Partition of the source; omitted if the source is not partitioned.
    pub const PARTITION: &str = "anabranch.partition";
    /// Number of the record in its partition.
    pub const ROW: &str = "anabranch.row";
    /// Position of the record in its source; hexadecimal if it is not text.
    pub const POSITION: &str = "anabranch.position";
    /// True if the source received the acknowledgement: if not, the record is read again.
    pub const ACKNOWLEDGED: &str = "anabranch.acknowledged";
    /// True if the record is replayed from the dead-letter queue.
    pub const REPLAY: &str = "anabranch.replay";
    /// Number of spans of the trace that were omitted because there were too many.
    pub const SPANS_LEFT_OUT: &str = "anabranch.spans_left_out";
    /// Id of the processor or destination.
    pub const NODE: &str = "anabranch.node";
    /// Plugin of the node.
    pub const PLUGIN: &str = "anabranch.plugin";
    /// Result of the node's condition; omitted if it has none.
    pub const CONDITION: &str = "anabranch.condition";
    /// Result for the record: `kept`, `passed_by`, `filtered`, `split`, `failed`, `accepted`, `durable`.
    pub const OUTCOME: &str = "anabranch.outcome";
    /// Number of pieces or copies that replaced the record.
    pub const PIECES: &str = "anabranch.pieces";
    /// Index of the piece that `split` created.
    pub const SPLIT_INDEX: &str = "anabranch.split.index";
    /// Index of the copy that `clone` created.
    pub const CLONE_INDEX: &str = "anabranch.clone.index";
    /// Number of records that were processed together in the time of the span.
    pub const BATCH_ROWS: &str = "anabranch.batch.rows";
    /// Name of the dead letter.
    pub const LETTER: &str = "anabranch.dead_letter";
}

/// A receiver of spans.
pub trait SpanSink: Send + Sync {
    /// Accepts a span without waiting. If there is no room, the sink drops the span and counts it.
    fn take(&self, span: Span);
}

/// Earlier traces of the rows of a replay.
pub trait EarlierTraces: Send + Sync {
    /// Returns the span in which the row with this number failed before.
    fn failed_in(&self, row: u64) -> Option<SpanContext>;
}

/// Trace settings of a run.
#[derive(Clone)]
pub struct Tracing {
    /// The receiver of spans.
    pub sink: Arc<dyn SpanSink>,
    /// Share of the records that do not belong to a trace already. For a record that does, the trace is continued if it
    /// is recorded.
    pub share: Share,
    /// For a replay, the earlier traces: records that were traced when they failed are traced again.
    pub past: Option<Arc<dyn EarlierTraces>>,
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").field("share", &self.share).finish_non_exhaustive()
    }
}

/// A share of all records, chosen by record number: a record that is read again is chosen again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// No record.
    pub const NONE: Share = Share(0.0);
    /// Every record.
    pub const ALL: Share = Share(1.0);

    /// Creates a share from 0 to 1; `None` for other numbers.
    pub fn new(share: f64) -> Option<Share> {
        (0.0..=1.0).contains(&share).then_some(Share(share))
    }

    /// Returns the share as a number from 0 to 1.
    pub fn as_f64(self) -> f64 {
        self.0
    }

    /// Returns `true` if the row is in the share; `salt` distinguishes rows with equal numbers. O(1).
    pub fn takes(self, salt: u64, row: u64) -> bool {
        // The upper 53 bits: the precision of an f64.
        (mixed(salt ^ mixed(row)) >> 11) as f64 / (1u64 << 53) as f64 <= self.0 && self.0 > 0.0
    }
}

/// Mixes the bits of `x`: every output bit depends on every input bit (the finalizer of SplitMix64).
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A generator of unique ids for traces and spans.
#[derive(Debug)]
pub struct Ids {
    seed: [u64; 2],
    next: AtomicU64,
}

impl Ids {
    /// Creates a generator with a random seed.
    pub fn random() -> Self {
        // Falls back to the time if the system has no random numbers.
        let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        let random = || getrandom::u64().unwrap_or_else(|_| clock());
        Ids { seed: [random(), random()], next: AtomicU64::new(0) }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the next trace id.
    pub fn trace(&self) -> TraceId {
        let n = self.number();
        let id = u128::from(mixed(self.seed[0].wrapping_add(n))) << 64 | u128::from(mixed(self.seed[1] ^ mixed(n)));
        TraceId(NonZeroU128::new(id).unwrap_or(NonZeroU128::MIN))
    }

    /// Returns the next span id.
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
        let (one, other) = (Ids::random(), Ids::random());
        let traces: HashSet<TraceId> = (0..1000).flat_map(|_| [one.trace(), other.trace()]).collect();
        let spans: HashSet<SpanId> = (0..1000).flat_map(|_| [one.span(), other.span()]).collect();
        assert_eq!((traces.len(), spans.len()), (2000, 2000));
    }
}
