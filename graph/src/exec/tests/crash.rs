//! A crash at any moment may repeat rows, and loses none.

use std::collections::BTreeMap;

use anabranch_plugin::destination::{Destination, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Event, inline};
use anabranch_record::fault::{Fault, FaultClass};
use async_trait::async_trait;

use super::*;
use crate::exec::Services;

const ROWS: u64 = 400;
const WINDOW: u64 = 100;

fn plan(bench: &Bench, upstream: &Arc<Upstream>, a: &Arc<Downstream>, b: &Arc<Downstream>) -> Arc<StagePlan> {
    let mut pipeline = bench.pipeline().limits(|limits| limits.replay_rows = WINDOW as usize);
    let read = pipeline.read("in", upstream);
    let chain = pipeline.chain(&[read], &[inline(|_| Ok(Decision::Keep))]);
    pipeline.write(&[chain], "a", a);
    pipeline.write(&[chain], "b", b);
    pipeline.plan()
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_loses_nothing() {
    let mut crashed = 0;
    for (millis, steps) in (0..150).flat_map(|millis| (0..5).map(move |steps| (millis, steps))) {
        let bench = Bench::new();
        // It deletes rows when they are acknowledged: what is acknowledged too early cannot be read again.
        let upstream = Upstream::new(&bench.journal, ROWS, AtEnd::End).per_read(16).delay(Duration::from_millis(1));
        let upstream = Arc::new(upstream);
        let slow = |name, millis, rows| {
            let shelf = Downstream::new(name, &bench.journal).delay(Duration::from_millis(millis));
            shelf.policy(|policy| policy.rows = rows)
        };
        let (a, b) = (Arc::new(slow("a", 3, 10).accepting()), Arc::new(slow("b", 2, 7)));
        let plan = plan(&bench, &upstream, &a, &b);
        let running = bench.start(&plan);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        running.kill();
        crashed += usize::from(matches!(in_time(running.join()).await, Ending::Killed));
        finished(&bench.run(&plan).await);
        assert_eq!(upstream.kept(), 0);
        for shelf in [&a, &b] {
            let mut times: BTreeMap<u64, u64> = BTreeMap::new();
            shelf.rows().into_iter().for_each(|row| *times.entry(row).or_default() += 1);
            assert_eq!(times.len() as u64, ROWS, "rows are lost by a crash after {millis} ms and {steps} steps");
            let repeated: u64 = times.values().map(|n| n - 1).sum();
            assert!(repeated <= WINDOW, "{repeated} rows were repeated");
        }
    }
    assert!(crashed > 500, "most runs are killed before their end: {crashed}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_after_another_run_took_over() {
    let bench = Bench::new();
    let upstream =
        Arc::new(Upstream::new(&bench.journal, ROWS, AtEnd::End).per_read(16).delay(Duration::from_millis(10)));
    let (a, b) = (shelf(&bench, "a"), shelf(&bench, "b"));
    let plan = plan(&bench, &upstream, &a, &b);
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_millis(120)).await;
    bench.store.fence("p");
    let before = bench.journal.events().iter().filter(|event| matches!(event, Event::Acked(..))).count();
    assert!(before > 0);
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("not fenced") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"));
    let after = bench.journal.events().iter().filter(|event| matches!(event, Event::Acked(..))).count();
    assert_eq!(before, after);
    assert_eq!(upstream.kept() as u64, ROWS - before as u64);
}

/// A destination that another run opens, which has claimed the pipeline, before this run does.
struct OpenedByAnother {
    destination: Arc<dyn Destination>,
    store: Arc<MemoryStore>,
}

#[async_trait]
impl Destination for OpenedByAnother {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        self.store.fence("p");
        drop(self.destination.open(host).await?);
        self.destination.open(host).await
    }

    fn policy(&self) -> WritePolicy {
        self.destination.policy()
    }
}

/// A node was paused after its claim. Destinations take the run that opens them last for the latest.
#[tokio::test(start_paused = true)]
async fn a_run_that_opens_the_destinations_after_a_later_one_writes_nothing() {
    let bench = Bench::new();
    let (upstream, shelf) = (upstream(&bench, ROWS), shelf(&bench, "a"));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write_with(&[read], "a", &shelf, |spec| {
        spec.destination =
            Arc::new(OpenedByAnother { destination: spec.destination.clone(), store: bench.store.clone() });
    });
    let services = Services { shared: Some("store".into()), ..services(&bench.store) };
    let running = start(pipeline.plan(), services, RunOptions::default());
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("not fenced") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"));
    assert!(shelf.rows().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_ends_the_run_and_the_next_goes_on() {
    let bench = Bench::new();
    let upstream = upstream(&bench, ROWS);
    let (a, b) = (shelf(&bench, "a"), shelf(&bench, "b"));
    let plan = plan(&bench, &upstream, &a, &b);
    bench.store.fail_after(2);
    let Ending::Faulted(fault) = bench.run(&plan).await else { panic!("the store did not fail") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "store_unavailable"));
    bench.store.heal();
    finished(&bench.run(&plan).await);
    let mut rows = a.rows();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows, (0..ROWS).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_does_not_hang_the_stop() {
    let bench = Bench::new();
    let upstream = upstream(&bench, ROWS);
    let (a, b) = (shelf(&bench, "a"), shelf(&bench, "b"));
    let plan = plan(&bench, &upstream, &a, &b);
    bench.store.hang();
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop(Some(Duration::from_secs(10)));
    let Ending::NotDrained { left } = in_time(running.join()).await else { panic!("drained") };
    assert_eq!(left, ["in"]);
    assert_eq!(upstream.kept() as u64, ROWS);
}
