//! Descriptions of processors.

use std::collections::BTreeMap;

/// Description of a processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) author: String,
    pub(crate) parameters: BTreeMap<String, Parameter>,
}

impl Specification {
    /// Creates a description. Pipelines refer to the processor by `name`; name and version together must be unique.
    /// `version` is a semantic version; change it whenever the behaviour changes.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Specification {
            name: name.into(),
            version: version.into(),
            summary: String::new(),
            description: String::new(),
            author: String::new(),
            parameters: BTreeMap::new(),
        }
    }

    /// Sets the summary, one line.
    #[must_use]
    pub fn summary(self, summary: impl Into<String>) -> Self {
        Specification { summary: summary.into(), ..self }
    }

    /// Sets the description; may be Markdown.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Specification { description: description.into(), ..self }
    }

    /// Sets the author.
    #[must_use]
    pub fn author(self, author: impl Into<String>) -> Self {
        Specification { author: author.into(), ..self }
    }

    /// Returns the parameters by name. Before the processor runs, only the specification of [`crate::testing`] contains
    /// them.
    pub fn parameters(&self) -> &BTreeMap<String, Parameter> {
        &self.parameters
    }
}

/// A parameter, as hosts and their users see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Default text for a missing value; empty if there is no default.
    pub default: String,
    /// Description; may be Markdown.
    pub description: String,
    /// Kind of its values.
    pub kind: ParameterKind,
    /// Rules for its values.
    pub validations: Vec<Validation>,
}

/// Kind of the values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Text.
    String,
    /// An integer.
    Int,
    /// A number.
    Float,
    /// `true` or `false`.
    Bool,
    /// The path of a file.
    File,
    /// A duration such as `1m30s`.
    Duration,
}

impl ParameterKind {
    /// Returns the number in the protocol.
    pub(crate) const fn number(self) -> u64 {
        match self {
            ParameterKind::String => 1,
            ParameterKind::Int => 2,
            ParameterKind::Float => 3,
            ParameterKind::Bool => 4,
            ParameterKind::File => 5,
            ParameterKind::Duration => 6,
        }
    }
}

/// A rule for a value.
#[derive(Clone, Copy, Debug)]
pub enum Validation {
    /// The value must be given.
    Required,
    /// The value must be a number greater than this.
    GreaterThan(f64),
    /// The value must be a number less than this.
    LessThan(f64),
    /// The value must be one of these.
    OneOf(&'static [&'static str]),
    /// The value must not be one of these.
    NoneOf(&'static [&'static str]),
    /// The regular expression must match somewhere in the value.
    Regex(Pattern),
}

/// A regular expression.
///
/// It contains the function that applies it, so that a module without such rules does not include the engine.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    text: &'static str,
    matches: fn(&str, &str) -> Result<bool, String>,
}

impl Pattern {
    /// Creates a regular expression in the syntax of the crate `regex-lite`.
    pub const fn new(text: &'static str) -> Self {
        fn matches(pattern: &str, text: &str) -> Result<bool, String> {
            regex_lite::Regex::new(pattern).map(|regex| regex.is_match(text)).map_err(|error| error.to_string())
        }
        Pattern { text, matches }
    }
}

impl PartialEq for Validation {
    fn eq(&self, other: &Self) -> bool {
        self.on_wire() == other.on_wire()
    }
}

impl Validation {
    /// Returns the number of its type and the text of its value in the protocol.
    pub(crate) fn on_wire(&self) -> (u64, String) {
        match self {
            Validation::Required => (1, String::new()),
            Validation::GreaterThan(bound) => (2, bound.to_string()),
            Validation::LessThan(bound) => (3, bound.to_string()),
            Validation::OneOf(values) => (4, values.join(",")),
            Validation::NoneOf(values) => (5, values.join(",")),
            Validation::Regex(pattern) => (6, pattern.text.to_owned()),
        }
    }

    /// Returns what is wrong with a value that is not empty.
    pub(crate) fn problem(&self, value: &str) -> Option<String> {
        // A text that is not a number violates every bound.
        let is_number = |fits: &dyn Fn(f64) -> bool| value.parse().is_ok_and(fits);
        match self {
            Validation::Required => None,
            Validation::GreaterThan(bound) => {
                (!is_number(&|number| number > *bound)).then(|| format!("{value:?} is not greater than {bound}"))
            }
            Validation::LessThan(bound) => {
                (!is_number(&|number| number < *bound)).then(|| format!("{value:?} is not less than {bound}"))
            }
            Validation::OneOf(values) => {
                (!values.contains(&value)).then(|| format!("{value:?} is not one of {}", values.join(", ")))
            }
            Validation::NoneOf(values) => values.contains(&value).then(|| format!("{value:?} is not allowed")),
            Validation::Regex(pattern) => match (pattern.matches)(pattern.text, value) {
                Ok(true) => None,
                Ok(false) => Some(format!("{value:?} does not match {:?}", pattern.text)),
                Err(error) => Some(format!("its regular expression {:?} is not valid: {error}", pattern.text)),
            },
        }
    }
}
