//! Single-message transformations.

mod envelope;
mod fields;
mod keys;
mod routing;
mod times;

use std::collections::BTreeMap;

pub(super) use keys::key_template;
pub(super) use times::{JavaPart, java_parts};

use super::draft::{Draft, id_from};
use super::kafka::is_rust_pattern;
use super::shape::{Form, IS_DELETION, IS_NOT_DELETION, Shape};
use crate::document::Part;
use crate::expression::{and, field, metadata, quoted, reference};

/// A transformation that is being converted.
struct Transform {
    /// Its name, which its processors get.
    alias: String,
    /// True if it changes keys, not values.
    is_key: bool,
    /// True if a later transformation puts the same key or value into a field.
    is_put_into_field: bool,
    /// The records that it is applied to; `None` = all.
    condition: Option<String>,
    /// Its settings that are not converted yet.
    left: BTreeMap<String, String>,
}

impl Transform {
    fn base(&self) -> &'static str {
        if self.is_key { ".Key" } else { ".Payload.After" }
    }

    fn form(&self, shape: &Shape) -> Form {
        if self.is_key { shape.key } else { shape.value }
    }

    fn set_form(&self, shape: &mut Shape, form: Form) {
        *(if self.is_key { &mut shape.key } else { &mut shape.value }) = form;
    }

    /// Full name of one of its settings.
    fn setting(&self, name: &str) -> String {
        format!("transforms.{}.{name}", self.alias)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.left.remove(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Takes a setting that has an old and a new name.
    fn take_any(&mut self, names: [&'static str; 2]) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, self.take(name)?)))
    }

    fn carried(&self, draft: &mut Draft<'_>, name: &str) {
        draft.carried(&self.setting(name), &id_from(&self.alias));
    }

    fn changed(&self, draft: &mut Draft<'_>, name: &str, note: &str) {
        draft.changed(&self.setting(name), &id_from(&self.alias), note);
    }

    fn blocked(&self, draft: &mut Draft<'_>, name: &str, note: &str) {
        draft.blocked(&self.setting(name), note);
    }

    /// Reference of a field of the key or value.
    fn reference(&self, name: &str) -> String {
        reference(self.base(), &[name])
    }

    /// Expression that reads a field of the key or value.
    fn field(&self, name: &str) -> String {
        field(self.base(), &[name])
    }

    /// Returns the condition of a processor that would create the value of a deletion.
    fn of_present(&self, shape: &Shape) -> Option<String> {
        match !self.is_key && shape.has_deletions {
            true => Some(and(self.condition.as_deref(), IS_NOT_DELETION)),
            false => self.condition.clone(),
        }
    }

    /// Returns the condition of a processor that needs the field.
    fn of_field(&self, shape: &Shape, name: &str) -> String {
        let has = format!("hasKey {} {}", self.base(), quoted(name));
        and(self.of_present(shape).as_deref(), &has)
    }

    /// Adds a processor for the records that the transformation is applied to.
    fn add(&self, draft: &mut Draft<'_>, part: Part) {
        draft.add(part.when(self.condition.as_deref()));
    }

    fn part(&self, plugin: &'static str) -> Part {
        Part::new(&self.alias, plugin)
    }

    /// Replaces the key or value with JSON, which is the output of a template.
    fn replace_with_json(&self, draft: &mut Draft<'_>, shape: &Shape, side: &str, template: &str) {
        let condition = self.of_present(shape);
        let set = self.part("field.set").with("field", side).with("value", template);
        draft.add(set.when(condition.as_deref()));
        draft.add(self.part("json.decode").with("field", side).when(condition.as_deref()));
    }

    /// Returns `true` if the key or value has fields at this place; otherwise reports that it has not.
    fn has_fields(&self, draft: &mut Draft<'_>, shape: &Shape) -> bool {
        let what = if self.is_key { "key" } else { "value" };
        let note = match self.form(shape) {
            Form::Fields => return true,
            Form::Raw | Form::Json => {
                format!("the {what} is a text or bytes at this place, without fields: decode it first")
            }
            Form::Absent => format!("the record has no {what} at this place"),
            Form::Envelope => {
                "the row is in Debezium's envelope at this place: add ExtractNewRecordState before it, or \
                               change the processor by hand"
                    .to_owned()
            }
        };
        self.blocked(draft, "type", &note);
        false
    }
}

/// A name of a field, without the mark of optional (`?`) and required (`!`) fields.
fn unmarked(name: &str) -> &str {
    name.strip_suffix(['?', '!']).unwrap_or(name)
}

/// The parts of a list, without blanks.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Adds the processors for the transformations, in order, and keeps the form of the records in `shape`.
pub(super) fn convert(draft: &mut Draft<'_>, shape: &mut Shape) {
    let named = draft.take("transforms");
    if named.is_some() {
        draft.carried("transforms", "processors");
    }
    let aliases = list(&named.unwrap_or_default());
    let mut predicates = Predicates::take(draft);
    for (index, alias) in aliases.iter().enumerate() {
        convert_one(draft, shape, alias, &aliases[index + 1..], &mut predicates);
    }
    predicates.finish(draft);
    for name in draft.take_prefixed("transforms.").into_keys() {
        draft.left_out(
            &format!("transforms.{name}"),
            "it is a setting of a transformation that `transforms` does not name",
        );
    }
}

fn convert_one(draft: &mut Draft<'_>, shape: &mut Shape, alias: &str, later: &[String], predicates: &mut Predicates) {
    let left = draft.take_prefixed(&format!("transforms.{alias}."));
    let names: Vec<String> = left.keys().map(|name| format!("transforms.{alias}.{name}")).collect();
    apply(draft, shape, alias, later, left, predicates);
    for name in names {
        if !draft.is_reported(&name) {
            draft.left_out(&name, "it belongs to the transformation; see its other settings");
        }
    }
}

fn apply(
    draft: &mut Draft<'_>,
    shape: &mut Shape,
    alias: &str,
    later: &[String],
    mut left: BTreeMap<String, String>,
    predicates: &mut Predicates,
) {
    let class = left.remove("type").unwrap_or_default();
    let class = class.trim();
    let (class, side) = class.split_once('$').unwrap_or((class, "Value"));
    let hoists = format!("org.apache.kafka.connect.transforms.HoistField${side}");
    let is_put_into_field =
        later.iter().any(|later| draft.peek(&format!("transforms.{later}.type")) == Some(hoists.as_str()));
    let mut transform =
        Transform { alias: alias.to_owned(), is_key: side == "Key", is_put_into_field, condition: None, left };
    let predicate = transform.take("predicate");
    let negate = transform.take("negate");
    let mut is_known = true;
    if let Some(name) = predicate {
        match predicates.condition(draft, shape, &name) {
            Some(expression) => {
                let negated = negate.as_deref().is_some_and(|negate| negate.eq_ignore_ascii_case("true"));
                transform.condition = Some(if negated { format!("not ({expression})") } else { expression });
                transform.carried(draft, "predicate");
                if negate.is_some() {
                    transform.carried(draft, "negate");
                }
            }
            None => {
                transform.blocked(
                    draft,
                    "predicate",
                    "the predicate has no counterpart, so neither has the transformation",
                );
                is_known = false;
            }
        }
    } else if negate.is_some() {
        transform.carried(draft, "negate");
    }
    let simple = class.rsplit('.').next().unwrap_or(class);
    let is_apache = class.starts_with("org.apache.kafka.connect.transforms.");
    match simple {
        _ if !is_known => {}
        "InsertField" if is_apache => fields::insert(&mut transform, draft, shape),
        "ReplaceField" if is_apache => fields::replace(&mut transform, draft, shape),
        "MaskField" if is_apache => fields::mask(&mut transform, draft, shape),
        "Cast" if is_apache => fields::cast(&mut transform, draft, shape),
        "Flatten" if is_apache => fields::flatten(&mut transform, draft, shape),
        "ExtractField" if is_apache => keys::extract(&mut transform, draft, shape),
        "HoistField" if is_apache => keys::hoist(&mut transform, draft, shape),
        "ValueToKey" if is_apache => keys::value_to_key(&mut transform, draft, shape),
        "TimestampConverter" if is_apache => times::convert(&mut transform, draft, shape),
        "RegexRouter" if is_apache => routing::regex_router(&mut transform, draft, shape),
        "Filter" if is_apache => routing::filter(&transform, draft),
        "InsertHeader" if is_apache => routing::insert_header(&mut transform, draft),
        "DropHeaders" if is_apache => routing::drop_headers(&mut transform, draft),
        "ExtractNewRecordState" | "UnwrapFromEnvelope" if class.starts_with("io.debezium.transforms.") => {
            envelope::extract(&mut transform, draft, shape);
        }
        _ => {
            let note = "this transformation has no counterpart: write processors that do the same";
            return transform.blocked(draft, "type", note);
        }
    }
    if !is_known {
        return;
    }
    if !draft.is_reported(&transform.setting("type")) {
        transform.carried(draft, "type");
    }
    for name in std::mem::take(&mut transform.left).into_keys() {
        transform.blocked(draft, &name, "this setting of the transformation is not known to `migrate`");
    }
}

/// The predicates of a connector.
struct Predicates {
    /// Class and settings by name.
    by_name: BTreeMap<String, (String, BTreeMap<String, String>)>,
    used: Vec<String>,
}

impl Predicates {
    fn take(draft: &mut Draft<'_>) -> Self {
        let named = draft.take("predicates");
        if named.is_some() {
            draft.carried("predicates", "condition of processors");
        }
        let mut by_name = BTreeMap::new();
        for name in list(&named.unwrap_or_default()) {
            if by_name.contains_key(&name) {
                continue;
            }
            let mut settings = draft.take_prefixed(&format!("predicates.{name}."));
            let class = settings.remove("type").unwrap_or_default();
            by_name.insert(name, (class.trim().to_owned(), settings));
        }
        Predicates { by_name, used: Vec::new() }
    }

    /// Returns the expression of a predicate; `None` if it has no counterpart.
    fn condition(&mut self, draft: &mut Draft<'_>, shape: &mut Shape, name: &str) -> Option<String> {
        let (class, settings) = self.by_name.get(name)?;
        let expression = match class.rsplit('.').next().unwrap_or_default() {
            "TopicNameMatches" => {
                let pattern = settings.get("pattern").filter(|pattern| is_rust_pattern(pattern))?;
                let topic = shape.topic(draft);
                format!("mustRegexMatch {} {topic}", quoted(&format!("^(?:{pattern})$")))
            }
            "RecordIsTombstone" => IS_DELETION.to_owned(),
            "HasHeaderKey" => {
                let header = settings.get("name")?;
                format!("ne {} \"\"", metadata(&format!("kafka.header.{}", header.trim())))
            }
            _ => return None,
        };
        self.used.push(name.to_owned());
        Some(expression)
    }

    /// Reports the settings of the predicates.
    fn finish(self, draft: &mut Draft<'_>) {
        for (name, (_, settings)) in self.by_name {
            let is_used = self.used.contains(&name);
            for setting in settings.into_keys().chain(["type".to_owned()]) {
                let setting = format!("predicates.{name}.{setting}");
                match is_used {
                    true => draft.carried(&setting, "condition of processors"),
                    false => draft.left_out(&setting, "no transformation has a condition of this predicate"),
                }
            }
        }
        for name in draft.take_prefixed("predicates.").into_keys() {
            draft.left_out(
                &format!("predicates.{name}"),
                "it is a setting of a predicate that `predicates` does not name",
            );
        }
    }
}
