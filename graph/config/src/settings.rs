//! Settings of plugins.

use anabranch_plugin::diagnostic::{Diagnostic, Span, Spanned};
use anabranch_plugin::settings::{Setting, Settings};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;
use serde_saphyr::granit_parser::ScalarStyle;

use super::field::{Field, FieldReader, Object, Path};
use super::interpolate::Dialect;
use super::metadata::{warn_foreign_keys, warn_foreign_keys_of_file};
use super::nested;
use super::quote::quoted;
use super::yaml::{Entry, Scalar, Value};
use crate::codes;

/// Prefix of settings that are also accepted next to `plugin`.
const SCHEMA_PREFIX: &str = "sdk.schema.";

/// Settings that refer to a file with code, which is read together with the pipeline file, each with the plugin that has
/// it.
pub const CODE_PATHS: [(&str, &str); 2] = [("custom.javascript", "script.path"), ("vrl", "program.path")];

/// Reads the settings of a plugin, including those next to `plugin`.
pub(super) fn read_settings(
    object: &mut Object<'_>,
    plugin: Option<&Written>,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
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
                    codes::CONFIG_FIELD_DUPLICATE,
                    format!("{:?} is set next to \"plugin\" and in \"settings\"", entry.key),
                )
                .with_label(entry.key_span, "set here")
                .with_related(first.name.span, "and set here")
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

/// Warns about a comment that looks like the end of a text, because a number sign follows a blank: `no #{{ .Key }}`,
/// `out #1.ndjson`.
fn warn_of_a_comment(entry: &Entry, scalar: &Scalar, path: Path<'_>, reader: &mut FieldReader<'_>) {
    let end = entry.value.span.end as usize;
    let rest = reader.source.get(end..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let comment = rest.trim_start();
    let glued = comment.strip_prefix('#').unwrap_or_default();
    let is_template = glued.starts_with("{{");
    let is_word =
        glued.starts_with(|c: char| c.is_ascii_digit()) && glued.contains('.') && !glued.trim_end().contains(' ');
    if scalar.style != ScalarStyle::Plain || !(is_template || is_word) {
        return;
    }
    let start = (end + rest.len() - comment.len()) as u32;
    let span = Span { start, end: start + comment.trim_end().len() as u32, ..entry.value.span };
    let what = if is_template { "the template after it" } else { "the text after it" };
    let message = format!("{} ends before ` #`: {what} is a comment", quoted(&entry.key));
    let finding = Diagnostic::warning(codes::CONFIG_COMMENT, message).with_span(span).with_path(path.to_string());
    let finding = finding.with_hint("put quotes around the whole text");
    let whole = Span { end: span.end, ..entry.value.span };
    let written = reader.source.get(whole.start as usize..whole.end as usize).unwrap_or_default();
    reader.report(match written.contains('\'') {
        true => finding,
        false => finding.with_fix(whole, written, format!("'{written}'")),
    });
}

pub(super) fn read_settings_map(
    entry: &Entry,
    plugin: Option<&Written>,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
) -> Field<Settings> {
    if matches!(entry.value.value, Value::Null) {
        return Ok(None);
    }
    match &entry.value.value {
        Value::Scalar(scalar) => return read_unnamed(entry, scalar, path, reader),
        Value::List(items) => {
            let finding = Diagnostic::error(codes::CONFIG_TYPE, "\"settings\" must be a map of fields, not a list")
                .with_span(entry.value_span())
                .with_path(path.to_string());
            let start = entry.value_span().start;
            let dash = Span { start, end: start + 2, ..entry.value_span() };
            let is_item = reader.source.get(start as usize..start as usize + 2) == Some("- ");
            return Err(reader.report(match &items[..] {
                [item] if is_item && matches!(item.value, Value::Map(_)) => {
                    finding.with_hint("remove the dash: write settings as names with values").with_fix(dash, "- ", "  ")
                }
                _ => finding.with_hint("write settings as names with values, without dashes"),
            }));
        }
        _ => {}
    }
    let object = reader.object(&entry.value, entry.value_span(), "\"settings\"", path)?;
    let code_path = plugin.and_then(|plugin| {
        let name = bare_name(plugin.value());
        CODE_PATHS.into_iter().find(|(plugin, _)| *plugin == name).map(|(_, setting)| setting)
    });
    let mut settings = Settings { entries: Vec::with_capacity(object.entries().len()), span: object.span() };
    for entry in object.entries() {
        let path = path.name(&entry.key);
        let is_script = code_path.is_some() || entry.key == *"script";
        let value = match &entry.value.value {
            Value::Null => Written::new("", "", entry.value_span()),
            Value::Scalar(scalar) => {
                let dialect = if is_script { Dialect::Script } else { Dialect::Value };
                let Ok(read) = reader.interpolate(scalar, entry.value.span, dialect, path) else { continue };
                warn_of_a_comment(entry, scalar, path, reader);
                read.text
            }
            other => {
                nested::refuse(entry, other, path, reader);
                continue;
            }
        };
        if is_script || value.value().contains("{{") || value.value().starts_with('.') {
            warn_foreign_keys(&value, path, reader);
        }
        let value = match code_path == Some(entry.key.as_str()) && !value.value().trim().is_empty() {
            true => {
                let content = reader.resolver.script(value.value().trim(), reader.name);
                let value = value.with_content(content);
                warn_foreign_keys_of_file(&value, path, reader);
                value
            }
            false => value,
        };
        settings.entries.push(Setting { name: Spanned::new(entry.key.clone(), entry.key_span), value });
    }
    Ok(Some(settings))
}

/// Reads a text in place of a map of settings. It belongs to a setting that only the plugin can determine, so it gets
/// no name.
fn read_unnamed(entry: &Entry, scalar: &Scalar, path: Path<'_>, reader: &mut FieldReader<'_>) -> Field<Settings> {
    let span = entry.value.span;
    let written = reader.source.get(span.start as usize..span.end as usize).unwrap_or_default();
    if let Some((name, value)) = written.split_once('=')
        && scalar.is_plain()
        && !written.contains(['\n', ' '])
    {
        let becomes = format!("{name}: {value}");
        let finding = Diagnostic::error(codes::CONFIG_TYPE, "\"settings\" must be a map of fields, not a single value")
            .with_span(entry.value_span())
            .with_hint(format!("write `{becomes}`"))
            .with_fix(span, written, becomes)
            .with_path(path.to_string());
        return Err(reader.report(finding));
    }
    let value = reader.interpolate(scalar, span, Dialect::Value, path)?.text;
    let unnamed = Setting { name: Spanned::new(Str::default(), entry.key_span), value };
    Ok(Some(Settings { entries: vec![unnamed], span }))
}

/// Returns a plugin reference without prefix and version: `file` for `builtin:file@v0.1.0`.
pub fn bare_name(reference: &str) -> &str {
    let name = reference.split_once(':').map_or(reference, |(_, name)| name);
    name.split_once('@').map_or(name, |(name, _)| name)
}
