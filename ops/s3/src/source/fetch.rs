//! Fetches an object with its metadata as a record.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::value::timestamp_text;
use anabranch_record::{Change, Data, Operation, Position, Record};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use bytes::Bytes;
use chrono::DateTime;
use tokio::time::timeout;

use super::listing::{Bucket, ServerTime, Version};
use super::sweep::Find;
use crate::codes;
use crate::connection::{answers, refused};
use crate::retry::patiently;

/// Time limit for a pause within an object.
const PAUSE: Duration = Duration::from_secs(30);

/// Maximum number of bytes read of an answer that is not the object.
const BEGINNING: u64 = 1 << 10;
const CHECK: &str = "check objstore.endpoint, and proxies in front of it";

/// Metadata keys of the records.
pub(super) mod keys {
    use anabranch_record::text::Str;

    pub(in super::super) const BUCKET: Str = Str::from_static("s3.bucket");
    pub(in super::super) const CONTENT_TYPE: Str = Str::from_static("s3.header.contentType");
    pub(in super::super) const CONTENT_ENCODING: Str = Str::from_static("s3.header.contentEncoding");
    pub(in super::super) const ETAG: Str = Str::from_static("s3.etag");
    pub(in super::super) const SIZE: Str = Str::from_static("s3.size");
    pub(in super::super) const LAST_MODIFIED: Str = Str::from_static("s3.lastModified");
    pub(in super::super) const VERSION: Str = Str::from_static("s3.versionId");
}

/// Result of fetching a find.
pub(super) enum FetchOutcome {
    Record(Box<Record>),
    /// The object was deleted or replaced before it could be fetched. The next sweep finds its successor.
    Missed {
        key: String,
        delivered_before: bool,
    },
}

/// State shared by all fetches.
pub(super) struct Fetching {
    pub(super) bucket: Bucket,
    pub(super) host: Host,
    /// Maximum size in bytes of an object.
    pub(super) limit: u64,
}

impl Fetching {
    /// Returns the record of a find. Retries while the server is unavailable.
    pub(super) async fn fetch(self: Arc<Self>, find: Find, position: Position) -> Result<FetchOutcome, Fault> {
        let Find { key, operation, version, .. } = find;
        let version = match version {
            Some(version) if !version.marker => version,
            gone => {
                let mut metadata = vec![(keys::BUCKET, self.bucket.name.clone())];
                if let Some(marker) = gone {
                    metadata.extend(marker.id.map(|id| (keys::VERSION, id.into())));
                    dated(&mut metadata, marker.modified);
                }
                let record = self.record(position, key, operation, metadata, Data::Absent);
                return Ok(FetchOutcome::Record(Box::new(record)));
            }
        };
        if version.size > self.limit {
            return Err(self.too_large(&key, version.size));
        }
        match patiently(&self.host, || self.get(&key, &version)).await? {
            Some((answer, body)) => {
                let metadata = self.describe(answer, &version, body.len());
                let record = self.record(position, key, operation, metadata, Data::Raw(body));
                Ok(FetchOutcome::Record(Box::new(record)))
            }
            None => {
                tracing::info!(
                    pipeline = %self.host.pipeline, connector = %self.host.node, key, version = version.id,
                    "the object was changed or deleted before it could be read"
                );
                Ok(FetchOutcome::Missed { key, delivered_before: operation == Operation::Update })
            }
        }
    }

    /// Fetches the object. Returns `None` if it was deleted or changed since it was listed.
    ///
    /// # Errors
    /// Also fails if the answer is not the listed object: it has another length, `ETag` or version.
    async fn get(&self, key: &str, version: &Version) -> Result<Option<(GetObjectOutput, Bytes)>, Fault> {
        let what = || format!("cannot read object {key:?} of bucket {}", self.bucket.name);
        let wrong = |why: &dyn std::fmt::Display| Fault::transient(codes::S3_UNAVAILABLE, format!("{}: {why}", what()));
        let request = self.bucket.client.get_object().bucket(self.bucket.name.as_str()).key(key);
        let request = match &version.id {
            Some(id) => request.version_id(id),
            None => request.set_if_match(version.etag.clone()),
        };
        let mut answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let status = error.raw_response().map(|response| response.status().as_u16());
                let fault = refused(&what(), &error);
                return match (status, error.code()) {
                    (Some(404 | 412), Some(code)) if code != "NoSuchBucket" => Ok(None),
                    // The answer comes from a proxy, or from a server without error codes: list the object again.
                    (Some(404 | 412), None) => {
                        let fault = Fault::transient(codes::S3_UNAVAILABLE, fault.message());
                        self.unlike(key, version, fault).await
                    }
                    _ => Err(fault),
                };
            }
        };
        let announced = answer.content_length().and_then(|length| u64::try_from(length).ok());
        // Read an object with the listed length completely. Of any other answer, read only the beginning, for the error
        // message.
        let same = same_etag(version.etag.as_deref(), answer.e_tag());
        let whole = same && announced.is_none_or(|announced| announced == version.size);
        let most = if whole { version.size } else { version.size.min(BEGINNING) };
        // If there is only one piece, use it without a copy, so that small objects are not copied.
        let (mut first, mut rest) = (Bytes::new(), Vec::new());
        let mut length = 0;
        while length <= most {
            let piece =
                timeout(PAUSE, answer.body.next()).await.map_err(|_| wrong(&"the server paused for too long"))?;
            let Some(piece) = piece else { break };
            let piece = piece.map_err(|error| wrong(&format!("the connection broke: {error}")))?;
            length += piece.len() as u64;
            if first.is_empty() && rest.is_empty() {
                first = piece;
                continue;
            }
            if rest.is_empty() {
                rest.reserve_exact(most.max((first.len() + piece.len()) as u64) as usize);
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&piece);
        }
        let body = if rest.is_empty() { first } else { Bytes::from(rest) };
        if !same {
            let came = answers::of_object(answer.content_type(), &body[..body.len().min(BEGINNING as usize)]);
            let listed = version.etag.as_deref().unwrap_or_default();
            let why = match answer.e_tag() {
                None => format!("the server answered {came} without the ETag {listed} of the listing; {CHECK}"),
                Some(etag) => format!("the object has the ETag {etag}, but the listing has {listed}"),
            };
            return self.unlike(key, version, wrong(&why)).await;
        }
        // Accept answers of servers without ETags, unless they are clearly not the object.
        if answer.e_tag().is_none() && answers::is_error(&body) {
            let came = answers::of_object(answer.content_type(), &body);
            return Err(wrong(&format!("the server answered {came}")));
        }
        if let (Some(listed), Some(found)) = (&version.id, answer.version_id())
            && listed != found
        {
            return Err(wrong(&format!("the server answered with version {found:?}, not {listed:?}")));
        }
        if length == version.size && announced.is_none_or(|announced| announced == length) {
            return Ok(Some((answer, body)));
        }
        let came = match announced {
            Some(announced) => format!("{announced} bytes"),
            None if length > version.size => "more bytes".to_owned(),
            None => format!("{length} bytes"),
        };
        let why = format!("the server sent {came} and lists the object with {}; {CHECK}", version.size);
        self.unlike(key, version, wrong(&why)).await
    }

    /// Interprets an answer that is not the listed object. Returns `None` if the listing has changed.
    ///
    /// # Errors
    /// Returns `wrong` if the server still lists the object: the next answer may be correct.
    async fn unlike<T>(&self, key: &str, version: &Version, wrong: Fault) -> Result<Option<T>, Fault> {
        // Versions are immutable.
        if version.id.is_some() {
            return Err(wrong);
        }
        match self.bucket.current(key).await? {
            Some(now) if now.fingerprint == version.fingerprint => Err(wrong),
            _ => Ok(None),
        }
    }

    fn too_large(&self, key: &str, size: u64) -> Fault {
        Fault::fatal(
            codes::OBJECT_TOO_LARGE,
            format!(
                "object {key:?} of bucket {} has {size} bytes, more than {}; raise maxObjectBytes to read it",
                self.bucket.name, self.limit
            ),
        )
    }

    /// Returns the user-defined metadata of the object, then that of the store.
    fn describe(&self, mut answer: GetObjectOutput, version: &Version, size: usize) -> Vec<(Str, Str)> {
        let of_user = answer.metadata.take().unwrap_or_default();
        let mut metadata: Vec<(Str, Str)> = of_user.into_iter().map(|(key, text)| (key.into(), text.into())).collect();
        metadata.sort();
        let own = [
            (keys::CONTENT_TYPE, answer.content_type.take()),
            (keys::CONTENT_ENCODING, answer.content_encoding.take()),
            (keys::ETAG, answer.e_tag.take()),
            (keys::VERSION, version.id.clone()),
        ];
        metadata.push((keys::BUCKET, self.bucket.name.clone()));
        metadata.extend(own.into_iter().filter_map(|(key, text)| Some((key, text?.into()))));
        metadata.push((keys::SIZE, size.to_string().into()));
        dated(&mut metadata, version.modified);
        metadata
    }

    fn record(
        &self,
        position: Position,
        key: String,
        operation: Operation,
        metadata: Vec<(Str, Str)>,
        after: Data,
    ) -> Record {
        let mut record = Record::at(position);
        record.operation = operation;
        record.key = Data::text(key);
        record.payload = Change { before: Data::Absent, after };
        record.metadata = Metadata::from_entries(metadata);
        record
    }
}

/// Returns `true` if the `ETag` of an answer is the listed one. Proxies weaken it, and some servers omit the quotes in
/// listings.
fn same_etag(listed: Option<&str>, found: Option<&str>) -> bool {
    let bare = |etag: &str| etag.trim().trim_start_matches("W/").trim_matches('"').to_owned();
    match (listed.map(bare), found.map(bare)) {
        (Some(listed), found) if !listed.is_empty() => found.is_some_and(|found| found == listed),
        _ => true,
    }
}

fn dated(metadata: &mut Vec<(Str, Str)>, modified: ServerTime) {
    if let Some(time) = DateTime::from_timestamp(modified.seconds, modified.nanos) {
        metadata.push((keys::LAST_MODIFIED, timestamp_text(&time).into()));
        metadata.extend(time.timestamp_nanos_opt().map(|nanos| (key::CREATED_AT, nanos.to_string().into())));
    }
}
