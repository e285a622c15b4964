//! Parameters: their declaration, and the settings that users give for them.

mod setting;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::error::Error;
use crate::specification::{Parameter, ParameterKind};

pub use setting::Setting;

pub(crate) const REQUIRED: &str = "a value is required";

/// The parameters of a processor; derive it on a struct with a field per parameter.
///
/// ```
/// use anabranch_processor::{Parameters, Reference};
/// use std::time::Duration;
///
/// #[derive(Parameters)]
/// struct Settings {
///     /// The text to change.
///     #[parameter(default = ".Payload.After.text")]
///     field: Reference,
///     /// How much of it, in percent.
///     #[parameter(default = 50, greater_than = 0, less_than = 101)]
///     share: i64,
///     /// Named `retry.delay`; absent means that nothing is tried again.
///     #[parameter(name = "retry.delay")]
///     delay: Option<Duration>,
///     #[parameter(one_of = ["upper", "lower"], default = "upper")]
///     case: String,
///     #[parameter(regex = "^[a-z]+$")]
///     language: String,
/// }
/// # fn main() {}
/// ```
///
/// The name of a parameter is the name of the field in camelCase (`max_size` is `maxSize`), its description the
/// documentation of the field, and its kind that of the [`Setting`].
///
/// | `#[parameter(…)]` | Meaning |
/// | --- | --- |
/// | `name = "a.b"` | another name |
/// | `default = …` | text, number or boolean that stands for no value |
/// | `required` | a value must be given even where the type could do without |
/// | `greater_than = 0`, `less_than = 1.5` | strict bounds of a number |
/// | `one_of = ["a", "b"]`, `none_of = […]` | the values that are allowed, or not allowed |
/// | `regex = "…"` | the text must match somewhere: write `^…$` for the whole text |
/// | `nested` | the field is a struct with parameters of its own, whose names begin with the name of this field and a dot |
///
/// Text is taken as it was written, white space around it included; of any other kind, white space around it is left
/// out. White space alone is no value.
///
/// A field is required where it has no default and its type has no value that means absence, as [`Option`], [`Vec`]
/// and maps have. A field of type `BTreeMap<String, T>` takes all settings `name.*`, by what stands for the `*`.
pub trait Parameters: Sized {
    /// Says which parameters there are.
    fn declare(prefix: &str, declarations: &mut Declarations);

    /// Takes the values out of the settings. `None`: problems were noted in the settings.
    fn read(prefix: &str, settings: &mut Settings) -> Option<Self>;
}

/// No parameters.
impl Parameters for () {
    fn declare(_: &str, _: &mut Declarations) {}

    fn read(_: &str, _: &mut Settings) -> Option<Self> {
        Some(())
    }
}

/// A field with a parameter: what the derive makes of it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name of the parameter.
    pub name: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// The text that stands for no text.
    pub default: Option<&'static str>,
    /// What values have to meet.
    pub validations: &'static [Validation],
}

/// What a value has to meet.
#[derive(Clone, Copy, Debug)]
pub enum Validation {
    /// It must be given.
    Required,
    /// It is a number greater than this.
    GreaterThan(f64),
    /// It is a number less than this.
    LessThan(f64),
    /// It is one of these.
    OneOf(&'static [&'static str]),
    /// It is none of these.
    NoneOf(&'static [&'static str]),
    /// A regular expression matches somewhere in it.
    Regex(Pattern),
}

/// A regular expression.
///
/// Holds the function that applies it, so that a module without such validations does not carry the engine.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    text: &'static str,
    matches: fn(&str, &str) -> Result<bool, String>,
}

impl Pattern {
    /// The regular expression with this text, in the syntax of the crate `regex-lite`.
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
    /// The number of its type on the wire, and the text of its value.
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

    /// What is wrong with a value that is not empty.
    fn problem(&self, value: &str) -> Option<String> {
        // What is no number is on no side of a bound.
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
                (!values.contains(&value)).then(|| format!("{value:?} is none of {}", values.join(", ")))
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

/// The parameters that were declared.
#[derive(Clone, Debug, Default)]
pub struct Declarations(pub(crate) BTreeMap<String, Parameter>);

impl Declarations {
    /// Declares the parameter of a field of type `T`.
    pub fn add<T: Setting>(&mut self, prefix: &str, field: &Field) {
        let mut validations = field.validations.to_vec();
        let optional = field.default.is_some() || T::absent().is_some();
        if !optional && !validations.contains(&Validation::Required) {
            validations.insert(0, Validation::Required);
        }
        let parameter = Parameter {
            default: field.default.unwrap_or_default().to_owned(),
            description: field.description.to_owned(),
            kind: T::KIND,
            validations,
        };
        self.0.insert(T::declared(&[prefix, field.name].concat()), parameter);
    }

    pub(crate) fn add_switch(&mut self, name: &str, description: &str) {
        let parameter = Parameter {
            default: "true".to_owned(),
            description: description.to_owned(),
            kind: ParameterKind::Bool,
            validations: Vec::new(),
        };
        self.0.insert(name.to_owned(), parameter);
    }
}

/// The settings of a processor, while they are read.
#[derive(Debug, Default)]
pub struct Settings {
    left: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Settings {
    pub(crate) fn new(settings: BTreeMap<String, String>) -> Self {
        let mut left = BTreeMap::new();
        // Collecting would sort them, by code that is large.
        for (key, value) in settings {
            left.insert(key.trim().to_owned(), value);
        }
        Settings { left, problems: Vec::new() }
    }

    /// Reads the parameter of a field of type `T`.
    pub fn read<T: Setting>(&mut self, prefix: &str, field: &Field) -> Option<T> {
        T::read(&[prefix, field.name].concat(), field, self)
    }

    /// All parameters at once.
    pub(crate) fn all<P: Parameters>(mut self) -> Result<P, Error> {
        let parameters = P::read("", &mut self);
        if !self.left.is_empty() {
            let mut declarations = Declarations::default();
            P::declare("", &mut declarations);
            let known: Vec<&str> = declarations.0.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => "the processor has no parameters".to_owned(),
                known => format!("the parameters are {}", known.join(", ")),
            };
            self.problems.extend(self.left.keys().map(|key| format!("{key}: unknown parameter; {known}")));
        }
        match parameters {
            Some(parameters) if self.problems.is_empty() => Ok(parameters),
            _ => Err(Error::new(format!("invalid settings: {}", self.problems.join("; ")))),
        }
    }

    pub(crate) fn take_switch(&mut self, key: &str) -> Option<bool> {
        let field = Field { name: "", description: "", default: Some("true"), validations: &[] };
        bool::read(key, &field, self)
    }

    /// The value of one setting, or its default; `Some(None)` where there is neither and the type knows that.
    fn one<T: Setting>(&mut self, key: &str, field: &Field) -> Option<T> {
        let given = self.left.remove(key).filter(|text| !text.trim().is_empty());
        let Some(text) = given.as_deref().or(field.default).filter(|text| !text.is_empty()) else {
            let required = field.validations.contains(&Validation::Required);
            let absent = T::absent().filter(|_| !required);
            if absent.is_none() {
                self.problem(key, REQUIRED);
            }
            return absent;
        };
        self.checked(key, text, field)
    }

    fn checked<T: Setting>(&mut self, key: &str, text: &str, field: &Field) -> Option<T> {
        let text = match T::KIND {
            ParameterKind::String | ParameterKind::File => text,
            _ => text.trim(),
        };
        let before = self.problems.len();
        for problem in field.validations.iter().filter_map(|validation| validation.problem(text)) {
            self.problem(key, &problem);
        }
        match T::parse(text) {
            Ok(value) => (self.problems.len() == before).then_some(value),
            Err(problem) => {
                self.problems.truncate(before);
                self.problem(key, &problem);
                None
            }
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The settings whose names begin so, by the rest of their names.
    fn below(&mut self, prefix: &str) -> Vec<(String, String)> {
        let keys: Vec<String> = self.left.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut below = Vec::new();
        for key in keys {
            if let Some(value) = self.left.remove(&key)
                && key.len() > prefix.len()
            {
                below.push((key[prefix.len()..].to_owned(), value));
            }
        }
        below
    }

    fn problem(&mut self, key: &str, problem: &str) {
        let mut text = String::new();
        let _ = write!(text, "{key}: {problem}");
        self.problems.push(text);
    }
}

#[cfg(test)]
mod tests;
