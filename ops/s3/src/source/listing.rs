//! Listings of objects, versions and multipart uploads, and the server's clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_plugin::host::Host;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_sdk_s3::types::{BucketVersioningStatus, EncodingType};
use percent_encoding::percent_decode_str;

use super::position::{Horizon, MOST_UPLOADS, Upload};
use crate::codes;
use crate::connection::{answers, refused};
use crate::fingerprint::fingerprint;
use crate::retry::{RequestPurpose, opening};

/// A bucket, or the part of it with a prefix.
pub(super) struct Bucket {
    pub(super) client: Client,
    /// The server, for messages.
    pub(super) server: Str,
    pub(super) name: Str,
    pub(super) prefix: Str,
}

/// Time of an object's last change, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct ServerTime {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

impl ServerTime {
    fn of(time: Option<&DateTime>) -> ServerTime {
        time.map(|time| ServerTime { seconds: time.secs(), nanos: time.subsec_nanos() }).unwrap_or_default()
    }
}

/// A version of an object; the only one if the bucket does not keep versions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Version {
    /// Hash of all properties that distinguish it from other versions of its key.
    pub(super) fingerprint: u64,
    pub(super) modified: ServerTime,
    pub(super) size: u64,
    pub(super) etag: Option<String>,
    /// Version id; `None` if the bucket does not keep versions.
    pub(super) id: Option<String>,
    /// True for a delete marker.
    pub(super) marker: bool,
}

impl Version {
    pub(super) fn new(modified: ServerTime, size: u64, etag: Option<String>, id: Option<String>, marker: bool) -> Self {
        let fingerprint = fingerprint(&[
            id.as_deref().unwrap_or_default().as_bytes(),
            etag.as_deref().unwrap_or_default().as_bytes(),
            &modified.seconds.to_le_bytes(),
            &modified.nanos.to_le_bytes(),
            &size.to_le_bytes(),
        ]);
        Version { fingerprint, modified, size, etag, id, marker }
    }
}

/// Start of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageStart {
    /// At the first key.
    Start,
    /// After a key.
    After(String),
    /// After a version of a key.
    AfterVersion(String, String),
    /// At the server's continuation token, after a page without keys.
    Token(String),
    /// Only the versions of this key.
    Only(String),
}

/// A part of a listing: versions in the order of their keys; those of one key are newest first.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) versions: Vec<(String, Version)>,
    /// Start of the next page; `None` at the end.
    pub(super) next: Option<PageStart>,
    /// The server's clock at the time of the answer, in seconds.
    pub(super) now: i64,
}

/// Decodes keys, which are percent-encoded because XML cannot represent all of them.
struct Keys {
    encoded: bool,
}

impl Keys {
    fn decode(&self, key: &str) -> Result<String, Fault> {
        if !self.encoded {
            return Ok(key.to_owned());
        }
        let spaced = key.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8();
        decoded
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| Fault::fatal(codes::KEY_INVALID, format!("the key {key:?} is not UTF-8")))
    }
}

impl Bucket {
    fn prefix(&self) -> Option<String> {
        (!self.prefix.is_empty()).then(|| self.prefix.to_string())
    }

    fn refused<E>(&self, what: &str, error: &SdkError<E, aws_sdk_s3::config::http::HttpResponse>) -> Fault
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        refused(&format!("cannot {what} bucket {}", self.name), error)
    }

    /// Returns whether the bucket keeps versions; `None` if this user may not query it. Retries for a while.
    pub(super) async fn asked_for_versions(&self, host: &Host) -> Result<Option<bool>, Fault> {
        let what = format!("whether bucket {} keeps versions", self.name);
        opening(host, RequestPurpose { server: &self.server, what: &what }, || self.keeps_versions()).await
    }

    async fn keeps_versions(&self) -> Result<Option<bool>, Fault> {
        let answer = self.client.get_bucket_versioning().bucket(self.name.as_str()).send().await;
        // A versioning document in another format will be the same on a retry, so it is accepted. A page of a proxy or
        // an error document is not.
        let dialect = answer.as_ref().err().and_then(SdkError::raw_response).is_some_and(|answer| {
            let root = answer.body().bytes().and_then(answers::root);
            answer.status().is_success() && root.is_some_and(|root| root.contains("Versioning"))
        });
        match answer.map_err(|error| self.refused("get the versioning of", &error)) {
            Ok(answer) => {
                use BucketVersioningStatus::{Enabled, Suspended};
                Ok(Some(matches!(answer.status(), Some(Enabled | Suspended))))
            }
            Err(fault) if [codes::ACCESS_DENIED, codes::REQUEST_REFUSED].contains(&fault.code()) => Ok(None),
            Err(fault) if fault.message().contains("NotImplemented") => Ok(None),
            Err(fault) => {
                let (class, code) =
                    if dialect { (FaultClass::Fatal, codes::ANSWER_INVALID) } else { (fault.class(), fault.code()) };
                Err(Fault::new(
                    class,
                    code,
                    format!("{}; to avoid this request, set versions: on or off", fault.message()),
                ))
            }
        }
    }

    /// Returns the object under a key as the server lists it.
    pub(super) async fn current(&self, key: &str) -> Result<Option<Version>, Fault> {
        let request = self.client.list_objects_v2().bucket(self.name.as_str()).prefix(key).max_keys(1);
        let answer =
            request.encoding_type(EncodingType::Url).send().await.map_err(|error| self.refused("list", &error))?;
        let page = self.page(&answer)?;
        // Among the keys with this prefix, the key itself is the first.
        Ok(page.versions.into_iter().next().filter(|(found, _)| found == key).map(|(_, version)| version))
    }

    /// Returns the horizon of a sweep that begins now: the server's clock and the multipart uploads in progress.
    pub(super) async fn horizon(&self) -> Result<Horizon, Fault> {
        let clock = Clock::default();
        let answer = self
            .client
            .list_multipart_uploads()
            .bucket(self.name.as_str())
            .set_prefix(self.prefix())
            .encoding_type(EncodingType::Url)
            .customize()
            .interceptor(clock.clone())
            .send()
            .await;
        let answer = match answer.map_err(|error| self.refused("list the uploads to", &error)) {
            Ok(answer) => Some(answer),
            Err(fault) if fault.class() == FaultClass::Transient && !fault.message().contains("NotImplemented") => {
                return Err(fault);
            }
            // Permission to list objects is enough to read a bucket.
            Err(fault) if fault.code() != codes::BUCKET_MISSING && fault.code() != codes::CREDENTIALS_REFUSED => None,
            Err(fault) => return Err(fault),
        };
        let mut uploads = Vec::new();
        if let Some(answer) = &answer {
            let keys = Keys { encoded: answer.encoding_type().is_some() };
            for upload in answer.uploads() {
                let key = keys.decode(upload.key().ok_or_else(|| self.nameless())?)?;
                uploads.push(Upload::new(&key, ServerTime::of(upload.initiated()).seconds));
            }
        }
        // The youngest are the most likely to be completed.
        uploads.sort_by_key(|upload| std::cmp::Reverse(upload.begun));
        uploads.truncate(MOST_UPLOADS);
        Ok(Horizon { time: clock.now(), uploads })
    }

    /// Returns a page of the objects.
    pub(super) async fn objects(&self, from: &PageStart) -> Result<Page, Fault> {
        let mut request = self
            .client
            .list_objects_v2()
            .bucket(self.name.as_str())
            .set_prefix(self.prefix())
            .encoding_type(EncodingType::Url);
        match from {
            PageStart::Start | PageStart::AfterVersion(..) | PageStart::Only(_) => {}
            PageStart::After(key) => request = request.start_after(key),
            PageStart::Token(token) => request = request.continuation_token(token),
        }
        let clock = Clock::default();
        let answer = request.customize().interceptor(clock.clone()).send().await;
        let answer = answer.map_err(|error| self.refused("list", &error))?;
        let mut page = self.page(&answer)?;
        page.now = clock.now();
        if self.goes_on(answer.is_truncated())? {
            page.next = Some(match (page.versions.last(), answer.next_continuation_token()) {
                (Some((key, _)), _) => PageStart::After(key.clone()),
                (None, Some(token)) => PageStart::Token(token.to_owned()),
                (None, None) => return Err(self.cut_short()),
            });
        }
        Ok(page)
    }

    /// Converts the objects of a page.
    fn page(&self, answer: &ListObjectsV2Output) -> Result<Page, Fault> {
        let keys = Keys { encoded: answer.encoding_type().is_some() };
        let mut page = Page::default();
        for object in answer.contents() {
            let size = object.size().and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
            let etag = object.e_tag().map(str::to_owned);
            let version = Version::new(ServerTime::of(object.last_modified()), size, etag, None, false);
            page.versions.push((keys.decode(object.key().ok_or_else(|| self.nameless())?)?, version));
        }
        Ok(page)
    }

    /// Returns a page of the versions.
    pub(super) async fn versions(&self, from: &PageStart) -> Result<Page, Fault> {
        let mut request = self
            .client
            .list_object_versions()
            .bucket(self.name.as_str())
            .set_prefix(self.prefix())
            .encoding_type(EncodingType::Url);
        match from {
            PageStart::Start | PageStart::Token(_) => {}
            PageStart::After(key) => request = request.key_marker(key),
            PageStart::AfterVersion(key, id) => request = request.key_marker(key).version_id_marker(id),
            PageStart::Only(key) => request = request.prefix(key),
        }
        let clock = Clock::default();
        let answer = request.customize().interceptor(clock.clone()).send().await;
        let answer = answer.map_err(|error| self.refused("list the versions in", &error))?;
        let keys = Keys { encoded: answer.encoding_type().is_some() };
        let mut versions = Vec::new();
        for version in answer.versions() {
            let size = version.size().and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
            let (etag, id) = (version.e_tag().map(str::to_owned), version.version_id().map(str::to_owned));
            let key = keys.decode(version.key().ok_or_else(|| self.nameless())?)?;
            let latest = version.is_latest() == Some(true);
            versions.push((key, latest, Version::new(ServerTime::of(version.last_modified()), size, etag, id, false)));
        }
        for marker in answer.delete_markers() {
            let id = marker.version_id().map(str::to_owned);
            let key = keys.decode(marker.key().ok_or_else(|| self.nameless())?)?;
            let latest = marker.is_latest() == Some(true);
            versions.push((key, latest, Version::new(ServerTime::of(marker.last_modified()), 0, None, id, true)));
        }
        // The answer lists versions and delete markers separately, and the sort is stable. Of several with the same
        // time, the latest is marked; among the others, a delete marker is probably newer.
        versions.sort_by(|(a, a_latest, a_version), (b, b_latest, b_version)| {
            let place = |latest: bool, version: &Version| std::cmp::Reverse((latest, version.modified, version.marker));
            a.cmp(b).then_with(|| place(*a_latest, a_version).cmp(&place(*b_latest, b_version)))
        });
        let mut page = Page { now: clock.now(), ..Page::default() };
        if self.goes_on(answer.is_truncated())? {
            let marker = answer.next_key_marker().map(|key| keys.decode(key)).transpose()?;
            page.next = Some(match (marker, answer.next_version_id_marker()) {
                (Some(key), Some(id)) => PageStart::AfterVersion(key, id.to_owned()),
                (Some(key), None) => PageStart::After(key),
                (None, _) => return Err(self.cut_short()),
            });
        }
        if let PageStart::Only(only) = from {
            // The regular listing continues with the keys after this one.
            let others = versions.iter().any(|(key, ..)| key != only);
            versions.retain(|(key, ..)| key == only);
            if others || page.next.is_none() {
                page.next = Some(PageStart::After(only.clone()));
            }
        }
        page.versions = versions.into_iter().map(|(key, _, version)| (key, version)).collect();
        Ok(page)
    }

    /// Returns whether the listing continues. Fails if the answer does not say.
    fn goes_on(&self, truncated: Option<bool>) -> Result<bool, Fault> {
        truncated.ok_or_else(|| self.cut_short())
    }

    /// Returns the fault for an object without a key. It cannot be read, and its position would be before all others.
    fn nameless(&self) -> Fault {
        let text = format!("cannot list bucket {}: the server lists an object without its key", self.name);
        Fault::transient(codes::S3_UNAVAILABLE, text)
    }

    fn cut_short(&self) -> Fault {
        let text = format!("cannot list bucket {}: the server does not report how the listing continues", self.name);
        Fault::transient(codes::S3_UNAVAILABLE, text)
    }
}

/// Returns the time of this machine, for servers that do not send theirs.
fn local_time() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}

/// Records the `Date` of an answer.
#[derive(Clone, Debug, Default)]
struct Clock(Arc<Mutex<Option<i64>>>);

impl Clock {
    /// Returns the seconds since the epoch.
    fn now(&self) -> i64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(local_time)
    }
}

impl Intercept for Clock {
    fn name(&self) -> &'static str {
        "server clock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date.map(|date| date.secs());
        Ok(())
    }
}
