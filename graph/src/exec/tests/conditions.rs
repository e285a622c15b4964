//! Steps that are applied to some rows only.

use anabranch_plugin::operator::{Configured, Decision};
use anabranch_plugin::testing::{AtEnd, asynchronous, inline, position, row_at};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_template::condition::CompiledCondition;
use futures::FutureExt;

use super::*;
use crate::plan::stage::{StageKind, StepCondition, StepSpec};

/// Row `i` carries `n: i mod 3`.
fn numbered(bench: &Bench, rows: u64) -> Arc<Upstream> {
    let make = |row: u64| {
        let mut record = anabranch_plugin::testing::record(row);
        record.metadata.insert("n", (row % 3).to_string());
        record
    };
    Arc::new(Upstream::new(&bench.journal, rows, AtEnd::End).make(make))
}

fn step(node: &str, condition: StepCondition, operator: &Configured) -> StepSpec {
    StepSpec { condition, ..Pipeline::step(node, operator) }
}

fn when(condition: &str) -> StepCondition {
    StepCondition::If(Arc::new(CompiledCondition::compile(condition).unwrap()))
}

fn mark(key: &'static str) -> Configured {
    inline(move |record| {
        record.metadata.insert(key, "yes");
        Ok(Decision::Keep)
    })
}

async fn run_steps(bench: &Bench, rows: u64, steps: Vec<StepSpec>) -> Vec<Record> {
    let upstream = numbered(bench, rows);
    let a = shelf(bench, "a");
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.stage("chain", &[read], StageKind::Chain(steps));
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(upstream.kept(), 0);
    a.durable()
}

const ONE: &str = r#"{{ eq (index .Metadata "n") "1" }}"#;

#[tokio::test(start_paused = true)]
async fn unselected_rows_pass_untouched_and_in_order() {
    let bench = Bench::new();
    let records = run_steps(&bench, 500, vec![step("s", when(ONE), &mark("seen"))]).await;
    assert_eq!(anabranch_plugin::testing::rows(&records), (0..500).collect::<Vec<_>>());
    for record in &records {
        assert_eq!(record.metadata.get("seen").is_some(), row_at(record.position()) % 3 == 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_condition_follows_its_rows() {
    let bench = Bench::new();
    let changes = inline(|record| match row_at(record.position()) {
        row if row % 9 == 1 => Ok(Decision::Filter),
        row if row % 9 == 4 => Err(Fault::record(anabranch_plugin::testing::codes::BAD, "no")),
        row if row % 27 == 7 => Ok(Decision::Split(vec![record.clone().with_position(position(1)), record.clone()])),
        _ => Ok(Decision::Keep),
    });
    let steps = vec![step("s0", when(ONE), &changes), step("s1", StepCondition::AsBefore, &mark("seen"))];
    let records = run_steps(&bench, 540, steps).await;
    let expected: Vec<u64> = (0..540)
        .filter(|row| row % 9 != 1 && row % 9 != 4)
        .flat_map(|row| std::iter::repeat_n(row, if row % 27 == 7 { 2 } else { 1 }))
        .collect();
    assert_eq!(anabranch_plugin::testing::rows(&records), expected);
    for record in &records {
        assert_eq!(record.metadata.get("seen").is_some(), row_at(record.position()) % 3 == 1);
    }
    assert_eq!(bench.letters.rows().len(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_fails_fails_its_row_only() {
    let bench = Bench::new();
    let odd = r#"{{ if eq (index .Metadata "n") "2" }}perhaps{{ else }}true{{ end }}"#;
    let records = run_steps(&bench, 300, vec![step("s", when(odd), &mark("seen"))]).await;
    assert_eq!(records.len(), 200);
    assert!(records.iter().all(|record| record.metadata.get("seen").is_some()));
    let letters = bench.letters.durable();
    assert_eq!(anabranch_plugin::testing::rows(&letters), (0..300).filter(|row| row % 3 == 2).collect::<Vec<_>>());
    assert!(letters.iter().all(|letter| letter.metadata.get("svc.dlq.nack.node.id").unwrap() == "s"));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_waits_gets_the_selected_rows_only() {
    let bench = Bench::new();
    let upstream = numbered(&bench, 500);
    let a = shelf(&bench, "a");
    let operator = asynchronous(|rows| {
        async move {
            assert!(rows.iter().all(|record| row_at(record.position()) % 3 == 1));
            rows.iter().map(|_| Decision::Filter).collect()
        }
        .boxed()
    });
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let waiting = StageKind::Async { step: step("s", when(ONE), &operator), in_flight: 2 };
    let waiting = pipeline.stage("s", &[read], waiting);
    pipeline.write(&[waiting], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(a.rows(), (0..500).filter(|row| row % 3 != 1).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_stage_cannot_begin_with_the_condition_of_a_step_before_it() {
    let bench = Bench::new();
    let upstream = numbered(&bench, 1);
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let steps = vec![step("s", StepCondition::AsBefore, &mark("seen"))];
    let chain = pipeline.stage("chain", &[read], StageKind::Chain(steps));
    pipeline.write(&[chain], "a", &a);
    let ending = bench.run(&pipeline.plan()).await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.code().name() == "plan_broken"));
}
