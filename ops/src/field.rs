//! Processors that change fields.

pub mod convert;
pub mod exclude;
mod items;
pub mod rename;
pub mod set;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_record::reference::{Reference, Target};

/// Returns the argument `field`. It must not be `.Payload`, which has two sides.
pub(crate) fn one_side(arguments: &Arguments) -> Result<Reference, Diagnostics> {
    match arguments.reference("field") {
        Some(field) if *field.target() != Target::Payload => Ok(field.clone()),
        _ => Err(Diagnostic::error("settings.invalid", "field: .Payload has two sides, Before and After")
            .with_span(arguments.span("field"))
            .with_path("/field")
            .with_hint("did you mean .Payload.After?")
            .into()),
    }
}
