//! `anabranch backup`.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anabranch_process::files::system;
use anabranch_settings::{Database, ServiceFlags};
use anabranch_store::{Backup, BackupError, OpenError, Store};
use chrono::Utc;
use serde_json::json;

use super::remote::Remote;
use super::{Context, Exit, Report};
use crate::client::ClientError;
use crate::codes;

/// Back up the store while the service runs.
///
/// Writes a consistent copy of the embedded store to a new file. If the service runs, it makes the copy and sends it;
/// otherwise the command copies the file itself. The copy is opened and checked before it gets its name, so a file with
/// this name is complete. It holds everything that the store holds, including credentials in pipelines, and only its
/// owner can read it.
///
/// To restore it, stop the service, replace the file at `db.path` with the copy, and start the service.
///
/// Exit codes: 0 the copy is written, 2 the file exists already or the store is not a file, 3 the copy cannot be made.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The file to write; it must not exist. By default, a file with the time in its name in the current directory.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    to: Option<PathBuf>,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "backup";

pub(super) fn backup(arguments: &Arguments, context: &Context) -> Report {
    backed_up(arguments, context).unwrap_or_else(|report| *report)
}

fn backed_up(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let named = || PathBuf::from(format!("anabranch-{}.db", Utc::now().format("%Y%m%dT%H%M%SZ")));
    let to = arguments.to.clone().unwrap_or_else(named);
    let Database::Embedded(path) = &settings.database else {
        let report = Report::new(COMMAND).fail(
            Exit::Invalid,
            codes::BACKUP_NOT_A_FILE,
            "db.type is not embedded: there is no file to back up",
        );
        return Err(Box::new(report.suggest("back up a store in PostgreSQL with `pg_dump`; see docs/operations.md")));
    };
    let draft = Backup::begin(&to).map_err(|error| failed(&error))?;
    let by = match Store::open_existing(&settings.database) {
        Ok(Some(store)) => {
            // Messages do not contain the name of the draft: the user knows only the name of the copy.
            store.copy_to(&draft.path()).map_err(|error| match error {
                BackupError::System { what, .. } => failed(&BackupError::System { path: to.clone(), what }),
                error => failed(&error),
            })?;
            path.display().to_string()
        }
        Ok(None) => {
            let report = Report::new(COMMAND).fail(Exit::Environment, codes::STORE_NONE, "there is no store yet");
            return Err(Box::new(
                report.suggest("`anabranch run` creates the store; if it is elsewhere, set --db.path"),
            ));
        }
        Err(OpenError::InUse { .. }) => {
            let remote = Remote::of(COMMAND, &settings)?;
            download(&remote, &draft.path(), &to)?;
            remote.url()
        }
        Err(error) => return Err(unavailable(&error.to_string())),
    };
    let bytes = draft.finish().map_err(|error| failed(&error))?;
    Ok(Report::new(COMMAND)
        .text(format!("Wrote {}: {bytes} bytes, a copy of {by}.\n", to.display()))
        .summary(json!({ "bytes": bytes }))
        .result(json!({ "file": to, "from": by, "bytes": bytes })))
}

fn download(remote: &Remote, draft: &Path, to: &Path) -> Result<(), Box<Report>> {
    let unwritten = Cell::new(None);
    let downloaded = remote.run(async {
        let downloaded = remote.parts().0.download("/v1/backup", draft).await;
        if let Err(ClientError::Unwritten { error, .. }) = &downloaded {
            unwritten.set(Some(system(error)));
        }
        downloaded
    });
    match unwritten.take() {
        // The error names the target: the user does not know the temporary file.
        Some(what) => Err(failed(&BackupError::System { path: to.into(), what })),
        None => downloaded,
    }
}

fn failed(error: &BackupError) -> Box<Report> {
    let (exit, code) = match error {
        BackupError::Exists(_) => (Exit::Invalid, codes::BACKUP_EXISTS),
        BackupError::System { .. } | BackupError::Unsound { .. } => (Exit::Environment, codes::BACKUP_FAILED),
    };
    Box::new(Report::new(COMMAND).fail(exit, code, error.to_string()))
}

fn unavailable(what: &str) -> Box<Report> {
    Box::new(Report::new(COMMAND).fail(Exit::Environment, codes::STORE_UNAVAILABLE, what))
}
