//! The settings as command-line flags.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Error};

use crate::declaration::{KEYS, SettingType};

/// Settings from flags. With `ALL`, help lists every setting; without it, only those that matter to commands that read
/// pipelines but run nothing. All are accepted in both cases.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags<const ALL: bool> {
    /// Name and text of each flag.
    pub given: Vec<(&'static str, String)>,
}

const OFFLINE: &[&str] = &[
    "config.path",
    "pipelines.path",
    "preview.pipeline-arch-v2",
    "db.path",
    "db.type",
    "db.postgres.connection-string",
    "db.postgres.table",
];

/// Prefixes of settings that affect how pipelines are compiled and run. Addresses and the store are not among them.
const OF_PIPELINES: &[&str] = &["preview.", "engine.", "processors.", "connectors.", "pipelines.error-recovery."];

/// Returns the flags among the arguments of this process that affect how pipelines are compiled and run, as arguments
/// for a child process. Variables and `anabranch.yaml` are visible to both.
pub fn handed_down(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut arguments = arguments.into_iter();
    let mut handed_down = Vec::new();
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--").unwrap_or_default();
        let name = name.split_once('=').map_or(name, |(name, _)| name);
        let Some(key) = KEYS.iter().find(|key| key.name == name) else { continue };
        // A separate value must not be parsed as a flag.
        let value = match key.kind {
            SettingType::Bool => None,
            _ if argument.contains('=') => None,
            _ => arguments.next(),
        };
        if name == "config.path" || OF_PIPELINES.iter().any(|prefix| name.starts_with(prefix)) {
            handed_down.push(argument);
            handed_down.extend(value);
        }
    }
    handed_down
}

impl<const ALL: bool> SettingFlags<ALL> {
    /// Returns the text of a flag, if given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, text)| text.as_str())
    }

    /// Adds the flags to a command.
    fn add(command: Command) -> Command {
        KEYS.iter().fold(command, |command, key| {
            let help = match key.default {
                Some(default) if !default.is_empty() => format!("{} [default: {default}]", key.meaning()),
                _ => key.meaning(),
            };
            let mut arg = Arg::new(key.name)
                .long(key.name)
                .help(help)
                .help_heading("Settings (also as ANABRANCH_* variables and in anabranch.yaml)")
                .hide(!ALL && !OFFLINE.contains(&key.name))
                .hide_short_help(key.has_no_effect());
            arg = match key.kind {
                SettingType::Bool => {
                    arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("true|false")
                }
                SettingType::Choice(_) => arg.value_name("WORD"),
                SettingType::Path => arg.value_name("PATH").value_hint(clap::ValueHint::AnyPath),
                SettingType::Int { .. } => arg.value_name("N").allow_negative_numbers(true),
                SettingType::Bytes { .. } => arg.value_name("SIZE"),
                SettingType::Duration { .. } => arg.value_name("DURATION"),
                SettingType::List => arg.value_name("A,B"),
                SettingType::Address => arg.value_name("HOST:PORT"),
                SettingType::Share => arg.value_name("SHARE"),
                SettingType::Text => arg.value_name("TEXT"),
            };
            if let Some(alias) = key.alias {
                arg = arg.visible_alias(alias);
            }
            command.arg(arg)
        })
    }
}

impl<const ALL: bool> clap::FromArgMatches for SettingFlags<ALL> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = SettingFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for key in KEYS {
            if matches.value_source(key.name) == Some(ValueSource::CommandLine)
                && let Some(text) = matches.get_one::<String>(key.name)
            {
                self.given.push((key.name, text.clone()));
            }
        }
        Ok(())
    }
}

// The flags are added on demand: some thirty commands have them, and they make up two thirds of the memory in use at
// the start.
impl<const ALL: bool> clap::Args for SettingFlags<ALL> {
    fn augment_args(command: Command) -> Command {
        command.defer(Self::add)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Settings of a command that uses a running service: the usual ones and the address of the service.
#[derive(Clone, Debug, Default)]
pub struct ServiceFlags(pub SettingFlags<false>);

/// Settings for the connection to a service.
const WHERE: &[&str] = &["api.http.address", "api.http.token-file", "api.http.tls.ca"];

impl clap::FromArgMatches for ServiceFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        SettingFlags::from_arg_matches(matches).map(ServiceFlags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl clap::Args for ServiceFlags {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| {
            let command = SettingFlags::<false>::add(command);
            WHERE.iter().fold(command, |command, name| command.mut_arg(*name, |arg| arg.hide(false)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_says_so_in_the_help_and_in_the_file() {
        let help = SettingFlags::<true>::add(Command::new("run").term_width(0)).render_long_help().to_string();
        let file = crate::document::document();
        let idle: Vec<_> = KEYS.iter().filter(|key| key.has_no_effect()).collect();
        assert!(!idle.is_empty());
        for key in idle {
            assert!(key.meaning().contains("No effect"), "{}", key.name);
            for text in [&help, &file] {
                assert!(text.contains(&key.meaning()), "{} is not explained in:\n{text}", key.name);
            }
        }
    }

    #[test]
    fn another_process_gets_the_flags_that_pipelines_depend_on() {
        let line = "anabranch run --preview.pipeline-arch-v2 --db.path --processors.path --api.http.address=x \
                    --processors.path p --connectors.path=c --pipelines.path here";
        let handed_down = handed_down(line.split_whitespace().map(str::to_owned));
        let wanted = ["--preview.pipeline-arch-v2", "--processors.path", "p", "--connectors.path=c"];
        assert_eq!(handed_down, wanted);
    }
}
