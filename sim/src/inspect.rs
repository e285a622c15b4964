//! Inspections of records in flight. They start and end at random, and fetch their records or not; nothing else may
//! depend on them. Also receives the traces of records.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_graph::exec::{Inspection, InspectionParameters, TapPoint, Taps, places};
use anabranch_graph::plan::StagePlan;
use anabranch_plugin::trace::{Share, Span, SpanContext, SpanId, SpanKind, SpanSink, Tracing};
use anabranch_template::condition::CompiledCondition;

use crate::record::MARK;
use crate::scenario::mix;

/// Maximum number of concurrent inspections.
const MOST: usize = 5;

/// The inspections of a scenario's pipeline.
#[derive(Default)]
pub struct Inspections {
    /// The taps of the pipeline, which every run has.
    pub taps: Arc<Taps>,
    places: Vec<TapPoint>,
    salt: u64,
    turns: u64,
    open: Vec<Inspection>,
    /// Number of records that were fetched.
    pub seen: u64,
    /// The spans of the current run.
    pub spans: Arc<Spans>,
}

/// The spans of a run: every trace has one root, which arrives after all spans below it.
#[derive(Default)]
pub struct Spans(Mutex<SpanTree>);

#[derive(Default)]
struct SpanTree {
    roots: HashSet<SpanContext>,
    /// Spans whose root has not arrived, by its id.
    waiting: HashMap<SpanId, SpanContext>,
    broken: Option<String>,
}

impl SpanSink for Spans {
    fn take(&self, span: Span) {
        let mut tree = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let trace = span.context.trace;
        if span.kind == SpanKind::Record {
            tree.waiting.retain(|parent, _| *parent != span.context.span);
            if !tree.roots.insert(span.context) {
                tree.broken = Some(format!("a trace has two roots: {span:?}"));
            }
        } else if let Some(parent) = span.parent {
            tree.waiting.insert(parent, span.context);
            if tree.roots.contains(&SpanContext { trace, span: parent }) {
                tree.broken = Some(format!("a span comes after its root: {span:?}"));
            }
        }
    }
}

impl Spans {
    /// Checks the spans of a run that has read `read` rows; `whole` = it has delivered them all.
    pub fn check(&self, share: Share, read: u64, whole: bool) -> Result<(), String> {
        let tree = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broken) = &tree.broken {
            return Err(broken.clone());
        }
        if let Some(span) = tree.waiting.values().next() {
            return Err(format!("{} traces have no root, one is that of {span:?}", tree.waiting.len()));
        }
        let roots = tree.roots.len() as u64;
        if roots > read || share == Share::ALL && whole && roots < read {
            return Err(format!("{roots} traces of {read} rows"));
        }
        Ok(())
    }
}

impl Inspections {
    /// Creates the state without inspections; from then on they start and end.
    pub fn at(plan: &StagePlan, seed: u64) -> Self {
        Inspections { places: places(plan), salt: mix(seed, 77), ..Inspections::default() }
    }

    /// Returns the tracing of the next run; `None` if the scenario has no inspections.
    pub fn tracing(&mut self) -> Option<Tracing> {
        if self.places.is_empty() {
            return None;
        }
        self.spans = Arc::default();
        Some(Tracing { sink: self.spans.clone(), share: self.share(), past: None })
    }

    /// Returns the share of traced rows: all, or some.
    pub fn share(&self) -> Share {
        if self.salt.is_multiple_of(2) { Share::ALL } else { Share::new(0.3).unwrap_or(Share::ALL) }
    }

    /// Called for every event in the world; may start or end an inspection, or fetch records.
    pub fn turn(&mut self) {
        if self.places.is_empty() {
            return;
        }
        self.turns += 1;
        let random = mix(self.salt, self.turns);
        match random % 16 {
            0 | 1 if self.open.len() < MOST => self.open.push(self.taps.inspect(self.look(random >> 8))),
            2 if !self.open.is_empty() => {
                let gone = (random >> 8) as usize % self.open.len();
                drop(self.open.swap_remove(gone));
            }
            3..6 => {
                let most = (random >> 8) % 200;
                for inspection in &mut self.open {
                    let fetched = (0..most).map_while(|_| inspection.try_next()).count();
                    self.seen += fetched as u64;
                    inspection.take_left_out();
                    inspection.take_unjudged();
                }
            }
            _ => {}
        }
    }

    fn look(&self, random: u64) -> InspectionParameters {
        let number = random as usize % 3;
        let some = (0..=number as u64).map(|i| self.places[mix(random, i) as usize % self.places.len()].clone());
        let condition = match (random >> 4) % 5 {
            0 => Some(format!("{{{{ eq (index .Metadata \"{MARK}\") \"1\" }}}}")),
            1 => Some(format!("{{{{ index .Metadata \"{MARK}\" }}}}")),
            2 => Some("{{ .Payload.After.nothing.there }}".to_owned()),
            _ => None,
        };
        InspectionParameters {
            places: some.collect(),
            condition: condition.and_then(|text| CompiledCondition::compile(&text).ok()).map(Arc::new),
            per_second: [1, 100, 10_000, 1_000_000][(random >> 8) as usize % 4],
        }
    }
}
