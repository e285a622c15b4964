//! Trees read as pipelines.

use std::collections::HashMap;
use std::fmt;

use super::field::{Field, Object, Path, Reader, Reported, quoted};
use super::interpolate::Dialect;
use super::metadata::warn_foreign_keys;
use super::version::Version;
use super::yaml::{Entry, Node, Value};
use super::{
    ConnectorConfig, DeadLetterConfig, DesiredStatus, PipelineConfig, ProcessorConfig, Role, Setting, Settings, Written,
};
use crate::diagnostic::{Diagnostic, Span, Spanned, did_you_mean};
use crate::text::Str;

const MAX_PIPELINE_ID_BYTES: usize = 128;
const MAX_PIPELINE_NAME_BYTES: usize = 128;
const MAX_DESCRIPTION_BYTES: usize = 8192;
/// Of `pipeline:connector`.
const MAX_CONNECTOR_ID_BYTES: usize = 256;
const MAX_CONNECTOR_NAME_BYTES: usize = 256;
/// Every worker is a task with its own copy of the processor.
const MAX_WORKERS: u64 = 1024;
/// The outcomes in the window are kept in memory, one bit each.
const MAX_WINDOW: u64 = 1 << 24;

const PIPELINE_FIELDS: &[&str] =
    &["id", "status", "name", "description", "connectors", "processors", "dead-letter-queue"];
const CONNECTOR_FIELDS: &[&str] = &["id", "type", "plugin", "name", "settings", "processors"];
const PROCESSOR_FIELDS: &[&str] = &["id", "plugin", "condition", "settings", "workers"];
const DEAD_LETTER_FIELDS: &[&str] = &["plugin", "settings", "window-size", "window-nack-threshold"];

/// Settings accepted beside `plugin` as well.
const SCHEMA_PREFIX: &str = "sdk.schema.";

/// A pipeline as far as it could be read.
pub(super) struct Draft {
    /// Its sound parts; all of it where `sound`.
    pub(super) config: PipelineConfig,
    /// The id as written, where there is one.
    pub(super) id: Option<Written>,
    /// The name as written.
    pub(super) name: Option<Written>,
    /// Whether nothing is wrong with it.
    pub(super) sound: bool,
}

/// One of several pipelines, connectors or processors.
pub(super) struct Item<'n> {
    id: Option<(&'n Str, Span)>,
    node: &'n Node,
    span: Span,
}

/// How an item is called in messages: by its id, by its place in the list without one.
struct Name<'a> {
    kind: &'static str,
    id: Option<&'a Written>,
    index: usize,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "{} {}", self.kind, quoted(id.written())),
            None => write!(f, "{} {}", self.kind, self.index + 1),
        }
    }
}

/// The items of a list, or of a map by id before version 2.
pub(super) fn items<'n>(
    entry: &'n Entry,
    version: Version,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Result<Vec<Item<'n>>, Reported> {
    let span = entry.value_span();
    match (&entry.value.value, version.has_maps()) {
        (Value::Null, _) => Ok(Vec::new()),
        (Value::List(nodes), false) => Ok(nodes.iter().map(|node| Item { id: None, node, span: node.span }).collect()),
        (Value::Map(map), true) if !map.like_template => {
            let object = reader.object(&entry.value, span, &quoted(&entry.key), path)?;
            let item = |entry: &'n Entry| Item {
                id: Some((&entry.key, entry.key_span)),
                node: &entry.value,
                span: Span { end: entry.value.span.end.max(entry.key_span.end), ..entry.key_span },
            };
            Ok(object.entries().iter().map(item).collect())
        }
        (Value::Map(_) | Value::List(_), maps) => {
            let (wanted, hint) = if maps {
                ("a map by id", "write `version: 2.2` for a list")
            } else {
                ("a list", "each item starts with `- id: `; maps by id are of versions 1.0 and 1.1")
            };
            let finding = Diagnostic::error(
                "config.type",
                format!("in version {version} {} must be {wanted}", quoted(&entry.key)),
            )
            .with_span(entry.key_span)
            .with_hint(hint)
            .with_path(path.to_string());
            Err(reader.report(finding))
        }
        (other, maps) => {
            let wanted = if maps { "a map by id" } else { "a list" };
            Err(reader.wrong_type(other, span, &quoted(&entry.key), wanted, path))
        }
    }
}

/// The pipelines of a document.
pub(super) fn read(item: &Item<'_>, index: usize, version: Version, reader: &mut Reader<'_>) -> Option<Draft> {
    let errors = reader.errors();
    let path = Path::root();
    let unnamed = Name { kind: "pipeline", id: None, index };
    let mut object = reader.object(item.node, item.span, &unnamed.to_string(), path).ok()?;

    let id = read_id(item, &mut object, &unnamed, path, reader).ok();
    let name = Name { id: id.as_ref(), ..unnamed };
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
    let dead_letter_queue = read_dead_letter_queue(&mut object, id_or_default.span, version, path, reader);
    reader.warn_unknown(&object, "a pipeline", PIPELINE_FIELDS, path);

    let config = PipelineConfig {
        name: shown_name.as_ref().map_or_else(|| id_or_default.clone(), |name| spanned(Some(name), name.span())),
        id: id_or_default,
        description: description.map(|text| text.value().clone()).unwrap_or_default(),
        status,
        connectors,
        processors,
        dead_letter_queue,
        span: item.span,
    };
    Some(Draft { config, name: shown_name.or_else(|| id.clone()), id, sound: reader.errors() == errors })
}

fn spanned(text: Option<&Written>, otherwise: Span) -> Spanned<Str> {
    match text {
        Some(text) => Spanned::new(text.value().clone(), text.span()),
        None => Spanned::new(Str::default(), otherwise),
    }
}

/// The id: the key of the item before version 2, a field since.
fn read_id(
    item: &Item<'_>,
    object: &mut Object<'_>,
    name: &Name<'_>,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Result<Written, Reported> {
    match item.id {
        None => reader.required(object, "id", name, path),
        Some((id, span)) if id.trim().is_empty() => Err(reader.report(
            Diagnostic::error("config.field_required", format!("{name}: \"id\" is required"))
                .with_span(span)
                .with_path(path.name("id").to_string()),
        )),
        Some((id, span)) => Ok(Written::new(id.clone(), id.clone(), span)),
    }
}

fn check_pipeline_id(id: &Written, name: &Name<'_>, path: Path<'_>, reader: &mut Reader<'_>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.');
    if let Some((at, bad)) = id.value().char_indices().find(|(_, c)| !allowed(*c)) {
        let what = if id.is_substituted() { String::new() } else { format!(" ({bad:?})") };
        reader.report(
            Diagnostic::error("config.field_invalid", format!("{name}: a character that ids cannot hold{what}"))
                .with_span(id.place(at, bad.len_utf8()))
                .with_hint("ids are made of letters A-Z and a-z, digits, `-`, `_`, `:` and `.`")
                .with_path(path.name("id").to_string()),
        );
    }
    // The error is counted; there is nothing else to do about it here.
    let _ = reader.check_len(name, "id", id, MAX_PIPELINE_ID_BYTES, path);
}

/// Ids that are part of log lines and of keys of the state.
fn check_id(id: &Written, name: &Name<'_>, path: Path<'_>, reader: &mut Reader<'_>) {
    if id.value().contains(char::is_control) {
        reader.report(
            Diagnostic::error("config.field_invalid", format!("{name}: the id holds a control character"))
                .with_span(id.span())
                .with_path(path.name("id").to_string()),
        );
    }
}

fn read_text(
    object: &mut Object<'_>,
    field: &str,
    name: &Name<'_>,
    max: usize,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Option<Written> {
    let entry = object.take(field)?;
    let text = reader.text(entry, path.name(field)).ok()??;
    reader.check_len(name, field, &text, max, path).ok()?;
    (!text.value().is_empty()).then_some(text)
}

/// A text that must be one of a few; gives the index of the one it is.
fn one_of(
    text: &Written,
    field: &str,
    of: &str,
    words: [&str; 2],
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Result<usize, Reported> {
    if let Some(index) = words.iter().position(|word| *word == &**text.value()) {
        return Ok(index);
    }
    let mut finding = Diagnostic::error(
        "config.field_invalid",
        format!("{of}{field:?} is {}, but must be {:?} or {:?}", quoted(text.written()), words[0], words[1]),
    )
    .with_span(text.span())
    .with_path(path.name(field).to_string());
    if !text.is_substituted() {
        finding.hint = did_you_mean(text.value().trim(), words).map(|word| format!("did you mean {word:?}?"));
    }
    Err(reader.report(finding))
}

fn read_status(object: &mut Object<'_>, path: Path<'_>, reader: &mut Reader<'_>) -> DesiredStatus {
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

/// Adds the sound connectors to `connectors`, and gives the roles of all; `None` where some could not be read.
fn read_connectors(
    object: &mut Object<'_>,
    pipeline: &Spanned<Str>,
    version: Version,
    path: Path<'_>,
    reader: &mut Reader<'_>,
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

/// `None` where the role is unknown.
fn read_connector(
    item: &Item<'_>,
    index: usize,
    pipeline: &Spanned<Str>,
    version: Version,
    path: Path<'_>,
    reader: &mut Reader<'_>,
    ids: &mut HashMap<Str, Span>,
) -> Option<(Role, Option<ConnectorConfig>)> {
    let unnamed = Name { kind: "connector", id: None, index };
    let mut object = reader.object(item.node, item.span, &unnamed.to_string(), path).ok()?;
    let id = read_id(item, &mut object, &unnamed, path, reader).ok();
    let name = Name { id: id.as_ref(), ..unnamed };
    if let Some(id) = &id {
        check_id(id, &name, path, reader);
        check_unique(id, &name, ids, path, reader);
        let len = pipeline.value.len() + 1 + id.value().len();
        if len > MAX_CONNECTOR_ID_BYTES {
            reader.report(
                Diagnostic::error(
                    "config.field_too_long",
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
    let settings = read_settings(&mut object, plugin.as_ref(), path, reader);
    let processors = read_processors(&mut object, version, path, reader);
    reader.warn_unknown(&object, "a connector", CONNECTOR_FIELDS, path);

    let role = role.ok()?;
    let connector = id.zip(plugin).map(|(id, plugin)| ConnectorConfig {
        name: spanned(Some(shown_name.as_ref().unwrap_or(&id)), id.span()),
        id: spanned(Some(&id), id.span()),
        role,
        plugin: spanned(Some(&plugin), plugin.span()),
        settings,
        processors,
        span: item.span,
    });
    Some((role.value, connector))
}

fn check_unique(id: &Written, name: &Name<'_>, ids: &mut HashMap<Str, Span>, path: Path<'_>, reader: &mut Reader<'_>) {
    match ids.get(id.value()) {
        None => {
            ids.insert(id.value().clone(), id.span());
        }
        Some(first) => {
            reader.report(
                Diagnostic::error("config.id_duplicate", format!("{name}: the id is used already"))
                    .with_label(id.span(), "used again")
                    .with_related(*first, "first used here")
                    .with_path(path.name("id").to_string()),
            );
        }
    }
}

fn check_roles(
    roles: &[Role],
    name: &Name<'_>,
    object: &Object<'_>,
    id: Span,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) {
    let missing =
        [(Role::Source, "config.no_source", "source"), (Role::Destination, "config.no_destination", "destination")];
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

/// The sound ones among the processors of a pipeline or connector.
fn read_processors(
    object: &mut Object<'_>,
    version: Version,
    path: Path<'_>,
    reader: &mut Reader<'_>,
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
    reader: &mut Reader<'_>,
    ids: &mut HashMap<Str, Span>,
) -> Option<ProcessorConfig> {
    let unnamed = Name { kind: "processor", id: None, index };
    let mut object = reader.object(item.node, item.span, &unnamed.to_string(), path).ok()?;
    let id = read_id(item, &mut object, &unnamed, path, reader).ok();
    let name = Name { id: id.as_ref(), ..unnamed };
    if let Some(id) = &id {
        check_id(id, &name, path, reader);
        check_unique(id, &name, ids, path, reader);
    }
    let plugin = read_processor_plugin(&mut object, &name, version, path, reader).ok();
    let condition = read_condition(&mut object, version, path, reader);
    let workers = read_workers(&mut object, path, reader);
    let settings = read_settings(&mut object, plugin.as_ref(), path, reader);
    reader.warn_unknown(&object, "a processor", PROCESSOR_FIELDS, path);

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

/// The field `plugin`, or `type` as it was called before version 2.2.
fn read_processor_plugin(
    object: &mut Object<'_>,
    name: &Name<'_>,
    version: Version,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Result<Written, Reported> {
    let old = object.take("type");
    if let Some(entry) = old
        && version >= Version::V2_2
    {
        reader.report(
            Diagnostic::warning("config.field_renamed", format!("{name}: \"type\" is now called \"plugin\""))
                .with_span(entry.key_span)
                .with_hint("rename the field, its value stays")
                .with_path(path.name("type").to_string()),
        );
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

fn read_condition(
    object: &mut Object<'_>,
    version: Version,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Option<Written> {
    let entry = object.take("condition")?;
    let path = path.name("condition");
    version.introduced(Version::V2_1, entry, path, reader);
    let text = reader.text(entry, path).ok()??;
    warn_foreign_keys(&text, path, reader);
    (!text.value().trim().is_empty()).then_some(text)
}

fn read_workers(object: &mut Object<'_>, path: Path<'_>, reader: &mut Reader<'_>) -> Option<Spanned<u32>> {
    let entry = object.take("workers")?;
    let workers = reader.number(entry, MAX_WORKERS, path.name("workers")).ok()??;
    Some(Spanned::new(u32::try_from(workers.value).unwrap_or(u32::MAX).max(1), workers.span))
}

/// The settings of a plugin, with those that stand beside it.
fn read_settings(
    object: &mut Object<'_>,
    plugin: Option<&Written>,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Settings {
    let span = plugin.map_or(object.head(), Written::span);
    let entry = object.take("settings");
    let mut settings = entry
        .and_then(|entry| read_settings_map(entry, plugin, path.name("settings"), reader).ok()?)
        .unwrap_or(Settings { entries: Vec::new(), span });
    for entry in object.take_prefixed(SCHEMA_PREFIX) {
        let path = path.name(&entry.key);
        if let Some(first) = settings.get(&entry.key) {
            reader.report(
                Diagnostic::error(
                    "config.field_duplicate",
                    format!("{:?} is given beside \"plugin\" and inside \"settings\"", entry.key),
                )
                .with_label(entry.key_span, "given beside")
                .with_related(first.name.span, "given inside")
                .with_hint("keep one of them")
                .with_path(path.to_string()),
            );
            continue;
        }
        let Ok(Some(text)) = reader.text(entry, path) else { continue };
        if entry.key.ends_with(".enabled") && reader.check_boolean(&entry.key, &text, path).is_err() {
            continue;
        }
        settings.entries.push(Setting { name: Spanned::new(entry.key.clone(), entry.key_span), value: text });
    }
    settings
}

fn read_settings_map(
    entry: &Entry,
    plugin: Option<&Written>,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> Field<Settings> {
    if matches!(entry.value.value, Value::Null) {
        return Ok(None);
    }
    let object = reader.object(&entry.value, entry.value_span(), "\"settings\"", path)?;
    let is_script_plugin = plugin.is_some_and(|plugin| bare_name(plugin.value()) == "custom.javascript");
    let mut settings = Settings { entries: Vec::with_capacity(object.entries().len()), span: object.span() };
    for entry in object.entries() {
        let path = path.name(&entry.key);
        let is_script = is_script_plugin || entry.key == *"script";
        let value = match &entry.value.value {
            Value::Null => Written::new("", "", entry.value_span()),
            Value::Scalar(scalar) => {
                let dialect = if is_script { Dialect::Script } else { Dialect::Value };
                let Ok(read) = reader.interpolate(scalar, entry.value.span, dialect, path) else { continue };
                read.text
            }
            other => {
                refuse_nested(entry, other, path, reader);
                continue;
            }
        };
        if is_script || value.value().contains("{{") || value.value().starts_with('.') {
            warn_foreign_keys(&value, path, reader);
        }
        settings.entries.push(Setting { name: Spanned::new(entry.key.clone(), entry.key_span), value });
    }
    Ok(Some(settings))
}

fn refuse_nested(entry: &Entry, value: &Value, path: Path<'_>, reader: &mut Reader<'_>) {
    let (found, hint) = match value {
        Value::Map(map) if !map.like_template => {
            let nested = map.entries.first().map_or("name", |nested| &*nested.key);
            ("a map", format!("names of settings have dots: write `{}.{nested}: ...`", entry.key))
        }
        Value::List(_) => ("a list", "write the items as one text, separated by commas".to_owned()),
        _ => {
            reader.wrong_type(value, entry.value_span(), &quoted(&entry.key), "a single value", path);
            return;
        }
    };
    reader.report(
        Diagnostic::error(
            "config.setting_nested",
            format!("the setting {} must be a single value, not {found}", quoted(&entry.key)),
        )
        .with_span(entry.key_span)
        .with_hint(hint)
        .with_path(path.to_string()),
    );
}

/// A plugin reference without prefix and version.
fn bare_name(reference: &str) -> &str {
    let name = reference.split_once(':').map_or(reference, |(_, name)| name);
    name.split_once('@').map_or(name, |(name, _)| name)
}

fn read_dead_letter_queue(
    object: &mut Object<'_>,
    pipeline: Span,
    version: Version,
    path: Path<'_>,
    reader: &mut Reader<'_>,
) -> DeadLetterConfig {
    let default = |span| DeadLetterConfig {
        plugin: Spanned::new(Str::from_static("builtin:log"), span),
        settings: log_settings(span),
        window_size: Spanned::new(1, span),
        window_nack_threshold: Spanned::new(0, span),
        span,
    };
    let Some(entry) = object.take("dead-letter-queue") else { return default(pipeline) };
    let path = path.name("dead-letter-queue");
    version.introduced(Version::V1_1, entry, path, reader);
    let mut queue = default(entry.key_span);
    if matches!(entry.value.value, Value::Null) {
        return queue;
    }
    let Ok(mut object) = reader.object(&entry.value, entry.value_span(), "\"dead-letter-queue\"", path) else {
        return queue;
    };
    queue.span = Span { end: object.span().end.max(entry.key_span.end), ..entry.key_span };

    let mut plugin = None;
    if object.get("plugin").is_some_and(|entry| !matches!(entry.value.value, Value::Null)) {
        plugin = reader.required(&mut object, "plugin", &"dead-letter-queue", path).ok();
    } else {
        object.take("plugin");
    }
    if let Some(plugin) = &plugin {
        queue.plugin = spanned(Some(plugin), plugin.span());
    }
    let given =
        object.take("settings").map(|entry| read_settings_map(entry, plugin.as_ref(), path.name("settings"), reader));
    queue.settings = match given {
        Some(Ok(Some(settings))) => settings,
        // The defaults are those of one plugin, which another would refuse.
        _ if bare_name(&queue.plugin.value) != "log" => Settings { entries: Vec::new(), span: queue.plugin.span },
        _ => log_settings(queue.plugin.span),
    };

    let size = object.take("window-size").map(|entry| reader.number(entry, MAX_WINDOW, path.name("window-size")));
    let threshold = object
        .take("window-nack-threshold")
        .map(|entry| reader.number(entry, MAX_WINDOW, path.name("window-nack-threshold")));
    let read = !matches!((size, threshold), (Some(Err(_)), _) | (_, Some(Err(_))));
    if let Some(Ok(Some(size))) = size {
        queue.window_size = size;
    }
    if let Some(Ok(Some(threshold))) = threshold {
        queue.window_nack_threshold = threshold;
    }
    let (size, threshold) = (queue.window_size, queue.window_nack_threshold);
    if read && size.value > 0 && size.value <= threshold.value {
        let finding = Diagnostic::error(
            "config.field_invalid",
            format!(
                "dead-letter-queue: \"window-nack-threshold\" is {}, but must be lower than \"window-size\", which is {}",
                threshold.value, size.value
            ),
        )
        .with_span(if threshold.span == entry.key_span { size.span } else { threshold.span })
        .with_hint(format!("write `window-size: {}` or more, or 0 for no limit", threshold.value.saturating_add(1)))
        .with_path(path.name("window-nack-threshold").to_string());
        reader.report(finding);
    }
    reader.warn_unknown(&object, "a dead-letter queue", DEAD_LETTER_FIELDS, path);
    queue
}

/// What the log plugin gets where the file gives it no settings.
fn log_settings(span: Span) -> Settings {
    let entries = [("level", "warn"), ("message", "record delivery failed")].map(|(name, value)| Setting {
        name: Spanned::new(name.into(), span),
        value: Written::new(value, value, span),
    });
    Settings { entries: entries.into(), span }
}
