//! What the synthetic records of a pipeline show: places where every record fails, whatever its data are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::graph::Node;
use anabranch_plugin::flow::Kinds;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::reference::Side;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use anabranch_template::{EvalError, InSetting, Reason, condition};

use super::names::{FieldPath, paths};
use super::origins::{self, Origin};
use super::patterns::Wanted;
use super::records::{Synthetic, whole};
use super::script;
use super::taps::{Sight, Spot};
use crate::codes;

/// Fewest records that a place is judged by, and fewest forms of data among them.
const FEWEST: usize = 8;
const FEWEST_VARIANTS: usize = 4;
/// Fewest kinds of values of a field that must have failed, where the field is as the source gave it.
const FEWEST_KINDS: usize = 4;

/// Processors that take a text apart: what they say depends on the text.
const READERS: [&str; 8] = [
    "base64.decode",
    "base64.encode",
    "field.convert",
    "json.decode",
    "split",
    "unwrap.debezium",
    "unwrap.kafkaconnect",
    "unwrap.opencdc",
];

/// A place where every record fails.
pub(super) struct Failing<'a> {
    /// The processor or destination.
    pub(super) node: &'a Node,
    /// The failure of most of its records.
    pub(super) fault: Fault,
    /// Records that failed.
    pub(super) records: usize,
}

/// Judges a place by what was seen there.
pub(super) fn judge<'a>(
    compiled: &'a Compiled,
    spot: Spot,
    sights: &[Sight],
    records: &HashMap<usize, Synthetic>,
) -> Option<Failing<'a>> {
    if sights.iter().all(|sight| sight.fault.is_none()) {
        return None;
    }
    let node = node_at(compiled, spot)?;
    let place = Place::of(compiled, node, spot)?;
    let counts = |sight: &&Sight| sight.fault.is_some() || !place.lets_pass(sight, records);
    let failed: Option<Vec<Failed<'_>>> =
        sights.iter().filter(counts).map(|sight| Failed::of(sight, records)).collect();
    let failed = failed?;
    if !is_enough(&failed.iter().collect::<Vec<_>>()) || failed.iter().any(Failed::is_on_purpose) {
        return None;
    }
    let mut by_message: BTreeMap<String, Vec<&Failed<'_>>> = BTreeMap::new();
    for one in &failed {
        by_message.entry(one.fault.message()).or_default().push(one);
    }
    let (_, most) = by_message.iter().max_by_key(|(_, group)| group.len())?;
    let is_sure = match place.what {
        What::Condition => place.is_sure_of_condition(&failed, most),
        What::Reader(wanted) => place.is_sure_of_reader(&failed, wanted),
        What::Script => place.is_sure_of_script(&failed, &by_message),
        What::Destination => is_enough(most) && place.is_sure(&failed) && place.is_sure_of_key(&failed),
        What::Other => is_enough(most) && place.is_sure(&failed),
    };
    is_sure.then(|| Failing { node, fault: most[0].fault.clone(), records: failed.len() })
}

/// What fails at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Condition,
    /// One of [`READERS`], and what it takes texts for, if that is known.
    Reader(Option<Wanted>),
    Script,
    /// A destination, which writes the key and the payload also where its settings do not name them.
    Destination,
    Other,
}

/// A place, with what it reads.
struct Place {
    what: What,
    text: String,
    named: Vec<(FieldPath, Origin)>,
    /// Where the whole key comes from.
    key: Origin,
}

impl Place {
    fn of(compiled: &Compiled, node: &Node, spot: Spot) -> Option<Place> {
        let plugin = node.kind.operator().map_or("", |step| step.plugin.as_str());
        let what = match plugin {
            _ if spot.is_condition => What::Condition,
            "custom.javascript" => What::Script,
            plugin if READERS.contains(&plugin) => What::Reader(wanted(node, plugin)),
            _ if node.kind.operator().is_none() => What::Destination,
            _ => What::Other,
        };
        let text = match (what, plugin) {
            (What::Condition, _) => {
                let guard = node.kind.operator().and_then(|step| step.guard.as_ref());
                guard.map(|guard| guard.written.value().to_string()).unwrap_or_default()
            }
            // The field that is set is not read.
            (_, "field.set") => settings(node, |name| name == "value"),
            (What::Script, _) => settings(node, |name| name.starts_with("script")),
            _ => settings(node, |_| true),
        };
        let mut named = paths(&text);
        if matches!(what, What::Reader(_)) && named.is_empty() {
            named.push(FieldPath { side: Side::After, names: Vec::new() });
        }
        let lines = origins::steps_before(compiled, *compiled.members.get(spot.stage.0)?.get(spot.step)?);
        let origin = |path: FieldPath| {
            let origin = origins::origin(&lines, &path);
            (path, origin)
        };
        let (_, key) = origin(FieldPath { side: Side::Key, names: Vec::new() });
        Some(Place { what, text, named: named.into_iter().map(origin).collect(), key })
    }

    /// Whether a record that did not fail had nothing in it that the place could have failed on.
    fn lets_pass(&self, sight: &Sight, records: &HashMap<usize, Synthetic>) -> bool {
        match self.what {
            What::Reader(_) => {
                let mut values = self.named.iter().map(|(path, _)| value_at(path, path.side.of(&sight.before)));
                values.all(|value| matches!(value, None | Some(Value::Null)))
            }
            What::Script => origin(sight, records).is_some_and(|origin| origin.is_hollow),
            What::Condition | What::Destination | What::Other => false,
        }
    }

    /// Whether fields that depend on data were of many kinds.
    fn is_diverse(&self, failed: &[Failed<'_>]) -> bool {
        self.named.iter().all(|(path, origin)| match origin {
            Origin::Given => is_known(path, failed) || is_diverse(path, failed),
            Origin::Fixed | Origin::Formed | Origin::Around(_) => {
                is_made(path, failed) || is_known(path, failed) || is_diverse(path, failed)
            }
            Origin::Any => {
                let here = failed.iter().map(|failed| value_at(path, path.side.of(failed.before)));
                !path.names.is_empty() && count_kinds(here) >= FEWEST_KINDS
            }
        })
    }

    /// Whether the place reads something that depends on data.
    fn reads_data(&self, failed: &[Failed<'_>]) -> bool {
        let is_own = |(path, origin): &(FieldPath, Origin)| {
            matches!(origin, Origin::Fixed | Origin::Formed) && is_made(path, failed)
        };
        !self.named.iter().all(is_own)
    }

    /// Whether no record can avoid the failure of an expression: it does not read data, or no kind of data is right.
    fn is_sure(&self, failed: &[Failed<'_>]) -> bool {
        let is_of_kind = |failed: &Failed<'_>| match reason(failed.fault) {
            Some(Reason::Kind) => true,
            Some(Reason::Lacking) => self.lacks(failed),
            Some(Reason::Content | Reason::Purpose) | None => false,
        };
        self.is_diverse(failed)
            && (!self.reads_data(failed) || failed.iter().all(is_of_kind))
            && (self.named.is_empty() || !self.text.contains("egex"))
    }

    /// Whether no other data make a key that the destination takes. What a setting says of a record is judged by
    /// what the setting names.
    fn is_sure_of_key(&self, failed: &[Failed<'_>]) -> bool {
        let can_be = match &self.key {
            Origin::Given | Origin::Fixed | Origin::Formed => false,
            Origin::Around(pattern) => pattern.can_be(Wanted::Json),
            Origin::Any => true,
        };
        !can_be || failed.iter().all(|failed| reason(failed.fault).is_some())
    }

    /// Whether a field that the place reads is missing or null in the record.
    fn lacks(&self, failed: &Failed<'_>) -> bool {
        let is_lacking =
            |path: &FieldPath| matches!(value_at(path, path.side.of(failed.before)), None | Some(Value::Null));
        self.named.iter().any(|(path, _)| is_lacking(path))
    }

    fn is_sure_of_condition(&self, failed: &[Failed<'_>], most: &[&Failed<'_>]) -> bool {
        if failed.iter().all(|failed| failed.fault.code() == codes::CONDITION_NOT_BOOLEAN) {
            let can_be = match origins::form(&self.text) {
                Origin::Around(pattern) => pattern.can_be(Wanted::Verdict),
                Origin::Fixed | Origin::Formed => false,
                Origin::Given | Origin::Any => true,
            };
            return !can_be && self.is_diverse(failed) && (self.named.is_empty() || !self.text.contains("egex"));
        }
        let is_one = most.len() == failed.len() || !self.reads_data(failed);
        is_one && is_enough(most) && self.is_sure(failed)
    }

    /// A step that takes a text apart is judged where a step before has made the text.
    fn is_sure_of_reader(&self, failed: &[Failed<'_>], wanted: Option<Wanted>) -> bool {
        let is_text = |failed: &Failed<'_>, path: &FieldPath| {
            matches!(value_at(path, path.side.of(failed.before)), Some(Value::Text(_)))
        };
        self.named.iter().all(|(path, origin)| {
            let is_own = match origin {
                Origin::Fixed | Origin::Formed => true,
                Origin::Around(pattern) => wanted.is_some_and(|wanted| !pattern.can_be(wanted)),
                Origin::Given | Origin::Any => false,
            };
            (is_own && is_made(path, failed))
                || (is_known(path, failed) && !failed.iter().any(|failed| is_text(failed, path)))
        })
    }

    fn is_sure_of_script(&self, failed: &[Failed<'_>], by_message: &BTreeMap<String, Vec<&Failed<'_>>>) -> bool {
        let thrown = |message: &String| script::is_thrown(&self.text, message);
        if by_message.keys().any(thrown) {
            return false;
        }
        let is_diverse = self.is_diverse(failed);
        if is_diverse && by_message.iter().any(|(message, group)| script::is_mistake(message) && is_enough(group)) {
            return true;
        }
        let [(message, group)] = &by_message.iter().collect::<Vec<_>>()[..] else { return false };
        let text = group.first().and_then(|failed| failed.fault.in_text());
        let expression = text.and_then(|text| script::expression(&self.text, text.line, text.column));
        if expression.is_some_and(|expression| !script::reads_record(&self.text, expression)) {
            return true;
        }
        if !is_diverse || script::throws(&self.text) {
            return false;
        }
        let is_of_known = expression.is_some_and(|expression| {
            let known = failed.iter().all(|failed| failed.origin.known.metadata);
            (known && expression.contains(".Metadata") || expression.contains(".Operation"))
                && !["Payload", "Key"].iter().any(|part| expression.contains(part))
        });
        let is_gone = !self.named.is_empty()
            && self.named.iter().all(|(path, origin)| {
                let is_there = |failed: &Failed<'_>| value_at(path, path.side.of(failed.before)).is_some();
                let is_own = *origin == Origin::Fixed && is_made(path, failed);
                (is_own || is_known(path, failed)) && !failed.iter().any(is_there)
            });
        let reads_text = self.named.iter().any(|(_, origin)| matches!(origin, Origin::Any | Origin::Around(_)));
        let is_of_kind = !reads_text && !script::is_of_data(message);
        is_of_kind || is_of_known || is_gone
    }
}

/// What a step of [`READERS`] takes texts for.
fn wanted(node: &Node, plugin: &str) -> Option<Wanted> {
    match plugin {
        "field.convert" => match settings(node, |name| name == "type").as_str() {
            "int" => Some(Wanted::Int),
            "float" => Some(Wanted::Float),
            "bool" => Some(Wanted::Bool),
            "time" => Some(Wanted::Time),
            _ => None,
        },
        "json.decode" => Some(Wanted::Json),
        "base64.decode" => Some(Wanted::Base64),
        "split" => Some(Wanted::List),
        _ => None,
    }
}

/// Why an expression failed; `None` for failures of other things.
fn reason(fault: &Fault) -> Option<Reason> {
    let cause = fault.cause();
    let error = condition::error_of(fault)
        .or_else(|| cause.downcast_ref::<EvalError>())
        .or_else(|| cause.downcast_ref::<InSetting>().map(|failed| &failed.error));
    error.map(|error| error.reason)
}

/// The values of settings, in lines.
fn settings(node: &Node, is_wanted: impl Fn(&str) -> bool) -> String {
    let values = node.settings.iter().filter(|given| is_wanted(&given.name)).map(|given| whole(&given.value));
    values.collect::<Vec<_>>().join("\n")
}

/// The record that one was made of.
fn origin<'a>(sight: &Sight, records: &'a HashMap<usize, Synthetic>) -> Option<&'a Synthetic> {
    let number: usize = std::str::from_utf8(&sight.before.position().0).ok()?.parse().ok()?;
    records.get(&number)
}

/// A record that failed, with the one that it was made of.
struct Failed<'a> {
    before: &'a Record,
    origin: &'a Synthetic,
    fault: &'a Fault,
}

impl<'a> Failed<'a> {
    fn of(sight: &'a Sight, records: &'a HashMap<usize, Synthetic>) -> Option<Self> {
        let fault = sight.fault.as_ref().filter(|fault| fault.class() == FaultClass::Record)?;
        Some(Failed { before: &sight.before, origin: origin(sight, records)?, fault })
    }

    fn is_on_purpose(&self) -> bool {
        self.fault.code() == codes::ERROR_TRIGGERED || reason(self.fault) == Some(Reason::Purpose)
    }
}

fn is_enough(failed: &[&Failed<'_>]) -> bool {
    let variants: BTreeSet<usize> = failed.iter().map(|failed| failed.origin.variant).collect();
    failed.len() >= FEWEST && variants.len() >= FEWEST_VARIANTS
}

/// The node of a place.
fn node_at(compiled: &Compiled, spot: Spot) -> Option<&Node> {
    let index = compiled.members.get(spot.stage.0)?.get(spot.step)?;
    compiled.rewritten.node_weight(*index)
}

/// Whether a step before the place has changed the field in all records that had it.
fn is_made(path: &FieldPath, failed: &[Failed<'_>]) -> bool {
    let (mut changed, mut same) = (0, 0);
    for one in failed {
        match (found(path, one.origin), value_at(path, path.side.of(one.before))) {
            (None, None) => {}
            // Now and then a step makes what was there.
            (there, here) if there == here => same += 1,
            _ => changed += 1,
        }
    }
    changed >= FEWEST && same * 4 <= changed
}

/// Whether the source tells what the field is, so that records of other data need not be thought of.
fn is_known(path: &FieldPath, failed: &[Failed<'_>]) -> bool {
    failed.iter().all(|failed| match path.side {
        Side::Key => failed.origin.known.key,
        Side::Before => failed.origin.known.no_before || failed.origin.known.fields,
        Side::After => failed.origin.known.fields && !path.names.is_empty(),
    })
}

/// The value that the source gave.
fn found(path: &FieldPath, origin: &Synthetic) -> Option<Value> {
    let [key, data] = &origin.fields;
    let object = if path.side == Side::Key { key } else { data };
    if path.names.is_empty() {
        return value_at(path, path.side.of(&origin.record));
    }
    within(object, &path.names).cloned()
}

fn value_at(path: &FieldPath, data: &Data) -> Option<Value> {
    match data {
        Data::Absent => None,
        Data::Raw(bytes) if path.names.is_empty() => Some(Value::Bytes(bytes[..].into())),
        Data::Raw(_) => None,
        Data::Structured(object) if path.names.is_empty() => Some(Value::from(Object::clone(object))),
        Data::Structured(object) => within(object, &path.names).cloned(),
    }
}

fn within<'o>(object: &'o Object, names: &[String]) -> Option<&'o Value> {
    let (last, parents) = names.split_last()?;
    let mut object = object;
    for name in parents {
        object = object.get(name)?.as_map()?;
    }
    object.get(last)
}

/// Whether the field was of many kinds, as the source gave it, among the records that failed.
fn is_diverse(path: &FieldPath, failed: &[Failed<'_>]) -> bool {
    let kinds = count_kinds(failed.iter().map(|one| found(path, one.origin)));
    kinds >= FEWEST_KINDS || (path.names.is_empty() && kinds > 0)
}

/// The number of kinds of values, among which a missing value is one.
fn count_kinds(values: impl Iterator<Item = Option<Value>>) -> usize {
    let mut kinds: Vec<Option<Kinds>> = Vec::new();
    for value in values {
        let kind = value.as_ref().map(Kinds::of);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.len()
}
