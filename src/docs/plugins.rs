//! A page for each plugin, generated from its specification.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anabranch_plugin::registry::Registry;
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation};
use anabranch_record::text::Str;

use super::{GENERATED, Page, cell};

/// A role of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads records.
    Source,
    /// Writes records.
    Destination,
    /// Changes records.
    Processor,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Destination => "destination",
            Role::Processor => "processor",
        }
    }
}

/// Returns all plugins of this build by name, each with its roles.
pub fn all(registry: &Registry) -> BTreeMap<Str, Vec<(Role, &Specification)>> {
    let mut all: BTreeMap<Str, Vec<_>> = BTreeMap::new();
    let sources = registry.sources().map(|kind| (Role::Source, kind.specification()));
    let destinations = registry.destinations().map(|kind| (Role::Destination, kind.specification()));
    let processors = registry.operators().map(|kind| (Role::Processor, kind.specification()));
    for (role, specification) in sources.chain(destinations).chain(processors) {
        all.entry(specification.name.clone()).or_default().push((role, specification));
    }
    all
}

/// Builds a page for each plugin, and one that lists them.
pub fn pages(registry: &Registry) -> Vec<Page> {
    let all = all(registry);
    let mut index = format!(
        "{GENERATED}# Plugins\n\nAll plugins of Anabranch and their settings. `anabranch connectors describe \
        NAME` and `anabranch processors describe NAME` print the same.\n"
    );
    for (title, wanted) in [("Connectors", false), ("Processors", true)] {
        let _ = write!(index, "\n## {title}\n\n| name | role | description |\n| --- | --- | --- |\n");
        for (name, roles) in &all {
            let is_processor = roles.iter().any(|(role, _)| *role == Role::Processor);
            if is_processor != wanted {
                continue;
            }
            let words: Vec<&str> = roles.iter().map(|(role, _)| role.word()).collect();
            let mut summaries: Vec<&str> = roles.iter().map(|(_, it)| it.summary.as_str()).collect();
            summaries.dedup();
            let _ = writeln!(index, "| [{name}]({name}.md) | {} | {} |", words.join(", "), cell(&summaries.join(" ")));
        }
    }
    let mut pages = vec![Page { path: "docs/plugins/README.md".to_owned(), text: index }];
    for (name, roles) in &all {
        let mut text = format!("{GENERATED}# {name}\n");
        for (role, specification) in roles {
            about(&mut text, *role, specification);
        }
        pages.push(Page { path: format!("docs/plugins/{name}.md"), text: without_tags(&text) });
    }
    pages
}

/// Escapes `<name>` outside of code, so that Markdown does not take it for an HTML tag.
fn without_tags(text: &str) -> String {
    let mut is_code = false;
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        is_code ^= c == '`';
        if c == '<' && !is_code && rest.peek().is_some_and(char::is_ascii_alphabetic) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Appends the description of a plugin in one role.
pub(super) fn about(text: &mut String, role: Role, specification: &Specification) {
    let Specification { version, summary, description, author, parameters, .. } = specification;
    let _ = write!(text, "\n## As a {}\n\n{}\n\n", role.word(), summary.trim());
    if description.trim() != summary.trim() {
        let _ = write!(text, "{}\n\n", description.trim());
    }
    let _ = write!(text, "```yaml\n{}```\n\n", example(role, specification));
    if parameters.is_empty() {
        let _ = writeln!(text, "The plugin has no settings.");
    } else {
        text.push_str("| setting | type | default | meaning |\n| --- | --- | --- | --- |\n");
        for parameter in parameters {
            let default = match parameter.default.as_deref() {
                None | Some("") => String::new(),
                Some(default) => format!("`{}`", cell(default)),
            };
            let Parameter { name, description, .. } = parameter;
            let _ = writeln!(text, "| `{name}` | {} | {default} | {} |", kind(parameter), cell(description));
        }
    }
    let _ = write!(text, "\n{version}, by {author}.\n");
}

/// Returns a minimal example, with the required settings.
fn example(role: Role, specification: &Specification) -> String {
    let name = &specification.name;
    let mut text = match role {
        Role::Processor => format!("processors:\n  - id: example\n    plugin: {name}\n"),
        _ => format!("connectors:\n  - id: example\n    type: {}\n    plugin: {name}\n", role.word()),
    };
    let set: Vec<&Parameter> =
        specification.parameters.iter().filter(|it| it.is_required() || it.example.is_some()).collect();
    if !set.is_empty() {
        text.push_str("    settings:\n");
    }
    for parameter in set {
        let value = sample(parameter);
        let quoted = serde_json::to_string(&value).unwrap_or_default();
        let _ = writeln!(text, "      {}: {quoted}", parameter.name);
    }
    text
}

/// Returns a valid value of the parameter.
pub(super) fn sample(parameter: &Parameter) -> String {
    match (&parameter.example, parameter.kind) {
        (Some(example), _) => example.to_string(),
        (None, ParameterKind::Reference) => ".Payload.After.name".to_owned(),
        (None, ParameterKind::Int) => "1".to_owned(),
        (None, _) if parameter.secret => format!("${{{}}}", variable(&parameter.name)),
        (None, _) => "...".to_owned(),
    }
}

/// Returns a name for the variable that holds a credential.
fn variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Describes the type and the rules of a value.
fn kind(parameter: &Parameter) -> String {
    let word = match parameter.kind {
        ParameterKind::Text => "text",
        ParameterKind::Int => "integer",
        ParameterKind::Float => "number",
        ParameterKind::Bool => "true or false",
        ParameterKind::Duration => "duration",
        ParameterKind::Bytes => "size",
        ParameterKind::List => "comma-separated list",
        ParameterKind::Reference => "reference",
        ParameterKind::Template => "template",
        ParameterKind::File => "path",
    };
    let mut parts = vec![word.to_owned()];
    let list = |texts: &[Str]| texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ");
    for validation in &parameter.validations {
        parts.push(match validation {
            Validation::Required => "required".to_owned(),
            Validation::GreaterThan(bound) => format!("more than {bound}"),
            Validation::LessThan(bound) => format!("less than {bound}"),
            Validation::OneOf(texts) => format!("one of {}", list(texts)),
            Validation::NotOneOf(texts) => format!("none of {}", list(texts)),
            Validation::Matches(pattern) => format!("matches `{pattern}`"),
            Validation::Within(roots) => format!("within {}", list(roots)),
        });
    }
    if parameter.secret {
        parts.push("secret".to_owned());
    }
    if !parameter.aliases.is_empty() {
        parts.push(format!("also {}", list(&parameter.aliases)));
    }
    cell(&parts.join("; "))
}
