//! The transformation ExtractNewRecordState of Debezium.

use super::{Transform, list};
use crate::connect::draft::Draft;
use crate::connect::shape::{Form, IS_DELETION, Shape};
use crate::expression::{action, and, metadata, reference};

/// The letter of the operation, as Debezium writes it.
const LETTER: &str = "{{ if eq .Operation.String \"create\" }}c{{ else if eq .Operation.String \"update\" }}u{{ else if eq \
                      .Operation.String \"delete\" }}d{{ else }}r{{ end }}";

/// What becomes of the message of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    Dropped,
    /// It has no value.
    Tombstone,
    /// It has the row before, with the field `__deleted`.
    Row,
}

/// What becomes of the two messages that Debezium sends for a deletion: that of the deletion, and a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deletions {
    deletion: Deletion,
    keeps_tombstones: bool,
}

/// Takes the settings for deletions; `None` if the mode is missing or not known.
fn take_deletions(transform: &mut Transform, draft: &mut Draft<'_>) -> (&'static str, Option<Deletions>) {
    let old = transform.take("delete.handling.mode");
    let new = transform.take("delete.tombstone.handling.mode");
    let drops = transform.take("drop.tombstones");
    // The default is true.
    let keeps = drops.as_deref().is_some_and(|drops| drops.eq_ignore_ascii_case("false"));
    let (setting, mode) = match (&old, &new) {
        (_, Some(mode)) => ("delete.tombstone.handling.mode", mode.as_str()),
        (Some(mode), None) => ("delete.handling.mode", mode.as_str()),
        (None, None) => ("delete.handling.mode", ""),
    };
    let found = |deletion, keeps_tombstones| Some(Deletions { deletion, keeps_tombstones });
    let deletions = match (&new, mode) {
        (Some(_), "drop") => found(Deletion::Dropped, false),
        (Some(_), "tombstone") => found(Deletion::Dropped, true),
        (Some(_), "rewrite") => found(Deletion::Row, false),
        (Some(_), "rewrite-with-tombstone") => found(Deletion::Row, true),
        (Some(_), "delete-to-tombstone") => found(Deletion::Tombstone, false),
        (None, "drop") => found(Deletion::Dropped, keeps),
        (None, "none") => found(Deletion::Tombstone, keeps),
        (None, "rewrite") => found(Deletion::Row, keeps),
        _ => None,
    };
    if drops.is_some() {
        transform.changed(
            draft,
            "drop.tombstones",
            "a deletion is one record: it is a tombstone only where it is written to Kafka with deletes: tombstone",
        );
    }
    match (deletions, mode) {
        (Some(_), _) => {}
        (None, "") => draft.unsure(
            &transform.setting(setting),
            "",
            "the default depends on the version: before Debezium 3, deletions are dropped; the pipeline delivers them. To drop \
             them, add a `filter` with the condition {{ eq .Operation.String \"delete\" }}",
        ),
        (None, _) => transform.blocked(draft, setting, "this mode is not known"),
    }
    (setting, deletions)
}

/// Metadata key that marks the tombstones, which have nothing to unwrap.
const TOMBSTONE: &str = "migrate.tombstone";

pub(super) fn extract(transform: &mut Transform, draft: &mut Draft<'_>, shape: &mut Shape) {
    let is_source = shape.value == Form::Envelope;
    let added = list(&transform.take("add.fields").unwrap_or_default());
    let prefix = transform.take("add.fields.prefix").unwrap_or_else(|| "__".to_owned());
    let (setting, deletions) = take_deletions(transform, draft);
    if !is_source && !transform.has_fields(draft, shape) {
        return;
    }
    let is_known = deletions.is_some();
    let deletions = deletions.unwrap_or(Deletions { deletion: Deletion::Tombstone, keeps_tombstones: false });
    let condition = transform.condition.clone();
    let is_deletion = and(condition.as_deref(), IS_DELETION);
    // The tombstones of a topic pass, without an envelope. Compaction may have removed the deletion before one.
    let marks = !is_source && deletions.keeps_tombstones;
    let mark = reference(".Metadata", &[TOMBSTONE]);
    if !is_source {
        if marks {
            let part = transform.part("field.set").with("field", mark.as_str()).with("value", "true");
            draft.add(part.when(Some(&is_deletion)).comment("Tombstones pass; they have no envelope."));
        } else {
            let part = transform.part("filter").comment("Drops the tombstones; deletions have records of their own.");
            draft.add(part.when(Some(&is_deletion)));
        }
        let is_present = transform.of_present(shape);
        let is_wrapped = if marks { is_present.as_deref() } else { condition.as_deref() };
        // The converter has removed the envelope of Kafka Connect, which `unwrap.debezium` needs.
        let wrap = transform.part("field.set").with("field", ".Payload.After");
        draft.add(wrap.with("value", "{\"payload\": {{ toJson .Payload.After }}}").when(is_wrapped));
        draft.add(transform.part("unwrap.debezium").when(is_wrapped));
        shape.key = Form::Fields;
    }
    shape.value = Form::Fields;
    shape.has_deletions = true;
    let keeps_tombstones = deletions.keeps_tombstones
        && (!is_source || draft.peek("tombstones.on.delete").is_none_or(|sent| !sent.eq_ignore_ascii_case("false")));
    let is_both = is_source && keeps_tombstones && deletions.deletion == Deletion::Row;
    if is_known && !is_both {
        transform.carried(draft, setting);
    }
    let is_row = match marks {
        true => format!("and ({is_deletion}) (ne {} \"true\")", metadata(TOMBSTONE)),
        false => is_deletion.clone(),
    };
    match deletions.deletion {
        // The source has one record for both: the deletion that is dropped, and the tombstone that follows it.
        Deletion::Dropped if is_source && keeps_tombstones => {}
        Deletion::Dropped => {
            draft.add(transform.part("filter").comment("Drops deletions.").when(Some(&is_row)));
            shape.has_deletions = marks;
        }
        Deletion::Tombstone => {}
        Deletion::Row => {
            if is_both {
                transform.blocked(
                    draft,
                    setting,
                    "a deletion is one record, which cannot be a row and a tombstone: the pipeline writes the row. To write \
                     tombstones, remove the processors for `__deleted`, and set deletes: tombstone",
                );
            }
            keep_deleted(transform, draft, &is_row, marks);
            shape.has_deletions = marks;
        }
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
        let condition = if marks { Some(is_unmarked(transform)) } else { transform.of_present(shape) };
        draft.add(part.when(condition.as_deref()));
        transform.changed(draft, "add.fields", "the values of the added fields are texts");
    }
    if deletions.deletion == Deletion::Row {
        let part = transform.part("field.set").with("field", ".Operation").with("value", "update");
        draft.add(part.when(Some(&is_row)));
    }
    if marks {
        draft.add(transform.part("field.exclude").with("fields", mark));
    }
}

/// Returns the condition for all records but tombstones.
fn is_unmarked(transform: &Transform) -> String {
    and(transform.condition.as_deref(), &format!("ne {} \"true\"", metadata(TOMBSTONE)))
}

/// Gives deletions the row before, and all records with a row the field `__deleted`.
fn keep_deleted(transform: &Transform, draft: &mut Draft<'_>, is_row: &str, marks: bool) {
    let part = |plugin| transform.part(plugin).when(Some(is_row));
    draft.add(part("field.set").with("field", ".Payload.After").with("value", "{{ toJson .Payload.Before }}"));
    draft.add(part("json.decode").with("field", ".Payload.After"));
    let is_deleted = format!("{{{{ {IS_DELETION} }}}}");
    let condition = if marks { Some(is_unmarked(transform)) } else { transform.condition.clone() };
    let set = transform.part("field.set").with("field", ".Payload.After.__deleted").with("value", is_deleted);
    draft.add(set.when(condition.as_deref()));
}
