//! The `s3` destination: writes batches of records as objects of lines, or as Parquet files.

mod compression;
#[cfg(feature = "parquet")]
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_plugin::destination::{
    Delivered, Destination, DestinationKind, Retry, Verdicts, Write, WritePolicy, Writer,
};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
#[cfg(feature = "parquet")]
use anabranch_plugin::format::parquet::ParquetLayout;
use anabranch_plugin::format::parquet::ParquetSettings;
use anabranch_plugin::format::{FormatSettings, RecordFormat};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::naming::{self, BatchHash, UniqueNames};
use anabranch_plugin::parameters::{Argument, ByteSize, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::extent::Extent;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use anabranch_template::{NO_VALUE, Template};
use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;

use crate::codes;
use crate::connection::{Connection, Options, refused};
use crate::retry::{RequestPurpose, opening};
use compression::Compression;

/// Maximum size of an object in one request. Larger ones would need multipart uploads.
const LARGEST: u64 = 64 << 20;
/// Maximum length of a key in S3.
const LONGEST_KEY: usize = 1024;

/// Returns the `s3` destination for the registry.
pub(crate) fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("s3", "Writes batches of records as objects, one line per record.")
        .describe(include_str!("destination/description.md"))
        .with_all(shared::destination());
    kind::destination(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    #[parameter(flatten)]
    connection: Options,
    /// Prefix of all keys, such as `events/`.
    prefix: Option<Str>,
    /// Folder of a record below the prefix, a template over the record. Records of one batch with different folders go
    /// to different objects.
    folder: Option<Template>,
    /// Format of the objects: json (one line per record) or parquet.
    #[parameter(default = "json")]
    format: Argument<FileFormat>,
    /// Compression of the objects: none, gzip or zstd.
    #[parameter(default = "none")]
    compression: Argument<Compression>,
    /// The content type of the objects. With the format parquet, the default is application/vnd.apache.parquet.
    #[parameter(default = "application/x-ndjson")]
    content_type: Argument<Str>,
    /// Approximate size of an object before compression.
    #[parameter(default = "8MiB", greater_than = 0, less_than = (LARGEST / 2 + 1) as f64)]
    max_object_bytes: ByteSize,
    #[parameter(nested)]
    parquet: ParquetSettings,
    #[parameter(flatten)]
    records: FormatSettings,
}

#[derive(Clone, Copy)]
enum FileFormat {
    Json,
    Parquet,
}

impl Choice for FileFormat {
    const CHOICES: &'static [(&'static str, Self)] = &[("json", FileFormat::Json), ("parquet", FileFormat::Parquet)];
}

fn configure(settings: Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    let mut findings = Diagnostics::new();
    let content = content(&settings).map_err(|found| findings.0.extend(found)).ok();
    let connection = Connection::new(&settings.connection).map_err(|found| findings.0.extend(found)).ok();
    let (Some(connection), Some(content), false) = (connection, content, findings.has_errors()) else {
        return Err(findings);
    };
    let content_type = match content {
        ObjectContent::Lines(..) => settings.content_type.trim(),
        #[cfg(feature = "parquet")]
        ObjectContent::Tables(_) if !settings.content_type.is_given() => tables::CONTENT_TYPE,
        #[cfg(feature = "parquet")]
        ObjectContent::Tables(_) => settings.content_type.trim(),
    };
    Ok(Arc::new(S3Destination {
        connection,
        bytes: settings.max_object_bytes.to_usize(),
        layout: Arc::new(ObjectLayout {
            prefix: settings.prefix.map(|prefix| Str::from(prefix.trim())).unwrap_or_default(),
            content_type: content_type.into(),
            folder: settings.folder,
            content,
        }),
        wrote: WroteObject::default(),
    }))
}

/// Returns the content of the objects.
fn content(settings: &Settings) -> Result<ObjectContent, Diagnostics> {
    match *settings.format {
        FileFormat::Json => match settings.parquet.unused() {
            Some(finding) => Err(finding.into()),
            None => Ok(ObjectContent::Lines(RecordFormat::new(&settings.records)?, *settings.compression)),
        },
        #[cfg(not(feature = "parquet"))]
        FileFormat::Parquet => {
            let finding = settings.format.invalid("this build does not contain Parquet");
            let hint = "build anabranch with the feature parquet: cargo build --features parquet";
            Err(finding.with_hint(hint).into())
        }
        #[cfg(feature = "parquet")]
        FileFormat::Parquet if *settings.compression != Compression::None => {
            let finding = settings.compression.invalid("a Parquet file is not compressed as a whole");
            Err(finding.with_hint("set parquet.compression").into())
        }
        #[cfg(feature = "parquet")]
        FileFormat::Parquet => Ok(ObjectContent::Tables(settings.parquet.layout(&settings.records)?)),
    }
}

/// Layout of the objects.
struct ObjectLayout {
    prefix: Str,
    folder: Option<Template>,
    content: ObjectContent,
    content_type: Str,
}

/// Content of an object.
enum ObjectContent {
    /// A line for each record.
    Lines(RecordFormat, Compression),
    /// A Parquet file.
    #[cfg(feature = "parquet")]
    Tables(ParquetLayout),
}

struct S3Destination {
    connection: Connection,
    layout: Arc<ObjectLayout>,
    bytes: usize,
    wrote: WroteObject,
}

/// True if an object was written since the plan was compiled, by this run or an earlier one. An access that is denied
/// afterwards was revoked and may be granted again.
#[derive(Clone, Default)]
struct WroteObject(Arc<AtomicBool>);

impl WroteObject {
    fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn judge(&self, fault: Fault) -> Fault {
        let taken = matches!(
            fault.code(),
            codes::BUCKET_MISSING | codes::NOT_FOUND | codes::ACCESS_DENIED | codes::CREDENTIALS_REFUSED
        );
        match taken && self.0.load(Ordering::Relaxed) {
            true => fault.with_class(FaultClass::Transient),
            false => fault,
        }
    }
}

#[async_trait]
impl Destination for S3Destination {
    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        match &self.layout.content {
            ObjectContent::Lines(format, _) => {
                let mut line = Vec::new();
                Some(self.layout.line(format, record, &mut line).map(|_| {
                    line.pop();
                    line
                }))
            }
            #[cfg(feature = "parquet")]
            ObjectContent::Tables(layout) => {
                let refused = self.layout.folder_of(record).err();
                refused.or_else(|| layout.columns.refuses(record)).map(Err)
            }
        }
    }

    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let client = self.connection.open().await?;
        let bucket = self.connection.bucket().clone();
        let what = format!("whether bucket {bucket} exists");
        let asked = RequestPurpose { server: self.connection.server(), what: &what };
        opening(host, asked, || self.reach(&client)).await?;
        Ok(Box::new(Objects {
            client,
            bucket,
            layout: self.layout.clone(),
            wrote: self.wrote.clone(),
            names: UniqueNames::new(&host.pipeline, &host.node),
            #[cfg(feature = "parquet")]
            schemas: anabranch_ops_parquet::DeclaredSchemas::new(host.schemas.clone()),
        }))
    }

    fn flow(&self, flow: &mut Flow) {
        match &self.layout.content {
            ObjectContent::Lines(format, _) => format.flow(flow, true),
            #[cfg(feature = "parquet")]
            ObjectContent::Tables(layout) => layout.columns.flow(flow),
        }
        if let Some(folder) = &self.layout.folder {
            flow.template("folder", folder);
            if let Some(part) = impossible(folder) {
                let message = format!("every record fails here: {part:?} cannot be a part of a key");
                let hint = "a folder is relative to the prefix: remove that part";
                flow.fail(codes::SETTINGS_INVALID, "folder", message, None, Some(hint.to_owned()));
            }
        }
    }

    fn writes(&self) -> Vec<Extent> {
        let name = format!("{}{}", self.layout.prefix, self.layout.folder.as_ref().map(head).unwrap_or_default());
        let space = self.connection.space();
        vec![Extent { what: "objects", space, name: name.into(), whole: false, setting: "prefix" }]
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 8192, bytes: self.bytes, linger: Duration::from_secs(5), retry: Retry::Idempotent }
    }
}

impl S3Destination {
    /// Checks that the bucket exists, as far as permissions allow.
    async fn reach(&self, client: &Client) -> Result<(), Fault> {
        let bucket = self.connection.bucket();
        let Err(error) = client.head_bucket().bucket(bucket.as_str()).send().await else { return Ok(()) };
        let fault = refused(&format!("cannot reach bucket {bucket}"), &error);
        // A user with permission only to put objects cannot query the bucket.
        if fault.code() == codes::ACCESS_DENIED {
            return Ok(());
        }
        Err(self.wrote.judge(match fault.code() {
            codes::NOT_FOUND => Fault::fatal(codes::BUCKET_MISSING, format!("the bucket {bucket} does not exist")),
            _ => fault,
        }))
    }
}

/// Returns a path segment that the folder has for every record and that is not allowed.
fn impossible(folder: &Template) -> Option<&str> {
    // Text next to a template is a complete segment only if a slash separates them.
    let texts = folder.source().split("{{").flat_map(|piece| piece.rsplit("}}").take(1));
    let whole = folder.source().trim().trim_matches('/');
    let parts: Vec<&str> = whole.split('/').collect();
    let between = |part: &&str| matches!(*part, "." | "..");
    let found = parts.into_iter().find(between)?;
    // Ignore text inside of an action, as in `{{ a "/../" }}`.
    texts.flat_map(|text| text.split('/')).any(|part| part.trim() == found).then_some(found)
}

/// Returns the constant prefix of all folders that a template renders.
fn head(folder: &Template) -> String {
    if let Some(text) = folder.literal() {
        let text = text.trim().trim_matches('/');
        return if text.is_empty() { String::new() } else { format!("{text}/") };
    }
    let text = folder.source().split("{{").next().unwrap_or_default();
    text.trim().trim_matches('/').to_owned()
}

struct Objects {
    client: Client,
    bucket: Str,
    layout: Arc<ObjectLayout>,
    wrote: WroteObject,
    names: UniqueNames,
    #[cfg(feature = "parquet")]
    schemas: anabranch_ops_parquet::DeclaredSchemas,
}

/// The lines of one object.
struct ObjectLines {
    body: Vec<u8>,
    identity: BatchHash,
}

#[async_trait]
impl Writer for Objects {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let layout = self.layout.clone();
        let failures = match &layout.content {
            ObjectContent::Lines(format, compression) => self.write_lines(rows, format, *compression).await?,
            #[cfg(feature = "parquet")]
            ObjectContent::Tables(layout) => self.write_tables(rows, layout).await?,
        };
        if failures.is_empty() {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        let mut verdicts: Vec<Result<Delivered, Fault>> = rows.iter().map(|_| Ok(Delivered::Durable)).collect();
        for (row, fault) in failures {
            verdicts[row] = Err(fault);
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Objects {
    /// Writes objects of lines. Returns the records that cannot be written.
    async fn write_lines(
        &mut self,
        rows: &[Record],
        format: &RecordFormat,
        compression: Compression,
    ) -> Result<Vec<(usize, Fault)>, Fault> {
        let mut objects: BTreeMap<String, Vec<ObjectLines>> = BTreeMap::new();
        let mut failures = Vec::new();
        let mut line = Vec::new();
        for (row, record) in rows.iter().enumerate() {
            line.clear();
            let folder = match self.layout.line(format, record, &mut line) {
                Ok(folder) => folder,
                Err(fault) => {
                    failures.push((row, fault));
                    continue;
                }
            };
            let objects = objects.entry(folder).or_default();
            // A record may be much larger as formatted text than in memory.
            let full = |lines: &ObjectLines| (lines.body.len() + line.len()) as u64 > LARGEST;
            if objects.last().is_none_or(full) {
                objects.push(ObjectLines { body: Vec::new(), identity: BatchHash::new() });
            }
            if let Some(lines) = objects.last_mut() {
                lines.body.extend_from_slice(&line);
                lines.identity.add(record);
            }
        }
        self.names.begin();
        for (folder, objects) in objects {
            for ObjectLines { body, identity } in objects {
                let name = self.names.name(&folder, identity);
                let ending = compression.ending();
                let key = format!("{}{folder}{name}.ndjson{ending}", self.layout.prefix);
                let body = match compression {
                    Compression::None => body,
                    _ => tokio::task::spawn_blocking(move || compression.compress(&body))
                        .await
                        .map_err(|error| Fault::fatal(codes::COMPRESSION_FAILED, error))?
                        .map_err(|error| Fault::fatal(codes::COMPRESSION_FAILED, error))?,
                };
                self.put(&key, Bytes::from(body)).await?;
            }
        }
        self.names.commit();
        Ok(failures)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<(), Fault> {
        let put = self
            .client
            .put_object()
            .bucket(self.bucket.as_str())
            .key(key)
            .content_type(self.layout.content_type.as_str())
            .body(ByteStream::from(body))
            .send()
            .await;
        match put {
            Ok(_) => {
                self.wrote.note();
                Ok(())
            }
            Err(error) => {
                let fault = refused(&format!("cannot write object {key:?} of bucket {}", self.bucket), &error);
                Err(self.wrote.judge(fault))
            }
        }
    }
}

impl ObjectLayout {
    /// Appends the line of a record and returns its folder, which is empty or ends with a slash.
    fn line(&self, format: &RecordFormat, record: &Record, line: &mut Vec<u8>) -> Result<String, Fault> {
        format.encode(record, line)?;
        line.push(b'\n');
        if line.len() as u64 > LARGEST {
            return Err(Fault::record(
                codes::RECORD_TOO_LARGE,
                format!("the line of the record has {} bytes, more than {LARGEST}, the largest object", line.len()),
            ));
        }
        self.folder_of(record)
    }

    /// Returns the folder of a record, which is empty or ends with a slash.
    fn folder_of(&self, record: &Record) -> Result<String, Fault> {
        let mut folder = String::new();
        if let Some(template) = &self.folder {
            template.render(record, &mut folder).map_err(|error| Fault::record(codes::FOLDER_FAILED, error))?;
        }
        if let Some(template) = self.folder.as_ref().filter(|_| folder.contains(NO_VALUE)) {
            let why = template.why_no_value(record);
            return Err(Fault::record(
                codes::FOLDER_INVALID,
                format!("the template of folder produces {folder:?}: {why}"),
            ));
        }
        let trimmed = folder.trim().trim_matches('/');
        if trimmed.split('/').any(|part| part == "." || part == "..") || trimmed.chars().any(char::is_control) {
            return Err(Fault::record(codes::FOLDER_INVALID, format!("{trimmed:?} cannot be a part of a key")));
        }
        if self.prefix.len() + trimmed.len() + naming::LENGTH + 16 > LONGEST_KEY {
            let len = trimmed.len();
            return Err(Fault::record(
                codes::FOLDER_INVALID,
                format!("the folder has {len} bytes, and a key has at most {LONGEST_KEY}"),
            ));
        }
        Ok(if trimmed.is_empty() { String::new() } else { format!("{trimmed}/") })
    }
}
