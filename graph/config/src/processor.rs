//! Processors of pipelines and connectors.

use std::collections::HashMap;

use anabranch_plugin::diagnostic::{Diagnostic, Span, Spanned};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;

use super::ProcessorConfig;
use super::field::{FieldReader, Object, Path, Reported};
use super::item::{Item, ItemName, items, read_identified, spanned};
use super::metadata::warn_foreign_keys;
use super::settings::read_settings;
use super::unknown::MapKind;
use super::version::Version;
use super::yaml::Value;
use crate::codes;

/// Maximum number of workers; each is a task with its own copy of the processor.
pub(super) const MAX_WORKERS: u64 = 1024;

/// Reads the valid processors of a pipeline or connector.
pub(super) fn read_processors(
    object: &mut Object<'_>,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Vec<ProcessorConfig> {
    let Some(entry) = object.take("processors") else { return Vec::new() };
    let path = path.name("processors");
    version.ordered(entry, path, reader);
    let Ok(items) = items(entry, version, path, reader) else { return Vec::new() };
    let mut ids = HashMap::new();
    let mut processors = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let errors = reader.errors();
        let processor = read_processor(item, index, version, path.index(index), reader, &mut ids);
        if let Some(processor) = processor
            && reader.errors() == errors
        {
            processors.push(processor);
        }
    }
    processors
}

fn read_processor(
    item: &Item<'_>,
    index: usize,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
    ids: &mut HashMap<Str, Span>,
) -> Option<ProcessorConfig> {
    let unnamed = ItemName { kind: "processor", id: None, index };
    let (mut object, id) = read_identified(item, &unnamed, ids, path, reader)?;
    let name = ItemName { id: id.as_ref(), ..unnamed };
    let plugin = read_processor_plugin(&mut object, &name, version, path, reader).ok();
    let condition = read_condition(&mut object, Applies::Processor, version, path, reader);
    let workers = read_workers(&mut object, path, reader);
    let settings = read_settings(&mut object, plugin.as_ref(), path, reader);
    reader.report_unknown(&object, MapKind::Processor, path);

    let (id, plugin) = id.zip(plugin)?;
    Some(ProcessorConfig {
        workers: workers.unwrap_or(Spanned::new(1, id.span())),
        id: spanned(Some(&id), id.span()),
        plugin: spanned(Some(&plugin), plugin.span()),
        condition,
        settings,
        span: item.span,
    })
}

/// Reads the field `plugin`, called `type` before version 2.2.
fn read_processor_plugin(
    object: &mut Object<'_>,
    name: &ItemName<'_>,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Result<Written, Reported> {
    let old = object.take("type");
    if let Some(entry) = old
        && version >= Version::V2_2
    {
        let finding =
            Diagnostic::warning(codes::CONFIG_FIELD_RENAMED, format!("{name}: \"type\" is the old name of \"plugin\""))
                .with_span(entry.key_span)
                .with_hint("rename the field, and keep its value")
                .with_path(path.name("type").to_string());
        reader.report(match object.get("plugin") {
            None => finding.with_fix(entry.key_span, "type", "plugin"),
            Some(_) => finding,
        });
    }
    if let Some(entry) = object.get("plugin") {
        version.introduced(Version::V2_2, entry, path.name("plugin"), reader);
    }
    let plugin_is_blank = match object.get("plugin").map(|entry| &entry.value.value) {
        None | Some(Value::Null) => true,
        Some(Value::Scalar(scalar)) => scalar.text.trim().is_empty(),
        Some(_) => false,
    };
    match old {
        Some(_) if plugin_is_blank => {
            object.take("plugin");
            reader.required(object, "type", name, path)
        }
        _ if version < Version::V2_2 && plugin_is_blank => reader.required(object, "type", name, path),
        _ => reader.required(object, "plugin", name, path),
    }
}

/// The part that a condition belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Applies {
    Processor,
    Destination,
}

/// Reads a condition; `None` if there is none.
pub(super) fn read_condition(
    object: &mut Object<'_>,
    applies: Applies,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Option<Written> {
    let entry = object.take("condition")?;
    let path = path.name("condition");
    let (since, effect) = match applies {
        Applies::Processor => (Version::V2_1, "the processor applies to every record"),
        Applies::Destination => (Version::V2_2, "the destination receives every record"),
    };
    version.introduced(since, entry, path, reader);
    let text = reader.text(entry, path).ok()??;
    warn_foreign_keys(&text, path, reader);
    if text.value().trim().is_empty() {
        let message = format!("the condition is empty and has no effect: {effect}");
        let finding = Diagnostic::warning(codes::CONFIG_CONDITION_BLANK, message);
        let finding = finding.with_span(text.span()).with_path(path.to_string());
        reader.report(
            finding
                .with_hint("remove the condition, or write one, for example '{{ eq .Operation.String \"create\" }}'"),
        );
        return None;
    }
    Some(text)
}

fn read_workers(object: &mut Object<'_>, path: Path<'_>, reader: &mut FieldReader<'_>) -> Option<Spanned<u32>> {
    let entry = object.take("workers")?;
    let workers = reader.number(entry, MAX_WORKERS, path.name("workers")).ok()??;
    if workers.value == 0 {
        let finding = Diagnostic::warning(
            codes::CONFIG_NO_EFFECT,
            "`workers: 0` counts as 1: a processor has at least one worker",
        )
        .with_span(workers.span)
        .with_path(path.name("workers").to_string());
        reader.report(finding.with_hint("remove `workers`, or remove the processor to disable it"));
    }
    Some(Spanned::new(u32::try_from(workers.value).unwrap_or(u32::MAX).max(1), workers.span))
}
