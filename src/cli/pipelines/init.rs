//! `anabranch pipelines init`.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anabranch_config::bare_name;
use anabranch_plugin::destination::DestinationKind;
use anabranch_plugin::registry::{Registry, ResolveError};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation};
use anabranch_process::files::{output, parent_directory, system};
use anabranch_record::code::Code;
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;
use anabranch_service::pipelines::Pipelines;
use anabranch_settings::SettingFlags;
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::json;

use super::gallery::{self, SPLITS, TEMPLATES, Template};
use super::is_yaml;
use crate::cli::completions;
use crate::cli::init::write_new;
use crate::cli::{Context, Exit, Report, compile_options, registry_with};
use crate::codes;
use crate::docs::delivery::processors_between;

/// The demo pipeline.
pub(in crate::cli) const DEMO: &str = include_str!("../templates/demo-pipeline.yaml");
const TEMPLATE: &str = include_str!("../templates/pipeline.yaml.tera");
const HELP: &str = include_str!("../templates/pipelines-init.help.txt");

/// Write a pipeline file.
///
/// Without arguments, writes `demo-pipeline.yaml`, a pipeline that generates a record per second and logs it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(in crate::cli) struct Arguments {
    /// Id and name of the pipeline, and name of its file [default: <source>-to-<destination>].
    name: Option<String>,
    /// Start from a template. `list` lists the templates.
    #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["source", "destination"])]
    template: Option<String>,
    /// Plugin to read from [default: generator].
    #[arg(long, value_name = "PLUGIN", add = completions::sources())]
    source: Option<String>,
    /// Plugin to write to [default: log].
    #[arg(long, value_name = "PLUGIN", add = completions::destinations())]
    destination: Option<String>,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

const COMMAND: &str = "pipelines.init";

pub(super) fn init(arguments: &Arguments, context: &Context) -> Report {
    if arguments.template.as_deref() == Some("list") {
        return templates();
    }
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let registry = registry_with(&settings);
    let (template, generated) = match &arguments.template {
        Some(asked) => match template(asked) {
            Ok(template) => (Some(template), from_template(arguments, template)),
            Err(report) => return *report,
        },
        None => (None, generate(arguments, &registry)),
    };
    let (name, content) = match generated {
        Ok(generated) => generated,
        Err(report) => return *report,
    };
    let file = match &settings.pipelines.path {
        path if is_yaml(path) && !path.is_dir() => path.clone(),
        directory => directory.join(format!("{name}.yaml")),
    };
    if let Err(report) = write(&file, &content, arguments.force) {
        return *report;
    }
    let shown = file.display();
    let options = compile_options(&settings, false);
    let complete = !Pipelines::load(&[&file], &registry, &options).has_errors();
    let next = if complete { "`anabranch run` starts it" } else { "Set the required values in it" };
    let mut result = json!({ "file": shown.to_string(), "pipeline": name, "complete": complete });
    let mut text = format!("Wrote {shown}. ");
    match template {
        None => text.push_str(&format!("{next}.\n")),
        Some(template) => {
            let unset: Vec<&str> =
                template.variables().into_iter().filter(|name| std::env::var_os(name).is_none()).collect();
            if !unset.is_empty() {
                let variables = plural(unset.len() as u64, "variable");
                text.push_str(&format!("It needs the {variables} {}. ", unset.join(", ")));
            }
            let flag = if template.splits() { format!(" {SPLITS}") } else { String::new() };
            text.push_str(&format!("`anabranch run{flag}` starts it.\n"));
            result["template"] = template.name.into();
            result["variables"] = json!(unset);
        }
    }
    Report::new(COMMAND).text(text).result(result)
}

/// Lists the templates.
fn templates() -> Report {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["TEMPLATE", "DESCRIPTION"]);
    for template in TEMPLATES {
        table.add_row([template.name, template.summary()]);
    }
    let shown = |template: &Template| {
        json!({
            "name": template.name, "summary": template.summary(), "variables": template.variables(),
            "splits": template.splits(),
        })
    };
    Report::new(COMMAND)
        .text(format!(
            "{}\n\n`anabranch pipelines init --template TEMPLATE` writes a pipeline from a template.\n",
            table.trim_fmt()
        ))
        .summary(json!({ "templates": TEMPLATES.len() }))
        .result(json!({ "templates": TEMPLATES.iter().map(shown).collect::<Vec<_>>() }))
}

fn template(name: &str) -> Result<&'static Template, Box<Report>> {
    gallery::find(name).map_err(|near| {
        let report =
            refused(Exit::Invalid, codes::PIPELINES_UNKNOWN_TEMPLATE, format!("there is no template {name:?}"));
        report.map(|report| match near {
            Some(near) => report.suggest(format!("did you mean {near}?")),
            None => report.suggest("`anabranch pipelines init --template list` lists them"),
        })
    })
}

/// Returns name and text of a pipeline from a template.
fn from_template(arguments: &Arguments, template: &Template) -> Result<(String, String), Box<Report>> {
    let name = arguments.name.clone().unwrap_or_else(|| template.name.to_owned());
    named(&name)?;
    let text = template.file(&identifier(&name));
    Ok((name, text))
}

/// Returns name and text of a generated pipeline.
fn generate(arguments: &Arguments, registry: &Registry) -> Result<(String, String), Box<Report>> {
    if arguments.name.is_none() && arguments.source.is_none() && arguments.destination.is_none() {
        return Ok(("demo-pipeline".to_owned(), DEMO.to_owned()));
    }
    let source = arguments.source.as_deref().unwrap_or("generator");
    let destination = arguments.destination.as_deref().unwrap_or("log");
    let name = arguments.name.clone().unwrap_or_else(|| format!("{}-to-{}", bare_name(source), bare_name(destination)));
    named(&name)?;
    let (from, to) = (find(registry, source, Side::Source)?, find(registry, destination, Side::Destination)?);
    let processors = processors_between(registry, &from, &to);
    // Two ends with the credentials of one variable would be one place.
    let source_variables = match from.name == to.name {
        true => format!("source_{}", from.name),
        false => from.name.to_string(),
    };
    let context = Generated {
        name: identifier(&name),
        source: Connector::new(source, &from, &source_variables),
        destination: Connector::new(destination, &to, &to.name),
        steps: processors
            .iter()
            .map(|(plugin, setting, value)| GeneratedProcessor { plugin, setting, value })
            .collect(),
    };
    let rendered =
        tera::Context::from_serialize(&context).and_then(|context| tera::Tera::one_off(TEMPLATE, &context, false));
    match rendered {
        Ok(text) => Ok((name, text)),
        Err(error) => {
            Err(refused(Exit::Failed, codes::PIPELINES_TEMPLATE, format!("the template cannot be filled in: {error}")))
        }
    }
}

/// Checks that a pipeline and its file can have this name.
fn named(name: &str) -> Result<(), Box<Report>> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_:.".contains(c);
    if !name.is_empty() && name.len() <= 128 && name.chars().all(allowed) && !name.starts_with('.') {
        return Ok(());
    }
    let message = format!("{name:?} cannot be the id of a pipeline");
    Err(refused(Exit::Invalid, codes::PIPELINES_INVALID_NAME, message)
        .map(|report| report.suggest("use at most 128 letters, digits, `-`, `_`, `:` and `.`; do not begin with `.`")))
}

fn refused(exit: Exit, code: Code, message: String) -> Box<Report> {
    Box::new(Report::new(COMMAND).fail(exit, code, message))
}

trait MapBoxed {
    fn map(self, change: impl FnOnce(Report) -> Report) -> Self;
}

impl MapBoxed for Box<Report> {
    fn map(self, change: impl FnOnce(Report) -> Report) -> Self {
        Box::new(change(*self))
    }
}

#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

/// Returns the destinations that accept ordinary records, not only dead letters.
fn destinations(registry: &Registry) -> impl Iterator<Item = &Arc<dyn DestinationKind>> {
    registry.destinations().filter(|kind| !kind.takes_only_letters())
}

fn find(registry: &Registry, plugin: &str, side: Side) -> Result<Specification, Box<Report>> {
    let found = match side {
        Side::Source => registry.source(plugin).map(|kind| kind.specification().clone()),
        Side::Destination => registry.destination_of_records(plugin).map(|kind| kind.specification().clone()),
    };
    found.map_err(|error| {
        let names = names(registry, side);
        let flag = match side {
            Side::Source => "--source",
            Side::Destination => "--destination",
        };
        let hint = match &error {
            ResolveError::Unknown { near: Some(near), .. } => format!("did you mean {near}?"),
            _ => format!("available: {}", names.join(", ")),
        };
        Box::new(
            Report::new(COMMAND)
                .fail(Exit::Invalid, codes::PIPELINES_UNKNOWN_PLUGIN, format!("{flag}: {error}"))
                .suggest(hint),
        )
    })
}

/// Returns the names of all plugins that can be used on a side, as pipeline files write them.
fn names(registry: &Registry, side: Side) -> Vec<String> {
    let (builtin, files): (Vec<_>, Vec<_>) = match side {
        Side::Source => {
            let files = registry.standalone_connectors().iter().filter_map(|c| c.source.as_ref());
            (registry.sources().map(|k| k.specification()).collect(), files.map(|k| k.specification()).collect())
        }
        Side::Destination => {
            let files = registry.standalone_connectors().iter().filter_map(|c| c.destination.as_ref());
            (destinations(registry).map(|k| k.specification()).collect(), files.map(|k| k.specification()).collect())
        }
    };
    let mut names: Vec<String> = builtin.iter().map(|specification| specification.name.to_string()).collect();
    for Specification { name, .. } in files {
        let in_both = builtin.iter().any(|builtin| builtin.name == *name);
        names.push(if in_both { format!("standalone:{name}") } else { name.to_string() });
    }
    names.dedup();
    names
}

/// Files that `--force` overwrites: never a store.
const TEXT: output::OutputKind = output::OutputKind { what: "a text", is_ours: |_| true };

fn write(file: &Path, content: &str, force: bool) -> Result<(), Box<Report>> {
    let written = std::fs::create_dir_all(parent_directory(file)).and_then(|()| match force {
        true => Ok(output::write(file, TEXT, content)),
        false => write_new(file, content.as_bytes(), 0o644).map(Ok),
    });
    let written = written.map_err(|error| {
        let shown = file.display();
        if error.kind() == ErrorKind::AlreadyExists && file.exists() {
            refused(Exit::Invalid, codes::PIPELINES_INIT_DESTINATION_EXISTS, format!("{shown} already exists"))
                .map(|report| report.suggest("choose another NAME, or add --force to overwrite the file"))
        } else {
            refused(Exit::Environment, codes::CLI_CANNOT_WRITE, format!("cannot write {shown}: {}", system(&error)))
        }
    })?;
    written.map_err(|error| Box::new(Report::new(COMMAND).unwritable(codes::CLI_CANNOT_WRITE, &error)))
}

#[derive(Serialize)]
struct Generated {
    name: String,
    source: Connector,
    destination: Connector,
    /// Processors between source and destination.
    steps: Vec<GeneratedProcessor>,
}

/// A processor with one setting.
#[derive(Serialize)]
struct GeneratedProcessor {
    plugin: &'static str,
    setting: &'static str,
    value: &'static str,
}

#[derive(Serialize)]
struct Connector {
    plugin: String,
    summary: String,
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    /// Comment lines that describe the setting.
    comments: Vec<String>,
    /// `name: value`.
    line: String,
    commented: bool,
}

impl Connector {
    /// The names of the variables for credentials begin with `variables`.
    fn new(plugin: &str, specification: &Specification, variables: &str) -> Self {
        let parameters = specification.parameters.iter();
        Connector {
            plugin: scalar(plugin),
            summary: specification.summary.to_string(),
            settings: parameters.map(|parameter| Setting::new(variables, parameter)).collect(),
        }
    }
}

impl Setting {
    fn new(variables: &str, parameter: &Parameter) -> Self {
        let choices = parameter.validations.iter().find_map(|v| match v {
            Validation::OneOf(texts) => Some(texts),
            _ => None,
        });
        let mut facts = format!("Type: {}.", kind(parameter.kind));
        if let Some(texts) = choices {
            facts.push_str(&format!(" One of: {}.", texts.iter().map(Str::as_str).collect::<Vec<_>>().join(", ")));
        }
        if parameter.is_required() {
            facts.push_str(" Required.");
        }
        if let Some(default) = parameter.default.as_ref().filter(|d| !d.is_empty()) {
            facts.push_str(&format!(" Default: {}.", default.escape_debug()));
        }
        let value = match (parameter.example.as_ref().or(parameter.default.as_ref()), choices) {
            _ if parameter.secret => variable(variables, &parameter.name),
            (Some(value), _) => scalar(value),
            (None, Some(texts)) if parameter.is_required() => texts.first().map_or_else(String::new, |t| scalar(t)),
            (None, _) => "\"\"".to_owned(),
        };
        // A parameter with a star stands for many names; the user fills it in.
        let name = parameter.name.replace('*', "NAME");
        Setting {
            comments: wrapped(&parameter.description).into_iter().chain(wrapped(&facts)).collect(),
            line: format!("{}: {value}", scalar(&name)),
            commented: parameter.example.is_none() && (!parameter.is_required() || parameter.name.contains('*')),
        }
    }
}

/// Wraps text to the width of an editor, given its indentation.
fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 96;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns a variable for a credential, such as `${POSTGRES_URL}`, because files must not contain credentials.
fn variable(prefix: &str, parameter: &str) -> String {
    let name = format!("{prefix}_{parameter}");
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("${{{name}}}")
}

/// Formats a text as a YAML scalar with exactly this value.
fn scalar(text: &str) -> String {
    let plain = !text.is_empty()
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.' || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:@+".contains(c))
        && !text.ends_with(':');
    if plain { text.to_owned() } else { json!(text.replace("${", "$${")).to_string() }
}

/// Formats an id as a YAML scalar, quoted if YAML would parse it as a number or a keyword.
fn identifier(name: &str) -> String {
    let own_word = ["null", "true", "false"].iter().any(|word| name.eq_ignore_ascii_case(word));
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && !own_word {
        scalar(name)
    } else {
        json!(name).to_string()
    }
}

fn kind(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::Text => "text",
        ParameterKind::Int => "integer",
        ParameterKind::Float => "number",
        ParameterKind::Bool => "true or false",
        ParameterKind::Duration => "duration, for example 1m30s",
        ParameterKind::Bytes => "size, for example 64MiB",
        ParameterKind::List => "comma-separated list",
        ParameterKind::Reference => "reference, as .Payload.After.name",
        ParameterKind::Template => "template over the record",
        ParameterKind::File => "path of a file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::registry;

    #[test]
    fn texts_become_scalars_that_mean_them() {
        assert_eq!(scalar("format.type"), "format.type");
        assert_eq!(scalar("1.5"), "1.5");
        assert_eq!(scalar(""), "\"\"");
        assert_eq!(scalar("a, b"), "\"a, b\"");
        assert_eq!(scalar("{{ .Key }}"), "\"{{ .Key }}\"");
        assert_eq!(scalar("${X}"), "\"$${X}\"");
        assert_eq!(scalar("say \"hi\""), "\"say \\\"hi\\\"\"");
    }

    fn loaded(text: &str) -> anabranch_config::Loaded {
        use anabranch_config::{Variables, load};
        use anabranch_plugin::diagnostic::Files;
        struct Nothing;
        impl Variables for Nothing {
            fn variable(&self, name: &str) -> Option<String> {
                Some(format!("postgresql://user@localhost/{}", name.to_ascii_lowercase()))
            }
            fn file(&self, _: &str) -> Result<String, String> {
                Err("no files".into())
            }
        }
        let mut files = Files::new();
        files.add("pipeline.yaml", text);
        load(&files, &Nothing)
    }

    fn findings(text: &str) -> Vec<String> {
        let loaded = loaded(text);
        let options = anabranch_graph::plan::CompileOptions::default();
        let compiled = loaded
            .pipelines
            .iter()
            .filter_map(|config| anabranch_graph::plan::compile(config, &registry(), &options).err());
        let all = compiled.flatten().chain(loaded.diagnostics.clone());
        all.map(|finding| format!("{}: {}", finding.code, finding.message)).collect()
    }

    #[test]
    fn the_demo_is_without_findings() {
        assert_eq!(findings(DEMO), [""; 0]);
    }

    #[test]
    fn generated_files_lack_only_values_for_required_parameters() {
        let registry = registry();
        for source in registry.sources().map(|k| k.specification().name.clone()) {
            for destination in destinations(&registry).map(|k| k.specification().name.clone()) {
                let ends = (Some(source.to_string()), Some(destination.to_string()));
                let arguments = Arguments { name: None, source: ends.0, destination: ends.1, ..named("") };
                let Ok((name, text)) = generate(&arguments, &registry) else { panic!("{source} to {destination}") };
                assert_eq!(name, format!("{source}-to-{destination}"));
                // PostgreSQL's `table` is required after sources that name no collection.
                let is_lack = |finding: &String| {
                    finding.starts_with("settings.required") || finding.starts_with("flow.no_metadata")
                };
                let unexpected: Vec<_> = findings(&text).into_iter().filter(|finding| !is_lack(finding)).collect();
                assert_eq!(unexpected, [""; 0], "{text}");
            }
        }
    }

    #[test]
    fn every_parameter_can_be_uncommented() {
        let registry = registry();
        let specification = registry.destination("file").unwrap().specification().clone();
        let connector = Connector::new("file", &specification, "file");
        assert_eq!(connector.settings.len(), specification.parameters.len());
        for setting in &connector.settings {
            let parsed: std::collections::BTreeMap<String, String> = serde_saphyr::from_str(&setting.line).unwrap();
            assert_eq!(parsed.len(), 1, "{}", setting.line);
        }
    }

    /// Arguments with a name only.
    fn named(name: &str) -> Arguments {
        Arguments {
            name: Some(name.to_owned()),
            template: None,
            source: None,
            destination: None,
            force: false,
            settings: SettingFlags::default(),
        }
    }

    #[test]
    fn every_name_stays_what_it_is() {
        for name in ["orders", "a-b_c", "null", "true", "123", "0x1f", "1.0", "a:", "-", "a:b"] {
            let Ok((_, text)) = generate(&named(name), &registry()) else { panic!("{name}") };
            assert_eq!(findings(&text), [""; 0], "{text}");
            assert_eq!(loaded(&text).pipelines[0].id.value.as_str(), name);
        }
    }

    #[test]
    fn names_that_are_no_ids_are_refused() {
        for name in ["", "a/b", "../x", "a b", ".hidden"] {
            assert!(generate(&named(name), &registry()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn credentials_are_variables() {
        let parameter = Parameter::new("objstore.secret_access_key", ParameterKind::Text, "Key.").secret().required();
        let setting = Setting::new("s3", &parameter);
        assert_eq!(setting.line, "objstore.secret_access_key: ${S3_OBJSTORE_SECRET_ACCESS_KEY}");
        assert!(!setting.commented);
    }
}
