//! Checks a history of a pipeline against what `docs/guarantees.md` and `docs/cluster.md` promise: no record is lost or
//! acknowledged early, one run owns the positions, and a transactional destination has each record once.
//!
//! A history is text with one JSON object per line. Whatever happened after something else comes later:
//!
//! ```json
//! {"event":"split","slots":8}
//! {"event":"claim","slot":3,"claim":17,"node":"a"}
//! {"event":"open","slot":3,"opening":21}
//! {"event":"connect","connection":4,"node":"a"}
//! {"event":"read","connection":4,"partition":"5","from":35,"to":37}
//! {"event":"write","transaction":"99","partition":"5","record":37,"node":"a"}
//! {"event":"hold","transaction":"99","slot":3,"opening":21}
//! {"event":"ack","slot":3,"generation":2,"partition":"5","record":37,"node":"a"}
//! {"event":"commit","partition":"5","record":37}
//! ```
//!
//! * `split`: the pipeline has this number of slots.
//! * `claim`: a run of a node claims a slot in the state store.
//! * `open`: a run opens the destination for a slot.
//! * `connect`: a node opens a connection to the server of the source.
//! * `read`: the node asked for the records of a partition that begin with `from`, and the server served those up to `to`.
//!   Some sources have no server that notes this.
//! * `write`: a committed transaction of the destination, of a node, wrote a record of a partition.
//! * `hold`: the same transaction passed the fence of the slot, with this opening.
//! * `ack`: the state store stored for a node that everything of the partition up to this record is delivered.
//! * `commit`: the server of the source received that everything of the partition up to this record is acknowledged.
//!
//! Consecutive partitions have consecutive slots. The first acknowledgement shows which slot that of a number is.

mod planted;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What a history without a broken promise consists of: the numbers of its events.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Records that transactions of the destination wrote.
    pub writes: usize,
    /// Positions that the state store stored.
    pub acknowledgements: usize,
    /// Claims of slots in the state store.
    pub claims: usize,
    /// Openings of the destination.
    pub openings: usize,
    /// Answers of the source's server with records, to the node that had the slot.
    pub reads: usize,
    /// The same to other nodes. None of these records is written unless it was read by another one too.
    pub late_reads: usize,
    /// Positions that the source's server received.
    pub commits: usize,
}

/// The partitions of the source, and the numbers of their records: `first`, `first + step`, `first + 2 * step`...
pub struct Partitions {
    /// The names of all partitions, which are numbers. Each has records.
    pub names: Vec<String>,
    /// Returns the first record of a partition.
    pub first: fn(&str) -> u64,
    /// The distance between a record of a partition and the next one.
    pub step: u64,
    /// True if the history has all reads.
    pub shows_reads: bool,
}

/// Returns the numbers of events of a history, or the first promise that it breaks, with the number of the line.
pub fn check(history: &str, partitions: &Partitions) -> Result<Checked, String> {
    let mut checker = Checker::new(history, partitions)?;
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
    shows_reads: bool,
    partitions: BTreeMap<String, Partition>,
    layout: Layout,
    /// Per slot, the latest claim.
    claims: BTreeMap<u64, Claim>,
    /// Per slot, the latest opening.
    openings: BTreeMap<u64, Mark>,
    connections: BTreeMap<u64, Connection>,
    transactions: BTreeMap<String, Transaction>,
}

/// Which slot a partition has.
#[derive(Default)]
struct Layout {
    /// The number of slots, if it is known.
    slots: Option<u64>,
    /// Per number of slots, the slot of partition 0.
    slots_of_0: BTreeMap<u64, u64>,
}

/// A number, and the line that has it.
#[derive(Clone, Copy)]
struct Mark {
    number: u64,
    line: usize,
}

/// The latest claim of a slot.
#[derive(Clone)]
struct Claim {
    mark: Mark,
    node: String,
}

/// A connection of a node to the server of the source, and the line in which it began.
struct Connection {
    node: String,
    line: usize,
}

/// What happened to the records of a partition.
struct Partition {
    number: u64,
    first: u64,
    /// The records that were written, each with its line. They have no gaps: those break a promise.
    written: BTreeMap<u64, usize>,
    /// The latest acknowledgement.
    acknowledged: Option<Mark>,
    /// The latest generation of an acknowledgement.
    generation: Option<Mark>,
    /// Per node, what it read since it claimed the slot last, as long as it had it.
    reads: BTreeMap<String, Reads>,
}

/// The records from `first` to `last`, without gaps, that a node read after a claim.
#[derive(Clone, Copy)]
struct Reads {
    claimed: usize,
    range: Option<(u64, u64)>,
}

/// What a transaction of the destination did.
#[derive(Default)]
struct Transaction {
    /// Per slot of what it writes, the first record: the line and the partition.
    wrote: BTreeMap<u64, (usize, String)>,
    /// The slots that it holds, with their openings.
    holds: BTreeSet<(u64, u64)>,
}

impl Layout {
    /// Reads which slot the first acknowledgement with each number of slots is for.
    fn of(history: &str) -> Layout {
        let mut layout = Layout::default();
        let mut slots = None;
        for event in history.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            match event["event"].as_str() {
                Some("split") => slots = event["slots"].as_u64(),
                Some("ack") => {
                    let partition = event["partition"].as_str().and_then(|name| name.parse::<u64>().ok());
                    if let (Some(slots @ 1..), Some(slot), Some(partition)) = (slots, event["slot"].as_u64(), partition)
                    {
                        let of_0 = (slot % slots + slots - partition % slots) % slots;
                        layout.slots_of_0.entry(slots).or_insert(of_0);
                    }
                }
                _ => {}
            }
        }
        layout
    }

    fn split(&mut self, slots: u64) -> Result<(), String> {
        match slots {
            0 => Err("the pipeline has 0 slots, although each partition has one".to_owned()),
            _ => {
                self.slots = Some(slots);
                Ok(())
            }
        }
    }

    /// Returns the slot of a partition.
    fn slot(&self, partition: u64) -> Result<u64, String> {
        let slots = self.slots.ok_or("the number of slots is not known yet")?;
        // Without an acknowledgement, any slot may be the first one.
        Ok((self.slots_of_0.get(&slots).copied().unwrap_or(0) + partition) % slots)
    }
}

impl Checker {
    fn new(history: &str, partitions: &Partitions) -> Result<Self, String> {
        let partition = |name: &String| {
            let number = name.parse().map_err(|_| format!("the name of partition {name:?} is not a number"))?;
            let partition = Partition {
                number,
                first: (partitions.first)(name),
                written: BTreeMap::new(),
                acknowledged: None,
                generation: None,
                reads: BTreeMap::new(),
            };
            Ok((name.clone(), partition))
        };
        Ok(Self {
            checked: Checked::default(),
            step: partitions.step,
            shows_reads: partitions.shows_reads,
            partitions: partitions.names.iter().map(partition).collect::<Result<_, String>>()?,
            layout: Layout::of(history),
            claims: BTreeMap::new(),
            openings: BTreeMap::new(),
            connections: BTreeMap::new(),
            transactions: BTreeMap::new(),
        })
    }

    /// Takes one line of the history.
    fn event(&mut self, line: usize, text: &str) -> Result<(), String> {
        let event: Value =
            serde_json::from_str(text).map_err(|error| format!("this is no event, because it is no JSON: {error}"))?;
        match string(&event, "event")? {
            "split" => self.layout.split(number(&event, "slots")?),
            "claim" => {
                self.checked.claims += 1;
                let mark = Mark { number: number(&event, "claim")?, line };
                self.claim(number(&event, "slot")?, Claim { mark, node: string(&event, "node")?.to_owned() })
            }
            "open" => {
                self.checked.openings += 1;
                let slot = number(&event, "slot")?;
                let mark = Mark { number: number(&event, "opening")?, line };
                rise(self.openings.insert(slot, mark), "opening", slot, mark)
            }
            "connect" => {
                let node = string(&event, "node")?.to_owned();
                self.connections.insert(number(&event, "connection")?, Connection { node, line });
                Ok(())
            }
            "read" => {
                let range = (number(&event, "from")?, number(&event, "to")?);
                self.read(number(&event, "connection")?, string(&event, "partition")?, range)
            }
            "write" => {
                self.checked.writes += 1;
                let record = Mark { number: number(&event, "record")?, line };
                let (transaction, partition) = (string(&event, "transaction")?, string(&event, "partition")?);
                self.write(transaction, partition, record, string(&event, "node")?)
            }
            "hold" => self.hold(string(&event, "transaction")?, number(&event, "slot")?, number(&event, "opening")?),
            "ack" => {
                self.checked.acknowledgements += 1;
                let partition = string(&event, "partition")?;
                self.acknowledge(partition, Mark { number: number(&event, "record")?, line })?;
                self.generation(partition, Mark { number: number(&event, "generation")?, line })?;
                self.owner(partition, number(&event, "slot")?, string(&event, "node")?)
            }
            "commit" => {
                self.checked.commits += 1;
                self.commit(string(&event, "partition")?, number(&event, "record")?)
            }
            other => Err(format!("there is no event {other:?}")),
        }
    }

    /// The claims of a slot rise. A node that claims it has read nothing of it.
    fn claim(&mut self, slot: u64, claim: Claim) -> Result<(), String> {
        let Claim { mark, ref node } = claim;
        for partition in self.partitions.values_mut() {
            if self.layout.slot(partition.number)? == slot {
                partition.reads.insert(node.clone(), Reads { claimed: mark.line, range: None });
            }
        }
        rise(self.claims.insert(slot, claim).map(|earlier| earlier.mark), "claim", slot, mark)
    }

    /// The node that has the slot reads on from what it has read, or from what is acknowledged. What others read does not
    /// count, and neither do answers to an earlier run of the same node: their connection began before the claim.
    fn read(&mut self, connection: u64, partition: &str, (from, to): (u64, u64)) -> Result<(), String> {
        let known = find(&mut self.partitions, partition)?;
        let Some(Connection { node, line }) = self.connections.get(&connection) else {
            return Err(format!("there is no connection {connection}"));
        };
        let has_slot = self.claims.get(&self.layout.slot(known.number)?).is_some_and(|claim| claim.node == *node);
        let reads = match known.reads.get_mut(node) {
            Some(reads) if has_slot && *line > reads.claimed => reads,
            _ => {
                self.checked.late_reads += 1;
                return Ok(());
            }
        };
        self.checked.reads += 1;
        let unacknowledged = match known.acknowledged {
            Some(latest) => latest.number.saturating_add(self.step),
            None => known.first,
        };
        let (first, last) = match reads.range {
            Some((first, last)) if from <= last.saturating_add(self.step) => (first, last.max(to)),
            _ if from <= unacknowledged => (from, to),
            _ => {
                return Err(format!(
                    "node {node:?} reads partition {partition:?} from record {from} on, and record {unacknowledged} is \
                     neither acknowledged nor read since line {}, where the node claimed the slot, although no record \
                     is lost",
                    reads.claimed
                ));
            }
        };
        reads.range = Some((first, last));
        Ok(())
    }

    /// A record is written once, after the one before it, and by a node that read it while it had the slot.
    fn write(&mut self, name: &str, partition: &str, record: Mark, node: &str) -> Result<(), String> {
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
        let slot = self.layout.slot(known.number)?;
        if self.shows_reads {
            let is_read = |reads: &Reads| reads.range.is_some_and(|(first, last)| (first..=last).contains(&number));
            match known.reads.get(node) {
                Some(reads) if is_read(reads) => {}
                Some(Reads { claimed, .. }) => {
                    return Err(format!(
                        "record {number} of partition {partition:?} is written by node {node:?}, which did not read it \
                         while it had slot {slot} after its claim in line {claimed}, although one run owns the positions"
                    ));
                }
                None => {
                    return Err(format!(
                        "record {number} of partition {partition:?} is written by node {node:?}, which never claimed \
                         slot {slot}, although one run owns the positions"
                    ));
                }
            }
        }
        known.written.insert(number, line);
        let transaction = self.transactions.entry(name.to_owned()).or_default();
        transaction.wrote.entry(slot).or_insert_with(|| (line, partition.to_owned()));
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
        // As there are no gaps, the records before it are written too. If the history has the reads, they were read.
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

    /// The generations of acknowledgements never fall.
    fn generation(&mut self, partition: &str, generation: Mark) -> Result<(), String> {
        let known = find(&mut self.partitions, partition)?;
        match known.generation.replace(generation) {
            Some(Mark { number, line }) if generation.number < number => Err(format!(
                "an acknowledgement of partition {partition:?} has generation {} after generation {number} in line \
                 {line}, although the generations of a partition never fall",
                generation.number
            )),
            _ => Ok(()),
        }
    }

    /// An acknowledgement is stored with the slot of its partition, for the node that has claimed it last.
    fn owner(&mut self, partition: &str, slot: u64, node: &str) -> Result<(), String> {
        let known = find(&mut self.partitions, partition)?;
        let its = self.layout.slot(known.number)?;
        if slot != its {
            return Err(format!(
                "partition {partition:?} is acknowledged with slot {slot} and not with slot {its}, although consecutive \
                 partitions have consecutive slots"
            ));
        }
        let claimed = match self.claims.get(&slot) {
            Some(claim) if claim.node == node => return Ok(()),
            Some(Claim { node, mark }) => format!("node {node:?} has claimed it in line {}", mark.line),
            None => "no node has claimed it".to_owned(),
        };
        Err(format!(
            "node {node:?} acknowledges with slot {slot} ({claimed}), although a run acknowledges nothing after another \
             one took over"
        ))
    }

    /// The server of the source is told only of records that are acknowledged in the state store.
    fn commit(&mut self, partition: &str, record: u64) -> Result<(), String> {
        let latest = match find(&mut self.partitions, partition)?.acknowledged {
            Some(Mark { number, .. }) if record <= number => return Ok(()),
            Some(Mark { number, line }) => format!("the last position is that of record {number} in line {line}"),
            None => "no position is stored".to_owned(),
        };
        Err(format!(
            "record {record} of partition {partition:?} is committed before its position is stored ({latest}), although \
             the order is: durable at the destination, position stored, source acknowledged"
        ))
    }

    /// What is promised of a whole history, whose last line is `line`. That the records up to the last acknowledgement
    /// are written was checked with the acknowledgement.
    fn end(&self, line: usize) -> Result<(), String> {
        let unfenced = self.transactions.iter().flat_map(|(name, transaction)| {
            let holds = |slot: u64| transaction.holds.iter().any(|(held, _)| *held == slot);
            let missing = transaction.wrote.iter().filter(move |(slot, _)| !holds(**slot));
            missing.map(move |(slot, (line, partition))| (*line, partition, *slot, name, &transaction.holds))
        });
        if let Some((line, partition, slot, name, holds)) = unfenced.min_by_key(|(line, ..)| *line) {
            let held: Vec<String> = holds.iter().map(|(slot, _)| slot.to_string()).collect();
            let held = if held.is_empty() { "no slot".to_owned() } else { format!("only slots {}", held.join(", ")) };
            return Err(format!(
                "line {line}: transaction {name:?} writes to partition {partition:?} of slot {slot} and holds {held}, \
                 although a transaction holds the slot of every partition that it writes to"
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

/// Compares a number of a slot with the one before it. Each claim and each opening has a number of its own: an equal one is
/// refused too.
fn rise(earlier: Option<Mark>, what: &str, slot: u64, mark: Mark) -> Result<(), String> {
    match earlier {
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
