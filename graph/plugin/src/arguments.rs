//! Settings of a plugin, checked against its specification: typed, with defaults.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_record::code::Code;
use anabranch_record::near::{did_you_mean, slip};
use anabranch_record::reference::{Reference, ReferenceError};
use anabranch_record::text::Str;
use anabranch_template::{MissingKey, Template, TemplateError};

use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::secret::MASKED_FROM;
use crate::secret::expressions;
use crate::secret::{literal_defaults, password, without_defaults, without_passwords};
use crate::settings::Settings;
use crate::specification::{Parameter, ParameterKind, Specification, Validation};
use crate::written::Written;

/// The values of a plugin's parameters. Only [`Arguments::parse`] creates it, so every value has passed the
/// type check and the validations of its parameter.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    values: BTreeMap<Str, CheckedArgument>,
    /// Names of settings with a blank value; `values` may contain their defaults.
    blank: BTreeSet<Str>,
    span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckedArgument {
    written: Written,
    secret: bool,
    is_default: bool,
    typed: Typed,
}

impl CheckedArgument {
    pub(crate) fn into_value(self) -> Typed {
        self.typed
    }
}

/// A value of the kind of its parameter.
#[derive(Clone, Debug)]
pub enum Typed {
    /// Of [`ParameterKind::Text`] or [`ParameterKind::File`]: the text itself.
    Text,
    /// Of [`ParameterKind::Int`].
    Int(i64),
    /// Of [`ParameterKind::Float`], finite.
    Float(f64),
    /// Of [`ParameterKind::Bool`].
    Bool(bool),
    /// Of [`ParameterKind::Duration`].
    Duration(Duration),
    /// Of [`ParameterKind::Bytes`].
    Bytes(u64),
    /// Of [`ParameterKind::List`], without white space around the items.
    List(Vec<Str>),
    /// Of [`ParameterKind::Reference`].
    Reference(Reference),
    /// Of [`ParameterKind::Template`].
    Template(Template),
}

impl Typed {
    fn is_of(&self, kind: ParameterKind) -> bool {
        match self {
            Typed::Text => matches!(kind, ParameterKind::Text | ParameterKind::File),
            Typed::Int(_) => kind == ParameterKind::Int,
            Typed::Float(_) => kind == ParameterKind::Float,
            Typed::Bool(_) => kind == ParameterKind::Bool,
            Typed::Duration(_) => kind == ParameterKind::Duration,
            Typed::Bytes(_) => kind == ParameterKind::Bytes,
            Typed::List(_) => kind == ParameterKind::List,
            Typed::Reference(_) => kind == ParameterKind::Reference,
            Typed::Template(_) => kind == ParameterKind::Template,
        }
    }
}

impl Arguments {
    /// Checks settings and adds defaults.
    ///
    /// # Errors
    /// All unknown, missing or ill-typed settings, with their places; paths are relative to the settings (`/field`).
    pub fn parse(specification: &Specification, settings: &Settings) -> Result<Arguments, Diagnostics> {
        let mut arguments = Arguments { values: BTreeMap::new(), blank: BTreeSet::new(), span: settings.span };
        let mut findings = Diagnostics::new();
        let mut given: BTreeMap<Str, Span> = BTreeMap::new();
        let mut ill_typed: BTreeSet<Str> = BTreeSet::new();
        let mut free: Option<Vec<&str>> = None;
        // If a misspelt setting stands for a required one, the required one is not also reported as missing.
        let mut meant: BTreeSet<&str> = BTreeSet::new();
        for setting in &settings.entries {
            let name = setting.name.value.trim();
            if name.is_empty() && !setting.value.value().trim().is_empty() {
                let (finding, parameter) = unnamed(specification, &setting.value);
                findings.push(finding);
                meant.extend(parameter);
                continue;
            }
            let Some(parameter) = specification.parameter(name) else {
                let free = free.get_or_insert_with(|| not_given(specification, settings));
                let finding = unknown(specification, name, setting.name.span).with_path(pointer(name));
                meant.extend(slip(name, free.iter().copied()));
                findings.push(finding.with_slip(setting.name.span, name, free.iter().copied()));
                continue;
            };
            let name: Str = if parameter.name.contains('*') { name.into() } else { parameter.name.clone() };
            if let Some(first) = given.insert(name.clone(), setting.name.span) {
                findings.push(
                    Diagnostic::error(
                        codes::SETTINGS_DUPLICATE,
                        format!("{name:?} is set twice under different names"),
                    )
                    .with_span(setting.name.span)
                    .with_related(first, "first set here")
                    .with_path(pointer(&setting.name.value)),
                );
                continue;
            }
            let is_blank = setting.value.value().trim().is_empty();
            if is_blank && !(parameter.blank && setting.value.is_given()) {
                arguments.blank.insert(name);
                continue;
            }
            match type_check(parameter, &name, setting.value.clone()) {
                Ok(argument) => {
                    arguments.values.insert(name, argument);
                }
                Err(found) => {
                    findings.0.extend(found.into_iter().map(|d| d.with_path(pointer(&setting.name.value))));
                    ill_typed.insert(name);
                }
            }
        }
        for parameter in &specification.parameters {
            let name = &parameter.name;
            if name.contains('*') || arguments.values.contains_key(name) || ill_typed.contains(name) {
                continue;
            }
            let empty = given.get(name).copied();
            if let Some(default) = &parameter.default {
                let default = Written::new(default.clone(), default.clone(), empty.unwrap_or(settings.span));
                match type_check(parameter, &parameter.name, default) {
                    Ok(argument) => {
                        arguments
                            .values
                            .insert(parameter.name.clone(), CheckedArgument { is_default: true, ..argument });
                    }
                    Err(found) => findings.0.extend(found.into_iter().map(|d| d.with_path(pointer(&parameter.name)))),
                }
            } else if parameter.is_required() && !meant.contains(name.as_str()) {
                let blank = settings.entries.iter().find(|setting| {
                    setting.name.span == empty.unwrap_or_default() && setting.value.is_given() && empty.is_some()
                });
                let mut message = format!("{:?} is required by {}", parameter.name, specification.name);
                let hint = match blank {
                    Some(setting) if setting.value.written().contains("${") => {
                        message.push_str(", and the variable in its value is empty");
                        "set the variable, or write `${NAME:-default}`".to_owned()
                    }
                    Some(_) => {
                        message.push_str(", and its value is empty");
                        format!("{}: {}", parameter.name, parameter.description)
                    }
                    None => format!("{}: {}", parameter.name, parameter.description),
                };
                findings.push(
                    Diagnostic::error(codes::SETTINGS_REQUIRED, message)
                        .with_span(empty.unwrap_or(settings.span))
                        .with_hint(hint)
                        .with_path(pointer(&parameter.name)),
                );
            }
        }
        if findings.has_errors() { Err(findings) } else { Ok(arguments) }
    }

    fn typed(&self, name: &str) -> Option<&Typed> {
        self.values.get(name).map(|a| &a.typed)
    }

    /// Returns the value of a parameter and its text; `None` if the specification declares it with another kind, as a
    /// program may.
    pub(crate) fn of_kind(&self, name: &str, kind: ParameterKind) -> Option<(&Typed, &Str)> {
        let found = self.values.get(name).filter(|found| found.typed.is_of(kind));
        found.map(|found| (&found.typed, found.written.value()))
    }

    /// Returns the names of all values, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Str> {
        self.values.keys()
    }

    /// Returns the text of a parameter in the file, or `default`, and whether it is a credential. An absent setting has
    /// the place of the settings.
    pub(crate) fn origin(&self, name: &str, default: Option<&'static str>) -> (Written, bool) {
        let text = Str::from_static(default.unwrap_or_default());
        let absent = || (Written::new(text.clone(), text, self.span), false);
        self.values.get(name).map_or_else(absent, |a| (a.written.clone(), a.secret))
    }

    /// Returns `true` if the file contains the setting, even if its value is blank.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.blank.contains(name) || self.values.get(name).is_some_and(|a| !a.is_default)
    }

    /// Returns `true` if the parameter has a value, set or by default.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns `true` if the parameter has a value other than `false` and zero.
    pub fn is_on(&self, name: &str) -> bool {
        match self.typed(name) {
            None | Some(Typed::Bool(false) | Typed::Int(0) | Typed::Bytes(0)) => false,
            Some(Typed::Float(value)) => *value != 0.0,
            Some(Typed::Duration(value)) => !value.is_zero(),
            Some(_) => true,
        }
    }

    /// Returns the text of a parameter of any kind.
    pub fn text(&self, name: &str) -> Option<&Str> {
        self.values.get(name).map(|a| a.written.value())
    }

    /// Returns the values in the file, without defaults, in name order: for plugins that apply defaults themselves. A
    /// blank setting is a blank text.
    pub fn given(&self) -> impl Iterator<Item = (&Str, Written)> {
        let blank = self.blank.iter().map(|name| (name, Written::new("", "", self.span)));
        let given = self.values.iter().filter(|(_, argument)| !argument.is_default);
        let mut all: Vec<_> = given.map(|(name, argument)| (name, argument.written.clone())).chain(blank).collect();
        all.sort_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// Returns the text in the file, for display: `${NAME}` is not replaced, credentials and passwords in URLs are
    /// masked.
    pub fn shown(&self, name: &str) -> Option<Str> {
        self.values.get(name).map(|a| {
            let written = a.written.written();
            // Without a variable, the file contains the credential itself.
            if a.secret && expressions(written).next().is_none() {
                return Str::from_static("***");
            }
            let open = if a.secret { without_defaults(written) } else { Cow::Borrowed(written.as_str()) };
            let shown = without_passwords(&open);
            if *shown == **written { written.clone() } else { shown.into_owned().into() }
        })
    }

    /// Returns the names and display texts of all values, in name order.
    pub fn iter_shown(&self) -> impl Iterator<Item = (&Str, Str)> {
        self.values.keys().filter_map(|name| Some((name, self.shown(name)?)))
    }

    /// Returns the texts of at least [`MASKED_FROM`] bytes that must be masked in logs, faults and dead letters: values
    /// of variables, complete credentials, passwords in URLs.
    pub fn secrets(&self) -> impl Iterator<Item = Str> {
        self.values.values().flat_map(|a| secrets_of(&a.written, a.secret))
    }

    /// Returns the place of the value; for a default the place of the settings.
    pub(crate) fn span(&self, name: &str) -> Span {
        self.values.get(name).map_or(self.span, |a| a.written.span())
    }
}

/// Returns the texts of a value of at least [`MASKED_FROM`] bytes that must be masked.
pub(crate) fn secrets_of(written: &Written, is_secret: bool) -> Vec<Str> {
    let whole = is_secret.then(|| written.value().clone());
    let password = password(written.value()).map(Str::from);
    let defaults = literal_defaults(written.written(), is_secret).map(Str::from);
    let all = written.substituted().cloned().chain(whole).chain(password).chain(defaults);
    all.filter(|text| text.len() >= MASKED_FROM).collect()
}

/// Returns the JSON pointer of a setting, relative to the settings.
pub(crate) fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Reports a single text instead of a map of settings. It stands for the only required parameter, if there is exactly
/// one.
fn unnamed<'a>(specification: &'a Specification, written: &Written) -> (Diagnostic, Option<&'a str>) {
    let finding = Diagnostic::error(codes::CONFIG_TYPE, "\"settings\" must be a map of fields, not a single value")
        .with_span(written.span());
    let mut required = specification.parameters.iter().filter(|parameter| parameter.is_required());
    let parameter = match (required.next(), required.next()) {
        (Some(parameter), None) => parameter,
        _ => {
            let first = specification.parameters.first().map_or("name", |parameter| parameter.name.as_str());
            return (
                finding.with_hint(format!(
                    "write settings as names with values, for example `settings: {{ {first}: … }}`"
                )),
                None,
            );
        }
    };
    let becomes = format!("{{ {}: {} }}", parameter.name, written.written());
    let plain = !written.written().contains(['{', '}', '[', ']', ',', '#', '\'', '"', '\n']);
    let finding = finding.with_hint(format!("write `settings: {becomes}`"));
    let finding = match plain {
        true => finding.with_fix(written.span(), written.written().as_str(), becomes),
        false => finding,
    };
    (finding, Some(parameter.name.as_str()))
}

/// Returns the corresponding word for a type or format with another name in other systems.
fn elsewhere(word: &str) -> Option<&'static str> {
    match word.to_ascii_lowercase().as_str() {
        "integer" | "long" | "bigint" | "int32" | "int64" => Some("int"),
        "boolean" => Some("bool"),
        "number" | "double" | "decimal" | "float32" | "float64" | "real" => Some("float"),
        "text" | "str" | "varchar" => Some("string"),
        "timestamp" | "datetime" | "date" => Some("time"),
        "json" => Some("recfmt/json"),
        "raw" => Some("recfmt/raw"),
        _ => None,
    }
}

/// Returns the first of several texts with the same last part: `recfmt/json` for `raw/json`.
fn of_the_same_end<'a>(text: &str, texts: &'a [Str]) -> Option<&'a str> {
    let (_, end) = text.rsplit_once('/')?;
    texts.iter().map(Str::as_str).find(|other| other.rsplit_once('/').is_some_and(|(_, other)| other == end))
}

/// Fields of processors and dead-letter queues that look like settings of their plugins.
const BESIDE_THE_PLUGIN: [&str; 5] = ["workers", "condition", "processors", "window-size", "window-nack-threshold"];

fn unknown(specification: &Specification, name: &str, span: Span) -> Diagnostic {
    let names = || specification.parameters.iter().map(|p| p.name.as_str());
    let finding =
        Diagnostic::error(codes::SETTINGS_UNKNOWN, format!("{} has no parameter {name:?}", specification.name))
            .with_span(span);
    if let Some(above) = BESIDE_THE_PLUGIN.iter().find(|above| **above == name) {
        return finding.with_hint(format!("write {above:?} next to \"plugin\", not in \"settings\""));
    }
    match did_you_mean(name, names()) {
        Some(near) => finding.with_hint(format!("did you mean {near:?}?")),
        None if specification.parameters.is_empty() => {
            finding.with_hint(format!("{} has no parameters", specification.name))
        }
        None => finding.with_hint(format!("its parameters: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

pub(crate) fn type_check(parameter: &Parameter, name: &Str, written: Written) -> Result<CheckedArgument, Diagnostics> {
    let span = written.span();
    // The text in the file, never the value of a variable.
    let shown = || {
        if parameter.is_secret(name) || written.is_substituted() {
            format!("the value of {name:?}")
        } else {
            format!("{:?}", written.value())
        }
    };
    let invalid = |what: String| Diagnostics::from(Diagnostic::error(codes::SETTINGS_INVALID, what).with_span(span));
    let text = written.value().trim();
    let not_a = |what: &str| invalid(format!("{name}: {} is not {what}", shown()));
    let typed = match parameter.kind {
        ParameterKind::File if written.value().contains('\n') => {
            let hint = "a block (`|` or `>`) ends with a line feed: write the path on the line of the setting's name";
            let finding = Diagnostic::error(codes::SETTINGS_INVALID, format!("{name}: the path contains a line feed"));
            return Err(finding.with_span(span).with_hint(hint).into());
        }
        ParameterKind::Text | ParameterKind::File => Typed::Text,
        ParameterKind::Int => Typed::Int(text.parse().map_err(|_| not_a("an integer"))?),
        ParameterKind::Float => {
            Typed::Float(text.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(|| not_a("a number"))?)
        }
        ParameterKind::Bool => Typed::Bool(parse_bool(text).ok_or_else(|| not_a("a boolean (true or false)"))?),
        ParameterKind::Duration => {
            Typed::Duration(parse_duration(text).ok_or_else(|| not_a("a duration (for example 100ms, 5s or 1h30m)"))?)
        }
        ParameterKind::Bytes => {
            Typed::Bytes(parse_bytes(text).ok_or_else(|| not_a("a size (for example 1000, 64KiB or 8MB)"))?)
        }
        ParameterKind::List => Typed::List(written.value().split(',').map(|item| Str::from(item.trim())).collect()),
        ParameterKind::Reference => {
            Typed::Reference(Reference::parse(text).map_err(|e| invalid_reference(name, &written, &e))?)
        }
        ParameterKind::Template => Typed::Template(
            Template::parse(written.value(), MissingKey::NoValue).map_err(|e| invalid_template(name, &written, e))?,
        ),
    };
    let number = match &typed {
        Typed::Int(v) => Some(*v as f64),
        Typed::Float(v) => Some(*v),
        Typed::Bytes(v) => Some(*v as f64),
        Typed::Duration(v) => Some(v.as_secs_f64()),
        _ => None,
    };
    let items: &[Str] = match &typed {
        Typed::List(items) => items,
        _ => std::slice::from_ref(written.value()),
    };
    let list = |texts: &[Str]| texts.iter().map(Str::as_str).collect::<Vec<_>>().join(", ");
    for validation in &parameter.validations {
        match validation {
            Validation::Required => {}
            Validation::GreaterThan(bound) if number.is_some_and(|v| v <= *bound) => {
                let least = match parameter.kind {
                    ParameterKind::Int | ParameterKind::Bytes => format!("at least {}", bound + 1.0),
                    _ => format!("greater than {bound}"),
                };
                return Err(invalid(format!("{name}: {} must be {least}", shown())));
            }
            Validation::LessThan(bound) if number.is_some_and(|v| v >= *bound) => {
                let most = match parameter.kind {
                    ParameterKind::Int | ParameterKind::Bytes => format!("at most {}", bound - 1.0),
                    _ => format!("less than {bound}"),
                };
                return Err(invalid(format!("{name}: {} must be {most}", shown())));
            }
            Validation::OneOf(texts) => {
                if let Some(bad) = items.iter().find(|item| !texts.contains(item)) {
                    let finding = Diagnostic::error(
                        codes::SETTINGS_INVALID,
                        format!("{name}: {} is not one of {}", shown(), list(texts)),
                    )
                    .with_span(span);
                    let meant = elsewhere(bad).filter(|meant| texts.iter().any(|text| text == meant));
                    let finding = match meant {
                        _ if parameter.is_secret(name) || written.is_substituted() => finding,
                        Some(meant) => finding.with_fix(span, bad.as_str(), meant),
                        None => finding.with_slip(span, bad, texts.iter().map(Str::as_str)),
                    };
                    let longer = || {
                        let mut longer = texts.iter().map(Str::as_str).filter(|text| {
                            text.strip_prefix(bad.as_str()).is_some_and(|rest| rest.starts_with(['-', '_', '/']))
                        });
                        longer.next().filter(|_| longer.next().is_none())
                    };
                    let near = meant.or_else(longer);
                    let near = near.or_else(|| did_you_mean(bad, texts.iter().map(Str::as_str)));
                    return Err(match near.or_else(|| of_the_same_end(bad, texts)) {
                        Some(near) => finding.with_hint(format!("did you mean {near:?}?")),
                        None => finding,
                    }
                    .into());
                }
            }
            Validation::NotOneOf(texts) if items.iter().any(|item| texts.contains(item)) => {
                return Err(invalid(format!("{name}: {} must not be one of {}", shown(), list(texts))));
            }
            Validation::Matches(pattern)
                if regex::Regex::new(pattern).is_ok_and(|regex| !regex.is_match(written.value())) =>
            {
                return Err(invalid(format!("{name}: {} does not match {pattern}", shown())));
            }
            Validation::Within(roots) => {
                let Typed::Reference(reference) = &typed else { continue };
                let inside = |root: &Str| {
                    reference
                        .as_str()
                        .strip_prefix(root.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                };
                if !roots.iter().any(inside) {
                    return Err(invalid(format!("{name}: {} must refer to {}", shown(), list(roots))));
                }
            }
            _ => {}
        }
    }
    let secret = parameter.is_secret(name);
    Ok(CheckedArgument { written, secret, is_default: false, typed })
}

/// The message quotes the text, so it is replaced by a general one if the text contains substituted values.
fn invalid_reference(name: &Str, written: &Written, error: &ReferenceError) -> Diagnostic {
    const CODE: Code = codes::SETTINGS_INVALID_REFERENCE;
    if written.is_substituted() {
        return Diagnostic::error(CODE, format!("{name}: the value of {name:?} is not a reference"))
            .with_span(written.span())
            .with_hint("write a reference, for example .Payload.After.name, .Key or .Metadata[\"a.b\"]");
    }
    let finding = Diagnostic::error(CODE, format!("{name}: {error}")).with_span(written.span());
    let finding = match error.meant() {
        Some(meant) => finding.with_fix(written.span(), written.value().trim(), meant),
        None => finding,
    };
    match error.hint() {
        Some(hint) => finding.with_hint(hint),
        None => finding,
    }
}

pub(crate) fn invalid_template(name: &Str, written: &Written, error: TemplateError) -> Diagnostic {
    let again = |text: &str| Template::parse(text, MissingKey::NoValue).err();
    not_compiled(codes::SETTINGS_INVALID_TEMPLATE, written, error, again, |error| match error {
        Some(message) => format!("{name}: {message}"),
        None => format!("{name}: the template does not compile once its variables are replaced"),
    })
}

/// Replaces each variable in a template by a number, and returns the first variable in an action that is not quoted.
fn without_variables(written: &str) -> (String, Option<&str>) {
    let mut text = String::with_capacity(written.len());
    let (mut from, mut bare) = (0, None);
    for at in crate::secret::expressions(written) {
        let (before, after) = (&written[..at.start], &written[at.end..]);
        let is_apart = before.ends_with([' ', '(']) && after.starts_with([' ', ')', '}', '|']);
        let inside = before.rfind("{{").is_some_and(|open| !before[open..].contains("}}"));
        text.push_str(&written[from..at.start]);
        text.push('0');
        from = at.end;
        if is_apart && inside {
            bare = bare.or(Some(&written[at]));
        }
    }
    text.push_str(&written[from..]);
    (text, bare)
}

/// Reports a text that does not compile, at the place of the error. The message of the error quotes parts of the text.
/// If the text contains substituted values, the message of `again` is used instead, which compiles the text without
/// them; if that succeeds, `message` receives `None`.
pub fn not_compiled(
    code: Code,
    written: &Written,
    error: TemplateError,
    again: impl FnOnce(&str) -> Option<TemplateError>,
    message: impl FnOnce(Option<&str>) -> String,
) -> Diagnostic {
    let place = written.place(error.offset, error.len);
    let correction = error.correction.clone();
    let (plain, bare) = without_variables(written.written());
    let error = if written.is_substituted() { again(&plain) } else { Some(error) };
    let hint = match (&error, bare) {
        (Some(error), _) => error.hint.clone(),
        (None, Some(bare)) => Some(format!("write a text in quotes: \"{bare}\"")),
        (None, None) => Some("check whether the value of a variable contains quotes or braces".to_owned()),
    };
    let message = message(error.as_ref().map(|error| error.message.as_str()));
    let finding = Diagnostic::error(code, message).with_span(place);
    let finding = match correction {
        Some((at, becomes)) => written.corrected(finding, at.start, at.len(), &becomes),
        None => finding,
    };
    match hint {
        Some(hint) => finding.with_hint(hint),
        None => finding,
    }
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a duration like Go's `time.ParseDuration`, without negative durations: `1h2m3.5s`, `100ms`, `0`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|n| *n > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanos += number
            * match &rest[..unit] {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    (!text.is_empty() && nanos <= i64::MAX as f64).then(|| Duration::from_nanos(nanos.round() as u64))
}

/// Parses a number of bytes with an optional unit: `1000`, `64KiB`, `8MB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Returns the parameters that are not set, as candidates for the intended name of an unknown setting.
fn not_given<'a>(specification: &'a Specification, settings: &Settings) -> Vec<&'a str> {
    let given: BTreeSet<&str> = settings.entries.iter().map(|setting| setting.name.value.trim()).collect();
    let names = specification.parameters.iter().map(|parameter| parameter.name.as_str());
    names.filter(|name| !name.contains('*') && !given.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specification() -> Specification {
        Specification::builtin("demo", "For tests.")
            .with(
                Parameter::new("count", ParameterKind::Int, "How many.")
                    .required()
                    .validate(Validation::GreaterThan(0.0)),
            )
            .with(Parameter::new("mode", ParameterKind::Text, "How.").default_value("fast").one_of(&["fast", "slow"]))
            .with(Parameter::new("token", ParameterKind::Text, "Key.").secret())
            .with(Parameter::new("options.*", ParameterKind::Text, "Types.").one_of(&["int", "string"]))
    }

    #[test]
    fn a_required_setting_that_is_wrong_is_not_missing_too() {
        assert_eq!(messages(&[("count", "many")]), ["count: \"many\" is not an integer"]);
    }

    fn messages(pairs: &[(&str, &str)]) -> Vec<String> {
        match Arguments::parse(&specification(), &Settings::from_pairs(pairs.iter().copied())) {
            Ok(_) => Vec::new(),
            Err(findings) => findings.into_iter().map(|d| d.message).collect(),
        }
    }

    #[test]
    fn defaults_are_filled_in() {
        let arguments = Arguments::parse(
            &specification(),
            &Settings::from_pairs([("count", " 3 "), ("mode", " "), ("options.id", "int")]),
        )
        .unwrap();
        assert!(matches!(arguments.typed("count"), Some(Typed::Int(3))));
        assert_eq!(arguments.text("mode").unwrap(), &"fast");
        assert_eq!(arguments.names().map(Str::as_str).collect::<Vec<_>>(), ["count", "mode", "options.id"]);
        assert!(!arguments.has("token"));
    }

    #[test]
    fn what_is_given_is_told_from_defaults() {
        let settings = Settings::from_pairs([("token", " "), ("count", "3"), ("options.id", "int")]);
        let arguments = Arguments::parse(&specification(), &settings).unwrap();
        let given: Vec<(String, String)> =
            arguments.given().map(|(name, text)| (name.to_string(), text.value().to_string())).collect();
        let expected = [("count", "3"), ("options.id", "int"), ("token", "")];
        assert_eq!(given, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn every_problem_is_found() {
        assert_eq!(
            messages(&[("mode", "quick"), ("cuont", "1"), ("options.id", "uuid")]),
            [
                "mode: \"quick\" is not one of fast, slow",
                "demo has no parameter \"cuont\"",
                "options.id: \"uuid\" is not one of int, string",
            ],
            "what is misspelt is not missing too"
        );
        assert_eq!(messages(&[("mode", "slow")]), ["\"count\" is required by demo"]);
        assert_eq!(messages(&[("count", "0")]), ["count: \"0\" must be at least 1"]);
        assert_eq!(messages(&[("count", "x")]), ["count: \"x\" is not an integer"]);
    }

    #[test]
    fn what_stands_beside_the_plugin_is_sent_there() {
        let settings = Settings::from_pairs([("count", "1"), ("workers", "2")]);
        let found = Arguments::parse(&specification(), &settings).unwrap_err();
        let hint = found.iter().find_map(|finding| finding.hint.clone()).unwrap();
        assert_eq!(hint, "write \"workers\" next to \"plugin\", not in \"settings\"");
    }

    #[test]
    fn credentials_are_not_shown() {
        let arguments =
            Arguments::parse(&specification(), &Settings::from_pairs([("count", "1"), ("token", "hunter22")])).unwrap();
        assert_eq!(arguments.shown("token").as_deref(), Some("***"));
        assert!(!format!("{:?}", arguments.iter_shown().collect::<Vec<_>>()).contains("hunter22"));
        assert_eq!(arguments.secrets().collect::<Vec<_>>(), ["hunter22"]);
    }

    #[test]
    fn defaults_of_credentials_are_not_shown() {
        let specification = specification()
            .with(Parameter::new("url", ParameterKind::Text, "Where."))
            .with(Parameter::new("headers.*", ParameterKind::Text, "Headers."));
        for (name, written, value, shown) in [
            ("token", "Bearer ${T:-hunter33}", "Bearer of-the-variable", "Bearer ${T:-***}"),
            ("token", "Bearer ${T:-hunter33}", "Bearer hunter33", "Bearer ${T:-***}"),
            ("token", "${T}", "of-the-variable", "${T}"),
            (
                "url",
                "http://me:${T:-hunter33}@host/?a=${A:-b}",
                "http://me:x@host/?a=b",
                "http://me:${T:-***}@host/?a=${A:-b}",
            ),
            ("url", "http://host/?api_key=hunter33", "http://host/?api_key=hunter33", "http://host/?api_key=***"),
            ("headers.X-Auth-Token", "hunter33", "hunter33", "***"),
            ("headers.X-Auth-Token", "${T:-hunter33}", "of-the-variable", "${T:-***}"),
            ("headers.X-Trace", "${T:-hunter33}", "of-the-variable", "${T:-hunter33}"),
        ] {
            let mut settings = Settings::from_pairs([("count", "1"), (name, "")]);
            settings.entries[1].value = Written::new(value, written, Span::default());
            let arguments = Arguments::parse(&specification, &settings).unwrap();
            assert_eq!(arguments.shown(name).as_deref(), Some(shown), "{name}: {written}");
            let masked = arguments.secrets().any(|secret| secret.contains("hunter33"));
            assert_eq!(masked, shown.contains("***"), "{name}: {written}");
        }
    }

    #[test]
    fn durations_and_sizes_are_read_as_go_reads_them() {
        assert_eq!(parse_duration("1h2m3.5s"), Some(Duration::from_millis(3_723_500)));
        assert_eq!(parse_duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(parse_duration("0"), Some(Duration::ZERO));
        for bad in ["", "5", "s", "1x", "1.2.3s", "-1s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_bytes("12x"), None);
    }
}
