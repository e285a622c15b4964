//! Parameters of plugins as structs: one declaration gives the specification, the checks and the values.

mod argument;
mod kinds;
pub mod shared;

pub use anabranch_processor_derive::PluginParameters as Parameters;

use std::collections::{BTreeMap, BTreeSet};

use anabranch_record::text::Str;

use crate::arguments::{Arguments, Typed, type_check};
use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::specification::Validation;
use crate::written::Written;

pub use crate::specification::{Parameter, ParameterKind};
pub use argument::Argument;
pub use kinds::{ByteSize, Choice};

/// The parameters of a plugin; derive it on a struct with a field per parameter.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::time::Duration;
///
/// use anabranch_plugin::parameters::{Argument, Parameters, declared};
/// use anabranch_record::reference::Reference;
/// use anabranch_record::text::Str;
///
/// #[derive(Parameters)]
/// struct Settings {
///     /// The text to change.
///     #[parameter(default = ".Payload.After.text", within = [".Key", ".Payload"])]
///     field: Argument<Reference>,
///     /// How much of it, in percent.
///     #[parameter(default = 50, greater_than = 0, less_than = 101)]
///     share: u32,
///     /// Pause before a retry. Without it, there are no retries.
///     #[parameter(name = "retry.delay")]
///     delay: Option<Duration>,
///     /// Key of the service.
///     #[parameter(secret, aliases = ["api_key"])]
///     api_key: Option<Str>,
///     /// A header.
///     headers: BTreeMap<Str, Str>,
/// }
///
/// let names: Vec<_> = declared::<Settings>().into_iter().map(|parameter| parameter.name).collect();
/// assert_eq!(names, ["field", "share", "retry.delay", "apiKey", "headers.*"]);
/// ```
///
/// The name of a parameter is the name of the field in camelCase, its description is the documentation of the field,
/// and its kind is that of the [`ParameterType`]. A field is required if it has no default and its type has no value
/// for an absent setting, as [`Option`], [`Vec`] and maps have.
///
/// | `#[parameter(…)]` | Meaning |
/// | --- | --- |
/// | `name = "a.b"` | another name |
/// | `default = …` | text, number or boolean for an absent or blank value |
/// | `required` | a value must be given even if the type is optional |
/// | `greater_than = 0`, `less_than = 1.5` | strict bounds of a number, of the seconds of a duration or of bytes |
/// | `one_of = ["a", "b"]`, `none_of = […]` | allowed texts, or forbidden texts; for a list, of its items |
/// | `within = [".Key"]` | parts of a record that a reference may refer to |
/// | `regex = "…"` | the text must contain a match |
/// | `secret` | the value is a credential |
/// | `may_be_blank` | a blank text is a value if it is written |
/// | `takes_templates` | the text is a template if it contains `{{`; see [`Argument::compile_template`] |
/// | `aliases = ["c"]` | other names |
/// | `example = "…"` | initial value in generated files |
/// | `only_with = "d"` | the parameter has an effect only if the one with this full name is on |
/// | `nested` | the field has parameters of its own, whose names begin with the name of this field and a dot |
/// | `flatten` | the field has parameters of its own, with their names |
/// | `adjust = f` | the function `f` changes the parameters of a field with `nested` or `flatten` |
///
/// `#[parameter(rename_all = "snake_case")]` or `"kebab-case"` on the struct gives other names than camelCase. Texts,
/// lists of texts and numbers may be constants. The field of a map `BTreeMap<Str, T>` takes all settings `name.*` by
/// the rest of their names, those that have a parameter of their own too. With `nested`, the field of a map takes
/// settings `name.*.…` as structs.
pub trait Parameters: Sized {
    /// Declares the parameters, with names that begin with `prefix`.
    fn declare(prefix: &str, declarations: &mut Declarations);

    /// Reads the values. Returns `None` if it added findings to the settings.
    fn read(prefix: &str, settings: &mut Settings<'_>) -> Option<Self>;
}

/// A type that a parameter can have.
#[diagnostic::on_unimplemented(
    message = "a parameter cannot have the type `{Self}`",
    note = "use String, Str, PathBuf, bool, f64, i64, u32, u64, usize, Duration, ByteSize, Reference, Template, an enum \
            that implements Choice, or a Vec or Option of these"
)]
pub trait ParameterType: Sized {
    /// Kind of the parameter.
    const KIND: ParameterKind;

    /// True if the type has a value for an absent setting.
    const OPTIONAL: bool = false;

    /// The texts that the values have; `None` = any.
    fn choices() -> Option<Vec<&'static str>> {
        None
    }

    /// Returns the value of a text that has the kind and satisfies the validations of the parameter.
    ///
    /// # Errors
    /// Reason why the type does not contain the value, as a phrase: `must be at most 255`.
    fn convert(value: &Typed, text: &Str) -> Result<Self, String>;

    /// Returns the name under which a parameter of this name is declared.
    fn declared(name: &str) -> String {
        name.to_owned()
    }

    /// Reads the parameter with the full name `name`. Returns `None` if it added findings to the settings.
    fn read(name: &str, field: &Field, settings: &mut Settings<'_>) -> Option<Self> {
        settings.one(name, field)
    }
}

/// Returns the parameters of a struct, in the order of its fields.
pub fn declared<P: Parameters>() -> Vec<Parameter> {
    let mut declarations = Declarations(Vec::new());
    P::declare("", &mut declarations);
    declarations.0
}

/// A field, as the derive macro generates it to read its value.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the parameter, without the prefix.
    pub name: &'static str,
    /// The default, for arguments of a specification without the parameter.
    pub default: Option<&'static str>,
}

/// The parameters declared so far.
#[derive(Debug)]
pub struct Declarations(Vec<Parameter>);

impl Declarations {
    /// Adds the parameters that `declare` adds, changed by `adjust`.
    pub fn adjust(&mut self, adjust: impl Fn(Parameter) -> Parameter, declare: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        declare(self);
        let added = self.0.split_off(before);
        self.0.extend(added.into_iter().map(adjust));
    }

    /// Adds the parameter of a field of type `T`.
    pub fn add<T: ParameterType>(&mut self, prefix: &str, mut parameter: Parameter) {
        parameter.name = T::declared(&[prefix, parameter.name.as_str()].concat()).into();
        if let Some(mut texts) = T::choices() {
            parameter.validations.retain(|validation| match validation {
                Validation::NotOneOf(excluded) => {
                    texts.retain(|text| !excluded.iter().any(|excluded| *excluded == **text));
                    false
                }
                _ => true,
            });
            let choices = Validation::OneOf(texts.into_iter().map(Str::from_static).collect());
            parameter.validations.insert(0, choices);
        }
        if parameter.default.is_none() && !T::OPTIONAL && !parameter.is_required() {
            parameter.validations.insert(0, Validation::Required);
        }
        self.0.push(parameter);
    }
}

/// Arguments that are read into a struct, and the findings about them.
#[derive(Debug)]
pub struct Settings<'a> {
    arguments: &'a Arguments,
    findings: Diagnostics,
}

impl<'a> Settings<'a> {
    /// Reads the parameter of a field of type `T`.
    pub fn read<T: ParameterType>(&mut self, prefix: &str, field: &Field) -> Option<T> {
        T::read(&[prefix, field.name].concat(), field, self)
    }

    fn one<T: ParameterType>(&mut self, name: &str, field: &Field) -> Option<T> {
        let converted = match self.arguments.of_kind(name, T::KIND) {
            Some((value, text)) => T::convert(value, text),
            None => match default(T::KIND, field) {
                Some((value, text)) => T::convert(&value, &text),
                None => {
                    let missing = Diagnostic::error(codes::SETTINGS_REQUIRED, format!("{name:?} is required"));
                    self.report(name, missing);
                    return None;
                }
            },
        };
        converted
            .map_err(|why| {
                self.report(name, Diagnostic::error(codes::SETTINGS_INVALID, format!("{name}: the value {why}")));
            })
            .ok()
    }

    fn report(&mut self, name: &str, finding: Diagnostic) {
        let span = self.arguments.span(name);
        self.findings.push(finding.with_span(span).with_path(crate::arguments::pointer(name)));
    }
}

/// Returns the default of a field. Its type was checked with the specification.
fn default(kind: ParameterKind, field: &Field) -> Option<(Typed, Str)> {
    let text = Str::from_static(field.default?);
    let written = Written::new(text.clone(), text.clone(), Default::default());
    let typed = type_check(&Parameter::new(field.name, kind, ""), &Str::from_static(field.name), written).ok()?;
    Some((typed.into_value(), text))
}

impl Arguments {
    /// Reads the values of the parameters `P`. If the specification of the arguments lacks a parameter, or declares
    /// it with another kind, an optional one is absent, and any other has its default.
    ///
    /// # Errors
    /// All values that their types do not have.
    pub fn read<P: Parameters>(&self) -> Result<P, Diagnostics> {
        let mut settings = Settings { arguments: self, findings: Diagnostics::new() };
        P::read("", &mut settings).ok_or(settings.findings)
    }
}

/// No parameters.
impl Parameters for () {
    fn declare(_: &str, _: &mut Declarations) {}

    fn read(_: &str, _: &mut Settings<'_>) -> Option<Self> {
        Some(())
    }
}

/// The parameters of both.
impl<A: Parameters, B: Parameters> Parameters for (A, B) {
    fn declare(prefix: &str, declarations: &mut Declarations) {
        A::declare(prefix, declarations);
        B::declare(prefix, declarations);
    }

    fn read(prefix: &str, settings: &mut Settings<'_>) -> Option<Self> {
        let (a, b) = (A::read(prefix, settings), B::read(prefix, settings));
        Some((a?, b?))
    }
}

/// Settings `name.*.…`, by the part in place of the `*`.
impl<P: Parameters> Parameters for BTreeMap<Str, P> {
    fn declare(prefix: &str, declarations: &mut Declarations) {
        P::declare(&[prefix, "*."].concat(), declarations);
    }

    fn read(prefix: &str, settings: &mut Settings<'_>) -> Option<Self> {
        let below = settings.arguments.names().filter_map(|name| name.strip_prefix(prefix)?.split_once('.'));
        let keys: BTreeSet<Str> = below.map(|(key, _)| Str::from(key)).collect();
        // Read all before returning a failure, so that all problems are reported at once.
        let read: Vec<_> =
            keys.into_iter().map(|key| (P::read(&[prefix, &key, "."].concat(), settings), key)).collect();
        read.into_iter().map(|(value, key)| Some((key, value?))).collect()
    }
}

#[cfg(test)]
mod tests;
