//! Spans of nodes.

use std::sync::Arc;
use std::time::SystemTime;

use anabranch_plugin::destination::Delivered;
use anabranch_plugin::operator::Decision;
use anabranch_plugin::trace::{Attribute, Span, SpanContext, SpanError, SpanKind, attribute};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::key;
use anabranch_record::text::Str;

use super::{Interval, MOST_SPANS, Trace, Traces};
use crate::batch::Lineage;

/// Outcome of a row in a node.
#[derive(Clone, Copy)]
pub(in crate::exec) enum RowOutcome<'a> {
    /// The row continues.
    Kept,
    /// The row was filtered, as intended.
    Filtered,
    /// The row was replaced by this many rows.
    Split(usize),
    /// The row failed.
    Failed(&'a Fault),
    /// The row was written to a destination.
    Delivered(Delivered),
}

impl<'a> From<Option<&'a Decision>> for RowOutcome<'a> {
    fn from(decision: Option<&'a Decision>) -> Self {
        match decision {
            None | Some(Decision::Keep) => RowOutcome::Kept,
            Some(Decision::Filter) => RowOutcome::Filtered,
            Some(decision @ (Decision::Split(_) | Decision::Pieces(_))) => match decision.split() {
                None | Some(0) => RowOutcome::Filtered,
                Some(pieces) => RowOutcome::Split(pieces),
            },
            Some(Decision::Fail(fault)) => RowOutcome::Failed(fault),
        }
    }
}

impl RowOutcome<'_> {
    fn word(self) -> &'static str {
        match self {
            RowOutcome::Kept => "kept",
            RowOutcome::Filtered => "filtered",
            RowOutcome::Split(_) => "split",
            RowOutcome::Failed(_) => "failed",
            RowOutcome::Delivered(Delivered::Accepted) => "accepted",
            RowOutcome::Delivered(Delivered::Durable) => "durable",
        }
    }
}

/// The passage of a row through a node.
pub(in crate::exec) struct Passage<'a> {
    /// Result of the condition of the node; `None` without a condition.
    pub(in crate::exec) condition: Option<bool>,
    /// Outcome of the row.
    pub(in crate::exec) fate: RowOutcome<'a>,
}

/// Makes the spans of a node.
#[derive(Clone)]
pub(in crate::exec) struct NodeTracer {
    traces: Arc<Traces>,
    node: Str,
    plugin: Str,
    kind: SpanKind,
}

impl NodeTracer {
    pub(in crate::exec) fn new(traces: &Arc<Traces>, node: &Str, plugin: &Str, kind: SpanKind) -> Self {
        NodeTracer { traces: traces.clone(), node: node.clone(), plugin: plugin.clone(), kind }
    }

    /// Makes a span for each traced row, or copy of a traced row, that passed the node.
    pub(in crate::exec) fn passed<'a>(
        &self,
        lineage: &Lineage,
        records: &[Record],
        interval: Interval,
        passage: impl Fn(usize) -> Option<Passage<'a>>,
    ) {
        if !lineage.is_traced() {
            return;
        }
        let (start, end) = interval.by_the_clock();
        self.traces.each(lineage, |row, trace| {
            let (Some(Passage { condition, fate }), Some(record)) = (passage(row), records.get(row)) else { return };
            let error = match fate {
                RowOutcome::Failed(fault) => Some(self.error(fault)),
                _ => None,
            };
            if trace.error.is_none() {
                trace.error.clone_from(&error);
            }
            let context = SpanContext { trace: trace.root.trace, span: self.traces.ids.span() };
            self.child(trace, context, (start, end), error, || {
                let mut attributes = self.attributes(record, records.len());
                if let Some(condition) = condition {
                    attributes.push((attribute::CONDITION, condition.into()));
                }
                let passed_by = condition == Some(false) && matches!(fate, RowOutcome::Kept);
                attributes.push((attribute::OUTCOME, if passed_by { "passed_by" } else { fate.word() }.into()));
                if let RowOutcome::Split(pieces) = fate {
                    attributes.push((attribute::PIECES, pieces.into()));
                }
                attributes
            });
        });
    }

    /// Allocates the spans of traced rows in advance, so that data derived from the rows can refer to them. By row
    /// index, ascending.
    pub(in crate::exec) fn announce(&self, lineage: &Lineage) -> Vec<(usize, SpanContext)> {
        let mut announced = Vec::new();
        if lineage.is_traced() {
            self.traces.each(lineage, |row, trace| {
                announced.push((row, SpanContext { trace: trace.root.trace, span: self.traces.ids.span() }));
            });
        }
        announced
    }

    /// Makes the announced spans of rows whose dead letters are durable. `letter` returns the name of each dead letter.
    pub(in crate::exec) fn kept(
        &self,
        announced: &[(usize, SpanContext)],
        lineage: &Lineage,
        records: &[Record],
        interval: Interval,
        letter: impl Fn(usize) -> Option<Str>,
    ) {
        if announced.is_empty() {
            return;
        }
        let (start, end) = interval.by_the_clock();
        self.traces.each(lineage, |row, trace| {
            let context = announced.binary_search_by_key(&row, |(row, _)| *row).map(|at| announced[at].1);
            let (Ok(context), Some(letter), Some(record)) = (context, letter(row), records.get(row)) else { return };
            self.child(trace, context, (start, end), None, || {
                let mut attributes = self.attributes(record, records.len());
                attributes.push((attribute::LETTER, letter.into()));
                attributes
            });
        });
    }

    /// Sends a span of a traced row in this node, unless its trace already has the maximum number of spans.
    fn child(
        &self,
        trace: &mut Trace,
        context: SpanContext,
        (start, end): (SystemTime, SystemTime),
        error: Option<SpanError>,
        attributes: impl FnOnce() -> Vec<(&'static str, Attribute)>,
    ) {
        trace.spans += 1;
        if trace.spans > MOST_SPANS {
            return;
        }
        self.traces.tracing.sink.take(Span {
            context,
            parent: Some(trace.root.span),
            parent_is_remote: false,
            link: None,
            name: self.node.clone(),
            kind: self.kind,
            start,
            end,
            attributes: attributes(),
            error,
        });
    }

    fn error(&self, fault: &Fault) -> SpanError {
        SpanError { code: Str::from_static(fault.code().name()), message: self.traces.masked(&fault.message()) }
    }

    fn attributes(&self, record: &Record, rows: usize) -> Vec<(&'static str, Attribute)> {
        let mut attributes: Vec<(&'static str, Attribute)> = vec![
            (attribute::PIPELINE, self.traces.pipeline.clone().into()),
            (attribute::NODE, self.node.clone().into()),
            (attribute::PLUGIN, self.plugin.clone().into()),
            (attribute::BATCH_ROWS, rows.into()),
        ];
        for (name, key) in [(attribute::SPLIT_INDEX, key::SPLIT_INDEX), (attribute::CLONE_INDEX, key::CLONE_INDEX)] {
            // Only a number is accepted, since metadata are part of the content of a record.
            if let Some(index) = record.metadata.get(&key).and_then(|index| index.parse::<u32>().ok()) {
                attributes.push((name, u64::from(index).into()));
            }
        }
        attributes
    }
}
