//! The `file` destination: one line per record, appended.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::destination::{
    Delivered, Destination, DestinationKind, Retry, Verdicts, Write, WritePolicy, Writer,
};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::format::{FormatSettings, RecordFormat};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};

use super::appender::{Appender, Frame};
use super::follower::misled;
use crate::codes;
use crate::offload::Offload;

/// Returns the `file` destination for the registry.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("file", "Appends records to a file, one per line.")
        .describe(
            "Appends each record and a line feed to a file. The file is created if it is missing; its directory must \
             exist. A failed write is undone. If the service crashes, the unfinished line is cut when the file is \
             opened again. For that, the file `.<name>.anabranch` beside it, which exists while the pipeline runs, \
             records the bytes of each write. Data of other writers is never cut; if it does not end with a line \
             feed, one is added. After a power failure, an unfinished line may remain, on a separate line. If the \
             file is moved away, a new one is created. Pipes and devices such as /dev/stdout are written directly; \
             with records on standard output, `anabranch run` logs to standard error. If the directory or the write \
             permission is removed while the pipeline runs, the destination retries with back-off until it is \
             restored.",
        )
        .with_all(shared::destination());
    kind::destination(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// The file.
    path: PathBuf,
    /// When a record counts as delivered: process (it is written to the file and survives a crash of the service) or
    /// disk (it is also synced and survives a power failure).
    #[parameter(default = "process")]
    durability: Durability,
    #[parameter(flatten)]
    format: FormatSettings,
}

#[derive(Clone, Copy, PartialEq)]
enum Durability {
    Process,
    Disk,
}

impl Choice for Durability {
    const CHOICES: &'static [(&'static str, Self)] = &[("process", Durability::Process), ("disk", Durability::Disk)];
}

fn configure(Settings { path, durability, format }: Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    Ok(Arc::new(ConfiguredFile {
        path,
        sync: durability == Durability::Disk,
        format: Arc::new(RecordFormat::new(&format)?),
        opened: AtomicBool::new(false),
    }))
}

struct ConfiguredFile {
    path: PathBuf,
    sync: bool,
    format: Arc<RecordFormat>,
    /// True if the file was opened before, in this run of the pipeline or an earlier one of the process.
    opened: AtomicBool,
}

#[async_trait]
impl Destination for ConfiguredFile {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let (path, sync) = (self.path.clone(), self.sync);
        let appender = tokio::task::spawn_blocking(move || Appender::open(&path, sync))
            .await
            .map_err(|e| Fault::fatal(codes::FILE_UNWRITABLE, e))?
            .map_err(|e| match self.opened.load(Ordering::Relaxed) {
                true => taken_away(unwritable(&self.path, &e)),
                false => unwritable(&self.path, &e),
            })?;
        self.opened.store(true, Ordering::Relaxed);
        let mut writer = LineDestination {
            host: host.clone(),
            path: self.path.clone(),
            sync: self.sync,
            format: self.format.clone(),
            output: Offload::Here(Output { appender, frame: Frame::new() }),
        };
        writer.warn();
        Ok(Box::new(writer))
    }

    fn flow(&self, flow: &mut Flow) {
        self.format.flow(flow, true);
        if let Some((message, hint)) = hardly_meant(&self.path) {
            flow.warn(codes::SETTINGS_NOT_A_PATH, "path", message, None, Some(hint.to_owned()));
        }
    }

    fn file(&self) -> Option<&str> {
        self.path.to_str()
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        let path = self.path.clone();
        let examined = tokio::task::spawn_blocking(move || accessible(&path).map_err(|e| unwritable(&path, &e)));
        examined.await.map_err(|e| Fault::fatal(codes::FILE_UNWRITABLE, e))?.map(|()| Vec::new())
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        let mut line = Vec::new();
        Some(self.format.encoder().encode(record, &mut line).map(|()| line))
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 4096, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
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
fn hardly_meant(path: &Path) -> Option<(String, &'static str)> {
    const PACKED: [&str; 6] = ["gz", "zst", "bz2", "xz", "lz4", "zip"];
    let text = path.to_str()?;
    if ["-", "stdout", "stderr"].contains(&text.to_ascii_lowercase().as_str()) {
        let message =
            "the records are written to a file of this name in the working directory of the service".to_owned();
        return Some((message, "write /dev/stdout for standard output; for a file, put ./ before its name"));
    }
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let packed = PACKED.iter().find(|packed| **packed == extension)?;
    let message =
        format!("the file is not compressed, although its name ends in .{packed}: the destination writes plain lines");
    Some((message, "remove the ending, and compress the file after it is moved away"))
}

/// State used on a blocking thread.
struct Output {
    appender: Appender,
    frame: Frame,
}

struct LineDestination {
    host: Host,
    path: PathBuf,
    sync: bool,
    format: Arc<RecordFormat>,
    output: Offload<Output, io::Result<()>>,
}

#[async_trait]
impl Writer for LineDestination {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        // Wait for a call that was dropped. The executor sends its records again, whatever the outcome.
        let _ = self.output.settle().await;
        let Some(output) = self.output.here() else { return Err(broken()) };
        output.frame.clear();
        if let [alone] = rows {
            output.frame.reserve(alone.weight());
        }
        let (mut failures, mut encoder) = (Vec::new(), self.format.encoder());
        for (row, record) in rows.iter().enumerate() {
            if let Err(fault) = output.frame.line(|bytes| encoder.encode(record, bytes)) {
                failures.push((row, fault));
            }
        }
        if !output.frame.is_empty() {
            let written = self.output.run(|output| output.appender.append(&mut output.frame)).await;
            self.warn();
            if let Some(output) = self.output.here() {
                output.frame.clear();
            }
            written.map_err(|_| broken())?.map_err(|e| taken_away(unwritable(&self.path, &e)))?;
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
            let synced = self.output.run(|output| output.appender.sync()).await.map_err(|_| broken())?;
            synced.map_err(|e| taken_away(unwritable(&self.path, &e)))?;
        }
        Ok(())
    }
}

impl LineDestination {
    fn warn(&mut self) {
        for warning in self.output.here().map(|output| output.appender.warnings()).unwrap_or_default() {
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
