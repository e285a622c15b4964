//! `anabranch pipelines lint`.

use std::path::PathBuf;

use anabranch_settings::SettingFlags;

use super::findings::FindingsFormat;
use super::tries::TryFlags;
use super::validate::{self, Checking};
use crate::cli::{Context, Report};

/// Check pipeline files for errors and probable mistakes; nothing is started.
///
/// Does the same as `pipelines validate`, for authors of pipelines and for checks before a merge. Exit code 0: all
/// pipelines can be started; 2: there are errors, or warnings with --strict.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Files and directories. Default: `pipelines.path`.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    tries: TryFlags,
    /// Format of the findings.
    #[arg(long, value_enum, default_value_t = FindingsFormat::Text)]
    format: FindingsFormat,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

pub(super) fn lint(arguments: &Arguments, context: &Context) -> Report {
    let checking = Checking { strict: arguments.strict, fix: None, tries: arguments.tries, form: arguments.format };
    validate::check("pipelines.lint", &arguments.paths, &arguments.settings, &checking, context)
}
