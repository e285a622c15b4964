//! Checks a history of a destination and of its state store against what `docs/guarantees.md` promises: no record is
//! lost or acknowledged early, one run owns the positions, and a transactional destination has each record once.
//!
//! A history is text with one JSON object per line. Whatever happened after something else comes later:
//!
//! ```json
//! {"event":"claim","slot":3,"claim":17}
//! {"event":"open","slot":3,"opening":21}
//! {"event":"write","transaction":"99","partition":"5","record":37}
//! {"event":"hold","transaction":"99","slot":3,"opening":21}
//! {"event":"ack","slot":3,"partition":"5","record":37}
//! ```
//!
//! * `claim`: a run claims a slot in the state store.
//! * `open`: a run opens the destination for a slot.
//! * `write`: a committed transaction of the destination wrote a record of a partition.
//! * `hold`: the same transaction passed the fence of the slot, with this opening.
//! * `ack`: the state store stored that everything of the partition up to this record is delivered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What a history without a broken promise consists of: the numbers of its events.
#[derive(Debug, PartialEq, Eq)]
pub struct Checked {
    /// Records that transactions of the destination wrote.
    pub writes: usize,
    /// Positions that the state store stored.
    pub acknowledgements: usize,
    /// Claims of slots in the state store.
    pub claims: usize,
    /// Openings of the destination.
    pub openings: usize,
}

/// The partitions of the source, and the numbers of their records: `first`, `first + step`, `first + 2 * step`...
pub struct Partitions {
    /// The names of all partitions. Each has records.
    pub names: Vec<String>,
    /// Returns the first record of a partition.
    pub first: fn(&str) -> u64,
    /// The distance between a record of a partition and the next one.
    pub step: u64,
}

/// Returns the numbers of events of a history, or the first promise that it breaks, with the number of the line.
pub fn check(history: &str, partitions: &Partitions) -> Result<Checked, String> {
    let mut checker = Checker::new(partitions);
    let mut last = 0;
    for (line, text) in (1..).zip(history.lines()) {
        checker.event(line, text).map_err(|broken| format!("line {line}: {broken}"))?;
        last = line;
    }
    checker.end(last)?;
    Ok(checker.checked)
}

/// What is known of the lines before the current one.
struct Checker {
    checked: Checked,
    step: u64,
    partitions: BTreeMap<String, Partition>,
    /// Per slot, the latest claim.
    claims: BTreeMap<u64, Mark>,
    /// Per slot, the latest opening.
    openings: BTreeMap<u64, Mark>,
    transactions: BTreeMap<String, Transaction>,
}

/// A number, and the line that has it.
#[derive(Clone, Copy)]
struct Mark {
    number: u64,
    line: usize,
}

/// What happened to the records of a partition.
struct Partition {
    first: u64,
    /// The records that were written, each with its line. They have no gaps: those break a promise.
    written: BTreeMap<u64, usize>,
    /// The latest acknowledgement.
    acknowledged: Option<Mark>,
}

/// What a transaction of the destination did.
#[derive(Default)]
struct Transaction {
    /// Its first record: the line and the partition.
    wrote: Option<(usize, String)>,
    /// The slots that it holds, with their openings.
    holds: BTreeSet<(u64, u64)>,
}

impl Checker {
    fn new(partitions: &Partitions) -> Self {
        let partition = |name: &String| {
            let first = (partitions.first)(name);
            (name.clone(), Partition { first, written: BTreeMap::new(), acknowledged: None })
        };
        Self {
            checked: Checked { writes: 0, acknowledgements: 0, claims: 0, openings: 0 },
            step: partitions.step,
            partitions: partitions.names.iter().map(partition).collect(),
            claims: BTreeMap::new(),
            openings: BTreeMap::new(),
            transactions: BTreeMap::new(),
        }
    }

    /// Takes one line of the history.
    fn event(&mut self, line: usize, text: &str) -> Result<(), String> {
        let event: Value =
            serde_json::from_str(text).map_err(|error| format!("this is no event, because it is no JSON: {error}"))?;
        match string(&event, "event")? {
            "claim" => {
                self.checked.claims += 1;
                let mark = Mark { number: number(&event, "claim")?, line };
                rise(&mut self.claims, "claim", number(&event, "slot")?, mark)
            }
            "open" => {
                self.checked.openings += 1;
                let mark = Mark { number: number(&event, "opening")?, line };
                rise(&mut self.openings, "opening", number(&event, "slot")?, mark)
            }
            "write" => {
                self.checked.writes += 1;
                let record = Mark { number: number(&event, "record")?, line };
                self.write(string(&event, "transaction")?, string(&event, "partition")?, record)
            }
            "hold" => self.hold(string(&event, "transaction")?, number(&event, "slot")?, number(&event, "opening")?),
            "ack" => {
                self.checked.acknowledgements += 1;
                number(&event, "slot")?;
                self.acknowledge(string(&event, "partition")?, Mark { number: number(&event, "record")?, line })
            }
            other => Err(format!("there is no event {other:?}")),
        }
    }

    /// A record is written once, and after the one before it.
    fn write(&mut self, name: &str, partition: &str, record: Mark) -> Result<(), String> {
        let known = find(&mut self.partitions, partition)?;
        let Mark { number, line } = record;
        if let Some(earlier) = known.written.get(&number) {
            return Err(format!(
                "record {number} of partition {partition:?} is written again after line {earlier}, although a record \
                 is written at most once"
            ));
        }
        let expected = match known.written.last_key_value() {
            Some((last, _)) => last.saturating_add(self.step),
            None => known.first,
        };
        if number != expected {
            return Err(format!(
                "record {number} of partition {partition:?} is written when record {expected} is the next one, \
                 although the records of a partition are written in order and without gaps"
            ));
        }
        known.written.insert(number, line);
        let transaction = self.transactions.entry(name.to_owned()).or_default();
        transaction.wrote.get_or_insert_with(|| (line, partition.to_owned()));
        transaction.fenced(name, &self.openings)
    }

    /// A transaction holds a slot only with its latest opening.
    fn hold(&mut self, name: &str, slot: u64, opening: u64) -> Result<(), String> {
        let transaction = self.transactions.entry(name.to_owned()).or_default();
        transaction.holds.insert((slot, opening));
        transaction.fenced(name, &self.openings)
    }

    /// An acknowledgement is of a record that is written, as are all before it, and no acknowledgement goes back.
    fn acknowledge(&mut self, partition: &str, record: Mark) -> Result<(), String> {
        let known = find(&mut self.partitions, partition)?;
        let number = record.number;
        if let Some(Mark { number: latest, line }) = known.acknowledged
            && number < latest
        {
            return Err(format!(
                "record {number} of partition {partition:?} is acknowledged after record {latest} in line {line}, \
                 although the acknowledgements of a partition never go back"
            ));
        }
        // As there are no gaps, the records before it are written too.
        if !known.written.contains_key(&number) {
            let last = match known.written.last_key_value() {
                Some((last, line)) => format!("the last one that is written is record {last} in line {line}"),
                None => "none is written".to_owned(),
            };
            return Err(format!(
                "record {number} of partition {partition:?} is acknowledged and not written ({last}), although a \
                 record and all before it are written before it is acknowledged"
            ));
        }
        known.acknowledged = Some(record);
        Ok(())
    }

    /// What is promised of a whole history, whose last line is `line`. That the records up to the last acknowledgement
    /// are written was checked with the acknowledgement.
    fn end(&self, line: usize) -> Result<(), String> {
        let unfenced = |(name, transaction): (_, &Transaction)| match &transaction.wrote {
            Some((line, partition)) if transaction.holds.is_empty() => Some((*line, partition.clone(), name)),
            _ => None,
        };
        if let Some((line, partition, name)) = self.transactions.iter().filter_map(unfenced).min() {
            return Err(format!(
                "line {line}: transaction {name:?} writes to partition {partition:?} and holds no slot, although a \
                 transaction that writes holds at least one"
            ));
        }
        if let Some((name, _)) = self.partitions.iter().find(|(_, partition)| partition.written.is_empty()) {
            return Err(format!(
                "line {line}: the history ends without a record of partition {name:?}, although no record is lost"
            ));
        }
        Ok(())
    }
}

impl Transaction {
    /// All slots that it holds have no later opening than the one that it holds.
    fn fenced(&self, name: &str, openings: &BTreeMap<u64, Mark>) -> Result<(), String> {
        for (slot, opening) in &self.holds {
            let latest = match openings.get(slot) {
                Some(latest) if latest.number == *opening => continue,
                Some(Mark { number, line }) => format!("the latest one is opening {number} in line {line}"),
                None => "the slot was not opened".to_owned(),
            };
            return Err(format!(
                "transaction {name:?} holds slot {slot} with opening {opening} ({latest}), although a transaction \
                 holds a slot only with its latest opening"
            ));
        }
        Ok(())
    }
}

/// Notes the latest number of a slot. Each claim and each opening has a number of its own: an equal one is refused too.
fn rise(latest: &mut BTreeMap<u64, Mark>, what: &str, slot: u64, mark: Mark) -> Result<(), String> {
    match latest.insert(slot, mark) {
        Some(Mark { number, line }) if mark.number <= number => Err(format!(
            "{what} {} of slot {slot} comes after {what} {number} in line {line}, although the numbers of a slot \
             only rise",
            mark.number
        )),
        _ => Ok(()),
    }
}

/// Returns what is known of a partition.
fn find<'a>(partitions: &'a mut BTreeMap<String, Partition>, name: &str) -> Result<&'a mut Partition, String> {
    partitions.get_mut(name).ok_or_else(|| format!("the source has no partition {name:?}"))
}

/// Returns a field of an event that is a number.
fn number(event: &Value, field: &str) -> Result<u64, String> {
    event[field].as_u64().ok_or_else(|| format!("this event has no number {field:?}: {event}"))
}

/// Returns a field of an event that is a string.
fn string<'a>(event: &'a Value, field: &str) -> Result<&'a str, String> {
    event[field].as_str().ok_or_else(|| format!("this event has no string {field:?}: {event}"))
}

/// Checks a history of the partitions 5 (records 5, 15, 25 and so on) and 6 (records 6, 16, 26 and so on). Each word of
/// `history` is an event, its kind and its fields separated by colons.
fn checked(history: &str) -> Result<Checked, String> {
    let first = |name: &str| name.parse().unwrap();
    check(&lines(history), &Partitions { names: vec!["5".to_owned(), "6".to_owned()], first, step: 10 })
}

/// The history whose events are abbreviated, such as `write:99:5:15`.
fn lines(history: &str) -> String {
    let line = |event: &str| {
        let fields: Vec<&str> = event.split(':').collect();
        match fields[..] {
            ["claim", slot, claim] => format!(r#"{{"event":"claim","slot":{slot},"claim":{claim}}}"#),
            ["open", slot, opening] => format!(r#"{{"event":"open","slot":{slot},"opening":{opening}}}"#),
            ["write", transaction, partition, record] => format!(
                r#"{{"event":"write","transaction":"{transaction}","partition":"{partition}","record":{record}}}"#
            ),
            ["hold", transaction, slot, opening] => {
                format!(r#"{{"event":"hold","transaction":"{transaction}","slot":{slot},"opening":{opening}}}"#)
            }
            ["ack", slot, partition, record] => {
                format!(r#"{{"event":"ack","slot":{slot},"partition":"{partition}","record":{record}}}"#)
            }
            _ => panic!("{event}"),
        }
    };
    history.split_whitespace().map(|event| line(event) + "\n").collect()
}

/// Two runs, the second of which takes over slot 3. All promises are kept.
const KEPT: &str = "claim:3:17 open:3:21 claim:4:2 open:4:2 write:99:5:5 write:99:5:15 hold:99:3:21 ack:3:5:5 \
     hold:100:4:2 write:100:6:6 claim:3:18 ack:4:6:6 open:3:22 ack:3:5:15 ack:3:5:15 write:101:5:25 write:101:6:16 \
     hold:101:3:22 hold:101:4:2 ack:3:5:25";

/// Fails unless the history breaks a promise as `expected` says.
#[track_caller]
fn breaks(history: &str, expected: &str) {
    assert_eq!(checked(history).unwrap_err(), expected, "{history}");
}

#[test]
fn a_history_that_keeps_all_promises_is_counted() {
    let expected = Checked { writes: 5, acknowledgements: 5, claims: 3, openings: 3 };
    assert_eq!(checked(KEPT), Ok(expected));
}

#[test]
fn a_record_is_written_at_most_once() {
    let again = "is written again after line 2, although a record is written at most once";
    breaks("open:3:1 write:1:5:5 write:1:5:5", &format!("line 3: record 5 of partition \"5\" {again}"));
    let history = "open:3:1 write:1:5:5 hold:1:3:1 write:2:5:15 hold:2:3:1 ack:3:5:15 write:3:5:5";
    breaks(history, &format!("line 7: record 5 of partition \"5\" {again}"));
}

#[test]
fn records_are_written_in_order_and_without_gaps() {
    let promise = "although the records of a partition are written in order and without gaps";
    for (history, place, record, expected) in [
        ("write:1:5:15 write:1:5:5", 1, 15, 5),
        ("write:1:5:5 write:1:5:25", 2, 25, 15),
        ("write:1:5:5 write:1:6:6 write:1:5:16", 3, 16, 15),
        ("write:1:5:5 write:1:5:4", 2, 4, 15),
        ("write:1:5:0", 1, 0, 5),
    ] {
        let what = format!("record {record} of partition \"5\" is written when record {expected} is the next one");
        breaks(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn an_acknowledgement_is_of_a_record_that_is_written_before_it() {
    let promise = "although a record and all before it are written before it is acknowledged";
    for (history, place, record, last) in [
        ("ack:3:5:5 write:1:5:5", 1, 5, "none is written"),
        ("write:1:6:6 ack:3:5:5", 2, 5, "none is written"),
        ("write:1:5:5 ack:3:5:15 write:1:5:15", 2, 15, "the last one that is written is record 5 in line 1"),
        ("write:1:5:5 write:1:5:15 ack:3:5:6", 3, 6, "the last one that is written is record 15 in line 2"),
    ] {
        let what = format!("record {record} of partition \"5\" is acknowledged and not written ({last})");
        breaks(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn all_records_before_an_acknowledged_one_are_written() {
    let promise = "although the records of a partition are written in order and without gaps";
    let what = "record 25 of partition \"5\" is written when record 15 is the next one";
    breaks("open:3:1 write:1:5:5 write:1:5:25 hold:1:3:1 ack:3:5:25", &format!("line 3: {what}, {promise}"));
}

#[test]
fn acknowledgements_never_go_back() {
    breaks(
        "write:1:5:5 write:1:5:15 ack:3:5:15 ack:4:5:5",
        "line 4: record 5 of partition \"5\" is acknowledged after record 15 in line 3, although the acknowledgements \
         of a partition never go back",
    );
}

#[test]
fn claims_and_openings_of_a_slot_only_rise() {
    let promise = "although the numbers of a slot only rise";
    for number in [16, 17] {
        let what = format!("claim {number} of slot 3 comes after claim 17 in line 1");
        breaks(&format!("claim:3:17 claim:4:1 claim:3:{number}"), &format!("line 3: {what}, {promise}"));
        let what = format!("opening {number} of slot 3 comes after opening 17 in line 1");
        breaks(&format!("open:3:17 open:4:1 open:3:{number}"), &format!("line 3: {what}, {promise}"));
    }
}

#[test]
fn a_transaction_holds_only_the_latest_opening() {
    let promise = "although a transaction holds a slot only with its latest opening";
    for (history, place, transaction, latest) in [
        ("open:3:21 open:3:22 write:1:5:5 hold:1:3:21", 4, 1, "the latest one is opening 22 in line 2"),
        ("open:3:21 write:1:5:5 open:3:22 hold:1:3:21", 4, 1, "the latest one is opening 22 in line 3"),
        ("open:3:21 hold:1:3:21 open:3:22 write:1:5:5", 4, 1, "the latest one is opening 22 in line 3"),
        ("open:3:21 hold:1:3:21 open:3:22 hold:1:3:22", 4, 1, "the latest one is opening 22 in line 3"),
        ("open:3:22 open:4:1 hold:2:4:1 hold:2:3:21", 4, 2, "the latest one is opening 22 in line 1"),
        ("open:3:20 hold:1:3:21", 2, 1, "the latest one is opening 20 in line 1"),
        ("open:4:21 hold:1:3:21", 2, 1, "the slot was not opened"),
    ] {
        let what = format!("transaction \"{transaction}\" holds slot 3 with opening 21 ({latest})");
        breaks(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn a_transaction_that_writes_holds_a_slot() {
    breaks(
        "open:3:1 write:9:5:5 hold:9:3:1 write:8:5:15 write:8:5:25 write:7:6:6 ack:3:5:25",
        "line 4: transaction \"8\" writes to partition \"5\" and holds no slot, although a transaction that writes \
         holds at least one",
    );
}

#[test]
fn no_partition_is_lost() {
    let promise = "although no record is lost";
    breaks(
        "open:3:1 write:1:5:5 hold:1:3:1 ack:3:5:5",
        &format!("line 4: the history ends without a record of partition \"6\", {promise}"),
    );
    breaks("", &format!("line 0: the history ends without a record of partition \"5\", {promise}"));
}

#[test]
fn lines_that_are_no_events_are_refused() {
    breaks("write:1:7:7", "line 1: the source has no partition \"7\"");
    breaks("ack:3:7:7", "line 1: the source has no partition \"7\"");
    for (line, expected) in [
        ("", "line 2: this is no event, because it is no JSON: EOF while parsing a value at line 1 column 0"),
        (r#"{"event":"crash"}"#, "line 2: there is no event \"crash\""),
        (r#"{"slot":3}"#, "line 2: this event has no string \"event\": {\"slot\":3}"),
        (
            r#"{"event":"claim","slot":3}"#,
            "line 2: this event has no number \"claim\": {\"event\":\"claim\",\"slot\":3}",
        ),
    ] {
        let history = format!("{}{line}\n", lines("open:3:1"));
        let partitions = Partitions { names: Vec::new(), first: |_| 0, step: 1 };
        assert_eq!(check(&history, &partitions).unwrap_err(), expected);
    }
}
