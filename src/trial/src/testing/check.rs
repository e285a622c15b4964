//! Compares the results of a test with its expectations.

use std::collections::BTreeMap;

use anabranch_plugin::diagnostic::Span;
use anabranch_record::Position;
use anabranch_record::phrase::counted;
use anabranch_record::text::Str;
use serde_json::{Value as Json, json};

use super::case::{Acks, Expectations, ExpectedRecords, FaultSpec, Status};
use super::pattern::{Expected, pairs};
use super::run::Observed;
use super::script::distinct;
use super::stub::Stub;

/// A difference between the results and the expectations.
#[derive(Debug)]
pub struct Failure {
    /// Place of the expectation.
    pub span: Span,
    /// Subject: `records of orders`.
    pub what: String,
    /// Descriptions of the differences, one line each.
    pub said: Vec<String>,
    /// The expected and the actual list, for display.
    pub lists: Option<(Json, Json)>,
    /// The change of the test file that would make the test pass.
    pub(super) fix: Option<Fix>,
}

/// A change of a test file.
#[derive(Debug)]
pub(super) enum Fix {
    /// Individual values at their places.
    Values(Vec<(Span, Json)>),
    /// A whole list.
    List { at: Span, values: Vec<(Span, Json)>, items: Vec<Json>, of: Items },
}

/// The type of a list's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Items {
    Records,
    Letters,
    Requests,
}

/// The expectations of a test, by the ids of its pipeline.
pub(super) struct Expecting<'a> {
    pub(super) expect: &'a Expectations,
    pub(super) records: Vec<(Str, &'a ExpectedRecords)>,
    pub(super) acks: Vec<(Str, &'a Acks)>,
    pub(super) stubs: &'a [Stub],
    pub(super) faults: &'a [FaultSpec],
    /// Place of the test's name, for failures without a more specific place.
    pub(super) name: Span,
}

/// Maximum number of failures that are listed for one list.
const MOST: usize = 5;

/// Returns all differences.
pub(super) fn check(expecting: &Expecting<'_>, observed: &Observed) -> Vec<Failure> {
    let mut failures = Vec::new();
    let Expecting { expect, .. } = expecting;
    ending(expecting, observed, &mut failures);
    for (connector, expected) in &expecting.records {
        let delivered = observed.kept.delivered.get(connector).map(Vec::as_slice).unwrap_or_default();
        let mut got: Vec<Json> = Vec::with_capacity(delivered.len());
        // A record that is read again has a different read time.
        let mut seen: Vec<(&Position, Json)> = Vec::new();
        for (position, record) in delivered {
            if expected.repeats {
                let this = (position, trimmed(record, Items::Records));
                if seen.contains(&this) {
                    continue;
                }
                seen.push(this);
            }
            got.push(record.clone());
        }
        failures.extend(list(expected, &got, &format!("records of {connector}"), "record", Items::Records));
    }
    let letters = &observed.kept.letters;
    match &expect.letters {
        Some(expected) => failures.extend(list(expected, letters, "dead letters", "dead letter", Items::Letters)),
        // If the test expects the failure of the whole pipeline, the dead letters before it are expected.
        None if letters.is_empty() || observed.status != Some(Status::Finished) => {}
        None => failures.push(Failure {
            span: expect.span,
            what: "dead letters".to_owned(),
            said: letters.iter().take(MOST).map(|letter| format!("not expected: {}", one_letter(letter))).collect(),
            lists: None,
            fix: None,
        }),
    }
    acks(expecting, observed, &mut failures);
    faults(expecting, observed, &mut failures);
    requests(expecting, observed, &mut failures);
    failures
}

/// Returns what a crash lost, compared with a run without a crash: every copy of every record must have arrived, and at
/// a transactional destination not more often. Contents are not compared, because they may be random.
pub(super) fn lost(at: Span, observed: &Observed, unharmed: &Observed, transactional: &[&Str]) -> Vec<Failure> {
    if observed.status != unharmed.status {
        return Vec::new();
    }
    let mut failures = Vec::new();
    for (connector, delivered) in &unharmed.kept.delivered {
        let copies = |of: &[(Position, Json)]| {
            let mut copies: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            of.iter().for_each(|(position, _)| *copies.entry(position.0.to_vec()).or_default() += 1);
            copies
        };
        let came = copies(observed.kept.delivered.get(connector).map(Vec::as_slice).unwrap_or_default());
        let exact = transactional.contains(&connector);
        let mut said = Vec::new();
        for (position, wanted) in copies(delivered) {
            let got = came.get(&position).copied().unwrap_or(0);
            if got < wanted || (exact && got > wanted) {
                let what = if got < wanted { "lost" } else { "doubled" };
                let position = super::view::bytes(&position);
                said.push(format!(
                    "{what}: the record at {position} arrived {}, but {} without the crash",
                    counted(got, "time"),
                    counted(wanted, "time")
                ));
            }
        }
        if !said.is_empty() {
            said.truncate(MOST);
            failures
                .push(Failure { said, ..failure(at, &format!("records of {connector} after a crash"), String::new()) });
        }
    }
    failures
}

fn failure(span: Span, what: &str, said: String) -> Failure {
    Failure { span, what: what.to_owned(), said: vec![said], lists: None, fix: None }
}

fn one_letter(letter: &Json) -> String {
    let text = |name: &str| letter[name].as_str().unwrap_or_default();
    let record = match (letter["source"].as_str(), letter["number"].as_u64()) {
        (Some(source), Some(number)) => format!("record {number} of {source}"),
        _ => "a record".to_owned(),
    };
    format!("{record} failed at {}: {} ({})", text("step"), text("error"), text("code"))
}

fn ending(expecting: &Expecting<'_>, observed: &Observed, failures: &mut Vec<Failure>) {
    let Expecting { expect, name, .. } = expecting;
    let why = observed.error.as_deref().unwrap_or_default();
    let Some(status) = observed.status else {
        failures.push(failure(*name, "the run", why.to_owned()));
        return;
    };
    let wanted = expect.status.map_or(Status::Finished, |wanted| wanted.value);
    let wanted = if expect.status.is_none() && expect.error.is_some() { Status::Degraded } else { wanted };
    if status != wanted {
        let span = expect.status.map_or(*name, |wanted| wanted.span);
        let because = if why.is_empty() { String::new() } else { format!(": {why}") };
        let said = format!("the pipeline is {}, expected {}{because}", status.as_str(), wanted.as_str());
        failures.push(Failure {
            fix: expect.status.map(|at| Fix::Values(vec![(at.span, Json::from(status.as_str()))])),
            ..failure(span, "status", said)
        });
    } else if let Some(error) = &expect.error {
        let got = Json::from(why);
        if !error.matches(Some(&got)) {
            failures.push(failure(error.span, "error", format!("the error is {got}, expected {error}")));
        }
    }
}

/// Reports faults that never happened, because then the test does not test them.
fn faults(expecting: &Expecting<'_>, observed: &Observed, failures: &mut Vec<Failure>) {
    // Runs that were aborted or failed too early are reported elsewhere.
    if observed.status.is_none() || (observed.status != Some(Status::Finished) && !failures.is_empty()) {
        return;
    }
    let never = expecting.faults.iter().zip(&observed.kept.struck).filter(|(_, struck)| **struck == 0);
    for (fault, _) in never {
        let at = &fault.at.value;
        let source = fault.source.as_ref().map(|source| format!(" of {}", source.value)).unwrap_or_default();
        let said = match fault.records.as_slice() {
            [] if source.is_empty() => format!("the fault never occurs: no record reaches {at}"),
            [] => format!("the fault never occurs: no record{source} reaches {at}"),
            [record] => format!("the fault never occurs: record {record}{source} does not reach {at}"),
            records => {
                let numbers: Vec<String> = records.iter().map(usize::to_string).collect();
                format!("the fault never occurs: none of the records {}{source} reaches {at}", numbers.join(", "))
            }
        };
        failures.push(failure(fault.span, "faults", said));
    }
}

fn acks(expecting: &Expecting<'_>, observed: &Observed, failures: &mut Vec<Failure>) {
    for (source, acks) in &expecting.acks {
        let acked = observed.kept.acked.get(source).map(Vec::as_slice).unwrap_or_default();
        let read = observed.kept.read.get(source).copied().unwrap_or(0);
        let what = format!("acks of {source}");
        let said = match acks {
            Acks::All(_) => {
                let told = distinct(acked);
                let missing: Vec<usize> = (1..=read).filter(|number| !told.contains(number)).collect();
                (!missing.is_empty()).then(|| {
                    format!("not acknowledged: {} of {}: {}", missing.len(), counted(read, "record"), listed(&missing))
                })
            }
            Acks::None(_) => (!acked.is_empty()).then(|| format!("acknowledged: {}", listed(acked))),
            Acks::Count(count) => {
                let told = distinct(acked).len();
                (told != count.value)
                    .then(|| format!("{} acknowledged, expected {}", counted(told, "record"), count.value))
            }
            Acks::These(wanted, _) => (acked != wanted.as_slice())
                .then(|| format!("acknowledged: {}, expected {}", listed(acked), listed(wanted))),
        };
        let span = match acks {
            Acks::All(span) | Acks::None(span) | Acks::These(_, span) => *span,
            Acks::Count(count) => count.span,
        };
        failures.extend(said.map(|said| failure(span, &what, said)));
    }
}

fn listed(numbers: &[usize]) -> String {
    let shown: Vec<String> = numbers.iter().take(20).map(ToString::to_string).collect();
    match numbers.len() {
        0 => "none".to_owned(),
        n if n > shown.len() => format!("{} and {} more", shown.join(", "), n - shown.len()),
        _ => shown.join(", "),
    }
}

fn requests(expecting: &Expecting<'_>, observed: &Observed, failures: &mut Vec<Failure>) {
    let Expecting { expect, stubs, name, .. } = expecting;
    let shown = |request: &Json| {
        format!("{} {}", request["method"].as_str().unwrap_or_default(), request["url"].as_str().unwrap_or_default())
    };
    for number in observed.unmatched.iter().take(MOST) {
        let Some(request) = observed.requests.get(*number) else { continue };
        let mut said = vec![format!("no stub matches {}", shown(request))];
        // The most similar stub shows what does not match.
        let nearest =
            stubs.iter().map(|stub| (stub, stub.request.mismatches(Some(request)))).min_by_key(|(_, m)| m.len());
        if let Some((_, mismatches)) = &nearest {
            said.extend(mismatches.iter().take(MOST).map(|mismatch| {
                format!(
                    "the nearest stub expects{} to be {}, not {}",
                    named(&mismatch.path),
                    mismatch.expected,
                    short(mismatch.got.as_ref())
                )
            }));
        }
        let span = nearest.map_or(*name, |(stub, _)| stub.span);
        failures.push(Failure { said, ..failure(span, "HTTP requests", String::new()) });
    }
    for (stub, asked) in stubs.iter().zip(&observed.answered) {
        if let Some(times) = stub.times.filter(|times| times.value != *asked) {
            let said = format!("the stub was called {}, expected {}", counted(*asked, "time"), times.value);
            failures.push(Failure {
                fix: Some(Fix::Values(vec![(times.span, Json::from(*asked))])),
                ..failure(times.span, "HTTP requests", said)
            });
        }
    }
    if let Some(expected) = &expect.requests {
        failures.extend(list(expected, &observed.requests, "HTTP requests", "request", Items::Requests));
    }
}

/// The alignment of two lists: pairs, and items without a partner.
struct Aligned {
    pairs: Vec<(Option<usize>, Option<usize>)>,
}

fn aligned(items: &[Expected], got: &[Json], unordered: bool) -> Aligned {
    let matched: Vec<(usize, usize)> = match unordered {
        true => pairs(items, got).into_iter().enumerate().filter_map(|(item, value)| Some((item, value?))).collect(),
        false => common(items, got),
    };
    // Items between two pairs are paired in order, because they are probably changed versions of each other.
    let mut all = Vec::new();
    let (mut item, mut value) = (0, 0);
    if unordered {
        let rest_items: Vec<usize> = (0..items.len()).filter(|i| !matched.iter().any(|(m, _)| m == i)).collect();
        let rest: Vec<usize> = (0..got.len()).filter(|i| !matched.iter().any(|(_, m)| m == i)).collect();
        all.extend(matched.iter().map(|(item, value)| (Some(*item), Some(*value))));
        for at in 0..rest_items.len().max(rest.len()) {
            all.push((rest_items.get(at).copied(), rest.get(at).copied()));
        }
        return Aligned { pairs: all };
    }
    for (next_item, next_value) in matched.into_iter().chain([(items.len(), got.len())]) {
        while item < next_item || value < next_value {
            all.push(((item < next_item).then_some(item), (value < next_value).then_some(value)));
            (item, value) = ((item + 1).min(next_item), (value + 1).min(next_value));
        }
        if next_item < items.len() {
            all.push((Some(next_item), Some(next_value)));
        }
        (item, value) = (next_item + 1, next_value + 1);
    }
    Aligned { pairs: all }
}

/// Returns the longest common subsequence; for lists that are too long, the items that match at the same index.
fn common(items: &[Expected], got: &[Json]) -> Vec<(usize, usize)> {
    const MOST: usize = 1 << 20;
    if items.len().saturating_mul(got.len()) > MOST {
        let same = |at: &usize| items[*at].matches(Some(&got[*at]));
        return (0..items.len().min(got.len())).filter(same).map(|at| (at, at)).collect();
    }
    let width = got.len() + 1;
    let fits: Vec<bool> =
        items.iter().flat_map(|item| got.iter().map(move |value| item.matches(Some(value)))).collect();
    let mut longest = vec![0u32; (items.len() + 1) * width];
    for item in (0..items.len()).rev() {
        for value in (0..got.len()).rev() {
            let skip = longest[(item + 1) * width + value].max(longest[item * width + value + 1]);
            let both = u32::from(fits[item * got.len() + value]) * (longest[(item + 1) * width + value + 1] + 1);
            longest[item * width + value] = skip.max(both);
        }
    }
    let (mut item, mut value, mut found) = (0, 0, Vec::new());
    while item < items.len() && value < got.len() {
        let here = longest[item * width + value];
        if fits[item * got.len() + value] && here == longest[(item + 1) * width + value + 1] + 1 {
            found.push((item, value));
            (item, value) = (item + 1, value + 1);
        } else if here == longest[(item + 1) * width + value] {
            item += 1;
        } else {
            value += 1;
        }
    }
    found
}

/// Compares a list.
fn list(expected: &ExpectedRecords, got: &[Json], what: &str, one: &str, of: Items) -> Option<Failure> {
    let mut said = Vec::new();
    if let Some(count) = expected.count.filter(|count| count.value != got.len()) {
        said.push(format!("got {}, expected {}", got.len(), count.value));
        if expected.items.is_none() {
            let fix = Some(Fix::Values(vec![(count.span, Json::from(got.len()))]));
            return Some(Failure { fix, said, ..failure(count.span, what, String::new()) });
        }
    }
    let items = expected.items.as_deref().unwrap_or_default();
    if expected.items.is_none() && expected.count.is_some() {
        return None;
    }
    let Aligned { pairs } = aligned(items, got, expected.unordered);
    let (mut values, mut replaceable, mut first) = (Vec::new(), true, None);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (item, value) in &pairs {
        match (item, value) {
            (Some(item), Some(value)) => {
                let (expected, got) = (&items[*item], &got[*value]);
                let mismatches = expected.mismatches(Some(got));
                for mismatch in &mismatches {
                    first.get_or_insert(mismatch.span);
                    replaceable &= mismatch.literal;
                    values.extend(mismatch.got.as_ref().map(|got| (mismatch.span, got.clone())));
                    let field = mismatch.path.trim_start_matches('.');
                    said.push(format!(
                        "{one} {}: {field} is {}, expected {}",
                        value + 1,
                        short(mismatch.got.as_ref()),
                        mismatch.expected
                    ));
                }
                left.extend(expected.beside(Some(got)).map(|value| trimmed(&value, of)));
                right.push(trimmed(got, of));
            }
            (Some(item), None) => {
                replaceable = false;
                first.get_or_insert(items[*item].span);
                said.push(format!("{one} {} is missing", item + 1));
                left.extend(items[*item].beside(None).map(|value| trimmed(&value, of)));
            }
            (None, Some(value)) => {
                replaceable = false;
                let brief = match of {
                    Items::Records => short(Some(&trimmed(&got[*value], of))),
                    Items::Letters => one_letter(&got[*value]),
                    Items::Requests => short(Some(&got[*value]["url"])),
                };
                said.push(format!("{one} {} was not expected: {brief}", value + 1));
                right.push(trimmed(&got[*value], of));
            }
            (None, None) => {}
        }
    }
    if said.is_empty() {
        return None;
    }
    if said.len() > MOST {
        let more = said.len() - MOST;
        said.truncate(MOST);
        said.push(format!("and {more} more"));
    }
    let items: Vec<Json> = got.iter().map(|value| trimmed(value, of)).collect();
    let values = if replaceable { values } else { Vec::new() };
    Some(Failure {
        span: first.or(expected.list).unwrap_or(expected.span),
        what: what.to_owned(),
        said,
        lists: Some((Json::Array(left), Json::Array(right))),
        fix: expected.list.map(|at| Fix::List { at, values, items, of }),
    })
}

/// Removes parts of a value that do not belong in a test.
fn trimmed(value: &Json, of: Items) -> Json {
    let mut value = value.clone();
    match of {
        Items::Records => trim_record(&mut value),
        Items::Letters => {
            if let Some(fields) = value.as_object_mut() {
                fields.remove("name");
                if fields.get("number").is_some_and(Json::is_number) {
                    fields.remove("record");
                    let number = fields.remove("number").unwrap_or_default();
                    fields.insert("record".to_owned(), number);
                } else {
                    fields.remove("number");
                }
                fields.remove("source");
            }
        }
        Items::Requests => {
            let body = if value["json"].is_null() { &value["body"] } else { &value["json"] };
            value = json!({ "method": value["method"], "url": value["url"], "body": body });
            if value["body"] == "" || value["body"].is_null() {
                value.as_object_mut().map(|fields| fields.remove("body"));
            }
        }
    }
    value
}

fn trim_record(value: &mut Json) {
    let Some(fields) = value.as_object_mut() else { return };
    for part in ["key", "before", "after"] {
        if fields.get(part).is_some_and(Json::is_null) {
            fields.remove(part);
        }
    }
    if fields.get("operation").is_some_and(|operation| operation == "create") {
        fields.remove("operation");
    }
    if let Some(metadata) = fields.get_mut("metadata").and_then(Json::as_object_mut) {
        super::view::STAMPS.iter().for_each(|key| drop(metadata.remove(key.as_str())));
        if metadata.is_empty() {
            fields.remove("metadata");
        }
    }
}

fn named(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" {}", path.trim_start_matches('.')) }
}

/// Formats a value in a line of limited length.
fn short(value: Option<&Json>) -> String {
    const CHARS: usize = 120;
    let Some(value) = value else { return "missing".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(values: &[Json]) -> Vec<Expected> {
        values.iter().map(|value| Expected::exactly(value, Span::default())).collect()
    }

    #[test]
    fn what_changed_is_beside_what_it_was() {
        let expected = items(&[json!(1), json!(2), json!(3)]);
        let pairs = |got: &[Json], unordered| aligned(&expected, got, unordered).pairs;
        let both = |item, value| (Some(item), Some(value));
        assert_eq!(pairs(&[json!(1), json!(9), json!(3)], false), [both(0, 0), both(1, 1), both(2, 2)]);
        assert_eq!(pairs(&[json!(1), json!(3)], false), [both(0, 0), (Some(1), None), both(2, 1)]);
        assert_eq!(
            pairs(&[json!(0), json!(1), json!(2), json!(3)], false),
            [(None, Some(0)), both(0, 1), both(1, 2), both(2, 3)]
        );
        assert_eq!(pairs(&[json!(3), json!(7), json!(1)], true), [both(0, 2), both(2, 0), both(1, 1)]);
    }
}
