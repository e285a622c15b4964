//! The tracer of a run: makes spans for traced rows.
//!
//! Every run of rows stores whether one of its source rows is traced, so that a node makes one check per batch. Only if
//! it succeeds, the traced rows are looked up. A run without a tracer skips the check.

mod node;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::time::Instant;

pub(super) use node::{NodeTracer, Passage, RowOutcome};

use anabranch_plugin::secret::mask;
use anabranch_plugin::trace::{
    Attribute, Ids, Span, SpanContext, SpanError, SpanId, SpanKind, TRACE_PARENT, TraceParent, Tracing, attribute,
};
use anabranch_record::mark::LaneId;
use anabranch_record::metadata::Metadata;
use anabranch_record::text::{Str, hexadecimal};
use anabranch_record::{Position, Record, clock};

use crate::ack::{LaneIndex, Run};
use crate::batch::Lineage;

/// Maximum number of spans of a trace below its root; further spans of a record that is split thousands of times are
/// left out.
const MOST_SPANS: u64 = 1000;
/// Maximum number of displayed bytes of a position.
const MOST_POSITION: usize = 256;

/// The traces of a run.
pub(super) struct Traces {
    pipeline: Str,
    tracing: Tracing,
    secrets: Arc<[Str]>,
    ids: Ids,
    lanes: Mutex<Vec<Option<LaneTraces>>>,
}

/// The traced rows of a lane that are in flight.
struct LaneTraces {
    id: LaneId,
    salt: u64,
    /// Strips in the order in which they were read.
    strips: VecDeque<Strip>,
}

/// The traced rows of a segment.
struct Strip {
    segment: u32,
    /// Number of the first row of the segment in its lane.
    base: u64,
    /// Traces by row number in the segment, ascending.
    rows: VecDeque<(u32, Trace)>,
}

/// A trace whose root span has not ended.
struct Trace {
    root: SpanContext,
    parent: Option<SpanId>,
    link: Option<SpanContext>,
    position: Position,
    start: SystemTime,
    /// Number of spans below the root, including those left out.
    spans: u64,
    /// The first error in the trace.
    error: Option<SpanError>,
}

/// Two points in time, as measured by a stage.
#[derive(Clone, Copy)]
pub(super) struct Interval {
    pub(super) from: Instant,
    pub(super) to: Instant,
}

impl Interval {
    /// Returns the interval from `from` until now.
    pub(super) fn since(from: Instant) -> Self {
        Interval { from, to: Instant::now() }
    }

    /// Converts the interval to wall-clock time.
    fn by_the_clock(self) -> (SystemTime, SystemTime) {
        let (now, day) = (Instant::now(), clock::now());
        let at = |instant: Instant| day.checked_sub(now.saturating_duration_since(instant)).unwrap_or(day);
        (at(self.from), at(self.to))
    }
}

impl Strip {
    /// Returns the traced source rows of a run, each with the range of rows of the run that are copies of it.
    fn of_run(&mut self, run: &Run) -> impl Iterator<Item = (std::ops::Range<usize>, &mut Trace)> {
        let first = run.source_rows_in_segment().start;
        let end = run.source_rows_in_segment().end;
        let (pieces, all) = (run.is_pieces(), run.rows());
        let from = self.rows.partition_point(|(row, _)| *row < first);
        self.rows.range_mut(from..).take_while(move |(row, _)| *row < end).map(move |(row, trace)| {
            let at = (*row - first) as usize;
            (if pieces { 0..all } else { at..at + 1 }, trace)
        })
    }
}

impl LaneTraces {
    fn strip(&mut self, segment: u32) -> Option<&mut Strip> {
        // Segment numbers wrap, so compare their distance from the first.
        let front = self.strips.front()?.segment;
        let behind = |segment: u32| segment.wrapping_sub(front);
        let at = self.strips.partition_point(|strip| behind(strip.segment) < behind(segment));
        self.strips.get_mut(at).filter(|strip| strip.segment == segment)
    }
}

impl Traces {
    pub(super) fn new(pipeline: &Str, tracing: Tracing, secrets: Arc<[Str]>) -> Self {
        Traces { pipeline: pipeline.clone(), tracing, secrets, ids: Ids::random(), lanes: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<LaneTraces>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the traces of the chosen rows among those that were read, and marks the lineage if there are any. `base`
    /// is the number of the first row in the lane.
    pub(super) fn begin(&self, id: &LaneId, base: u64, lineage: &mut Lineage, records: &[Record]) {
        let Some(run) = lineage.runs().first() else { return };
        let (lane, segment) = (run.lane(), run.segment());
        let mut lanes = self.lock();
        let index = usize::from(lane.0);
        if lanes.len() <= index {
            lanes.resize_with(index + 1, || None);
        }
        let lane =
            lanes[index].get_or_insert_with(|| LaneTraces { salt: salt(id), id: id.clone(), strips: VecDeque::new() });
        let start = clock::now();
        let mut rows = VecDeque::new();
        let mut known: Option<(&Metadata, Option<TraceParent>)> = None;
        for (row, record) in records.iter().enumerate() {
            let parent = match known {
                // Records of a strip often share their metadata.
                Some((metadata, parent)) if metadata.shares(&record.metadata) => parent,
                _ => {
                    let parent = record.metadata.get(TRACE_PARENT).and_then(|text| text.parse().ok());
                    known = Some((&record.metadata, parent));
                    parent
                }
            };
            let number = base + row as u64;
            let link = self.tracing.past.as_ref().and_then(|past| past.failed_in(number));
            let chosen = match parent {
                _ if link.is_some() => true,
                Some(parent) => parent.sampled,
                None => self.tracing.share.takes(lane.salt, number),
            };
            if !chosen {
                continue;
            }
            let parent = parent.map(|parent| parent.context);
            let trace = parent.map_or_else(|| self.ids.trace(), |parent| parent.trace);
            let root = SpanContext { trace, span: self.ids.span() };
            let position = record.position().clone();
            let parent = parent.map(|parent| parent.span);
            rows.push_back((row as u32, Trace { root, parent, link, position, start, spans: 0, error: None }));
        }
        if !rows.is_empty() {
            lane.strips.push_back(Strip { segment, base, rows });
            lineage.set_traced();
        }
    }

    /// Ends the traces of rows below this number in a lane: they are stored and acknowledged.
    pub(super) fn acknowledged(&self, lane: LaneIndex, below: u64) {
        let mut lanes = self.lock();
        let Some(Some(lane)) = lanes.get_mut(usize::from(lane.0)) else { return };
        let mut end = None;
        while let Some(strip) = lane.strips.front_mut() {
            while let Some((row, trace)) = strip.rows.pop_front_if(|(row, _)| strip.base + u64::from(*row) < below) {
                let end = *end.get_or_insert_with(clock::now);
                self.tracing.sink.take(self.root(&lane.id, strip.base + u64::from(row), trace, end, true));
            }
            if !strip.rows.is_empty() {
                break;
            }
            lane.strips.pop_front();
        }
    }

    /// Ends the traces of a lane whose rows in flight will never be acknowledged.
    pub(super) fn abandoned(&self, lane: LaneIndex, why: &str) {
        let lane = self.lock().get_mut(usize::from(lane.0)).and_then(Option::take);
        self.give_up(lane, why);
    }

    /// Ends all traces at the end of the run. Rows in flight are read again by the next run.
    pub(super) fn end(&self, why: &str) {
        let lanes = std::mem::take(&mut *self.lock());
        self.give_up(lanes.into_iter().flatten(), why);
    }

    fn give_up(&self, lanes: impl IntoIterator<Item = LaneTraces>, why: &str) {
        let end = clock::now();
        let error = SpanError { code: Str::from_static("not_acknowledged"), message: self.masked(why) };
        for LaneTraces { id, strips, .. } in lanes {
            for Strip { base, rows, .. } in strips {
                for (row, trace) in rows {
                    let error = trace.error.clone().or_else(|| Some(error.clone()));
                    let root = self.root(&id, base + u64::from(row), Trace { error, ..trace }, end, false);
                    self.tracing.sink.take(root);
                }
            }
        }
    }

    fn root(&self, lane: &LaneId, row: u64, trace: Trace, end: SystemTime, acknowledged: bool) -> Span {
        let Trace { root, parent, link, position, start, spans, error } = trace;
        let mut attributes: Vec<(&'static str, Attribute)> = vec![
            (attribute::PIPELINE, self.pipeline.clone().into()),
            (attribute::CONNECTOR, lane.connector.clone().into()),
            (attribute::ROW, row.into()),
            (attribute::POSITION, shown(&position).into()),
            (attribute::ACKNOWLEDGED, acknowledged.into()),
        ];
        if !lane.partition.0.is_empty() {
            attributes.push((attribute::PARTITION, lane.partition.0.clone().into()));
        }
        if link.is_some() {
            attributes.push((attribute::REPLAY, true.into()));
        }
        if spans > MOST_SPANS {
            attributes.push((attribute::SPANS_LEFT_OUT, (spans - MOST_SPANS).into()));
        }
        Span {
            context: root,
            parent,
            parent_is_remote: parent.is_some(),
            link,
            name: self.pipeline.clone(),
            kind: SpanKind::Record,
            start,
            // The clock may have been set back since the start.
            end: end.max(start),
            attributes,
            error,
        }
    }

    fn masked(&self, text: &str) -> Str {
        mask(text, &self.secrets).into()
    }

    /// Calls `call` for every row of a batch that is traced or is a copy of a traced row.
    fn each(&self, lineage: &Lineage, mut call: impl FnMut(usize, &mut Trace)) {
        let mut lanes = self.lock();
        let mut at = 0;
        for run in lineage.runs() {
            let strip =
                run.is_traced().then(|| lanes.get_mut(usize::from(run.lane().0))?.as_mut()?.strip(run.segment()));
            for (rows, trace) in strip.flatten().into_iter().flat_map(|strip| strip.of_run(run)) {
                rows.for_each(|row| call(at + row, trace));
            }
            at += run.rows();
        }
    }
}

/// Returns a hash that distinguishes lanes and is the same in every run.
fn salt(id: &LaneId) -> u64 {
    // FNV-1a, with a separator byte that does not occur in UTF-8.
    let bytes = id.connector.bytes().chain([0xff]).chain(id.partition.0.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Formats a position for display.
fn shown(position: &Position) -> Str {
    let bytes = &position.0[..position.0.len().min(MOST_POSITION)];
    let cut = bytes.len() < position.0.len();
    let mut text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        // The limit may have cut a character in two.
        Err(error) if cut && error.error_len().is_none() => {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into()
        }
        _ => hexadecimal(bytes),
    };
    if cut {
        text.push('…');
    }
    text.into()
}
