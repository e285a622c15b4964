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

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Operations, RecordShape, Shape};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::source::{Acker, Reader, Source, SourceKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::Position;
use anabranch_record::extent::Extent;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;

use crate::connection::{self, Connection};
use crate::fingerprint::fingerprint;
use fetch::Fetching;
use listing::Bucket;
use position::SweepProgress;
use reader::{Objects, Pace};

/// Returns the `s3` source for the registry.
pub(crate) fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("s3", "Reads the objects of a bucket, then its changes.")
        .describe(include_str!("source/description.md"))
        .with_all(connection::parameters())
        .with(Parameter::new("prefix", ParameterKind::Text, "Prefix of the keys to read."))
        .with(
            Parameter::new("pollingPeriod", ParameterKind::Duration, "Pause between two listings of the bucket.")
                .default_value("1s"),
        )
        .with(
            Parameter::new(
                "settlingPeriod",
                ParameterKind::Duration,
                "Time between the last change of an object and its read, in whole seconds. Set more than 0 if the \
                 clocks of the store's servers differ, or if the store dates objects back to the start of slow \
                 uploads.",
            )
            .default_value("0s"),
        )
        .with(
            Parameter::new(
                "versions",
                ParameterKind::Text,
                "Whether to read every version of an object: auto (if the bucket keeps versions), on or off.",
            )
            .default_value("auto")
            .one_of(&["auto", "on", "off"]),
        )
        .with(
            Parameter::new(
                "maxObjectBytes",
                ParameterKind::Bytes,
                "Maximum size of an object. A larger one stops the pipeline, because an object is one record in \
                 memory.",
            )
            .default_value("64MiB")
            .validate(Validation::GreaterThan(0.0)),
        )
        .with(
            Parameter::new(
                "fetch.concurrency",
                ParameterKind::Int,
                "Maximum number of objects fetched at the same time.",
            )
            .default_value("32")
            .validate(Validation::GreaterThan(0.0))
            .validate(Validation::LessThan(1025.0)),
        )
        .with(
            Parameter::new(
                "fetch.bytes",
                ParameterKind::Bytes,
                "Maximum size of all objects that are fetched and not delivered yet; a larger object is fetched \
                 alone.",
            )
            .default_value("64MiB")
            .validate(Validation::GreaterThan(0.0)),
        )
        .with_all(shared::source());
    kind::source(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
    let size = |name| arguments.bytes(name).and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    Ok(Arc::new(Configured {
        connection: Connection::from_arguments(arguments)?,
        prefix: arguments.text("prefix").cloned().unwrap_or_default(),
        versions: match arguments.text("versions").map(|text| text.trim()) {
            Some("on") => Some(true),
            Some("off") => Some(false),
            _ => None,
        },
        limit: arguments.bytes("maxObjectBytes").unwrap_or(u64::MAX),
        pace: Pace {
            polling: arguments.duration("pollingPeriod").unwrap_or(Duration::from_secs(1)),
            settling: arguments.duration("settlingPeriod").unwrap_or_default(),
            fetches: arguments.int("fetch.concurrency").and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
            bytes: size("fetch.bytes"),
        },
    }))
}

struct Configured {
    connection: Connection,
    prefix: Str,
    /// True if the bucket keeps versions; `None` to query the bucket.
    versions: Option<bool>,
    limit: u64,
    pace: Pace,
}

impl Configured {
    /// Returns the hash of bucket and prefix. Positions with another hash belong to another source.
    fn sum(&self) -> u32 {
        fingerprint(&[self.connection.bucket().as_bytes(), self.prefix.as_bytes()]) as u32
    }
}

#[async_trait]
impl Source for Configured {
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

    async fn open(
        &self,
        resume: &BTreeMap<Partition, Mark>,
        host: &Host,
    ) -> Result<(Box<dyn Reader>, Box<dyn Acker>), Fault> {
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
        Ok((Box::new(reader), Box::new(Forgetful)))
    }
}

/// Acknowledges nothing: the objects stay in the bucket.
struct Forgetful;

#[async_trait]
impl Acker for Forgetful {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}
