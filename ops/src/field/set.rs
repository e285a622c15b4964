//! `field.set`: sets a field to a text.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{self, Flow, Kinds, Operations, Texts, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Operation;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::{Reference, Target};
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_template::Template;

use crate::codes;

/// Returns the `field.set` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<SetField>()
}

#[derive(Parameters)]
struct Settings {
    /// The field to set, such as .Payload.After.name.
    #[parameter(within = [".Operation", ".Metadata", ".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The value: a template such as '{{ .Metadata.title }}', or a constant text.
    #[parameter(may_be_blank)]
    value: Argument<Template>,
}

fn operation(text: &str, setting: &Argument<Template>) -> Result<Value, Diagnostics> {
    let text = text.trim();
    text.parse::<Operation>().map(|operation| Value::Text(Str::from_static(operation.as_str()))).map_err(|e| {
        let finding = setting.invalid(e);
        match did_you_mean(text, Operation::ALL.map(Operation::as_str)) {
            Some(near) => finding.with_hint(format!("did you mean {near}?")),
            None => finding,
        }
        .into()
    })
}

#[derive(Clone)]
struct SetField {
    field: Reference,
    value: Content,
    /// True if the value contains no variable.
    always: bool,
    /// Output buffer, reused between records.
    buffer: String,
}

#[derive(Clone)]
enum Content {
    /// A constant for every record.
    Same(Value),
    /// A template, rendered for each record.
    Rendered(Template),
}

impl InlineOperator for SetField {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.set", "Sets a field to a text.")
            .describe(
                "Sets a field to the output of a template over the record. A value without `{{` is a constant text.\n\n\
                 The value is always text. In `.Key`, `.Payload.Before` and `.Payload.After` it becomes raw data; in \
                 `.Operation` it must be one of `create`, `update`, `delete`, `snapshot`. Missing maps on the path of \
                 the field are created. `.Position` cannot be changed; of `.Metadata` and `.Payload`, only parts can \
                 be set.",
            )
            .with_all(shared::processor())
    }

    fn configure(Settings { field, value }: Settings) -> Result<Self, Diagnostics> {
        let whole = |hint: &str| {
            Diagnostics::from(field.invalid(format_args!("{} cannot be set to a text", *field)).with_hint(hint))
        };
        match field.target() {
            Target::Metadata => return Err(whole("name one entry, for example .Metadata.title")),
            Target::Payload => return Err(whole("did you mean .Payload.After?")),
            Target::Record | Target::Position => return Err(whole("name a part of the record that can be changed")),
            _ => {}
        }
        let always = value.is_constant();
        let value = match value.literal() {
            Some(text) if *field.target() == Target::Operation => Content::Same(operation(text, &value)?),
            Some(text) => Content::Same(Value::from(text)),
            None => Content::Rendered(value.into_value()),
        };
        Ok(SetField { field: field.into_value(), value, always, buffer: String::new() })
    }

    fn signature(&self) -> Signature {
        let reads = match &self.value {
            Content::Same(_) => Access::NOTHING,
            Content::Rendered(template) => template.reads(),
        };
        Signature::new().reads(reads).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        if let Content::Rendered(template) = &self.value {
            flow.template("value", template);
            if *self.field.target() == Target::Operation {
                flow.operation_template("value", template);
            }
        }
        if let Content::Same(Value::Text(text)) = &self.value {
            flow.literal("value", text);
        }
        match (self.field.target(), &self.value) {
            (Target::Operation, Content::Same(Value::Text(name))) => {
                flow.record.operations = name.parse().map_or(Operations::ALL, Operations::only);
            }
            (_, Content::Same(Value::Text(text))) if self.always => {
                let known = Type { content: self.known(), ..Type::one_of(Texts::only(text.clone())) };
                flow.set("field", &self.field, known);
            }
            _ => flow.set("field", &self.field, Type { content: self.known(), ..Type::of(Kinds::TEXT) }),
        }
        if let (Target::Data(side), Content::Same(Value::Text(text))) = (self.field.target(), &self.value) {
            let is_plain = match serde_json::from_str(text) {
                Ok(json) => !matches!(json, serde_json::Value::Object(_) | serde_json::Value::String(_)),
                Err(_) => !text.trim_start().starts_with(['{', '[', '"']),
            };
            flow.record.side_mut(*side).plain = is_plain && !text.is_empty();
            flow.record.side_mut(*side).fixed = self.always.then(|| text.clone());
        }
        if let (Target::Data(side), Content::Rendered(template)) = (self.field.target(), &self.value) {
            // The constant prefix of the rendered text.
            let head = template.source().split("{{").next().unwrap_or_default().trim_start();
            let is_word = !head.is_empty() && !head.starts_with(['{', '"']) && !"null".starts_with(head);
            flow.record.side_mut(*side).plain = is_word || !flow::may_be_json(template, true);
        }
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        let SetField { field, value, buffer, .. } = self;
        let is_operation = *field.target() == Target::Operation;
        rows.for_each(|record| {
            let value = match value {
                Content::Same(value) => value.clone(),
                Content::Rendered(template) => {
                    buffer.clear();
                    template.render(record, buffer).map_err(|e| Fault::record(codes::TEMPLATE_FAILED, e))?;
                    Value::from(if is_operation { buffer.trim() } else { buffer.as_str() })
                }
            };
            field.set(record, value)?;
            Ok(Decision::Keep)
        });
    }
}

impl SetField {
    /// Returns the static knowledge about all texts that this processor sets.
    fn known(&self) -> Option<flow::Content> {
        let timeless = match &self.value {
            Content::Same(Value::Text(text)) => !super::convert::is_time(text),
            Content::Same(_) => false,
            // The output of a template that reads no record always has the same form, such as today's date, unless it
            // is random.
            Content::Rendered(template) => {
                let source = template.source();
                let code: String = source.split('"').step_by(2).collect();
                let same = !code.contains(['.', '$', '`', '\\']) && !code.contains("rand") && !code.contains("shuffle");
                let text = if same { template.render_briefly() } else { None };
                text.is_some_and(|text| text.is_ok_and(|text| !super::convert::is_time(&text)))
            }
        };
        timeless.then_some(flow::Content::Timeless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, process, record};

    fn set(field: &str, value: &str, before: &str) -> Result<String, String> {
        let (after, decision) = process(&kind(), &[("field", field), ("value", value)], &record(before));
        match decision {
            Decision::Keep => Ok(testing::text(&after)),
            Decision::Fail(fault) => Err(format!("{}: {}", fault.code(), fault.message())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_become_text() {
        let plain = r#"{"operation":"create","payload":{"after":{"a":1}}}"#;
        let shown = |after: &str| {
            format!(
                r#"{{"position":"","operation":"create","metadata":{{}},"key":null,"payload":{{"before":null,"after":{after}}}}}"#
            )
        };
        assert_eq!(set(".Payload.After.a", "x", plain), Ok(shown(r#"{"a":"x"}"#)));
        assert_eq!(set(".Payload.After.b.c", "7", plain), Ok(shown(r#"{"a":1,"b":{"c":"7"}}"#)));
        assert_eq!(set(".Payload.After", "raw", plain), Ok(shown("\"cmF3\"")));
        assert_eq!(set(".Operation", "delete", plain), Ok(shown(r#"{"a":1}"#).replace("create", "delete")));
        assert_eq!(
            set(".Metadata[\"x.y\"]", "1", plain),
            Ok(shown(r#"{"a":1}"#).replace("\"metadata\":{}", "\"metadata\":{\"x.y\":\"1\"}"))
        );
        assert_eq!(
            set(".Payload.After.a.b", "x", plain),
            Err("reference_unresolved: cannot resolve reference .Payload.After.a.b: .Payload.After.a is integer, \
                 not a map"
                .to_owned())
        );
    }

    #[test]
    fn what_can_never_be_set_is_found_early() {
        let told = |field, value| findings(&kind(), &[("field", field), ("value", value)]);
        assert_eq!(
            told(".Position", "x"),
            ["field: \".Position\" must refer to .Operation, .Metadata, .Key, .Payload"]
        );
        assert_eq!(told(".", "x"), ["field: \".\" must refer to .Operation, .Metadata, .Key, .Payload"]);
        assert_eq!(told(".Metadata", "x"), ["field: .Metadata cannot be set to a text"]);
        assert_eq!(told(".Payload", "x"), ["field: .Payload cannot be set to a text"]);
        assert_eq!(
            told(".Operation", "updat"),
            ["value: unknown operation \"updat\", expected one of create, update, delete, snapshot"]
        );
        assert_eq!(findings(&kind(), &[]).len(), 2);
    }

    #[test]
    fn the_compiler_knows_what_it_touches() {
        let signature = testing::signature(&kind(), &[("field", ".Payload.After.a"), ("value", "x")]);
        assert_eq!(signature.writes, Reference::parse(".Payload.After.a").unwrap().access());
        assert_eq!(signature.reads, Access::NOTHING);
    }

    #[test]
    fn a_failed_row_stays_as_it_was() {
        for field in [".Key.a", ".Payload.After.a.b", ".Payload.Before.a.b.c"] {
            testing::failed_rows_stay(&kind(), &[("field", field), ("value", "x")]);
        }
    }
}
