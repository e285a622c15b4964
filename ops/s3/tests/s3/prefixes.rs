//! Several prefixes, each of which is a partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Backlog, Read, Reader, Room};
use anabranch_plugin::state::Slots;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use proptest::prelude::*;
use tokio::time::timeout;

use crate::reading::{ROOM, configure, host, open, shown};
use crate::server::Server;

/// Some second of 2026.
const START: i64 = 1_790_000_000;

fn server(keys: impl IntoIterator<Item = impl AsRef<str>>) -> Server {
    let server = Server::start();
    server.set_clock(START);
    for key in keys {
        server.put_with(key.as_ref(), "x", &[], Some(START - 5));
    }
    server
}

fn later(server: &Server) {
    server.set_clock(server.now() + 1);
}

/// A reader of several partitions, with the marks that a store would have.
struct Several {
    reader: Box<dyn Reader>,
    marks: BTreeMap<Partition, Mark>,
}

impl Several {
    /// Opens the partitions of `slots` at `marks`.
    async fn open(
        server: &Server,
        more: &[(&str, &str)],
        slots: Slots,
        marks: BTreeMap<Partition, Mark>,
    ) -> Result<Several, Fault> {
        let more = [&[("pollingPeriod", "20ms"), ("versions", "off")], more].concat();
        let source = configure(&server.endpoint(), &more).unwrap();
        let ours = marks.iter().filter(|(partition, _)| slots.has(partition));
        let ours = ours.map(|(partition, mark)| (partition.clone(), mark.clone())).collect();
        let opened = source.open(&ours, &Host { slots, ..host() }).await?;
        assert!(opened.starts.is_empty());
        Ok(Several { reader: opened.reader, marks })
    }

    /// The next records with their partition; none when caught up.
    async fn some(&mut self, room: Room) -> Option<(Partition, Vec<Record>)> {
        loop {
            let read =
                timeout(Duration::from_secs(60), self.reader.read(room)).await.expect("the reader hangs").unwrap();
            let (partition, position, rows) = match read {
                Read::Rows { partition, records } => {
                    (partition, records.last().unwrap().position().clone(), Some(records))
                }
                Read::Progress(partition, position) => (partition, position, None),
                Read::CaughtUp => return None,
                other => panic!("{other:?}"),
            };
            self.marks.insert(partition.clone(), Mark { generation: 0, seq: 0, position });
            if let Some(records) = rows {
                return Some((partition, records));
            }
        }
    }

    /// All records until it is caught up, as `partition: operation key=payload`, in the order of the partitions.
    async fn all(&mut self) -> Vec<String> {
        self.at_least(0).await
    }

    /// The same, but at least a number: the partitions look for changes at different times.
    async fn at_least(&mut self, count: usize) -> Vec<String> {
        let mut all = BTreeMap::<Partition, Vec<String>>::new();
        loop {
            let Some((partition, records)) = self.some(ROOM).await else {
                if all.values().map(Vec::len).sum::<usize>() >= count {
                    break;
                }
                continue;
            };
            let line = |record| format!("{}: {}", partition.0, shown(record));
            all.entry(partition.clone()).or_default().extend(records.iter().map(line));
        }
        all.into_values().flatten().collect()
    }

    async fn backlog(&mut self) -> Backlog {
        self.reader.backlog().await.unwrap()
    }
}

async fn several(server: &Server, prefixes: &str, marks: BTreeMap<Partition, Mark>) -> Several {
    Several::open(server, &[("prefixes", prefixes)], Slots::WHOLE, marks).await.unwrap()
}

#[tokio::test]
async fn each_prefix_is_a_partition_with_its_own_position() {
    let server = server(["in/1/a", "in/1/b", "in/2/a", "out/a"]);
    let mut reading = several(&server, "in/1/, in/2/", BTreeMap::new()).await;
    let first = ["in/1: snapshot in/1/a=x", "in/1: snapshot in/1/b=x", "in/2: snapshot in/2/a=x"];
    assert_eq!(reading.all().await, first);
    server.put("in/2/b", "y");
    server.put("out/b", "y");
    server.delete("in/1/a");
    later(&server);
    assert_eq!(reading.at_least(2).await, ["in/1: delete in/1/a=-", "in/2: create in/2/b=y"]);
    assert!(reading.backlog().await.is_empty());
    // A restart repeats nothing, and finds what came in each.
    server.put("in/1/c", "z");
    server.put("in/2/c", "z");
    later(&server);
    let mut again = several(&server, "in/2/, in/1/", reading.marks).await;
    assert_eq!(again.all().await, ["in/1: create in/1/c=z", "in/2: create in/2/c=z"]);
}

#[tokio::test]
async fn a_prefix_of_the_list_has_the_position_of_a_single_prefix() {
    let server = server(["in/a", "in/b"]);
    let single = configure(&server.endpoint(), &[("prefix", "in/")]).unwrap();
    let listed = configure(&server.endpoint(), &[("prefixes", "out/, in/")]).unwrap();
    let other = configure(&server.endpoint(), &[("prefixes", "out/, on/")]).unwrap();
    let mut reading = several(&server, "in/", BTreeMap::new()).await;
    reading.all().await;
    let position = &reading.marks[&Partition("in".into())].position;
    assert_eq!([&single, &listed].map(|source| source.check(position).unwrap().is_ok()), [true, true]);
    assert_eq!(other.check(position).unwrap().unwrap_err().code().name(), "position_of_another_bucket");
    assert_eq!([&single, &listed, &other].map(|source| source.splits()), [false, true, true]);
}

#[tokio::test]
async fn an_added_prefix_starts_at_its_beginning_and_a_removed_one_keeps_its_position() {
    let server = server(["a/1", "b/1", "c/1"]);
    let mut reading = several(&server, "a/, b/", BTreeMap::new()).await;
    assert_eq!(reading.all().await, ["a: snapshot a/1=x", "b: snapshot b/1=x"]);
    let mut reading = several(&server, "c/, a/", reading.marks).await;
    assert_eq!(reading.all().await, ["c: snapshot c/1=x"]);
    server.put("b/2", "y");
    later(&server);
    let mut reading = several(&server, "a/,b/,c/", reading.marks).await;
    assert_eq!(reading.all().await, ["b: create b/2=y"]);
    // The partition has the same name, and its position is that of another prefix.
    let fault = Several::open(&server, &[("prefixes", "b, c/")], Slots::WHOLE, reading.marks).await.err().unwrap();
    assert_eq!(fault.code().name(), "position_of_another_bucket");
}

#[tokio::test]
async fn a_run_asks_the_server_only_about_its_partitions() {
    let prefixes: Vec<String> = (0..8).map(|n| format!("in/{n}/")).collect();
    let server = server(prefixes.iter().flat_map(|prefix| [format!("{prefix}a"), format!("{prefix}b")]));
    let asked: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    server.fail({
        let asked = asked.clone();
        move |request| {
            let prefix = request.query.get("prefix").cloned().unwrap_or_else(|| request.key.clone());
            asked.lock().unwrap().insert(prefix.chars().take(5).collect());
            None
        }
    });
    let mut all = Vec::new();
    for slots in [[0, 1], [2, 3]].map(|some| some.into_iter().fold(Slots::none(4), Slots::with)) {
        asked.lock().unwrap().clear();
        let settings = [("prefixes", &*prefixes.join(","))];
        let found = Several::open(&server, &settings, slots, BTreeMap::new()).await.unwrap().all().await;
        // Consecutive numbers have consecutive slots.
        assert_eq!(found.len(), 8);
        let ours: BTreeSet<String> =
            prefixes.iter().filter(|prefix| slots.has(&Partition(prefix[..4].into()))).cloned().collect();
        assert_eq!(*asked.lock().unwrap(), ours);
        all.extend(found);
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 16);
}

#[tokio::test]
async fn a_run_without_a_partition_asks_nothing_and_is_caught_up() {
    let server = server(["a/1", "b/1"]);
    let none = Several::open(&server, &[("prefixes", "a/, b/")], Slots::none(64), BTreeMap::new()).await;
    let mut none = none.unwrap();
    assert_eq!(none.all().await, [""; 0]);
    assert!(timeout(Duration::from_millis(100), none.some(ROOM)).await.is_err(), "it has said so once");
    assert!(none.backlog().await.is_empty());
    assert_eq!(server.requests(), []);
}

#[tokio::test]
async fn a_partition_with_many_objects_does_not_delay_another() {
    let mut keys: Vec<String> = (0..2_000).map(|n| format!("many/{n:04}")).collect();
    keys.push("one/1".to_owned());
    let server = server(keys);
    let mut reading = several(&server, "many/, one/", BTreeMap::new()).await;
    let mut before = 0;
    while let Some((partition, records)) = reading.some(Room { rows: 10, ..ROOM }).await {
        if partition.0 == "one" {
            break;
        }
        before += records.len();
    }
    assert!(before <= 200, "{before} objects came before that of the other partition");
    assert!(reading.backlog().await.partitions.contains_key(&Partition("many".into())));
}

#[tokio::test]
async fn the_tightest_limits_block_no_partition() {
    // More partitions than may list at the same time, and room for one object of all of them.
    let keys: Vec<String> = (0..40).flat_map(|part| (0..7).map(move |n| format!("{part}/{n}"))).collect();
    let server = server(&keys);
    server.set_page(3);
    let prefixes = (0..40).map(|part| format!("{part}/")).collect::<Vec<_>>().join(",");
    let settings = [("prefixes", prefixes.as_str()), ("fetch.concurrency", "1"), ("fetch.bytes", "1")];
    let mut reading = Several::open(&server, &settings, Slots::WHOLE, BTreeMap::new()).await.unwrap();
    assert_eq!(reading.all().await.len(), keys.len());
    for key in &keys {
        server.put(key, "y");
    }
    later(&server);
    assert_eq!(reading.at_least(keys.len()).await.len(), keys.len());
}

#[tokio::test]
async fn objects_dated_ahead_are_counted_over_all_partitions() {
    let server = server(["a/1", "b/1"]);
    server.put_with("a/late", "2", &[], Some(START + 7200));
    server.put_with("b/late", "2", &[], Some(START + 3600));
    let mut reading = several(&server, "a/, b/", BTreeMap::new()).await;
    assert_eq!(reading.all().await.len(), 2);
    assert_eq!(reading.backlog().await.ahead, 2);
    let left = reading.reader.left().unwrap();
    assert!(left.starts_with("2 objects are dated ahead") && left.contains("\"b/late\""), "{left}");
}

/// One step of a bucket and its runs.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    /// Some records are read by the run with this half of the slots, which then ends.
    Read(bool, u8),
    /// The clock of the server goes on.
    Later,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..5u8, 0..6u8).prop_map(|(prefix, key)| Step::Put(prefix, key)),
        3 => (any::<bool>(), 1..12u8).prop_map(|(half, records)| Step::Read(half, records)),
        1 => Just(Step::Later),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Two runs, each of which has half of the slots, together read the last state of each object once more than what a run
    /// read of its earlier states, in the order of the positions that they stored.
    #[test]
    fn two_halves_read_everything_once(steps in prop::collection::vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let server = server(["p0/first", "p3/first", "elsewhere/first"]);
            server.set_page(2);
            let halves = [[0, 1], [2, 3]].map(|some| some.into_iter().fold(Slots::none(4), Slots::with));
            let settings = [("prefixes", "p0/,p1/,p2/,p3/,p4/")];
            let mut marks = BTreeMap::new();
            let mut read: Vec<String> = Vec::new();
            let mut written = 0;
            let read_by = async |half: usize, most: usize, marks: &mut BTreeMap<Partition, Mark>, read: &mut Vec<String>| {
                let mut run = Several::open(&server, &settings, halves[half], marks.clone()).await.unwrap();
                let mut left = most;
                while left > 0 {
                    // A run that waits for the clock to go on is ended, except the last.
                    let limit = Duration::from_millis(if most == usize::MAX { 60_000 } else { 100 });
                    let next = timeout(limit, run.some(Room { rows: left.min(3), ..ROOM })).await;
                    let Ok(Some((partition, records))) = next else { break };
                    assert!(halves[half].has(&partition));
                    left -= records.len();
                    read.extend(records.iter().map(shown).map(|line| line.split_once(' ').unwrap().1.to_owned()));
                }
                *marks = run.marks;
            };
            for step in steps {
                match step {
                    Step::Put(prefix, key) => {
                        written += 1;
                        server.put(&format!("p{prefix}/{key}"), format!("{written}"));
                    }
                    Step::Read(half, records) => {
                        read_by(usize::from(half), records.into(), &mut marks, &mut read).await;
                    }
                    Step::Later => later(&server),
                }
            }
            later(&server);
            for half in [0, 1] {
                read_by(half, usize::MAX, &mut marks, &mut read).await;
            }
            let current = server.objects().into_iter().filter(|(key, _)| key.starts_with('p'));
            let mut expected: Vec<String> =
                current.map(|(key, body)| format!("{key}={}", String::from_utf8(body).unwrap())).collect();
            expected.retain(|line| !read.contains(line));
            prop_assert!(expected.is_empty(), "these were not read: {expected:?}");
            let distinct: BTreeSet<&String> = read.iter().collect();
            prop_assert_eq!(distinct.len(), read.len(), "{:?}", read);
            prop_assert!(!read.iter().any(|line| line.starts_with("elsewhere")));
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_single_prefix_has_no_partitions() {
    let server = server(["a/1"]);
    later(&server);
    let source = configure(&server.endpoint(), &[("prefix", "a/")]).unwrap();
    assert!(!source.is_partitioned() && !source.splits());
    assert_eq!(open(&server, None).await.all().await, ["snapshot a/1=x"]);
}
