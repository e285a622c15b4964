//! Histories that keep all promises, and histories that break one: the checker finds each.

use super::{Checked, Partitions, check};

/// The first lines of most histories: the slots 3 and 4 are those of the partitions 5 and 6.
const BEGUN: &str = "split:8 claim:3:1:a claim:4:1:a";

/// Checks a history of the partitions 5 (records 5, 15, 25 and so on) and 6 (records 6, 16, 26 and so on). Each word of
/// `history` is an event, its kind and its fields separated by colons.
fn checked(history: &str, shows_reads: bool) -> Result<Checked, String> {
    let first = |name: &str| name.parse().unwrap();
    let names = vec!["5".to_owned(), "6".to_owned()];
    check(&lines(history), &Partitions { names, first, step: 10, shows_reads })
}

/// The history whose events are abbreviated, such as `write:99:5:15`. Without a node, it is node `a`.
fn lines(history: &str) -> String {
    let line = |event: &str| {
        let fields: Vec<&str> = event.split(':').collect();
        match fields[..] {
            ["split", slots] => format!(r#"{{"event":"split","slots":{slots}}}"#),
            ["claim", slot, claim, node] => {
                format!(r#"{{"event":"claim","slot":{slot},"claim":{claim},"node":"{node}"}}"#)
            }
            ["open", slot, opening] => format!(r#"{{"event":"open","slot":{slot},"opening":{opening}}}"#),
            ["connect", connection, node] => {
                format!(r#"{{"event":"connect","connection":{connection},"node":"{node}"}}"#)
            }
            ["read", connection, partition, from, to] => format!(
                r#"{{"event":"read","connection":{connection},"partition":"{partition}","from":{from},"to":{to}}}"#
            ),
            ["write", transaction, partition, record, ref node @ ..] => format!(
                r#"{{"event":"write","transaction":"{transaction}","partition":"{partition}","record":{record},"node":"{}"}}"#,
                node.first().unwrap_or(&"a")
            ),
            ["hold", transaction, slot, opening] => {
                format!(r#"{{"event":"hold","transaction":"{transaction}","slot":{slot},"opening":{opening}}}"#)
            }
            ["ack", slot, partition, record, ref more @ ..] => format!(
                r#"{{"event":"ack","slot":{slot},"generation":{},"partition":"{partition}","record":{record},"node":"{}"}}"#,
                more.get(1).unwrap_or(&"1"),
                more.first().unwrap_or(&"a"),
            ),
            ["commit", partition, record] => {
                format!(r#"{{"event":"commit","partition":"{partition}","record":{record}}}"#)
            }
            _ => panic!("{event}"),
        }
    };
    history.split_whitespace().map(|event| line(event) + "\n").collect()
}

/// Two runs, the second of which takes over slot 3. All promises are kept.
const KEPT: &str = "split:8 claim:3:17:a open:3:21 claim:4:2:b open:4:2 write:99:5:5 write:99:5:15 hold:99:3:21 \
     ack:3:5:5 hold:100:4:2 write:100:6:6:b claim:3:18:b ack:4:6:6:b open:3:22 ack:3:5:15:b ack:3:5:15:b \
     write:101:5:25:b write:101:6:16:b hold:101:3:22 hold:101:4:2 ack:3:5:25:b:2";

/// The same with reads. Node `a` still reads after the claim of `b`, and writes nothing of it.
const READ: &str = "split:8 claim:3:17:a open:3:21 claim:4:2:b open:4:2 connect:1:a connect:2:b read:1:5:5:25 \
     read:2:6:6:6 write:99:5:5 write:99:5:15 hold:99:3:21 ack:3:5:5 commit:5:5 hold:100:4:2 write:100:6:6:b \
     claim:3:18:b read:1:5:35:45 ack:4:6:6:b commit:6:6 open:3:22 ack:3:5:15:b connect:3:b read:3:5:25:35 \
     read:2:6:16:26 commit:5:5 commit:5:15 write:101:5:25:b write:101:6:16:b hold:101:3:22 hold:101:4:2 ack:3:5:25:b:2 \
     commit:5:25 read:3:5:15:25 read:3:5:45:45";

/// Fails unless what follows [`BEGUN`] breaks a promise as `expected` says.
#[track_caller]
fn breaks(rest: &str, expected: &str) {
    let history = format!("{BEGUN} {rest}");
    assert_eq!(checked(&history, false).unwrap_err(), expected, "{history}");
}

/// Like [`breaks`], of a history with all reads.
#[track_caller]
fn breaks_with_reads(rest: &str, expected: &str) {
    let history = format!("{BEGUN} {rest}");
    assert_eq!(checked(&history, true).unwrap_err(), expected, "{history}");
}

#[test]
fn a_history_that_keeps_all_promises_is_counted() {
    let expected = Checked { writes: 5, acknowledgements: 5, claims: 3, openings: 3, ..Checked::default() };
    assert_eq!(checked(KEPT, false), Ok(expected));
    let expected =
        Checked { writes: 5, acknowledgements: 4, claims: 3, openings: 3, reads: 6, late_reads: 1, commits: 5 };
    assert_eq!(checked(READ, true), Ok(expected));
}

#[test]
fn a_record_is_written_at_most_once() {
    let again = "is written again after line 5, although a record is written at most once";
    breaks("open:3:1 write:1:5:5 write:1:5:5", &format!("line 6: record 5 of partition \"5\" {again}"));
    let history = "open:3:1 write:1:5:5 hold:1:3:1 write:2:5:15 hold:2:3:1 ack:3:5:15 write:3:5:5";
    breaks(history, &format!("line 10: record 5 of partition \"5\" {again}"));
}

#[test]
fn records_are_written_in_order_and_without_gaps() {
    let promise = "although the records of a partition are written in order and without gaps";
    for (history, place, record, expected) in [
        ("write:1:5:15 write:1:5:5", 4, 15, 5),
        ("write:1:5:5 write:1:5:25", 5, 25, 15),
        ("write:1:5:5 write:1:6:6 write:1:5:16", 6, 16, 15),
        ("write:1:5:5 write:1:5:4", 5, 4, 15),
        ("write:1:5:0", 4, 0, 5),
    ] {
        let what = format!("record {record} of partition \"5\" is written when record {expected} is the next one");
        breaks(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn an_acknowledgement_is_of_a_record_that_is_written_before_it() {
    let promise = "although a record and all before it are written before it is acknowledged";
    for (history, place, record, last) in [
        ("ack:3:5:5 write:1:5:5", 4, 5, "none is written"),
        ("write:1:6:6 ack:3:5:5", 5, 5, "none is written"),
        ("write:1:5:5 ack:3:5:15 write:1:5:15", 5, 15, "the last one that is written is record 5 in line 4"),
        ("write:1:5:5 write:1:5:15 ack:3:5:6", 6, 6, "the last one that is written is record 15 in line 5"),
    ] {
        let what = format!("record {record} of partition \"5\" is acknowledged and not written ({last})");
        breaks(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn all_records_before_an_acknowledged_one_are_written() {
    let promise = "although the records of a partition are written in order and without gaps";
    let what = "record 25 of partition \"5\" is written when record 15 is the next one";
    breaks("open:3:1 write:1:5:5 write:1:5:25 hold:1:3:1 ack:3:5:25", &format!("line 6: {what}, {promise}"));
}

#[test]
fn acknowledgements_never_go_back() {
    breaks(
        "write:1:5:5 write:1:5:15 ack:3:5:15 ack:3:5:5",
        "line 7: record 5 of partition \"5\" is acknowledged after record 15 in line 6, although the acknowledgements \
         of a partition never go back",
    );
}

#[test]
fn the_generations_of_acknowledgements_never_fall() {
    breaks(
        "write:1:5:5 ack:3:5:5:a:2 ack:3:5:5:a:1",
        "line 6: an acknowledgement of partition \"5\" has generation 1 after generation 2 in line 5, although the \
         generations of a partition never fall",
    );
}

#[test]
fn only_the_node_that_claimed_a_slot_last_acknowledges() {
    let promise = "although a run acknowledges nothing after another one took over";
    breaks(
        "write:1:5:5 ack:3:5:5 claim:3:2:b write:1:5:15 ack:3:5:15:a",
        &format!("line 8: node \"a\" acknowledges with slot 3 (node \"b\" has claimed it in line 6), {promise}"),
    );
    let history = "split:8 write:1:5:5 ack:3:5:5";
    let what = format!("line 3: node \"a\" acknowledges with slot 3 (no node has claimed it), {promise}");
    assert_eq!(checked(history, false).unwrap_err(), what);
}

#[test]
fn a_partition_keeps_its_slot_as_long_as_the_number_of_slots_stays() {
    let promise = "although consecutive partitions have consecutive slots";
    for (history, place, partition, slot, its) in [
        ("write:1:5:5 ack:3:5:5 ack:4:5:5", 6, 5, 4, 3),
        ("write:1:5:5 write:1:6:6 ack:3:5:5 ack:3:6:6", 7, 6, 3, 4),
        ("write:1:5:5 write:1:6:6 ack:3:5:5 split:1 claim:0:1:a ack:0:5:5 split:8 ack:0:6:6", 11, 6, 0, 4),
    ] {
        let what = format!("partition \"{partition}\" is acknowledged with slot {slot} and not with slot {its}");
        breaks(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn claims_and_openings_of_a_slot_only_rise() {
    let promise = "although the numbers of a slot only rise";
    for number in [16, 17] {
        let what = format!("claim {number} of slot 3 comes after claim 17 in line 4");
        breaks(&format!("claim:3:17:a claim:4:2:a claim:3:{number}:b"), &format!("line 6: {what}, {promise}"));
        let what = format!("opening {number} of slot 3 comes after opening 17 in line 4");
        breaks(&format!("open:3:17 open:4:1 open:3:{number}"), &format!("line 6: {what}, {promise}"));
    }
}

#[test]
fn a_transaction_holds_only_the_latest_opening() {
    let promise = "although a transaction holds a slot only with its latest opening";
    for (history, place, transaction, latest) in [
        ("open:3:21 open:3:22 write:1:5:5 hold:1:3:21", 7, 1, "the latest one is opening 22 in line 5"),
        ("open:3:21 write:1:5:5 open:3:22 hold:1:3:21", 7, 1, "the latest one is opening 22 in line 6"),
        ("open:3:21 hold:1:3:21 open:3:22 write:1:5:5", 7, 1, "the latest one is opening 22 in line 6"),
        ("open:3:21 hold:1:3:21 open:3:22 hold:1:3:22", 7, 1, "the latest one is opening 22 in line 6"),
        ("open:3:22 open:4:1 hold:2:4:1 hold:2:3:21", 7, 2, "the latest one is opening 22 in line 4"),
        ("open:3:20 hold:1:3:21", 5, 1, "the latest one is opening 20 in line 4"),
        ("open:4:21 hold:1:3:21", 5, 1, "the slot was not opened"),
    ] {
        let what = format!("transaction \"{transaction}\" holds slot 3 with opening 21 ({latest})");
        breaks(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn a_transaction_holds_the_slot_of_each_partition_that_it_writes_to() {
    let promise = "although a transaction holds the slot of every partition that it writes to";
    for (history, place, transaction, partition, slot, held) in [
        ("open:3:1 write:9:5:5 hold:9:3:1 write:8:5:15 write:8:5:25 write:7:6:6 ack:3:5:25", 7, 8, 5, 3, "no slot"),
        // It holds a slot of the pipeline, but of another partition.
        ("open:3:1 open:4:1 write:9:5:5 hold:9:4:1 ack:3:5:5", 6, 9, 5, 3, "only slots 4"),
        ("open:3:1 open:4:1 write:9:5:5 write:9:6:6 hold:9:3:1 ack:3:5:5", 7, 9, 6, 4, "only slots 3"),
        // After another split, the partition has the slot that it holds.
        (
            "open:3:1 open:1:1 open:4:1 write:9:5:5 hold:9:3:1 write:9:6:6 hold:9:4:1 ack:3:5:5 split:2 claim:1:1:a \
             write:10:5:15 hold:10:3:1 ack:1:5:15",
            14,
            10,
            5,
            1,
            "only slots 3",
        ),
    ] {
        let what = format!("transaction \"{transaction}\" writes to partition \"{partition}\" of slot {slot}");
        breaks(history, &format!("line {place}: {what} and holds {held}, {promise}"));
    }
}

#[test]
fn a_node_that_claims_a_slot_reads_from_what_is_not_acknowledged() {
    let lost = |place, node, from, next, line| {
        format!(
            "line {place}: node \"{node}\" reads partition \"5\" from record {from} on, and record {next} is neither \
             acknowledged nor read since line {line}, where the node claimed the slot, although no record is lost"
        )
    };
    for (history, expected) in [
        ("connect:1:a read:1:5:15:25 write:1:5:5 ack:3:5:5", lost(5, "a", 15, 5, 2)),
        // A gap within what it reads.
        ("connect:1:a read:1:5:5:15 write:1:5:5 ack:3:5:5 read:1:5:35:45", lost(8, "a", 35, 15, 2)),
        // The next node begins after what the first one read, and not after what it acknowledged.
        (
            "connect:1:a read:1:5:5:25 write:1:5:5 ack:3:5:5 claim:3:2:b connect:2:b read:2:5:35:35",
            lost(10, "b", 35, 15, 8),
        ),
        // So does the same node after it claimed the slot again.
        (
            "connect:1:a read:1:5:5:25 write:1:5:5 ack:3:5:5 claim:3:2:a connect:2:a read:2:5:35:35",
            lost(10, "a", 35, 15, 8),
        ),
    ] {
        breaks_with_reads(history, &expected);
    }
}

#[test]
fn only_what_a_node_read_while_it_had_the_slot_is_written() {
    let promise = "although one run owns the positions";
    let unread = |place, record, node, line| {
        format!(
            "line {place}: record {record} of partition \"5\" is written by node \"{node}\", which did not read it while \
             it had slot 3 after its claim in line {line}, {promise}"
        )
    };
    // The slot is that of an acknowledgement that follows.
    for (history, expected) in [
        ("connect:1:a write:1:5:5 ack:3:5:5", unread(5, 5, "a", 2)),
        ("connect:1:a read:1:6:6:6 write:1:5:5 ack:3:5:5", unread(6, 5, "a", 2)),
        ("connect:1:a read:1:5:5:5 write:1:5:5 write:1:5:15 read:1:5:15:15 ack:3:5:15", unread(7, 15, "a", 2)),
        // It was read after another node had claimed the slot.
        (
            "connect:1:a read:1:5:5:5 write:1:5:5 ack:3:5:5 claim:3:2:b read:1:5:15:15 write:2:5:15",
            unread(10, 15, "a", 2),
        ),
        // Another node read it.
        ("connect:1:a read:1:5:5:15 write:1:5:5 ack:3:5:5 claim:3:2:b write:2:5:15:b", unread(9, 15, "b", 8)),
        // The node read it before it lost the slot and claimed it again.
        (
            "connect:1:a read:1:5:5:15 write:1:5:5 ack:3:5:5 claim:3:2:b claim:3:3:a write:2:5:15",
            unread(10, 15, "a", 9),
        ),
        // An answer to the run before comes after the claim.
        (
            "connect:1:a read:1:5:5:5 write:1:5:5 ack:3:5:5 claim:3:2:a read:1:5:15:15 write:2:5:15",
            unread(10, 15, "a", 8),
        ),
    ] {
        breaks_with_reads(history, &expected);
    }
    breaks_with_reads(
        "connect:1:c read:1:5:5:5 write:1:5:5:c ack:3:5:5",
        &format!("line 6: record 5 of partition \"5\" is written by node \"c\", which never claimed slot 3, {promise}"),
    );
}

#[test]
fn what_is_committed_at_the_source_is_stored_before() {
    let promise = "although the order is: durable at the destination, position stored, source acknowledged";
    for (history, place, record, last) in [
        ("connect:1:a read:1:5:5:5 write:1:5:5 commit:5:5 ack:3:5:5", 7, 5, "no position is stored"),
        (
            "connect:1:a read:1:5:5:15 write:1:5:5 write:1:5:15 ack:3:5:5 commit:5:15 ack:3:5:15",
            9,
            15,
            "the last position is that of record 5 in line 8",
        ),
    ] {
        let what = format!("record {record} of partition \"5\" is committed before its position is stored ({last})");
        breaks_with_reads(history, &format!("line {place}: {what}, {promise}"));
    }
}

#[test]
fn no_partition_is_lost() {
    let promise = "although no record is lost";
    breaks(
        "open:3:1 write:1:5:5 hold:1:3:1 ack:3:5:5",
        &format!("line 7: the history ends without a record of partition \"6\", {promise}"),
    );
    breaks("", &format!("line 3: the history ends without a record of partition \"5\", {promise}"));
}

#[test]
fn lines_that_are_no_events_are_refused() {
    breaks("write:1:7:7", "line 4: the source has no partition \"7\"");
    breaks("ack:3:7:7", "line 4: the source has no partition \"7\"");
    breaks("commit:7:7", "line 4: the source has no partition \"7\"");
    breaks("connect:1:a read:1:7:7:7", "line 5: the source has no partition \"7\"");
    breaks("read:1:5:5:5", "line 4: there is no connection 1");
    breaks("split:0", "line 4: the pipeline has 0 slots, although each partition has one");
    assert_eq!(checked("claim:3:1:a", false).unwrap_err(), "line 1: the number of slots is not known yet");
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
        let partitions = Partitions { names: Vec::new(), first: |_| 0, step: 1, shows_reads: false };
        assert_eq!(check(&history, &partitions).unwrap_err(), expected);
    }
    let partitions = Partitions { names: vec!["x".to_owned()], first: |_| 0, step: 1, shows_reads: false };
    assert_eq!(check("", &partitions).unwrap_err(), "the name of partition \"x\" is not a number");
}
