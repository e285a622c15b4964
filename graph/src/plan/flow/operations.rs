//! Conditions on the operation that have the same result for every operation that can occur.

use anabranch_plugin::flow::{ConfigLocation, Flow};
use anabranch_plugin::operator::Fan;
use anabranch_record::access::Access;
use anabranch_record::{Operation, Record};

use crate::codes;
use crate::plan::graph::{Guard, Node};

/// Warns if such a condition drops every record or never applies its processor. A condition that excludes operations
/// which cannot occur is harmless. O(operations).
pub(super) fn judge(flow: &mut Flow, node: &Node, guard: &Guard) {
    let Some(step) = node.kind.operator() else { return };
    let condition = &guard.condition;
    let is_of_operation = match condition.reads() {
        Access::These(paths) => {
            !paths.is_empty() && paths.iter().all(|path| path.first().is_some_and(|it| *it == *"Operation"))
        }
        Access::Everything => false,
    };
    if !is_of_operation || condition.settled().is_some() || flow.messages().next().is_some() {
        return;
    }
    let mut verdicts = Vec::new();
    let come = Operation::ALL.into_iter().filter(|operation| flow.record.operations.contains(*operation));
    let come: Vec<Operation> = come.collect();
    for operation in &come {
        let mut record = Record::default();
        record.operation = *operation;
        let Ok(verdict) = condition.evaluate(&record) else { return };
        verdicts.push(verdict);
    }
    let same = verdicts.first().copied().filter(|first| verdicts.iter().all(|verdict| verdict == first));
    let never = step.signature.fan == Fan::Never;
    let (verb, code) = match same {
        Some(true) if never => ("holds for every record", codes::PLAN_CONDITION_ALWAYS_TRUE),
        Some(false) if !never => ("holds for no record", codes::PLAN_CONDITION_ALWAYS_FALSE),
        _ => return,
    };
    let names: Vec<&str> = come.iter().map(|operation| operation.as_str()).collect();
    let message = format!("the condition {verb}: here the operation is always {}", names.join(" or "));
    let hint = match (same, &*step.plugin) {
        (Some(true), "filter") => "a filter drops the records for which its condition holds; invert it with `not`",
        (Some(true), _) => "correct it, or remove it",
        _ => "correct it, or remove the processor",
    };
    flow.warn(code, ConfigLocation::CONDITION, message, None, Some(hint.to_owned()));
}
