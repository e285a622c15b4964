//! `inbox`: a source that reads the files of a directory, and deletes each file when its record is delivered.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Room, Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use tokio::fs;

use crate::codes;

/// Pause before an empty directory is listed again.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the `inbox` source, to be registered.
pub fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::new("inbox", env!("CARGO_PKG_VERSION"), "Reads the files of a directory.")
        .describe(
            "Reads the files of a directory in the order of their names, and deletes each file when its record is \
             delivered. New files need names after those of earlier files.",
        )
        .with_all(shared::source());
    kind::source(specification, |settings: Settings| Ok(Arc::new(Inbox { path: settings.path })))
}

#[derive(Parameters)]
struct Settings {
    /// The directory. Write files elsewhere and move them into it.
    path: PathBuf,
}

struct Inbox {
    path: PathBuf,
}

#[async_trait]
impl Source for Inbox {
    fn catches_up(&self) -> bool {
        true
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        let last = match resume.get(&Partition::ONLY) {
            Some(mark) => name_of(&mark.position)?,
            None => String::new(),
        };
        // Fails now if there is no such directory.
        fs::metadata(&self.path).await.map_err(|error| failed("read", &self.path, &error))?;
        let reader = InboxReader { path: self.path.clone(), last, has_caught_up: false };
        Ok(OpenedSource::new(Box::new(reader), Box::new(InboxAcker { path: self.path.clone() })))
    }
}

/// Returns the name of the file with a position.
fn name_of(position: &Position) -> Result<String, Fault> {
    String::from_utf8(position.0.to_vec()).map_err(|error| Fault::fatal(codes::INBOX_POSITION, error))
}

/// Returns the fault of a failed system call. Only some errors go away by themselves.
fn failed(action: &str, path: &Path, error: &Error) -> Fault {
    let what = format!("cannot {action} {}: {error}", path.display());
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
            Fault::fatal(codes::INBOX_IO, what)
        }
        _ => Fault::transient(codes::INBOX_IO, what),
    }
}

struct InboxReader {
    path: PathBuf,
    /// Name of the last file that was read.
    last: String,
    has_caught_up: bool,
}

impl InboxReader {
    /// Returns the names of the files that are not read yet, in order.
    async fn names(&self) -> Result<Vec<String>, Fault> {
        let failed = |error| failed("read", &self.path, &error);
        let mut entries = fs::read_dir(&self.path).await.map_err(failed)?;
        let mut names = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let is_file = entry.file_type().await.map_err(failed)?.is_file();
            if let Ok(name) = entry.file_name().into_string()
                && is_file
                && name > self.last
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

#[async_trait]
impl Reader for InboxReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let names = loop {
            let names = self.names().await?;
            if !names.is_empty() {
                break names;
            }
            if !self.has_caught_up {
                self.has_caught_up = true;
                return Ok(Read::CaughtUp);
            }
            tokio::time::sleep(PAUSE).await;
        };
        let (mut records, mut bytes, mut last) = (Vec::new(), 0, String::new());
        for name in names.into_iter().take(room.rows) {
            let path = self.path.join(&name);
            let content = fs::read(&path).await.map_err(|error| failed("read", &path, &error))?;
            bytes += content.len();
            if bytes > room.bytes && !records.is_empty() {
                break;
            }
            let position = Position::copy_from(name.as_bytes());
            records.push(Record::create(position, Data::text(name.as_str()), Data::Raw(content.into())));
            last = name;
        }
        // After the last `await`: a cancelled call changes nothing.
        self.last = last;
        self.has_caught_up = false;
        Ok(Read::Rows { partition: Partition::ONLY, records })
    }
}

struct InboxAcker {
    path: PathBuf,
}

#[async_trait]
impl Acker for InboxAcker {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        for position in positions {
            let path = self.path.join(name_of(position)?);
            match fs::remove_file(&path).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("delete", &path, &error)),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::testing::{check_source, configured};

    use super::*;

    #[tokio::test]
    async fn the_source_keeps_its_promises() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let fresh = async || {
            for name in ["1.json", "2.json", "3.json", "4.json"] {
                std::fs::write(path.join(name), name).unwrap();
            }
            configured::source(&kind(), &[("path", path.to_str().unwrap())]).unwrap()
        };
        let records = check_source(fresh).await.unwrap();
        assert_eq!(records.len(), 4);
        assert_eq!(records[0].key, Data::text("1.json"));
    }
}
