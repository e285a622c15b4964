//! Numbers of a pipeline whose units run on several nodes, as one answer.
//!
//! Nodes may have different versions, so their answers are joined by the form of JSON: counters are added, ages are the
//! largest, and what identifies a part stays.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

/// Members that identify the elements of a list, by the name of the list.
const IDENTITIES: &[(&str, &[&str])] = &[
    ("backlogs", &["connector"]),
    ("edges", &["from", "to"]),
    ("lanes", &["connector", "partition"]),
    ("nodes", &["node"]),
];

/// Numbers that are the same on all nodes.
const SAME: &[&str] = &["boundBytes", "boundRows", "from", "node", "run", "to"];

/// Numbers that end like this are ages, of which the largest counts, except `busySeconds`.
const AGE: &str = "Seconds";
const BUSY: &str = "busySeconds";

/// Texts of which the last counts: times.
const TIMES: &[&str] = &["lastSuccess"];

/// Adds the numbers of another node.
pub(crate) fn join(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, theirs) in from {
        let Some(ours) = into.get_mut(&name) else {
            into.insert(name, theirs);
            continue;
        };
        match (ours, theirs) {
            (Value::Object(ours), Value::Object(theirs)) => join(ours, theirs),
            (Value::Array(ours), Value::Array(theirs)) => join_lists(&name, ours, theirs),
            (Value::Bool(ours), Value::Bool(theirs)) => *ours |= theirs,
            (Value::Number(ours), Value::Number(theirs)) => *ours = joined(&name, ours, &theirs),
            (Value::String(ours), Value::String(theirs)) if TIMES.contains(&name.as_str()) => {
                *ours = std::mem::take(ours).max(theirs);
            }
            _ => {}
        }
    }
}

fn join_lists(name: &str, ours: &mut Vec<Value>, theirs: Vec<Value>) {
    let Some((_, members)) = IDENTITIES.iter().find(|(list, _)| *list == name) else { return };
    let identity = |element: &Value| members.iter().map(|member| element[*member].to_string()).collect::<Vec<_>>();
    let places: HashMap<_, _> = ours.iter().enumerate().map(|(place, our)| (identity(our), place)).collect();
    for their in theirs {
        match (places.get(&identity(&their)).map(|place| &mut ours[*place]), their) {
            (Some(Value::Object(our)), Value::Object(their)) => join(our, their),
            (Some(_), _) => {}
            (None, their) => ours.push(their),
        }
    }
}

fn joined(name: &str, ours: &Number, theirs: &Number) -> Number {
    let reals = || (ours.as_f64().unwrap_or_default(), theirs.as_f64().unwrap_or_default());
    let real = |value: f64| Number::from_f64(value).unwrap_or_else(|| ours.clone());
    match (ours.as_u64(), theirs.as_u64()) {
        _ if SAME.contains(&name) => ours.clone(),
        _ if name.ends_with(AGE) && name != BUSY => {
            let (ours, theirs) = reals();
            real(ours.max(theirs))
        }
        (Some(ours), Some(theirs)) => ours.saturating_add(theirs).into(),
        _ => {
            let (ours, theirs) = reals();
            real(ours + theirs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(mut ours: Value, theirs: &Value) -> Value {
        join(ours.as_object_mut().unwrap(), theirs.as_object().unwrap().clone());
        ours
    }

    #[test]
    fn counters_are_added_and_ages_are_the_largest() {
        let part = |read: u64, age: f64, busy: f64, at: &str, full: bool| {
            json!({
                "id": "p", "run": 2, "read": read, "oldestUnacknowledgedSeconds": age, "busySeconds": busy, "lastSuccess": at,
                "full": full,
            })
        };
        let both = merged(part(3, 1.5, 1.0, "2026-01-01", false), &part(4, 0.5, 2.5, "2026-02-01", true));
        assert_eq!(both, part(7, 1.5, 3.5, "2026-02-01", true));
    }

    #[test]
    fn elements_of_lists_are_joined_by_what_identifies_them() {
        let ours = json!({
            "lanes": [{ "connector": "in", "partition": "0", "read": 1 }],
            "nodes": [{ "node": 0, "rowsIn": 5 }, { "node": 1, "rowsIn": 6 }],
            "edges": [{ "from": 0, "to": 1, "rows": 5, "boundRows": 100 }],
        });
        let theirs = json!({
            "lanes": [{ "connector": "in", "partition": "1", "read": 2 }],
            "nodes": [{ "node": 1, "rowsIn": 7 }, { "node": 0, "rowsIn": 8 }],
            "edges": [{ "from": 0, "to": 1, "rows": 8, "boundRows": 100 }],
            "backlogs": [{ "connector": "in", "records": 9 }],
        });
        let both = json!({
            "lanes": [
                { "connector": "in", "partition": "0", "read": 1 },
                { "connector": "in", "partition": "1", "read": 2 },
            ],
            "nodes": [{ "node": 0, "rowsIn": 13 }, { "node": 1, "rowsIn": 13 }],
            "edges": [{ "from": 0, "to": 1, "rows": 13, "boundRows": 100 }],
            "backlogs": [{ "connector": "in", "records": 9 }],
        });
        assert_eq!(merged(ours, &theirs), both);
    }
}
