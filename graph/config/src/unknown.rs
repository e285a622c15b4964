//! Fields that a map does not have: misspelt, misplaced and unknown fields.

use anabranch_plugin::diagnostic::{Diagnostic, Span};
use anabranch_record::near::{did_you_mean, slip};

use super::field::{FieldReader, Object, Path};
use super::quote::quoted;
use super::yaml::{Entry, Value};
use crate::codes;

/// The kind of a map, which determines its fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MapKind {
    Document,
    Pipeline,
    Connector,
    Processor,
    DeadLetterQueue,
}

impl MapKind {
    const ALL: [MapKind; 5] =
        [MapKind::Pipeline, MapKind::Connector, MapKind::Processor, MapKind::DeadLetterQueue, MapKind::Document];

    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            MapKind::Document => &["version", "pipelines"],
            MapKind::Pipeline => &[
                "id",
                "status",
                "name",
                "description",
                "connectors",
                "processors",
                "unmatched",
                "placement",
                "dead-letter-queue",
            ],
            MapKind::Connector => &["id", "type", "plugin", "name", "condition", "settings", "processors"],
            MapKind::Processor => &["id", "plugin", "condition", "settings", "workers"],
            MapKind::DeadLetterQueue => &["plugin", "settings", "window-size", "window-nack-threshold"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            MapKind::Document => "a document",
            MapKind::Pipeline => "a pipeline",
            MapKind::Connector => "a connector",
            MapKind::Processor => "a processor",
            MapKind::DeadLetterQueue => "a dead-letter queue",
        }
    }

    /// Returns the field for a name that other tools use.
    fn elsewhere(self, key: &str) -> Option<&'static str> {
        match (self, key) {
            (MapKind::Document, "pipeline") => Some("pipelines"),
            (MapKind::Pipeline, "dlq" | "deadletters" | "dead-letters" | "dead_letters") => Some("dead-letter-queue"),
            (MapKind::Pipeline, "state") => Some("status"),
            (MapKind::Pipeline | MapKind::Connector, "steps" | "transforms" | "transformations" | "filters") => {
                Some("processors")
            }
            (MapKind::Pipeline, "otherwise" | "default-route" | "no-match" | "unrouted") => Some("unmatched"),
            (MapKind::Pipeline, "labels" | "affinity" | "node" | "nodes") => Some("placement"),
            (MapKind::Processor | MapKind::Connector, "if" | "when" | "filter" | "cond" | "where" | "only-if") => {
                Some("condition")
            }
            _ => None,
        }
    }
}

impl FieldReader<'_> {
    /// Reports the fields that were not read. A misplaced or misspelt field is an error, because it would have no
    /// effect. Other fields are ignored with a warning.
    pub(super) fn report_unknown(&mut self, object: &Object<'_>, part: MapKind, path: Path<'_>) {
        let known = part.fields();
        // A name that is already given cannot be the correction.
        let free: Vec<&str> = known.iter().copied().filter(|name| object.get(name).is_none()).collect();
        let empty_settings = object.get("settings").filter(|settings| matches!(settings.value.value, Value::Null));
        for entry in object.untaken() {
            let path = path.name(&entry.key);
            let key = quoted(&entry.key);
            let finding = if let Some(finding) = switched(part, entry).or_else(|| routed(part, entry)) {
                finding
            } else if let Some(meant) = meant(part, &entry.key, &free) {
                Diagnostic::error(codes::CONFIG_FIELD_MISSPELT, format!("{} has no field {key}", part.name()))
                    .with_fix(entry.key_span, entry.key.as_str(), meant)
                    .with_hint(format!("did you mean {meant:?}?"))
            } else if let Some(finding) = empty_settings.and_then(|settings| beside_settings(settings, entry)) {
                finding
            } else if let Some(finding) = misplaced(part, entry) {
                finding
            } else if let Some(near) = near(&entry.key, known.iter().copied()) {
                let given = if free.contains(&near) { "" } else { ", which is already set" };
                Diagnostic::error(codes::CONFIG_FIELD_MISSPELT, format!("{} has no field {key}", part.name()))
                    .with_hint(format!("did you mean {near:?}{given}?"))
            } else {
                let hint = match did_you_mean(&entry.key, free.iter().copied()) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None if known.contains(&"settings") => {
                        format!("write settings of the plugin below `settings`; the fields are: {}", known.join(", "))
                    }
                    None => format!("the fields are: {}", known.join(", ")),
                };
                let message = format!("{} has no field {key}; it is ignored", part.name());
                Diagnostic::warning(codes::CONFIG_FIELD_UNKNOWN, message).with_hint(hint)
            };
            self.report(finding.with_span(entry.key_span).with_path(path.to_string()));
        }
    }
}

/// Returns the field that is probably meant: the same letters, one letter different, or the name of another tool.
fn meant<'a>(part: MapKind, key: &str, free: &[&'a str]) -> Option<&'a str> {
    let letters =
        |text: &str| text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let same = free.iter().copied().find(|name| letters(name) == letters(key));
    let known_elsewhere = MapKind::ALL.iter().any(|other| other.fields().contains(&key));
    same.or_else(|| slip(key, free.iter().copied()).filter(|_| !known_elsewhere)).or_else(|| {
        let name = part.elsewhere(key)?;
        free.iter().copied().find(|free| *free == name)
    })
}

/// Returns the name that is probably meant by a longer name with a few wrong letters. Similarity of short names is
/// coincidental.
fn near<'a>(key: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONG: usize = 6;
    let long = |name: &str| name.chars().count() >= LONG;
    did_you_mean(key, names.into_iter().filter(|name| long(name))).filter(|_| long(key))
}

/// Reports a switch of another tool that starts or stops a pipeline, or disables a part of it.
fn switched(part: MapKind, entry: &Entry) -> Option<Diagnostic> {
    let Value::Scalar(scalar) = &entry.value.value else { return None };
    let is_yes = |text: &str| matches!(text.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1");
    let is_stopped = match entry.key.as_str() {
        "enabled" | "active" | "enable" => !is_yes(scalar.text.trim()),
        "autostart" if part == MapKind::Pipeline => !is_yes(scalar.text.trim()),
        "disabled" | "paused" | "skip" | "disable" | "skipped" => is_yes(scalar.text.trim()),
        _ => return None,
    };
    let hint = match (part, is_stopped) {
        (MapKind::Pipeline, true) => "write `status: stopped`",
        (MapKind::Pipeline, false) => "remove it: `status: running` is the default",
        (MapKind::Processor, true) => "remove the processor, or write `condition: 'false'`",
        (MapKind::Connector, true) => "remove the connector, or write `status: stopped` for the whole pipeline",
        (MapKind::Processor | MapKind::Connector, false) => {
            "remove it: every processor and connector of a pipeline is used"
        }
        (MapKind::Document | MapKind::DeadLetterQueue, _) => return None,
    };
    let message = format!("{} has no field {}", part.name(), quoted(&entry.key));
    let finding = Diagnostic::error(codes::CONFIG_FIELD_MISSPELT, message).with_hint(hint);
    let whole = Span { end: entry.value.span.end, ..entry.key_span };
    Some(match (part, is_stopped, scalar.is_plain()) {
        (MapKind::Pipeline, true, true) => {
            finding.with_fix(whole, format!("{}: {}", entry.key, scalar.text), "status: stopped")
        }
        _ => finding,
    })
}

/// Reports a field by which other tools route records. Here, the order in the file determines the route.
fn routed(part: MapKind, entry: &Entry) -> Option<Diagnostic> {
    let letters = entry.key.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let hint = match (part, letters.as_str()) {
        (MapKind::Processor | MapKind::Connector, "onerror" | "onfailure" | "errorhandling" | "ignoreerrors") => {
            "records that fail go to the `dead-letter-queue` of the pipeline"
        }
        (
            MapKind::Processor | MapKind::Connector,
            "input" | "inputs" | "output" | "outputs" | "from" | "to" | "next" | "route" | "routes" | "routing"
            | "dependson" | "needs" | "after" | "before" | "branch" | "upstream" | "downstream",
        ) => {
            "records of every source pass the processors in the order of the file, and every destination receives \
             every record: to send only some records to a destination, add a `condition` to it"
        }
        _ => return None,
    };
    let message = format!("{} has no field {}", part.name(), quoted(&entry.key));
    Some(Diagnostic::error(codes::CONFIG_FIELD_MISSPELT, message).with_hint(hint))
}

/// Reports a field after an empty `settings:`, which is probably indented too little.
fn beside_settings(settings: &Entry, entry: &Entry) -> Option<Diagnostic> {
    let behind = entry.key_span.start > settings.key_span.start;
    (behind && matches!(entry.value.value, Value::Scalar(_))).then(|| {
        Diagnostic::error(
            codes::CONFIG_FIELD_MISPLACED,
            format!("{} is next to `settings:`, not below it", quoted(&entry.key)),
        )
        .with_hint("indent it with two more spaces")
        .with_fix(entry.key_span, "", "  ")
    })
}

/// Reports a field that belongs to another part.
fn misplaced(part: MapKind, entry: &Entry) -> Option<Diagnostic> {
    let written = entry.key.as_str();
    let owners = |key: &str| -> Vec<&str> {
        let others = MapKind::ALL.iter().filter(|other| **other != part && other.fields().contains(&key));
        others.map(|other| other.name()).collect()
    };
    // A misspelt block at the top level is still a block of a pipeline.
    let is_misspelt = part == MapKind::Document && owners(written).is_empty();
    let others = || MapKind::ALL.iter().flat_map(|other| other.fields().iter().copied());
    let elsewhere = match part {
        MapKind::Document => MapKind::Pipeline.elsewhere(written),
        _ => None,
    };
    let key = match elsewhere {
        Some(key) => key,
        None if is_misspelt => near(written, others())?,
        None => written,
    };
    let owners = owners(key);
    let (last, others) = owners.split_last()?;
    let owners = if others.is_empty() { (*last).to_owned() } else { format!("{} or {last}", others.join(", ")) };
    let hint = match (part, key) {
        (MapKind::Document, _) if is_misspelt => {
            format!("did you mean {key:?}? indent it below the `- id:` of a pipeline")
        }
        (MapKind::Document, _) => "indent it below the `- id:` of a pipeline".to_owned(),
        (_, "dead-letter-queue" | "status" | "connectors") => "move it to the pipeline".to_owned(),
        (_, "workers" | "condition") => "move it to a processor".to_owned(),
        (_, "window-size" | "window-nack-threshold") => "move it below `dead-letter-queue:`".to_owned(),
        (_, "version" | "pipelines") => "move it to the top of the document".to_owned(),
        (MapKind::Pipeline, _) => "move it to a connector or processor".to_owned(),
        _ => "remove it, or move it there".to_owned(),
    };
    let message = match is_misspelt {
        true => format!("{} has no field {}: {key:?} belongs to {owners}", part.name(), quoted(written)),
        false => format!("{} has no field {}: it belongs to {owners}", part.name(), quoted(written)),
    };
    Some(Diagnostic::error(codes::CONFIG_FIELD_MISPLACED, message).with_hint(hint))
}
