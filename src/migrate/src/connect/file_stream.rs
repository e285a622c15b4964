//! The connectors of files that are part of Kafka.

use super::draft::Draft;
use super::shape::{Form, Shape, Timestamp, Topic};
use super::{converters, dead_letters, kafka, transforms};
use crate::document::Part;
use crate::expression::constant;
use crate::report::Job;

pub(super) fn source(mut draft: Draft<'_>) -> Job {
    let mut file = Part::new("file", "file");
    match draft.peek("file").is_some() {
        true => draft.pass("file", &mut file, "path"),
        false => {
            return draft.refuse(
                "file",
                "without a file, the connector reads the standard input of the worker, which a pipeline does not have",
            );
        }
    }
    draft.pass("batch.size", &mut file, "sdk.batch.size");
    let topic = match draft.take("topic") {
        Some(topic) => {
            draft.carried("topic", "topic.topic");
            constant(&draft.plain("topic", topic))
        }
        None => {
            draft.blocked("topic", "the connector names no topic");
            "lines".to_owned()
        }
    };
    draft.changed(
        "name",
        "file",
        "the source reads the file from its beginning: positions of Kafka Connect are not carried over",
    );
    draft.add(Part::new("no-key", "field.exclude").with("fields", ".Key").comment("Removes the number of the line."));
    let as_json = converters::written_as_json(&draft);
    let mut shape = Shape {
        key: Form::Absent,
        value: Form::Raw,
        topic: Topic::Template(topic),
        has_schema: true,
        has_deletions: false,
        timestamp: Timestamp::Read,
        as_json,
    };
    transforms::convert(&mut draft, &mut shape);
    let mut destination = kafka::destination(&mut draft, &shape);
    converters::encode(&mut draft, &shape, &mut destination);
    dead_letters::convert(&mut draft);
    draft.finish(file, destination)
}

pub(super) fn sink(mut draft: Draft<'_>) -> Job {
    let mut file = Part::new("file", "file");
    match draft.peek("file").is_some() {
        true => draft.pass("file", &mut file, "path"),
        false => {
            file.set("path", "/dev/stdout");
            draft.changed("file", "file.path", "without a file, the connector writes to standard output");
        }
    }
    let topics = kafka::source(&mut draft);
    let mut shape = converters::decode(&mut draft, Shape::of_messages());
    transforms::convert(&mut draft, &mut shape);
    file.set("sdk.record.format", "recfmt/raw");
    if !matches!(shape.value, Form::Raw | Form::Json) {
        draft.changed(
            "connector.class",
            "file.sdk.record.format",
            "values with fields are written as JSON; Kafka Connect writes them as Java prints them",
        );
    }
    dead_letters::convert(&mut draft);
    draft.finish(topics, file)
}
