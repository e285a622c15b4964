//! What a processor says about itself.

use std::collections::BTreeMap;

use crate::parameters::Validation;

/// What a processor says about itself.
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
    /// The name by which pipelines refer to the processor, unique together with the version, which is a semantic
    /// version and changes whenever the behaviour does.
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

    /// What it does, in one line.
    #[must_use]
    pub fn summary(self, summary: impl Into<String>) -> Self {
        Specification { summary: summary.into(), ..self }
    }

    /// What it does at length; may be Markdown.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Specification { description: description.into(), ..self }
    }

    /// Who wrote it.
    #[must_use]
    pub fn author(self, author: impl Into<String>) -> Self {
        Specification { author: author.into(), ..self }
    }

    /// The parameters, by name. Before the processor runs, only those that [`crate::testing`] shows are there.
    pub fn parameters(&self) -> &BTreeMap<String, Parameter> {
        &self.parameters
    }
}

/// A parameter, as hosts and their users see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The text that stands for no text; empty without a default.
    pub default: String,
    /// What it is for; may be Markdown.
    pub description: String,
    /// The kind of its values.
    pub kind: ParameterKind,
    /// What values have to meet.
    pub validations: Vec<Validation>,
}

/// The kind of the values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Text.
    String,
    /// A whole number.
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
    /// The number on the wire.
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
