//! Transformations that replace a whole key or value: ExtractField, HoistField, ValueToKey.

use super::fields::{is_kind, json_name};
use super::{Transform, list};
use crate::connect::draft::Draft;
use crate::connect::shape::{Form, Shape, json_of};
use crate::expression::field;

pub(super) fn extract(transform: &mut Transform, draft: &mut Draft<'_>, shape: &mut Shape) {
    let name = transform.take("field").unwrap_or_default();
    if !transform.has_fields(draft, shape) {
        return;
    }
    let value = transform.field(&name);
    let is_written = if transform.is_key { shape.as_json.key } else { shape.as_json.value };
    let is_json = is_written || transform.is_put_into_field;
    let template = match is_json {
        true => format!("{{{{ toJson {value} }}}}"),
        false => format!(
            "{{{{ if {} }}}}{{{{ {value} }}}}{{{{ else }}}}{{{{ toJson {value} }}}}{{{{ end }}}}",
            is_kind("string", &value)
        ),
    };
    let part = transform.part("field.set").with("field", transform.base()).with("value", template);
    draft.add(part.when(transform.of_present(shape).as_deref()));
    let note = match is_json {
        true => "the result is the JSON text of the value; times and bytes become texts",
        false => "the result is raw data: a text as it is, other values as JSON; for a map, add `json.decode` after it",
    };
    transform.changed(draft, "field", note);
    transform.set_form(shape, if is_json { Form::Json } else { Form::Raw });
}

pub(super) fn hoist(transform: &mut Transform, draft: &mut Draft<'_>, shape: &mut Shape) {
    let name = transform.take("field").unwrap_or_default();
    let form = transform.form(shape);
    if form == Form::Envelope {
        transform.blocked(draft, "type", "Debezium's envelope cannot be put into a field");
        return;
    }
    let template = format!("{{{}: {{{{ {} }}}}}}", json_name(&name), json_of(form, transform.base()));
    transform.replace_with_json(draft, shape, transform.base(), &template);
    match form {
        Form::Raw => transform.carried(draft, "field"),
        _ => transform.changed(draft, "field", "times and bytes become texts"),
    }
    transform.set_form(shape, Form::Fields);
}

pub(super) fn value_to_key(transform: &mut Transform, draft: &mut Draft<'_>, shape: &mut Shape) {
    let names = list(&transform.take("fields").unwrap_or_default());
    // The fields are those of the value, whatever the class says.
    transform.is_key = false;
    if !transform.has_fields(draft, shape) {
        return;
    }
    key_from_value(transform, draft, shape, &names);
    transform.changed(draft, "fields", "a field that is missing becomes null; times and bytes become texts");
}

/// Makes a key of fields of the value.
pub(super) fn key_from_value(transform: &Transform, draft: &mut Draft<'_>, shape: &mut Shape, names: &[String]) {
    transform.replace_with_json(draft, shape, ".Key", &key_template(names));
    shape.key = Form::Fields;
}

/// Returns the template of a JSON object with these fields of the value.
pub(in crate::connect) fn key_template(names: &[String]) -> String {
    let member = |name: &String| format!("{}: {{{{ toJson {} }}}}", json_name(name), field(".Payload.After", &[name]));
    format!("{{{}}}", names.iter().map(member).collect::<Vec<_>>().join(", "))
}
