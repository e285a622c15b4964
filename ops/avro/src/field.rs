//! The field that `avro.encode` and `avro.decode` process.

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};
use anabranch_record::reference::{Reference, Target};

pub(crate) fn parameter(description: &'static str) -> Parameter {
    Parameter::new("field", ParameterKind::Reference, description)
        .default_value(".Payload.After")
        .validate(Validation::Within(vec![".Key".into(), ".Payload".into()]))
}

pub(crate) fn of(arguments: &Arguments) -> Result<Reference, Diagnostics> {
    match arguments.reference("field") {
        Some(field) if *field.target() != Target::Payload => Ok(field.clone()),
        _ => Err(Diagnostic::error("settings.invalid", "field: .Payload has two sides, Before and After")
            .with_span(arguments.span("field"))
            .with_path("/field")
            .with_hint("did you mean .Payload.After?")
            .into()),
    }
}
