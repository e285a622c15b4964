//! Completions of the command line by a shell.
//!
//! `anabranch completions SHELL` prints a few lines that bind the TAB key to this program: at each TAB, the shell calls
//! it with the variable [`VARIABLE`] set and the words of the line, and it prints the words that fit. So a shell loads
//! almost nothing at its start, and ids of pipelines are current.

use std::ffi::OsStr;
use std::path::{self, Path};
use std::process::ExitCode;
use std::time::Duration;

use anabranch_plugin::specification::Specification;
use anabranch_process::runtime;
use anabranch_record::text::Str;
use anabranch_service::pipelines::declared_ids;
use anabranch_settings::{Layers, Settings};
use clap::CommandFactory as _;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use clap_complete::{CompleteEnv, Shell};
use serde::Deserialize;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{Cli, Exit, Report, registry};
use crate::client::Client;
use crate::codes;

/// The variable by which a shell requests completions; its value is the name of the shell.
const VARIABLE: &str = "ANABRANCH_COMPLETE";
/// How long a running service may take to list its pipelines: a person waits for the answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// Prints completions if a shell requests them; otherwise `None`.
pub(super) fn requested() -> Option<ExitCode> {
    let here = std::env::current_dir().ok();
    match CompleteEnv::with_factory(command).var(VARIABLE).try_complete(std::env::args_os(), here.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(error) => {
            let _ = error.print();
            Some(ExitCode::from(Exit::Invalid as u8))
        }
    }
}

/// The command line with hidden aliases: of a name and its aliases that fit, the engine offers only one.
fn command() -> clap::Command {
    fn hide(command: clap::Command) -> clap::Command {
        // Clap takes names of the program's text only; this process ends when it has answered.
        let aliases: Vec<&'static str> = command.get_all_aliases().map(|alias| &*alias.to_owned().leak()).collect();
        command.visible_alias(None).aliases(aliases).mut_subcommands(hide)
    }
    hide(Cli::command())
}

/// The report with the script for a shell, which calls this program by the path or name it was called by.
pub(super) fn script(shell: Shell) -> Report {
    let program = std::env::args_os().next().unwrap_or_default();
    // A program with plugins of its own has another name.
    let name = Path::new(&program).file_name().and_then(OsStr::to_str).unwrap_or("anabranch").to_owned();
    let program = match path::absolute(&program) {
        // The shell found a name without a directory on its search path, and will find it again.
        Ok(path) if program.to_string_lossy().contains('/') => path.into_os_string(),
        _ => OsStr::new(&name).to_owned(),
    };
    let completer: &dyn EnvCompleter = match shell {
        Shell::Elvish => &Elvish,
        Shell::Fish => &Fish,
        Shell::PowerShell => &Powershell,
        Shell::Zsh => &Zsh,
        _ => &Bash,
    };
    let mut script = Vec::new();
    let written = completer.write_registration(VARIABLE, &name, &name, &program.to_string_lossy(), &mut script);
    if let Err(error) = written {
        return Report::new("completions").fail(Exit::Environment, codes::CLI_SYSTEM, error.to_string());
    }
    let script = String::from_utf8_lossy(&script).into_owned();
    Report::new("completions").result(serde_json::json!({ "script": script })).text(script)
}

/// Ids of the pipelines that files declare or a running service has.
pub(super) fn pipelines() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(typed, &pipeline_ids()))
}

/// The same, and files.
pub(super) fn files_or_pipelines() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let mut found = candidates(typed, &pipeline_ids());
        found.extend(PathCompleter::any().complete(typed));
        found
    })
}

/// Names of built-in sources.
pub(super) fn sources() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| described(typed, registry().sources().map(|kind| kind.specification())))
}

/// Names of built-in destinations.
pub(super) fn destinations() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| described(typed, registry().destinations().map(|kind| kind.specification())))
}

/// Names of built-in processors.
pub(super) fn processors() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| described(typed, registry().operators().map(|kind| kind.specification())))
}

/// Names of all built-in plugins.
pub(super) fn plugins() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let registry = registry();
        let sources = registry.sources().map(|kind| kind.specification());
        let destinations = registry.destinations().map(|kind| kind.specification());
        let processors = registry.operators().map(|kind| kind.specification());
        described(typed, sources.chain(destinations).chain(processors))
    })
}

fn described<'a>(typed: &OsStr, specifications: impl Iterator<Item = &'a Specification>) -> Vec<CompletionCandidate> {
    let starts = typed.to_string_lossy();
    specifications
        .filter(|specification| specification.name.starts_with(&*starts))
        .map(|specification| {
            CompletionCandidate::new(specification.name.as_str()).help(Some(specification.summary.to_string().into()))
        })
        .collect()
}

fn candidates(typed: &OsStr, ids: &[Str]) -> Vec<CompletionCandidate> {
    let starts = typed.to_string_lossy();
    ids.iter().filter(|id| id.starts_with(&*starts)).map(|id| CompletionCandidate::new(id.as_str())).collect()
}

/// The ids of all pipelines, sorted and without duplicates. Ignores files that cannot be read: completions have no
/// place for errors.
fn pipeline_ids() -> Vec<Str> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let Ok((settings, _)) = (Layers { flags: &[], environment: &environment }).resolve() else { return Vec::new() };
    let mut ids = declared_ids(&settings.pipelines.path);
    ids.extend(of_service(&settings).unwrap_or_default());
    ids.sort();
    ids.dedup();
    ids
}

/// Ids of the pipelines of a running service; `None` if none answers in time.
fn of_service(settings: &Settings) -> Option<Vec<Str>> {
    #[derive(Deserialize)]
    struct Listed {
        id: Str,
    }
    let client = Client::of(settings.api.as_ref()).ok()?;
    let runtime = runtime::start(&mut Builder::new_current_thread()).ok()?;
    let asked = async { timeout(PATIENCE, client.get::<Vec<Listed>>("/v1/pipelines")).await };
    let listed = runtime.block_on(asked).ok()?.ok()?;
    Some(listed.into_iter().map(|pipeline| pipeline.id).collect())
}
