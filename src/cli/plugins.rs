//! The `list` and `describe` subcommands of connectors and processors.

use std::fmt::Write as _;

use anabranch_plugin::registry::{Registry, ResolveError};
use anabranch_plugin::specification::{Parameter, Specification, Validation};
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_settings::SettingFlags;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::{Context, Exit, Report, completions, registry_with};
use crate::codes;

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    settings: SettingFlags<false>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DescribeArguments {
    /// Name of the plugin, as pipelines write it.
    #[arg(add = completions::plugins())]
    name: String,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

pub(super) fn list_processors(arguments: &ListArguments, context: &Context) -> Report {
    const COMMAND: &str = "processors.list";
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let registry = registry_with(&settings);
    let mut table = listing(context);
    table.set_header(["NAME", "VERSION", "SUMMARY"]);
    let mut result = Vec::new();
    for kind in registry.operators().chain(registry.standalone_operators()) {
        let specification = kind.specification();
        table.add_row([&specification.name, &specification.version, &specification.summary].map(Str::as_str));
        result.push(identity(specification));
    }
    listed(Report::new(COMMAND), &table, "processors", &result)
}

pub(super) fn list_connectors(arguments: &ListArguments, context: &Context) -> Report {
    const COMMAND: &str = "connectors.list";
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let registry = registry_with(&settings);
    let mut table = listing(context);
    table.set_header(["NAME", "VERSION", "TYPE", "SUMMARY"]);
    let mut result = Vec::new();
    for connector in connectors(&registry) {
        let Some(first) = connector.roles().next() else { continue };
        let roles: Vec<&str> = connector.roles().map(|(role, _)| role).collect();
        let mut summaries: Vec<&str> = connector.roles().map(|(_, s)| s.summary.as_str()).collect();
        summaries.dedup();
        table.add_row([first.1.name.as_str(), &first.1.version, &roles.join(", "), &summaries.join(" ")]);
        let mut entry = identity(first.1);
        entry["types"] = json!(roles);
        entry["summary"] = json!(summaries.join(" "));
        result.push(entry);
    }
    listed(Report::new(COMMAND), &table, "connectors", &result)
}

pub(super) fn describe_processor(arguments: &DescribeArguments, context: &Context) -> Report {
    const COMMAND: &str = "processors.describe";
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let registry = registry_with(&settings);
    let specification = match registry.operator(&arguments.name) {
        Ok(kind) => kind.specification(),
        Err(error) => {
            let names: Vec<String> = registry
                .operators()
                .chain(registry.standalone_operators())
                .map(|k| k.specification().name.to_string())
                .collect();
            return unknown(COMMAND, "processor", &error, &names);
        }
    };
    let mut text = head(specification, None);
    parameters(&mut text, specification, context);
    let mut result = identity(specification);
    result["parameters"] = parameters_json(specification);
    Report::new(COMMAND).text(text).result(result)
}

pub(super) fn describe_connector(arguments: &DescribeArguments, context: &Context) -> Report {
    const COMMAND: &str = "connectors.describe";
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let registry = registry_with(&settings);
    let (source, destination) = (registry.source(&arguments.name), registry.destination(&arguments.name));
    let connector = ConnectorSpecifications {
        source: source.as_ref().ok().map(|kind| kind.specification()),
        destination: destination.as_ref().ok().map(|kind| kind.specification()),
    };
    let Some((_, first)) = connector.roles().next() else {
        let names: Vec<String> =
            connectors(&registry).filter_map(|c| Some(c.roles().next()?.1.name.to_string())).collect();
        // Prefers the error that has a suggestion: a name that is similar in one role is probably the one that is
        // meant.
        let errors = [source.err(), destination.err()].into_iter().flatten();
        let error = errors.max_by_key(|error| !matches!(error, ResolveError::Unknown { near: None, .. }));
        return match error {
            Some(error) => unknown(COMMAND, "connector", &error, &names),
            None => Report::new(COMMAND).fail(Exit::Invalid, codes::PLUGINS_UNKNOWN, "the connector does not exist"),
        };
    };
    let roles: Vec<&str> = connector.roles().map(|(role, _)| role).collect();
    let mut text = head(first, Some(&roles.join(", ")));
    let mut result = identity(first);
    result["types"] = json!(roles);
    for (role, specification) in connector.roles() {
        let _ = write!(text, "\nAs a {role}\n");
        let _ = writeln!(text, "{}", specification.description.trim());
        parameters(&mut text, specification, context);
        result[role] = json!({
            "summary": specification.summary.as_str(),
            "description": specification.description.as_str(),
            "parameters": parameters_json(specification),
        });
    }
    Report::new(COMMAND).text(text).result(result)
}

/// The specifications of a connector, per role.
struct ConnectorSpecifications<'a> {
    source: Option<&'a Specification>,
    destination: Option<&'a Specification>,
}

impl<'a> ConnectorSpecifications<'a> {
    fn roles(&self) -> impl Iterator<Item = (&'static str, &'a Specification)> + use<'a> {
        let source = self.source.map(|specification| ("source", specification));
        let destination = self.destination.map(|specification| ("destination", specification));
        source.into_iter().chain(destination)
    }
}

/// Returns all connectors: the built-in ones by name, then the standalone ones.
fn connectors(registry: &Registry) -> impl Iterator<Item = ConnectorSpecifications<'_>> {
    let standalone = registry.standalone_connectors().iter().map(|connector| ConnectorSpecifications {
        source: connector.source.as_ref().map(|kind| kind.specification()),
        destination: connector.destination.as_ref().map(|kind| kind.specification()),
    });
    let mut by_name = std::collections::BTreeMap::new();
    let none = || ConnectorSpecifications { source: None, destination: None };
    for kind in registry.sources() {
        let specification = kind.specification();
        by_name.entry(specification.name.as_str()).or_insert_with(none).source = Some(specification);
    }
    for kind in registry.destinations() {
        let specification = kind.specification();
        by_name.entry(specification.name.as_str()).or_insert_with(none).destination = Some(specification);
    }
    by_name.into_values().chain(standalone)
}

fn unknown(command: &'static str, what: &str, error: &ResolveError, names: &[String]) -> Report {
    if let ResolveError::WrongRole { name, roles, .. } = error {
        let other = if what == "processor" { "connectors" } else { "processors" };
        return Report::new(command)
            .fail(
                Exit::Invalid,
                codes::PLUGINS_UNKNOWN,
                format!("{name:?} can be used as {roles}, but not as a {what}"),
            )
            .suggest(format!("see `anabranch {other} describe {name}`"));
    }
    let (message, near) = match error {
        ResolveError::Unknown { name, .. } => {
            (format!("there is no {what} {name:?}"), did_you_mean(name, names.iter().map(String::as_str)))
        }
        other => (other.to_string(), None),
    };
    let report = Report::new(command).fail(Exit::Invalid, codes::PLUGINS_UNKNOWN, message);
    match near {
        Some(near) => report.suggest(format!("did you mean {near}?")),
        None => report.suggest(format!("available: {}", names.join(", "))),
    }
}

fn listed(report: Report, table: &Table, what: &str, result: &[Value]) -> Report {
    let count = result.len();
    report.text(format!("{}\n", table.trim_fmt())).summary(json!({ what: count })).result(json!({ what: result }))
}

/// Creates a table as wide as the terminal, or as wide as its content if there is no terminal.
pub(super) fn listing(context: &Context) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if context.terminal {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(anabranch_process::terminal::columns());
    }
    table
}

fn head(specification: &Specification, roles: Option<&str>) -> String {
    let Specification { name, version, summary, description, author, .. } = specification;
    let mut text = format!("{name} {version}");
    if !author.is_empty() {
        let _ = write!(text, ", by {author}");
    }
    text.push('\n');
    if let Some(roles) = roles {
        let _ = writeln!(text, "Type: {roles}");
        return text;
    }
    let _ = write!(text, "\n{summary}\n");
    if description != summary {
        let _ = write!(text, "\n{}\n", description.trim());
    }
    text
}

fn parameters(text: &mut String, specification: &Specification, context: &Context) {
    if specification.parameters.is_empty() {
        text.push_str("\nThe plugin has no settings.\n");
        return;
    }
    let mut table = listing(context);
    table.set_header(["SETTING", "TYPE", "DEFAULT", "RULES", "DESCRIPTION"]);
    for parameter in &specification.parameters {
        let default = match &parameter.default {
            Some(default) if default.is_empty() => "\"\"",
            Some(default) => default.as_str(),
            None => "-",
        };
        table.add_row([parameter.name.as_str(), &kind(parameter), default, &rules(parameter), &parameter.description]);
    }
    let _ = write!(text, "\n{}\n", table.trim_fmt());
}

fn kind(parameter: &Parameter) -> String {
    json!(parameter.kind).as_str().unwrap_or_default().to_owned()
}

/// Describes the validation rules of a parameter, except its type, in words.
fn rules(parameter: &Parameter) -> String {
    let list = |texts: &[Str]| texts.iter().map(Str::as_str).collect::<Vec<_>>().join(", ");
    let mut rules: Vec<String> = parameter
        .validations
        .iter()
        .map(|validation| match validation {
            Validation::Required => "required".to_owned(),
            Validation::GreaterThan(bound) => format!("> {bound}"),
            Validation::LessThan(bound) => format!("< {bound}"),
            Validation::OneOf(texts) => format!("one of {}", list(texts)),
            Validation::NotOneOf(texts) => format!("none of {}", list(texts)),
            Validation::Matches(pattern) => format!("matches {pattern}"),
            Validation::Within(roots) => format!("within {}", list(roots)),
        })
        .collect();
    rules.extend(parameter.secret.then(|| "secret".to_owned()));
    if !parameter.aliases.is_empty() {
        rules.push(format!("also {}", list(&parameter.aliases)));
    }
    if rules.is_empty() { "-".to_owned() } else { rules.join("; ") }
}

fn identity(specification: &Specification) -> Value {
    json!({
        "name": specification.name.as_str(),
        "version": specification.version.as_str(),
        "summary": specification.summary.as_str(),
        "description": specification.description.as_str(),
        "author": specification.author.as_str(),
    })
}

fn parameters_json(specification: &Specification) -> Value {
    let texts = |texts: &[Str]| json!(texts.iter().map(Str::as_str).collect::<Vec<_>>());
    let validation = |validation: &Validation| match validation {
        Validation::Required => json!({ "type": "required" }),
        Validation::GreaterThan(bound) => json!({ "type": "greaterThan", "value": bound }),
        Validation::LessThan(bound) => json!({ "type": "lessThan", "value": bound }),
        Validation::OneOf(values) => json!({ "type": "oneOf", "values": texts(values) }),
        Validation::NotOneOf(values) => json!({ "type": "notOneOf", "values": texts(values) }),
        Validation::Matches(pattern) => json!({ "type": "matches", "value": pattern.as_str() }),
        Validation::Within(roots) => json!({ "type": "within", "values": texts(roots) }),
    };
    let parameter = |parameter: &Parameter| {
        json!({
            "name": parameter.name.as_str(),
            "type": parameter.kind,
            "default": parameter.default.as_ref().map(Str::as_str),
            "description": parameter.description.as_str(),
            "required": parameter.is_required(),
            "secret": parameter.secret,
            "aliases": texts(&parameter.aliases),
            "validations": parameter.validations.iter().map(validation).collect::<Vec<_>>(),
        })
    };
    specification.parameters.iter().map(parameter).collect()
}
