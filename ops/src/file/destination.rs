//! The `file` destination: one line per record, appended; or Parquet files.

mod open_files;
mod output_path;
#[cfg(feature = "parquet")]
mod tables;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::destination::{
    Delivered, Destination, DestinationKind, Retry, Verdicts, Write, WritePolicy, Writer,
};
#[cfg(feature = "parquet")]
use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::format::parquet::ParquetSettings;
use anabranch_plugin::format::{FormatSettings, RecordFormat};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
#[cfg(feature = "parquet")]
use anabranch_plugin::parameters::ByteSize;
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;

use open_files::{FileError, OpenFiles, WriteOptions};
use output_path::OutputPath;

use super::compression::Codec;
use super::escapes::unescaped;
use super::file_rotation::FileRotation;
use super::follower::misled;
use crate::codes;
use crate::offload::Offload;

/// Returns the `file` destination for the registry.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("file", "Appends records to files, one per line.")
        .describe(include_str!("destination/description.md"))
        .with_all(shared::destination());
    kind::destination(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// The file. With {{ }}, a template that gives each record its file below a fixed directory, such as
    /// out/{{ index .Metadata "recfmt.collection" }}.ndjson; missing directories are created. - is standard output.
    #[parameter(takes_templates)]
    path: Argument<PathBuf>,
    /// Format of the files: lines (the records and the delimiter, appended to the file) or parquet (each write is a
    /// complete Parquet file, whose name is path with a hash of the records before the ending).
    #[parameter(default = "lines")]
    format: Argument<OutputFormat>,
    /// When a record counts as delivered: process (it is written to the file and survives a crash of the service) or
    /// disk (it is also synced and survives a power failure).
    #[parameter(default = "process")]
    durability: Argument<Durability>,
    /// Compression of the file: none, gzip or zstd. Each write appends a complete member.
    #[parameter(default = "none")]
    compression: Argument<OutputCompression>,
    /// The bytes after each record. \n, \r, \t, \0, \\ and \xHH stand for bytes; blank = none.
    #[parameter(default = "\\n", may_be_blank)]
    delimiter: Argument<Str>,
    /// The line that begins each new file, such as the names of columns; the delimiter follows it.
    #[parameter(example = "id,name,price")]
    header: Option<Argument<Str>>,
    #[parameter(nested)]
    rotate: FileRotation,
    /// Maximum number of files that are open at the same time, if path is a template.
    #[parameter(default = 128, greater_than = 0)]
    max_open_files: usize,
    #[parameter(nested)]
    parquet: ParquetSettings,
    #[parameter(flatten)]
    records: FormatSettings,
}

#[derive(Clone, Copy, PartialEq)]
enum OutputFormat {
    Lines,
    Parquet,
}

impl Choice for OutputFormat {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("lines", OutputFormat::Lines), ("parquet", OutputFormat::Parquet)];
}

#[derive(Clone, Copy, PartialEq)]
enum Durability {
    Process,
    Disk,
}

impl Choice for Durability {
    const CHOICES: &'static [(&'static str, Self)] = &[("process", Durability::Process), ("disk", Durability::Disk)];
}

/// Compression of the files that are written.
#[derive(Clone, Copy, PartialEq)]
struct OutputCompression(Option<Codec>);

impl Choice for OutputCompression {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", OutputCompression(None)),
        ("gzip", OutputCompression(Some(Codec::Gzip))),
        ("zstd", OutputCompression(Some(Codec::Zstd))),
    ];
}

fn configure(settings: Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    if *settings.format == OutputFormat::Parquet {
        return parquet(&settings);
    }
    if let Some(finding) = settings.parquet.unused() {
        return Err(finding.into());
    }
    let path = OutputPath::new(&settings.path)?;
    let delimiter = match settings.delimiter.is_empty() {
        true => Vec::new(),
        false => unescaped(&settings.delimiter).map_err(|why| settings.delimiter.invalid(why))?,
    };
    let header = settings.header.as_deref().map_or_else(Vec::new, |header| [header.as_bytes(), &delimiter].concat());
    Ok(Arc::new(ConfiguredFile {
        options: WriteOptions {
            sync: *settings.durability == Durability::Disk,
            codec: settings.compression.0,
            rotation: settings.rotate,
            delimiter,
            header,
            most: settings.max_open_files,
            below: path.directory().map(PathBuf::from),
        },
        path,
        format: Arc::new(RecordFormat::new(&settings.records)?),
        opened: AtomicBool::new(false),
    }))
}

/// Returns the destination that writes Parquet files.
#[cfg(feature = "parquet")]
fn parquet(settings: &Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    let mut findings = Diagnostics::new();
    let mut refuse = |finding: Diagnostic, hint: &str| findings.push(finding.with_hint(hint));
    if settings.compression.0.is_some() {
        let finding = settings.compression.invalid("a Parquet file is not compressed as a whole");
        refuse(finding, "set parquet.compression");
    }
    if settings.delimiter.is_given() {
        refuse(settings.delimiter.invalid("the records of a Parquet file have no delimiter"), "remove it");
    }
    if let Some(header) = &settings.header {
        refuse(header.invalid("a Parquet file names its columns itself"), "remove it");
    }
    if *settings.durability == Durability::Process && settings.durability.is_given() {
        refuse(settings.durability.invalid("a Parquet file is always synced before its records count"), "remove it");
    }
    let path = match OutputPath::new(&settings.path) {
        Ok(OutputPath::One(path)) if path.starts_with("/dev") => {
            refuse(settings.path.invalid("a Parquet file needs a directory, not a device"), "name a file");
            None
        }
        Ok(path) => Some(path),
        Err(found) => {
            findings.0.extend(found);
            None
        }
    };
    let layout = settings.parquet.layout(&settings.records).map_err(|found| findings.0.extend(found)).ok();
    let (Some(path), Some(layout), false) = (path, layout, findings.has_errors()) else { return Err(findings) };
    let limits =
        tables::FileLimits { bytes: settings.rotate.bytes.map(ByteSize::to_usize), interval: settings.rotate.interval };
    Ok(Arc::new(tables::ConfiguredTables::new(path, layout, limits)))
}

#[cfg(not(feature = "parquet"))]
fn parquet(settings: &Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    let (what, hint) = super::table::LEFT_OUT;
    Err(settings.format.invalid(what).with_hint(hint).into())
}

struct ConfiguredFile {
    path: OutputPath,
    options: WriteOptions,
    format: Arc<RecordFormat>,
    /// True if the file was opened before, in this run of the pipeline or an earlier one of the process.
    opened: AtomicBool,
}

#[async_trait]
impl Destination for ConfiguredFile {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let (path, options) = (self.path.clone(), self.options.clone());
        let files = tokio::task::spawn_blocking(move || {
            let mut files = OpenFiles::new(options);
            match &path {
                OutputPath::One(path) => files.open(path)?,
                // The files are opened when they have records.
                OutputPath::ByRecord(paths) => {
                    let directory = Path::new(paths.directory.as_str());
                    fs::create_dir_all(directory).map_err(|error| (directory.to_owned(), error))?;
                }
            }
            Ok(files)
        });
        let files = files.await.map_err(|e| Fault::fatal(codes::FILE_UNWRITABLE, e))?;
        let files = files.map_err(|(path, error)| match self.opened.load(Ordering::Relaxed) {
            true => taken_away(unwritable(&path, &error)),
            false => unwritable(&path, &error),
        })?;
        self.opened.store(true, Ordering::Relaxed);
        let mut writer = LineDestination {
            host: host.clone(),
            path: self.path.clone(),
            sync: self.options.sync,
            format: self.format.clone(),
            output: Offload::Here(files),
        };
        writer.warn();
        Ok(Box::new(writer))
    }

    fn flow(&self, flow: &mut Flow) {
        self.format.flow(flow, true);
        match &self.path {
            OutputPath::One(path) => {
                if let Some((message, hint)) = hardly_meant(path, self.options.codec) {
                    flow.warn(codes::SETTINGS_NOT_A_PATH, "path", message, None, Some(hint.to_owned()));
                }
            }
            OutputPath::ByRecord(paths) => flow.template("path", &paths.template),
        }
    }

    fn file(&self) -> Option<&str> {
        self.path.file()
    }

    fn directory(&self) -> Option<&str> {
        self.path.directory()
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        let path = match &self.path {
            OutputPath::One(path) => path.clone(),
            // As for a file in it.
            OutputPath::ByRecord(paths) => Path::new(paths.directory.as_str()).join("records"),
        };
        let examined = tokio::task::spawn_blocking(move || accessible(&path).map_err(|e| unwritable(&path, &e)));
        examined.await.map_err(|e| Fault::fatal(codes::FILE_UNWRITABLE, e))?.map(|()| Vec::new())
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        let mut line = Vec::new();
        if let OutputPath::ByRecord(paths) = &self.path
            && let Err(fault) = paths.render(record, &mut String::new())
        {
            return Some(Err(fault));
        }
        Some(self.format.encoder().encode(record, &mut line).map(|()| line))
    }

    fn policy(&self) -> WritePolicy {
        match self.options.codec {
            None => WritePolicy { rows: 4096, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent },
            // A member compresses better if it has more records.
            Some(_) => WritePolicy {
                rows: 16_384,
                bytes: 4 << 20,
                linger: Duration::from_millis(500),
                retry: Retry::Idempotent,
            },
        }
    }
}

/// Checks that a file can be written, or created in its directory. Opens nothing.
fn accessible(path: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if !metadata.is_file() => Ok(access(path, Access::WRITE_OK)?),
        // The file that records the bytes of each write is beside it.
        found => {
            if found.is_ok() {
                access(path, Access::WRITE_OK)?;
            }
            let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
        }
    }
}

/// Returns why a file name is probably a mistake, and a remedy.
fn hardly_meant(path: &Path, codec: Option<Codec>) -> Option<(String, &'static str)> {
    const PACKED: [&str; 6] = ["gz", "zst", "bz2", "xz", "lz4", "zip"];
    let text = path.to_str()?;
    if ["stdout", "stderr"].contains(&text.to_ascii_lowercase().as_str()) {
        let message =
            "the records are written to a file of this name in the working directory of the service".to_owned();
        return Some((message, "write - for standard output; for a file, put ./ before its name"));
    }
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let packed = PACKED.iter().find(|packed| **packed == extension).filter(|_| codec.is_none())?;
    let message =
        format!("the file is not compressed, although its name ends in .{packed}: the destination writes plain lines");
    Some((message, "set compression: gzip or zstd, or remove the ending"))
}

struct LineDestination {
    host: Host,
    path: OutputPath,
    sync: bool,
    format: Arc<RecordFormat>,
    output: Offload<OpenFiles, Result<(), FileError>>,
}

#[async_trait]
impl Writer for LineDestination {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        // Wait for a call that was dropped. The executor sends its records again, whatever the outcome.
        let _ = self.output.settle().await;
        let Some(output) = self.output.here() else { return Err(broken()) };
        output.begin();
        let (mut failures, mut encoder) = (Vec::new(), self.format.encoder());
        match &self.path {
            OutputPath::One(path) => {
                let frame = output.frame(path);
                if let [alone] = rows {
                    frame.reserve(alone.weight());
                }
                for (row, record) in rows.iter().enumerate() {
                    if let Err(fault) = frame.line(|bytes| encoder.encode(record, bytes)) {
                        failures.push((row, fault));
                    }
                }
            }
            OutputPath::ByRecord(paths) => {
                let mut path = String::new();
                for (row, record) in rows.iter().enumerate() {
                    path.clear();
                    let line = paths
                        .render(record, &mut path)
                        .and_then(|()| output.frame(Path::new(&path)).line(|bytes| encoder.encode(record, bytes)));
                    if let Err(fault) = line {
                        failures.push((row, fault));
                    }
                }
            }
        }
        if !output.is_empty() {
            let written = self.output.run(OpenFiles::append).await;
            self.warn();
            written.map_err(|_| broken())?.map_err(|(path, error)| self.refusal(&path, &error))?;
        }
        let delivered = if self.sync { Delivered::Accepted } else { Delivered::Durable };
        if failures.is_empty() {
            return Ok(Verdicts::All(delivered));
        }
        let mut verdicts: Vec<Result<Delivered, Fault>> = rows.iter().map(|_| Ok(delivered)).collect();
        for (row, fault) in failures {
            verdicts[row] = Err(fault);
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let _ = self.output.settle().await;
        if self.sync {
            let synced = self.output.run(OpenFiles::sync).await.map_err(|_| broken())?;
            synced.map_err(|(path, e)| taken_away(unwritable(&path, &e)))?;
        }
        Ok(())
    }
}

impl LineDestination {
    /// Returns the fault of a file that cannot be written. A path that is impossible is the fault of its record.
    fn refusal(&self, path: &Path, error: &io::Error) -> Fault {
        use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory};
        let is_impossible = matches!(error.kind(), InvalidFilename | IsADirectory | NotADirectory);
        match &self.path {
            OutputPath::ByRecord(_) if is_impossible => {
                Fault::record(codes::PATH_REFUSED, format!("the path {} cannot be written: {error}", path.display()))
            }
            OutputPath::ByRecord(_) | OutputPath::One(_) => taken_away(unwritable(path, error)),
        }
    }

    fn warn(&mut self) {
        for warning in self.output.here().map(OpenFiles::warnings).unwrap_or_default() {
            tracing::warn!(pipeline = %self.host.pipeline, connector = %self.host.node, "{warning}");
        }
    }
}

fn broken() -> Fault {
    Fault::fatal(codes::FILE_UNWRITABLE, "the thread that writes the file panicked")
}

/// Makes a fault transient. A file that was writable may become so again: after a moved directory, a revoked permission
/// or an unmounted file system. A pipe that lost its reader stays unwritable.
fn taken_away(fault: Fault) -> Fault {
    if fault.code() == codes::READER_GONE { fault } else { fault.with_class(FaultClass::Transient) }
}

fn unwritable(path: &Path, error: &io::Error) -> Fault {
    use io::ErrorKind::{
        BrokenPipe, FileTooLarge, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied, QuotaExceeded,
        ReadOnlyFilesystem, StorageFull,
    };
    let shown = path.display();
    if let Some(why) = misled(error) {
        return Fault::fatal(codes::FILE_UNWRITABLE, format!("cannot write {shown}: {why}"));
    }
    let text = format!("cannot write {shown}: {error}");
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => Fault::transient(codes::DISK_FULL, text),
        BrokenPipe => Fault::fatal(codes::READER_GONE, format!("no process reads {shown}: {error}")),
        NotFound => {
            let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Fault::fatal(
                codes::DIRECTORY_MISSING,
                format!("cannot create {shown}: the directory {} does not exist; create it first", directory.display()),
            )
        }
        InvalidInput | PermissionDenied | IsADirectory | NotADirectory | ReadOnlyFilesystem => {
            Fault::fatal(codes::FILE_UNWRITABLE, text)
        }
        _ => Fault::transient(codes::FILE_UNWRITABLE, text),
    }
}

#[cfg(test)]
mod tests;
