//! Filters of dead letters, and details for the case that none matches.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_plugin::letter::Letter;
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_template::TemplateError;
use anabranch_template::condition::{Budget, CompiledCondition, Judgement};

use anabranch_process::runtime::EXPRESSIONS;
use anabranch_store::letters::nanos;

use crate::codes;

/// Budget of the condition of one request, over all dead letters that it judges.
pub const BUDGET: Budget = Budget { bytes: 16 << 20, steps: 100_000_000, time: Duration::from_secs(10) };

/// The budget of a request is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooCostly;

/// Reason why a condition cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// Compiling the condition panicked, or the process ended.
    #[error("the condition could not be compiled")]
    Interrupted,
    /// The condition is not a valid template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The condition fails for every record: the reason, and the remedy.
    #[error("the condition fails for every record: {0}")]
    Fails(String, Option<String>),
}

impl ConditionError {
    /// Returns the stable code of the error.
    pub fn code(&self) -> Code {
        match self {
            ConditionError::Template(_) | ConditionError::Interrupted => codes::DLQ_INVALID_CONDITION,
            ConditionError::Fails(..) => codes::PLAN_CONDITION_FAILS,
        }
    }

    /// Returns the remedy, if there is one.
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            ConditionError::Template(error) => error.hint.as_deref(),
            ConditionError::Interrupted => None,
            ConditionError::Fails(_, Some(hint)) => Some(hint),
            ConditionError::Fails(_, None) => {
                Some("write a template that returns true or false, for example {{ eq .Operation.String \"create\" }}")
            }
        }
    }
}

/// Compiles a condition.
///
/// # Errors
/// The condition is not valid, or fails for every record.
pub fn condition(text: &str) -> Result<CompiledCondition, ConditionError> {
    let condition = CompiledCondition::compile(text)?;
    match anabranch_plugin::flow::Flow::no_verdict(&condition) {
        Some((why, hint)) => {
            // Removes prefixes of the message for the condition of a processor.
            let said = ["every record fails here: ", "the condition fails for every record: "];
            let why = said.iter().find_map(|said| why.strip_prefix(said)).unwrap_or(&why);
            Err(ConditionError::Fails(why.to_owned(), hint))
        }
        None => Ok(condition),
    }
}

/// Compiles a condition of a client on a thread for such texts.
///
/// # Errors
/// The errors of [`condition`], or the compilation was interrupted.
pub async fn condition_of_client(text: &str) -> Result<CompiledCondition, ConditionError> {
    let text = text.to_owned();
    EXPRESSIONS.run(move || condition(&text)).await.unwrap_or(Err(ConditionError::Interrupted))
}

/// A filter of dead letters. Absent criteria match all dead letters.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Matches dead letters that failed at this node.
    pub node: Option<String>,
    /// Matches dead letters that failed at this time or later, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// Matches dead letters whose record fulfils this condition. A record for which it fails does not match.
    pub condition: Option<CompiledCondition>,
}

/// Dead letters of a search that did not match.
#[derive(Debug, Default)]
pub(super) struct NonMatches {
    /// Nodes of dead letters that failed at another node than the requested one.
    pub(super) nodes: BTreeSet<Str>,
    /// True if a dead letter failed at the requested node.
    pub(super) is_of_node: bool,
    /// Number of dead letters for which the condition failed.
    pub(super) unjudged: u64,
    /// The failure of the condition on the first of them.
    pub(super) fault: Option<Fault>,
}

impl Filter {
    /// Returns `true` if a dead letter matches. The condition is evaluated only if all other criteria match.
    ///
    /// # Errors
    /// The condition has used up the budget.
    pub(super) fn takes(
        &self,
        letter: &Letter,
        passed: &mut NonMatches,
        budget: &mut Budget,
    ) -> Result<bool, TooCostly> {
        if self.node.as_ref().is_some_and(|node| *node != *letter.node) {
            // The node of a dead letter is not always known.
            if !letter.node.is_empty() && !passed.nodes.contains(&letter.node) {
                passed.nodes.insert(letter.node.clone());
            }
            return Ok(false);
        }
        passed.is_of_node = true;
        if self.since.is_some_and(|since| nanos(letter.at) < since) {
            return Ok(false);
        }
        let Some(condition) = &self.condition else { return Ok(true) };
        match condition.evaluate_within(&letter.record, budget) {
            Judgement::Verdict(verdict) => Ok(verdict),
            Judgement::Failed(fault) => {
                passed.unjudged += 1;
                passed.fault.get_or_insert(fault);
                Ok(false)
            }
            Judgement::TooCostly(_) => Err(TooCostly),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_on_every_record_is_no_condition() {
        let code = |text| condition(text).map_or_else(|error| error.code().name(), |_| "");
        assert_eq!(code("{{ eq"), "dlq.invalid_condition");
        for never in ["hello", "", "{{ 2 }}", "{{ index (list 1) 5 }}", "{{ eq .Nix 1 }}", "{{ .Key }}"] {
            assert_eq!(code(never), "plan.condition_fails", "{never}");
        }
        for good in ["true", "{{ false }}", "{{ .Metadata.a }}", r#"{{ eq .Metadata.a "b" }}"#] {
            assert_eq!(code(good), "", "{good}");
        }
    }
}
