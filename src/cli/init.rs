//! `anabranch init`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anabranch_process::files::system;
use anabranch_settings::document;
use serde_json::json;

use super::{Exit, Report};
use crate::codes;

/// Create the directories and the configuration file of a new service.
///
/// Creates the directories `processors`, `connectors` and `pipelines` and writes `anabranch.yaml`, which holds every
/// setting with its default and meaning. Existing files and directories are not changed.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The directory in which to create them.
    #[arg(long, default_value = ".", value_hint = clap::ValueHint::DirPath)]
    path: PathBuf,
}

pub(super) fn init(arguments: &Arguments) -> Report {
    let (mut made, mut kept) = (Vec::new(), Vec::new());
    for name in ["processors", "connectors", "pipelines"] {
        let path = shown(&arguments.path, name);
        if path.is_dir() {
            kept.push(path);
            continue;
        }
        if let Err(error) = std::fs::create_dir_all(&path) {
            return refused(&path, &error);
        }
        made.push(path);
    }
    let path = shown(&arguments.path, "anabranch.yaml");
    match write_new(&path, document().as_bytes(), 0o600) {
        Ok(()) => made.push(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => kept.push(path),
        Err(error) => return refused(&path, &error),
    }
    let mut text = String::new();
    let list = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
    for (word, paths) in [("made", list(&made)), ("kept", list(&kept))] {
        for path in paths {
            text.push_str(&format!("{word}  {path}\n"));
        }
    }
    text.push_str(
        "Anabranch is ready. `anabranch pipelines init` writes a demo pipeline, `anabranch run` starts it.\n",
    );
    Report::new("init").text(text).result(json!({ "made": list(&made), "kept": list(&kept) }))
}

/// Writes a file that must not exist yet.
pub(super) fn write_new(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content)
}

fn shown(base: &Path, name: &str) -> PathBuf {
    if base == Path::new(".") { PathBuf::from(name) } else { base.join(name) }
}

fn refused(path: &Path, error: &std::io::Error) -> Report {
    Report::new("init").fail(
        Exit::Environment,
        codes::CLI_CANNOT_WRITE,
        format!("cannot create {}: {}", path.display(), system(error)),
    )
}
