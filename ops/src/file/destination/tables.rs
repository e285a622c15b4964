//! Parquet files: each write is one or more complete files.
//!
//! A file is written under a temporary name, synced, and then gets its name. So a file with this name is always complete,
//! and a record counts as delivered only when its file is. The name is derived from the records: a write that is repeated
//! replaces its files with equal ones.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_ops_parquet::DeclaredSchemas;
use anabranch_ops_parquet::table::{Table, TableSet, TableWriteError};
use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::flow::Flow;
use anabranch_plugin::format::parquet::ParquetLayout;
use anabranch_plugin::host::Host;
use anabranch_plugin::naming::UniqueNames;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::open_files::{create_directories, stays_below};
use super::output_path::OutputPath;
use super::{accessible, broken, taken_away, unwritable};
use crate::codes;
use crate::file::file_rotation::named_with;

/// Maximum number of records of a write, as long as `sdk.batch.size` does not say otherwise.
const MOST_ROWS: usize = 8192;
/// Size of the records of a file, and the time for which a record waits, if the settings do not say otherwise.
const FILE_BYTES: usize = 32 << 20;
const LINGER: Duration = Duration::from_secs(10);

/// Size of the writes to a file.
const BUFFER: usize = 256 << 10;

/// Maximum number of directories that are known to have no unfinished files of an earlier run.
const KNOWN_DIRECTORIES: usize = 4096;

/// Ending of unfinished files. Their names begin with a dot, so that no pattern of a source matches them.
const UNFINISHED: &str = ".anabranch";

/// When a file is complete.
#[derive(Clone, Copy)]
pub(super) struct FileLimits {
    /// Size of its records in memory.
    pub(super) bytes: Option<usize>,
    /// Time for which its first record waits.
    pub(super) interval: Option<Duration>,
}

/// A destination of Parquet files.
pub(super) struct ConfiguredTables {
    path: OutputPath,
    layout: ParquetLayout,
    bytes: usize,
    linger: Duration,
    /// True if it was opened before, in this run of the pipeline or an earlier one of the process.
    opened: AtomicBool,
}

impl ConfiguredTables {
    pub(super) fn new(path: OutputPath, layout: ParquetLayout, limits: FileLimits) -> Self {
        ConfiguredTables {
            path,
            layout,
            bytes: limits.bytes.unwrap_or(FILE_BYTES),
            linger: limits.interval.unwrap_or(LINGER),
            opened: AtomicBool::new(false),
        }
    }

    /// A file in the directory of the files, if the path is a template.
    fn example(&self) -> PathBuf {
        match &self.path {
            OutputPath::One(path) => path.clone(),
            OutputPath::ByRecord(paths) => Path::new(paths.directory.as_str()).join("records"),
        }
    }
}

#[async_trait]
impl Destination for ConfiguredTables {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let (example, is_created) = (self.example(), matches!(self.path, OutputPath::ByRecord(_)));
        let checked = tokio::task::spawn_blocking(move || {
            if is_created {
                create_directories(&example, true).map_err(|error| unwritable(&example, &error))?;
            }
            accessible(&example).map_err(|error| unwritable(&example, &error))
        });
        let checked = checked.await.map_err(|_| broken())?;
        checked.map_err(|fault| if self.opened.load(Ordering::Relaxed) { taken_away(fault) } else { fault })?;
        self.opened.store(true, Ordering::Relaxed);
        Ok(Box::new(TableWriter {
            path: self.path.clone(),
            layout: self.layout,
            bytes: self.bytes,
            owner: owner(host),
            names: UniqueNames::new(&host.pipeline, &host.node),
            schemas: DeclaredSchemas::new(host.schemas.clone()),
            clean: HashSet::new(),
        }))
    }

    fn flow(&self, flow: &mut Flow) {
        self.layout.columns.flow(flow);
        if let OutputPath::ByRecord(paths) = &self.path {
            flow.template("path", &paths.template);
        }
    }

    fn file(&self) -> Option<&str> {
        self.path.file()
    }

    fn directory(&self) -> Option<&str> {
        self.path.directory()
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        let path = self.example();
        let examined =
            tokio::task::spawn_blocking(move || accessible(&path).map_err(|error| unwritable(&path, &error)));
        examined.await.map_err(|_| broken())?.map(|()| Vec::new())
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        if let OutputPath::ByRecord(paths) = &self.path
            && let Err(fault) = paths.render(record, &mut String::new())
        {
            return Some(Err(fault));
        }
        self.layout.columns.refuses(record).map(Err)
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: MOST_ROWS, bytes: self.bytes, linger: self.linger, retry: Retry::Idempotent }
    }
}

/// Returns a text that is the same for all runs of a connector, and for no other connector.
fn owner(host: &Host) -> String {
    let mut sum = Sha256::new();
    for part in [&host.pipeline, &host.node] {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part.as_str());
    }
    sum.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

struct TableWriter {
    path: OutputPath,
    layout: ParquetLayout,
    bytes: usize,
    owner: String,
    names: UniqueNames,
    schemas: DeclaredSchemas,
    /// Directories that have no unfinished files of an earlier run.
    clean: HashSet<PathBuf>,
}

/// A table and the file that it becomes.
struct NewFile {
    path: PathBuf,
    table: Table,
}

#[async_trait]
impl Writer for TableWriter {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        self.schemas.load(rows).await?;
        let (mut tables, mut failures) = (TableSet::new(self.layout.columns, self.bytes), Vec::new());
        let mut path = String::new();
        for (row, record) in rows.iter().enumerate() {
            let added = match &self.path {
                OutputPath::One(_) => tables.add("", record, &self.schemas),
                OutputPath::ByRecord(paths) => {
                    path.clear();
                    paths.render(record, &mut path).and_then(|()| tables.add(&path, record, &self.schemas))
                }
            };
            if let Err(fault) = added {
                failures.push((row, fault));
            }
        }
        self.names.begin();
        let mut files = Vec::new();
        for (place, mut table) in tables.into_tables() {
            let name = self.names.name(&place, table.take_identity());
            let path = match &self.path {
                OutputPath::One(path) => named_with(path, &name),
                OutputPath::ByRecord(_) => named_with(Path::new(&place), &name),
            };
            files.push(NewFile { path, table });
        }
        self.write_files(files).await?;
        self.names.commit();
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

impl TableWriter {
    async fn write_files(&mut self, files: Vec<NewFile>) -> Result<(), Fault> {
        if files.is_empty() {
            return Ok(());
        }
        let (layout, owner, mut clean) = (self.layout, self.owner.clone(), std::mem::take(&mut self.clean));
        let below = self.path.directory().map(PathBuf::from);
        // If the call is dropped, the files are completed: they are those of a write that counts as not delivered.
        let written = tokio::task::spawn_blocking(move || {
            for file in &files {
                if let Some(below) = &below {
                    stays_below(below, &file.path)
                        .and_then(|()| create_directories(&file.path, true))
                        .map_err(|error| (file.path.clone(), TableWriteError::Io(error)))?;
                }
                let directory = directory_of(&file.path);
                if !clean.contains(directory) {
                    remove_unfinished(directory, &owner);
                    if clean.len() >= KNOWN_DIRECTORIES {
                        clean.clear();
                    }
                    clean.insert(directory.to_owned());
                }
                write_file(file, &owner, &layout).map_err(|error| (file.path.clone(), error))?;
            }
            Ok(clean)
        });
        match written.await.map_err(|_| broken())? {
            Ok(clean) => {
                self.clean = clean;
                Ok(())
            }
            Err((path, error)) => Err(self.refusal(&path, error)),
        }
    }

    fn refusal(&self, path: &Path, error: TableWriteError) -> Fault {
        use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory};
        match error {
            TableWriteError::Encode(_) => Fault::record(codes::FORMAT_FAILED, error),
            TableWriteError::Io(error)
                if matches!(self.path, OutputPath::ByRecord(_))
                    && matches!(error.kind(), InvalidFilename | IsADirectory | NotADirectory) =>
            {
                Fault::record(codes::PATH_REFUSED, format!("the path {} cannot be written: {error}", path.display()))
            }
            TableWriteError::Io(error) => taken_away(unwritable(path, &error)),
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes the unfinished files of earlier runs of the connector. One that stays only takes space.
fn remove_unfinished(directory: &Path, owner: &str) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let start = format!(".{owner}-");
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&start) && name.ends_with(UNFINISHED) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes a file that has its name only when it is complete and survives a power failure.
fn write_file(file: &NewFile, owner: &str, layout: &ParquetLayout) -> Result<(), TableWriteError> {
    let directory = directory_of(&file.path);
    let unfinished = directory.join(format!(".{owner}-{:016x}{UNFINISHED}", fastrand::u64(..)));
    let named = || {
        fs::rename(&unfinished, &file.path)?;
        File::open(directory)?.sync_all()
    };
    let written = write_unfinished(&unfinished, file, layout).and_then(|()| named().map_err(TableWriteError::Io));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn write_unfinished(path: &Path, file: &NewFile, layout: &ParquetLayout) -> Result<(), TableWriteError> {
    let output = OpenOptions::new().write(true).create_new(true).open(path).map_err(TableWriteError::Io)?;
    let output = file.table.write(layout, BufWriter::with_capacity(BUFFER, output))?;
    let output = output.into_inner().map_err(|error| TableWriteError::Io(error.into_error()))?;
    output.sync_all().map_err(TableWriteError::Io)
}

#[cfg(test)]
mod tests;
