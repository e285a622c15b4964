//! Transformations of fields: InsertField, ReplaceField, MaskField, Cast, Flatten.

use anabranch_plugin::secret::names_a_credential;

use super::{Transform, list, unmarked};
use crate::connect::draft::Draft;
use crate::connect::shape::{Shape, Timestamp};
use crate::document::Part;
use crate::expression::{action, constant, metadata, quoted};

pub(super) fn insert(transform: &mut Transform, draft: &mut Draft<'_>, shape: &mut Shape) {
    let is_possible = transform.has_fields(draft, shape);
    let set = |transform: &Transform, draft: &mut Draft<'_>, shape: &Shape, name: &str, value: String| {
        let part = transform.part("field.set").with("field", transform.reference(name)).with("value", value);
        draft.add(part.when(transform.of_present(shape).as_deref()));
    };
    if let Some(name) = transform.take("topic.field") {
        if is_possible {
            let topic = shape.topic(draft);
            set(transform, draft, shape, unmarked(&name), action(&topic));
        }
        transform.carried(draft, "topic.field");
    }
    if let Some(name) = transform.take("timestamp.field") {
        let name = unmarked(&name);
        let time = match shape.timestamp {
            Timestamp::InMetadata => Some((action(&metadata("recfmt.createdAt")), "unix_ns")),
            Timestamp::Read => Some((action("date \"2006-01-02T15:04:05.000Z07:00\" now"), "rfc3339")),
            Timestamp::Partial => None,
        };
        if let (true, Some((value, layout))) = (is_possible, &time) {
            set(transform, draft, shape, name, value.clone());
            let parse = transform.part("time.parse").with("field", transform.reference(name)).with("layout", *layout);
            transform.add(draft, parse);
            if !shape.has_schema {
                let format = transform.part("time.format").with("field", transform.reference(name));
                transform.add(draft, format.with("layout", "unix_ms"));
            }
        }
        match shape.timestamp {
            Timestamp::InMetadata => transform.carried(draft, "timestamp.field"),
            Timestamp::Read => {
                transform.changed(draft, "timestamp.field", "it is the time at which the processor gets the record");
            }
            Timestamp::Partial => transform.blocked(
                draft,
                "timestamp.field",
                "the rows of a snapshot have no timestamp: remove the transformation, or set the field to a column",
            ),
        }
    }
    for name in ["partition.field", "offset.field"] {
        if transform.take(name).is_some() {
            transform.blocked(draft, name, "processors do not see the partition and the offset of a message");
        }
    }
    if let Some(name) = transform.take("static.field") {
        let raw = transform.take("static.value").unwrap_or_default();
        let setting = transform.setting("static.value");
        let value = match names_a_credential(unmarked(&name)) && !raw.is_empty() {
            true => draft.secret(&setting, &raw, "the value of the field"),
            false => draft.text(&setting, &raw),
        };
        if is_possible {
            let part = transform.part("field.set").with("field", transform.reference(unmarked(&name)));
            let mut part = part.when(transform.of_present(shape).as_deref());
            part.set("value", if value.is_variable() { value } else { constant(&raw).into() });
            draft.add(part);
        }
        transform.carried(draft, "static.field");
        transform.carried(draft, "static.value");
    }
}

pub(super) fn replace(transform: &mut Transform, draft: &mut Draft<'_>, shape: &Shape) {
    let is_possible = transform.has_fields(draft, shape);
    let exclude = transform.take_any(["exclude", "blacklist"]);
    let include = transform.take_any(["include", "whitelist"]);
    let renames = transform.take("renames");
    let is_listed = |name: &String| !name.contains([',', ':']);
    if let Some((setting, names)) = exclude {
        let names: Vec<String> = list(&names).into_iter().filter(is_listed).collect();
        let fields: Vec<String> = names.iter().map(|name| transform.reference(name)).collect();
        if is_possible && !fields.is_empty() {
            transform.add(draft, transform.part("field.exclude").with("fields", fields.join(",")));
        }
        transform.carried(draft, setting);
    }
    let pairs: Vec<(String, String)> = list(renames.as_deref().unwrap_or_default())
        .iter()
        .filter_map(|pair| pair.split_once(':').map(|(old, new)| (old.trim().to_owned(), new.trim().to_owned())))
        .collect();
    if let Some((setting, names)) = include {
        let renamed = |name: &str| {
            let new = pairs.iter().find(|(old, _)| old == name).map(|(_, new)| new.as_str());
            json_name(new.unwrap_or(name))
        };
        let members: Vec<String> = list(&names)
            .iter()
            .map(|name| format!("{}: {{{{ toJson {} }}}}", renamed(name), transform.field(name)))
            .collect();
        if is_possible {
            let template = format!("{{{}}}", members.join(", "));
            transform.replace_with_json(draft, shape, transform.base(), &template);
        }
        transform.changed(draft, setting, "a listed field that is missing becomes null; times and bytes become texts");
        if renames.is_some() {
            transform.carried(draft, "renames");
        }
        return;
    }
    if renames.is_some() {
        let is_complete = |(old, new): &(String, String)| is_listed(old) && is_listed(new) && !new.is_empty();
        let Some(pairs) = one_by_one(pairs.into_iter().filter(is_complete).collect()) else {
            let note = "names are exchanged: rename one of the fields to a name that no record has, and then back";
            return transform.blocked(draft, "renames", note);
        };
        if is_possible {
            for (old, new) in &pairs {
                let mapping = format!("{}:{new}", transform.reference(old));
                let part = transform.part("field.rename").with("mapping", mapping);
                // Without the condition, a missing field would become null.
                draft.add(part.when(Some(&transform.of_field(shape, old))));
            }
        }
        transform.carried(draft, "renames");
    }
}

/// Orders renames that happen at once so that they can happen one by one: a name is free before it is taken. `None` if names
/// are exchanged in a circle. O(renames²).
fn one_by_one(mut left: Vec<(String, String)>) -> Option<Vec<(String, String)>> {
    left.retain(|(old, new)| old != new);
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let free = left.iter().position(|(_, new)| left.iter().all(|(old, _)| old != new))?;
        ordered.push(left.remove(free));
    }
    Some(ordered)
}

/// Returns a name as a JSON text within a template.
pub(super) fn json_name(name: &str) -> String {
    constant(&serde_json::Value::from(name).to_string())
}

pub(super) fn mask(transform: &mut Transform, draft: &mut Draft<'_>, shape: &Shape) {
    let is_possible = transform.has_fields(draft, shape);
    let names = list(&transform.take("fields").unwrap_or_default());
    let replacement = transform.take("replacement");
    match &replacement {
        Some(replacement) => {
            let value = draft.text(&transform.setting("replacement"), replacement);
            for name in names.iter().filter(|_| is_possible) {
                let part = transform.part("field.set").with("field", transform.reference(name));
                let part =
                    part.with("value", if value.is_variable() { value.clone() } else { constant(replacement).into() });
                draft.add(part.when(Some(&transform.of_field(shape, name))));
            }
            transform.carried(draft, "fields");
            transform.changed(draft, "replacement", "the replacement is a text, also in fields that were numbers");
        }
        None => {
            for name in names.iter().filter(|_| is_possible) {
                transform.add(draft, transform.part("field.mask").with("field", transform.reference(name)));
            }
            transform.changed(
                draft,
                "fields",
                "each character becomes a star, and numbers become texts; Kafka Connect writes an empty text, 0 or false",
            );
        }
    }
}

pub(super) fn cast(transform: &mut Transform, draft: &mut Draft<'_>, shape: &Shape) {
    let spec = list(&transform.take("spec").unwrap_or_default());
    if let [whole] = &spec[..]
        && !whole.contains(':')
    {
        transform.blocked(draft, "spec", "processors convert fields, not whole keys and values");
        return;
    }
    let is_possible = transform.has_fields(draft, shape);
    let mut narrowed = false;
    for entry in &spec {
        let Some((name, kind)) = entry.split_once(':').map(|(name, kind)| (name.trim(), kind.trim())) else { continue };
        let kind = match kind {
            "int8" | "int16" | "int32" | "int64" => "int",
            "float32" | "float64" => "float",
            "boolean" => "bool",
            "string" => "string",
            _ => {
                transform.blocked(draft, "spec", &format!("the type of the field {name} is not known to `migrate`"));
                continue;
            }
        };
        narrowed |= kind == "int";
        if is_possible {
            let part = transform.part("field.convert").with("field", transform.reference(name)).with("type", kind);
            draft.add(part.when(Some(&transform.of_field(shape, name))));
        }
    }
    match narrowed {
        true => transform.changed(
            draft,
            "spec",
            "integers have 64 bits, and a number with a fraction fails the record; Kafka Connect cuts the fraction off",
        ),
        false => transform.carried(draft, "spec"),
    }
}

pub(super) fn flatten(transform: &mut Transform, draft: &mut Draft<'_>, shape: &Shape) {
    let delimiter = transform.take("delimiter");
    if transform.has_fields(draft, shape) {
        let part: Part = transform.part("field.flatten").with("field", transform.base());
        let part = part.with("separator", delimiter.as_deref().unwrap_or("."));
        transform.add(draft, part);
    }
    if delimiter.is_some() {
        transform.carried(draft, "delimiter");
    }
}

/// Returns the expression that is true if the value of a field is of this kind.
pub(super) fn is_kind(kind: &str, field: &str) -> String {
    format!("kindIs {} {field}", quoted(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_before_it_is_taken() {
        let ordered = |pairs: &[(&str, &str)]| {
            let owned = |(old, new): &(&str, &str)| (old.to_string(), new.to_string());
            one_by_one(pairs.iter().map(owned).collect())
                .map(|pairs| pairs.iter().map(|(old, new)| format!("{old}:{new}")).collect::<Vec<_>>().join(","))
        };
        for (pairs, expected) in [
            (&[("a", "b"), ("c", "d")][..], Some("a:b,c:d")),
            (&[("a", "b"), ("b", "c")], Some("b:c,a:b")),
            (&[("a", "b"), ("b", "c"), ("c", "d")], Some("c:d,b:c,a:b")),
            (&[("a", "a"), ("b", "a")], Some("b:a")),
            (&[("a", "b"), ("b", "a")], None),
            (&[("x", "y"), ("a", "b"), ("b", "c"), ("c", "a")], None),
            (&[], Some("")),
        ] {
            assert_eq!(ordered(pairs).as_deref(), expected, "{pairs:?}");
        }
    }
}
