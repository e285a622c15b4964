//! The page on delivery guarantees of each pair of a source and a destination, as computed by the compiler.

use std::fmt::Write as _;

use anabranch_config::{Variables, load};
use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_picture::{Format, Pass, TextStyle};
use anabranch_plugin::diagnostic::Files;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::specification::Specification;
use anabranch_record::phrase::plural;
use serde_json::Value;

use super::plugins::sample;
use super::{GENERATED, Page};

/// Settings that change the guarantees.
const VARIANTS: [(&str, &str); 2] = [("exactlyOnce", "true"), ("durability", "disk")];

/// Settings for values that records of some sources do not contain.
const SAID: [(&str, &str); 1] = [("table", "rows")];

/// A processor, one of its settings, and its value.
pub(crate) type ProcessorSetting = (&'static str, &'static str, &'static str);

const DECODE: ProcessorSetting = ("json.decode", "field", ".Payload.After");
const EXCLUDE: ProcessorSetting = ("field.exclude", "fields", ".Key");
/// The processors to try between a source and a destination. The destination may need fields instead of raw bytes, and
/// a key that is an object, or no key.
const WAYS: [&[ProcessorSetting]; 4] = [&[], &[DECODE], &[EXCLUDE], &[DECODE, EXCLUDE]];

/// Placeholder values for variables. Nothing is opened, so any text in the right form will do. The required credentials
/// are addresses.
struct PlaceholderVariables;

impl Variables for PlaceholderVariables {
    fn variable(&self, _: &str) -> Option<String> {
        Some("postgres://user@host/database".to_owned())
    }

    fn file(&self, path: &str) -> Result<String, String> {
        Err(format!("{path} is not read"))
    }
}

/// Builds the page.
pub fn page(registry: &Registry) -> Page {
    let mut text = format!(
        "{GENERATED}# Delivery, for each pair\n\nThe guarantees that `anabranch pipelines plan` reports for a pipeline with \
         only these two connectors. [Guarantees](guarantees.md) explains the words. Processors, several destinations and \
         dead letters can change the guarantees; `plan` shows how.\n\n\
         | source | destination | delivery | order | repeated after a crash |\n| --- | --- | --- | --- | --- |\n"
    );
    for source in registry.sources().map(|kind| kind.specification()) {
        for destination in registry.destinations().map(|kind| kind.specification()) {
            row(&mut text, registry, source, destination, None);
            for (name, value) in VARIANTS {
                if destination.parameter(name).is_some() {
                    row(&mut text, registry, source, destination, Some((name, value)));
                }
            }
        }
    }
    Page { path: "docs/delivery.md".to_owned(), text }
}

/// Returns the shortest sequence of processors after which the destination can write the records of the source; empty
/// if none helps.
pub(crate) fn processors_between(
    registry: &Registry,
    source: &Specification,
    destination: &Specification,
) -> &'static [ProcessorSetting] {
    way(registry, source, destination, None).map_or(&[], |(processors, _)| processors)
}

/// Returns these processors, with the guarantees of the compiler.
fn way(
    registry: &Registry,
    source: &Specification,
    destination: &Specification,
    more: Option<(&str, &str)>,
) -> Option<(&'static [ProcessorSetting], Value)> {
    WAYS.into_iter().find_map(|processors| Some((processors, route(registry, source, destination, more, processors)?)))
}

fn row(
    text: &mut String,
    registry: &Registry,
    source: &Specification,
    destination: &Specification,
    more: Option<(&str, &str)>,
) {
    let to = match more {
        None => destination.name.to_string(),
        Some((name, value)) => format!("{} with `{name}: {value}`", destination.name),
    };
    let Some((processors, route)) = way(registry, source, destination, more) else {
        let _ = writeln!(text, "| {} | {to} | cannot be combined | | |", source.name);
        return;
    };
    let mut from = source.name.to_string();
    for (i, (plugin, _, field)) in processors.iter().enumerate() {
        let _ = write!(from, "{} `{plugin}` of `{field}`", if i == 0 { ", then" } else { " and" });
    }
    let word = |name: &str| route[name].as_str().unwrap_or_default().replace('-', " ");
    let replay = &route["replay"];
    let repeats = match (replay["all"].as_str(), replay["records"].as_u64()) {
        _ if replay["bySenders"] == true => "what senders repeat, because it was not confirmed".to_owned(),
        (Some(place), _) => format!("all records {place}"),
        (None, None | Some(0)) => "nothing".to_owned(),
        (None, Some(records)) => format!("at most {records} {} of a partition", plural(records, "record")),
    };
    let _ = writeln!(text, "| {from} | {to} | {} | {} | {repeats} |", word("delivery"), word("order"));
}

/// Returns the guarantees of the compiler for records from the source to the destination.
fn route(
    registry: &Registry,
    source: &Specification,
    destination: &Specification,
    more: Option<(&str, &str)>,
    processors: &[ProcessorSetting],
) -> Option<Value> {
    let connector = |id: &str, role: &str, specification: &Specification, more: Option<(&str, &str)>| {
        let needed = specification.parameters.iter().filter(|it| it.is_required() || it.example.is_some());
        let given = needed.map(|it| (it.name.to_string(), sample(it)));
        let has = |name: &str| specification.parameters.iter().any(|parameter| parameter.name == *name);
        let said = SAID.iter().filter(|(name, _)| has(name)).copied();
        let more = said.chain(more).map(|(name, value)| (name.to_owned(), value.to_owned()));
        // Different names prevent the source from reading the output again.
        let apart = [("prefix", "/"), ("path", "/"), ("topics", ""), ("topic", "")];
        let apart = apart.into_iter().filter(|(name, _)| specification.parameter(name).is_some());
        let apart = apart.map(|(name, end)| (name.to_owned(), format!("{id}{end}")));
        let settings: serde_json::Map<String, Value> =
            given.chain(more).chain(apart).map(|(name, value)| (name, Value::from(value))).collect();
        serde_json::json!({ "id": id, "type": role, "plugin": specification.name, "settings": settings })
    };
    let processor = |(plugin, setting, field): &ProcessorSetting| {
        let mut settings = serde_json::Map::new();
        settings.insert((*setting).to_owned(), Value::from(*field));
        serde_json::json!({ "id": plugin, "plugin": plugin, "settings": settings })
    };
    let processors: Vec<Value> = processors.iter().map(processor).collect();
    let document = serde_json::json!({ "version": "2.2", "pipelines": [{
        "id": "pair",
        "connectors": [
            connector("from", "source", source, None), connector("to", "destination", destination, more),
        ],
        "processors": processors,
    }] });
    let mut files = Files::new();
    files.add("pair.yaml", document.to_string());
    let loaded = load(&files, &PlaceholderVariables);
    let compiled = compile(loaded.pipelines.first()?, registry, &CompileOptions::default()).ok()?;
    // If nearly every record would fail, the compiler only warns.
    if compiled.warnings.iter().any(|finding| finding.code.name().starts_with("flow.")) {
        return None;
    }
    let plan = anabranch_picture::explain(&compiled, Pass::Fused, Format::Json, TextStyle::default());
    let mut plan: Value = serde_json::from_str(&plan).ok()?;
    Some(plan["routes"][0].take())
}
