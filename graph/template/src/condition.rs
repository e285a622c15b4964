//! Conditions, which select the records that a processor receives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;

use crate::codes;
use crate::template::predicate::{Predicate, verdict};
use crate::template::{Allowance, Deadline, EvalError, MissingKey, Template, TemplateError};

#[cfg(test)]
mod tests;

/// Selects rows of a strip.
pub trait Condition: Send {
    /// Sets the bit of every row for which the condition holds. Adds rows that fail to `failed`, in ascending order,
    /// and leaves their bits unset.
    fn select(&mut self, records: &[Record], out: &mut Mask, failed: &mut Vec<(usize, Fault)>);
}

/// A compiled condition: a template whose output, without surrounding white space, is one of
/// `1 t T TRUE true True 0 f F FALSE false False`. Cloning is O(1).
#[derive(Clone, Debug)]
pub struct CompiledCondition {
    template: Template,
    /// Evaluates the condition without the template, if its structure allows that.
    predicate: Option<Arc<Predicate>>,
    constant: Option<bool>,
    failure: Option<Fault>,
    witness: Option<ObserverCallback>,
}

/// A callback that receives the records before a condition evaluates them.
pub type RecordObserver = dyn Fn(&[Record]) + Send + Sync;

/// A [`RecordObserver`] callback with a `Debug` implementation.
#[derive(Clone)]
struct ObserverCallback(Arc<RecordObserver>);

impl fmt::Debug for ObserverCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

/// Limit on the work that the condition of one request may cause. Such a condition does not come from a pipeline file:
/// every caller who may inspect records can send one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of text that one evaluation may build.
    pub bytes: usize,
    /// Steps that all evaluations together may take: iterations, calls of templates and elements that functions create.
    pub steps: usize,
    /// Processor time that all evaluations together may take.
    pub time: Duration,
}

/// Result of a condition for one record within a [`Budget`].
#[derive(Clone, Debug)]
pub enum Judgement {
    /// The condition holds (`true`) or does not hold (`false`).
    Verdict(bool),
    /// The condition fails on this record.
    Failed(Fault),
    /// The budget is used up. A record fault: `condition_too_costly`.
    TooCostly(Fault),
}

/// Reason why a condition has no result for a record.
#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error("the condition needs too many steps, too much memory or too much time")]
    TooCostly,
    #[error("the condition failed at character {at}, in `{piece}`: {}", error.message)]
    Failed { at: usize, piece: Box<str>, error: EvalError },
    #[error("the condition printed {0:?}, which is neither true nor false")]
    NotBoolean(String),
}

/// Returns the place where a condition failed, in bytes from its start: `Some(None)` for the whole condition, `None`
/// for other faults.
pub fn failed_at(fault: &Fault) -> Option<Option<usize>> {
    match fault.cause().downcast_ref()? {
        NoVerdict::Failed { error, .. } => Some(Some(error.offset)),
        NoVerdict::NotBoolean(_) => Some(None),
        NoVerdict::TooCostly => None,
    }
}

/// Returns the failure of an expression in a condition; `None` for other faults.
pub fn error_of(fault: &Fault) -> Option<&EvalError> {
    match fault.cause().downcast_ref()? {
        NoVerdict::Failed { error, .. } => Some(error),
        NoVerdict::NotBoolean(_) | NoVerdict::TooCostly => None,
    }
}

impl CompiledCondition {
    /// Compiles a condition. The text must not be blank.
    ///
    /// # Errors
    /// The reason why the template does not compile.
    pub fn compile(text: &str) -> Result<Self, TemplateError> {
        let template = Template::parse(text, MissingKey::NoValue)?;
        let predicate = template.predicate().map(Arc::new);
        let mut condition = CompiledCondition { template, predicate, constant: None, failure: None, witness: None };
        if condition.template.reads() == Access::NOTHING {
            match condition.template.render_briefly().map(|rendered| condition.judge(rendered.as_deref())) {
                Some(Ok(verdict)) => condition.constant = Some(verdict),
                Some(Err(fault)) => condition.failure = Some(fault),
                None => {}
            }
        }
        Ok(condition)
    }

    /// Returns the template of the condition.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Returns the text of the condition.
    pub fn source(&self) -> &str {
        self.template.source()
    }

    /// Returns the result, if it is the same for every record. `None` for a condition that fails on every record.
    pub fn constant(&self) -> Option<bool> {
        self.constant
    }

    /// Returns the result for all records on which the condition does not fail, if its parts contradict each other or
    /// cover all cases. O(comparisons).
    pub fn settled(&self) -> Option<bool> {
        self.predicate.as_ref()?.settled()
    }

    /// Returns `true` if at least one of the two conditions holds for every record, `false` if this is unknown.
    /// O(comparisons).
    pub fn holds_where_not(&self, other: &CompiledCondition) -> bool {
        self.combined(other, |ours, theirs| format!("or ({ours}) ({theirs})")) == Some(true)
    }

    /// Returns `true` if the two conditions hold for no record both, `false` if this is unknown. O(comparisons).
    pub fn excludes(&self, other: &CompiledCondition) -> bool {
        self.combined(other, |ours, theirs| format!("and ({ours}) ({theirs})")) == Some(false)
    }

    /// Returns `true` if the other condition holds for every record for which this one holds, `false` if this is
    /// unknown. O(comparisons).
    pub fn implies(&self, other: &CompiledCondition) -> bool {
        self.combined(other, |ours, theirs| format!("and ({ours}) (not ({theirs}))")) == Some(false)
    }

    /// Returns the result of two conditions combined if it is the same for all records. Neither alone has one.
    fn combined(&self, other: &CompiledCondition, combine: impl Fn(String, String) -> String) -> Option<bool> {
        let inner = |condition: &CompiledCondition| {
            let inner = condition.source().trim().strip_prefix("{{")?.strip_suffix("}}")?.trim_matches(['-', ' ']);
            (condition.predicate.is_some() && !inner.contains("{{")).then(|| inner.to_owned())
        };
        if self.settled().is_some() || other.settled().is_some() {
            return None;
        }
        let text = combine(inner(self)?, inner(other)?);
        CompiledCondition::compile(&format!("{{{{ {text} }}}}")).ok()?.settled()
    }

    /// Returns the failure, if the condition fails on every record and a cheap evaluation shows that.
    pub fn failure(&self) -> Option<&Fault> {
        self.failure.as_ref()
    }

    /// Returns `true` if the condition evaluates typical records without building text.
    pub fn is_native(&self) -> bool {
        self.constant.is_some() || self.predicate.is_some()
    }

    /// Returns the parts of the record that the result depends on.
    pub fn reads(&self) -> Access {
        self.template.reads()
    }

    /// Creates an instance for one stage.
    pub fn instantiate(&self) -> Box<dyn Condition> {
        let condition = Box::new(Running { condition: self.clone(), output: String::new() });
        match &self.witness {
            None => condition,
            Some(witness) => Box::new(ObservedCondition { condition, witness: witness.clone() }),
        }
    }

    /// Returns the same condition, which passes records to `witness` before it evaluates them. For trials and tests.
    #[must_use]
    pub fn witnessed(&self, witness: Arc<RecordObserver>) -> CompiledCondition {
        CompiledCondition { witness: Some(ObserverCallback(witness)), ..self.clone() }
    }

    /// Evaluates the condition for one record.
    ///
    /// # Errors
    /// A record fault: `condition_failed`, `condition_not_boolean`.
    pub fn evaluate(&self, record: &Record) -> Result<bool, Fault> {
        self.decide(record, &mut String::new())
    }

    /// Evaluates the condition for one record and subtracts the cost from the budget.
    pub fn evaluate_within(&self, record: &Record, budget: &mut Budget) -> Judgement {
        let native = self.constant.or_else(|| self.predicate.as_ref().and_then(|predicate| predicate.holds(record)));
        if let Some(verdict) = native {
            return Judgement::Verdict(verdict);
        }
        let mut output = String::new();
        let mut allowance = Allowance { bytes: budget.bytes, steps: budget.steps };
        let until = Deadline::within(budget.time);
        let (rendered, spent) = self.template.render_until(record, &mut output, &mut allowance, until);
        budget.steps = allowance.steps;
        budget.time = until.left();
        if spent {
            return Judgement::TooCostly(Fault::record(codes::CONDITION_TOO_COSTLY, NoVerdict::TooCostly));
        }
        match self.judge(rendered.as_ref().map(|()| output.as_str())) {
            Ok(verdict) => Judgement::Verdict(verdict),
            Err(fault) => Judgement::Failed(fault),
        }
    }

    fn decide(&self, record: &Record, output: &mut String) -> Result<bool, Fault> {
        if let Some(verdict) = self.constant {
            return Ok(verdict);
        }
        match self.predicate.as_ref().and_then(|predicate| predicate.holds(record)) {
            Some(verdict) => Ok(verdict),
            None => self.render(record, output),
        }
    }

    /// Evaluates the template, with `output` as scratch space.
    fn render(&self, record: &Record, output: &mut String) -> Result<bool, Fault> {
        output.clear();
        let rendered = self.template.render(record, output);
        self.judge(rendered.as_ref().map(|()| output.as_str()))
    }

    fn judge(&self, rendered: Result<&str, &EvalError>) -> Result<bool, Fault> {
        let output = rendered.map_err(|error| {
            let error = error.clone();
            let at = self.source().get(..error.offset).map_or(0, |before| before.chars().count()) + 1;
            let piece = piece(self.source(), error.offset).into();
            Fault::record(codes::CONDITION_FAILED, NoVerdict::Failed { at, piece, error })
        })?;
        verdict(output).ok_or_else(|| {
            const SHOWN: usize = 80;
            let mut shown: String = output.chars().take(SHOWN).collect();
            if shown.len() < output.len() {
                shown.push('…');
            }
            Fault::record(codes::CONDITION_NOT_BOOLEAN, NoVerdict::NotBoolean(shown))
        })
    }
}

/// Returns the expression that failed: the text from a place to the end of its parentheses or braces.
fn piece(source: &str, offset: usize) -> String {
    const SHOWN: usize = 60;
    let rest = source.get(offset..).unwrap_or_default();
    let rest = rest.find("}}").map_or(rest, |end| &rest[..end]);
    let (mut depth, mut quote, mut end) = (0_u32, None, rest.len());
    for (at, c) in rest.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '`') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => {
                end = at;
                break;
            }
            (None, ')') => depth -= 1,
            _ => {}
        }
    }
    let piece = rest[..end].trim_end_matches('-').trim();
    let mut shown: String = piece.chars().take(SHOWN).collect();
    if shown.len() < piece.len() {
        shown.push('…');
    }
    shown
}

struct ObservedCondition {
    condition: Box<dyn Condition>,
    witness: ObserverCallback,
}

impl Condition for ObservedCondition {
    fn select(&mut self, records: &[Record], out: &mut Mask, failed: &mut Vec<(usize, Fault)>) {
        self.witness.0(records);
        self.condition.select(records, out, failed);
    }
}

struct Running {
    condition: CompiledCondition,
    output: String,
}

impl Condition for Running {
    fn select(&mut self, records: &[Record], out: &mut Mask, failed: &mut Vec<(usize, Fault)>) {
        for (row, record) in records.iter().enumerate() {
            match self.condition.decide(record, &mut self.output) {
                Ok(true) => out.set(row),
                Ok(false) => {}
                Err(fault) => failed.push((row, fault)),
            }
        }
    }
}
