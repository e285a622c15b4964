//! The transformation ExtractNewRecordState of Debezium.

use super::{Transform, list};
use crate::connect::draft::Draft;
use crate::connect::shape::{Form, IS_DELETION, Shape};
use crate::expression::{action, and, metadata};

/// The letter of the operation, as Debezium writes it.
const LETTER: &str = "{{ if eq .Operation.String \"create\" }}c{{ else if eq .Operation.String \"update\" }}u{{ else if eq \
                      .Operation.String \"delete\" }}d{{ else }}r{{ end }}";

pub(super) fn extract(transform: &mut Transform, draft: &mut Draft<'_>, shape: &mut Shape) {
    let is_source = shape.value == Form::Envelope;
    let drop_tombstones = transform.take("drop.tombstones");
    let old = transform.take("delete.handling.mode");
    let new = transform.take("delete.tombstone.handling.mode");
    let added = list(&transform.take("add.fields").unwrap_or_default());
    let prefix = transform.take("add.fields.prefix").unwrap_or_else(|| "__".to_owned());
    if !is_source {
        if !transform.has_fields(draft, shape) {
            return;
        }
        // Debezium sends a message without a value after each deletion, which only topics need.
        let part = transform.part("filter").comment("Drops the tombstones; deletions have records of their own.");
        draft.add(part.when(Some(&and(transform.condition.as_deref(), IS_DELETION))));
        // The converter has removed the envelope of Kafka Connect, which `unwrap.debezium` needs.
        let wrap = transform.part("field.set").with("field", ".Payload.After");
        transform.add(draft, wrap.with("value", "{\"payload\": {{ toJson .Payload.After }}}"));
        transform.add(draft, transform.part("unwrap.debezium"));
        shape.key = Form::Fields;
    }
    shape.value = Form::Fields;
    shape.has_deletions = true;
    if drop_tombstones.is_some() {
        transform.changed(
            draft,
            "drop.tombstones",
            "a deletion is one record: it is a tombstone only where it is written to Kafka with deletes: tombstone",
        );
    }
    let (setting, mode) = match (&old, &new) {
        (_, Some(mode)) => ("delete.tombstone.handling.mode", mode.as_str()),
        (Some(mode), None) => ("delete.handling.mode", mode.as_str()),
        (None, None) => ("delete.handling.mode", ""),
    };
    match (setting, mode) {
        (_, "drop") => {
            let part = transform.part("filter").comment("Drops deletions.");
            draft.add(part.when(Some(&and(transform.condition.as_deref(), IS_DELETION))));
            shape.has_deletions = false;
            transform.carried(draft, setting);
        }
        (_, "none" | "tombstone" | "delete-to-tombstone") => transform.carried(draft, setting),
        (_, "rewrite" | "rewrite-with-tombstone") => {
            keep_deleted(transform, draft);
            shape.has_deletions = false;
            transform.carried(draft, setting);
        }
        (_, "") => draft.unsure(
            &transform.setting(setting),
            "",
            "the default depends on the version: before Debezium 3, deletions are dropped; the pipeline delivers them. To drop \
             them, add a `filter` with the condition {{ eq .Operation.String \"delete\" }}",
        ),
        _ => transform.blocked(draft, setting, "this mode is not known"),
    }
    for name in added {
        let field = format!("{prefix}{}", name.replace('.', "_"));
        let simple = name.strip_prefix("source.").unwrap_or(&name);
        let value = match simple {
            "op" => LETTER.to_owned(),
            "table" if is_source => action(&metadata("recfmt.collection")),
            "schema" if is_source => action(&metadata("postgres.schema")),
            "lsn" if is_source => action(&metadata("postgres.lsn")),
            "txId" if is_source => action(&metadata("postgres.xid")),
            "table" | "schema" | "db" | "name" | "connector" | "lsn" | "txId" | "snapshot" if !is_source => {
                action(&metadata(simple))
            }
            _ => {
                transform.blocked(draft, "add.fields", &format!("records do not have the field {name}"));
                continue;
            }
        };
        let part = transform.part("field.set").with("field", transform.reference(&field)).with("value", value);
        draft.add(part.when(transform.of_present(shape).as_deref()));
        transform.changed(draft, "add.fields", "the values of the added fields are texts");
    }
    if mode.starts_with("rewrite") {
        let part = transform.part("field.set").with("field", ".Operation").with("value", "update");
        draft.add(part.when(Some(&and(transform.condition.as_deref(), IS_DELETION))));
    }
}

/// Gives deletions the row before, and all records the field `__deleted`.
fn keep_deleted(transform: &Transform, draft: &mut Draft<'_>) {
    let condition = and(transform.condition.as_deref(), IS_DELETION);
    let part = |plugin| transform.part(plugin).when(Some(&condition));
    draft.add(part("field.set").with("field", ".Payload.After").with("value", "{{ toJson .Payload.Before }}"));
    draft.add(part("json.decode").with("field", ".Payload.After"));
    let is_deleted = format!("{{{{ {IS_DELETION} }}}}");
    transform
        .add(draft, transform.part("field.set").with("field", ".Payload.After.__deleted").with("value", is_deleted));
}
