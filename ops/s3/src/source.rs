//! The `s3` source: reads the objects of a bucket and their changes.

mod fetch;
mod known;
mod listing;
mod position;
mod reader;
mod sweep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Operations, RecordShape, Shape};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{ByteSize, Choice, Parameters, shared};
use anabranch_plugin::source::{Acker, OpenedSource, Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_record::Position;
use anabranch_record::extent::Extent;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;

use crate::connection::{Connection, Options};
use crate::fingerprint::fingerprint;
use fetch::Fetching;
use listing::Bucket;
use position::SweepProgress;
use reader::{Objects, Pace};

/// Returns the `s3` source for the registry.
pub(crate) fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("s3", "Reads the objects of a bucket, then its changes.")
        .describe(include_str!("source/description.md"))
        .with_all(shared::source());
    kind::source(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    #[parameter(flatten)]
    connection: Options,
    /// Prefix of the keys to read.
    prefix: Option<Str>,
    /// Pause between two listings of the bucket.
    #[parameter(default = "1s")]
    polling_period: Duration,
    /// Time between the last change of an object and its read, in whole seconds. Set more than 0 if the clocks of the
    /// store's servers differ, or if the store dates objects back to the start of slow uploads.
    #[parameter(default = "0s")]
    settling_period: Duration,
    /// Whether to read every version of an object: auto (if the bucket keeps versions), on or off.
    #[parameter(default = "auto")]
    versions: Versions,
    /// Maximum size of an object. A larger one stops the pipeline, because an object is one record in memory.
    #[parameter(default = "64MiB", greater_than = 0)]
    max_object_bytes: ByteSize,
    #[parameter(nested)]
    fetch: Fetch,
}

#[derive(Parameters)]
struct Fetch {
    /// Maximum number of objects fetched at the same time.
    #[parameter(default = 32, greater_than = 0, less_than = 1025)]
    concurrency: usize,
    /// Maximum size of all objects that are fetched and not delivered yet; a larger object is fetched alone.
    #[parameter(default = "64MiB", greater_than = 0)]
    bytes: ByteSize,
}

#[derive(Clone, Copy)]
enum Versions {
    Auto,
    On,
    Off,
}

impl Choice for Versions {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("auto", Versions::Auto), ("on", Versions::On), ("off", Versions::Off)];
}

fn configure(settings: Settings) -> Result<Arc<dyn Source>, Diagnostics> {
    Ok(Arc::new(S3Source {
        connection: Connection::new(&settings.connection)?,
        prefix: settings.prefix.unwrap_or_default(),
        versions: match settings.versions {
            Versions::Auto => None,
            Versions::On => Some(true),
            Versions::Off => Some(false),
        },
        limit: settings.max_object_bytes.0,
        pace: Pace {
            polling: settings.polling_period,
            settling: settings.settling_period,
            fetches: settings.fetch.concurrency,
            bytes: settings.fetch.bytes.to_usize(),
        },
    }))
}

struct S3Source {
    connection: Connection,
    prefix: Str,
    /// True if the bucket keeps versions; `None` to query the bucket.
    versions: Option<bool>,
    limit: u64,
    pace: Pace,
}

impl S3Source {
    /// Returns the hash of bucket and prefix. Positions with another hash belong to another source.
    fn sum(&self) -> u32 {
        fingerprint(&[self.connection.bucket().as_bytes(), self.prefix.as_bytes()]) as u32
    }
}

#[async_trait]
impl Source for S3Source {
    fn catches_up(&self) -> bool {
        true
    }

    fn reads(&self) -> Vec<Extent> {
        let (space, name) = (self.connection.space(), self.prefix.clone());
        vec![Extent { what: "objects", space, name, whole: false, setting: "prefix" }]
    }

    fn shape(&self) -> RecordShape {
        RecordShape {
            operations: Operations::ALL,
            key: Shape { content: Some(Content::Name), ..Shape::RAW },
            before: Shape::ABSENT,
            after: Shape::RAW.join(&Shape::ABSENT),
            // User-defined metadata of objects may have any name.
            ..RecordShape::unknown()
        }
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(SweepProgress::decode(position, self.sum()).map(drop))
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let name = self.connection.bucket().clone();
        let place =
            resume.get(&Partition::ONLY).map(|mark| SweepProgress::decode(&mark.position, self.sum())).transpose()?;
        let server = Str::from(self.connection.server());
        let bucket = Bucket { client: self.connection.open().await?, server, name, prefix: self.prefix.clone() };
        let versioned = match self.versions {
            Some(versioned) => versioned,
            None => bucket.asked_for_versions(host).await?.unwrap_or_else(|| {
                tracing::warn!(
                    pipeline = %host.pipeline, connector = %host.node, bucket = %bucket.name,
                    "cannot determine whether the bucket keeps versions: reading only the current versions"
                );
                false
            }),
        };
        let fetching = Fetching { bucket, host: host.clone(), limit: self.limit };
        let reader = Objects::new(fetching, self.pace, versioned, self.sum(), place);
        Ok(OpenedSource::new(Box::new(reader), Box::new(NoAcknowledgement)))
    }
}

/// Acknowledges nothing: the objects stay in the bucket.
struct NoAcknowledgement;

#[async_trait]
impl Acker for NoAcknowledgement {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}
