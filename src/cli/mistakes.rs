//! Corrections for command lines that clap refuses.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};

use super::Cli;

/// Returns a corrected form of a command line that clap refuses, if there is an obvious one.
pub(super) fn meant(error: &clap::Error, line: &[String]) -> Option<String> {
    let mut cli = Cli::command();
    cli.build();
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let corrected = match error.kind() {
        ErrorKind::InvalidSubcommand => elsewhere(&cli, &text(ContextKind::InvalidSubcommand)?, line)?,
        ErrorKind::UnknownArgument => {
            let unknown = text(ContextKind::InvalidArg)?;
            value_apart(&cli, &unknown, line)
                .or_else(|| file_first(&unknown, line))
                .or_else(|| of_one(&unknown, line))
                .or_else(|| only_option(&cli, &unknown, line))?
        }
        ErrorKind::ValueValidation => ranges(&text(ContextKind::InvalidValue)?, line)?,
        ErrorKind::TooManyValues => without_value(&text(ContextKind::InvalidArg)?, line)?,
        ErrorKind::MissingRequiredArgument => missing(&cli, line)?,
        _ => return None,
    };
    Some(format!("anabranch {}", corrected.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")))
}

/// Quotes a word for a shell if it needs quotes.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@,+<>|[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the command that a line names, and the number of words that name it.
fn command<'c>(cli: &'c Command, line: &[String]) -> (&'c Command, usize) {
    let mut command = cli;
    let mut last = 0;
    for (i, word) in line.iter().enumerate() {
        if word.starts_with('-') {
            continue;
        }
        match command.find_subcommand(word) {
            Some(found) => (command, last) = (found, i + 1),
            None => break,
        }
    }
    (command, last)
}

/// Corrects a subcommand without its group (`validate`, which is a command of `pipelines`), and a top-level command
/// within a group (`pipelines run`).
fn elsewhere(cli: &Command, name: &str, line: &[String]) -> Option<Vec<String>> {
    let at = line.iter().position(|word| word == name)?;
    let (before, after) = (&line[..at], &line[at + 1..]);
    let is_of_a_group = before.iter().any(|word| !word.starts_with('-'));
    let flags = before.iter().filter(|word| word.starts_with('-')).cloned();
    let whole = |words: &[&str]| -> Vec<String> {
        let after = match words {
            // `run` takes a path only as a flag.
            ["run"] => after
                .iter()
                .flat_map(|word| match word.starts_with('-') {
                    true => vec![word.clone()],
                    false => vec!["--pipelines.path".to_owned(), word.clone()],
                })
                .collect(),
            _ => after.to_vec(),
        };
        flags.clone().chain(words.iter().map(|word| (*word).to_owned())).chain(after).collect()
    };
    if is_of_a_group && cli.find_subcommand(name).is_some_and(|found| !found.has_subcommands()) {
        return Some(whole(&[name]));
    }
    let meant = match name {
        "check" => Some(("pipelines", "validate")),
        "replay" | "purge" => Some(("dlq", name)),
        "rewind" | "reset" => Some(("positions", name)),
        "eval" => Some(("template", name)),
        _ => None,
    };
    let group = |group: &str, name: &str| cli.find_subcommand(group)?.find_subcommand(name).map(|_| ());
    if let Some((of, name)) = meant.filter(|(of, name)| group(of, name).is_some()) {
        return Some(whole(&[of, name]));
    }
    let groups = ["pipelines", "dlq", "positions", "processors", "connectors", "template"];
    let of = groups.into_iter().find(|of| group(of, name).is_some())?;
    Some(whole(&[of, name]))
}

/// Corrects `--api.enabled false`, where the optional value of a flag must be joined with `=`, and `run p.yaml`, where
/// the path needs its flag.
fn value_apart(cli: &Command, unknown: &str, line: &[String]) -> Option<Vec<String>> {
    let at = line.iter().position(|word| word == unknown)?;
    let (command, _) = command(cli, line);
    let before = at.checked_sub(1).and_then(|before| line.get(before));
    let flag = before.and_then(|word| word.strip_prefix("--")).filter(|name| !name.contains('='));
    let joined = flag.is_some_and(|name| {
        command.get_arguments().any(|argument| {
            argument.get_long().is_some_and(|long| long == name)
                && argument.get_num_args().is_some_and(|values| values.min_values() == 0 && values.max_values() > 0)
        })
    });
    if joined && !unknown.starts_with('-') {
        let mut corrected = line.to_vec();
        let value = corrected.remove(at);
        corrected[at - 1] = format!("{}={value}", corrected[at - 1]);
        return Some(corrected);
    }
    if command.get_name() == "run" && !unknown.starts_with('-') {
        let mut corrected = line.to_vec();
        let is_path = unknown.contains(['/', '.', '\\']) || std::path::Path::new(unknown).exists();
        // A pipeline id, so the service probably runs already.
        if !is_path && corrected.len() == 2 {
            return Some(["pipelines", "start", unknown].map(str::to_owned).into());
        }
        corrected.splice(at..=at, ["--pipelines.path".to_owned(), unknown.to_owned()]);
        return Some(corrected);
    }
    None
}

/// Corrects `-c anabranch.yaml` and `--config p.yaml`: flags that other programs have for their files.
fn file_first(unknown: &str, line: &[String]) -> Option<Vec<String>> {
    let flag = unknown.split('=').next()?;
    matches!(flag, "-c" | "-f" | "--config" | "--file" | "--config-file").then_some(())?;
    let at = line.iter().position(|word| word.split('=').next() == Some(flag))?;
    let joined = line[at].split_once('=').map(|(_, value)| value.to_owned());
    let apart = || line.get(at + 1).filter(|word| !word.starts_with('-')).cloned();
    let file = joined.clone().or_else(apart)?;
    let taken = if joined.is_some() { 1 } else { 2 };
    let rest = line[..at].iter().chain(&line[at + taken..]);
    let commands: Vec<&String> = rest.clone().filter(|word| !word.starts_with('-')).collect();
    let flags = rest.filter(|word| word.starts_with('-')).cloned();
    // The settings file is called `anabranch.*`; any other file holds pipelines.
    let is_settings = file.rsplit('/').next().is_some_and(|name| name.starts_with("anabranch."));
    let setting = if is_settings { "--config.path" } else { "--pipelines.path" };
    match commands[..] {
        [] => {}
        [run] if run == "run" => {}
        [pipelines, check] if pipelines == "pipelines" && !is_settings => {
            let words = [pipelines.clone(), check.clone(), file];
            return Some(words.into_iter().chain(flags).collect());
        }
        _ => return None,
    }
    Some(["run".to_owned(), setting.to_owned(), file].into_iter().chain(flags).collect())
}

/// Corrects `pipelines list orders` to `describe`.
fn of_one(unknown: &str, line: &[String]) -> Option<Vec<String>> {
    let at = line.iter().position(|word| word == unknown)?;
    (at >= 2 && matches!(line[at - 1].as_str(), "list" | "ls") && !unknown.starts_with('-')).then_some(())?;
    let group = line[at - 2].as_str();
    matches!(group, "pipelines" | "pipeline" | "connectors" | "connector").then_some(())?;
    let mut corrected = line.to_vec();
    "describe".clone_into(&mut corrected[at - 1]);
    Some(corrected)
}

/// Corrects `backup store.db`: a value without the name of the only option that takes one. Options with a dot in their
/// name are settings of the service and do not count.
fn only_option(cli: &Command, unknown: &str, line: &[String]) -> Option<Vec<String>> {
    let at = line.iter().position(|word| word == unknown && !word.starts_with('-'))?;
    let (command, words) = command(cli, line);
    (at >= words && command.get_positionals().next().is_none()).then_some(())?;
    let mut options = command.get_arguments().filter(|argument| {
        let takes_a_value = argument.get_num_args().is_some_and(|values| values.takes_values());
        let is_of_the_service = argument.get_long().is_none_or(|name| name.contains('.'));
        takes_a_value && !is_of_the_service && !argument.is_hide_set()
    });
    let name = options.next()?.get_long()?;
    let is_given =
        line.iter().any(|word| word.strip_prefix("--").is_some_and(|flag| flag.split('=').next() == Some(name)));
    (options.next().is_none() && !is_given).then_some(())?;
    let mut corrected = line.to_vec();
    corrected.insert(at, format!("--{name}"));
    Some(corrected)
}

/// Corrects `dlq replay orders 1-3`: numbers are separate arguments.
fn ranges(value: &str, line: &[String]) -> Option<Vec<String>> {
    const MOST: u64 = 10;
    let at = line.iter().position(|word| word == value)?;
    let before = line[..at].iter().filter(|word| !word.starts_with('-')).map(String::as_str).collect::<Vec<_>>();
    matches!(before[..], ["dlq", "replay" | "purge", _, ..]).then_some(())?;
    let mut numbers: Vec<u64> = Vec::new();
    for part in value.split(',') {
        let (first, last): (u64, u64) = match part.split_once("..").or_else(|| part.split_once('-')) {
            Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
            None => (part.parse().ok()?, part.parse().ok()?),
        };
        (first <= last && last - first < MOST).then_some(())?;
        numbers.extend(first..=last);
    }
    let mut corrected = line.to_vec();
    corrected.splice(at..=at, numbers.iter().map(u64::to_string));
    Some(corrected)
}

/// Corrects `--once=true`: a flag that takes no value.
fn without_value(flag: &str, line: &[String]) -> Option<Vec<String>> {
    let name = flag.split([' ', '=']).next()?;
    let at = line.iter().position(|word| word.split('=').next() == Some(name))?;
    let mut corrected = line.to_vec();
    match line[at].split_once('=').map(|(_, value)| value) {
        Some("true" | "1" | "yes" | "on") => corrected[at] = name.to_owned(),
        Some("false" | "0" | "no" | "off") => drop(corrected.remove(at)),
        _ => return None,
    }
    Some(corrected)
}

/// Completes a line that lacks required arguments with their names.
fn missing(cli: &Command, line: &[String]) -> Option<Vec<String>> {
    let (command, words) = command(cli, line);
    let given = line[words..].iter().filter(|word| !word.starts_with('-')).count();
    let mut corrected = line.to_vec();
    let values: Vec<&clap::Arg> = command.get_positionals().collect();
    if values.is_empty() {
        return None;
    }
    // Values are inserted before flags.
    let end = corrected.iter().rposition(|word| !word.starts_with('-')).map_or(0, |at| at + 1);
    for (at, value) in (end..).zip(values.iter().skip(given)) {
        let name = value.get_value_names().and_then(|names| names.first()).map_or("VALUE", |name| name.as_str());
        let or_all = command.get_arguments().any(|argument| argument.get_long() == Some("all"));
        let shown = if or_all && value.get_num_args().is_some_and(|values| values.max_values() > 1) {
            "--all".to_owned()
        } else {
            format!("<{name}>")
        };
        corrected.insert(at, shown);
    }
    (corrected != line).then_some(corrected)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn the_right_command_is_told() {
        for (line, meant_line) in [
            ("run --api.enabled false", "run --api.enabled=false"),
            ("run --api.enabled false --once", "run --api.enabled=false --once"),
            ("validate", "pipelines validate"),
            ("--json validate p.yaml", "--json pipelines validate p.yaml"),
            ("plan p.yaml --stage lowered", "pipelines plan p.yaml --stage lowered"),
            ("lint", "pipelines lint"),
            ("apply p.yaml --yes", "pipelines apply p.yaml --yes"),
            ("check a b", "pipelines validate a b"),
            ("start x", "pipelines start x"),
            ("replay x --all", "dlq replay x --all"),
            ("purge x --all", "dlq purge x --all"),
            ("eval '{{ . }}'", "template eval '\\''{{ . }}'\\'''"),
            ("pipelines run p.yaml", "run --pipelines.path p.yaml"),
            ("run p.yaml --once", "run --pipelines.path p.yaml --once"),
            ("dlq replay x --json", "dlq replay x --all --json"),
            ("dlq replay x", "dlq replay x --all"),
            ("dlq show x", "dlq show x <NUMBER>"),
            ("dlq show", "dlq show <PIPELINE> <NUMBER>"),
            ("run --once=true", "run --once"),
            ("validate p.yaml", "pipelines validate p.yaml"),
            ("start t", "pipelines start t"),
            ("run t", "pipelines start t"),
            ("-c p.yaml", "run --pipelines.path p.yaml"),
            ("--config=p.yaml", "run --pipelines.path p.yaml"),
            ("run -c anabranch.yaml --once", "run --config.path anabranch.yaml --once"),
            ("pipelines validate -f p.yaml", "pipelines validate p.yaml"),
            ("pipelines list t", "pipelines describe t"),
            ("pipelines ls t --json", "pipelines describe t --json"),
            ("backup store.db", "backup --to store.db"),
            ("init demo", "init --path demo"),
            ("--json backup store.db", "--json backup --to store.db"),
            ("dlq replay t 1-3", "dlq replay t 1 2 3"),
            ("dlq replay t 1,4..5", "dlq replay t 1 4 5"),
        ] {
            let words: Vec<String> = match line.strip_prefix("eval ") {
                Some(template) => vec!["eval".to_owned(), template.to_owned()],
                None => line.split(' ').map(str::to_owned).collect(),
            };
            let error = Cli::try_parse_from(std::iter::once("anabranch".to_owned()).chain(words.clone())).unwrap_err();
            let meant = meant(&error, &words).unwrap_or_else(|| panic!("{line}: {:?}", error.kind()));
            if line.starts_with("eval") {
                assert!(meant.starts_with("anabranch template eval "), "{meant}");
            } else {
                assert_eq!(meant, format!("anabranch {meant_line}"), "{line}");
            }
        }
    }

    #[test]
    fn nothing_is_made_up() {
        for line in [
            "frobnicate",
            "run --frobnicate",
            "pipelines frobnicate",
            "version x",
            "backup --to a b",
            "-c",
            "dlq replay t 1-",
            "dlq replay t 3-1",
            "dlq replay t 1-99999999",
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = Cli::try_parse_from(std::iter::once("anabranch".to_owned()).chain(words.clone())).unwrap_err();
            assert_eq!(meant(&error, &words), None, "{line}");
        }
    }
}
