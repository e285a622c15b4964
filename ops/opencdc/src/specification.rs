//! Specifications of plugins.

use std::collections::HashMap;

use anabranch_record::protobuf::specification::{kind_of, validation_of};
use anabranch_record::specification::Parameter;

use crate::wire;

/// Returns the parameters of a plugin, in name order. Leaves out validations that cannot be parsed: the plugin checks
/// them itself.
pub fn parameters(given: &HashMap<String, wire::Parameter>) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = given.iter().map(|(name, given)| parameter(name, given)).collect();
    parameters.sort_by(|a, b| a.name.cmp(&b.name));
    parameters
}

fn parameter(name: &str, given: &wire::Parameter) -> Parameter {
    let mut parameter = Parameter::new("", kind_of(given.kind), "");
    parameter.name = name.into();
    parameter.description = given.description.as_str().into();
    parameter.default = (!given.default.is_empty()).then(|| given.default.as_str().into());
    let rules = given.validations.iter().filter_map(|given| validation_of(given.kind, &given.value));
    parameter.validations = rules.collect();
    parameter
}
