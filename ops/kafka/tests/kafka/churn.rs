//! Rebalances under load: members that come and go, and one that is slow.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anabranch_plugin::source::Source;
use anabranch_record::mark::{Mark, Partition};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::members::{Kind, Other, Said};
use super::server::{Broker, broker};
use super::source::{Session, member, source};

/// Longest time until everything is read when the load has ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// Produces until it is ended.
struct Load {
    process: std::process::Child,
}

impl Load {
    fn start(broker: &Broker, topic: &str, partitions: u32, rate: u32) -> Load {
        let given = json!({
            "topic": topic, "keys": partitions * 2, "rate": rate, "prefix": "k", "base": 0, "partitions": partitions
        });
        Load { process: broker.judge_running("fill", &given) }
    }

    fn end(mut self) {
        drop(self.process.stdin.take());
        let mut said = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.process.wait().unwrap().success(), "{said}");
    }
}

/// How often the offsets of a partition were read.
type Counts = BTreeMap<String, Vec<u32>>;

fn add(counts: &mut Counts, partition: &str, first: u64, last: u64) {
    let counts = counts.entry(partition.to_owned()).or_default();
    let (first, last) = (first as usize, last as usize);
    if counts.len() <= last {
        counts.resize(last + 1, 0);
    }
    counts[first..=last].iter_mut().for_each(|count| *count += 1);
}

/// A member of ours, as a service runs it.
struct Ours {
    session: Session,
    counts: Counts,
    /// The offset that follows in each partition.
    next: BTreeMap<String, u64>,
    seen: usize,
    /// The time of the last record of each partition, and the longest time without one.
    last: BTreeMap<String, Instant>,
    pauses: BTreeMap<String, Duration>,
}

impl Ours {
    async fn join(source: &dyn Source, marks: &BTreeMap<Partition, Mark>) -> Ours {
        let session = Session::open(source, marks).await.unwrap();
        let (counts, next, last, pauses) = Default::default();
        Ours { session, counts, next, seen: 0, last, pauses }
    }

    /// Reads and settles for a time. Within one ownership of a partition, no offset is left out or repeated.
    async fn run(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let read = self.session.next_within(left.min(Duration::from_millis(100))).await.unwrap();
            for event in &self.session.events[self.seen..] {
                let (_, partition) = event.split_once(' ').unwrap();
                self.next.remove(partition);
                self.last.remove(partition);
            }
            self.seen = self.session.events.len();
            let Some(Some((partition, records))) = read else { continue };
            let positions: Vec<_> = records.iter().map(|record| record.position().clone()).collect();
            for position in &positions {
                let position: Value = serde_json::from_slice(&position.0).unwrap();
                let (name, offset) = (&*partition.0, position["Offset"].as_u64().unwrap());
                let next = self.next.insert(name.to_owned(), offset + 1);
                assert!(next.is_none_or(|next| next == offset), "{name}: {next:?} is next, and {offset} was read");
                add(&mut self.counts, name, offset, offset);
            }
            if let Some(last) = self.last.insert(partition.0.to_string(), Instant::now()) {
                let pause = self.pauses.entry(partition.0.to_string()).or_default();
                *pause = last.elapsed().max(*pause);
            }
            self.session.settle(&partition, &positions).await.unwrap();
        }
    }

    async fn leave(self) -> Counts {
        self.session.end().await;
        self.counts
    }
}

enum Guest {
    Ours(Arc<AtomicBool>),
    Other(Other),
}

/// Members of all kinds join and leave every second. Every offset is read, in order, and committed at the end.
async fn churn(kinds: &[Option<Kind>], exact: bool) {
    let Some(broker) = broker() else { return };
    let seconds = std::env::var("ANABRANCH_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    let (topic, group) = (broker.topic("churn", 6, &json!({})), broker.name("group"));
    let address = broker.address();
    let settings = member(&address, &topic, &group, "500ms");
    let load = Load::start(broker, &topic, 6, 300);
    let mut permanent = Ours::join(&*source(&settings), &BTreeMap::new()).await;
    let (mut guests, mut gone) = (Vec::<Guest>::new(), JoinSet::new());
    let (mut counts, mut said) = (Counts::new(), Vec::<Said>::new());
    let begun = Instant::now();
    for n in 0.. {
        if begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        if guests.len() < 3 && n % 2 == 0 {
            guests.push(match kinds[n / 2 % kinds.len()] {
                Some(kind) => Guest::Other(Other::join(broker, &topic, &group, kind)),
                None => {
                    // A service of its own.
                    let (source, stop) = (source(&settings), Arc::new(AtomicBool::new(false)));
                    let stopped = stop.clone();
                    gone.spawn(async move {
                        let mut ours = Ours::join(&*source, &BTreeMap::new()).await;
                        while !stopped.load(Ordering::Relaxed) {
                            ours.run(Duration::from_millis(50)).await;
                        }
                        ours.leave().await
                    });
                    Guest::Ours(stop)
                }
            });
        } else if !guests.is_empty() {
            match guests.remove(0) {
                Guest::Ours(stop) => stop.store(true, Ordering::Relaxed),
                Guest::Other(other) => said.extend(tokio::task::block_in_place(|| other.leave())),
            }
        }
        permanent.run(Duration::from_secs(1)).await;
    }
    load.end();
    for guest in guests {
        match guest {
            Guest::Ours(stop) => stop.store(true, Ordering::Relaxed),
            Guest::Other(other) => said.extend(tokio::task::block_in_place(|| other.leave())),
        }
    }
    while let Some(ours) = gone.join_next().await {
        for (partition, found) in ours.unwrap() {
            for (offset, count) in found.into_iter().enumerate() {
                (0..count).for_each(|_| add(&mut counts, &partition, offset as u64, offset as u64));
            }
        }
    }
    for said in &said {
        match said {
            Said::Read(partition, first, last) => add(&mut counts, partition, *first, *last),
            Said::Other(what) if what.contains("failed") => panic!("{what}"),
            _ => {}
        }
    }
    let ends: BTreeMap<String, u64> = serde_json::from_value(broker.judge("ends", &json!({ "topic": topic }))).unwrap();
    let is_complete = |ours: &Counts, counts: &Counts| {
        let read = |at: &String, offset: u64| {
            let count = |counts: &Counts| counts.get(at).and_then(|it| it.get(offset as usize)).copied().unwrap_or(0);
            count(ours) + count(counts) > 0
        };
        ends.iter().all(|(at, end)| (0..*end).all(|offset| read(at, offset)))
    };
    let begun = Instant::now();
    while !is_complete(&permanent.counts, &counts) {
        permanent.run(Duration::from_millis(200)).await;
        if begun.elapsed() > PATIENCE {
            let last = |counts: &Counts| -> BTreeMap<String, usize> {
                counts.iter().map(|(at, it)| (at.clone(), it.len())).collect()
            };
            let events = &permanent.session.events;
            panic!("lost: {ends:?}, {:?}, {:?}, {events:?}", last(&permanent.counts), last(&counts));
        }
    }
    for (partition, found) in permanent.leave().await {
        for (offset, count) in found.into_iter().enumerate() {
            (0..count).for_each(|_| add(&mut counts, &partition, offset as u64, offset as u64));
        }
    }
    let doubled: Vec<String> = counts
        .iter()
        .flat_map(|(at, it)| it.iter().enumerate().filter(|(_, n)| **n > 1).map(move |(o, _)| format!("{at}@{o}")))
        .collect();
    if exact {
        assert_eq!(doubled, Vec::<String>::new(), "read twice");
    }
    let committed = broker.judge("offsets", &json!({ "group": group }));
    for (at, end) in &ends {
        assert_eq!(committed[at].as_u64(), Some(*end), "{committed} {ends:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_cooperative_groups_come_and_go() {
    churn(&[None, Some(Kind::Java("cooperative")), Some(Kind::Librdkafka("cooperative-sticky"))], true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_all_protocols_come_and_go() {
    churn(&[None, Some(Kind::Java("eager")), Some(Kind::Java("consumer")), Some(Kind::Java("cooperative"))], false)
        .await;
}

/// A rebalance takes as long as its slowest member. Partitions that stay are read and committed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_stay_do_not_pause_while_a_rebalance_waits_for_a_slow_member() {
    let Some(broker) = broker() else { return };
    let (topic, group) = (broker.topic("untouched", 6, &json!({})), broker.name("group"));
    let address = broker.address();
    let settings = member(&address, &topic, &group, "500ms");
    let mut ours = Ours::join(&*source(&settings), &BTreeMap::new()).await;
    let slow = Other::join(broker, &topic, &group, Kind::Java("cooperative"));
    let begun = Instant::now();
    let assigned = |said: &[Said]| {
        said.iter().filter_map(|said| if let Said::Assigned(at) = said { Some(at.len()) } else { None }).sum::<usize>()
    };
    let mut said = Vec::new();
    while assigned(&said) < 3 {
        ours.run(Duration::from_millis(200)).await;
        said.extend(slow.said());
        assert!(begun.elapsed() < PATIENCE, "{said:?}");
    }
    let load = Load::start(broker, &topic, 6, 300);
    ours.run(Duration::from_secs(2)).await;
    let (events, committed) = (ours.session.events.len(), broker.judge("offsets", &json!({ "group": group })));
    // Longer than the session: the coordinator holds back the join of our member.
    slow.pause(Duration::from_secs(10));
    let other = Other::join(broker, &topic, &group, Kind::Java("cooperative"));
    ours.run(Duration::from_secs(1)).await;
    ours.pauses.clear();
    ours.run(Duration::from_secs(7)).await;
    assert_eq!(ours.session.events.len(), events, "{:?}", ours.session.events);
    assert_eq!(ours.pauses.len(), 3, "{:?}", ours.pauses);
    assert!(ours.pauses.values().all(|pause| *pause < Duration::from_secs(2)), "{:?}", ours.pauses);
    let later = broker.judge("offsets", &json!({ "group": group }));
    for partition in ours.pauses.keys() {
        assert!(later[partition].as_u64() > committed[partition].as_u64(), "{partition}: {committed} {later}");
    }
    load.end();
    // The rebalance completes, and each of the three has two partitions.
    let mut said = Vec::new();
    while assigned(&said) < 2 {
        ours.run(Duration::from_millis(200)).await;
        said.extend(other.said());
        assert!(begun.elapsed() < 2 * PATIENCE, "{said:?}");
    }
    assert!(!ours.session.events.iter().any(|event| event.starts_with("lost")), "{:?}", ours.session.events);
    tokio::task::block_in_place(|| (slow.leave(), other.leave()));
    ours.leave().await;
}
