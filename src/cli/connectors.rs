//! `anabranch connectors …`: connector plugins, and what they can read. Does not need a running service.

mod discover;

use clap::Subcommand;

use super::plugins::{self, DescribeArguments, ListArguments};
use super::{Context, Report};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the connectors that pipelines can use.
    #[command(visible_alias = "ls")]
    List(ListArguments),
    /// Show what a connector does and the settings it takes as source and as destination.
    #[command(visible_alias = "desc")]
    Describe(DescribeArguments),
    Discover(discover::Arguments),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::List(arguments) => plugins::list_connectors(&arguments, context),
        Command::Describe(arguments) => plugins::describe_connector(&arguments, context),
        Command::Discover(arguments) => discover::discover(&arguments, context),
    }
}
