//! Processors that check the observed shape of their records themselves.

use std::sync::PoisonError;

use anabranch_plugin::flow::{Flow, RecordShape};
use anabranch_plugin::secret::mask;
use anabranch_record::Record;

use super::{ObservedNode, ObservedProblems, Observer, ProbableMistake, plugin};
use crate::codes;
use crate::plan::flow::{located, remarks_of, remarks_on};
use crate::plan::stage::StageId;

/// Minimum number of records before a missing field is reported, if no similar field exists.
const ENOUGH: u64 = 2;

impl Observer {
    /// Adds a record to the observed shape of the records that enter a step.
    pub(super) fn note_shape(&self, stage: StageId, step: usize, record: &Record) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = match seen.shapes.get(&(stage, step)) {
            Some((shape, count)) => (shape.and(record), count + 1),
            None => (RecordShape::of(record), 1),
        };
        seen.shapes.insert((stage, step), shape);
    }

    /// Returns `true` if a remark of the step on the observed shape contains `text`.
    pub(super) fn is_said(&self, seen: &ObservedProblems, stage: StageId, step: usize, text: &str) -> bool {
        let shape = seen.shapes.get(&(stage, step)).map(|(shape, _)| shape);
        let node = self.step(stage, step).map(|step| &step.node);
        let remarks = node.zip(shape).map(|(node, shape)| remarks_of(node, Flow::observed(shape.clone())));
        remarks.is_some_and(|remarks| remarks.iter().any(|remark| remark.message.contains(text)))
    }

    /// Returns the remarks of steps on the observed shapes that they do not make on the inferred shapes.
    pub(super) fn of_steps(&self, seen: &ObservedProblems) -> Vec<ProbableMistake> {
        let mut found = Vec::new();
        for (&(stage, step), (shape, count)) in &seen.shapes {
            let Some(ObservedNode { node, known, .. }) = self.step(stage, step) else { continue };
            let unknown = RecordShape::unknown();
            for remark in remarks_on(node, known.as_ref().unwrap_or(&unknown), shape) {
                if remark.code == codes::FLOW_NO_FIELD && remark.hint.is_none() && *count < ENOUGH {
                    continue;
                }
                let (span, path) = located(node, None, &remark.place);
                found.push(ProbableMistake {
                    node: node.id.clone(),
                    plugin: plugin(node),
                    path,
                    span,
                    code: remark.code,
                    message: mask(&remark.message, &self.secrets),
                    hint: remark.hint.as_deref().map(|hint| mask(hint, &self.secrets)),
                    records: *count,
                    of: *count,
                });
            }
        }
        found
    }
}
