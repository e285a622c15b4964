//! The connector of Debezium for PostgreSQL.

use super::database::{Login, Names};
use super::draft::Draft;
use super::kafka;
use super::shape::{Form, Shape, TOPIC, Timestamp, Topic};
use super::transforms::list;
use super::{converters, dead_letters, transforms};
use crate::document::Part;
use crate::expression::{action, constant, metadata, reference};
use crate::report::Job;
use crate::setting_text::SettingText;

pub(super) fn convert(mut draft: Draft<'_>) -> Job {
    let mut tables = Part::new("tables", "postgres");
    url(&mut draft, &mut tables);
    names(&mut draft, &mut tables);
    replication(&mut draft, &mut tables);
    snapshot(&mut draft, &mut tables);
    let topic = topic(&mut draft);
    columns(&mut draft);
    let mut shape = Shape {
        key: Form::Fields,
        value: Form::Envelope,
        topic: Topic::Template(topic),
        has_schema: true,
        has_deletions: true,
        timestamp: Timestamp::Partial,
        as_json: converters::written_as_json(&draft),
    };
    transforms::convert(&mut draft, &mut shape);
    let mut destination = kafka::destination(&mut draft, &shape);
    let tombstones = draft.take("tombstones.on.delete");
    match shape.value {
        Form::Envelope => {
            if tombstones.as_deref() == Some("false") {
                draft.carried("tombstones.on.delete", "topic");
            } else {
                draft.changed(
                    "tombstones.on.delete",
                    "topic",
                    "no tombstone follows a deletion: the message of the deletion is the last one of its key",
                );
            }
        }
        _ => {
            if shape.has_deletions {
                destination.set("deletes", "tombstone");
            }
            if tombstones.is_some() {
                draft.carried("tombstones.on.delete", "topic.deletes");
            }
        }
    }
    converters::encode(&mut draft, &shape, &mut destination);
    types(&mut draft);
    draft.leave_out(
        &["max.batch.size", "max.queue.size", "max.queue.size.in.bytes", "poll.interval.ms"],
        "the pipeline bounds its memory by engine.* in anabranch.yaml",
    );
    draft.leave_out(
        &["retriable.restart.connector.wait.ms", "errors.max.retries", "slot.max.retries", "slot.retry.delay.ms"],
        "the pipeline retries without limit, with the delays of pipelines.error-recovery.* in anabranch.yaml",
    );
    dead_letters::convert(&mut draft);
    draft.finish(tables, destination)
}

fn url(draft: &mut Draft<'_>, part: &mut Part) {
    let names = Names { user: "database.user", password: "database.password" };
    let mut plain = |setting: &'static str, default: &str| -> SettingText {
        match draft.take(setting) {
            Some(value) => {
                draft.carried(setting, "tables.url");
                draft.text(setting, &value)
            }
            None => default.into(),
        }
    };
    let mut address = plain("database.hostname", "localhost");
    address.push(&":".into());
    address.push(&plain("database.port", "5432"));
    let database = plain("database.dbname", "postgres");
    let mut options = Vec::new();
    for (setting, name) in
        [("database.sslmode", "sslmode"), ("database.sslrootcert", "sslrootcert"), ("database.sslcert", "sslcert")]
    {
        if let Some(value) = draft.take(setting) {
            let value = if name == "sslmode" { value.replace("allow", "prefer").replace('_', "-") } else { value };
            draft.carried(setting, "tables.url");
            options.push((name, value));
        }
    }
    for setting in ["database.sslkey", "database.sslpassword"] {
        if draft.take(setting).is_some() {
            draft.blocked(setting, "the URL takes a key in PEM without a passphrase: convert it, and add it as sslkey");
        }
    }
    let url = Login { names: &names, user: None, password: None }.url(draft, &address, &database, &options);
    part.set("url", url);
    draft.leave_out(&["database.tcpKeepAlive"], "connections are always kept alive");
}

/// `table.include.list` is a list of regular expressions for `schema.table`, each for the whole name.
fn names(draft: &mut Draft<'_>, part: &mut Part) {
    let tables = draft.take_any(&["table.include.list", "table.whitelist"]);
    let schemas = draft.take_any(&["schema.include.list", "schema.whitelist"]);
    let mut plain = Vec::new();
    if let Some((setting, tables)) = &tables {
        plain = patterns(draft, setting, tables, table_pattern);
    } else if let Some((setting, schemas)) = &schemas {
        plain = patterns(draft, setting, schemas, |schema| Some(format!("{}.*", name_pattern(schema)?)));
    } else {
        plain.push("public.*".to_owned());
        draft.unsure(
            "table.include.list",
            "tables.tables",
            "without a list, Debezium reads all schemas; the pipeline reads public: add the others as schema.*",
        );
    }
    if let (Some(_), Some((setting, schemas))) = (&tables, &schemas) {
        let all: Vec<String> = list(schemas).iter().filter_map(|schema| name_pattern(schema)).collect();
        let is_in =
            |table: &String| table.split_once('.').is_some_and(|(schema, _)| all.iter().any(|one| one == schema));
        match plain.iter().all(is_in) {
            true => draft.carried(setting, "tables.tables"),
            false => draft.blocked(
                setting,
                "a table must be in a schema of this list, too: leave the tables of other schemas out of `tables`",
            ),
        }
    }
    if plain.is_empty() {
        let unknown = draft.unknown("POSTGRES_TABLES", "the tables to read, as schema.table, separated by commas");
        part.set("tables", unknown);
    } else {
        part.set("tables", plain.join(","));
    }
    for setting in ["table.exclude.list", "schema.exclude.list", "table.blacklist", "schema.blacklist"] {
        if draft.take(setting).is_some() {
            draft.blocked(setting, "list the tables to read in `tables`; there is no list of tables to leave out");
        }
    }
}

/// Returns what a list of expressions becomes in `tables`. If one has no counterpart, the user has to write it.
fn patterns(
    draft: &mut Draft<'_>,
    setting: &str,
    expressions: &str,
    pattern: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let expressions = list(expressions);
    let patterns: Vec<String> = expressions.iter().filter_map(|expression| pattern(expression)).collect();
    match patterns.len() == expressions.len() {
        true => draft.carried(setting, "tables.tables"),
        false => draft.blocked(
            setting,
            "`tables` has names, in which a star stands for any text, not regular expressions: list the tables there",
        ),
    }
    patterns
}

/// Returns the pattern of a table for an expression that matches `schema.table`: `public.orders` for `public\.orders`,
/// `public.cust*` for `public.cust.*`. `None` if a pattern cannot express it.
fn table_pattern(expression: &str) -> Option<String> {
    // A dot that is not escaped matches the one between the names; one with a quantifier matches other text.
    let is_dot = |at: usize| !expression[at + 1..].starts_with(['*', '+', '?', '{']);
    let Some(at) = expression.match_indices('.').map(|(at, _)| at).find(|at| is_dot(*at)) else {
        // `public.*` alone matches all tables of all schemas whose names begin so.
        let schema = expression.strip_suffix(".*").and_then(name_pattern)?;
        return Some(format!("{schema}*.*"));
    };
    let schema = expression[..at].strip_suffix('\\').unwrap_or(&expression[..at]);
    Some(format!("{}.{}", name_pattern(schema)?, name_pattern(&expression[at + 1..])?))
}

/// Returns the pattern of a name for an expression that matches it: `inv*` for `inv.*`.
fn name_pattern(expression: &str) -> Option<String> {
    let name = expression.replace(".*", "*");
    let is_name = name.chars().all(|c| c.is_alphanumeric() || "_-*".contains(c));
    // Before a star that is not of `.*`, a character may be repeated or absent.
    (is_name && !name.is_empty() && name.matches('*').count() == expression.matches(".*").count()).then_some(name)
}

fn replication(draft: &mut Draft<'_>, part: &mut Part) {
    draft.expect(
        "plugin.name",
        &["pgoutput"],
        "the source reads with pgoutput: the slot of another plugin cannot be read, so choose another slot.name",
    );
    let slot = draft.take("slot.name");
    if slot.is_some() {
        draft.unsure(
            "slot.name",
            "tables.logrepl.slotName",
            "the slot belongs to Debezium. To continue where the connector stopped, set logrepl.adoptSlot: true and \
             snapshotMode: never. To begin with a snapshot, drop the slot, or choose another name",
        );
    } else {
        draft.unsure(
            "slot.name",
            "tables.logrepl.slotName",
            "the slot `debezium`, the default, belongs to Debezium. To continue where the connector stopped, set \
             logrepl.adoptSlot: true and snapshotMode: never. To begin with a snapshot, drop the slot, or choose another name",
        );
    }
    part.set("logrepl.slotName", slot.unwrap_or_else(|| "debezium".to_owned()));
    let publication = draft.take("publication.name");
    if publication.is_some() {
        draft.carried("publication.name", "tables.logrepl.publicationName");
    }
    part.set("logrepl.publicationName", publication.unwrap_or_else(|| "dbz_publication".to_owned()));
    part.set("logrepl.withAvroSchema", "true");
    match draft.take("publication.autocreate.mode").as_deref() {
        None => {}
        Some("filtered") => draft.carried("publication.autocreate.mode", "tables"),
        Some("disabled") => draft.changed(
            "publication.autocreate.mode",
            "tables",
            "the source creates the publication if it does not exist",
        ),
        Some(_) => draft.changed(
            "publication.autocreate.mode",
            "tables",
            "a publication that the source creates has only the tables of `tables`",
        ),
    }
    match draft.take("slot.drop.on.stop").as_deref() {
        None => {}
        Some("false") => draft.changed(
            "slot.drop.on.stop",
            "tables.logrepl.autoCleanup",
            "the slot is dropped when the pipeline is deleted, not when it stops",
        ),
        Some(_) => draft.left_out("slot.drop.on.stop", "a slot is dropped only when the pipeline is deleted"),
    }
    if let Some(failover) = draft.take("slot.failover") {
        part.set("logrepl.failover", failover);
        draft.carried("slot.failover", "tables.logrepl.failover");
    }
    if let Some(interval) = draft.take("heartbeat.interval.ms") {
        match interval.parse::<u64>() {
            Ok(milliseconds) => {
                part.set("heartbeat", format!("{milliseconds}ms"));
                draft.changed(
                    "heartbeat.interval.ms",
                    "tables.heartbeat",
                    "the heartbeat is a message in the log of the database; no topic receives it",
                );
            }
            Err(_) => draft.blocked("heartbeat.interval.ms", "it is not a number"),
        }
    }
    draft.leave_out(
        &["heartbeat.action.query", "heartbeat.topics.prefix", "topic.heartbeat.prefix"],
        "heartbeats need no table and no topic",
    );
    draft.leave_out(
        &[
            "status.update.interval.ms",
            "slot.stream.params",
            "xmin.fetch.interval.ms",
            "flush.lsn.source",
            "lsn.flush.mode",
        ],
        "the source confirms positions itself, after they are stored",
    );
    draft.expect(
        "provide.transaction.metadata",
        &["false"],
        "topics of transactions have no counterpart; the metadata postgres.xid has the transaction",
    );
}

fn snapshot(draft: &mut Draft<'_>, part: &mut Part) {
    let mode = draft.take("snapshot.mode");
    let (ours, is_same) = match mode.as_deref().unwrap_or("initial") {
        "initial" => ("initial", true),
        "initial_only" => ("only", true),
        "never" | "no_data" => ("never", true),
        "when_needed" => {
            part.set("onGap", "snapshot");
            ("initial", true)
        }
        "always" => {
            draft.unsure(
                "snapshot.mode",
                "tables.snapshotMode",
                "the source reads the rows at its first start; for every start, use `positions reset` before it",
            );
            ("initial", false)
        }
        _ => {
            draft.blocked("snapshot.mode", "this mode has no counterpart: choose initial, incremental, never or only");
            ("initial", false)
        }
    };
    part.set("snapshotMode", ours);
    if mode.is_some() && is_same {
        draft.carried("snapshot.mode", "tables.snapshotMode");
    }
    draft.pass("snapshot.fetch.size", part, "snapshot.fetchSize");
    draft.pass("snapshot.max.threads", part, "snapshot.parallel");
    draft.leave_out(
        &[
            "snapshot.delay.ms",
            "snapshot.lock.timeout.ms",
            "snapshot.locking.mode",
            "snapshot.isolation.mode",
            "incremental.snapshot.chunk.size",
            "signal.data.collection",
            "signal.enabled.channels",
            "read.only",
        ],
        "a snapshot takes no locks; `anabranch pipelines backfill` reads tables again while the pipeline runs",
    );
    for setting in ["snapshot.include.collection.list", "snapshot.select.statement.overrides"] {
        if draft.take(setting).is_some() {
            draft.blocked(
                setting,
                "a snapshot reads all rows of all tables: make a pipeline of the other tables with snapshotMode: never",
            );
        }
    }
}

fn topic(draft: &mut Draft<'_>) -> String {
    let prefix = draft.take_any(&["topic.prefix", "database.server.name"]);
    let name = match prefix {
        Some((setting, prefix)) => {
            draft.carried(setting, "topic.topic");
            draft.plain(setting, prefix)
        }
        None => {
            draft.blocked("topic.prefix", "the connector has no prefix of its topics");
            "debezium".to_owned()
        }
    };
    let delimiter = draft.take("topic.delimiter");
    if delimiter.is_some() {
        draft.carried("topic.delimiter", "topic.topic");
    }
    let delimiter = constant(delimiter.as_deref().unwrap_or("."));
    let (schema, table) = (action(&metadata("postgres.schema")), action(&metadata(TOPIC)));
    format!("{}{delimiter}{schema}{delimiter}{table}", constant(&name))
}

/// Columns that are left out or masked, as regular expressions for `schema.table.column`.
fn columns(draft: &mut Draft<'_>) {
    if let Some((setting, columns)) = draft.take_any(&["column.exclude.list", "column.blacklist"]) {
        for column in columns.split(',').map(str::trim).filter(|column| !column.is_empty()) {
            let name = column.replace("\\.", ".");
            let is_name =
                name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c)) && name.split('.').count() == 3;
            let name = Some(name).filter(|_| is_name);
            let Some(name) = name else {
                draft.blocked(setting, "a regular expression is not a name: remove the columns with `field.exclude`");
                continue;
            };
            let parts: Vec<&str> = name.split('.').collect();
            let condition = format!(
                "and (eq {} {}) (eq {} {})",
                metadata("postgres.schema"),
                crate::expression::quoted(parts[0]),
                metadata(TOPIC),
                crate::expression::quoted(parts[1])
            );
            let fields = [".Payload.Before", ".Payload.After"].map(|side| reference(side, &[parts[2]])).join(",");
            draft.add(Part::new("columns", "field.exclude").when(Some(&condition)).with("fields", fields));
            draft.carried(setting, "columns");
        }
        if !draft.is_reported(setting) {
            draft.left_out(setting, "it names no column");
        }
    }
    for (setting, _) in draft.take_prefixed("column.") {
        let note =
            "processors change columns: `field.mask`, `field.hash` and `field.exclude`, with a condition for the table";
        draft.blocked(&format!("column.{setting}"), note);
    }
}

/// Settings of the forms of values.
fn types(draft: &mut Draft<'_>) {
    draft.expect(
        "decimal.handling.mode",
        &["string"],
        "a numeric value is a text with all its digits: convert it with `field.convert` where consumers need a number",
    );
    draft.expect(
        "time.precision.mode",
        &["isostring"],
        "times are texts as RFC 3339: format them with `time.format` where consumers need numbers",
    );
    draft.expect("hstore.handling.mode", &["map"], "a value of the type hstore is a map");
    draft.expect("interval.handling.mode", &["string"], "an interval is a text, as PostgreSQL writes it");
    draft.expect("binary.handling.mode", &["base64"], "bytes are texts in base64 in JSON");
    draft.expect("money.fraction.digits", &[], "a value of the type money is a text");
    draft.leave_out(&["include.unknown.datatypes"], "values of other types are texts");
    draft.leave_out(
        &["unavailable.value.placeholder"],
        "a column that is not sent is absent, and the metadata postgres.unchanged names it",
    );
    draft.leave_out(
        &["include.schema.changes", "schema.refresh.mode", "schema.history.internal.kafka.topic"],
        "columns that change are followed; see schemaDrift",
    );
    draft.expect("schema.name.adjustment.mode", &["none"], "names of schemas are not adjusted");
    draft.expect("field.name.adjustment.mode", &["none"], "names of fields are not adjusted");
    draft.expect(
        "skipped.operations",
        &["t", "none"],
        "drop operations with a `filter` and a condition on .Operation.String",
    );
    draft.expect("message.key.columns", &[], "the key is the primary key, or the index of the replica identity");
}
