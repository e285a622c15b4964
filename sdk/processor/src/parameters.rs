//! Parameters: their declarations, and the settings that users give.

mod setting;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::error::Error;

pub use anabranch_record::specification::Parameter;
use anabranch_record::specification::{ParameterKind, Validation, matches_pattern};
use anabranch_record::text::Str;
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
///     /// Named `retry.delay`; without it there are no retries.
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
/// The name of a parameter is the name of the field in camelCase (`max_size` is `maxSize`), its description is the
/// documentation of the field, and its kind is that of the [`Setting`].
///
/// | `#[parameter(…)]` | Meaning |
/// | --- | --- |
/// | `name = "a.b"` | another name |
/// | `default = …` | text, number or boolean for a missing value |
/// | `required` | a value must be given even if the type is optional |
/// | `greater_than = 0`, `less_than = 1.5` | strict bounds of a number |
/// | `one_of = ["a", "b"]`, `none_of = […]` | allowed values, or forbidden values |
/// | `regex = "…"` | the text must match somewhere: write `^…$` for the whole text |
/// | `nested` | the field is a struct with its own parameters, whose names begin with the name of this field and a dot |
/// | `flatten` | the field is a struct with its own parameters, with their names |
///
/// `#[parameter(rename_all = "snake_case")]` or `"kebab-case"` on the struct gives other names than camelCase.
///
/// Text keeps surrounding white space; other kinds ignore it. A value that is only white space counts as missing.
///
/// A field is required if it has no default and its type has no value for absence, as [`Option`], [`Vec`] and maps have.
/// A field of type `BTreeMap<String, T>` takes all settings `name.*`; the text in place of the `*` is the key.
pub trait Parameters: Sized {
    /// Declares the parameters.
    fn declare(prefix: &str, declarations: &mut Declarations);

    /// Reads the values from the settings. Returns `None` if problems were recorded in the settings.
    fn read(prefix: &str, settings: &mut Settings) -> Option<Self>;
}

/// No parameters.
impl Parameters for () {
    fn declare(_: &str, _: &mut Declarations) {}

    fn read(_: &str, _: &mut Settings) -> Option<Self> {
        Some(())
    }
}

/// A field, as the derive macro generates it to read its value.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the parameter, without the prefix.
    pub name: &'static str,
    /// Default text for a missing value.
    pub default: Option<&'static str>,
}

/// Returns `true` if a regular expression matches somewhere in a text, or why it is not valid.
type Matches = fn(&str, &str) -> Result<bool, String>;

/// The declared parameters.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    pub(crate) parameters: Vec<Parameter>,
    /// A module without such rules does not include the engine of regular expressions.
    matches: Option<Matches>,
}

impl Declarations {
    /// Declares the parameter of a field of type `T`.
    pub fn add<T: Setting>(&mut self, prefix: &str, mut parameter: Parameter) {
        parameter.name = T::declared(&[prefix, &parameter.name].concat()).into();
        if parameter.default.is_none() && T::absent().is_none() && !parameter.is_required() {
            parameter.validations.insert(0, Validation::Required);
        }
        self.parameters.push(parameter);
    }

    /// Includes the engine of regular expressions; the derive macro calls it if there are rules with one.
    pub fn match_expressions(&mut self) {
        fn matches(pattern: &str, text: &str) -> Result<bool, String> {
            regex_lite::Regex::new(pattern).map(|regex| regex.is_match(text)).map_err(|error| error.to_string())
        }
        self.matches = Some(matches);
    }

    /// Returns what is wrong with a text that is not empty. `number` is its value, if that is a number.
    fn problem(&self, validation: &Validation, value: &str, number: Option<f64>) -> Option<String> {
        // A value that is not a number violates every bound.
        let is_number = |fits: &dyn Fn(f64) -> bool| number.is_some_and(fits);
        let is_among = |texts: &[Str]| texts.iter().any(|text| *text == *value);
        match validation {
            Validation::Required | Validation::Within(_) => None,
            Validation::GreaterThan(bound) => {
                (!is_number(&|number| number > *bound)).then(|| format!("{value:?} is not greater than {bound}"))
            }
            Validation::LessThan(bound) => {
                (!is_number(&|number| number < *bound)).then(|| format!("{value:?} is not less than {bound}"))
            }
            Validation::OneOf(texts) => (!is_among(texts)).then(|| {
                let texts: Vec<&str> = texts.iter().map(Str::as_str).collect();
                format!("{value:?} is not one of {}", texts.join(", "))
            }),
            Validation::NotOneOf(texts) => is_among(texts).then(|| format!("{value:?} is not allowed")),
            Validation::Matches(pattern) => match self.matches.map(|matches| matches(pattern, value)) {
                None | Some(Ok(true)) => None,
                Some(Ok(false)) => Some(format!("{value:?} does not match {pattern:?}")),
                Some(Err(error)) => Some(format!("its regular expression {pattern:?} is not valid: {error}")),
            },
        }
    }
}

/// The settings of a processor while they are read.
#[derive(Debug)]
pub struct Settings {
    left: BTreeMap<String, String>,
    pub(crate) declarations: Declarations,
    problems: Vec<String>,
}

impl Settings {
    pub(crate) fn new(settings: BTreeMap<String, String>) -> Self {
        let mut left = BTreeMap::new();
        // `collect` would sort them, and that code is large.
        for (key, value) in settings {
            left.insert(key.trim().to_owned(), value);
        }
        Settings { left, declarations: Declarations::default(), problems: Vec::new() }
    }

    /// Reads the parameter of a field of type `T`.
    pub fn read<T: Setting>(&mut self, prefix: &str, field: &Field) -> Option<T> {
        T::read(&[prefix, field.name].concat(), field, self)
    }

    /// Reads all parameters.
    pub(crate) fn all<P: Parameters>(mut self) -> Result<P, Error> {
        P::declare("", &mut self.declarations);
        let parameters = P::read("", &mut self);
        if !self.left.is_empty() {
            let known: Vec<&str> = self.declarations.parameters.iter().map(|known| known.name.as_str()).collect();
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

    /// Takes the value of a boolean that is `true` if it is missing.
    pub(crate) fn take_switch(&mut self, key: &str) -> Option<bool> {
        bool::read(key, &Field { name: "", default: Some("true") }, self)
    }

    /// Returns the value of one setting or its default. Returns `Some(None)` if both are missing and the type allows
    /// that.
    fn one<T: Setting>(&mut self, key: &str, field: &Field) -> Option<T> {
        let given = self.left.remove(key).filter(|text| !text.trim().is_empty());
        let Some(text) = given.as_deref().or(field.default).filter(|text| !text.is_empty()) else {
            let absent = T::absent().filter(|_| !self.is_required(key));
            if absent.is_none() {
                self.problem(key, REQUIRED);
            }
            return absent;
        };
        self.checked(key, text)
    }

    fn declared(&self, key: &str) -> Option<&Parameter> {
        let parameters = &self.declarations.parameters;
        let exact = parameters.iter().find(|parameter| parameter.name == *key);
        exact.or_else(|| parameters.iter().find(|parameter| matches_pattern(&parameter.name, key)))
    }

    fn is_required(&self, key: &str) -> bool {
        self.declared(key).is_some_and(Parameter::is_required)
    }

    fn checked<T: Setting>(&mut self, key: &str, text: &str) -> Option<T> {
        let text = match T::KIND {
            ParameterKind::Text | ParameterKind::File => text,
            _ => text.trim(),
        };
        let validations = self.declared(key).map_or(&[][..], |parameter| &parameter.validations);
        let problems: Vec<String> = match T::parse(text) {
            Ok(value) => {
                let problem = |validation| self.declarations.problem(validation, text, value.number());
                let problems: Vec<String> = validations.iter().filter_map(problem).collect();
                if problems.is_empty() {
                    return Some(value);
                }
                problems
            }
            Err(problem) => vec![problem],
        };
        problems.iter().for_each(|problem| self.problem(key, problem));
        None
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Removes the settings whose names have this prefix; returns them by the rest of their names.
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
