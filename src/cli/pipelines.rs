//! `anabranch pipelines …`.

mod init;
mod list;
mod plan;
mod validate;

use std::path::Path;

use clap::Subcommand;

use super::{Context, Report};

pub(super) use init::DEMO;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Write a pipeline file.
    Init(init::Arguments),
    /// Check pipeline files; nothing is started.
    Validate(validate::Arguments),
    /// Show what a pipeline is compiled to.
    Plan(plan::Arguments),
    /// List pipelines and how they are doing.
    #[command(visible_alias = "ls")]
    List(list::Arguments),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::Init(arguments) => init::init(&arguments, context),
        Command::Validate(arguments) => validate::validate(&arguments, context),
        Command::Plan(arguments) => plan::plan(&arguments, context),
        Command::List(arguments) => list::list(&arguments, context),
    }
}

/// Whether the path names a YAML file by its extension.
fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"))
}
