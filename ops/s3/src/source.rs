//! The `s3` source: reads the objects of a bucket and their changes.

mod fetch;
mod known;
mod limits;
mod listing;
mod partitions;
mod position;
mod prefixes;
mod reader;
mod sweep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Operations, RecordShape, Shape};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Argument, ByteSize, Choice, Parameters, shared};
use anabranch_plugin::source::{Acker, OpenedSource, Source, SourceKind, Split};
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
use limits::ReadLimits;
use listing::Bucket;
use partitions::PartitionsInTurn;
use position::SweepProgress;
use prefixes::{PrefixPartition, PrefixSetting};
use reader::{Objects, Pace};

/// Returns the `s3` source for the registry.
pub(crate) fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("s3", "Reads the objects of a bucket, then its changes.")
        .describe(include_str!("source/description.md"))
        .with_all(shared::source());
    kind::source(specification, |settings: Settings| configure(&settings))
}

#[derive(Parameters)]
struct Settings {
    #[parameter(flatten)]
    connection: Options,
    /// Prefix of the keys to read.
    prefix: Argument<Option<Str>>,
    /// Prefixes of the keys to read, instead of prefix, such as `events/0/, events/1/`: at most 256, of which none begins
    /// with another one. Each is a partition with its own position and its own listings. The nodes of a cluster can share
    /// them.
    prefixes: Argument<Vec<Str>>,
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
    /// Maximum number of objects fetched at the same time, of all prefixes together.
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

fn configure(settings: &Settings) -> Result<Arc<dyn Source>, Diagnostics> {
    let (setting, partitions) = prefixes::prefixes(&settings.prefix, &settings.prefixes)?;
    Ok(Arc::new(S3Source {
        connection: Connection::new(&settings.connection)?,
        setting,
        partitions,
        versions: match settings.versions {
            Versions::Auto => None,
            Versions::On => Some(true),
            Versions::Off => Some(false),
        },
        limit: settings.max_object_bytes.0,
        pace: Pace { polling: settings.polling_period, settling: settings.settling_period },
        fetches: settings.fetch.concurrency,
        bytes: settings.fetch.bytes.to_usize(),
    }))
}

struct S3Source {
    connection: Connection,
    setting: PrefixSetting,
    /// At least one.
    partitions: Vec<PrefixPartition>,
    /// True if the bucket keeps versions; `None` to query the bucket.
    versions: Option<bool>,
    limit: u64,
    pace: Pace,
    /// Maximum number of concurrent fetches.
    fetches: usize,
    /// Maximum number of fetched bytes that are not delivered yet.
    bytes: usize,
}

impl S3Source {
    /// Returns the hash of bucket and prefix. Positions with another hash belong to another source.
    fn sum(&self, prefix: &str) -> u32 {
        fingerprint(&[self.connection.bucket().as_bytes(), prefix.as_bytes()]) as u32
    }

    /// Returns where a partition resumes, with the hash of its positions.
    fn place(&self, of: &PrefixPartition, mark: Option<&Mark>) -> Result<(u32, Option<SweepProgress>), Fault> {
        let sum = self.sum(&of.prefix);
        Ok((sum, mark.map(|mark| SweepProgress::decode(&mark.position, sum)).transpose()?))
    }

    /// Returns whether to read every version.
    async fn reads_versions(&self, bucket: &Bucket, host: &Host) -> Result<bool, Fault> {
        if let Some(versioned) = self.versions {
            return Ok(versioned);
        }
        Ok(bucket.asked_for_versions(host).await?.unwrap_or_else(|| {
            tracing::warn!(
                pipeline = %host.pipeline, connector = %host.node, bucket = %bucket.name,
                "cannot determine whether the bucket keeps versions: reading only the current versions"
            );
            false
        }))
    }

    /// Logs the positions that this run does not use. They stay stored.
    fn log_unused(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) {
        let (pipeline, connector) = (&host.pipeline, &host.node);
        let unused = resume.keys().filter(|partition| self.partitions.iter().all(|of| of.partition != **partition));
        for Partition(name) in unused {
            match self.setting {
                PrefixSetting::Several if !name.is_empty() => tracing::info!(
                    %pipeline, %connector, partition = %name,
                    "a position is not used, because its prefix is not in the list; it stays stored"
                ),
                _ => tracing::warn!(
                    %pipeline, %connector, partition = %name,
                    "a position is not used, because the source has another of the settings prefix and prefixes: each \
                     prefix without a position is read from the beginning"
                ),
            }
        }
    }
}

#[async_trait]
impl Source for S3Source {
    fn catches_up(&self) -> bool {
        true
    }

    fn reads(&self) -> Vec<Extent> {
        let (space, setting) = (self.connection.space(), self.setting.name());
        let extent = |of: &PrefixPartition| Extent {
            what: "objects",
            space: space.clone(),
            name: of.prefix.clone(),
            whole: false,
            setting,
        };
        self.partitions.iter().map(extent).collect()
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
        self.setting == PrefixSetting::Several
    }

    fn split(&self) -> Split {
        if self.partitions.len() > 1 { Split::Static("prefixes") } else { Split::Whole }
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        // The position does not tell its partition, and only one of them accepts it.
        let mut checks =
            self.partitions.iter().map(|of| SweepProgress::decode(position, self.sum(&of.prefix)).map(drop));
        let first = checks.next()?;
        Some(if checks.any(|check| check.is_ok()) { Ok(()) } else { first })
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        self.log_unused(resume, host);
        let ours = self.partitions.iter().filter(|of| host.slots.has(&of.partition));
        let places = ours.map(|of| Ok((of, self.place(of, resume.get(&of.partition))?)));
        let places = places.collect::<Result<Vec<_>, Fault>>()?;
        let (client, server) = (self.connection.open().await?, Str::from(self.connection.server()));
        let bucket = |prefix: &Str| Bucket {
            client: client.clone(),
            server: server.clone(),
            name: self.connection.bucket().clone(),
            prefix: prefix.clone(),
        };
        let versioned = match places.first() {
            Some((of, _)) => self.reads_versions(&bucket(&of.prefix), host).await?,
            None => false,
        };
        let limits = ReadLimits::new(places.len(), self.fetches, self.bytes);
        let readers = places.into_iter().map(|(of, place)| {
            let fetching = Fetching { bucket: bucket(&of.prefix), host: host.clone(), limit: self.limit };
            Objects::new(fetching, of.partition.clone(), (self.pace, limits.clone()), versioned, place)
        });
        Ok(OpenedSource::new(Box::new(PartitionsInTurn::new(readers)), Box::new(NoAcknowledgement)))
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
