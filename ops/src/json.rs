//! Processors that turn a field from JSON text into fields, and back.

pub mod decode;
pub mod encode;

use anabranch_graph::arguments::Arguments;
use anabranch_graph::diagnostic::{Diagnostic, Diagnostics};
use anabranch_graph::reference::{Reference, Target};
use anabranch_graph::specification::{Parameter, ParameterKind, Validation};

/// The field that both work on.
fn field_parameter(description: &'static str) -> Parameter {
    Parameter::new("field", ParameterKind::Reference, description)
        .required()
        .validate(Validation::Within(vec![".Key".into(), ".Payload".into()]))
}

/// The field, which must not be the payload as a whole: that holds two.
fn field(arguments: &Arguments) -> Result<Reference, Diagnostics> {
    match arguments.reference("field") {
        Some(field) if *field.target() != Target::Payload => Ok(field.clone()),
        _ => Err(Diagnostic::error("settings.invalid", "field: .Payload has two sides, Before and After")
            .with_span(arguments.span("field"))
            .with_path("/field")
            .with_hint("did you mean .Payload.After?")
            .into()),
    }
}
