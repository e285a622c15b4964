//! The S3 sink connector of Confluent.

use super::draft::Draft;
use super::shape::{Form, IS_DELETION, Shape, TOPIC};
use super::transforms::{JavaPart, java_parts};
use super::{converters, dead_letters, kafka, transforms};
use crate::document::Part;
use crate::expression::{action, constant, field, metadata};
use crate::report::Job;

pub(super) fn convert(mut draft: Draft<'_>) -> Job {
    let mut bucket = Part::new("bucket", "s3");
    connection(&mut draft, &mut bucket);
    let topics = kafka::source(&mut draft);
    let mut shape = converters::decode(&mut draft, Shape::of_messages());
    transforms::convert(&mut draft, &mut shape);
    tombstones(&mut draft, &shape);
    let directory = draft.take("topics.dir");
    if directory.is_some() {
        draft.carried("topics.dir", "bucket.prefix");
    }
    let directory = draft.text("topics.dir", directory.as_deref().unwrap_or("topics"));
    let mut prefix = directory;
    prefix.push(&"/".into());
    bucket.set("prefix", prefix);
    partitions(&mut draft, &mut bucket, &shape);
    let is_parquet = format(&mut draft, &mut bucket, &shape);
    batches(&mut draft, &mut bucket);
    draft.expect("storage.class", &["io.confluent.connect.s3.storage.S3Storage"], "this class has no counterpart");
    draft.leave_out(&["schema.generator.class"], "the connector ignores it, too");
    draft.leave_out(
        &["schema.compatibility", "schema.cache.size", "enhanced.avro.schema.support", "connect.meta.data"],
        match is_parquet {
            true => "records whose types conflict go to different files",
            false => "a line of JSON needs no schema",
        },
    );
    draft.leave_out(
        &["filename.offset.zero.pad.width", "file.delim", "directory.delim"],
        "the name of an object is derived from its content, so that a repeated write replaces it",
    );
    draft.leave_out(
        &[
            "s3.part.size",
            "s3.part.retries",
            "s3.retry.backoff.ms",
            "retry.backoff.ms",
            "shutdown.timeout.ms",
            "s3.wan.mode",
            "behavior.on.error",
        ],
        "an object is written in one request, which is retried without limit",
    );
    draft.leave_out(
        &["allow.json.primitives", "format.bytearray.separator", "format.bytearray.extension"],
        "each record is a line",
    );
    for setting in [
        "s3.ssea.name",
        "s3.sse.kms.key.id",
        "s3.sse.customer.key",
        "s3.acl.canned",
        "s3.object.tagging",
        "s3.credentials.provider.class",
        "s3.proxy.url",
        "store.kafka.keys",
        "store.kafka.headers",
    ] {
        if draft.take(setting).is_some() {
            let note = match setting {
                setting if setting.starts_with("s3.sse") || setting == "s3.acl.canned" => "set it for the bucket",
                setting if setting.starts_with("store.") => {
                    "set sdk.record.format: recfmt/json to write keys and headers beside the values"
                }
                "s3.credentials.provider.class" => {
                    "keys are searched in the environment, the shared files, the container and the machine"
                }
                _ => "it has no counterpart",
            };
            draft.blocked(setting, note);
        }
    }
    dead_letters::convert(&mut draft);
    draft.finish(topics, bucket)
}

fn connection(draft: &mut Draft<'_>, bucket: &mut Part) {
    if draft.peek("s3.bucket.name").is_none() {
        let unknown = draft.unknown("S3_BUCKET", "the name of the bucket");
        bucket.set("objstore.bucket", unknown);
        draft.blocked("s3.bucket.name", "the connector names no bucket");
    }
    draft.pass("s3.bucket.name", bucket, "objstore.bucket");
    if draft.peek("s3.region").is_some() {
        draft.pass("s3.region", bucket, "objstore.region");
    } else {
        // The default of the connector.
        bucket.set("objstore.region", "us-west-2");
    }
    if let Some(id) = draft.take("aws.access.key.id") {
        let id = draft.secret("aws.access.key.id", &id, "the access key id");
        bucket.set("objstore.access_key_id", id);
        draft.carried("aws.access.key.id", "bucket.objstore.access_key_id");
    }
    if let Some(key) = draft.take("aws.secret.access.key") {
        let key = draft.secret("aws.secret.access.key", &key, "the secret access key");
        bucket.set("objstore.secret_access_key", key);
        draft.carried("aws.secret.access.key", "bucket.objstore.secret_access_key");
    }
    draft.pass("store.url", bucket, "objstore.endpoint");
    let style = draft.take_any(&["s3.path.style.access.enabled", "s3.path.style.access"]);
    if let Some((setting, value)) = style {
        bucket.set("objstore.path_style", value.to_ascii_lowercase());
        draft.carried(setting, "bucket.objstore.path_style");
    }
}

fn tombstones(draft: &mut Draft<'_>, shape: &Shape) {
    let behavior = draft.take("behavior.on.null.values");
    if behavior.is_some() {
        draft.carried("behavior.on.null.values", "no-value");
    }
    if !shape.has_deletions {
        return;
    }
    let part = match behavior.as_deref() {
        Some("ignore") => Part::new("no-value", "filter"),
        Some("write") => {
            draft.blocked("behavior.on.null.values", "a record without a value has no line: choose ignore or fail");
            return;
        }
        _ => Part::new("no-value", "error")
            .with("message", "the record has no value, as with behavior.on.null.values=fail"),
    };
    draft.add(part.when(Some(IS_DELETION)));
}

/// Folders of objects, as the partitioner makes them.
fn partitions(draft: &mut Draft<'_>, bucket: &mut Part, shape: &Shape) {
    let class = draft.take("partitioner.class");
    let simple = class.as_deref().map(|class| class.rsplit('.').next().unwrap_or(class));
    let topic = action(&metadata(TOPIC));
    let folder = match simple.unwrap_or("DefaultPartitioner") {
        "DefaultPartitioner" => {
            draft.changed(
                "partitioner.class",
                "bucket.folder",
                "the folder has no partition=N: records do not have the partition of Kafka",
            );
            topic
        }
        "FieldPartitioner" => {
            let names = draft.take("partition.field.name").unwrap_or_default();
            let mut folder = topic;
            for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let path: Vec<&str> = name.split('.').collect();
                let value = match shape.value {
                    Form::Raw | Form::Json => {
                        draft.blocked("partition.field.name", "the value is a text or bytes, without fields");
                        break;
                    }
                    _ => action(&field(".Payload.After", &path)),
                };
                folder.push_str(&format!("/{}={value}", constant(name)));
            }
            draft.carried("partitioner.class", "bucket.folder");
            draft.carried("partition.field.name", "bucket.folder");
            folder
        }
        kind @ ("TimeBasedPartitioner" | "HourlyPartitioner" | "DailyPartitioner") => {
            draft.carried("partitioner.class", "bucket.folder");
            let time = time(draft, shape);
            let format = draft.take("path.format");
            if format.is_some() {
                draft.carried("path.format", "bucket.folder");
            }
            let format = match (kind, &format) {
                ("TimeBasedPartitioner", Some(format)) => format.as_str(),
                ("DailyPartitioner", _) => "'year'=YYYY/'month'=MM/'day'=dd",
                _ => "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
            };
            match dated(format, &time) {
                Some(dated) => format!("{topic}/{dated}"),
                None => {
                    draft.blocked(
                        "path.format",
                        "the format has letters that have no counterpart: write the template `folder` by hand",
                    );
                    topic
                }
            }
        }
        _ => {
            draft.blocked("partitioner.class", "this class has no counterpart: write the template `folder` by hand");
            topic
        }
    };
    bucket.set("folder", folder);
    draft.leave_out(&["partition.duration.ms"], "the template `folder` decides the length of a period");
    draft.leave_out(&["locale"], "dates are written in digits or in English");
    draft.leave_out(
        &["partition.field.name", "path.format", "timestamp.extractor", "timestamp.field", "timezone"],
        "the partitioner does not use it",
    );
}

/// Returns the expression for the time of a record, as the function `date` takes it.
fn time(draft: &mut Draft<'_>, shape: &Shape) -> String {
    if let Some(zone) = draft.take("timezone") {
        match ["UTC", "GMT", "Etc/UTC", "Z"].contains(&zone.as_str()) {
            true => draft.carried("timezone", "bucket.folder"),
            false => {
                draft.blocked("timezone", "templates write times in UTC: use UTC, or change the template `folder`");
            }
        }
    }
    // Nanoseconds since 1970; a message without a timestamp is of 1970.
    let message = || format!("(div (int64 {}) 1000000000)", metadata("recfmt.createdAt"));
    match draft.take("timestamp.extractor").as_deref() {
        Some("Record") => {
            draft.carried("timestamp.extractor", "bucket.folder");
            message()
        }
        Some("RecordField") => {
            let name = draft.take("timestamp.field").unwrap_or_else(|| "timestamp".to_owned());
            let path: Vec<&str> = name.split('.').collect();
            draft.unsure(
                "timestamp.extractor",
                "bucket.folder",
                "the field must be a time as RFC 3339: make one of a number with `time.parse`, and of a time with `time.format`",
            );
            draft.carried("timestamp.field", "bucket.folder");
            if matches!(shape.value, Form::Raw | Form::Json) {
                draft.blocked("timestamp.field", "the value is a text or bytes, without fields");
                return message();
            }
            format!("(mustToDate \"2006-01-02T15:04:05Z07:00\" {})", field(".Payload.After", &path))
        }
        _ => {
            draft.changed(
                "timestamp.extractor",
                "bucket.folder",
                "the time is that of the message, not that of the write: so a repeated write replaces the same objects",
            );
            message()
        }
    }
}

/// Returns a template for a date in a format of Joda; `None` if it has letters without a counterpart.
fn dated(format: &str, time: &str) -> Option<String> {
    let mut template = String::new();
    for part in java_parts(format)? {
        match part {
            JavaPart::Text(text) => template.push_str(&constant(&text)),
            JavaPart::Letters(letter, count) => {
                let layout = match (letter, count) {
                    ('Y' | 'y', 4) => "2006",
                    ('M', 2) => "01",
                    ('d', 2) => "02",
                    ('H', 2) => "15",
                    ('m', 2) => "04",
                    ('s', 2) => "05",
                    _ => return None,
                };
                template.push_str(&format!("{{{{ date \"{layout}\" {time} }}}}"));
            }
        }
    }
    Some(template)
}

/// Sets the format of the objects. Returns `true` if they are Parquet files.
fn format(draft: &mut Draft<'_>, bucket: &mut Part, shape: &Shape) -> bool {
    let class = draft.take("format.class");
    bucket.set("sdk.record.format", "recfmt/raw");
    let simple = class.as_deref().map(|class| class.rsplit('.').next().unwrap_or(class));
    if simple == Some("ParquetFormat") {
        parquet(draft, bucket, shape);
        return true;
    }
    match simple {
        Some("JsonFormat" | "ByteArrayFormat") => draft.carried("format.class", "bucket.sdk.record.format"),
        Some("AvroFormat") | None => draft.unsure(
            "format.class",
            "bucket.sdk.record.format",
            "objects are lines of JSON: readers must read them, not Avro; format: parquet writes Parquet files",
        ),
        Some(_) => draft.blocked("format.class", "this class has no counterpart"),
    }
    draft.leave_out(&["parquet.codec", "avro.codec"], "objects are lines of JSON");
    if let Some(compression) = draft.take("s3.compression.type") {
        match compression.as_str() {
            "none" | "gzip" => {
                bucket.set("compression", compression);
                draft.carried("s3.compression.type", "bucket.compression");
            }
            _ => draft.blocked("s3.compression.type", "objects are compressed with gzip or zstd"),
        }
    }
    draft.leave_out(&["s3.compression.level"], "the level is fixed");
    false
}

/// Makes the objects Parquet files, whose columns are the fields of the values.
fn parquet(draft: &mut Draft<'_>, bucket: &mut Part, shape: &Shape) {
    bucket.set("format", "parquet");
    match shape.value {
        Form::Raw | Form::Json => {
            draft
                .blocked("format.class", "the value is a text or bytes, without fields that become columns: decode it");
        }
        Form::Absent | Form::Fields | Form::Envelope => draft.carried("format.class", "bucket.format"),
    }
    let codec = draft.take("parquet.codec");
    let compression = match codec.as_deref() {
        // The default of the connector.
        None => "snappy",
        Some(codec @ ("snappy" | "zstd" | "none")) => {
            draft.carried("parquet.codec", "bucket.parquet.compression");
            codec
        }
        Some(_) => {
            let note = "Parquet files are compressed with zstd or snappy, which common readers read";
            draft.changed("parquet.codec", "bucket.parquet.compression", note);
            "zstd"
        }
    };
    bucket.set("parquet.compression", compression);
    draft.leave_out(&["avro.codec"], "objects are Parquet files");
    let note = "a Parquet file is not compressed as a whole: parquet.compression compresses its pages";
    draft.leave_out(&["s3.compression.type", "s3.compression.level"], note);
}

fn batches(draft: &mut Draft<'_>, bucket: &mut Part) {
    if let Some(size) = draft.take("flush.size") {
        bucket.set("sdk.batch.size", size);
        draft.changed("flush.size", "bucket.sdk.batch.size", "the number counts the records of all topics and partitions together, and an object has at most maxObjectBytes");
    }
    let scheduled = draft.take("rotate.schedule.interval.ms");
    let rotate = draft.take("rotate.interval.ms");
    let longest = [("rotate.schedule.interval.ms", scheduled), ("rotate.interval.ms", rotate)];
    let mut is_set = false;
    for (setting, value) in longest {
        let Some(value) = value else { continue };
        match value.parse::<i64>() {
            Ok(milliseconds) if milliseconds > 0 && !is_set => {
                bucket.set("sdk.batch.delay", format!("{milliseconds}ms"));
                draft.changed(
                    setting,
                    "bucket.sdk.batch.delay",
                    "it is the time since the first record of the batch was read",
                );
                is_set = true;
            }
            Ok(_) => draft.left_out(setting, "it has no effect beside the other settings"),
            Err(_) => draft.blocked(setting, "it is not a number"),
        }
    }
    if !is_set {
        draft.changed("flush.size", "bucket.sdk.batch.delay", "an incomplete batch is written after 5 s; Kafka Connect waits until it is complete. Set sdk.batch.delay to wait longer");
    }
}
