//! Dead-letter queues.

use anabranch_plugin::diagnostic::{Diagnostic, Span, Spanned};
use anabranch_plugin::settings::{Setting, Settings};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;

use super::DeadLetterConfig;
use super::field::{FieldReader, Object, Path};
use super::item::spanned;
use super::settings::{bare_name, read_settings_map};
use super::unknown::MapKind;
use super::version::Version;
use super::yaml::Value;
use crate::codes;

/// Maximum size of the window, whose outcomes are kept in memory, one bit each.
pub(super) const MAX_WINDOW: u64 = 1 << 24;

pub(super) fn read_dead_letter_queue(
    object: &mut Object<'_>,
    pipeline: Span,
    version: Version,
    path: Path<'_>,
    reader: &mut FieldReader<'_>,
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
        // The default settings belong to the log plugin; another plugin would reject them.
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
            codes::CONFIG_FIELD_INVALID,
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
    if read && size.value == 0 && threshold.value > 0 {
        let message = format!(
            "\"window-nack-threshold\" has no effect: with `window-size: 0` any number of records may fail, not {}",
            threshold.value
        );
        let finding =
            Diagnostic::warning(codes::CONFIG_NO_EFFECT, message).with_span(threshold.span).with_hint(format!(
                "set the number of latest records to check, for example `window-size: {}`, or remove the threshold",
                threshold.value.saturating_mul(10).clamp(100, MAX_WINDOW)
            ));
        reader.report(finding.with_path(path.name("window-nack-threshold").to_string()));
    }
    reader.report_unknown(&object, MapKind::DeadLetterQueue, path);
    queue
}

/// Default settings of the log plugin.
fn log_settings(span: Span) -> Settings {
    let entries = [("level", "warn"), ("message", "record delivery failed")].map(|(name, value)| Setting {
        name: Spanned::new(name.into(), span),
        value: Written::new(value, value, span),
    });
    Settings { entries: entries.into(), span }
}
