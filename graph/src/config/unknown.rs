//! Fields that a map does not have: slips, fields of other maps, and those that nobody knows.

use super::field::{Object, Path, Reader, quoted};
use super::yaml::{Entry, Value};
use crate::diagnostic::{Diagnostic, did_you_mean, slip};

/// The kind of a map, and its fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Document,
    Pipeline,
    Connector,
    Processor,
    DeadLetterQueue,
}

impl Part {
    const ALL: [Part; 5] = [Part::Pipeline, Part::Connector, Part::Processor, Part::DeadLetterQueue, Part::Document];

    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Part::Document => &["version", "pipelines"],
            Part::Pipeline => &["id", "status", "name", "description", "connectors", "processors", "dead-letter-queue"],
            Part::Connector => &["id", "type", "plugin", "name", "settings", "processors"],
            Part::Processor => &["id", "plugin", "condition", "settings", "workers"],
            Part::DeadLetterQueue => &["plugin", "settings", "window-size", "window-nack-threshold"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Part::Document => "a document",
            Part::Pipeline => "a pipeline",
            Part::Connector => "a connector",
            Part::Processor => "a processor",
            Part::DeadLetterQueue => "a dead-letter queue",
        }
    }

    /// Names that fields have in other tools.
    fn elsewhere(self, key: &str) -> Option<&'static str> {
        match (self, key) {
            (Part::Document, "pipeline") => Some("pipelines"),
            (Part::Pipeline, "dlq" | "deadletters" | "dead-letters" | "dead_letters") => Some("dead-letter-queue"),
            (Part::Pipeline | Part::Connector, "steps" | "transforms" | "transformations") => Some("processors"),
            (Part::Processor, "if" | "when" | "filter") => Some("condition"),
            _ => None,
        }
    }
}

impl Reader<'_> {
    /// Reports the fields that nobody took. One that stands in the wrong place, or is misspelt, is an error: what it
    /// says would not be done. Others are ignored with a warning.
    pub(super) fn report_unknown(&mut self, object: &Object<'_>, part: Part, path: Path<'_>) {
        let known = part.fields();
        // A name that is given already cannot be what another was meant to be.
        let free: Vec<&str> = known.iter().copied().filter(|name| object.get(name).is_none()).collect();
        let empty_settings = object.get("settings").filter(|settings| matches!(settings.value.value, Value::Null));
        for entry in object.untaken() {
            let path = path.name(&entry.key);
            let key = quoted(&entry.key);
            let finding = if let Some(meant) = meant(part, &entry.key, &free) {
                Diagnostic::error("config.field_misspelt", format!("{} has no field {key}", part.name()))
                    .with_fix(entry.key_span, entry.key.as_str(), meant)
                    .with_hint(format!("did you mean {meant:?}?"))
            } else if let Some(finding) = empty_settings.and_then(|settings| beside_settings(settings, entry)) {
                finding
            } else if let Some(finding) = misplaced(part, entry) {
                finding
            } else {
                let hint = match did_you_mean(&entry.key, free.iter().copied()) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None if known.contains(&"settings") => {
                        format!("settings of the plugin stand below `settings`; the fields are: {}", known.join(", "))
                    }
                    None => format!("the fields are: {}", known.join(", ")),
                };
                let message = format!("{} has no field {key}; it is ignored", part.name());
                Diagnostic::warning("config.field_unknown", message).with_hint(hint)
            };
            self.report(finding.with_span(entry.key_span).with_path(path.to_string()));
        }
    }
}

/// The field that is meant: the same letters, one letter away, or its name elsewhere.
fn meant<'a>(part: Part, key: &str, free: &[&'a str]) -> Option<&'a str> {
    let letters =
        |text: &str| text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let same = free.iter().copied().find(|name| letters(name) == letters(key));
    let known_elsewhere = Part::ALL.iter().any(|other| other.fields().contains(&key));
    same.or_else(|| slip(key, free.iter().copied()).filter(|_| !known_elsewhere)).or_else(|| {
        let name = part.elsewhere(key)?;
        free.iter().copied().find(|free| *free == name)
    })
}

/// A field behind `settings:` without anything below it: it is indented too little.
fn beside_settings(settings: &Entry, entry: &Entry) -> Option<Diagnostic> {
    let behind = entry.key_span.start > settings.key_span.start;
    (behind && matches!(entry.value.value, Value::Scalar(_))).then(|| {
        Diagnostic::error(
            "config.field_misplaced",
            format!("{} stands beside `settings:`, not below it", quoted(&entry.key)),
        )
        .with_hint("indent it with two more spaces")
        .with_fix(entry.key_span, "", "  ")
    })
}

/// A field of another part.
fn misplaced(part: Part, entry: &Entry) -> Option<Diagnostic> {
    let key = entry.key.as_str();
    let owners: Vec<&str> = Part::ALL
        .iter()
        .filter(|other| **other != part && other.fields().contains(&key))
        .map(|other| other.name())
        .collect();
    let (last, others) = owners.split_last()?;
    let owners = if others.is_empty() { (*last).to_owned() } else { format!("{} or {last}", others.join(", ")) };
    let hint = match (part, key) {
        (Part::Connector, "condition") => {
            let condition = match &entry.value.value {
                Value::Scalar(scalar) => scalar.text.trim().strip_prefix("{{").and_then(|text| text.strip_suffix("}}")),
                _ => None,
            };
            let condition = condition.map_or("…", str::trim);
            format!(
                "give the connector a processor that drops the other records: `processors: [{{ id: only, plugin: filter, \
                 condition: '{{{{ not ({condition}) }}}}' }}]`"
            )
        }
        (Part::Document, _) => "indent it below the `- id:` of a pipeline".to_owned(),
        (_, "dead-letter-queue" | "status" | "connectors") => "move it to the pipeline".to_owned(),
        (_, "workers" | "condition") => "move it to a processor".to_owned(),
        (_, "window-size" | "window-nack-threshold") => "move it below `dead-letter-queue:`".to_owned(),
        (_, "version" | "pipelines") => "move it to the top of the document".to_owned(),
        (Part::Pipeline, _) => "move it to a connector or processor".to_owned(),
        _ => "remove it, or move it there".to_owned(),
    };
    let message = format!("{} has no field {}: it belongs to {owners}", part.name(), quoted(key));
    Some(Diagnostic::error("config.field_misplaced", message).with_hint(hint))
}
