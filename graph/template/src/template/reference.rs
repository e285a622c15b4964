//! Reference of the functions and methods that templates may call: what each does, an example and its result.
//!
//! Texts are grouped by subject. Results are not stored: [`FunctionEntry::outcome`] renders the
//! example.

use std::sync::LazyLock;

use anabranch_record::Record;

use super::functions::{self, Function, Param};
use super::{EvalError, MissingKey, Template, TemplateError};

mod dates;
mod encoding;
mod lists;
mod logic;
mod maps;
mod methods;
mod numbers;
mod others;
mod output;
mod patterns;
mod strings;

/// Functions of one subject.
#[derive(Debug)]
pub struct FunctionGroup {
    /// The subject, as a title.
    pub title: &'static str,
    /// The functions, the most used first.
    pub entries: &'static [FunctionEntry],
}

/// One function, or several that do the same.
#[derive(Debug)]
pub struct FunctionEntry {
    /// The names of the function: the usual one, then its aliases.
    pub names: &'static [&'static str],
    /// Names of the parameters in order. `name...` takes any number of arguments, `[name]` at most one.
    pub parameters: &'static str,
    /// One sentence: what the function does.
    pub summary: &'static str,
    /// A template that calls it.
    pub example: &'static str,
    /// The form of the result, if the result differs from one rendering to the next.
    pub form: Option<&'static str>,
}

/// Reason why an example has no output.
#[derive(Debug, thiserror::Error)]
pub enum ExampleError {
    /// It does not compile.
    #[error(transparent)]
    Parse(#[from] TemplateError),
    /// It fails on the example record.
    #[error(transparent)]
    Eval(#[from] EvalError),
}

/// A parameter with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Type of its arguments: `any`, `text`, `bool`, `int`, `float`, `map` or `time`.
    pub kind: &'static str,
    /// How many arguments it takes.
    pub count: Count,
}

/// How many arguments a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly one.
    One,
    /// One or none.
    Optional,
    /// Any number.
    Any,
}

/// All functions by subject.
pub static FUNCTIONS: &[FunctionGroup] = &[
    FunctionGroup { title: "Comparison and logic", entries: logic::COMPARISON },
    FunctionGroup { title: "Defaults and choices", entries: logic::DEFAULTS },
    FunctionGroup { title: "Printing", entries: output::PRINTING },
    FunctionGroup { title: "Text", entries: strings::TEXT },
    FunctionGroup { title: "Case of letters", entries: strings::CASE },
    FunctionGroup { title: "Shape of text", entries: strings::SHAPE },
    FunctionGroup { title: "Splitting and joining text", entries: strings::PIECES },
    FunctionGroup { title: "Regular expressions", entries: patterns::ENTRIES },
    FunctionGroup { title: "Whole numbers", entries: numbers::WHOLE },
    FunctionGroup { title: "Numbers with a fraction", entries: numbers::FRACTIONS },
    FunctionGroup { title: "Number sequences", entries: numbers::SEQUENCES },
    FunctionGroup { title: "Lists", entries: lists::ENTRIES },
    FunctionGroup { title: "Maps", entries: maps::ENTRIES },
    FunctionGroup { title: "Dates and times", entries: dates::ENTRIES },
    FunctionGroup { title: "JSON", entries: encoding::JSON },
    FunctionGroup { title: "Encodings and checksums", entries: encoding::ENCODINGS },
    FunctionGroup { title: "Escaping", entries: output::ESCAPING },
    FunctionGroup { title: "URLs and paths", entries: others::PLACES },
    FunctionGroup { title: "Versions", entries: others::VERSIONS },
    FunctionGroup { title: "Types", entries: others::TYPES },
    FunctionGroup { title: "Random values", entries: others::RANDOM },
    FunctionGroup { title: "Other functions", entries: others::REST },
];

/// Methods, by the value that has them. Those of the metadata are [`metadata_methods`].
pub static METHODS: &[FunctionGroup] = &[
    FunctionGroup { title: "The operation", entries: methods::OPERATION },
    FunctionGroup { title: "The position", entries: methods::POSITION },
    FunctionGroup { title: "The record", entries: methods::RECORD },
    FunctionGroup { title: "The key and the sides of the payload", entries: methods::DATA },
    FunctionGroup { title: "Times", entries: methods::TIME },
    FunctionGroup { title: "Durations", entries: methods::DURATION },
    FunctionGroup { title: "Versions", entries: methods::VERSION },
];

/// The methods of the metadata: the name, the entry that the method reads, and the type of its result.
pub fn metadata_methods() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    super::methods::METADATA_KEYS.iter().map(|(method, key, kind)| (*method, key.as_str(), *kind))
}

/// The record of the examples, as JSON.
pub const EXAMPLE_RECORD: &str = r#"{
  "position": "b2Zmc2V0IDQy",
  "operation": "update",
  "metadata": {
    "recfmt.collection": "orders",
    "recfmt.createdAt": "1772357400000000000",
    "region": "eu"
  },
  "key": "b3JkZXItNw==",
  "payload": {
    "before": { "id": 7, "status": "new" },
    "after": {
      "id": 7,
      "status": "paid",
      "amount": 12.5,
      "quantity": 3,
      "note": "",
      "coupon": null,
      "paid_at": "2026-03-01T09:30:00Z",
      "customer": { "name": "Ada Lovelace", "email": "ada@example.com" },
      "tags": ["new", "gift", "new"]
    }
  }
}"#;

/// The record of the examples. A test parses its text.
pub fn example_record() -> &'static Record {
    static RECORD: LazyLock<Record> =
        LazyLock::new(|| Record::from_json(EXAMPLE_RECORD.as_bytes()).unwrap_or_default());
    &RECORD
}

/// The output of a template for the record of the examples.
///
/// # Errors
/// The template does not compile, or it fails on this record.
pub fn render_example(template: &str) -> Result<String, ExampleError> {
    let mut output = String::new();
    Template::parse(template, MissingKey::NoValue)?.render(example_record(), &mut output)?;
    Ok(output)
}

/// The entry of a function, by any of its names.
pub fn find(name: &str) -> Option<&'static FunctionEntry> {
    FUNCTIONS.iter().flat_map(|group| group.entries).find(|entry| entry.names.contains(&name))
}

/// All functions that templates may not call although sprig has them, each group with the reason.
pub fn refused() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    functions::REFUSED.iter().copied()
}

impl FunctionEntry {
    const fn new(
        names: &'static [&'static str],
        parameters: &'static str,
        summary: &'static str,
        example: &'static str,
    ) -> FunctionEntry {
        FunctionEntry { names, parameters, summary, example, form: None }
    }

    /// The same, with the form of a result that differs from one rendering to the next.
    const fn giving(self, form: &'static str) -> FunctionEntry {
        FunctionEntry { form: Some(form), ..self }
    }

    /// The usual name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// The other names.
    pub fn aliases(&self) -> &'static [&'static str] {
        self.names.get(1..).unwrap_or_default()
    }

    /// The parameters with the types that `function` declares.
    pub fn parameters_of(&self, function: &Function) -> Vec<Parameter> {
        let kinds = function.params.iter().copied().chain(function.rest);
        self.parameters.split_whitespace().zip(kinds).map(|(word, kind)| Parameter::read(word, kind)).collect()
    }

    /// The parameters of the function of this name. Empty for a method.
    pub fn declared(&self) -> Vec<Parameter> {
        functions::find(self.name()).map(|function| self.parameters_of(function)).unwrap_or_default()
    }

    /// The output of the example, or its form.
    ///
    /// # Errors
    /// The example fails, as it does for `fail`.
    pub fn outcome(&self) -> Result<String, ExampleError> {
        self.form.map_or_else(|| render_example(self.example), |form| Ok(form.to_owned()))
    }
}

impl Parameter {
    fn read(word: &'static str, kind: Param) -> Parameter {
        let kind = match kind {
            Param::Any | Param::Reflect => "any",
            Param::Text => "text",
            Param::Bool => "bool",
            Param::Int => "int",
            Param::Float => "float",
            Param::Map => "map",
            Param::Time => "time",
        };
        let (name, count) = match (word.strip_suffix("..."), word.strip_prefix('[').and_then(|w| w.strip_suffix(']'))) {
            (Some(name), _) => (name, Count::Any),
            (None, Some(name)) => (name, Count::Optional),
            (None, None) => (word, Count::One),
        };
        Parameter { name, kind, count }
    }
}

#[cfg(test)]
mod tests;
