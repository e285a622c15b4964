//! `anabranch pipelines …`.

mod analyze;
pub(super) mod apply;
mod backfill;
mod chosen;
mod describe;
mod dev;
mod dry_run;
mod findings;
mod gallery;
mod init;
mod inspect;
mod lifecycle;
mod lint;
mod list;
mod plan;
mod schema;
mod test;
mod tries;
mod validate;

use std::path::Path;

use clap::Subcommand;

use super::{Context, Report};

pub(super) use chosen::{ChosenPipelines, NoRunnablePipeline};
pub(super) use dev::FileWatch;
pub(super) use init::DEMO;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Init(init::Arguments),
    Validate(validate::Arguments),
    Lint(lint::Arguments),
    Plan(plan::Arguments),
    DryRun(dry_run::Arguments),
    Test(Box<test::Arguments>),
    Schema(schema::Arguments),
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    Inspect(inspect::Arguments),
    #[command(visible_alias = "desc")]
    Describe(describe::Arguments),
    Start(lifecycle::Start),
    Stop(lifecycle::Stop),
    Backfill(backfill::Arguments),
    Delete(lifecycle::Delete),
    Apply(apply::Arguments),
    Dev(dev::Arguments),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::Init(arguments) => init::init(&arguments, context),
        Command::Validate(arguments) => validate::validate(&arguments, context),
        Command::Lint(arguments) => lint::lint(&arguments, context),
        Command::Schema(arguments) => schema::schema(&arguments, context),
        Command::Test(arguments) => test::test(&arguments, context),
        Command::DryRun(arguments) => dry_run::dry_run(&arguments, context),
        Command::Plan(arguments) => plan::plan(&arguments, context),
        Command::List(arguments) => list::list(&arguments, context),
        Command::Inspect(arguments) => inspect::inspect(&arguments, context),
        Command::Describe(arguments) => describe::describe(&arguments, context),
        Command::Start(arguments) => lifecycle::start(&arguments, context),
        Command::Stop(arguments) => lifecycle::stop(&arguments, context),
        Command::Backfill(arguments) => backfill::backfill(&arguments, context),
        Command::Dev(arguments) => dev::dev(&arguments, context),
        Command::Apply(arguments) => apply::apply(&arguments, context),
        Command::Delete(arguments) => lifecycle::delete(&arguments, context),
    }
}

/// Returns `true` if the path has the extension of a YAML file.
pub(super) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"))
}
