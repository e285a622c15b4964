//! The command line.

mod answers;
mod backup;
mod cluster;
mod completions;
mod config;
mod connectors;
mod dlq;
mod docs;
mod doctor;
mod init;
mod mcp;
mod migrate;
mod mistakes;
mod pipelines;
mod plugins;
mod positions;
mod processors;
mod quickstart;
mod record;
#[allow(dead_code, reason = "not all commands use all of its functions")]
mod remote;
mod report;
mod run;
mod store;
mod template;
mod top;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::{Diagnostics, Files, RenderStyle};
use anabranch_plugin::registry::Plugin;
use anabranch_process::terminal::{self, Stream, Style, adopt, is_terminal};
use anabranch_registry::{RegisterError, register, registry, registry_with, worker};
use anabranch_settings::{Layers, SettingFlags, Settings};
use clap::{Parser, Subcommand};

use crate::codes;

pub use report::{Exit, Report};

/// Moves records from sources, through processors, to destinations.
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, disable_version_flag = true, max_term_width = 110)]
struct Cli {
    /// Print JSON on standard output instead of text: one object; `run` prints one object per log line before it.
    #[arg(long, global = true)]
    json: bool,
    /// Print without colours. The variable NO_COLOR does the same.
    #[arg(long, global = true)]
    no_color: bool,
    /// Print the version.
    #[arg(short = 'v', short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Arguments),
    Run(run::Arguments),
    /// Create, check, inspect and control pipelines.
    #[command(subcommand, visible_alias = "pipeline")]
    Pipelines(pipelines::Command),
    /// List, describe, create and run processors.
    #[command(
        subcommand,
        visible_alias = "processor",
        visible_alias = "processor-plugins",
        aliases = ["processor-plugin", "processorplugins", "processorplugin"]
    )]
    Processors(processors::Command),
    /// List and describe connectors.
    #[command(
        subcommand,
        visible_alias = "connector",
        visible_alias = "connector-plugins",
        aliases = ["connector-plugin", "connectorplugins", "connectorplugin"]
    )]
    Connectors(connectors::Command),
    /// Show, reset, rewind or transfer source positions.
    #[command(subcommand, visible_alias = "position")]
    Positions(positions::Command),
    /// List, show, replay and delete dead letters.
    #[command(subcommand, visible_alias = "dead-letters")]
    Dlq(dlq::Command),
    /// Evaluate and check templates and conditions.
    #[command(subcommand, visible_alias = "templates")]
    Template(template::Command),
    Top(top::Arguments),
    Cluster(cluster::Arguments),
    Quickstart(quickstart::Arguments),
    Config(config::Arguments),
    Mcp(mcp::Arguments),
    /// Turn configurations of Kafka Connect and Conduit into pipeline files.
    #[command(subcommand)]
    Migrate(migrate::Command),
    /// Write the reference pages of this program below docs/.
    #[command(subcommand, hide = true)]
    Docs(docs::Command),
    Doctor(doctor::Arguments),
    Backup(backup::Arguments),
    /// Copy the state store to another one.
    #[command(subcommand)]
    Store(store::Command),
    /// Print the version.
    Version,
    /// Print a script that completes commands, settings, pipelines and plugins in a shell.
    ///
    /// Load it when the shell starts: `source <(anabranch completions bash)` in ~/.bashrc, the same with zsh in
    /// ~/.zshrc, `anabranch completions fish | source` in ~/.config/fish/config.fish.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Registers plugins in addition to the built-in ones, parses the command line, runs the command and prints its report.
pub fn main(plugins: Vec<Plugin>) -> ExitCode {
    // Must come first, before anything that takes time or starts a thread.
    if let Some(code) = worker::requested() {
        return code;
    }
    if let Err(errors) = register(plugins) {
        let is_json = std::env::args_os().any(|argument| argument == "--json");
        return ExitCode::from(unregistered(&errors).print(is_json) as u8);
    }
    if let Some(code) = completions::requested() {
        return code;
    }
    worker::is_program();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(refused(&error) as u8),
    };
    let context = Context::new(cli.json, cli.no_color);
    let report = dispatch(cli.command, &context);
    ExitCode::from(report.print(context.json) as u8)
}

fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::Init(arguments) => init::init(&arguments),
        Command::Run(arguments) => run::run(&arguments, context),
        Command::Pipelines(command) => pipelines::dispatch(command, context),
        Command::Processors(command) => processors::dispatch(command, context),
        Command::Connectors(command) => connectors::dispatch(command, context),
        Command::Positions(command) => positions::dispatch(command, context),
        Command::Dlq(command) => dlq::dispatch(command, context),
        Command::Template(command) => template::dispatch(command, context),
        Command::Top(arguments) => top::top(&arguments, context),
        Command::Cluster(arguments) => cluster::cluster(&arguments, context),
        Command::Quickstart(arguments) => quickstart::quickstart(&arguments, context),
        Command::Config(arguments) => config::config(&arguments, context),
        Command::Doctor(arguments) => doctor::doctor(&arguments, context),
        Command::Backup(arguments) => backup::backup(&arguments, context),
        Command::Store(command) => store::dispatch(&command, context),
        Command::Mcp(arguments) => mcp::mcp(&arguments, context),
        Command::Migrate(command) => migrate::dispatch(&command, context),
        Command::Docs(command) => docs::dispatch(&command),
        Command::Version => version(),
        Command::Completions { shell } => completions::script(shell),
    }
}

/// Runs the command of a command line and returns its report without printing it.
fn called(line: impl IntoIterator<Item = String>) -> Report {
    let line = [OsString::from("anabranch"), "--json".into()].into_iter().chain(line.into_iter().map(OsString::from));
    match Cli::try_parse_from(line) {
        Ok(cli) => dispatch(cli.command, &Context::new(true, true)),
        Err(error) => {
            let text = error.to_string();
            let message = text.lines().next().unwrap_or_default();
            Report::new("anabranch").fail(Exit::Invalid, codes::CLI_USAGE, message.trim_start_matches("error: "))
        }
    }
}

/// Prints what clap has to show: help and version as text, errors as text or, with `--json`, as JSON.
fn refused(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        // The second call flushes standard output, so that a failed write is reported.
        let printed = error.print().and_then(|()| terminal::print(Stream::Out, ""));
        return report::ended(printed, Exit::Ok);
    }
    let line: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let meant = mistakes::meant(error, &line);
    // clap did not parse the line, so `--json` is searched for in the arguments.
    if !line.iter().any(|argument| argument == "--json") {
        let _ = error.print();
        if let Some(meant) = meant {
            let _ = terminal::print(Stream::Err, &format!("\nDid you mean this?\n  {meant}\n"));
        }
        return Exit::Invalid;
    }
    let text = error.to_string();
    // clap lists missing arguments below the first line.
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let message = lines.join(" ");
    Report::new("anabranch")
        .fail(Exit::Invalid, codes::CLI_USAGE, message.strip_prefix("error: ").unwrap_or(&message))
        .suggest(meant.map_or_else(
            || "`--help` lists all commands and options".to_owned(),
            |meant| format!("did you mean `{meant}`?"),
        ))
        .print(true)
}

/// Returns the report of a program whose plugins cannot be registered.
fn unregistered(errors: &[RegisterError]) -> Report {
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Report::new("anabranch")
        .fail(Exit::Invalid, codes::PLUGINS_NOT_REGISTERED, messages.join("; "))
        .suggest("change the plugins that the `main` function of this program registers, or their specifications")
}

fn version() -> Report {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    Report::new("version")
        .text(format!("anabranch {version} ({os} {arch})\n"))
        .result(serde_json::json!({ "version": version, "os": os, "arch": arch }))
}

/// Output options that all commands share.
#[derive(Clone)]
struct Context {
    /// `true` if to print JSON.
    json: bool,
    /// `true` if to print colours on standard error.
    color_errors: bool,
    /// `true` if to print colours on standard output.
    color: bool,
    /// `true` if standard output is a terminal.
    terminal: bool,
}

impl Context {
    fn new(json: bool, no_color: bool) -> Self {
        let plain = no_color || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let terminal = is_terminal(Stream::Out);
        Context { json, color_errors: !plain && is_terminal(Stream::Err), color: !plain && terminal, terminal }
    }

    /// Returns the settings, or the report of their errors. Warnings go to standard error.
    fn settings<const ALL: bool>(
        &self,
        command: &'static str,
        flags: &SettingFlags<ALL>,
    ) -> Result<Settings, Box<Report>> {
        let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        match (Layers { flags: &flags.given, environment: &environment }).resolve() {
            Ok((settings, found)) => {
                self.note(&found.findings, &found.files);
                Ok(settings)
            }
            Err(refused) => {
                let text = self.rendered(&refused.findings, &refused.files);
                Err(Box::new(
                    Report::new(command)
                        .notes(text)
                        .fail(Exit::Invalid, codes::SERVICE_INVALID_SETTINGS, "the settings cannot be used")
                        .result(serde_json::json!({ "findings": report::findings(&refused.findings, &refused.files) })),
                ))
            }
        }
    }

    /// Asks the user for confirmation. Returns `None` with `--json`, or if standard input or output is not a terminal.
    fn confirm(&self, question: &str) -> Option<bool> {
        if self.json || !self.terminal || !std::io::stdin().is_terminal() {
            return None;
        }
        let _ = terminal::print(Stream::Err, &format!("{question} [y/N] "));
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).ok()?;
        Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    /// Renders findings as text for standard error.
    fn rendered(&self, findings: &Diagnostics, files: &Files) -> String {
        adopt(&findings.render(files, RenderStyle { color: self.color_errors, ..RenderStyle::default() }))
    }

    /// Prints findings that do not stop the command to standard error.
    fn note(&self, findings: &Diagnostics, files: &Files) {
        if !findings.is_empty() {
            let _ = terminal::print(Stream::Err, &self.rendered(findings, files));
        }
    }
}

/// Renders the differences between two texts as a unified diff; empty if they are equal.
fn difference(name: &str, before: &str, after: &str, color: bool) -> String {
    let difference = similar::TextDiff::from_lines(before, after);
    let plain = difference.unified_diff().context_radius(2).header(name, name).to_string();
    if !color {
        return plain;
    }
    let styled = |line: &str| match line.as_bytes().first() {
        Some(b'+') => format!("{}\n", Style::GREEN.paint(line, true)),
        Some(b'-') => format!("{}\n", Style::RED.paint(line, true)),
        Some(b'@') => format!("{}\n", Style::DIM.paint(line, true)),
        _ => format!("{line}\n"),
    };
    plain.lines().map(styled).collect()
}

pub(crate) fn compile_options(settings: &Settings, once: bool) -> CompileOptions {
    CompileOptions {
        split: settings.arch_v2,
        once,
        strict: settings.pipelines.strict,
        limits: settings.limits,
        cluster: settings.cluster.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn a_plugin_that_cannot_be_registered_is_named() {
        let [role, name] = ["source", "inbox"];
        let errors =
            [RegisterError::Twice { role, name: name.into() }, RegisterError::BuiltIn { role, name: "file".into() }];
        let report = format!("{:?}", unregistered(&errors));
        let message =
            "the source \\\"inbox\\\" is registered twice; the source \\\"file\\\" has the name of a built-in source";
        assert!(report.contains(message) && report.contains("plugins.not_registered"), "{report}");
        let page = include_str!("../docs/write-a-connector.md");
        assert!(page.contains("error: the source \"inbox\" is registered twice\n"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn settings_are_flags_of_every_command_that_compiles() {
        for command in ["run", "pipelines validate", "pipelines plan", "pipelines list", "config"] {
            let line = format!("anabranch {command} --preview.pipeline-arch-v2 --pipelines p --db.path=x");
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
        }
    }
    #[test]
    fn settings_are_added_to_the_command_that_is_asked_for_only() {
        let has_settings = |cli: &clap::Command| {
            let run = cli.find_subcommand("run").unwrap();
            run.get_arguments().any(|argument| argument.get_id() == "db.path")
        };
        let mut cli = Cli::command();
        assert!(!has_settings(&cli));
        cli.build();
        assert!(has_settings(&cli));
    }
}
