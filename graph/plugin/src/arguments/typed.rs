//! Texts of settings as values of the types of their parameters.

use std::time::Duration;

use anabranch_record::code::Code;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::{Reference, ReferenceError};
use anabranch_record::text::Str;
use anabranch_template::{MissingKey, Template};

use super::template::invalid_template;
use super::units::{parse_bool, parse_bytes, parse_duration};
use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::specification::{Parameter, ParameterKind, Validation};
use crate::written::Written;

#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(super) written: Written,
    pub(super) secret: bool,
    pub(super) is_default: bool,
    pub(super) typed: Typed,
}

impl Checked {
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
    pub(super) fn is_of(&self, kind: ParameterKind) -> bool {
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

pub(crate) fn type_check(parameter: &Parameter, name: &Str, written: Written) -> Result<Checked, Diagnostics> {
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
    Ok(Checked { written, secret, is_default: false, typed })
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
