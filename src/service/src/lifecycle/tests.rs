use anabranch_graph::testing::Pipeline;
use anabranch_plugin::testing::{AtEnd, Downstream, Journal, Reaction, Upstream};
use anabranch_process::log::{LogFormat, LogSettings, Output};
use anabranch_record::fault::Fault;
use anabranch_settings::Database;
use anabranch_store::{Moment, Origin, Provision, StoredDeadLetter, StoredPipeline};

use super::*;

/// A pipeline `p` of ten rows with its surroundings.
struct Fixture {
    upstream: Arc<Upstream>,
    shelf: Arc<Downstream>,
    store: Store,
    orders: watch::Sender<LifecycleCommand>,
    recovery: RecoveryPolicy,
}

impl Fixture {
    async fn new(at_end: AtEnd, shelf: impl FnOnce(Downstream) -> Downstream) -> Fixture {
        let journal = Journal::default();
        let store = Store::open(&Database::InMemory).unwrap();
        let stored = StoredPipeline {
            id: "p".into(),
            name: "p".into(),
            description: "".into(),
            autostart: true,
            dead_letter: StoredDeadLetter {
                plugin: "log".into(),
                settings: vec![],
                window_size: 1,
                window_nack_threshold: 0,
            },
            connectors: vec![],
            processors: vec![],
            unmatched: None,
            placement: None,
            detached_connectors: vec![],
            detached: false,
            status: Status::Stopped { reason: StopReason::System },
            origin: Origin::File,
            created: None,
            updated: None,
        };
        store
            .provision(Provision { good: vec![stored], invalid: vec![], complete: true, at: Moment(1), texts: vec![] })
            .await
            .unwrap();
        Fixture {
            upstream: Arc::new(Upstream::new(&journal, 10, at_end)),
            shelf: Arc::new(shelf(Downstream::new("out", &journal))),
            store,
            orders: watch::channel(LifecycleCommand::Run).0,
            recovery: RecoveryPolicy {
                min_delay: Duration::from_millis(1),
                max_delay: Duration::from_millis(5),
                ..RecoveryPolicy::default()
            },
        }
    }

    /// A store that another service may take; gives what tells of that.
    fn take_away(&mut self) -> watch::Sender<StoreOwnership> {
        let (tell, holding) = watch::channel(StoreOwnership::Held);
        self.store = self.store.clone().held_by(holding);
        tell
    }

    fn life(&self) -> (PipelineLifecycle, watch::Receiver<LifecycleState>) {
        let letters = Arc::new(Downstream::new("letters", &Journal::default()));
        let mut pipeline = Pipeline::new(&letters, 1, 0);
        let source = pipeline.read("in", &self.upstream);
        pipeline.write(&[source], "out", &self.shelf);
        let file = tempfile::tempfile().unwrap();
        let settings = LogSettings { level: anabranch_plugin::host::LogLevel::Error, format: LogFormat::Cli };
        let (seen, watching) = watch::channel(LifecycleState::new(Status::Stopped { reason: StopReason::System }));
        let life = PipelineLifecycle {
            id: "p".into(),
            plan: pipeline.plan(),
            options: RunOptions::default(),
            schemas: std::sync::Arc::new(anabranch_plugin::schema::MemoryRegistry::new()),
            store: self.store.clone(),
            log: Log::new(settings, Output::to_file(file).unwrap()),
            executor: Handle::current(),
            opening: Arc::new(Semaphore::new(1)),
            recovery: self.recovery,
            renewal: Arc::new(|| Box::pin(async { Ok(None) })),
            was_open: false,
            orders: self.orders.subscribe(),
            seen,
        };
        (life, watching)
    }

    async fn stored(&self) -> Status {
        self.store.pipelines().await.unwrap().remove(0).status
    }
}

fn stop(milliseconds: u64) -> LifecycleCommand {
    LifecycleCommand::Stop { budget: Some(Duration::from_millis(milliseconds)), by: StopReason::System }
}

fn broken_line() -> Fault {
    Fault::transient(anabranch_graph::codes::LOST, "the line broke")
}

#[tokio::test]
async fn a_pipeline_whose_source_ends_is_finished() {
    let fixture = Fixture::new(AtEnd::End, |shelf| shelf).await;
    assert_eq!(fixture.life().0.supervise().await, PipelineOutcome::Finished);
    assert_eq!(fixture.stored().await, Status::Finished);
    assert_eq!(fixture.shelf.rows(), (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_transient_fault_is_recovered_from() {
    let fixture = Fixture::new(AtEnd::End, |shelf| shelf).await;
    fixture.upstream.fail_read(broken_line());
    let (life, mut seen) = fixture.life();
    let states = async {
        let mut states = Vec::new();
        while seen.changed().await.is_ok() {
            let word = seen.borrow_and_update().status.word();
            // A run that ends as soon as it is open is not always seen as running.
            if word != "running" && states.last() != Some(&word) {
                states.push(word);
            }
        }
        states
    };
    let (outcome, states) = tokio::join!(life.supervise(), states);
    assert_eq!(outcome, PipelineOutcome::Finished);
    assert_eq!(states, ["starting", "recovering", "starting", "finished"]);
    assert_eq!(fixture.shelf.rows(), (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_fatal_fault_degrades_at_once() {
    let fixture = Fixture::new(AtEnd::End, |shelf| shelf).await;
    fixture.upstream.fail_read(Fault::fatal(anabranch_plugin::testing::codes::GONE, "the table was dropped"));
    let PipelineOutcome::Degraded { error } = fixture.life().0.supervise().await else { panic!("not degraded") };
    assert!(error.contains("the table was dropped"), "{error}");
    assert_eq!(fixture.stored().await, Status::Degraded { error });
    // Started by hand it runs again.
    assert_eq!(fixture.life().0.supervise().await, PipelineOutcome::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_is_tried_again_for_a_while() {
    let refused =
        || Fault::fatal(anabranch_plugin::testing::codes::REFUSED, "password authentication failed").of_login();
    let mut fixture = Fixture::new(AtEnd::End, |shelf| shelf).await;
    fixture.recovery.max_delay = Duration::from_secs(5);
    fixture.recovery.login_patience = Duration::from_secs(60);
    // The password is replaced meanwhile.
    (0..3).for_each(|_| fixture.upstream.fail_open(refused()));
    let (life, seen) = fixture.life();
    assert_eq!(life.supervise().await, PipelineOutcome::Finished);
    let failed = seen.borrow().failed.clone().expect("what it failed of stays known while it runs again");
    assert!(failed.error.contains("password") && failed.attempts == 3, "{failed:?}");

    let fixture = Fixture { recovery: fixture.recovery, ..Fixture::new(AtEnd::End, |shelf| shelf).await };
    (0..1000).for_each(|_| fixture.upstream.fail_open(refused()));
    let begun = Instant::now();
    let (life, seen) = fixture.life();
    let PipelineOutcome::Degraded { error } = life.supervise().await else { panic!("not degraded") };
    assert!(error.contains("password"), "{error}");
    assert!((60..70).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(seen.borrow().run > 5, "it was tried again and again");

    // Where the exit code is waited for, it is said at once.
    let fixture = Fixture { recovery: fixture.recovery, ..Fixture::new(AtEnd::End, |shelf| shelf).await };
    fixture.upstream.fail_open(refused());
    let (mut life, seen) = fixture.life();
    life.options.once = true;
    assert!(matches!(life.supervise().await, PipelineOutcome::Degraded { .. }));
    assert_eq!(seen.borrow().run, 1);
}

#[tokio::test]
async fn attempts_to_recover_run_out() {
    let mut fixture = Fixture::new(AtEnd::End, |shelf| shelf).await;
    fixture.recovery.max_retries = Some(0);
    fixture.upstream.fail_read(broken_line());
    let PipelineOutcome::Degraded { error } = fixture.life().0.supervise().await else { panic!("not degraded") };
    assert!(error.contains("the line broke"), "{error}");
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_recovery() {
    let mut fixture = Fixture::new(AtEnd::End, |shelf| shelf).await;
    fixture.recovery.min_delay = Duration::from_secs(3600);
    fixture.recovery.max_delay = Duration::from_secs(3600);
    fixture.upstream.fail_read(broken_line());
    let (life, mut seen) = fixture.life();
    let stop = async {
        seen.wait_for(|seen| matches!(seen.status, Status::Recovering { .. })).await.unwrap();
        fixture.orders.send_replace(stop(5000));
    };
    let (outcome, ()) = tokio::join!(life.supervise(), stop);
    assert_eq!(outcome, PipelineOutcome::Stopped);
    assert_eq!(fixture.stored().await, Status::Stopped { reason: StopReason::System });
}

/// The last line of `run --once` counted only the runs.
#[tokio::test]
async fn the_duration_includes_the_wait_for_recovery() {
    let mut fixture = Fixture::new(AtEnd::End, |shelf| shelf).await;
    fixture.recovery.min_delay = Duration::from_secs(3600);
    fixture.recovery.max_delay = Duration::from_secs(3600);
    fixture.upstream.fail_read(broken_line());
    let (life, mut seen) = fixture.life();
    let waited = Duration::from_millis(100);
    let stop = async {
        seen.wait_for(|seen| matches!(seen.status, Status::Recovering { .. })).await.unwrap();
        sleep(waited).await;
        assert!(seen.borrow().whole_account().took >= waited);
        fixture.orders.send_replace(stop(5000));
    };
    tokio::join!(life.supervise(), stop);
    let took = || seen.borrow().whole_account().took;
    let ended = took();
    assert!(ended >= waited, "{ended:?}");
    sleep(Duration::from_millis(5)).await;
    assert_eq!(took(), ended, "the time goes on after the end");
}

/// Records that an attempt read and did not deliver are reported as left, although nothing runs that could be drained.
#[tokio::test]
async fn a_stop_during_the_wait_for_recovery_says_that_something_is_left() {
    for by in [StopReason::System, StopReason::User] {
        let mut fixture = Fixture::new(AtEnd::Wait, |shelf| shelf.script(|_, _| Reaction::Fail(broken_line()))).await;
        fixture.recovery.min_delay = Duration::from_secs(3600);
        fixture.recovery.max_delay = Duration::from_secs(3600);
        let (life, mut seen) = fixture.life();
        let stop = async {
            seen.wait_for(|seen| matches!(seen.status, Status::Recovering { .. })).await.unwrap();
            fixture.orders.send_replace(LifecycleCommand::Stop { budget: None, by });
        };
        let (outcome, ()) = tokio::join!(life.supervise(), stop);
        assert_eq!(fixture.upstream.kept(), 10, "nothing is acknowledged");
        match by {
            // Who asked for it knows.
            StopReason::User => assert_eq!(outcome, PipelineOutcome::Stopped),
            StopReason::System => assert_eq!(outcome, PipelineOutcome::NotDrained { left: vec![] }),
        }
    }
}

/// The same while a run opens that reads nothing any more.
#[tokio::test]
async fn a_stop_before_the_next_attempt_is_open_says_that_something_is_left() {
    let mut fixture = Fixture::new(AtEnd::Wait, |shelf| shelf.script(|_, _| Reaction::Fail(broken_line()))).await;
    fixture.recovery.min_delay = Duration::from_secs(3600);
    fixture.recovery.max_delay = Duration::from_secs(3600);
    let (mut life, mut seen) = fixture.life();
    // Who asks for credentials for the second attempt waits for ever.
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    life.recovery = RecoveryPolicy { min_delay: Duration::from_millis(1), ..fixture.recovery };
    life.renewal = Arc::new({
        let asked = asked.clone();
        move || match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Box::pin(async { Ok(None) }),
            _ => Box::pin(std::future::pending()),
        }
    });
    let stop = async {
        seen.wait_for(|seen| seen.run == 1 && matches!(seen.status, Status::Recovering { .. })).await.unwrap();
        while asked.load(std::sync::atomic::Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fixture.orders.send_replace(stop(20_000));
    };
    let (outcome, ()) = tokio::join!(life.supervise(), stop);
    assert_eq!(outcome, PipelineOutcome::NotDrained { left: vec![] });
}

#[tokio::test]
async fn a_stop_drains_what_was_read() {
    let fixture = Fixture::new(AtEnd::Wait, Downstream::accepting).await;
    let (life, _seen) = fixture.life();
    let upstream = fixture.upstream.clone();
    let stop = async {
        while upstream.rows_read() < 10 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fixture.orders.send_replace(stop(20_000));
    };
    let (outcome, ()) = tokio::join!(life.supervise(), stop);
    assert_eq!(outcome, PipelineOutcome::Stopped);
    assert_eq!(fixture.shelf.rows(), (0..10).collect::<Vec<_>>());
    assert_eq!(fixture.upstream.kept(), 0, "all rows are acknowledged");
}

#[tokio::test]
async fn what_does_not_drain_is_named() {
    let fixture = Fixture::new(AtEnd::Wait, |shelf| shelf.script(|_, _| Reaction::Hang)).await;
    let (life, _seen) = fixture.life();
    let upstream = fixture.upstream.clone();
    let shelf = fixture.shelf.clone();
    let stop = async {
        // On a busy machine the rows may need longer to the destination, and the source to its end, than the stop takes.
        while upstream.rows_read() < 10 || shelf.calls().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fixture.orders.send_replace(stop(500));
    };
    let (outcome, ()) = tokio::join!(life.supervise(), stop);
    let PipelineOutcome::NotDrained { left } = outcome else { panic!("{outcome:?}") };
    assert!(left.iter().any(|id| *id == "out"), "{left:?}");
    assert_eq!(fixture.upstream.kept(), 10, "nothing is acknowledged");
}

/// A pipeline that is idle writes nothing: without a word it would not notice that another service has the store.
#[tokio::test]
async fn an_idle_pipeline_stops_while_the_store_is_not_its_own_and_goes_on_after() {
    let mut fixture = Fixture::new(AtEnd::Wait, |shelf| shelf).await;
    let holding = fixture.take_away();
    let (life, seen) = fixture.life();
    let until = |word: &'static str| {
        let mut seen = seen.clone();
        async move { seen.wait_for(|seen| seen.status.word() == word).await.unwrap().clone() }
    };
    let upstream = fixture.upstream.clone();
    let delivered = || async {
        while upstream.kept() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let script = async {
        until("running").await;
        delivered().await;
        holding.send_replace(StoreOwnership::Paused("the session is lost".to_owned()));
        let lost = until("recovering").await;
        assert_eq!(lost.status.error(), Some("the session is lost"));
        holding.send_replace(StoreOwnership::Held);
        until("running").await;
        // For good: it waits for the end of the service.
        holding.send_replace(StoreOwnership::Taken("another one has it".to_owned()));
        until("recovering").await;
        fixture.orders.send_replace(stop(1000));
    };
    let (outcome, ()) = tokio::join!(life.supervise(), script);
    // The runs ended at any moment: rows may be left, and then it is said.
    assert!(matches!(outcome, PipelineOutcome::Stopped | PipelineOutcome::NotDrained { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_pipeline_whose_store_is_gone_is_degraded_and_says_so() {
    let mut fixture = Fixture::new(AtEnd::Wait, |shelf| shelf).await;
    let holding = fixture.take_away();
    let (life, mut seen) = fixture.life();
    let script = async {
        seen.wait_for(|seen| seen.status.word() == "running").await.unwrap();
        holding.send_replace(StoreOwnership::Gone("the file is gone".to_owned()));
    };
    let (outcome, ()) = tokio::join!(life.supervise(), script);
    assert_eq!(outcome, PipelineOutcome::Degraded { error: "the file is gone".to_owned() });
}
