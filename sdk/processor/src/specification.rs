//! Descriptions of processors.

use std::collections::BTreeMap;

use crate::parameters::Validation;

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
