//! The JDBC sink connector.

use super::database::{from_jdbc, other_system};
use super::draft::Draft;
use super::shape::{Form, IS_DELETION, Shape};
use super::transforms::{key_template, list};
use super::{converters, dead_letters, kafka, transforms};
use crate::document::Part;
use crate::expression::{action, metadata, reference};
use crate::report::Job;

pub(super) fn convert(mut draft: Draft<'_>) -> Job {
    let mut table = Part::new("table", "postgres");
    if from_jdbc(&mut draft, &mut table).is_err() {
        let note = other_system(draft.peek("connection.url").unwrap_or_default());
        return draft.refuse("connection.url", &note);
    }
    let topics = kafka::source(&mut draft);
    let mut shape = converters::decode(&mut draft, Shape::of_messages());
    transforms::convert(&mut draft, &mut shape);
    if matches!(shape.value, Form::Raw | Form::Json) {
        draft.blocked("value.converter", "the table needs values with fields: add a processor such as `json.decode`");
    }
    table_name(&mut draft, &mut table);
    deletions(&mut draft, &shape);
    columns(&mut draft);
    key(&mut draft, &mut shape);
    draft.pass("batch.size", &mut table, "sdk.batch.size");
    for (setting, name) in [("auto.create", "createTables"), ("auto.evolve", "addColumns")] {
        if let Some(value) = draft.take(setting) {
            table.set(name, if value.eq_ignore_ascii_case("true") { "true" } else { "false" });
            draft.carried(setting, &format!("table.{name}"));
        }
    }
    draft.expect("dialect.name", &["PostgreSqlDatabaseDialect"], "the destination writes to PostgreSQL");
    draft.expect("table.types", &["TABLE", "PARTITIONED TABLE"], "the destination writes to tables");
    draft.leave_out(
        &["max.retries", "retry.backoff.ms", "connection.attempts", "connection.backoff.ms"],
        "the pipeline retries without limit, with the delays of pipelines.error-recovery.* in anabranch.yaml",
    );
    draft.leave_out(&["quote.sql.identifiers"], "names are always quoted, so they are case-sensitive");
    draft.leave_out(&["db.timezone", "date.timezone"], "times without an offset are in UTC");
    draft.leave_out(&["mssql.use.merge.holdlock", "trim.sensitive.log"], "it has no effect on PostgreSQL");
    dead_letters::convert(&mut draft);
    draft.finish(topics, table)
}

fn table_name(draft: &mut Draft<'_>, table: &mut Part) {
    let topic = action(&metadata(super::shape::TOPIC));
    let format = draft.take("table.name.format");
    let format_text = format.as_deref().unwrap_or("${topic}");
    // The topic is the only variable of this format.
    let template = format_text.split("${topic}").map(crate::expression::constant).collect::<Vec<_>>().join(&topic);
    table.set("table", template);
    if format.is_some() {
        draft.carried("table.name.format", "table.table");
    }
}

/// Deletes rows, or fails: with `delete.enabled=false`, a tombstone is an error.
fn deletions(draft: &mut Draft<'_>, shape: &Shape) {
    let enabled = draft.take("delete.enabled");
    let is_given = enabled.is_some();
    let deletes = enabled.is_some_and(|enabled| enabled.eq_ignore_ascii_case("true"));
    match (is_given, deletes && !shape.has_deletions) {
        (true, true) => draft.changed(
            "delete.enabled",
            "",
            "no row is deleted: the transformations drop the deletions and tombstones, as they do in Kafka Connect",
        ),
        (true, false) => draft.carried("delete.enabled", "table"),
        (false, _) => {}
    }
    if !deletes && shape.has_deletions {
        draft.add(
            Part::new("no-deletions", "error")
                .when(Some(IS_DELETION))
                .with("message", "deletions are disabled, as with delete.enabled=false")
                .comment("Without this processor, a record without a value deletes its row."),
        );
    }
}

fn columns(draft: &mut Draft<'_>) {
    let Some((setting, names)) = draft.take_any(&["fields.whitelist", "fields.include.list"]) else { return };
    let names: Vec<String> = list(&names);
    draft.add(
        Part::new("columns", "field.set")
            .when(Some(super::shape::IS_NOT_DELETION))
            .with("field", ".Payload.After")
            .with("value", key_template(&names)),
    );
    draft.add(Part::new("columns", "json.decode").with("field", ".Payload.After"));
    draft.changed(setting, "columns", "a listed field that is missing becomes null; bytes become texts");
}

/// Makes the key of the row: `insert.mode`, `pk.mode` and `pk.fields`.
fn key(draft: &mut Draft<'_>, shape: &mut Shape) {
    let insert = draft.take("insert.mode").unwrap_or_else(|| "insert".to_owned());
    let mode = draft.take("pk.mode");
    let has_mode = mode.is_some();
    let mode = mode.unwrap_or_else(|| "none".to_owned());
    let fields = draft.take("pk.fields");
    let names = list(fields.as_deref().unwrap_or_default());
    let pk_fields = |draft: &mut Draft<'_>| {
        if fields.is_some() && !draft.is_reported("pk.fields") {
            draft.carried("pk.fields", "the key of the records");
        }
    };
    match insert.as_str() {
        "insert" => draft.changed(
            "insert.mode",
            "table",
            "a record with a key replaces the row with this key; Kafka Connect fails if the row exists",
        ),
        "upsert" => draft.carried("insert.mode", "table"),
        "update" => draft.unsure(
            "insert.mode",
            "table",
            "the destination inserts rows that do not exist; Kafka Connect only updates rows",
        ),
        _ => draft.blocked("insert.mode", "it is neither insert, upsert nor update"),
    }
    match mode.as_str() {
        "none" => {
            draft.add(
                Part::new("no-key", "field.exclude")
                    .with("fields", ".Key")
                    .comment("Without a key, each record is inserted as a row of its own."),
            );
            draft.carried("pk.mode", "no-key");
            if fields.is_some() {
                draft.left_out("pk.fields", "it has no effect with pk.mode=none");
            }
        }
        "record_value" if names.is_empty() => {
            draft.blocked("pk.fields", "all fields are the key: list them in the processor that makes the key");
        }
        "record_value" => {
            if !matches!(shape.value, Form::Raw | Form::Json) {
                let set = Part::new("row-key", "field.set").with("field", ".Key").with("value", key_template(&names));
                draft.add(set.when(Some(super::shape::IS_NOT_DELETION)));
                draft.add(Part::new("row-key", "json.decode").with("field", ".Key"));
                shape.key = Form::Fields;
            }
            draft.carried("pk.mode", "row-key");
            pk_fields(draft);
        }
        "record_key" => match (shape.key, &names[..]) {
            (Form::Fields, names) => {
                draft.carried("pk.mode", "the key of the records");
                if let [name] = names {
                    // The key may be a single value, whose column pk.fields names.
                    name_the_key(draft, name, Some("not (kindIs \"map\" .Key)"));
                } else if names.len() > 1 {
                    draft.unsure("pk.fields", "", "the key must have these fields and no others: see that it has");
                }
                pk_fields(draft);
            }
            (_, [name]) => {
                name_the_key(draft, name, None);
                draft.carried("pk.mode", "row-key");
                pk_fields(draft);
            }
            _ => draft.blocked("pk.fields", "a key that is a text needs exactly one column"),
        },
        "kafka" => draft.blocked("pk.mode", "processors do not see the partition and the offset of a message"),
        _ => draft.blocked("pk.mode", "it is neither none, kafka, record_key nor record_value"),
    }
    for (setting, is_given) in [("pk.mode", has_mode), ("pk.fields", fields.is_some())] {
        if is_given && !draft.is_reported(setting) {
            draft.left_out(setting, "see the other settings of the key");
        }
    }
}

/// Makes a column of a key that is a text.
fn name_the_key(draft: &mut Draft<'_>, name: &str, condition: Option<&str>) {
    let held = reference(".Metadata", &["migrate.key"]);
    draft.add(
        Part::new("row-key", "field.set")
            .when(condition)
            .with("field", held.as_str())
            .with("value", "{{ printf \"%s\" .Key }}")
            .comment("A key that is a single value becomes the column."),
    );
    let is_held = condition.map(|_| "ne (index .Metadata \"migrate.key\") \"\"");
    draft.add(Part::new("row-key", "field.exclude").when(is_held).with("fields", ".Key"));
    draft.add(
        Part::new("row-key", "field.set")
            .when(is_held)
            .with("field", reference(".Key", &[name]))
            .with("value", action(&metadata("migrate.key"))),
    );
    draft.add(Part::new("row-key", "field.exclude").with("fields", held));
}
