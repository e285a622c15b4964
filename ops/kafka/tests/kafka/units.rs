//! The units of a pipeline: a transactional id for each slot, and marks that every number of slots finds.

use std::collections::BTreeMap;

use anabranch_plugin::destination::{Destination, ShareWriter, Verdicts, Write, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::state::Slots;
use anabranch_plugin::testing::host;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Position, Record};
use serde_json::json;

use super::exactly_once::settings;
use super::server::{Broker, broker};
use super::{destination, record, text, values};

const OF: u32 = 4;

fn slots(of: u32, some: impl IntoIterator<Item = u32>) -> Slots {
    some.into_iter().fold(Slots::none(of), Slots::with)
}

/// Opens the destination as a node with some slots does, and takes over.
async fn opened(destination: &dyn Destination, slots: Slots) -> Vec<ShareWriter> {
    let host = Host { slots, shared: Some("store".into()), ..host() };
    destination.open_shares(&host).await.unwrap()
}

/// A node with some slots.
struct NodeRun {
    slots: Slots,
    writers: Vec<ShareWriter>,
    /// The marks that it read.
    marks: BTreeMap<LaneId, Mark>,
}

impl NodeRun {
    async fn start(destination: &dyn Destination, slots: Slots) -> NodeRun {
        let mut run = NodeRun { slots, writers: opened(destination, slots).await, marks: BTreeMap::new() };
        for writer in &mut run.writers {
            run.marks.extend(writer.writer.marks().await.unwrap());
        }
        run
    }

    fn writer(&mut self, lane: &LaneId) -> &mut dyn Writer {
        let slot = self.slots.slot_of(&lane.partition);
        let of_slot = |writer: &&mut ShareWriter| writer.slots.iter().any(|its| its == slot);
        &mut *self.writers.iter_mut().find(of_slot).unwrap().writer
    }

    /// Writes the rows of a lane after its mark, up to `seq`.
    async fn write(&mut self, lane: &LaneId, seq: u64) -> Result<(), Fault> {
        let first = self.marks.get(lane).map_or(0, |mark| mark.seq);
        let rows: Vec<Record> = (first..seq).map(|row| record("k", &format!("{}:{row}", lane.partition.0))).collect();
        let verdicts = self.writer(lane).write(Write::new(&rows).marks(&[(lane.clone(), mark(seq))])).await?;
        assert!(matches!(verdicts, Verdicts::All(_)), "{verdicts:?}");
        self.marks.insert(lane.clone(), mark(seq));
        Ok(())
    }

    /// Checks that the run cannot write rows of a lane, because a later one has taken over. It asks again and again.
    async fn is_fenced(&mut self, lane: &LaneId) {
        for _ in 0..2 {
            self.write(lane, 100).await.unwrap_err();
            let fault = self.writer(lane).marks().await.unwrap_err();
            assert_eq!((fault.code().name(), fault.class()), ("fenced", FaultClass::Fatal), "{fault:?}");
        }
    }
}

fn lane(number: u32) -> LaneId {
    LaneId { connector: "source".into(), partition: Partition(number.to_string().into()) }
}

/// Lanes of all slots.
fn lanes() -> Vec<LaneId> {
    (0..2 * OF).map(lane).collect()
}

fn of_slots(slots: Slots) -> Vec<LaneId> {
    lanes().into_iter().filter(|lane| slots.has(&lane.partition)).collect()
}

fn mark(seq: u64) -> Mark {
    Mark { generation: 1, seq, position: Position::copy_from(format!("at {seq}").as_bytes()) }
}

/// Checks that the topic has the rows of each lane up to its number, each once and in order.
fn check(broker: &Broker, topic: &str, rows: &BTreeMap<LaneId, u64>) {
    let mut found: BTreeMap<LaneId, Vec<u64>> = BTreeMap::new();
    for value in values(&broker.consume(topic)) {
        let (lane, row) = value.split_once(':').unwrap();
        found.entry(self::lane(lane.parse().unwrap())).or_default().push(row.parse().unwrap());
    }
    let wanted = rows.iter().map(|(lane, rows)| (lane.clone(), (0..*rows).collect())).collect();
    assert_eq!(found, wanted);
}

/// Returns the transactional ids of the claims in the topic of the marks.
fn claimed(broker: &Broker, marks: &str) -> Vec<String> {
    let messages = broker.consume(marks);
    let keys = messages.iter().map(|message| text(message, "key").unwrap());
    let keys = keys.filter_map(|key| serde_json::from_str::<(String, u32, String)>(&key).ok());
    let mut ids: Vec<String> = keys.map(|(_, _, id)| id).collect();
    ids.sort();
    ids.dedup();
    ids
}

#[tokio::test]
async fn a_run_that_takes_a_slot_over_fences_only_the_producer_of_the_slot() {
    let Some(broker) = broker() else { return };
    let (topic, marks, address) = (broker.topic("units", 1, &json!({})), broker.name("marks"), broker.address());
    let destination = destination(&settings(&address, &topic, &marks));
    let mut first = NodeRun::start(&*destination, slots(OF, [0, 1])).await;
    let mut second = NodeRun::start(&*destination, slots(OF, [2, 3])).await;
    assert!(first.marks.is_empty() && second.marks.is_empty());
    let mut rows = BTreeMap::new();
    for run in [&mut first, &mut second] {
        for lane in of_slots(run.slots) {
            run.write(&lane, 3).await.unwrap();
            rows.insert(lane, 3);
        }
    }
    // A node takes one of the slots of the first.
    let mut heir = NodeRun::start(&*destination, slots(OF, [1])).await;
    let own = of_slots(heir.slots);
    assert_eq!(heir.marks.keys().cloned().collect::<Vec<_>>(), own, "the marks of its slot");
    for lane in &own {
        first.is_fenced(lane).await;
        heir.write(lane, 5).await.unwrap();
        rows.insert(lane.clone(), 5);
    }
    for (run, of) in [(&mut first, slots(OF, [0])), (&mut second, slots(OF, [2, 3]))] {
        for lane in of_slots(of) {
            run.write(&lane, 7).await.unwrap();
            rows.insert(lane, 7);
        }
    }
    check(broker, &topic, &rows);
    let ids: Vec<String> = (0..OF).map(|slot| format!("{marks}/{slot}-of-{OF}")).collect();
    assert_eq!(claimed(broker, &marks), ids);
}

#[tokio::test]
async fn another_number_of_slots_finds_every_mark_and_fences_every_earlier_unit() {
    let Some(broker) = broker() else { return };
    let (topic, marks, address) = (broker.topic("slots", 1, &json!({})), broker.name("marks"), broker.address());
    let destination = destination(&settings(&address, &topic, &marks));
    let mut rows: BTreeMap<LaneId, u64> = BTreeMap::new();
    // The runs of an earlier number of slots, which are paused.
    let mut zombies: Vec<NodeRun> = Vec::new();
    let courses = [
        vec![Slots::WHOLE],
        vec![slots(OF, [0, 1]), slots(OF, [2, 3])],
        vec![slots(8, 0..5), slots(8, 5..8)],
        vec![Slots::WHOLE],
        vec![slots(OF, [0, 3]), slots(OF, [1, 2])],
    ];
    for (course, nodes) in (1u64..).zip(courses) {
        let starting = nodes.into_iter().map(|slots| NodeRun::start(&*destination, slots));
        let mut runs: Vec<NodeRun> = futures::future::join_all(starting).await;
        for zombie in &mut zombies {
            for lane in of_slots(zombie.slots) {
                zombie.is_fenced(&lane).await;
            }
        }
        for run in &mut runs {
            let own = of_slots(run.slots);
            let read: BTreeMap<LaneId, u64> = run.marks.iter().map(|(lane, mark)| (lane.clone(), mark.seq)).collect();
            let wanted = own.iter().filter_map(|lane| Some((lane.clone(), *rows.get(lane)?))).collect();
            assert_eq!(read, wanted, "course {course}: {:?}", run.slots);
            for lane in own {
                run.write(&lane, course * 3).await.unwrap();
                rows.insert(lane, course * 3);
            }
        }
        zombies = runs;
    }
    check(broker, &topic, &rows);
    // A pipeline in one unit has the id of the settings.
    assert!(claimed(broker, &marks).contains(&marks));
}

/// The limit of batches is part of a producer, so a run that learns it initialises its transactional id once more. A later run
/// may have taken over in the meantime.
#[tokio::test]
async fn a_run_that_needs_smaller_batches_does_not_write_after_a_later_one_has_taken_over() {
    let Some(broker) = broker() else { return };
    for later in [Slots::WHOLE, slots(OF, 0..OF)] {
        let topic = broker.topic("limited", 1, &json!({ "max.message.bytes": "2000" }));
        let (marks, address) = (broker.name("marks"), broker.address());
        let destination = destination(&settings(&address, &topic, &marks));
        let mut paused = NodeRun::start(&*destination, Slots::WHOLE).await;
        let mut later = NodeRun::start(&*destination, later).await;
        later.write(&lane(0), 3).await.unwrap();
        let fault = paused.write(&lane(0), 2).await.unwrap_err();
        assert_eq!((fault.code().name(), fault.class()), ("fenced", FaultClass::Fatal), "{fault:?}");
        // The coordinator may have taken the paused run for the latest one. The later run then takes the id back.
        if let Err(fault) = later.write(&lane(0), 5).await {
            assert_eq!(fault.class(), FaultClass::Transient, "{fault:?}");
            later.writer(&lane(0)).marks().await.unwrap();
            later.write(&lane(0), 5).await.unwrap();
        }
        check(broker, &topic, &BTreeMap::from([(lane(0), 5)]));
    }
}
