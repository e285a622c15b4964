//! The JDBC source connector.

use super::database::{from_jdbc, other_system};
use super::draft::Draft;
use super::shape::{Form, Shape, TOPIC, Timestamp, Topic};
use super::{converters, dead_letters, kafka, transforms};
use crate::document::Part;
use crate::expression::{action, constant, metadata};
use crate::report::Job;

pub(super) fn convert(mut draft: Draft<'_>) -> Job {
    let mut tables = Part::new("tables", "postgres");
    if from_jdbc(&mut draft, &mut tables).is_err() {
        let note = other_system(draft.peek("connection.url").unwrap_or_default());
        return draft.refuse("connection.url", &note);
    }
    if draft.peek("query").is_some() {
        return draft.refuse(
            "query",
            "the `postgres` source reads tables, not queries: read the tables, and filter and join behind them",
        );
    }
    names(&mut draft, &mut tables);
    slot(&mut draft, &mut tables);
    mode(&mut draft, &mut tables);
    draft.pass("batch.max.rows", &mut tables, "sdk.batch.size");
    let prefix = draft.take("topic.prefix");
    if prefix.is_some() {
        draft.carried("topic.prefix", "topic.topic");
    }
    let prefix = draft.plain("topic.prefix", prefix.unwrap_or_default());
    let topic = format!("{}{}", constant(&prefix), action(&metadata(TOPIC)));
    if !draft.has_value("org.apache.kafka.connect.transforms.ValueToKey") {
        draft.changed(
            "mode",
            "tables",
            "the key of a record is the primary key of the row; Kafka Connect sends no key",
        );
    }
    let mut shape = Shape {
        key: Form::Fields,
        value: Form::Fields,
        topic: Topic::Template(topic),
        has_schema: true,
        has_deletions: false,
        timestamp: Timestamp::Partial,
        as_json: converters::written_as_json(&draft),
    };
    transforms::convert(&mut draft, &mut shape);
    let mut destination = kafka::destination(&mut draft, &shape);
    converters::encode(&mut draft, &shape, &mut destination);
    draft.expect("dialect.name", &["PostgreSqlDatabaseDialect"], "the source reads PostgreSQL");
    draft.leave_out(
        &["poll.interval.ms", "table.poll.interval.ms", "poll.linger.ms", "timestamp.delay.interval.ms"],
        "changes arrive when they are committed, without polling",
    );
    draft.leave_out(
        &[
            "timestamp.column.name",
            "incrementing.column.name",
            "validate.non.null",
            "timestamp.initial",
            "timestamp.granularity",
            "timestamp.fetch.size",
            "transaction.isolation.mode",
        ],
        "changes come from the log of the database, not from values of a column",
    );
    draft.leave_out(&["db.timezone"], "times without an offset are in UTC");
    draft.leave_out(&["numeric.mapping", "numeric.precision.mapping"], "a numeric value is a text with all its digits");
    draft.leave_out(&["quote.sql.identifiers"], "names are always quoted, so they are case-sensitive");
    draft.leave_out(
        &["connection.attempts", "connection.backoff.ms", "query.retry.attempts"],
        "the pipeline retries without limit, with the delays of pipelines.error-recovery.* in anabranch.yaml",
    );
    dead_letters::convert(&mut draft);
    draft.finish(tables, destination)
}

fn names(draft: &mut Draft<'_>, part: &mut Part) {
    let schema = draft.take("schema.pattern");
    if schema.is_some() {
        draft.carried("schema.pattern", "tables.tables");
    }
    draft.expect("table.types", &["TABLE", "PARTITIONED TABLE"], "the source reads tables, not views");
    draft.leave_out(&["catalog.pattern"], "the URL names the database");
    let listed = draft.take_any(&["table.whitelist", "table.include.list"]);
    let tables = match &listed {
        Some((setting, tables)) => {
            draft.carried(setting, "tables.tables");
            let with_schema = |table: &str| {
                let table = table.trim();
                // Names may be written as catalog.schema.table.
                let parts: Vec<&str> = table.split('.').collect();
                match (&parts[..], &schema) {
                    ([_, schema, table], _) => format!("{schema}.{table}"),
                    ([table], Some(schema)) => format!("{schema}.{table}"),
                    _ => table.to_owned(),
                }
            };
            tables.split(',').map(with_schema).collect::<Vec<_>>().join(",")
        }
        None => format!("{}.*", schema.as_deref().unwrap_or("public")),
    };
    let tables = draft.text("table.whitelist", &tables);
    part.set("tables", tables);
    for setting in ["table.blacklist", "table.exclude.list"] {
        if draft.take(setting).is_some() {
            draft.blocked(setting, "list the tables to read in `tables`; there is no list of tables to leave out");
        }
    }
}

/// Names of the slot and the publication, which each pipeline needs of its own.
fn slot(draft: &mut Draft<'_>, part: &mut Part) {
    let name: String = draft
        .id()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .take(63)
        .collect();
    part.set("logrepl.slotName", name.as_str());
    part.set("logrepl.publicationName", name.as_str());
}

fn mode(draft: &mut Draft<'_>, part: &mut Part) {
    let mode = draft.take("mode").unwrap_or_else(|| "bulk".to_owned());
    let note = "the source reads the rows once, and then each change from the log of the database: the server needs \
                wal_level = logical, and the user the attribute REPLICATION";
    let filter = |condition: &str, comment: &str| Part::new("changes", "filter").when(Some(condition)).comment(comment);
    match mode.as_str() {
        "bulk" => {
            part.set("snapshotMode", "only");
            draft.unsure(
                "mode",
                "tables.snapshotMode",
                "the source reads the rows once; Kafka Connect reads all rows again at each poll. With snapshotMode: initial, \
                 the source also delivers each change",
            );
        }
        "incrementing" => {
            part.set("snapshotMode", "initial");
            draft.add(filter(
                "or (eq .Operation.String \"update\") (eq .Operation.String \"delete\")",
                "With mode=incrementing, only new rows are delivered.",
            ));
            draft.changed("mode", "tables.snapshotMode", note);
        }
        "timestamp" | "timestamp+incrementing" => {
            part.set("snapshotMode", "initial");
            draft.add(filter(
                super::shape::IS_DELETION,
                "A connector that reads timestamps does not see deletions. Without this processor, they are delivered too.",
            ));
            draft.changed("mode", "tables.snapshotMode", note);
        }
        _ => draft.blocked("mode", "it is neither bulk, incrementing, timestamp nor timestamp+incrementing"),
    }
}
