//! What a copy of the tables of a load must be.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::load::TABLES;
use super::server::Session;
use crate::comparison::Comparison;

/// A table and the text of a key.
type Place = (String, String);

/// What a change made of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The row of this number, which no other change has.
    Row(u64),
    /// There is no row.
    Gone,
}

/// The changes of each key in the order of their commits, each with a number that grows.
#[derive(Debug, Default)]
pub struct History(BTreeMap<Place, Vec<(u64, Event)>>);

/// A change in a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    place: Place,
    event: Event,
    /// The row as a snapshot read it.
    is_snapshot: bool,
    /// What is wrong with the record itself.
    fault: Option<String>,
}

impl History {
    /// Reads what the load, or a copy with the same notes, has committed.
    #[track_caller]
    pub fn read(session: &mut Session) -> History {
        let mut history = History::default();
        for row in session.run("SELECT seq, place, key, change FROM history ORDER BY seq") {
            let [seq, place, key, change]: [&str; 4] =
                row.split('|').collect::<Vec<_>>().try_into().expect("four columns");
            let event = change.parse().map_or(Event::Gone, Event::Row);
            history.add((place.to_owned(), key.to_owned()), seq.parse().expect("a number"), event);
        }
        history
    }

    fn add(&mut self, place: Place, seq: u64, event: Event) {
        self.0.entry(place).or_default().push((seq, event));
    }

    /// Number of the last change. A snapshot that began before may show the result of earlier ones only.
    pub fn last(session: &mut Session) -> u64 {
        session.run("SELECT coalesce(max(seq), 0) FROM history")[0].parse().expect("a number")
    }

    /// Compares what was observed of each change. A snapshot may stand for the changes up to the number `folded`.
    pub fn compare(&self, observed: impl IntoIterator<Item = Observed>, folded: u64) -> Comparison {
        let mut found = Comparison::default();
        let mut of_keys: BTreeMap<Place, Vec<Observed>> = BTreeMap::new();
        for change in observed {
            if let Some(fault) = &change.fault {
                found.unknown.push(format!("{:?}: {fault}", change.place));
            }
            of_keys.entry(change.place.clone()).or_default().push(change);
        }
        for (place, changes) in &of_keys {
            match self.0.get(place) {
                Some(history) => compare_key(place, history, changes, folded, &mut found),
                None => found.unknown.push(format!("{place:?}: no such key")),
            }
        }
        for (place, history) in self.0.iter().filter(|(place, _)| !of_keys.contains_key(*place)) {
            if !is_folded(history, folded) {
                found.lost += history.iter().filter(|(seq, _)| *seq > folded).count().max(1);
                found.gaps.push(format!("{place:?} is missing"));
            }
        }
        found
    }

    /// Compares what a table that keeps only the last state of each key went through. States may be left out, and `lost`
    /// says nothing: compare the tables with [`differences`]. A snapshot that is resumed after a crash shows again what
    /// changes have shown: the last state may come again, up to the change `folded`.
    pub fn compare_states(&self, copy: &History, folded: u64) -> Comparison {
        let mut found = Comparison::default();
        for (place, states) in &copy.0 {
            let history = self.0.get(place).map(Vec::as_slice).unwrap_or_default();
            let mut last = None;
            for (_, event) in states {
                let Event::Row(change) = event else { continue };
                let at = history.iter().position(|(_, made)| made == event);
                match at {
                    None => found.unknown.push(format!("{place:?}: {change}")),
                    Some(at) if last.is_some_and(|last| at < last || (at == last && history[at].0 > folded)) => {
                        found.repeated += 1;
                        let number = history[at].0;
                        found
                            .repetitions
                            .push(format!("{place:?}: change {number} (folded: {folded}), {at} after {last:?}"));
                    }
                    Some(_) => {}
                }
                last = at.or(last);
            }
        }
        found
    }
}

/// True if a snapshot need not show anything of the changes.
fn is_folded(history: &[(u64, Event)], folded: u64) -> bool {
    history.last().is_none_or(|(seq, event)| *seq <= folded && *event == Event::Gone)
}

/// True if the last of these changes may be the first one that is observed of a key: a snapshot that is resumed shows the
/// changes up to it, and then the row, unless it was deleted. `observed` begins with this change.
fn is_before_snapshot(history: &[(u64, Event)], observed: &[Observed], folded: u64) -> bool {
    history.iter().all(|(seq, _)| *seq <= folded)
        && observed.iter().any(|change| change.is_snapshot || change.event == Event::Gone)
}

/// Returns which removal of a key is observed before anything else of it: the last one that a resumed snapshot may show, and
/// that `next` may follow.
fn first_removal(history: &[(u64, Event)], next: Option<&Observed>, folded: u64) -> Option<usize> {
    let end = next.and_then(|next| history.iter().position(|(_, event)| *event == next.event && *event != Event::Gone));
    let mut removals = (0..end.unwrap_or(history.len())).filter(|at| history[*at].1 == Event::Gone);
    let first = removals.clone().next();
    removals.rfind(|at| history[*at].0 <= folded).or(first)
}

fn compare_key(place: &Place, history: &[(u64, Event)], changes: &[Observed], folded: u64, found: &mut Comparison) {
    // Index of the change that is to follow, and the changes that need not be observed any more.
    let mut next: Option<usize> = None;
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    for (number, change) in changes.iter().enumerate() {
        let is_same = |at: &usize| history[*at].1 == change.event;
        let at = match (change.event, next) {
            (Event::Row(_), _) => (0..history.len()).find(is_same),
            (Event::Gone, None) => first_removal(history, changes.get(number + 1), folded),
            (Event::Gone, Some(next)) => {
                let is_next = next < history.len() && is_same(&next);
                let earlier = || (0..next).rev().find(is_same);
                is_next.then_some(next).or_else(earlier).or_else(|| (next..history.len()).find(is_same))
            }
        };
        let Some(at) = at else {
            found.unknown.push(format!("{place:?}: {:?}", change.event));
            continue;
        };
        let expected = next.unwrap_or(0);
        let may_skip = change.is_snapshot
            || (next.is_none() && is_folded(&history[..at], folded))
            || (next.is_none() && is_before_snapshot(&history[..=at], &changes[number..], folded));
        if at > expected && !may_skip {
            found.gaps.push(format!("{place:?}: {:?} at {at} follows {expected} of {history:?}", change.event));
        } else if at > expected {
            seen.extend(expected..at);
        }
        if !seen.insert(at) {
            found.repeated += 1;
        }
        next = Some(at + 1);
    }
    found.lost += history.len() - seen.len();
    // The last change of a key is what counts.
    if next != Some(history.len()) {
        found.gaps.push(format!("{place:?}: {next:?} of {} is the end", history.len()));
    }
}

/// Returns what a record of the source, as JSON, says of the keys. `None` if it is not of a table of the load.
pub fn observed(record: &Value) -> Vec<Observed> {
    let metadata = &record["metadata"];
    let collection = ["recfmt.collection", "opencdc.collection"].iter().find_map(|key| metadata[*key].as_str());
    let table = collection.and_then(|name| name.rsplit('.').next()).unwrap_or_default();
    let after = &record["payload"]["after"];
    let key = |fields: &Value| -> Option<String> {
        let id = || fields["id"].as_i64();
        match table {
            "plain" => Some(id()?.to_string()),
            "wide" => Some(format!("{}/{}", fields["part"].as_str()?, id()?)),
            _ => after["change"].as_u64().map(|change| change.to_string()),
        }
    };
    let one = |key: Option<String>, event: Option<Event>, fault: Option<String>| Observed {
        fault: match (&key, event) {
            (Some(_), Some(_)) => fault,
            _ => Some(format!("not a change: {record}")),
        },
        place: (table.to_owned(), key.unwrap_or_default()),
        event: event.unwrap_or(Event::Gone),
        is_snapshot: record["operation"] == "snapshot",
    };
    let now = key(&record["key"]);
    if record["operation"] == "delete" {
        return vec![one(now, Some(Event::Gone), None)];
    }
    let unchanged = metadata["postgres.unchanged"].as_str().unwrap_or_default();
    // An absent column is named, and only such a column.
    let fault = (table == "wide" && after.get("body").is_none() == unchanged.is_empty())
        .then(|| format!("unchanged are {unchanged:?}, and the columns are {:?}", columns(after)));
    let row = one(now.clone(), after["change"].as_u64().map(Event::Row), fault);
    // A key that is absent, or the same, has not changed.
    let before = Some(&record["payload"]["before"]).filter(|before| before.get("id").is_some());
    match before.and_then(key).filter(|before| table != "lines" && Some(before) != now.as_ref()) {
        Some(before) => vec![one(Some(before), Some(Event::Gone), None), row],
        None => vec![row],
    }
}

fn columns(fields: &Value) -> Vec<&String> {
    fields.as_object().map(|fields| fields.keys().collect()).unwrap_or_default()
}

/// Returns rows that only one of two databases has, a few for each table. Rows without a key may be there more than once,
/// which [`History::compare_states`] counts.
#[track_caller]
pub fn differences(source: &mut Session, copy: &mut Session) -> Vec<String> {
    let mut found = Vec::new();
    for table in TABLES {
        let sql = format!("SELECT md5(t::text) || ' ' || left(t::text, 60) FROM {table} t");
        let rows = |session: &mut Session| {
            let mut rows = session.run(&sql);
            rows.sort();
            rows
        };
        let (here, there) = (rows(source), rows(copy));
        let only = |these: &[String], those: &[String]| {
            these.iter().filter(|row| those.binary_search(row).is_err()).take(5).cloned().collect::<Vec<_>>()
        };
        let (missing, unknown) = (only(&here, &there), only(&there, &here));
        if !missing.is_empty() || !unknown.is_empty() || (here.len() != there.len() && table != "lines") {
            found.push(format!(
                "{table}: {} rows in the source, {} in the copy; missing {missing:#?}, unknown {unknown:#?}",
                here.len(),
                there.len()
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "1";

    fn history(events: &[(u64, Event)]) -> History {
        let mut history = History::default();
        events.iter().for_each(|(seq, event)| history.add(("plain".to_owned(), A.to_owned()), *seq, *event));
        history
    }

    /// One row that was inserted, updated, deleted and inserted again.
    fn usual() -> History {
        history(&[(1, Event::Row(1)), (2, Event::Row(2)), (5, Event::Gone), (6, Event::Row(3))])
    }

    fn change(operation: &str, change: u64) -> Observed {
        let record = json!({
            "operation": operation, "metadata": { "opencdc.collection": "plain" }, "key": { "id": 1 },
            "payload": { "before": null, "after": if operation == "delete" { Value::Null } else { json!({ "change": change }) } },
        });
        observed(&record).remove(0)
    }

    fn changes(words: &str) -> Vec<Observed> {
        let one = |word: &str| match word.strip_prefix('s') {
            _ if word == "-" => change("delete", 0),
            Some(number) => change("snapshot", number.parse().unwrap()),
            None => change("update", word.parse().unwrap()),
        };
        words.split_whitespace().map(one).collect()
    }

    #[test]
    fn a_copy_in_order_has_no_faults() {
        let repeated = |repeated| Comparison { repeated, ..Comparison::default() };
        for (words, times) in [("1 2 - 3", 0), ("1 2 1 2 - 3", 2), ("1 2 - - 3", 1), ("1 2 - 3 2 - 3", 3)] {
            assert_eq!(usual().compare(changes(words), 0), repeated(times), "{words}");
        }
        // What a snapshot stands for is not missing.
        for (words, times) in [("s2 - 3", 0), ("s3", 0), ("s3 3", 1), ("s2 1 2 - 3", 2), ("3", 0)] {
            assert_eq!(usual().compare(changes(words), 5), repeated(times), "{words}");
        }
        // A snapshot that is resumed shows changes before its rows.
        assert_eq!(usual().compare(changes("2 s2 - 3"), 2), repeated(1));
        assert_eq!(usual().compare(changes("- 3"), 5), repeated(0));
        assert!(usual().compare(changes("- 3"), 4).lost > 0);
        assert!(usual().compare(changes("2 s2 - 3"), 0).lost > 0);
        assert!(usual().compare(changes("3"), 2).lost > 0);
        let deleted = history(&[(1, Event::Row(1)), (2, Event::Gone)]);
        assert_eq!(deleted.compare(Vec::new(), 2), Comparison::default());
    }

    #[test]
    fn faults_are_found() {
        for (words, folded) in
            [("1 2 -", 0), ("1 - 3", 0), ("1 2 3", 0), ("2 - 3", 0), ("3", 4), ("", 5), ("", 6), ("s2 3", 5)]
        {
            let found = usual().compare(changes(words), folded);
            assert!(found.lost > 0 && !found.gaps.is_empty(), "{words}: {found:?}");
        }
        // An older state is the last one.
        assert_eq!(usual().compare(changes("1 2 - 3 1 2"), 0).gaps.len(), 1);
        assert_eq!(usual().compare(changes("1 2 - 3 - 3 2 - 3"), 0).gaps.len(), 0);
        assert_eq!(usual().compare(changes("1 2 - 3 1 -  3"), 0).gaps.len(), 1);
        assert_eq!(usual().compare(changes("1 2 - 3 9"), 0).unknown.len(), 1);
        assert_eq!(History::default().compare(changes("1"), 0).unknown.len(), 1);
        let deleted = history(&[(1, Event::Row(1)), (2, Event::Gone)]);
        assert_eq!(deleted.compare(Vec::new(), 1).lost, 1);
    }

    #[test]
    fn a_change_of_the_key_is_the_end_of_one_key() {
        let mut record = json!({
            "operation": "update", "metadata": { "opencdc.collection": "wide", "postgres.unchanged": "body" },
            "key": { "part": "p1", "id": 2 },
            "payload": { "before": { "part": "p0", "id": 1 }, "after": { "part": "p1", "id": 2, "change": 7 } },
        });
        let found = observed(&record);
        let places: Vec<&str> = found.iter().map(|change| change.place.1.as_str()).collect();
        assert_eq!(places, ["p0/1", "p1/2"]);
        assert_eq!(found.iter().map(|change| change.event).collect::<Vec<_>>(), [Event::Gone, Event::Row(7)]);
        assert!(found.iter().all(|change| change.fault.is_none()), "{found:?}");
        // A column that is absent and not named.
        record["metadata"]["postgres.unchanged"] = Value::Null;
        assert!(observed(&record)[1].fault.is_some());
        record["payload"]["after"]["body"] = json!("x");
        record["payload"]["before"] = record["key"].clone();
        assert_eq!(observed(&record).len(), 1);
        assert!(observed(&record)[0].fault.is_none());
    }

    #[test]
    fn states_of_a_table_may_be_left_out_and_not_go_back() {
        let copy = |events: &[Event]| history(&events.iter().map(|event| (0, *event)).collect::<Vec<_>>());
        let compared = |events: &[Event]| usual().compare_states(&copy(events), 4);
        assert_eq!(compared(&[Event::Row(2), Event::Gone, Event::Row(3)]), Comparison::default());
        assert_eq!(compared(&[Event::Row(3), Event::Row(1), Event::Row(3)]).repeated, 1);
        assert_eq!(compared(&[Event::Row(2), Event::Row(1), Event::Row(2)]).repeated, 1);
        assert_eq!(compared(&[Event::Row(2), Event::Row(2)]).repeated, 0, "a snapshot may show it again");
        assert_eq!(compared(&[Event::Row(3), Event::Row(3)]).repeated, 1);
        assert_eq!(compared(&[Event::Row(4)]).unknown.len(), 1);
    }
}
