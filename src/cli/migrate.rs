//! `anabranch migrate`.

mod check;
mod conduit;
mod kafka_connect;
mod outcome;
mod writing;

use clap::Subcommand;

use super::{Context, Report};

/// Commands of `anabranch migrate`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    KafkaConnect(kafka_connect::Arguments),
    Conduit(conduit::Arguments),
}

pub(super) fn dispatch(command: &Command, context: &Context) -> Report {
    match command {
        Command::KafkaConnect(arguments) => kafka_connect::migrate(arguments, context),
        Command::Conduit(arguments) => conduit::migrate(arguments, context),
    }
}
