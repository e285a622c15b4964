//! Processors that encode a field as base64 text, or decode it.

pub mod decode;
pub mod encode;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::{Content, Flow, Kinds, Since, Type};
use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Part, Reference, Target};

/// Returns the parameter `field`, shared by both processors.
fn field_parameter(description: &'static str) -> Parameter {
    Parameter::new("field", ParameterKind::Reference, description).required().validate(Validation::Within(vec![
        ".Metadata".into(),
        ".Key".into(),
        ".Payload".into(),
    ]))
}

/// Returns the `field` argument, which must refer to a single value.
fn field(arguments: &Arguments) -> Result<Reference, Diagnostics> {
    match arguments.reference("field") {
        Some(field) if *field.target() == Target::Metadata => {
            Err(Diagnostic::error("settings.invalid", "field: .Metadata is a map of texts")
                .with_span(arguments.span("field"))
                .with_path("/field")
                .with_hint("name one entry, for example .Metadata.title")
                .into())
        }
        _ => crate::field::one_side(arguments),
    }
}

/// Type-checks the field and sets its type after the processor: input kinds `takes`, output kinds `makes`.
fn flow(flow: &mut Flow, field: &Reference, takes: Kinds, makes: Kinds, content: Option<Content>) {
    let found = flow.need("flow.not_a_text", "field", field, (takes, "text or bytes"), true);
    match field.target() {
        Target::Data(side) => {
            let shape = flow.record.side_mut(*side);
            (shape.structured, shape.plain) = (None, shape.plain && content.is_some());
            shape.content = content;
        }
        Target::Entry(_) => {}
        _ => {
            let same = content.is_none() || found.ty.content == content;
            let since = if same { found.ty.since_if(makes) } else { Since::default() };
            flow.replace("field", field, Type { since, content, ..Type::of(makes) });
        }
    }
}

#[cold]
fn unexpected_type(verb: &str, field: &Reference, part: &Part<'_>) -> Fault {
    let what = format!("cannot {verb} {field}: unexpected data type {}", part.type_name());
    Fault::record("base64_unexpected_type", what)
}
