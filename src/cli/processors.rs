//! `anabranch processors …`: processor plugins. Does not need a running service.

mod new;
mod run;

use clap::Subcommand;

use super::plugins::{self, DescribeArguments, ListArguments};
use super::{Context, Report};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the processors that pipelines can use.
    #[command(visible_alias = "ls")]
    List(ListArguments),
    /// Show what a processor does and the settings it takes.
    #[command(visible_alias = "desc")]
    Describe(DescribeArguments),
    New(new::Arguments),
    Run(run::Arguments),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::List(arguments) => plugins::list_processors(&arguments, context),
        Command::Describe(arguments) => plugins::describe_processor(&arguments, context),
        Command::New(arguments) => new::new(&arguments),
        Command::Run(arguments) => run::run(&arguments, context),
    }
}
