//! Reads YAML trees as pipelines.

use std::collections::HashMap;

use anabranch_plugin::diagnostic::{Diagnostic, Span, Spanned};
use anabranch_plugin::registry::Role;
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;

use super::dead_letter::read_dead_letter_queue;
use super::field::{FieldReader, Object, Path};
use super::item::{Item, ItemName, items, one_of, read_id, read_identified, read_text, spanned};
use super::processor::{Applies, read_condition, read_processors};
use super::settings::read_settings;
use super::unknown::MapKind;
use super::version::Version;
use super::{ConnectorConfig, DesiredStatus, PipelineConfig};
use crate::codes;

pub(super) const MAX_PIPELINE_ID_BYTES: usize = 128;
pub(super) const MAX_PIPELINE_NAME_BYTES: usize = 128;
pub(super) const MAX_DESCRIPTION_BYTES: usize = 8192;
/// Maximum length of `pipeline:connector`.
const MAX_CONNECTOR_ID_BYTES: usize = 256;
const MAX_CONNECTOR_NAME_BYTES: usize = 256;

/// The valid part of a pipeline.
pub(super) struct PartialPipeline {
    /// The valid parts; complete if `sound`.
    pub(super) config: PipelineConfig,
    /// Id, if there is one.
    pub(super) id: Option<Written>,
    /// Name.
    pub(super) name: Option<Written>,
    /// True if the pipeline has no errors.
    pub(super) sound: bool,
}

/// Reads a pipeline of a document.
pub(super) fn read(
    item: &Item<'_>,
    index: usize,
    version: Version,
    reader: &mut FieldReader<'_>,
) -> Option<PartialPipeline> {
    let errors = reader.errors();
    let path = Path::root();
    let unnamed = ItemName { kind: "pipeline", id: None, index };
    let mut object = reader.object(item.node, item.span, &unnamed.to_string(), path).ok()?;

    let id = read_id(item, &mut object, &unnamed, path, reader).ok();
    let name = ItemName { id: id.as_ref(), ..unnamed };
    if let Some(id) = &id {
        check_pipeline_id(id, &name, path, reader);
    }
    let id_or_default = spanned(id.as_ref(), object.head());
    let shown_name = read_text(&mut object, "name", &name, MAX_PIPELINE_NAME_BYTES, path, reader);
    let description = read_text(&mut object, "description", &name, MAX_DESCRIPTION_BYTES, path, reader);
    let status = read_status(&mut object, path, reader);

    let mut connectors = Vec::new();
    if let Some(roles) = read_connectors(&mut object, &id_or_default, version, path, reader, &mut connectors) {
        check_roles(&roles, &name, &object, id_or_default.span, path, reader);
    }
    let processors = read_processors(&mut object, version, path, reader);
    let unmatched = read_text(&mut object, "unmatched", &name, MAX_CONNECTOR_ID_BYTES, path, reader);
    let placement = read_text(&mut object, "placement", &name, MAX_PIPELINE_NAME_BYTES, path, reader);
    let dead_letter_queue = read_dead_letter_queue(&mut object, id_or_default.span, version, path, reader);
    reader.report_unknown(&object, MapKind::Pipeline, path);

    let config = PipelineConfig {
        name: shown_name.as_ref().map_or_else(|| id_or_default.clone(), |name| spanned(Some(name), name.span())),
        id: id_or_default,
        description: description.map(|text| text.value().clone()).unwrap_or_default(),
        status,
        connectors,
        processors,
        unmatched,
        placement,
        dead_letter_queue,
        span: item.span,
    };
    Some(PartialPipeline { config, name: shown_name.or_else(|| id.clone()), id, sound: reader.errors() == errors })
}

fn check_pipeline_id(id: &Written, name: &ItemName<'_>, path: Path<'_>, reader: &mut FieldReader<'_>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.');
    if let Some((at, bad)) = id.value().char_indices().find(|(_, c)| !allowed(*c)) {
        let what = if id.is_substituted() { String::new() } else { format!(" ({bad:?})") };
        reader.report(
            Diagnostic::error(
                codes::CONFIG_FIELD_INVALID,
                format!("{name}: a character that ids cannot contain{what}"),
            )
            .with_span(id.place(at, bad.len_utf8()))
            .with_hint(match id.is_substituted() {
                true => "ids consist of letters A-Z and a-z, digits, `-`, `_`, `:` and `.`".to_owned(),
                false => {
                    let plain: String = id.value().chars().map(|c| if allowed(c) { c } else { '-' }).collect();
                    let plain = plain.trim_matches('-');
                    format!("ids consist of letters A-Z and a-z, digits, `-`, `_`, `:` and `.`, for example `{plain}`")
                }
            })
            .with_path(path.name("id").to_string()),
        );
    }
    // The error is already counted.
    let _ = reader.check_len(name, "id", id, MAX_PIPELINE_ID_BYTES, path);
}

fn read_status(object: &mut Object<'_>, path: Path<'_>, reader: &mut FieldReader<'_>) -> DesiredStatus {
    let Some(entry) = object.take("status") else { return DesiredStatus::default() };
    match reader.text(entry, path.name("status")) {
        Ok(Some(text)) if !text.value().is_empty() => {
            match one_of(&text, "status", "", ["running", "stopped"], path, reader) {
                Ok(1) => DesiredStatus::Stopped,
                _ => DesiredStatus::Running,
            }
        }
        _ => DesiredStatus::default(),
    }
}

/// Adds the valid connectors to `connectors` and returns the roles of all; `None` if some could not be read.
fn read_connectors(
    object: &mut Object<'_>,
    pipeline: &Spanned<Str>,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
    connectors: &mut Vec<ConnectorConfig>,
) -> Option<Vec<Role>> {
    let Some(entry) = object.take("connectors") else { return Some(Vec::new()) };
    let path = path.name("connectors");
    let mut ids = HashMap::new();
    let mut roles = Some(Vec::new());
    for (index, item) in items(entry, version, path, reader).ok()?.iter().enumerate() {
        let errors = reader.errors();
        let path = path.index(index);
        let connector = read_connector(item, index, pipeline, version, path, reader, &mut ids);
        match (&mut roles, &connector) {
            (Some(roles), Some((role, _))) => roles.push(*role),
            _ => roles = None,
        }
        if let Some((_, Some(connector))) = connector
            && reader.errors() == errors
        {
            connectors.push(connector);
        }
    }
    roles
}

/// Reads a connector; `None` if its role is unknown.
fn read_connector(
    item: &Item<'_>,
    index: usize,
    pipeline: &Spanned<Str>,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
    ids: &mut HashMap<Str, Span>,
) -> Option<(Role, Option<ConnectorConfig>)> {
    let unnamed = ItemName { kind: "connector", id: None, index };
    let (mut object, id) = read_identified(item, &unnamed, ids, path, reader)?;
    let name = ItemName { id: id.as_ref(), ..unnamed };
    if let Some(id) = &id {
        let len = pipeline.value.len() + 1 + id.value().len();
        if len > MAX_CONNECTOR_ID_BYTES {
            reader.report(
                Diagnostic::error(
                    codes::CONFIG_FIELD_TOO_LONG,
                    format!(
                        "{name}: with the pipeline's id before it, the id has {len} bytes, \
                         at most {MAX_CONNECTOR_ID_BYTES} are allowed"
                    ),
                )
                .with_span(id.span())
                .with_path(path.name("id").to_string()),
            );
        }
    }
    let role = reader.required(&mut object, "type", &name, path).and_then(|text| {
        let role = one_of(&text, "type", &format!("{name}: "), ["source", "destination"], path, reader)?;
        Ok(Spanned::new(if role == 0 { Role::Source } else { Role::Destination }, text.span()))
    });
    let plugin = reader.required(&mut object, "plugin", &name, path).ok();
    let shown_name = read_text(&mut object, "name", &name, MAX_CONNECTOR_NAME_BYTES, path, reader);
    let condition = match role.as_ref().map(|role| role.value) {
        Ok(Role::Source) => {
            refuse_condition(&mut object, &name, path, reader);
            None
        }
        _ => read_condition(&mut object, Applies::Destination, version, path, reader),
    };
    let settings = read_settings(&mut object, plugin.as_ref(), path, reader);
    let processors = read_processors(&mut object, version, path, reader);
    reader.report_unknown(&object, MapKind::Connector, path);

    let role = role.ok()?;
    let connector = id.zip(plugin).map(|(id, plugin)| ConnectorConfig {
        name: spanned(Some(shown_name.as_ref().unwrap_or(&id)), id.span()),
        id: spanned(Some(&id), id.span()),
        role,
        plugin: spanned(Some(&plugin), plugin.span()),
        condition,
        settings,
        processors,
        span: item.span,
    });
    Some((role.value, connector))
}

/// Reports a condition of a source, which is read as a whole.
fn refuse_condition(object: &mut Object<'_>, name: &ItemName<'_>, path: Path<'_>, reader: &mut FieldReader<'_>) {
    let Some(entry) = object.take("condition") else { return };
    reader.report(
        Diagnostic::error(codes::CONFIG_FIELD_MISPLACED, format!("{name}: a source has no condition"))
            .with_span(entry.key_span)
            .with_hint(
                "to drop records of this source, add `filter` to its `processors`, with the opposite condition: a filter \
                 drops the records for which its condition holds",
            )
            .with_path(path.name("condition").to_string()),
    );
}

fn check_roles(
    roles: &[Role],
    name: &ItemName<'_>,
    object: &Object<'_>,
    id: Span,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) {
    let missing = [
        (Role::Source, codes::CONFIG_NO_SOURCE, "source"),
        (Role::Destination, codes::CONFIG_NO_DESTINATION, "destination"),
    ];
    for (role, code, word) in missing {
        if !roles.contains(&role) {
            reader.report(
                Diagnostic::error(code, format!("{name} has no {word}"))
                    .with_span(object.get("connectors").map_or(id, |entry| entry.key_span))
                    .with_hint(format!("add a connector with `type: {word}`"))
                    .with_path(path.name("connectors").to_string()),
            );
        }
    }
}
