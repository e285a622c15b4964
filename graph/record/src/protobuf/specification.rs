//! Specifications in the processor and connector protocols: `config.v1.Parameter`.

use super::write::{bytes_unless_empty as bytes, message, number_unless_zero as number};
use crate::specification::{Parameter, ParameterKind, Specification, Validation};
use crate::text::Str;

/// Estimate of the length of a parameter in bytes, without its description.
const PARAMETER: usize = 64;

/// Appends the fields of a specification. Rules that the protocol lacks are left out.
pub fn write_specification(specification: &Specification, to: &mut Vec<u8>) {
    bytes(to, 1, specification.name.as_bytes());
    bytes(to, 2, specification.summary.as_bytes());
    bytes(to, 3, specification.description.as_bytes());
    bytes(to, 4, specification.version.as_bytes());
    bytes(to, 5, specification.author.as_bytes());
    for parameter in &specification.parameters {
        let size = parameter.description.len() + PARAMETER;
        message(to, 6, size, |to| {
            bytes(to, 1, parameter.name.as_bytes());
            message(to, 2, size, |to| write_parameter(parameter, to));
        });
    }
}

fn write_parameter(parameter: &Parameter, to: &mut Vec<u8>) {
    bytes(to, 1, parameter.default.as_deref().unwrap_or_default().as_bytes());
    bytes(to, 2, parameter.description.as_bytes());
    number(to, 3, kind_number(parameter.kind));
    for (kind, value) in parameter.validations.iter().filter_map(validation_value) {
        message(to, 4, value.len(), |to| {
            number(to, 1, kind);
            bytes(to, 2, value.as_bytes());
        });
    }
}

/// Returns the number of a kind. The protocol has fewer kinds: the others are text.
const fn kind_number(kind: ParameterKind) -> u64 {
    match kind {
        ParameterKind::Int => 2,
        ParameterKind::Float => 3,
        ParameterKind::Bool => 4,
        ParameterKind::File => 5,
        ParameterKind::Duration => 6,
        ParameterKind::Text
        | ParameterKind::Bytes
        | ParameterKind::List
        | ParameterKind::Reference
        | ParameterKind::Template => 1,
    }
}

/// Returns the kind of a number; text if the number is unknown.
pub const fn kind_of(number: i32) -> ParameterKind {
    match number {
        2 => ParameterKind::Int,
        3 => ParameterKind::Float,
        4 => ParameterKind::Bool,
        5 => ParameterKind::File,
        6 => ParameterKind::Duration,
        _ => ParameterKind::Text,
    }
}

/// Returns the number of the type of a rule, and its value.
fn validation_value(validation: &Validation) -> Option<(u64, String)> {
    let joined = |texts: &[Str]| texts.iter().map(Str::as_str).collect::<Vec<_>>().join(",");
    Some(match validation {
        Validation::Required => (1, String::new()),
        Validation::GreaterThan(bound) => (2, bound.to_string()),
        Validation::LessThan(bound) => (3, bound.to_string()),
        Validation::OneOf(texts) => (4, joined(texts)),
        Validation::NotOneOf(texts) => (5, joined(texts)),
        Validation::Matches(pattern) => (6, pattern.as_str().to_owned()),
        Validation::Within(_) => return None,
    })
}

/// Returns the rule of a number and a value; `None` if it cannot be parsed.
pub fn validation_of(kind: i32, value: &str) -> Option<Validation> {
    let list = || value.split(',').map(|item| item.trim().into()).collect();
    let number = || value.trim().parse().ok();
    match kind {
        1 => Some(Validation::Required),
        2 => number().map(Validation::GreaterThan),
        3 => number().map(Validation::LessThan),
        4 => Some(Validation::OneOf(list())),
        5 => Some(Validation::NotOneOf(list())),
        6 => Some(Validation::Matches(value.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_rules_that_the_protocol_has_come_back() {
        use ParameterKind::{Bool, Duration, File, Float, Int, Text};
        for kind in [Text, Int, Float, Bool, File, Duration] {
            assert_eq!(i32::try_from(kind_number(kind)).map(kind_of), Ok(kind));
        }
        let texts = || vec!["a".into(), "b".into()];
        for rule in [
            Validation::Required,
            Validation::GreaterThan(-1.5),
            Validation::LessThan(10.0),
            Validation::OneOf(texts()),
            Validation::NotOneOf(texts()),
            Validation::Matches("^a, b$".into()),
        ] {
            let (number, value) = validation_value(&rule).unwrap();
            assert_eq!(validation_of(number as i32, &value), Some(rule));
        }
    }
}
