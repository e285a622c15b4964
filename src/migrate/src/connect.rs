//! Connectors of Kafka Connect.
//!
//! A source connector becomes a pipeline from its source to Kafka, and a sink connector one from Kafka to its
//! destination, with the same topics and, for sinks, the same consumer group. Transformations become processors.

mod converters;
mod database;
mod dead_letters;
mod debezium_postgres;
mod draft;
mod file_stream;
mod input;
mod jdbc_sink;
mod jdbc_source;
mod kafka;
#[cfg(test)]
mod properties;
mod s3_sink;
mod shape;
mod transforms;

use std::collections::BTreeSet;

use crate::report::{Job, Migration};
use crate::variables::Variables;

pub use input::{ConnectorConfig, InputError, Worker, read, read_worker};

use draft::Draft;

/// What a class of connectors becomes.
type Convert = fn(Draft<'_>) -> Job;

/// The classes that can be migrated, by their full and their short names.
const CLASSES: &[(&[&str], Convert)] = &[
    (
        &["io.confluent.connect.jdbc.JdbcSourceConnector", "io.aiven.connect.jdbc.JdbcSourceConnector"],
        jdbc_source::convert,
    ),
    (&["io.confluent.connect.jdbc.JdbcSinkConnector", "io.aiven.connect.jdbc.JdbcSinkConnector"], jdbc_sink::convert),
    (&["io.confluent.connect.s3.S3SinkConnector"], s3_sink::convert),
    (&["org.apache.kafka.connect.file.FileStreamSourceConnector"], file_stream::source),
    (&["org.apache.kafka.connect.file.FileStreamSinkConnector"], file_stream::sink),
    (&["io.debezium.connector.postgresql.PostgresConnector"], debezium_postgres::convert),
];

/// Returns the conversion of a class. Kafka Connect accepts the full name, the simple name, and the simple name without
/// `Connector`.
fn conversion(class: &str) -> Option<Convert> {
    let is_named = |full: &&&str| {
        let simple = full.rsplit('.').next().unwrap_or(full);
        class == **full || class == simple || Some(class) == simple.strip_suffix("Connector")
    };
    CLASSES.iter().find(|(names, _)| names.iter().any(|full| is_named(&full))).map(|(_, convert)| *convert)
}

/// Turns connectors into pipelines. Never fails: a connector without a counterpart is reported, without a pipeline.
pub fn migrate(connectors: &[ConnectorConfig], worker: &Worker) -> Migration {
    let mut variables = Variables::default();
    let mut ids = BTreeSet::new();
    let mut jobs = Vec::with_capacity(connectors.len());
    for connector in connectors {
        let draft = Draft::new(connector, worker, &mut variables, &mut ids);
        jobs.push(match conversion(connector.class()) {
            Some(convert) => convert(draft),
            None => draft.refuse("connector.class", &refusal(connector.class())),
        });
    }
    Migration { jobs, variables: variables.into_needed() }
}

/// Returns why a class has no counterpart, and what to do.
fn refusal(class: &str) -> String {
    let simple = class.rsplit('.').next().unwrap_or(class);
    if class.starts_with("io.debezium.connector.") {
        return "of the Debezium connectors, only PostgreSQL has a counterpart: keep this one in Kafka Connect, and read \
                its topics with the `kafka` source and `unwrap.debezium`"
            .to_owned();
    }
    if simple.starts_with("Mirror") {
        return "a pipeline from the `kafka` source to the `kafka` destination copies topics: write one with \
                `anabranch pipelines init --template kafka-to-kafka`"
            .to_owned();
    }
    "no plugin does what this class does: keep the connector in Kafka Connect, or write a standalone connector"
        .to_owned()
}
