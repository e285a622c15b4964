//! Fetching: a task for each broker that serves partitions, so that a slow broker delays only its own.
//!
//! A broker answers the requests of a connection one after the other, and holds a request back while none of its
//! partitions has records. So a partition that is being delivered takes part in requests too, until it has two undelivered
//! batches; while a partition has too many, requests are not held back.
//!
//! A partition is served by its leader, or by the replica that the leader names as nearer if the settings say in which rack
//! this process is (KIP-392). Requests name the epoch of the last record that was fetched. The broker answers if its log has
//! another record in that place, because a replica that lacked it became leader (KIP-320).

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use async_trait::async_trait;
use bytes::Bytes;
use krafka::__private::protocol::{
    AbortedTransaction, FetchPartitionRequest, FetchPartitionResponse, FetchRequest, FetchTopicRequest,
    RecordBatchHeader,
};
use krafka::Kafka;
use krafka::error::ErrorCode;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::codes;
use crate::fault::{Doing, answered, refused};
use crate::group::TopicPartition;
use cluster::{Brokers, Cluster, milliseconds};

/// Time for which a broker holds back a request without records.
const HOLD: Duration = Duration::from_millis(500);
/// The same while a partition does not take part, because it has enough undelivered batches.
const HOLD_BRIEFLY: Duration = Duration::from_millis(20);
/// Undelivered batches of a partition.
const AHEAD: usize = 2;
/// Pause after an error, and the time for which errors of a partition are repeated before they are reported.
const PAUSE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after which the leader chooses a replica again.
const CHOOSE: Duration = Duration::from_secs(300);
/// Time for which the leader serves a partition after its replica failed.
const AVOID: Duration = Duration::from_secs(30);

/// Id of a topic. A topic that is created again has another one.
pub(super) type TopicId = [u8; 16];

/// Settings of fetching.
#[derive(Clone, Debug)]
pub(super) struct FetchSettings {
    /// Bytes of one answer, and of all undelivered batches.
    pub(super) bytes: usize,
    /// Bytes of a partition in one answer.
    pub(super) partition_bytes: usize,
    /// True if records of open and aborted transactions are left out.
    pub(super) committed: bool,
    /// The rack of this process; empty if it is not set.
    pub(super) rack: Str,
}

/// Where fetching a partition begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchStart {
    /// The offset of the first record.
    pub(super) offset: i64,
    /// The epoch of the leader that wrote the record before it; -1 if unknown.
    pub(super) epoch: i32,
    /// The id of the topic, if it is known.
    pub(super) topic: Option<TopicId>,
}

/// What happened to a partition.
#[derive(Debug)]
pub(super) enum Fetched {
    /// Its next batches.
    Batches(Batches),
    /// The log does not continue what was read. The partition stays out of requests.
    Broken(TopicPartition, u64, Break),
    /// The partition cannot be read.
    Failed(Fault),
}

/// Why the log of a partition does not continue what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The offset does not exist any more, or not yet.
    OutOfRange,
    /// From this offset on, the log has other records than those that were read.
    Replaced(i64),
    /// The topic was deleted and created again.
    Recreated,
}

/// Batches of a partition.
#[derive(Debug)]
pub(super) struct Batches {
    pub(super) at: TopicPartition,
    /// The number that the partition got when fetching began.
    pub(super) number: u64,
    pub(super) from: i64,
    pub(super) bytes: Bytes,
    pub(super) aborted: Vec<AbortedTransaction>,
    /// The offset after the last record that can be read now.
    pub(super) end: i64,
}

/// Fetching, as the reader uses it.
#[async_trait]
pub(super) trait Fetcher: Send {
    /// Begins to fetch a partition, and returns the number of this time.
    async fn begin(&mut self, at: &TopicPartition, start: FetchStart) -> u64;

    /// Ends fetching a partition. Batches of it that arrived are dropped.
    fn end(&mut self, at: &TopicPartition);

    /// Returns the next batches or errors. Batches of a partition are in order. Cancel-safe.
    async fn next(&mut self) -> Fetched;
}

struct Fetching {
    number: u64,
    next: i64,
    /// The epoch of the leader that wrote the record before `next`; -1 if unknown.
    epoch: i32,
    topic: Option<TopicId>,
    /// Undelivered batches. `usize::MAX` keeps the partition out of requests.
    ahead: usize,
    /// The bytes of the undelivered batches.
    ahead_bytes: usize,
    /// The number of the last batches, among those of all partitions. A broker fills its answer in the order of the request:
    /// partitions that waited longest are first.
    turn: u64,
    /// The leader and the epoch of its leadership.
    leader: Option<(i32, i32)>,
    replica: Replica,
    /// The time since which the partition has errors.
    failing: Option<Instant>,
}

/// Which replica serves a partition.
#[derive(Clone, Copy)]
enum Replica {
    /// The leader, which may name another one.
    Leader,
    /// The replica that the leader named, until this time.
    Near(i32, Instant),
    /// The leader, which is not asked for another one until this time.
    OnlyLeader(Instant),
}

impl Fetching {
    /// Returns the broker to ask.
    fn broker(&self) -> Option<i32> {
        match self.replica {
            Replica::Near(broker, until) if until > Instant::now() => Some(broker),
            _ => self.leader.map(|(leader, _)| leader),
        }
    }

    fn avoids_replicas(&self) -> bool {
        matches!(self.replica, Replica::OnlyLeader(until) if until > Instant::now())
    }

    /// Goes back to the leader. Returns `false` if the leader served the partition.
    fn leave_replica(&mut self) -> bool {
        let was_near = matches!(self.replica, Replica::Near(..));
        if was_near {
            self.replica = Replica::OnlyLeader(Instant::now() + AVOID);
        }
        was_near
    }
}

struct Shared {
    brokers: Box<dyn Brokers>,
    settings: FetchSettings,
    partitions: Mutex<BTreeMap<TopicPartition, Fetching>>,
    changed: Notify,
    /// The number of batches that arrived.
    turns: AtomicU64,
    fetched: mpsc::UnboundedSender<Fetched>,
}

/// The partitions that are fetched.
pub(super) struct Fetches {
    shared: Arc<Shared>,
    fetched: mpsc::UnboundedReceiver<Fetched>,
    /// The tasks; they end with this value.
    tasks: JoinSet<()>,
    /// The brokers that have a task.
    brokers: BTreeSet<i32>,
    last: u64,
}

impl Shared {
    fn partitions(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Fetching>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up the leaders of partitions.
    async fn find_leaders(&self, partitions: &BTreeSet<TopicPartition>) {
        let found = self.brokers.locate(partitions).await;
        let mut fetching = self.partitions();
        for (at, location) in found {
            let Some(partition) = fetching.get_mut(&at) else { continue };
            partition.leader = location.leader;
            let is_other = partition.topic.is_some() && location.topic.is_some() && partition.topic != location.topic;
            if is_other && partition.ahead != usize::MAX {
                partition.ahead = usize::MAX;
                let _ = self.fetched.send(Fetched::Broken(at, partition.number, Break::Recreated));
            }
        }
    }

    /// Returns the brokers that serve partitions.
    fn serving(&self) -> BTreeSet<i32> {
        self.partitions().values().filter_map(Fetching::broker).collect()
    }
}

impl Fetches {
    /// Fetches from a cluster.
    pub(super) fn new(kafka: Kafka, settings: FetchSettings) -> Fetches {
        Fetches::over(Box::new(Cluster { kafka }), settings)
    }

    fn over(brokers: Box<dyn Brokers>, settings: FetchSettings) -> Fetches {
        let (sender, fetched) = mpsc::unbounded_channel();
        let partitions = Mutex::default();
        let (changed, turns) = (Notify::new(), AtomicU64::new(0));
        let shared = Arc::new(Shared { brokers, settings, partitions, changed, turns, fetched: sender });
        let mut tasks = JoinSet::new();
        tasks.spawn(look(shared.clone()));
        Fetches { shared, fetched, tasks, brokers: BTreeSet::new(), last: 0 }
    }

    /// Starts a task for each broker without one.
    fn start(&mut self) {
        for broker in self.shared.serving() {
            if self.brokers.insert(broker) {
                self.tasks.spawn(fetch(self.shared.clone(), broker));
            }
        }
        self.shared.changed.notify_waiters();
    }

    /// Notes that batches are being delivered. Returns `false` if the partition is not fetched any more.
    fn taken(&self, batches: &Batches) -> bool {
        let mut partitions = self.shared.partitions();
        let Some(fetching) = partitions.get_mut(&batches.at).filter(|it| it.number == batches.number) else {
            return false;
        };
        if !batches.bytes.is_empty() && fetching.ahead != usize::MAX {
            fetching.ahead = fetching.ahead.saturating_sub(1);
            fetching.ahead_bytes = fetching.ahead_bytes.saturating_sub(batches.bytes.len());
        }
        drop(partitions);
        self.shared.changed.notify_waiters();
        true
    }
}

#[async_trait]
impl Fetcher for Fetches {
    async fn begin(&mut self, at: &TopicPartition, start: FetchStart) -> u64 {
        self.last += 1;
        let fetching = Fetching {
            number: self.last,
            next: start.offset,
            epoch: start.epoch,
            topic: start.topic,
            ahead: 0,
            ahead_bytes: 0,
            turn: 0,
            leader: self.shared.brokers.known(at).leader,
            replica: Replica::Leader,
            failing: None,
        };
        let is_unknown = fetching.leader.is_none();
        self.shared.partitions().insert(at.clone(), fetching);
        // An answer has the leaders of all partitions of a topic. A broker that does not lead any more says so.
        if is_unknown {
            self.shared.find_leaders(&BTreeSet::from([at.clone()])).await;
        }
        self.start();
        self.last
    }

    fn end(&mut self, at: &TopicPartition) {
        self.shared.partitions().remove(at);
    }

    async fn next(&mut self) -> Fetched {
        loop {
            let shared = self.shared.clone();
            let changed = shared.changed.notified();
            // A change may have come while nobody waited for it.
            if !self.shared.serving().is_subset(&self.brokers) {
                self.start();
            }
            tokio::select! {
                fetched = self.fetched.recv() => match fetched {
                    Some(Fetched::Batches(batches)) => {
                        if self.taken(&batches) {
                            return Fetched::Batches(batches);
                        }
                    }
                    Some(other) => return other,
                    None => std::future::pending().await,
                },
                () = changed => {}
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended
                        && let Ok(panic) = error.try_into_panic()
                    {
                        std::panic::resume_unwind(panic);
                    }
                }
            }
        }
    }
}

/// Looks for the leaders of partitions that have none.
async fn look(shared: Arc<Shared>) {
    loop {
        sleep(PAUSE).await;
        let lost: BTreeSet<TopicPartition> = shared
            .partitions()
            .iter()
            .filter(|(_, partition)| partition.leader.is_none())
            .map(|(at, _)| at.clone())
            .collect();
        if lost.is_empty() {
            continue;
        }
        shared.find_leaders(&lost).await;
        shared.changed.notify_waiters();
    }
}

/// A partition in a request.
#[derive(Clone, Copy)]
struct Wanted {
    number: u64,
    from: i64,
    epoch: i32,
    leadership: i32,
    topic: Option<TopicId>,
}

/// Fetches the partitions that a broker serves.
async fn fetch(shared: Arc<Shared>, broker: i32) {
    loop {
        let changed = shared.changed.notified();
        let (wanted, is_partial, rack) = {
            let partitions = shared.partitions();
            let served: Vec<_> = partitions.iter().filter(|(_, it)| it.broker() == Some(broker)).collect();
            // Batches are delivered in the order in which they arrive, so that no partition waits for long.
            let has_room = partitions.values().map(|it| it.ahead_bytes).sum::<usize>() < shared.settings.bytes;
            let mut wanted: Vec<(u64, TopicPartition, Wanted)> = served
                .iter()
                .filter(|(_, it)| has_room && it.ahead < AHEAD)
                .map(|(at, it)| {
                    let leadership = it.leader.map_or(-1, |(_, epoch)| epoch);
                    let (number, from, epoch, topic) = (it.number, it.next, it.epoch, it.topic);
                    (it.turn, (*at).clone(), Wanted { number, from, epoch, leadership, topic })
                })
                .collect();
            wanted.sort_by_key(|(turn, ..)| *turn);
            let is_partial = wanted.len() < served.len();
            // A leader that knows the rack sends no records if it names a nearer replica.
            let only_leader = served.iter().any(|(_, it)| it.avoids_replicas() && has_room && it.ahead < AHEAD);
            let rack = if only_leader { Str::default() } else { shared.settings.rack.clone() };
            (wanted, is_partial, rack)
        };
        if wanted.is_empty() {
            changed.await;
            continue;
        }
        let hold = if is_partial { HOLD_BRIEFLY } else { HOLD };
        let request = request(&shared.settings, &wanted, hold, &rack);
        let wanted: BTreeMap<TopicPartition, Wanted> = wanted.into_iter().map(|(_, at, it)| (at, it)).collect();
        match shared.brokers.fetch(broker, request).await {
            Ok(answer) => {
                let mut has_error = !answer.error_code.is_ok();
                for topic in answer.responses {
                    for partition in topic.partitions {
                        let at = TopicPartition { topic: topic.topic.as_str().into(), partition: partition.partition };
                        if let Some(wanted) = wanted.get(&at) {
                            has_error |= !note(&shared, at, *wanted, partition);
                        }
                    }
                }
                if has_error {
                    sleep(PAUSE).await;
                }
            }
            Err(error) => {
                let fault = refused(&Doing::Connecting("its brokers"), error);
                if fault.class() == FaultClass::Fatal {
                    let _ = shared.fetched.send(Fetched::Failed(fault));
                    return;
                }
                tracing::debug!(broker, "cannot fetch: {}", fault.message());
                // The leader may have moved.
                for (at, wanted) in &wanted {
                    fail(&shared, at, wanted.number, || fault.clone());
                }
                sleep(PAUSE).await;
            }
        }
    }
}

fn request(
    settings: &FetchSettings,
    wanted: &[(u64, TopicPartition, Wanted)],
    hold: Duration,
    rack: &str,
) -> FetchRequest {
    let size = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    let mut topics: Vec<FetchTopicRequest> = Vec::new();
    for (_, at, wanted) in wanted {
        let mut partition = FetchPartitionRequest::default();
        partition.partition = at.partition;
        partition.fetch_offset = wanted.from;
        partition.last_fetched_epoch = wanted.epoch;
        partition.current_leader_epoch = wanted.leadership;
        partition.partition_max_bytes = size(settings.partition_bytes);
        match topics.last_mut().filter(|topic| topic.topic == at.topic.as_str()) {
            Some(topic) => topic.partitions.push(partition),
            None => {
                let mut topic = FetchTopicRequest::default();
                topic.topic = at.topic.as_str().to_owned();
                topic.topic_id = wanted.topic;
                topic.partitions.push(partition);
                topics.push(topic);
            }
        }
    }
    let mut request = FetchRequest::default();
    request.max_wait_ms = milliseconds(hold);
    request.min_bytes = 1;
    request.max_bytes = size(settings.bytes);
    request.isolation_level = i8::from(settings.committed);
    request.rack_id = rack.to_owned();
    request.topics = topics;
    request
}

/// Notes the answer for a partition. Returns `false` if it is an error.
fn note(shared: &Shared, at: TopicPartition, wanted: Wanted, answer: FetchPartitionResponse) -> bool {
    let Wanted { number, from, .. } = wanted;
    let broken = match (answer.error_code, answer.diverging_epoch) {
        (ErrorCode::None, None) => None,
        (ErrorCode::None, Some(there)) => Some(Break::Replaced(there.end_offset)),
        (ErrorCode::OffsetOutOfRange, _) => Some(Break::OutOfRange),
        (ErrorCode::TopicAuthorizationFailed, _) => {
            let fault = answered(&Doing::Reading(&at.topic), answer.error_code, "");
            let _ = shared.fetched.send(Fetched::Failed(fault));
            return false;
        }
        (code, _) => {
            fail(shared, &at, number, || answered(&Doing::Reading(&at.topic), code, &at.to_string()));
            return false;
        }
    };
    let mut partitions = shared.partitions();
    let Some(partition) = partitions.get_mut(&at).filter(|it| it.number == number && it.next == from) else {
        return true;
    };
    if let Some(broken) = broken {
        // A replica may lag behind the leader, which knows.
        match partition.leave_replica() {
            true => shared.changed.notify_waiters(),
            false => {
                partition.ahead = usize::MAX;
                let _ = shared.fetched.send(Fetched::Broken(at, number, broken));
            }
        }
        return false;
    }
    if answer.preferred_read_replica >= 0 && shared.brokers.knows(answer.preferred_read_replica) {
        tracing::debug!(partition = %at, broker = answer.preferred_read_replica, "records are read from the nearest replica");
        partition.replica = Replica::Near(answer.preferred_read_replica, Instant::now() + CHOOSE);
        shared.changed.notify_waiters();
    }
    let bytes = answer.records.unwrap_or_default();
    let end = match shared.settings.committed && answer.last_stable_offset >= 0 {
        true => answer.last_stable_offset,
        false => answer.high_watermark,
    };
    partition.failing = None;
    let (next, epoch) = after(&bytes, from, partition.epoch);
    if next > from || !bytes.is_empty() {
        (partition.next, partition.epoch) = (next, epoch);
        partition.ahead += 1;
        partition.ahead_bytes += bytes.len();
        partition.turn = shared.turns.fetch_add(1, Ordering::Relaxed) + 1;
    }
    let aborted = answer.aborted_transactions;
    // Sent under the lock, so that the batches of a partition are in order.
    let batches = Batches { at, number, from, bytes, aborted, end };
    let _ = shared.fetched.send(Fetched::Batches(batches));
    true
}

/// Returns the offset after the last complete batch, and its epoch.
fn after(bytes: &[u8], from: i64, epoch: i32) -> (i64, i32) {
    let (mut rest, mut next, mut epoch) = (bytes, from, epoch);
    while let Ok(header) = RecordBatchHeader::peek(rest) {
        let Some(more) = rest.get(header.total_size()..) else { break };
        next = next.max(header.last_offset() + 1);
        epoch = header.partition_leader_epoch;
        rest = more;
    }
    (next, epoch)
}

/// Notes that a partition cannot be read now, and reports it if that lasts.
fn fail(shared: &Shared, at: &TopicPartition, number: u64, fault: impl FnOnce() -> Fault) {
    let mut partitions = shared.partitions();
    let Some(partition) = partitions.get_mut(at).filter(|it| it.number == number) else { return };
    if partition.leave_replica() {
        shared.changed.notify_waiters();
        return;
    }
    partition.leader = None;
    let since = *partition.failing.get_or_insert_with(Instant::now);
    if since.elapsed() > PATIENCE {
        partition.failing = None;
        let fault = fault();
        let text = format!("the partition {at} cannot be read: {}", fault.message());
        let fault = Fault::new(
            fault.class(),
            if fault.code() == codes::TOPIC_MISSING { codes::TOPIC_MISSING } else { codes::UNAVAILABLE },
            text,
        );
        let _ = shared.fetched.send(Fetched::Failed(fault));
    }
}

#[cfg(test)]
mod tests;
