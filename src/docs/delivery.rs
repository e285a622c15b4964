//! What is promised for each pair of a source and a destination: what the compiler says of it.

use std::fmt::Write as _;

use anabranch_graph::config::{Variables, load};
use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_picture::{Format, Pass, TextStyle};
use anabranch_plugin::diagnostic::Files;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::specification::Specification;
use anabranch_record::phrase::plural;
use serde_json::Value;

use super::plugins::sample;
use super::{GENERATED, Page};

/// Settings that change what is promised.
const VARIANTS: [(&str, &str); 2] = [("exactlyOnce", "true"), ("durability", "disk")];

/// Settings that say what records of some sources do not.
const SAID: [(&str, &str); 1] = [("table", "rows")];

/// A processor, one of its settings and its value.
pub(crate) type Step = (&'static str, &'static str, &'static str);

const DECODE: Step = ("json.decode", "field", ".Payload.After");
const EXCLUDE: Step = ("field.exclude", "fields", ".Key");
/// What the destination needs may differ from what the source gives: fields in place of bytes, and a key that is an
/// object, or none.
const WAYS: [&[Step]; 4] = [&[], &[DECODE], &[EXCLUDE], &[DECODE, EXCLUDE]];

/// Nothing is opened, so that any text in the right form will do for a credential: the ones that are needed are addresses.
struct Made;

impl Variables for Made {
    fn variable(&self, _: &str) -> Option<String> {
        Some("postgres://user@host/database".to_owned())
    }

    fn file(&self, path: &str) -> Result<String, String> {
        Err(format!("{path} is not read"))
    }
}

/// The page.
pub fn page(registry: &Registry) -> Page {
    let mut text = format!(
        "{GENERATED}# Delivery, for each pair\n\nWhat `anabranch pipelines plan` says of a pipeline with nothing but the two \
         ends. The words are explained under [what is promised](guarantees.md); processors, several destinations and \
         dead letters can change it, and `plan` says how.\n\n\
         | from | to | delivered | order | a crash repeats |\n| --- | --- | --- | --- | --- |\n"
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

/// The fewest steps with which records of the one can be written by the other; none where nothing helps.
pub(crate) fn steps_between(
    registry: &Registry,
    source: &Specification,
    destination: &Specification,
) -> &'static [Step] {
    way(registry, source, destination, None).map_or(&[], |(steps, _)| steps)
}

/// These steps, with what the compiler promises.
fn way(
    registry: &Registry,
    source: &Specification,
    destination: &Specification,
    more: Option<(&str, &str)>,
) -> Option<(&'static [Step], Value)> {
    WAYS.into_iter().find_map(|steps| Some((steps, route(registry, source, destination, more, steps)?)))
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
    let Some((steps, route)) = way(registry, source, destination, more) else {
        let _ = writeln!(text, "| {} | {to} | cannot be combined | | |", source.name);
        return;
    };
    let mut from = source.name.to_string();
    for (i, (plugin, _, field)) in steps.iter().enumerate() {
        let _ = write!(from, "{} `{plugin}` of `{field}`", if i == 0 { ", then" } else { " and" });
    }
    let word = |name: &str| route[name].as_str().unwrap_or_default().replace('-', " ");
    let repeats = match route["replay"]["records"].as_u64() {
        None | Some(0) => "nothing".to_owned(),
        Some(records) => format!("at most {records} {} of a partition", plural(records, "record")),
    };
    let _ = writeln!(text, "| {from} | {to} | {} | {} | {repeats} |", word("delivery"), word("order"));
}

/// What the compiler promises for records from the one to the other.
fn route(
    registry: &Registry,
    source: &Specification,
    destination: &Specification,
    more: Option<(&str, &str)>,
    steps: &[Step],
) -> Option<Value> {
    let connector = |id: &str, role: &str, specification: &Specification, more: Option<(&str, &str)>| {
        let needed = specification.parameters.iter().filter(|it| it.is_required() || it.example.is_some());
        let given = needed.map(|it| (it.name.to_string(), sample(it)));
        let said = SAID.iter().filter(|(name, _)| specification.parameter(name).is_some()).copied();
        let more = said.chain(more).map(|(name, value)| (name.to_owned(), value.to_owned()));
        // What is written below another prefix, or to another path, does not come again.
        let apart = ["prefix", "path"].into_iter().filter(|name| specification.parameter(name).is_some());
        let apart = apart.map(|name| (name.to_owned(), format!("{id}/")));
        let settings: serde_json::Map<String, Value> =
            given.chain(more).chain(apart).map(|(name, value)| (name, Value::from(value))).collect();
        serde_json::json!({ "id": id, "type": role, "plugin": specification.name, "settings": settings })
    };
    let step = |(plugin, setting, field): &Step| {
        let mut settings = serde_json::Map::new();
        settings.insert((*setting).to_owned(), Value::from(*field));
        serde_json::json!({ "id": plugin, "plugin": plugin, "settings": settings })
    };
    let steps: Vec<Value> = steps.iter().map(step).collect();
    let document = serde_json::json!({ "version": "2.2", "pipelines": [{
        "id": "pair",
        "connectors": [
            connector("from", "source", source, None), connector("to", "destination", destination, more),
        ],
        "processors": steps,
    }] });
    let mut files = Files::new();
    files.add("pair.yaml", document.to_string());
    let loaded = load(&files, &Made);
    let compiled = compile(loaded.pipelines.first()?, registry, &CompileOptions::default()).ok()?;
    // What nearly every record fails over is a warning.
    if compiled.warnings.iter().any(|finding| finding.code.starts_with("flow.")) {
        return None;
    }
    let plan = anabranch_picture::explain(&compiled, Pass::Fused, Format::Json, TextStyle::default());
    let mut plan: Value = serde_json::from_str(&plan).ok()?;
    Some(plan["routes"][0].take())
}
