//! The template dialect: Go's `text/template` over records, with the functions of sprig.
//!
//! A template is compiled once: the compiler parses it, resolves its functions and variables, and binds its field paths
//! to the parts of the record. Rendering then borrows from the record and writes directly to the output. Values keep
//! Go's types (an `int` does not compare with a `float64`), with these differences: the record's integers are integers
//! and not floats, a template cannot change its record, and the output, steps and depth of one rendering are limited.

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

/// The result of reading a map entry that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// No value, which prints as `<no value>`.
    NoValue,
    /// A record error.
    Error,
}

/// A compile error of a template, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// Start of the error, in bytes from the start of the text.
    pub offset: usize,
    /// Length of the error in bytes; may be 0, at the end of the text.
    pub len: usize,
    /// The error message.
    pub message: String,
    /// Remedy.
    pub hint: Option<String>,
    /// The replacement and the bytes that it replaces, if there is only one.
    pub correction: Option<(Range<usize>, String)>,
}

/// A failure of a template on a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    /// Start of the part that failed, in bytes from the start of the template.
    pub offset: usize,
    /// The error message.
    pub message: String,
    /// The kind of the failure: other data may avoid it, or not.
    pub reason: Reason,
}

/// Reason of a failure, for those who ask whether other data could avoid it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The expression does not take values of this kind, whatever they contain.
    Kind,
    /// A value is missing or null.
    Lacking,
    /// The content of a value, such as its length or form, or a limit of costs.
    Content,
    /// The template calls `fail`.
    Purpose,
}

/// A failure of a template on a record, with the name of its setting, for plugins with several templates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {error}")]
pub struct InSetting {
    /// Name of the setting.
    pub setting: Str,
    /// The failure. It is not the error's `source`, because the text already contains it.
    pub error: EvalError,
}

impl Template {
    /// Compiles a text. O(length).
    ///
    /// # Errors
    /// The first error: invalid syntax, an unknown function or variable, or a function that is rejected because it
    /// would read the environment, use the network or generate keys.
    pub fn parse(text: &str, missing: MissingKey) -> Result<Template, TemplateError> {
        Ok(Template { tree: Arc::new(parse::parse(text)?), missing })
    }

    /// Returns the text that the template was compiled from.
    pub fn source(&self) -> &str {
        &self.tree.source
    }

    /// Returns the output, if the template contains no actions and the output is therefore the source itself.
    pub fn literal(&self) -> Option<&str> {
        let plain = match self.tree.templates.first().map(|main| &*main.body) {
            None | Some([]) => self.tree.source.is_empty(),
            Some([Node::Text(at)]) => at.len() == self.tree.source.len(),
            Some(_) => false,
        };
        plain.then(|| self.source())
    }

    /// Appends the output for `record`. The cost is limited by the default [`Allowance`].
    ///
    /// # Errors
    /// The failure, with its place in the template; `out` is then unchanged. Output that is not
    /// UTF-8 is an error too.
    pub fn render(&self, record: &Record, out: &mut String) -> Result<(), EvalError> {
        eval::render(&self.tree, self.missing, record, Context::new(), out).0
    }

    /// Renders like [`Template::render`], with another cost limit.
    ///
    /// # Errors
    /// The errors of [`Template::render`]. The message for an exceeded allowance always contains the default numbers.
    pub fn render_within(&self, record: &Record, out: &mut String, allowance: Allowance) -> Result<(), EvalError> {
        eval::render(&self.tree, self.missing, record, Context::within(allowance), out).0
    }

    /// Returns the parts of the output for `record` that are probably not intended: a missing field prints as
    /// `<no value>`, an unsuitable format as `%!f(…)`. Costs as much as two renderings. Empty if the template fails on
    /// the record.
    pub fn doubts(&self, record: &Record) -> Vec<Doubt> {
        let (context, mut output) = (Context::new().with_doubts(), String::new());
        let (result, context) = eval::render(&self.tree, self.missing, record, context, &mut output);
        result.map_or_else(|_| Vec::new(), |()| context.into_doubts().into_found(&output))
    }

    /// Describes the first comparisons for `record`, with their values, such as
    /// `.Payload.After.kind is "order", compared with "Order"`. Costs as much as two renderings. Empty if the template
    /// fails on the record.
    pub fn compared(&self, record: &Record) -> Vec<String> {
        let context = Context::new().with_doubts();
        let (result, context) = eval::render(&self.tree, self.missing, record, context, &mut String::new());
        result.map_or_else(|_| Vec::new(), |()| context.into_doubts().compared)
    }

    /// Returns the parts of the output for an empty record that are probably not intended. Rendering stops early if it
    /// exceeds a small allowance.
    pub fn doubts_briefly(&self) -> Vec<Doubt> {
        let (context, mut output) = (Context::brief().with_doubts(), String::new());
        let (result, context) = eval::render(&self.tree, self.missing, &Record::default(), context, &mut output);
        result.map_or_else(|_| Vec::new(), |()| context.into_doubts().into_found(&output))
    }

    /// Renders like [`Template::render_within`], at most until a deadline, and subtracts the steps from the allowance.
    /// The second value is `true` if the rendering exceeded its limits.
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

    /// Returns the output for an empty record, or `None` if rendering exceeds a small allowance.
    pub fn render_briefly(&self) -> Option<Result<String, EvalError>> {
        let mut out = String::new();
        let (result, left) = eval::render(&self.tree, self.missing, &Record::default(), Context::brief(), &mut out);
        (!left.is_spent()).then(|| result.map(|()| out))
    }

    /// Returns the output in pieces, in their order: text that is the same for every record, and `None` for output that
    /// depends on actions.
    pub fn pieces(&self) -> impl Iterator<Item = Option<&str>> {
        let body = self.tree.templates.first().map_or(&[][..], |main| &main.body);
        body.iter().filter(|node| !matches!(node, tree::Node::Let(_))).map(|node| match node {
            tree::Node::Text(at) => self.tree.source.get(at.start as usize..at.end as usize),
            _ => None,
        })
    }

    /// Returns a predicate with the same results as the template, if the template's structure allows that.
    pub(crate) fn predicate(&self) -> Option<predicate::Predicate> {
        if self.missing == MissingKey::Error { None } else { predicate::Predicate::of(&self.tree) }
    }

    /// Returns the compiled form.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns `true` if reading a missing key is a record error.
    pub fn is_strict(&self) -> bool {
        self.missing == MissingKey::Error
    }

    /// Returns the parts of the record that the output depends on. [`Access::Everything`] if the output depends on
    /// more than the record, such as the time or random numbers.
    pub fn reads(&self) -> Access {
        reads::of(&self.tree)
    }
}

/// Returns `true` if a name below the metadata is a method and not an entry.
pub fn is_method_of_metadata(name: &str) -> bool {
    methods::is_of_metadata(name)
}

/// Returns the key of the entry that a method of metadata reads; without the entry, the method fails.
pub fn entry_of_method(name: &str) -> Option<&'static Str> {
    methods::METADATA_KEYS.iter().find(|(method, ..)| *method == name).map(|(_, key, _)| *key)
}

/// Returns `true` if a name below a key, a payload side or a map in them is a method and not a field.
pub fn is_method_of_data(name: &str) -> bool {
    methods::is_of_data(name)
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.source()).finish()
    }
}
