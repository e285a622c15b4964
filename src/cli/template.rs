//! `anabranch template …`: evaluates and checks templates and conditions without a pipeline.

mod check;
mod eval;
mod functions;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Span};
use anabranch_template::TemplateError;
use clap::Subcommand;

use super::{Context, Report};
use crate::codes;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Eval(eval::Arguments),
    Check(check::Arguments),
    Functions(functions::Arguments),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::Eval(arguments) => eval::eval(&arguments, context),
        Command::Check(arguments) => check::check(&arguments, context),
        Command::Functions(arguments) => functions::functions(&arguments),
    }
}

/// Converts the error of a template to a finding at its place.
fn finding(error: TemplateError, file: FileId) -> Diagnostics {
    let finding =
        Diagnostic::error(codes::TEMPLATE_INVALID, error.message).with_span(span(file, error.offset, error.len));
    Diagnostics::from(match error.hint {
        Some(hint) => finding.with_hint(hint),
        None => finding,
    })
}

fn span(file: FileId, offset: usize, len: usize) -> Span {
    let at = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Span { file, start: at(offset), end: at(offset + len) }
}
