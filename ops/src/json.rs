//! Processors that encode a field as JSON text, or decode it.

pub mod decode;
pub mod encode;

use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};

/// Returns the parameter `field`, shared by both processors.
fn field_parameter(description: &'static str) -> Parameter {
    Parameter::new("field", ParameterKind::Reference, description)
        .required()
        .validate(Validation::Within(vec![".Key".into(), ".Payload".into()]))
}
