//! Every kind of stage at once, on several threads and the real clock.

use std::collections::BTreeSet;

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Reaction, asynchronous, inline, isolated, kept, row_at};
use anabranch_record::fault::Fault;
use futures::FutureExt;

use super::*;
use crate::plan::stage::StageKind;

const ROWS: u64 = 5000;

fn plan(bench: &Bench, upstreams: &[Arc<Upstream>], shelves: &[Arc<Downstream>]) -> Arc<StagePlan> {
    let mut pipeline = bench.tolerant().limits(|limits| limits.replay_rows = 1000);
    let reads: Vec<_> = upstreams.iter().enumerate().map(|(i, up)| pipeline.read(&format!("in{i}"), up)).collect();
    let clean = inline(|record| match row_at(record.position()) % 50 {
        1 => Ok(Decision::Filter),
        2 => Err(Fault::record(anabranch_plugin::testing::codes::BAD, "no")),
        _ => Ok(Decision::Keep),
    });
    let copy = inline(|record| match row_at(record.position()) % 50 {
        3 => Ok(Decision::Split(vec![record.clone(); 200])),
        _ => Ok(Decision::Keep),
    });
    let wait = asynchronous(|rows| {
        async move {
            tokio::time::sleep(Duration::from_micros(row_at(rows[0].position()) % 700)).await;
            kept(rows)
        }
        .boxed()
    });
    let chain = pipeline.chain(&reads, &[clean, copy]);
    let waiting = StageKind::Async { step: Pipeline::step("wait", &wait), in_flight: 3 };
    let waiting = pipeline.stage("wait", &[chain], waiting);
    let steps = vec![Pipeline::step("js", &isolated(|_| Ok(Decision::Keep)))];
    let isolate = pipeline.stage("js", &[waiting], StageKind::Isolate { steps, workers: 2 });
    let steps = vec![Pipeline::step("wide", &inline(|_| Ok(Decision::Keep)))];
    let wide = pipeline.stage("wide", &[isolate], StageKind::Parallel { steps, workers: 2 });
    for (i, shelf) in shelves.iter().enumerate() {
        pipeline.write(&[wide], &format!("out{i}"), shelf);
    }
    pipeline.plan()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn crashes_of_a_whole_graph_lose_nothing() {
    for millis in [0, 1, 2, 4, 8, 12, 16, 20, 30, 45, 60, 80] {
        let bench = Bench::new();
        let upstreams: Vec<_> =
            (0..2).map(|_| Arc::new(Upstream::new(&bench.journal, ROWS, AtEnd::End).per_read(300))).collect();
        let shelves = [
            Arc::new(Downstream::new("a", &bench.journal).accepting()),
            Arc::new(Downstream::new("b", &bench.journal)),
        ];
        let plan = plan(&bench, &upstreams, &shelves);
        let running = bench.start(&plan);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        running.kill();
        drop(running.join().await);
        let running = bench.start(&plan);
        let progress = running.progress();
        finished(&running.join().await);
        assert!(progress.totals().balance());
        assert!(upstreams.iter().all(|upstream| upstream.kept() == 0));
        for shelf in &shelves {
            let seen: BTreeSet<(String, u64)> = shelf
                .durable()
                .iter()
                .map(|r| (r.metadata.get("svc.source.connector.id").unwrap().to_string(), row_at(r.position())))
                .collect();
            assert_eq!(seen.len() as u64, 2 * (ROWS - 2 * ROWS / 50), "after {millis} ms");
        }
        let letters: BTreeSet<_> = bench.letters.durable().iter().map(|letter| format!("{:?}", letter.key)).collect();
        assert_eq!(letters.len() as u64, 2 * ROWS / 50);
    }
}

/// An interrupted record of a killed run is not reported as broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_is_killed_ends_as_killed() {
    for micros in 0..400 {
        let bench = Bench::new();
        // It waits at its end: however late the kill comes, there is a run to be killed.
        let upstream = Arc::new(Upstream::new(&bench.journal, 20_000, AtEnd::Wait).per_read(4));
        let a = shelf(&bench, "a");
        let mut pipeline = bench.tolerant().limits(|limits| limits.queue_bytes = 1);
        let read = pipeline.read("in", &upstream);
        let steps = || StageKind::Chain(vec![Pipeline::step("pass", &inline(|_| Ok(Decision::Keep)))]);
        let mut last = read;
        for stage in ["b", "c", "d", "e"] {
            last = pipeline.stage(stage, &[last], steps());
        }
        pipeline.write(&[last], "a", &a);
        let running = bench.start(&pipeline.plan());
        tokio::time::sleep(Duration::from_micros(1000 + micros)).await;
        running.kill();
        let ending = running.join().await;
        assert!(matches!(ending, Ending::Killed), "{ending:?}");
    }
}

/// A stage that fails drops what it holds before it can say why; what was settled is stored all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_was_settled_before_a_fault_is_stored() {
    for _ in 0..300 {
        let bench = Bench::new();
        let upstream = Arc::new(Upstream::new(&bench.journal, 2000, AtEnd::End).per_read(4));
        let a = Arc::new(Downstream::new("a", &bench.journal).script(|rows, _| match row_at(rows[0].position()) {
            0..40 => Reaction::Durable,
            _ => Reaction::Fail(Fault::fatal(anabranch_plugin::testing::codes::GONE, "the table is gone")),
        }));
        let mut pipeline = bench.tolerant();
        let read = pipeline.read("in", &upstream);
        let chain = pipeline.chain(&[read], &[inline(|_| Ok(Decision::Keep))]);
        pipeline.write_with(&[chain], "a", &a, |spec| spec.batch_rows = Some(4));
        let running = bench.start(&pipeline.plan());
        let progress = running.progress();
        let ending = running.join().await;
        assert!(matches!(&ending, Ending::Faulted(fault) if fault.code().name() == "gone"), "{ending:?}");
        let [lane] = &progress.lanes()[..] else { panic!("one lane") };
        assert_eq!((lane.settled, lane.persisted), (40, 40));
    }
}
