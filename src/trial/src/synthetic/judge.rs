//! Finds the points of a pipeline where every synthetic record fails, for all kinds of data.

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
use super::origins::{self, ValueOrigin};
use super::patterns::Wanted;
use super::records::{Synthetic, whole};
use super::script;
use super::taps::{FailurePoint, Observation};
use crate::codes;

/// Minimum number of records to judge a point by, and minimum number of forms of data among them.
const FEWEST: usize = 8;
const FEWEST_VARIANTS: usize = 4;
/// Minimum number of kinds of values of a field that must have failed, if the field has the value from the source.
const FEWEST_KINDS: usize = 4;

/// Processors that parse a text: their errors depend on the text.
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

/// A point where every record fails.
pub(super) struct AlwaysFails<'a> {
    /// The processor or destination.
    pub(super) node: &'a Node,
    /// The failure of most of its records.
    pub(super) fault: Fault,
    /// Records that failed.
    pub(super) records: usize,
}

/// Judges a point by the observations there.
pub(super) fn judge<'a>(
    compiled: &'a Compiled,
    point: FailurePoint,
    observations: &[Observation],
    records: &HashMap<usize, Synthetic>,
) -> Option<AlwaysFails<'a>> {
    if observations.iter().all(|observation| observation.fault.is_none()) {
        return None;
    }
    let node = node_at(compiled, point)?;
    let context = PointContext::of(compiled, node, point)?;
    let counts = |observation: &&Observation| observation.fault.is_some() || !context.lets_pass(observation, records);
    let failed: Option<Vec<FailedRecord<'_>>> =
        observations.iter().filter(counts).map(|observation| FailedRecord::of(observation, records)).collect();
    let failed = failed?;
    if !is_enough(&failed.iter().collect::<Vec<_>>()) || failed.iter().any(FailedRecord::is_on_purpose) {
        return None;
    }
    let mut by_message: BTreeMap<String, Vec<&FailedRecord<'_>>> = BTreeMap::new();
    for one in &failed {
        by_message.entry(one.fault.message()).or_default().push(one);
    }
    let (_, most) = by_message.iter().max_by_key(|(_, group)| group.len())?;
    let is_sure = match context.what {
        FailureKind::Condition => context.is_sure_of_condition(&failed, most),
        FailureKind::Reader(wanted) => context.is_sure_of_reader(&failed, wanted),
        FailureKind::Script => context.is_sure_of_script(&failed, &by_message),
        FailureKind::Destination => is_enough(most) && context.is_sure(&failed) && context.is_sure_of_key(&failed),
        FailureKind::Other => is_enough(most) && context.is_sure(&failed),
    };
    is_sure.then(|| AlwaysFails { node, fault: most[0].fault.clone(), records: failed.len() })
}

/// Kind of a failure point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Condition,
    /// One of [`READERS`], and the format that it expects in texts, if known.
    Reader(Option<Wanted>),
    Script,
    /// A destination, which writes the key and the payload even if its settings do not name them.
    Destination,
    Other,
}

/// The kind of a failure point, and the fields that it reads.
struct PointContext {
    what: FailureKind,
    text: String,
    named: Vec<(FieldPath, ValueOrigin)>,
    /// Origin of the whole key.
    key: ValueOrigin,
}

impl PointContext {
    fn of(compiled: &Compiled, node: &Node, point: FailurePoint) -> Option<PointContext> {
        let plugin = node.kind.operator().map_or("", |step| step.plugin.as_str());
        let what = match plugin {
            _ if point.is_condition => FailureKind::Condition,
            "custom.javascript" => FailureKind::Script,
            plugin if READERS.contains(&plugin) => FailureKind::Reader(wanted(node, plugin)),
            _ if node.kind.operator().is_none() => FailureKind::Destination,
            _ => FailureKind::Other,
        };
        let text = match (what, plugin) {
            (FailureKind::Condition, _) => {
                let guard = node.kind.operator().and_then(|step| step.guard.as_ref());
                guard.map(|guard| guard.written.value().to_string()).unwrap_or_default()
            }
            // The field that is set is not read.
            (_, "field.set") => settings(node, |name| name == "value"),
            (FailureKind::Script, _) => settings(node, |name| name.starts_with("script")),
            _ => settings(node, |_| true),
        };
        let mut named = paths(&text);
        if matches!(what, FailureKind::Reader(_)) && named.is_empty() {
            named.push(FieldPath { side: Side::After, names: Vec::new() });
        }
        let lines = origins::steps_before(compiled, *compiled.members.get(point.stage.0)?.get(point.step)?);
        let origin = |path: FieldPath| {
            let origin = origins::origin(&lines, &path);
            (path, origin)
        };
        let (_, key) = origin(FieldPath { side: Side::Key, names: Vec::new() });
        Some(PointContext { what, text, named: named.into_iter().map(origin).collect(), key })
    }

    /// Returns `true` if a record that did not fail had no value that could have failed at this point.
    fn lets_pass(&self, observation: &Observation, records: &HashMap<usize, Synthetic>) -> bool {
        match self.what {
            FailureKind::Reader(_) => {
                let mut values = self.named.iter().map(|(path, _)| value_at(path, path.side.of(&observation.before)));
                values.all(|value| matches!(value, None | Some(Value::Null)))
            }
            FailureKind::Script => origin(observation, records).is_some_and(|origin| origin.is_hollow),
            FailureKind::Condition | FailureKind::Destination | FailureKind::Other => false,
        }
    }

    /// Returns `true` if fields that depend on data were of many kinds.
    fn is_diverse(&self, failed: &[FailedRecord<'_>]) -> bool {
        self.named.iter().all(|(path, origin)| match origin {
            ValueOrigin::Given => is_known(path, failed) || is_diverse(path, failed),
            ValueOrigin::Fixed | ValueOrigin::Formed | ValueOrigin::Around(_) => {
                is_made(path, failed) || is_known(path, failed) || is_diverse(path, failed)
            }
            ValueOrigin::Any => {
                let here = failed.iter().map(|failed| value_at(path, path.side.of(failed.before)));
                !path.names.is_empty() && count_kinds(here) >= FEWEST_KINDS
            }
        })
    }

    /// Returns `true` if the point reads something that depends on data.
    fn reads_data(&self, failed: &[FailedRecord<'_>]) -> bool {
        let is_own = |(path, origin): &(FieldPath, ValueOrigin)| {
            matches!(origin, ValueOrigin::Fixed | ValueOrigin::Formed) && is_made(path, failed)
        };
        !self.named.iter().all(is_own)
    }

    /// Returns `true` if no record can avoid the failure of an expression: it does not read data, or no kind of data is
    /// right.
    fn is_sure(&self, failed: &[FailedRecord<'_>]) -> bool {
        let is_of_kind = |failed: &FailedRecord<'_>| match reason(failed.fault) {
            Some(Reason::Kind) => true,
            Some(Reason::Lacking) => self.lacks(failed),
            Some(Reason::Content | Reason::Purpose) | None => false,
        };
        self.is_diverse(failed)
            && (!self.reads_data(failed) || failed.iter().all(is_of_kind))
            && (self.named.is_empty() || !self.text.contains("egex"))
    }

    /// Returns `true` if no other data make a key that the destination accepts. The names in a setting decide which
    /// parts of a record it reads.
    fn is_sure_of_key(&self, failed: &[FailedRecord<'_>]) -> bool {
        let can_be = match &self.key {
            ValueOrigin::Given | ValueOrigin::Fixed | ValueOrigin::Formed => false,
            ValueOrigin::Around(pattern) => pattern.can_be(Wanted::Json),
            ValueOrigin::Any => true,
        };
        !can_be || failed.iter().all(|failed| reason(failed.fault).is_some())
    }

    /// Returns `true` if a field that the point reads is missing or null in the record.
    fn lacks(&self, failed: &FailedRecord<'_>) -> bool {
        let is_lacking =
            |path: &FieldPath| matches!(value_at(path, path.side.of(failed.before)), None | Some(Value::Null));
        self.named.iter().any(|(path, _)| is_lacking(path))
    }

    fn is_sure_of_condition(&self, failed: &[FailedRecord<'_>], most: &[&FailedRecord<'_>]) -> bool {
        if failed.iter().all(|failed| failed.fault.code() == codes::CONDITION_NOT_BOOLEAN) {
            let can_be = match origins::form(&self.text) {
                ValueOrigin::Around(pattern) => pattern.can_be(Wanted::Verdict),
                ValueOrigin::Fixed | ValueOrigin::Formed => false,
                ValueOrigin::Given | ValueOrigin::Any => true,
            };
            return !can_be && self.is_diverse(failed) && (self.named.is_empty() || !self.text.contains("egex"));
        }
        let is_one = most.len() == failed.len() || !self.reads_data(failed);
        is_one && is_enough(most) && self.is_sure(failed)
    }

    /// A processor that parses a text is judged if an earlier processor has created the text.
    fn is_sure_of_reader(&self, failed: &[FailedRecord<'_>], wanted: Option<Wanted>) -> bool {
        let is_text = |failed: &FailedRecord<'_>, path: &FieldPath| {
            matches!(value_at(path, path.side.of(failed.before)), Some(Value::Text(_)))
        };
        self.named.iter().all(|(path, origin)| {
            let is_own = match origin {
                ValueOrigin::Fixed | ValueOrigin::Formed => true,
                ValueOrigin::Around(pattern) => wanted.is_some_and(|wanted| !pattern.can_be(wanted)),
                ValueOrigin::Given | ValueOrigin::Any => false,
            };
            (is_own && is_made(path, failed))
                || (is_known(path, failed) && !failed.iter().any(|failed| is_text(failed, path)))
        })
    }

    fn is_sure_of_script(
        &self,
        failed: &[FailedRecord<'_>],
        by_message: &BTreeMap<String, Vec<&FailedRecord<'_>>>,
    ) -> bool {
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
                let is_there = |failed: &FailedRecord<'_>| value_at(path, path.side.of(failed.before)).is_some();
                let is_own = *origin == ValueOrigin::Fixed && is_made(path, failed);
                (is_own || is_known(path, failed)) && !failed.iter().any(is_there)
            });
        let reads_text =
            self.named.iter().any(|(_, origin)| matches!(origin, ValueOrigin::Any | ValueOrigin::Around(_)));
        let is_of_kind = !reads_text && !script::is_of_data(message);
        is_of_kind || is_of_known || is_gone
    }
}

/// Returns the format that a processor of [`READERS`] expects in texts.
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

/// Returns the reason why an expression failed; `None` for other failures.
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

/// Returns the synthetic record that the observed record was made of.
fn origin<'a>(observation: &Observation, records: &'a HashMap<usize, Synthetic>) -> Option<&'a Synthetic> {
    let number: usize = std::str::from_utf8(&observation.before.position().0).ok()?.parse().ok()?;
    records.get(&number)
}

/// A failed record, and the synthetic record that it was made of.
struct FailedRecord<'a> {
    before: &'a Record,
    origin: &'a Synthetic,
    fault: &'a Fault,
}

impl<'a> FailedRecord<'a> {
    fn of(observation: &'a Observation, records: &'a HashMap<usize, Synthetic>) -> Option<Self> {
        let fault = observation.fault.as_ref().filter(|fault| fault.class() == FaultClass::Record)?;
        Some(FailedRecord { before: &observation.before, origin: origin(observation, records)?, fault })
    }

    fn is_on_purpose(&self) -> bool {
        self.fault.code() == codes::ERROR_TRIGGERED || reason(self.fault) == Some(Reason::Purpose)
    }
}

fn is_enough(failed: &[&FailedRecord<'_>]) -> bool {
    let variants: BTreeSet<usize> = failed.iter().map(|failed| failed.origin.variant).collect();
    failed.len() >= FEWEST && variants.len() >= FEWEST_VARIANTS
}

/// Returns the node of a point.
fn node_at(compiled: &Compiled, point: FailurePoint) -> Option<&Node> {
    let index = compiled.members.get(point.stage.0)?.get(point.step)?;
    compiled.rewritten.node_weight(*index)
}

/// Returns `true` if an earlier step has changed the field in all records that had it.
fn is_made(path: &FieldPath, failed: &[FailedRecord<'_>]) -> bool {
    let (mut changed, mut same) = (0, 0);
    for one in failed {
        match (found(path, one.origin), value_at(path, path.side.of(one.before))) {
            (None, None) => {}
            // A step may happen to produce the same value.
            (there, here) if there == here => same += 1,
            _ => changed += 1,
        }
    }
    changed >= FEWEST && same * 4 <= changed
}

/// Returns `true` if the source declares the type of the field, so that other data cannot occur.
fn is_known(path: &FieldPath, failed: &[FailedRecord<'_>]) -> bool {
    failed.iter().all(|failed| match path.side {
        Side::Key => failed.origin.known.key,
        Side::Before => failed.origin.known.no_before || failed.origin.known.fields,
        Side::After => failed.origin.known.fields && !path.names.is_empty(),
    })
}

/// Returns the value that the source gave.
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

/// Returns `true` if the source gave the field values of many types among the records that failed.
fn is_diverse(path: &FieldPath, failed: &[FailedRecord<'_>]) -> bool {
    let kinds = count_kinds(failed.iter().map(|one| found(path, one.origin)));
    kinds >= FEWEST_KINDS || (path.names.is_empty() && kinds > 0)
}

/// Returns the number of types of the values; a missing value counts as a type.
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
