//! Conditions with the same result for all records of a trial, and trials in which all records are dropped.

use std::sync::PoisonError;

use anabranch_plugin::flow::Place;
use anabranch_plugin::secret::mask;
use anabranch_record::Record;
use anabranch_template::condition::CompiledCondition;

use super::{ObservedNode, Observer, ProbableMistake, guard, plugin};
use crate::codes;
use crate::plan::flow::located;
use crate::plan::graph::NodeKind;
use crate::plan::stage::StageId;

/// Minimum number of records before a trial reports anything: one record shows no pattern.
const ENOUGH: u64 = 2;

/// Results of a condition so far.
#[derive(Default)]
pub(super) struct Verdicts {
    held: u64,
    held_not: u64,
    /// The comparisons in the first record for which the condition did not hold.
    compared: Vec<String>,
}

impl Observer {
    /// Notes the result of a condition for a record. Constant conditions are checked at compile time.
    pub(super) fn decide(&self, stage: StageId, step: usize, condition: &CompiledCondition, record: &Record) {
        if condition.constant().is_some() {
            return;
        }
        let Ok(verdict) = condition.evaluate(record) else { return };
        let first = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let verdicts = seen.verdicts.entry((stage, step)).or_default();
            *(if verdict { &mut verdicts.held } else { &mut verdicts.held_not }) += 1;
            !verdict && verdicts.held_not == 1
        };
        if first {
            let compared = condition.template().compared(record);
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.verdicts.entry((stage, step)).or_default().compared = compared;
        }
    }

    /// Returns the conditions that held for none, or for all, of at least two records, and the keys that records share.
    /// For trials, which read few records; the records of a test may be alike on purpose.
    pub fn verdicts(&self) -> Vec<ProbableMistake> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for (&(stage, step), verdicts) in &seen.verdicts {
            let Some(ObservedNode { node, .. }) = self.step(stage, step) else { continue };
            let of = verdicts.held + verdicts.held_not;
            let drops = *plugin(node) == *"filter";
            let (code, message, hint) = match (verdicts.held, verdicts.held_not) {
                _ if of < ENOUGH => continue,
                (0, _) => {
                    let mut message = format!("the condition held for none of {of} records");
                    if !verdicts.compared.is_empty() {
                        message.push_str(": in the first one ");
                        message.push_str(&verdicts.compared.join("; "));
                    }
                    let nothing = if drops { ", so no record was dropped" } else { "" };
                    message.push_str(nothing);
                    (
                        codes::CONDITION_NEVER_HELD,
                        message,
                        "check the compared values; read more records with --records",
                    )
                }
                (_, 0) if drops => {
                    let message = format!("every record was dropped: the condition held for all {of} records");
                    (
                        codes::CONDITION_ALWAYS_HELD,
                        message,
                        "a filter drops the records for which its condition holds; invert it with `not`",
                    )
                }
                (_, 0) => {
                    let message = format!("the condition held for all {of} records");
                    (
                        codes::CONDITION_ALWAYS_HELD,
                        message,
                        "check the compared values; read more records with --records",
                    )
                }
                _ => continue,
            };
            let (span, path) = located(node, guard(node), &Place::CONDITION);
            found.push(ProbableMistake {
                node: node.id.clone(),
                plugin: plugin(node),
                path,
                span,
                code,
                message: mask(&message, &self.secrets),
                hint: Some(hint.to_owned()),
                records: of,
                of,
            });
        }
        found.extend(self.shared_keys(&seen));
        found.extend(self.constant_keys(&seen));
        found
    }

    /// Reports that at least two records, and all of them, were dropped by several steps, or by one step without a
    /// condition. `drops` has the place of each step and the number of records it dropped, in processing order.
    pub fn all_dropped(&self, drops: &[(StageId, usize, u64)]) -> Option<ProbableMistake> {
        let (stage, step, _) = *drops.last()?;
        let node = &self.step(stage, step)?.node;
        let of = drops.iter().map(|(.., count)| count).sum();
        // A filter that drops all records is already reported by `verdicts`.
        let is_filter = *plugin(node) == *"filter";
        if of < ENOUGH || (drops.len() < 2 && is_filter) {
            return None;
        }
        let each = drops.iter().filter_map(|(stage, step, count)| {
            let node = &self.step(*stage, *step)?.node;
            Some(format!("{} dropped {count}", node.id))
        });
        let message = match drops.len() {
            1 => format!("it dropped all {of} records"),
            _ => format!("none of {of} records remained: {}", each.collect::<Vec<_>>().join(", ")),
        };
        let hint = match drops.iter().any(|(stage, step, _)| self.step(*stage, *step).is_some_and(is_of_script)) {
            true => {
                "a script drops a record when `process` returns null: check its comparisons; read more records with \
                 --records"
            }
            false if matches!(node.kind, NodeKind::Route(_)) => {
                "no destination has a condition that holds for them: check the conditions, or name a destination in \
                 `unmatched`"
            }
            false if is_filter => "a filter drops the records for which its condition holds; invert it with `not`",
            false => "check which records the processor drops; read more records with --records",
        };
        let (span, path) = located(node, guard(node), &Place::CONDITION);
        Some(ProbableMistake {
            node: node.id.clone(),
            plugin: plugin(node),
            path,
            span,
            code: codes::CONDITION_ALL_DROPPED,
            message,
            hint: Some(hint.to_owned()),
            records: of,
            of,
        })
    }
}

fn is_of_script(step: &ObservedNode) -> bool {
    *plugin(&step.node) == *"custom.javascript"
}
