use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use krafka::__private::protocol::RecordBatchBuilder;
use tokio::sync::mpsc;

use super::super::fetch::FetchStart;
use super::super::lookup::Found;
use super::super::position::{LogPosition, PositionEncoder};
use super::super::start::Started;
use super::*;
use crate::group::Committed;

fn at(partition: i32) -> TopicPartition {
    TopicPartition { topic: "t".into(), partition }
}

/// The group, the log and the fetches of a test, and what the reader asked of them.
#[derive(Clone)]
struct Script(Arc<Scripted>);

struct Scripted {
    changes: mpsc::UnboundedSender<Change>,
    changed: tokio::sync::Mutex<mpsc::UnboundedReceiver<Change>>,
    fetched: mpsc::UnboundedSender<Fetched>,
    begun: Mutex<Vec<(TopicPartition, i64)>>,
    ended: Mutex<Vec<TopicPartition>>,
    restarts: Mutex<Vec<Option<i64>>>,
    commits: Mutex<Vec<i64>>,
    /// Whether partitions start at an offset that another program committed.
    is_adopted: Mutex<bool>,
    /// Whether the group takes offsets.
    takes: Mutex<bool>,
    /// The end of each log.
    end: i64,
    fails_on_gap: bool,
}

/// Fetches that a test gives.
struct Feed {
    script: Script,
    fetched: mpsc::UnboundedReceiver<Fetched>,
}

#[async_trait]
impl Fetcher for Feed {
    async fn begin(&mut self, at: &TopicPartition, start: FetchStart) -> u64 {
        let mut begun = self.script.0.begun.lock().unwrap();
        begun.push((at.clone(), start.offset));
        begun.len() as u64
    }

    fn end(&mut self, at: &TopicPartition) {
        self.script.0.ended.lock().unwrap().push(at.clone());
    }

    async fn next(&mut self) -> Fetched {
        self.fetched.recv().await.unwrap()
    }
}

#[async_trait]
impl Membership for Script {
    async fn change(&self) -> Result<Change, Fault> {
        Ok(self.0.changed.lock().await.recv().await.unwrap())
    }

    async fn committed(&self, _: &[TopicPartition]) -> Result<BTreeMap<TopicPartition, Committed>, Fault> {
        Ok(BTreeMap::new())
    }

    async fn commit(
        &self,
        offsets: &[(TopicPartition, Tenure, Committed)],
        _: Duration,
    ) -> Result<Vec<TopicPartition>, Fault> {
        if !*self.0.takes.lock().unwrap() {
            return Ok(offsets.iter().map(|(at, ..)| at.clone()).collect());
        }
        self.0.commits.lock().unwrap().extend(offsets.iter().map(|(.., committed)| committed.offset));
        Ok(Vec::new())
    }

    fn let_go(&self, _: &TopicPartition) {}

    async fn leave(&self) {}
}

#[async_trait]
impl Starter for Script {
    async fn start(
        &self,
        at: &TopicPartition,
        _: Option<&Mark>,
        restart: Option<i64>,
        _: Option<Found>,
        _: &dyn Membership,
    ) -> Result<Started, Fault> {
        self.0.restarts.lock().unwrap().push(restart);
        let position = LogPosition {
            group: "g".into(),
            topic: at.topic.clone(),
            partition: at.partition,
            topic_id: "".into(),
            source: "s".into(),
            leader_epoch: -1,
            offset: 0,
        };
        let from = FetchStart { offset: restart.unwrap_or_default(), epoch: -1, topic: None };
        let (start, positions) = (Start::after_mark(), PositionEncoder::new(position));
        let is_adopted = *self.0.is_adopted.lock().unwrap();
        Ok(Started { from, end: self.0.end, start, positions, missed: 0, is_adopted })
    }

    async fn ends(&self, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, i64> {
        partitions.into_iter().map(|at| (at, 100)).collect()
    }

    async fn bounds(&self, _: &TopicPartition) -> Result<(i64, i64), Fault> {
        Ok((2, self.0.end))
    }

    fn gap(&self, _: &TopicPartition, wanted: i64, there: i64, why: &str) -> Result<u64, Fault> {
        match self.0.fails_on_gap {
            true => Err(Fault::fatal(codes::GAP, format!("{wanted} to {there}: {why}"))),
            false => Ok(u64::try_from(there - wanted).unwrap_or(0)),
        }
    }
}

/// Returns a reader of logs that end at `end`.
fn reader(end: i64, fails_on_gap: bool) -> (PartitionReader, Script) {
    let (changes, changed) = mpsc::unbounded_channel();
    let (fetched, feed) = mpsc::unbounded_channel();
    let script = Script(Arc::new(Scripted {
        changes,
        changed: tokio::sync::Mutex::new(changed),
        fetched,
        begun: Mutex::default(),
        ended: Mutex::default(),
        restarts: Mutex::default(),
        commits: Mutex::default(),
        is_adopted: Mutex::new(false),
        takes: Mutex::new(true),
        end,
        fails_on_gap,
    }));
    let membership: Arc<dyn Membership> = Arc::new(script.clone());
    let offsets = Offsets::new(membership.clone(), "s".into());
    let feed = Box::new(Feed { script: script.clone(), fetched: feed });
    let reader = PartitionReader::new(Arc::new(script.clone()), membership, offsets, feed);
    (reader, script)
}

impl Script {
    fn changes(&self, change: Change) {
        self.0.changes.send(change).unwrap();
    }

    fn assigns(&self, partitions: &[i32]) {
        self.changes(Change::Assigned(partitions.iter().map(|partition| (at(*partition), Tenure(1))).collect()));
        self.changes(Change::Settled);
    }

    /// Gives a batch of records with the offsets `from..to`, of which only the first `records` exist.
    fn gives(&self, partition: i32, number: u64, from: i64, to: i64, records: i64) {
        let mut builder = RecordBatchBuilder::new();
        for offset in from..from + records {
            builder = builder.add_record(None::<Bytes>, Some(Bytes::from(offset.to_string())));
        }
        let mut batch = builder.build();
        batch.base_offset = from;
        batch.last_offset_delta = i32::try_from(to - from - 1).unwrap();
        let (bytes, end) = (batch.encode().unwrap(), self.0.end);
        let batches = Batches { at: at(partition), number, from, bytes, aborted: Vec::new(), end };
        self.0.fetched.send(Fetched::Batches(batches)).unwrap();
    }
}

/// Returns what the reader says, as text.
async fn says(reader: &mut PartitionReader, rows: usize) -> String {
    let offset = |position: &anabranch_record::Position| LogPosition::decode(position).unwrap().offset;
    match reader.read(Room { rows, bytes: usize::MAX }).await.unwrap() {
        Read::Rows { partition, records } => {
            let offsets: Vec<String> = records.iter().map(|record| offset(record.position()).to_string()).collect();
            format!("{} {}", partition.0, offsets.join(" "))
        }
        Read::Progress(partition, position) => format!("{} to {}", partition.0, offset(&position)),
        Read::Assigned(partition) => format!("{} assigned", partition.0),
        Read::Revoked { partition, .. } => format!("{} revoked", partition.0),
        Read::Lost(partition) => format!("{} lost", partition.0),
        Read::CaughtUp => "caught up".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Assigns partitions, and resumes them as the engine does.
async fn resume(reader: &mut PartitionReader, script: &Script, partitions: &[i32]) {
    script.assigns(partitions);
    for partition in partitions {
        assert_eq!(says(reader, 9).await, format!("t/{partition} assigned"));
        reader.go_on(&named(&at(*partition)), None).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn records_of_a_partition_are_in_order_and_fill_the_room() {
    let (mut reader, script) = reader(6, true);
    resume(&mut reader, &script, &[0, 1]).await;
    script.gives(0, 1, 0, 3, 3);
    script.gives(1, 2, 0, 6, 6);
    script.gives(0, 1, 3, 6, 3);
    let mut said = Vec::new();
    for _ in 0..8 {
        said.push(says(&mut reader, 2).await);
    }
    let expected = ["t/0 0 1", "t/0 2", "t/1 0 1", "t/1 2 3", "t/1 4 5", "t/0 3 4", "t/0 5", "caught up"];
    assert_eq!(said, expected);
}

#[tokio::test(start_paused = true)]
async fn offsets_without_records_are_progress() {
    let (mut reader, script) = reader(10, true);
    resume(&mut reader, &script, &[0]).await;
    script.gives(0, 1, 0, 4, 2);
    script.gives(0, 1, 4, 10, 6);
    assert_eq!(says(&mut reader, 9).await, "t/0 0 1");
    assert_eq!(says(&mut reader, 9).await, "t/0 to 3");
    assert_eq!(says(&mut reader, 9).await, "t/0 4 5 6 7 8 9");
    assert_eq!(says(&mut reader, 9).await, "caught up");
}

#[tokio::test(start_paused = true)]
async fn a_revoked_partition_that_is_being_delivered_ends_at_once_and_the_others_go_on() {
    let (mut reader, script) = reader(6, true);
    resume(&mut reader, &script, &[0, 1]).await;
    script.gives(0, 1, 0, 6, 6);
    assert_eq!(says(&mut reader, 2).await, "t/0 0 1");
    script.changes(Change::Revoked { partitions: vec![at(0)], within: Duration::from_secs(5) });
    // The engine waits for changes while its rows are full. The rest of the batch belongs to the next owner.
    let told = reader.change().await.unwrap();
    assert!(matches!(told, Read::Revoked { partition, .. } if partition == named(&at(0))));
    assert_eq!(*script.0.ended.lock().unwrap(), [at(0)]);
    script.gives(0, 1, 6, 9, 3);
    script.gives(1, 2, 0, 2, 2);
    assert_eq!(says(&mut reader, 9).await, "t/1 0 1");
    // It comes back, and what the first time fetched is not part of the second.
    resume(&mut reader, &script, &[0]).await;
    script.gives(0, 1, 9, 12, 3);
    script.gives(0, 3, 0, 6, 6);
    assert_eq!(says(&mut reader, 9).await, "t/0 0 1 2 3 4 5");
}

#[tokio::test(start_paused = true)]
async fn everything_is_read_only_when_each_partition_is() {
    let (mut reader, script) = reader(2, true);
    script.assigns(&[0, 1]);
    assert_eq!(says(&mut reader, 9).await, "t/0 assigned");
    assert_eq!(says(&mut reader, 9).await, "t/1 assigned");
    reader.go_on(&named(&at(0)), None).await.unwrap();
    script.gives(0, 1, 0, 2, 2);
    assert_eq!(says(&mut reader, 9).await, "t/0 0 1");
    let waiting = tokio::time::timeout(Duration::from_secs(60), says(&mut reader, 9)).await;
    assert!(waiting.is_err(), "the engine has not resumed the other partition: {waiting:?}");
    reader.go_on(&named(&at(1)), None).await.unwrap();
    script.gives(1, 2, 0, 2, 2);
    assert_eq!(says(&mut reader, 9).await, "t/1 0 1");
    assert_eq!(says(&mut reader, 9).await, "caught up");
    // Once.
    assert!(tokio::time::timeout(Duration::from_secs(60), says(&mut reader, 9)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_log_that_does_not_continue_is_a_gap() {
    for (broken, expected) in [
        (Break::OutOfRange, "4 to 4"),
        (Break::Replaced(3), "4 to 3"),
        (Break::Replaced(0), "4 to 2"),
        (Break::Recreated, "4 to 2"),
    ] {
        let (mut reader, script) = reader(6, true);
        resume(&mut reader, &script, &[0]).await;
        script.gives(0, 1, 0, 4, 4);
        says(&mut reader, 9).await;
        script.0.fetched.send(Fetched::Broken(at(0), 1, broken)).unwrap();
        let fault = reader.read(Room { rows: 9, bytes: 9 }).await.unwrap_err();
        assert!(fault.code() == codes::GAP && fault.message().starts_with(expected), "{broken:?}: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gap_that_is_allowed_begins_again_at_the_place() {
    let (mut reader, script) = reader(6, false);
    resume(&mut reader, &script, &[0]).await;
    script.gives(0, 1, 0, 4, 4);
    says(&mut reader, 9).await;
    // Of an earlier time: it is not handled.
    script.0.fetched.send(Fetched::Broken(at(0), 7, Break::Recreated)).unwrap();
    script.0.fetched.send(Fetched::Broken(at(0), 1, Break::Replaced(3))).unwrap();
    assert_eq!(says(&mut reader, 9).await, "t/0 lost");
    assert_eq!(says(&mut reader, 9).await, "t/0 assigned");
    reader.go_on(&named(&at(0)), None).await.unwrap();
    assert_eq!(*script.0.restarts.lock().unwrap(), [None, Some(3)]);
    assert_eq!(*script.0.begun.lock().unwrap(), [(at(0), 0), (at(0), 3)]);
    script.gives(0, 2, 3, 6, 3);
    assert_eq!(says(&mut reader, 9).await, "t/0 3 4 5");
    assert_eq!(says(&mut reader, 9).await, "caught up");
}

/// After a crash, the offset of another program would count again.
#[tokio::test(start_paused = true)]
async fn an_offset_of_another_program_is_committed_before_records_are_read() {
    let (mut reader, script) = reader(6, true);
    resume(&mut reader, &script, &[0]).await;
    assert!(script.0.commits.lock().unwrap().is_empty());
    *script.0.is_adopted.lock().unwrap() = true;
    resume(&mut reader, &script, &[1]).await;
    assert_eq!(*script.0.commits.lock().unwrap(), [0]);
    *script.0.takes.lock().unwrap() = false;
    script.assigns(&[2]);
    assert_eq!(says(&mut reader, 9).await, "t/2 assigned");
    let fault = reader.go_on(&named(&at(2)), None).await.unwrap_err();
    assert_eq!(fault.code(), codes::UNAVAILABLE, "{fault:?}");
    assert_eq!(script.0.begun.lock().unwrap().len(), 2, "nothing is fetched");
}

/// Nothing is fetched while the destination stands still, so that no answer says what arrived since.
#[tokio::test(start_paused = true)]
async fn the_backlog_grows_while_nothing_is_fetched() {
    let (mut reader, script) = reader(6, true);
    resume(&mut reader, &script, &[0]).await;
    script.gives(0, 1, 0, 4, 4);
    assert_eq!(says(&mut reader, 4).await, "t/0 0 1 2 3");
    let left = async |reader: &mut PartitionReader| reader.backlog().await.unwrap().partitions[&named(&at(0))];
    assert_eq!(left(&mut reader).await, 2);
    tokio::time::sleep(STALE).await;
    // The question does not wait for the answer.
    assert_eq!(left(&mut reader).await, 2);
    tokio::task::yield_now().await;
    assert_eq!(left(&mut reader).await, 96);
    // What is looked up does not decide whether everything was read.
    script.gives(0, 1, 4, 6, 2);
    assert_eq!(says(&mut reader, 9).await, "t/0 4 5");
    assert_eq!(says(&mut reader, 9).await, "caught up");
}
