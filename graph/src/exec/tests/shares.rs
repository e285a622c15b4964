//! A destination with a writer for each slot.

use std::collections::BTreeSet;

use anabranch_plugin::destination::{Destination, Write};
use anabranch_plugin::source::Read;
use anabranch_plugin::state::Slots;
use anabranch_plugin::testing::{DownstreamDestination, Reaction, host, row_at};
use anabranch_record::Record;
use anabranch_record::fault::Fault;

use super::partitions::{Scripted, part, rows_in, rows_of};
use super::*;
use crate::plan::stage::{ReadSpec, StageKind};

const OF: u32 = 4;

/// The slots of the run: all but one.
fn slots() -> Slots {
    [0, 1, 3].into_iter().fold(Slots::none(OF), Slots::with)
}

/// Names of partitions of which the run has the slots. Several have the same one.
fn names() -> Vec<String> {
    let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    names.into_iter().filter(|name| slots().has(&part(name))).collect()
}

fn slot(record: &Record) -> u32 {
    slots().slot_of(&part(record.metadata.get("partition").unwrap()))
}

fn plan(bench: &Bench, reads: impl IntoIterator<Item = Read>, shelf: &Arc<Downstream>) -> StagePlan {
    let upstream = upstream(bench, 0);
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", shelf);
    let mut plan = (*pipeline.plan()).clone();
    if let StageKind::Read(ReadSpec { source, batch_rows, batch_delay, .. }) = &mut plan.stages[0].kind {
        *source = Arc::new(Scripted::of(reads));
        // Strips have rows of several partitions.
        (*batch_rows, *batch_delay) = (Some(50), Duration::from_secs(5));
    }
    plan
}

fn run(bench: &Bench, plan: StagePlan) -> Running {
    start(Arc::new(plan), services(&bench.store), RunOptions { slots: slots(), ..RunOptions::default() })
}

fn per_slot(bench: &Bench) -> Downstream {
    Downstream::new("a", &bench.journal).transactional().per_slot().policy(|policy| policy.rows = 20)
}

/// Rounds of a few rows of each partition.
fn rounds(rounds: u64) -> Vec<Read> {
    let round = |round: u64| names().into_iter().map(move |name| rows_of(&name, round * 3..round * 3 + 3));
    (0..rounds).flat_map(round).collect()
}

#[tokio::test(start_paused = true)]
async fn a_transaction_has_rows_of_one_slot_and_each_partition_keeps_its_order() {
    let bench = Bench::new();
    let a = Arc::new(per_slot(&bench));
    let reads = rounds(20).into_iter().chain([Read::End]);
    finished(&in_time(run(&bench, plan(&bench, reads, &a)).join()).await);
    for name in names() {
        assert_eq!(rows_in(&a, &name), (0..60).collect::<Vec<_>>(), "{name}");
    }
    for transaction in a.transactions() {
        let slots: BTreeSet<u32> = transaction.iter().map(slot).collect();
        assert_eq!(slots.len(), 1, "a transaction has rows of the slots {slots:?}");
    }
    let marks = a.marks();
    assert_eq!(marks.len(), names().len());
    assert!(marks.values().all(|mark| mark.seq == 60), "{marks:?}");
    assert_eq!(bench.store.marks("p"), marks);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_hangs_holds_up_only_its_slot() {
    let bench = Bench::new();
    let hangs = |rows: &[Record], _| if slot(&rows[0]) == 1 { Reaction::Hang } else { Reaction::Durable };
    let a = Arc::new(per_slot(&bench).script(hangs));
    let running = run(&bench, plan(&bench, rounds(5), &a));
    tokio::time::sleep(Duration::from_secs(300)).await;
    for name in names() {
        let expected = if slots().slot_of(&part(&name)) == 1 { 0 } else { 15 };
        assert_eq!(rows_in(&a, &name).len(), expected, "{name}");
    }
    running.kill();
    in_time(running.join()).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_repeated_only_in_its_slot() {
    let bench = Bench::new();
    let lost = |_: &[Record], call| match call % 3 {
        0 => Reaction::FailAfter(Fault::transient(anabranch_plugin::testing::codes::DOWN, "the answer is lost")),
        1 => Reaction::Fail(Fault::transient(anabranch_plugin::testing::codes::DOWN, "it is away")),
        _ => Reaction::Durable,
    };
    let a = Arc::new(per_slot(&bench).script(lost));
    let reads = rounds(20).into_iter().chain([Read::End]);
    finished(&in_time(run(&bench, plan(&bench, reads, &a)).join()).await);
    for name in names() {
        assert_eq!(rows_in(&a, &name), (0..60).collect::<Vec<_>>(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_writer_forgets_the_finished_partitions_of_its_slot() {
    let bench = Bench::new();
    let a = Arc::new(per_slot(&bench));
    // The last row keeps the run until the marks are removed.
    let ends = names().into_iter().map(|name| Read::Finished(part(&name)));
    let reads = rounds(2).into_iter().chain(ends).chain((0..30).map(|row| rows_of("z0", row..row + 1)));
    let running = run(&bench, plan(&bench, reads, &a));
    let kept = |marks: Vec<_>| marks == [part("z0")];
    let lanes = || a.marks().into_keys().map(|lane| lane.partition).collect::<Vec<_>>();
    let forgotten = async {
        while !(kept(lanes()) && a.rows().len() > names().len() * 6 + 20) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    in_time(forgotten).await;
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    assert!(kept(bench.store.marks("p").into_keys().map(|lane| lane.partition).collect()));
}

#[tokio::test(start_paused = true)]
async fn the_writers_share_the_rate_of_the_destination() {
    let bench = Bench::new();
    let a = Arc::new(per_slot(&bench));
    let mut plan = plan(&bench, rounds(10).into_iter().chain([Read::End]), &a);
    for stage in &mut plan.stages {
        if let StageKind::Write(spec) = &mut stage.kind {
            (spec.rate, spec.burst) = (Some(0.5), 1);
        }
    }
    let begun = tokio::time::Instant::now();
    finished(&in_time(run(&bench, plan).join()).await);
    let rows = a.rows().len();
    assert_eq!(rows, names().len() * 30);
    let least = Duration::from_secs(2 * (rows as u64 - 1));
    assert!(begun.elapsed() >= least, "{rows} rows in {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_a_slot_over_fences_only_its_writer() {
    let bench = Bench::new();
    let a = Arc::new(per_slot(&bench));
    let destination = DownstreamDestination(a.clone());
    let opened = |slots| {
        let (host, destination) = (anabranch_plugin::host::Host { slots, ..host() }, &destination);
        async move { destination.open_shares(&host).await.unwrap() }
    };
    let mut ours = opened(slots()).await;
    let mut theirs = opened(Slots::none(OF).with(1)).await;
    for writer in ours.iter_mut().chain(&mut theirs) {
        writer.writer.marks().await.unwrap();
    }
    for mut ours in ours {
        let slot = ours.slots.iter().next().unwrap();
        let name = (0..).map(|number| number.to_string()).find(|name| slots().slot_of(&part(name)) == slot).unwrap();
        let Read::Rows { records, .. } = rows_of(&name, 0..1) else { unreachable!() };
        assert_eq!(ours.writer.write(Write::new(&records)).await.is_err(), slot == 1);
    }
    let rows: Vec<u32> = a.durable().iter().map(slot).collect();
    assert_eq!((rows, a.rows().iter().all(|row| *row == 0)), (vec![0, 3], true));
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_slot_of_another_run_are_not_lost() {
    let bench = Bench::new();
    let a = Arc::new(per_slot(&bench));
    let other = (0..).map(|number| number.to_string()).find(|name| !slots().has(&part(name))).unwrap();
    let reads = [rows_of(&other, 0..3), Read::End];
    finished(&in_time(run(&bench, plan(&bench, reads, &a)).join()).await);
    let rows: Vec<u64> = a.durable().iter().map(|row| row_at(row.position())).collect();
    assert_eq!(rows, [0, 1, 2]);
}
