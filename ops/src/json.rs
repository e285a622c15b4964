//! Processors that turn a field from JSON text into fields, and back.

pub mod decode;
pub mod encode;

use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};

/// The field that both work on.
fn field_parameter(description: &'static str) -> Parameter {
    Parameter::new("field", ParameterKind::Reference, description)
        .required()
        .validate(Validation::Within(vec![".Key".into(), ".Payload".into()]))
}
