//! Common parts of pipelines, connectors and processors: lists, ids, names and plugins.

use std::collections::HashMap;
use std::fmt;

use anabranch_plugin::diagnostic::{Diagnostic, Span, Spanned};
use anabranch_plugin::written::Written;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;

use super::field::{FieldReader, Object, Path, Reported};
use super::quote::quoted;
use super::version::Version;
use super::yaml::{Entry, Node, Value, with_dash};
use crate::codes;

/// An item in a list of pipelines, connectors or processors.
pub(super) struct Item<'n> {
    pub(super) id: Option<(&'n Str, Span)>,
    pub(super) node: &'n Node,
    pub(super) span: Span,
}

/// Name of an item in messages: its id, or its place in the list if it has no id.
pub(super) struct ItemName<'a> {
    pub(super) kind: &'static str,
    pub(super) id: Option<&'a Written>,
    pub(super) index: usize,
}

impl fmt::Display for ItemName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "{} {}", self.kind, quoted(id.written())),
            None => write!(f, "{} {}", self.kind, self.index + 1),
        }
    }
}

/// Returns the items of a list or, before version 2, of a map by id.
pub(super) fn items<'n>(
    entry: &'n Entry,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
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
                ("a list", "each item starts with `- id: `; only versions 1.0 and 1.1 have maps by id")
            };
            let finding = Diagnostic::error(
                codes::CONFIG_TYPE,
                format!("in version {version} {} must be {wanted}", quoted(&entry.key)),
            )
            .with_span(entry.key_span)
            .with_path(path.to_string());
            Err(reader.report(match as_item(entry, maps, reader.source) {
                Some((name, (span, was, becomes))) => finding
                    .with_hint(format!("each item starts with `- id: `: write `- id: {name}`"))
                    .with_fix(span, was, becomes),
                None => finding.with_hint(hint),
            }))
        }
        (other, maps) => {
            let wanted = if maps { "a map by id" } else { "a list" };
            Err(reader.wrong_type(other, span, &quoted(&entry.key), wanted, path))
        }
    }
}

/// Returns the id of the only entry of a map, and the edit that turns the entry into a list item: a dash before its
/// `id`, or its key as `id`. `None` if the indentation does not permit the edit.
fn as_item<'n>(entry: &'n Entry, maps: bool, source: &str) -> Option<(&'n str, (Span, String, String))> {
    let Value::Map(map) = &entry.value.value else { return None };
    let first = map.entries.first().filter(|_| !maps)?;
    let line = |span: Span| source.get(..span.start as usize).map_or(0, |before| before.matches('\n').count());
    let column = |span: Span| {
        source.get(..span.start as usize).map_or(0, |before| before.len() - before.rfind('\n').map_or(0, |at| at + 1))
    };
    if line(first.key_span) == line(entry.key_span) {
        return None;
    }
    match &first.value.value {
        Value::Scalar(scalar) if first.key == "id" => Some((&scalar.text, with_dash(source, first.key_span)?)),
        Value::Map(fields) if map.entries.len() == 1 => {
            let field = fields.entries.first()?;
            (column(field.key_span) == column(first.key_span) + 2).then_some(())?;
            let (span, was) = (first.key_span, source.get(first.key_span.start as usize..first.key_span.end as usize)?);
            // The replacement includes the colon after the key.
            let span = Span { end: span.end + 1, ..span };
            let whole = source.get(span.start as usize..span.end as usize).filter(|whole| whole.ends_with(':'))?;
            Some((&first.key, (span, whole.to_owned(), format!("- id: {was}"))))
        }
        _ => None,
    }
}

/// Reads an item with its id, which no other item in `ids` has; `None` if the item is not an object.
pub(super) fn read_identified<'n>(
    item: &Item<'n>,
    unnamed: &ItemName<'_>,
    ids: &mut HashMap<Str, Span>,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Option<(Object<'n>, Option<Written>)> {
    let mut object = reader.object(item.node, item.span, &unnamed.to_string(), path).ok()?;
    let id = read_id(item, &mut object, unnamed, path, reader).ok();
    if let Some(id) = &id {
        let name = ItemName { id: Some(id), ..*unnamed };
        check_id(id, &name, path, reader);
        check_unique(id, &name, ids, path, reader);
    }
    Some((object, id))
}

/// Reads the id: the key of the item before version 2, a field from version 2 on.
pub(super) fn read_id(
    item: &Item<'_>,
    object: &mut Object<'_>,
    name: &ItemName<'_>,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Result<Written, Reported> {
    match item.id {
        None => reader.required(object, "id", name, path),
        Some((id, span)) if id.trim().is_empty() => Err(reader.report(
            Diagnostic::error(codes::CONFIG_FIELD_REQUIRED, format!("{name}: \"id\" is required"))
                .with_span(span)
                .with_path(path.name("id").to_string()),
        )),
        Some((id, span)) => Ok(Written::new(id.clone(), id.clone(), span)),
    }
}

/// Rejects ids with control characters, since ids are part of log lines and state keys.
fn check_id(id: &Written, name: &ItemName<'_>, path: Path<'_>, reader: &mut FieldReader<'_>) {
    if id.value().contains(char::is_control) {
        reader.report(
            Diagnostic::error(codes::CONFIG_FIELD_INVALID, format!("{name}: the id contains a control character"))
                .with_span(id.span())
                .with_path(path.name("id").to_string()),
        );
    }
}

fn check_unique(
    id: &Written,
    name: &ItemName<'_>,
    ids: &mut HashMap<Str, Span>,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) {
    match ids.get(id.value()) {
        None => {
            ids.insert(id.value().clone(), id.span());
        }
        Some(first) => {
            reader.report(
                Diagnostic::error(codes::CONFIG_ID_DUPLICATE, format!("{name}: the id is already used"))
                    .with_label(id.span(), "used again")
                    .with_related(*first, "first used here")
                    .with_path(path.name("id").to_string()),
            );
        }
    }
}

pub(super) fn read_text(
    object: &mut Object<'_>,
    field: &str,
    name: &ItemName<'_>,
    max: usize,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Option<Written> {
    let entry = object.take(field)?;
    let text = reader.text(entry, path.name(field)).ok()??;
    reader.check_len(name, field, &text, max, path).ok()?;
    (!text.value().is_empty()).then_some(text)
}

/// Checks that a text is one of two words and returns its index.
pub(super) fn one_of(
    text: &Written,
    field: &str,
    of: &str,
    words: [&str; 2],
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Result<usize, Reported> {
    if let Some(index) = words.iter().position(|word| *word == &**text.value()) {
        return Ok(index);
    }
    let mut finding = Diagnostic::error(
        codes::CONFIG_FIELD_INVALID,
        format!("{of}{field:?} is {}, but must be {:?} or {:?}", quoted(text.written()), words[0], words[1]),
    )
    .with_span(text.span())
    .with_path(path.name(field).to_string());
    if !text.is_substituted() {
        let meant = elsewhere(text.value().trim()).filter(|word| words.contains(word));
        let near = meant.or_else(|| did_you_mean(text.value().trim(), words));
        finding.hint = near.map(|word| format!("did you mean {word:?}?"));
        finding = match meant {
            Some(meant) => finding.with_fix(text.span(), text.value().as_str(), meant),
            None => finding.with_slip(text.span(), text.value(), words),
        };
    }
    Err(reader.report(finding))
}

/// Returns our word for a word of other tools.
fn elsewhere(word: &str) -> Option<&'static str> {
    match word.to_ascii_lowercase().as_str() {
        "sink" | "output" | "out" | "target" | "writer" | "consumer" => Some("destination"),
        "input" | "in" | "reader" | "producer" | "origin" => Some("source"),
        "started" | "start" | "run" | "active" | "enabled" | "true" | "on" => Some("running"),
        "stop" | "paused" | "inactive" | "disabled" | "false" | "off" => Some("stopped"),
        _ => None,
    }
}

pub(super) fn spanned(text: Option<&Written>, otherwise: Span) -> Spanned<Str> {
    match text {
        Some(text) => Spanned::new(text.value().clone(), text.span()),
        None => Spanned::new(Str::default(), otherwise),
    }
}
