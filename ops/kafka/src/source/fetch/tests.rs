use std::sync::atomic::{AtomicUsize, Ordering};

use krafka::__private::protocol::{DivergingEpoch, FetchResponse, FetchTopicResponse, RecordBatchBuilder};
use krafka::KrafkaError;

use super::cluster::Location;
use super::*;

const TOPIC: TopicId = [7; 16];

fn at(partition: i32) -> TopicPartition {
    TopicPartition { topic: "t".into(), partition }
}

fn settings() -> FetchSettings {
    FetchSettings { bytes: 1 << 20, partition_bytes: 1 << 20, committed: true, rack: "near".into() }
}

/// Returns a batch of one record.
fn batch(offset: i64, epoch: i32) -> Bytes {
    let mut batch = RecordBatchBuilder::new().add_record(None::<Bytes>, Some(Bytes::from_static(b"v"))).build();
    (batch.base_offset, batch.partition_leader_epoch) = (offset, epoch);
    batch.encode().unwrap()
}

/// What a broker does with a partition of a request.
type Serve = dyn Fn(i32, &FetchPartitionRequest) -> FetchPartitionResponse + Send + Sync;

/// Brokers that answer as a test says. They hold an answer without records back, as brokers do.
struct Script {
    places: Mutex<BTreeMap<TopicPartition, Location>>,
    serve: Box<Serve>,
    asked: Mutex<Vec<(i32, FetchRequest)>>,
    answers: AtomicUsize,
}

impl Script {
    /// Each of `leaders` leads the partition of its place, in epoch 3.
    fn new(
        leaders: &[i32],
        serve: impl Fn(i32, &FetchPartitionRequest) -> FetchPartitionResponse + Send + Sync + 'static,
    ) -> Arc<Script> {
        let place = |leader: i32| Location { leader: Some((leader, 3)), topic: Some(TOPIC) };
        let places = (0..).zip(leaders).map(|(partition, leader)| (at(partition), place(*leader))).collect();
        let (asked, answers) = (Mutex::default(), AtomicUsize::default());
        Arc::new(Script { places: Mutex::new(places), serve: Box::new(serve), asked, answers })
    }

    fn fetches(self: &Arc<Self>) -> Fetches {
        Fetches::over(Box::new(self.clone()), settings())
    }

    /// Returns the requests, as broker, rack, and for the first partition offset and epochs.
    fn requests(&self) -> Vec<(i32, String, i64, i32, i32)> {
        let shown = |(broker, request): &(i32, FetchRequest)| {
            let partition = &request.topics[0].partitions[0];
            let (last, leadership) = (partition.last_fetched_epoch, partition.current_leader_epoch);
            (*broker, request.rack_id.clone(), partition.fetch_offset, last, leadership)
        };
        self.asked.lock().unwrap().iter().map(shown).collect()
    }
}

#[async_trait]
impl Brokers for Arc<Script> {
    async fn locate(&self, partitions: &BTreeSet<TopicPartition>) -> BTreeMap<TopicPartition, Location> {
        let places = self.places.lock().unwrap();
        partitions.iter().filter_map(|at| Some((at.clone(), *places.get(at)?))).collect()
    }

    fn knows(&self, broker: i32) -> bool {
        broker < 10
    }

    async fn fetch(&self, broker: i32, request: FetchRequest) -> krafka::Result<FetchResponse> {
        self.asked.lock().unwrap().push((broker, request.clone()));
        let mut answer = FetchResponse::default();
        let mut room = request.max_bytes;
        for topic in &request.topics {
            assert_eq!(topic.topic_id, Some(TOPIC));
            let mut served = FetchTopicResponse::default();
            served.topic = topic.topic.clone();
            for partition in &topic.partitions {
                let mut answered = (self.serve)(broker, partition);
                if answered.partition == GONE {
                    return Err(KrafkaError::timeout("the broker is gone"));
                }
                answered.partition = partition.partition;
                if room <= 0 {
                    answered.records = None;
                }
                room -= answered.records.as_ref().map_or(0, |bytes| i32::try_from(bytes.len()).unwrap());
                served.partitions.push(answered);
            }
            answer.responses.push(served);
        }
        let is_empty = |it: &FetchPartitionResponse| {
            it.error_code.is_ok()
                && it.records.is_none()
                && it.diverging_epoch.is_none()
                && it.preferred_read_replica < 0
        };
        if answer.responses.iter().all(|topic| topic.partitions.iter().all(is_empty)) {
            sleep(Duration::from_millis(request.max_wait_ms.unsigned_abs().into())).await;
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
        Ok(answer)
    }
}

/// The number of the partition in an answer that a broker does not give.
const GONE: i32 = -2;

fn nothing() -> FetchPartitionResponse {
    FetchPartitionResponse::default()
}

fn one(offset: i64, epoch: i32) -> FetchPartitionResponse {
    let mut answer = FetchPartitionResponse::default();
    answer.records = Some(batch(offset, epoch));
    answer.last_stable_offset = offset + 1;
    answer
}

fn error(code: ErrorCode) -> FetchPartitionResponse {
    let mut answer = FetchPartitionResponse::default();
    answer.error_code = code;
    answer
}

fn start(offset: i64, epoch: i32) -> FetchStart {
    FetchStart { offset, epoch, topic: Some(TOPIC) }
}

/// Returns the next batches that have records.
async fn next(fetches: &mut Fetches) -> Batches {
    loop {
        match fetches.next().await {
            Fetched::Batches(batches) if !batches.bytes.is_empty() => return batches,
            Fetched::Batches(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn broken(fetches: &mut Fetches) -> Break {
    loop {
        match fetches.next().await {
            Fetched::Broken(_, _, broken) => return broken,
            Fetched::Batches(_) => {}
            other @ Fetched::Failed(_) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_on_another_broker_delays_none() {
    let script = Script::new(&[1, 2], |_, asked| match asked.partition {
        0 => one(asked.fetch_offset, 3),
        _ => nothing(),
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(1), start(0, -1)).await;
    fetches.begin(&at(0), start(0, -1)).await;
    let begun = Instant::now();
    for offset in 0..1000 {
        let batches = next(&mut fetches).await;
        assert_eq!((batches.at, batches.from), (at(0), offset));
    }
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_on_the_same_broker_delays_no_other_for_long() {
    let script = Script::new(&[1, 1], |_, asked| match asked.partition {
        0 => one(asked.fetch_offset, 3),
        _ => nothing(),
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(0, -1)).await;
    fetches.begin(&at(1), start(0, -1)).await;
    let begun = Instant::now();
    for _ in 0..100 {
        next(&mut fetches).await;
    }
    assert!(begun.elapsed() < HOLD_BRIEFLY * 60, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn two_batches_of_a_partition_wait_at_most() {
    let script = Script::new(&[1], |_, asked| one(asked.fetch_offset, 3));
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(0, -1)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(script.requests().len(), AHEAD);
    next(&mut fetches).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(script.requests().len(), AHEAD + 1);
}

#[tokio::test(start_paused = true)]
async fn all_partitions_share_the_room_for_undelivered_batches() {
    let script = Script::new(&[1; 50], |_, asked| one(asked.fetch_offset, 3));
    let bytes = batch(0, 3).len() * 10;
    let mut fetches = Fetches::over(Box::new(script.clone()), FetchSettings { bytes, ..settings() });
    for partition in 0..50 {
        fetches.begin(&at(partition), start(0, -1)).await;
    }
    sleep(Duration::from_secs(60)).await;
    let waiting = || fetches.shared.partitions().values().map(|it| it.ahead_bytes).sum::<usize>();
    assert!((bytes..bytes * 2).contains(&waiting()), "{}", waiting());
    // Each gets its turn, although the broker fills its answers from the front.
    let mut served: BTreeMap<TopicPartition, usize> = BTreeMap::new();
    for _ in 0..500 {
        *served.entry(next(&mut fetches).await.at).or_default() += 1;
    }
    assert!(served.len() == 50 && served.values().all(|count| (5..=20).contains(count)), "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn batches_of_an_ended_fetch_are_dropped() {
    let script = Script::new(&[1], |_, asked| one(asked.fetch_offset, 3));
    let mut fetches = script.fetches();
    let first = fetches.begin(&at(0), start(0, -1)).await;
    sleep(Duration::from_secs(1)).await;
    fetches.end(&at(0));
    let second = fetches.begin(&at(0), start(40, -1)).await;
    let batches = next(&mut fetches).await;
    assert_eq!((batches.number, batches.from), (second, 40));
    assert_ne!(first, second);
}

#[tokio::test(start_paused = true)]
async fn a_near_replica_serves_until_it_fails() {
    let has_failed = Arc::new(AtomicUsize::new(0));
    let failed = has_failed.clone();
    let script = Script::new(&[1], move |broker, asked| match (broker, asked.fetch_offset) {
        (1, 0 | 4) => {
            let mut answer = nothing();
            answer.preferred_read_replica = 2;
            answer
        }
        (2, 0..2) => one(asked.fetch_offset, 3),
        (2, _) => {
            failed.fetch_add(1, Ordering::Relaxed);
            let mut gone = nothing();
            gone.partition = GONE;
            gone
        }
        _ => one(asked.fetch_offset, 3),
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(0, -1)).await;
    for _ in 0..2 {
        next(&mut fetches).await;
    }
    sleep(Duration::from_secs(1)).await;
    let asked: Vec<(i32, String)> = script.requests().into_iter().map(|it| (it.0, it.1)).collect();
    let near = |broker: i32| (broker, "near".to_owned());
    assert_eq!(asked[..4], [near(1), near(2), near(2), near(2)]);
    // The leader is asked without a rack, because it would name the replica again.
    assert_eq!(asked[4], (1, String::new()));
    assert_eq!(has_failed.load(Ordering::Relaxed), 1);
    // Later, it may choose again.
    let before = script.requests().len();
    sleep(AVOID).await;
    for _ in 0..2 {
        next(&mut fetches).await;
    }
    sleep(PAUSE / 2).await;
    let asked: Vec<(i32, String)> = script.requests().into_iter().skip(before).map(|it| (it.0, it.1)).collect();
    assert_eq!(asked[..2], [near(1), near(2)]);
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_a_replica_lacks_is_asked_of_the_leader() {
    let script = Script::new(&[1], |broker, asked| match (broker, asked.fetch_offset) {
        (1, 0) => {
            let mut answer = nothing();
            answer.preferred_read_replica = 2;
            answer
        }
        (2, 0) => one(0, 3),
        (2, _) => error(ErrorCode::OffsetOutOfRange),
        (_, 1) => one(1, 3),
        _ => error(ErrorCode::OffsetOutOfRange),
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(0, -1)).await;
    assert_eq!(next(&mut fetches).await.from, 0);
    assert_eq!(next(&mut fetches).await.from, 1);
    assert_eq!(broken(&mut fetches).await, Break::OutOfRange);
    assert_eq!(script.requests().last().map(|it| it.0), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_was_replaced_is_noticed() {
    let script = Script::new(&[1], |_, asked| match asked.fetch_offset {
        10 => one(10, 2),
        _ => {
            let mut answer = nothing();
            answer.diverging_epoch = Some(DivergingEpoch { epoch: 1, end_offset: 8 });
            answer
        }
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(10, 1)).await;
    assert_eq!(next(&mut fetches).await.from, 10);
    assert_eq!(broken(&mut fetches).await, Break::Replaced(8));
    let near = "near".to_owned();
    assert_eq!(script.requests(), [(1, near.clone(), 10, 1, 3), (1, near, 11, 2, 3)]);
    // The partition stays out of requests until the reader has decided.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(script.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_was_created_again_is_another_one() {
    let script = Script::new(&[1], |_, asked| match asked.fetch_offset {
        0 => one(0, 3),
        _ => error(ErrorCode::UnknownTopicId),
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(0, -1)).await;
    next(&mut fetches).await;
    // Deleted, and not yet created.
    script.places.lock().unwrap().insert(at(0), Location::default());
    sleep(Duration::from_secs(1)).await;
    script.places.lock().unwrap().insert(at(0), Location { leader: Some((1, 0)), topic: Some([8; 16]) });
    assert_eq!(broken(&mut fetches).await, Break::Recreated);
}

/// The reader may be busy with other things when the leader moves to a broker from which nothing was fetched before.
#[tokio::test(start_paused = true)]
async fn a_new_leader_is_asked_although_nobody_waited() {
    let script = Script::new(&[1], |broker, asked| match broker {
        1 => error(ErrorCode::NotLeaderForPartition),
        _ => one(asked.fetch_offset, 4),
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(0, -1)).await;
    sleep(PAUSE / 2).await;
    script.places.lock().unwrap().insert(at(0), Location { leader: Some((2, 4)), topic: Some(TOPIC) });
    sleep(Duration::from_secs(5)).await;
    let batches = tokio::time::timeout(Duration::from_secs(5), next(&mut fetches)).await.unwrap();
    assert_eq!(batches.from, 0);
}

#[tokio::test(start_paused = true)]
async fn the_leader_may_move_and_an_error_that_lasts_is_reported() {
    let script = Script::new(&[1], |broker, asked| match broker {
        1 => error(ErrorCode::NotLeaderForPartition),
        2 if asked.fetch_offset == 0 => one(0, 3),
        _ => error(ErrorCode::KafkaStorageException),
    });
    let mut fetches = script.fetches();
    fetches.begin(&at(0), start(0, -1)).await;
    sleep(Duration::from_secs(1)).await;
    script.places.lock().unwrap().insert(at(0), Location { leader: Some((2, 4)), topic: Some(TOPIC) });
    assert_eq!(next(&mut fetches).await.from, 0);
    let begun = Instant::now();
    match fetches.next().await {
        Fetched::Failed(fault) => assert_eq!(fault.class(), FaultClass::Transient),
        other => panic!("{other:?}"),
    }
    assert!((PATIENCE..PATIENCE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}
