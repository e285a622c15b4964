//! Processors that encode a field as base64 text, or decode it.

pub mod decode;
pub mod encode;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds, ShapeOrigin, Type};
use anabranch_plugin::parameters::Argument;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Part, Reference, Target};

use crate::codes;

/// Returns the field, which must refer to a single value.
fn one_value(field: &Argument<Reference>) -> Result<Reference, Diagnostics> {
    match field.target() {
        Target::Metadata => Err(field
            .invalid(".Metadata is a map of texts")
            .with_hint("name one entry, for example .Metadata.title")
            .into()),
        _ => field.one_side(),
    }
}

/// Type-checks the field and sets its type after the processor: input kinds `takes`, output kinds `makes`.
fn flow(flow: &mut Flow, field: &Reference, takes: Kinds, makes: Kinds, content: Option<Content>) {
    let found = flow.need(codes::FLOW_NOT_A_TEXT, "field", field, (takes, "text or bytes"), true);
    match field.target() {
        Target::Data(side) => {
            let shape = flow.record.side_mut(*side);
            (shape.structured, shape.plain) = (None, shape.plain && content.is_some());
            shape.content = content;
        }
        Target::Entry(_) => {}
        _ => {
            let same = content.is_none() || found.ty.content == content;
            let since = if same { found.ty.since_if(makes) } else { ShapeOrigin::default() };
            flow.replace("field", field, Type { since, content, ..Type::of(makes) });
        }
    }
}

#[cold]
fn unexpected_type(verb: &str, field: &Reference, part: &Part<'_>) -> Fault {
    let what = format!("cannot {verb} {field}: unexpected data type {}", part.type_name());
    Fault::record(codes::BASE64_UNEXPECTED_TYPE, what)
}
