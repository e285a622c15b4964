//! Specifications of plugins.

use std::collections::HashMap;

use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};

use crate::wire;

/// Returns the parameters of a plugin, in name order. Leaves out validations that cannot be parsed: the plugin checks
/// them itself.
pub fn parameters(given: &HashMap<String, wire::Parameter>) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = given.iter().map(|(name, given)| parameter(name, given)).collect();
    parameters.sort_by(|a, b| a.name.cmp(&b.name));
    parameters
}

fn parameter(name: &str, given: &wire::Parameter) -> Parameter {
    let kind = match given.kind {
        2 => ParameterKind::Int,
        3 => ParameterKind::Float,
        4 => ParameterKind::Bool,
        5 => ParameterKind::File,
        6 => ParameterKind::Duration,
        _ => ParameterKind::Text,
    };
    let mut parameter = Parameter::new("", kind, "");
    parameter.name = name.into();
    parameter.description = given.description.as_str().into();
    parameter.default = (!given.default.is_empty()).then(|| given.default.as_str().into());
    parameter.validations = given.validations.iter().filter_map(validation).collect();
    parameter
}

fn validation(given: &wire::Validation) -> Option<Validation> {
    let list = || given.value.split(',').map(|item| item.trim().into()).collect();
    let number = || given.value.trim().parse().ok();
    match given.kind {
        1 => Some(Validation::Required),
        2 => number().map(Validation::GreaterThan),
        3 => number().map(Validation::LessThan),
        4 => Some(Validation::OneOf(list())),
        5 => Some(Validation::NotOneOf(list())),
        6 => Some(Validation::Matches(given.value.as_str().into())),
        _ => None,
    }
}
