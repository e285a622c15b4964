//! `anabranch docs …`: writes the reference pages, which are generated from the code. Hidden: it is for developers of
//! this program.

use std::fs;
use std::path::PathBuf;

use anabranch_process::files::system;
use clap::Subcommand;
use serde_json::json;

use super::{Exit, Report, registry};
use crate::codes;
use crate::docs::{Page, delivery, errors, llms, plugins, settings, templates};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Write all pages below a directory.
    Write {
        /// Root of the repository.
        #[arg(default_value = ".")]
        directory: PathBuf,
    },
}

pub(super) fn dispatch(command: &Command) -> Report {
    let Command::Write { directory } = command;
    const COMMAND: &str = "docs.write";
    let pages = pages();
    for page in &pages {
        let path = directory.join(&page.path);
        let parent = path.parent().unwrap_or(directory);
        if let Err(error) = fs::create_dir_all(parent).and_then(|()| fs::write(&path, &page.text)) {
            let what = format!("cannot write {}: {}", path.display(), system(&error));
            return Report::new(COMMAND).fail(Exit::Environment, codes::CLI_CANNOT_WRITE, what);
        }
    }
    let paths: Vec<&str> = pages.iter().map(|page| page.path.as_str()).collect();
    Report::new(COMMAND).text(paths.join("\n") + "\n").result(json!({ "pages": paths }))
}

fn pages() -> Vec<Page> {
    let registry = registry();
    let mut pages = plugins::pages(&registry);
    pages.extend([
        delivery::page(&registry),
        settings::page(),
        errors::page(),
        templates::page(),
        llms::short(&registry),
        llms::full(&registry),
    ]);
    pages
}
