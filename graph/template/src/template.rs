//! The template dialect: Go's `text/template` over records, with the functions of sprig.
//!
//! A template is compiled once: parsed, its functions and variables resolved, its field paths tied to
//! the parts of the record. Rendering then borrows from the record and writes straight to the output.
//! Values keep Go's types (an `int` does not compare with a `float64`), with these differences: the
//! record's integers are integers and not floats, a template cannot change its record, and one
//! rendering has a bound on its output, its steps and its depth.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::text::Str;

mod builtins;
mod doubt;
mod eval;
mod format;
pub mod functions;
mod lex;
mod methods;
mod missing;
mod out;
mod parse;
pub mod predicate;
mod reads;
pub mod reference;
pub mod slips;
pub mod tree;
mod val;

#[cfg(test)]
mod tests;

pub use doubt::{Doubt, DoubtKind};
pub use functions::Allowance;
use functions::Context;
pub(crate) use functions::Deadline;
pub use missing::NO_VALUE;
use tree::{Node, Tree};

/// A compiled template. Cloning is O(1).
#[derive(Clone)]
pub struct Template {
    tree: Arc<Tree>,
    missing: MissingKey,
}

/// What reading a map entry that is not there gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// No value, which prints as `<no value>`.
    NoValue,
    /// An error of the record.
    Error,
}

/// Why a text is no template, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// Where it is, in bytes from the start of the text.
    pub offset: usize,
    /// How many bytes it covers; may be 0, at the end of the text.
    pub len: usize,
    /// What is wrong.
    pub message: String,
    /// Remedy.
    pub hint: Option<String>,
    /// The replacement and the bytes that it replaces, if there is only one.
    pub correction: Option<(Range<usize>, String)>,
}

/// Why a template failed on a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    /// Where the failing part is, in bytes from the start of the template.
    pub offset: usize,
    /// What went wrong.
    pub message: String,
}

/// Why the template in a setting failed on a record, where a step has several templates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {error}")]
pub struct InSetting {
    /// Name of the setting.
    pub setting: Str,
    /// What went wrong. No source: the text says it already.
    pub error: EvalError,
}

impl Template {
    /// Compiles a text. O(length).
    ///
    /// # Errors
    /// The first thing that is wrong with it: syntax, an unknown function or variable, a function
    /// that is refused because it would read the environment, use the network or make keys.
    pub fn parse(text: &str, missing: MissingKey) -> Result<Template, TemplateError> {
        Ok(Template { tree: Arc::new(parse::parse(text)?), missing })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.tree.source
    }

    /// The output, where it is the source itself because there is no action in it.
    pub fn literal(&self) -> Option<&str> {
        let plain = match self.tree.templates.first().map(|main| &*main.body) {
            None | Some([]) => self.tree.source.is_empty(),
            Some([Node::Text(at)]) => at.len() == self.tree.source.len(),
            Some(_) => false,
        };
        plain.then(|| self.source())
    }

    /// Appends the output for `record`. What it costs is bounded: see the module's limits.
    ///
    /// # Errors
    /// What failed, with its place in the template; `out` is then as it was before. Output that is not
    /// UTF-8 is an error too.
    pub fn render(&self, record: &Record, out: &mut String) -> Result<(), EvalError> {
        eval::render(&self.tree, self.missing, record, Context::new(), out).0
    }

    /// As [`Template::render`], with another bound of what it costs.
    ///
    /// # Errors
    /// As there. That it takes more than its allowance is said with the numbers of the full one.
    pub fn render_within(&self, record: &Record, out: &mut String, allowance: Allowance) -> Result<(), EvalError> {
        eval::render(&self.tree, self.missing, record, Context::within(allowance), out).0
    }

    /// What is hardly meant in the output for `record`: a field that is not there prints as `<no value>`, a format that
    /// does not fit as `%!f(…)`. Costs as much as two renderings. Nothing for a record on which the template fails.
    pub fn doubts(&self, record: &Record) -> Vec<Doubt> {
        let (context, mut output) = (Context::new().with_doubts(), String::new());
        let (result, context) = eval::render(&self.tree, self.missing, record, context, &mut output);
        result.map_or_else(|_| Vec::new(), |()| context.into_doubts().into_found(&output))
    }

    /// What the first comparisons for `record` compare, with the values: `.Payload.After.kind is "order", compared with
    /// "Order"`. Costs as much as two renderings. Nothing for a record on which the template fails.
    pub fn compared(&self, record: &Record) -> Vec<String> {
        let context = Context::new().with_doubts();
        let (result, context) = eval::render(&self.tree, self.missing, record, context, &mut String::new());
        result.map_or_else(|_| Vec::new(), |()| context.into_doubts().compared)
    }

    /// What is hardly meant in the output for an empty record, where finding out takes next to nothing.
    pub fn doubts_briefly(&self) -> Vec<Doubt> {
        let (context, mut output) = (Context::brief().with_doubts(), String::new());
        let (result, context) = eval::render(&self.tree, self.missing, &Record::default(), context, &mut output);
        result.map_or_else(|_| Vec::new(), |()| context.into_doubts().into_found(&output))
    }

    /// As [`Template::render_within`], until a deadline at most, and takes the steps it needed off the allowance.
    /// Whether it took more than it may is the second value.
    pub(crate) fn render_until(
        &self,
        record: &Record,
        out: &mut String,
        allowance: &mut Allowance,
        until: Deadline,
    ) -> (Result<(), EvalError>, bool) {
        let context = Context::within(*allowance).until(until);
        let (result, left) = eval::render(&self.tree, self.missing, record, context, out);
        allowance.steps = left.steps_left();
        (result, left.is_spent())
    }

    /// What rendering an empty record gives, where it takes next to nothing.
    pub fn render_briefly(&self) -> Option<Result<String, EvalError>> {
        let mut out = String::new();
        let (result, left) = eval::render(&self.tree, self.missing, &Record::default(), Context::brief(), &mut out);
        (!left.is_spent()).then(|| result.map(|()| out))
    }

    /// The same verdict without the template, for a condition whose shape allows it.
    pub(crate) fn predicate(&self) -> Option<predicate::Predicate> {
        if self.missing == MissingKey::Error { None } else { predicate::Predicate::of(&self.tree) }
    }

    /// What it was compiled to.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Whether reading a key that is missing fails the record.
    pub fn is_strict(&self) -> bool {
        self.missing == MissingKey::Error
    }

    /// Which parts of the record its output depends on. Everything for one whose output depends on
    /// more than the record: on the time, on chance.
    pub fn reads(&self) -> Access {
        reads::of(&self.tree)
    }
}

/// Whether a name below the metadata is a method and not an entry.
pub fn is_method_of_metadata(name: &str) -> bool {
    methods::is_of_metadata(name)
}

/// Whether a name below a key, a payload side or a map in them is a method and not a field.
pub fn is_method_of_data(name: &str) -> bool {
    methods::is_of_data(name)
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.source()).finish()
    }
}
