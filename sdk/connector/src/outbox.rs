//! `outbox`: a destination that writes each record to a file with the name in its key.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{
    Delivered, Destination, DestinationKind, Retry, Verdicts, Write, WritePolicy, Writer,
};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_data;
use anabranch_record::{Data, Operation, Record};
use async_trait::async_trait;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt as _;

use crate::codes;

/// Returns the `outbox` destination, to be registered.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::new("outbox", env!("CARGO_PKG_VERSION"), "Writes each record to a file.")
        .describe(
            "Writes the payload of each record to a file with the name in the key. A later record with the same key \
             replaces the file; one with the operation `delete` removes it.",
        )
        .with_all(shared::destination());
    kind::destination(specification, |settings: Settings| Ok(Arc::new(Outbox { path: settings.path })))
}

#[derive(Parameters)]
struct Settings {
    /// The directory. It is created if it does not exist.
    path: PathBuf,
}

#[derive(Clone)]
struct Outbox {
    path: PathBuf,
}

#[async_trait]
impl Destination for Outbox {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        fs::create_dir_all(&self.path).await.map_err(|error| self.failed(error))?;
        Ok(Box::new(self.clone()))
    }

    fn policy(&self) -> WritePolicy {
        // A record that is written twice is stored once.
        WritePolicy { rows: 100, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

impl Outbox {
    /// Returns the fault for an error of the directory. Some errors remain until a person does something.
    fn failed(&self, error: Error) -> Fault {
        let what = format!("cannot write to {}: {error}", self.path.display());
        match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
                Fault::fatal(codes::OUTBOX_IO, what)
            }
            _ => Fault::transient(codes::OUTBOX_IO, what),
        }
    }
}

/// Returns the name of the file of a record.
fn name_of(record: &Record) -> Result<&str, Fault> {
    let refused = || Fault::record(codes::OUTBOX_KEY, "the key of the record is not the name of a file");
    let Data::Raw(key) = &record.key else { return Err(refused()) };
    let name = std::str::from_utf8(key).map_err(|_| refused())?;
    // A name with a slash would leave the directory.
    let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    is_name.then_some(name).ok_or_else(refused)
}

impl Outbox {
    /// Replaces or removes the file of a record.
    async fn store(&self, name: &str, record: &Record) -> Result<(), Error> {
        let path = self.path.join(name);
        if record.operation == Operation::Delete {
            return match fs::remove_file(&path).await {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let mut json = Vec::new();
        let content = match &record.payload.after {
            Data::Raw(bytes) => &bytes[..],
            data => {
                write_data(data, &mut json).map_err(Error::other)?;
                &json
            }
        };
        let part = self.path.join(format!(".{name}.part"));
        let mut file = File::create(&part).await?;
        file.write_all(content).await?;
        file.sync_all().await?;
        fs::rename(&part, &path).await
    }
}

#[async_trait]
impl Writer for Outbox {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let mut verdicts = Vec::with_capacity(rows.len());
        for record in rows {
            verdicts.push(match name_of(record) {
                Ok(name) => {
                    self.store(name, record).await.map_err(|error| self.failed(error))?;
                    Ok(Delivered::Accepted)
                }
                Err(fault) => Err(fault),
            });
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        // The names of files are durable when the directory is.
        let directory = File::open(&self.path).await.map_err(|error| self.failed(error))?;
        directory.sync_all().await.map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anabranch_plugin::testing::{check_destination, check_refusal, configured, record};

    use super::*;

    /// Returns the record of a row for a file.
    fn keyed(row: u64, name: &str) -> Record {
        let mut record = record(row);
        record.key = Data::text(name);
        record
    }

    #[tokio::test]
    async fn the_destination_keeps_its_promises() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outbox");
        let fresh = async || {
            let _ = std::fs::remove_dir_all(&path);
            configured::destination(&kind(), &[("path", path.to_str().unwrap())]).unwrap()
        };
        let stored = async || {
            let entries = std::fs::read_dir(&path).into_iter().flatten().map(Result::unwrap);
            let file = |entry: std::fs::DirEntry| {
                (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
            };
            entries.map(file).collect::<BTreeMap<_, _>>().into_iter().collect()
        };
        let rows = [keyed(1, "a"), keyed(2, "b"), keyed(3, "a"), keyed(4, "c")];

        let files: Vec<(String, String)> = check_destination(fresh, stored, &rows).await.unwrap();
        assert_eq!(files, [("a", "3"), ("b", "2"), ("c", "4")].map(|(name, text)| (name.into(), text.into())));

        for bad in ["", ".hidden", "../a", "a/b"] {
            let fault = check_refusal(fresh, stored, &rows, &keyed(5, bad)).await.unwrap();
            assert_eq!(fault.code(), codes::OUTBOX_KEY);
        }
    }
}
