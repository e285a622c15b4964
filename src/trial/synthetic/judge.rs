//! What the synthetic records of a pipeline show: places where every record fails, whatever its data are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anabranch_graph::fault::{Fault, FaultClass};
use anabranch_graph::flow::Kinds;
use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::graph::Node;
use anabranch_graph::record::{Data, Record};
use anabranch_graph::reference::Side;
use anabranch_graph::value::{Object, Value};

use super::names::{FieldPath, paths};
use super::records::{Synthetic, whole};
use super::taps::{Sight, Spot};

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
    let node = node_at(compiled, spot)?;
    let failed: Vec<Failed<'_>> = sights.iter().map(|sight| Failed::of(sight, records)).collect::<Option<_>>()?;
    if !is_enough(&failed.iter().collect::<Vec<_>>()) || failed.iter().any(|failed| failed.is_on_purpose()) {
        return None;
    }
    let text = text_of(node, spot);
    let named = paths(&text);
    let plugin = node.kind.operator().map_or("", |step| step.plugin.as_str());
    // Fields that a step before has made of others, or taken away, and those that are as the source gave them.
    let (made, given): (Vec<&FieldPath>, Vec<&FieldPath>) = named.iter().partition(|path| is_made(path, &failed));
    let mut by_message: BTreeMap<String, Vec<&Failed<'_>>> = BTreeMap::new();
    for one in &failed {
        by_message.entry(one.fault.message()).or_default().push(one);
    }
    let (message, most) = by_message.iter().max_by_key(|(_, group)| group.len())?;
    let is_of_reader = READERS.contains(&plugin) && !spot.is_condition;
    let is_sure = match is_of_reader {
        true => given.is_empty() && !made.is_empty(),
        false => {
            is_enough(most)
                && given.iter().all(|path| is_diverse(path, &failed))
                && (given.is_empty() || !is_of_form(message))
                && (named.is_empty() || !text.contains("egex"))
        }
    };
    is_sure.then(|| Failing { node, fault: most[0].fault.clone(), records: failed.len() })
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
        let number: usize = std::str::from_utf8(&sight.before.position().0).ok()?.parse().ok()?;
        Some(Failed { before: &sight.before, origin: records.get(&number)?, fault })
    }

    fn is_on_purpose(&self) -> bool {
        self.fault.code() == "error_triggered" || self.fault.message().contains(ON_PURPOSE)
    }
}

/// What a template says that calls `fail`.
const ON_PURPOSE: &str = "calling fail";

fn is_enough(failed: &[&Failed<'_>]) -> bool {
    let variants: BTreeSet<usize> = failed.iter().map(|failed| failed.origin.variant).collect();
    failed.len() >= FEWEST && variants.len() >= FEWEST_VARIANTS
}

/// Whether a message is about what a value holds or lacks: another record may hold it.
fn is_of_form(message: &str) -> bool {
    ["out of range", "no such", "missing", "nil", "no field", "no entry", "not found", "null", "absent", "empty"]
        .iter()
        .any(|words| message.contains(words))
}

/// The node of a place.
fn node_at(compiled: &Compiled, spot: Spot) -> Option<&Node> {
    let index = compiled.members.get(spot.stage.0)?.get(spot.step)?;
    compiled.rewritten.node_weight(*index)
}

/// What a place reads is named in this text.
fn text_of(node: &Node, spot: Spot) -> String {
    if spot.is_condition {
        let guard = node.kind.operator().and_then(|step| step.guard.as_ref());
        return guard.map(|guard| guard.written.value().to_string()).unwrap_or_default();
    }
    let mut text = String::new();
    for given in node.settings.iter() {
        text.push_str(whole(&given.value));
        text.push('\n');
    }
    text
}

/// Whether a step before the place has changed the field in all records that had it.
fn is_made(path: &FieldPath, failed: &[Failed<'_>]) -> bool {
    let mut had = 0;
    for one in failed {
        let here = value_at(path, path.side.of(one.before));
        match (found(path, one.origin), here) {
            (Some(there), Some(here)) if there == here => return false,
            (None, None) => {}
            _ => had += 1,
        }
    }
    had >= FEWEST
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

/// Whether the field was of many kinds among the records that failed.
fn is_diverse(path: &FieldPath, failed: &[Failed<'_>]) -> bool {
    let mut kinds: Vec<Option<Kinds>> = Vec::new();
    for one in failed {
        let kind = value_at(path, path.side.of(one.before)).as_ref().map(Kinds::of);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.len() >= FEWEST_KINDS || (path.names.is_empty() && !kinds.is_empty())
}
