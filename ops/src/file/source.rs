//! The `file` source: reads the records of files and follows them.

mod in_flight;
mod input;
mod partition;
mod partitions;
mod reader;
mod settings;
mod several;
mod unreadable;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Fields, Keys, RecordShape, Shape};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::shared;
use anabranch_plugin::source::{OpenedSource, Source, SourceKind, Split, Start, Undelivered};
use anabranch_plugin::specification::Specification;
use anabranch_record::Position;
use anabranch_record::extent::Extent;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;

use in_flight::FileAcker;
use partition::{Begin, FileFormat};
use partitions::FilePartitions;
use reader::Lines;
use settings::Settings;
use several::SeveralFiles;
use unreadable::unreadable;

use super::compression::{Codec, Compression};
use super::content_position::{After, ContentResume};
use super::follower::{Follower, open_regular};
use super::framing::Framing;
use super::pattern::PathPattern;
use super::position::Resume;
use crate::codes;
use crate::unacknowledged::Unacknowledged;

/// Returns the `file` source for the registry.
pub fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("file", "Reads the records of files and follows them as they grow.")
        .describe(include_str!("source/description.md"))
        .with_all(shared::source());
    kind::source(specification, |settings: Settings| configure(&settings))
}

/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// The files that are read, and how.
enum Input {
    /// One plain file with lines, followed through rotations.
    Lines,
    /// The records of one or several files.
    Records(PathPattern, Arc<FileFormat>),
    /// Standard input.
    Standard(Arc<FileFormat>),
}

struct ConfiguredFile {
    path: Str,
    input: Input,
    /// The format of the file at the path, if it turns out to be compressed.
    format: Arc<FileFormat>,
    polling: Duration,
    begin: Begin,
    /// True if the file was opened before, in this run of the pipeline or an earlier one of the process.
    opened: AtomicBool,
}

fn configure(settings: &Settings) -> Result<Arc<dyn Source>, Diagnostics> {
    let path = settings.path.text().clone();
    let format = Arc::new(settings.format()?);
    let pattern = PathPattern::new(&path).map_err(|why| settings.path.invalid(why))?;
    let is_plain = match format.compression {
        Compression::None => true,
        Compression::Auto => Codec::of_name(&path).is_none(),
        Compression::Always(_) => false,
    };
    let input = match &pattern {
        _ if *path == *STANDARD_INPUT => Input::Standard(format.clone()),
        PathPattern::File(_) if is_plain && matches!(format.framing, Framing::Lines) => Input::Lines,
        PathPattern::File(_) | PathPattern::Directory(_) | PathPattern::Glob(_) => {
            Input::Records(pattern, format.clone())
        }
    };
    Ok(Arc::new(ConfiguredFile {
        path,
        input,
        format,
        polling: settings.polling_period,
        begin: settings.start_at,
        opened: AtomicBool::new(false),
    }))
}

impl ConfiguredFile {
    /// Returns `true` if the file is one with lines, but exists and is compressed.
    async fn is_compressed(&self) -> bool {
        if self.format.compression != Compression::Auto {
            return false;
        }
        let path = self.path.clone();
        let start = tokio::task::spawn_blocking(move || {
            let mut start = [0; 4];
            let file = open_regular(Path::new(path.as_str())).ok()?;
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut start, 0).ok()?;
            Codec::of_start(&start)
        });
        start.await.is_ok_and(|codec| codec.is_some())
    }

    async fn open_records(
        &self,
        pattern: &PathPattern,
        format: &Arc<FileFormat>,
        resume: &BTreeMap<Partition, Mark>,
        host: &Host,
    ) -> Result<OpenedSource, Fault> {
        let pace = (self.polling, self.begin);
        let files = FilePartitions::new(&self.path, pattern.clone(), format.clone(), pace, resume, host)?;
        let acker = FileAcker(files.in_flight());
        let mut reader = SeveralFiles::new(self.path.clone(), files);
        reader.begin().await.map_err(|fault| self.as_opened(fault))?;
        self.opened.store(true, Ordering::Relaxed);
        Ok(OpenedSource::new(Box::new(reader), Box::new(acker)))
    }

    async fn open_lines(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let stored = resume.get(&Partition::ONLY).map(|mark| Resume::decode(&mark.position)).transpose()?;
        let resume = stored.filter(|stored| !stored.is_of_no_file());
        let mut reader = Lines::new(&self.path, (self.format.clone(), self.polling), resume, host);
        if stored.is_none() && self.begin == Begin::End {
            reader.begin_at_end().await?;
        }
        // Report an unreadable file immediately; a missing file may be created later.
        let step = reader.look(0).await.map_err(|fault| self.as_opened(fault))?;
        self.opened.store(true, Ordering::Relaxed);
        reader.note(step);
        Ok(OpenedSource::new(Box::new(reader), Box::new(Unacknowledged)))
    }

    /// Makes a permission that was never granted final, like a rejected login.
    fn as_opened(&self, fault: Fault) -> Fault {
        let is_new = fault.is_of_login() && !self.opened.load(Ordering::Relaxed);
        if is_new { fault.with_class(FaultClass::Fatal) } else { fault }
    }
}

impl ConfiguredFile {
    fn is_standard_input(&self) -> bool {
        matches!(self.input, Input::Standard(_))
    }
}

#[async_trait]
impl Source for ConfiguredFile {
    fn catches_up(&self) -> bool {
        true
    }

    fn file(&self) -> Option<&str> {
        (!self.is_standard_input()).then_some(self.path.as_str())
    }

    /// The writer of standard input forgets the records that were read.
    fn undelivered(&self) -> Undelivered {
        if self.is_standard_input() { Undelivered::Lost(None) } else { Undelivered::ReadAgain }
    }

    fn reads_file(&self, path: &str) -> bool {
        match &self.input {
            Input::Records(pattern, _) => pattern.contains(Path::new(path)),
            Input::Lines | Input::Standard(_) => *self.path == *path,
        }
    }

    fn takes(&self) -> Option<Extent> {
        let space = Str::from_static(STANDARD_INPUT);
        let input = Extent { what: "standard input", name: space.clone(), space, whole: true, setting: "path" };
        self.is_standard_input().then_some(input)
    }

    fn locate(&self, partition: &Partition, position: &Position) -> Option<String> {
        // The partitions of a pattern are its files.
        let path = if partition.0.is_empty() { &self.path } else { &partition.0 };
        if let Ok(ContentResume { record, after, .. }) = ContentResume::decode(position) {
            let number = record + u64::from(after != After::Nothing);
            return Some(format!("{path}, record {number}"));
        }
        let Resume { line, tail, .. } = Resume::decode(position).ok()?;
        Some(format!("{path}:{}", line + u64::from(tail > 0)))
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(match &self.input {
            // The file may turn out to be compressed.
            Input::Lines => Resume::decode(position).map(drop).or_else(|fault| match self.format.compression {
                Compression::Auto => ContentResume::decode(position).map(drop),
                Compression::None | Compression::Always(_) => Err(fault),
            }),
            Input::Records(..) | Input::Standard(_) => ContentResume::decode(position).map(drop),
        })
    }

    fn is_partitioned(&self) -> bool {
        matches!(&self.input, Input::Records(pattern, _) if pattern.is_of_several())
    }

    fn split(&self) -> Split {
        if self.is_partitioned() { Split::Dynamic("files, by their paths") } else { Split::Whole }
    }

    /// Acknowledged records stay in the file, and in rotated files while these exist.
    fn rereads(&self) -> bool {
        !self.is_standard_input()
    }

    async fn still_has(&self, position: &Position) -> Result<bool, Fault> {
        if ContentResume::decode(position).is_ok() {
            return Ok(self.rereads());
        }
        let mut follower = Follower::new(PathBuf::from(self.path.as_str()), Some(Resume::decode(position)?));
        let finds = tokio::task::spawn_blocking(move || follower.finds());
        match finds.await {
            Ok(found) => found.map_err(|error| unreadable(&self.path, &error)),
            Err(error) => Err(Fault::transient(codes::FILE_UNREADABLE, error.to_string())),
        }
    }

    fn shape(&self) -> RecordShape {
        let mut keys = vec![key::FILE_PATH];
        if self.format.has_header {
            keys.push(key::FILE_HEADER);
        }
        let payload = match self.format.framing {
            Framing::Parquet => Shape::structured(Fields::any()),
            _ => Shape::RAW,
        };
        RecordShape { metadata: Keys::of(keys), ..RecordShape::create(Shape::PLAIN, payload) }
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        match &self.input {
            Input::Records(pattern, format) => self.open_records(pattern, format, resume, host).await,
            Input::Lines => {
                let was_compressed = resume.values().any(|mark| ContentResume::decode(&mark.position).is_ok());
                if was_compressed || resume.is_empty() && self.is_compressed().await {
                    let pattern = PathPattern::File(PathBuf::from(self.path.as_str()));
                    return self.open_records(&pattern, &self.format, resume, host).await;
                }
                self.open_lines(resume, host).await
            }
            Input::Standard(format) => {
                if !host.once {
                    let what =
                        "standard input ends with the process that writes it: read it with `anabranch run --once`";
                    return Err(Fault::fatal(codes::FILE_UNREADABLE, what));
                }
                let (reader, acker) = input::held::STANDARD.open(format)?;
                let opened = OpenedSource::new(Box::new(reader), Box::new(acker));
                // The input of an earlier run is gone.
                Ok(match resume.is_empty() {
                    true => opened,
                    false => opened.start(Partition::ONLY, Start::elsewhere()),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests;
