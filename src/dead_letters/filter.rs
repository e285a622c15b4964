//! Which letters are wanted, and what is to be said where none is.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_plugin::letter::Letter;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_template::TemplateError;
use anabranch_template::condition::{Budget, CompiledCondition, Judgement};

use crate::runtime::EXPRESSIONS;
use crate::store::letters::nanos;

/// What the condition of one request may cost, however many letters it judges.
pub const BUDGET: Budget = Budget { bytes: 16 << 20, steps: 100_000_000, time: Duration::from_secs(10) };

/// The budget of a request is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooCostly;

/// Why a condition can choose no letters.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// Compiling it takes longer than the process lives, or crashes the compiler.
    #[error("the condition could not be compiled")]
    Interrupted,
    /// It is no template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// It gives no verdict, whatever the record is: why, and the remedy.
    #[error("the condition fails for every record: {0}")]
    Fails(String, Option<String>),
}

impl ConditionError {
    /// Its stable code.
    pub fn code(&self) -> &'static str {
        match self {
            ConditionError::Template(_) | ConditionError::Interrupted => "dlq.invalid_condition",
            ConditionError::Fails(..) => "plan.condition_fails",
        }
    }

    /// Remedy.
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            ConditionError::Template(error) => error.hint.as_deref(),
            ConditionError::Interrupted => None,
            ConditionError::Fails(_, Some(hint)) => Some(hint),
            ConditionError::Fails(_, None) => {
                Some("it is a template that gives true or false, as {{ eq .Operation.String \"create\" }}")
            }
        }
    }
}

/// The condition of a text.
///
/// # Errors
/// It can hold for no record, whatever the record is, because it fails.
pub fn condition(text: &str) -> Result<CompiledCondition, ConditionError> {
    let condition = CompiledCondition::compile(text)?;
    match anabranch_plugin::flow::Flow::no_verdict(&condition) {
        Some((why, hint)) => {
            // What is said of a step says it of the condition here.
            let said = ["every record fails here: ", "the condition fails for every record: "];
            let why = said.iter().find_map(|said| why.strip_prefix(said)).unwrap_or(&why);
            Err(ConditionError::Fails(why.to_owned(), hint))
        }
        None => Ok(condition),
    }
}

/// The condition of a text that a client gives, compiled on a thread for such texts.
///
/// # Errors
/// As [`condition`].
pub async fn condition_of_client(text: &str) -> Result<CompiledCondition, ConditionError> {
    let text = text.to_owned();
    EXPRESSIONS.run(move || condition(&text)).await.unwrap_or(Err(ConditionError::Interrupted))
}

/// Which letters are wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those that failed there.
    pub node: Option<String>,
    /// Those that failed at that time or later, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// Those for whose record this holds; it does not hold where it fails.
    pub condition: Option<CompiledCondition>,
}

/// What was seen of letters that a filter did not take.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Where letters failed that are of another node than the wanted one.
    pub(super) nodes: BTreeSet<Str>,
    /// Whether one was of the wanted node.
    pub(super) is_of_node: bool,
    /// Letters that the condition gave no verdict on.
    pub(super) unjudged: u64,
    /// What it failed of on the first of them.
    pub(super) fault: Option<Fault>,
}

impl Filter {
    /// Whether a letter is wanted. The condition judges only what all else holds for.
    ///
    /// # Errors
    /// The condition has used up the budget.
    pub(super) fn takes(&self, letter: &Letter, passed: &mut Passed, budget: &mut Budget) -> Result<bool, TooCostly> {
        if self.node.as_ref().is_some_and(|node| *node != *letter.node) {
            // Where a letter failed is not always known.
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
        let code = |text| condition(text).map_or_else(|error| error.code(), |_| "");
        assert_eq!(code("{{ eq"), "dlq.invalid_condition");
        for never in ["hello", "", "{{ 2 }}", "{{ index (list 1) 5 }}", "{{ eq .Nix 1 }}", "{{ .Key }}"] {
            assert_eq!(code(never), "plan.condition_fails", "{never}");
        }
        for good in ["true", "{{ false }}", "{{ .Metadata.a }}", r#"{{ eq .Metadata.a "b" }}"#] {
            assert_eq!(code(good), "", "{good}");
        }
    }
}
