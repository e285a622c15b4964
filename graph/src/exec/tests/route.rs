//! Rows that go to the destinations whose conditions they fulfil.

use anabranch_plugin::testing::{AtEnd, record, rows};
use anabranch_record::Data;
use anabranch_template::condition::CompiledCondition;

use super::*;
use crate::codes;
use crate::plan::graph::RouteNode;
use crate::plan::stage::{RouteSpec, StageKind, Unmatched};

const ZERO: &str = r#"{{ eq (index .Metadata "n") "0" }}"#;
const NOT_TWO: &str = r#"{{ ne (index .Metadata "n") "2" }}"#;
/// Fails for rows whose payload is not a number.
const LARGE: &str = "{{ gt .Payload.After.n 1 }}";

/// Row `i` carries `n: i mod 4`.
fn numbered(bench: &Bench, rows: u64) -> Arc<Upstream> {
    let make = |row: u64| {
        let mut record = record(row);
        record.metadata.insert("n", (row % 4).to_string());
        record
    };
    Arc::new(Upstream::new(&bench.journal, rows, AtEnd::End).make(make))
}

/// The rules of destinations in their order, and what becomes of other rows.
type Rules<'a> = (&'a [(Option<&'a str>, bool)], Unmatched);

/// Adds a route after a source, and a destination for each rule.
fn routed(
    pipeline: &mut Pipeline,
    upstream: &Arc<Upstream>,
    shelves: &[Arc<Downstream>],
    (rules, unmatched): Rules<'_>,
) {
    let read = pipeline.read("in", upstream);
    let route = pipeline.stage("route?", &[read], StageKind::Route(RouteSpec { rules: Vec::new(), unmatched }));
    let mut all = Vec::new();
    for (i, (shelf, (condition, otherwise))) in shelves.iter().zip(rules).enumerate() {
        let condition = condition.map(|text| CompiledCondition::compile(text).unwrap());
        all.push((pipeline.write(&[route], &format!("out{i}"), shelf), condition, *otherwise));
    }
    // The order of rules is not that of wires.
    all.reverse();
    pipeline.rules(route, all);
}

fn of(rows: u64, is: impl Fn(u64) -> bool) -> Vec<u64> {
    (0..rows).filter(|row| is(row % 4)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_destination_receives_its_rows_in_order() {
    let bench = Bench::new();
    let upstream = numbered(&bench, 1000);
    let shelves = ["a", "b", "c", "d"].map(|name| shelf(&bench, name));
    let mut pipeline = bench.pipeline();
    let rules = [(Some(ZERO), false), (Some(NOT_TWO), false), (None, false), (None, true)];
    routed(&mut pipeline, &upstream, &shelves, (&rules, Unmatched::Drop));
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&in_time(running.join()).await);
    assert_eq!(shelves[0].rows(), of(1000, |n| n == 0));
    assert_eq!(shelves[1].rows(), of(1000, |n| n != 2));
    assert_eq!(shelves[2].rows(), of(1000, |_| true));
    assert_eq!(shelves[3].rows(), Vec::<u64>::new(), "one of them receives every row");
    assert_eq!(upstream.kept(), 0);
    let totals = progress.totals();
    assert_eq!((totals.read, totals.born, totals.delivered, totals.filtered), (1000, 1000, 2000, 0));
    let stages = progress.stages();
    let route = stages.iter().flat_map(|stage| &stage.nodes).find(|node| node.node == *RouteNode::NODE).unwrap();
    assert_eq!((route.count.rows_in, route.count.rows_out), (1000, 1000));
}

#[tokio::test(start_paused = true)]
async fn other_rows_are_dropped_and_counted_or_go_where_they_are_to_go() {
    let bench = Bench::new();
    let upstream = numbered(&bench, 400);
    let shelves = ["a"].map(|name| shelf(&bench, name));
    let mut pipeline = bench.pipeline();
    routed(&mut pipeline, &upstream, &shelves, (&[(Some(ZERO), false)], Unmatched::Drop));
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&in_time(running.join()).await);
    assert_eq!((shelves[0].rows(), upstream.kept()), (of(400, |n| n == 0), 0));
    assert_eq!((progress.totals().delivered, progress.totals().filtered), (100, 300));

    let bench = Bench::new();
    let upstream = numbered(&bench, 400);
    let shelves = ["a", "b"].map(|name| shelf(&bench, name));
    let mut pipeline = bench.pipeline();
    routed(&mut pipeline, &upstream, &shelves, (&[(Some(ZERO), false), (None, true)], Unmatched::Drop));
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(shelves[0].rows(), of(400, |n| n == 0));
    assert_eq!((shelves[1].rows(), upstream.kept()), (of(400, |n| n != 0), 0));
}

#[tokio::test(start_paused = true)]
async fn other_rows_become_dead_letters_or_stop_the_pipeline() {
    let bench = Bench::new();
    let upstream = numbered(&bench, 400);
    let shelves = ["a", "b"].map(|name| shelf(&bench, name));
    let mut pipeline = bench.tolerant();
    routed(&mut pipeline, &upstream, &shelves, (&[(Some(ZERO), false), (Some(ZERO), false)], Unmatched::DeadLetter));
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!((shelves[0].rows(), shelves[1].rows()), (of(400, |n| n == 0), of(400, |n| n == 0)));
    assert_eq!((bench.letters.rows().len(), upstream.kept()), (300, 0));

    let bench = Bench::new();
    let upstream = numbered(&bench, 400);
    let shelves = ["a"].map(|name| shelf(&bench, name));
    let mut pipeline = bench.tolerant();
    routed(&mut pipeline, &upstream, &shelves, (&[(Some(ZERO), false)], Unmatched::Fail));
    let ending = bench.run(&pipeline.plan()).await;
    let Ending::Faulted(fault) = ending else { panic!("{ending:?}") };
    assert_eq!((fault.code(), fault.node().map(|node| &**node)), (codes::UNMATCHED, Some(RouteNode::NODE)));
    assert_eq!(bench.letters.rows(), Vec::<u64>::new());
}

#[tokio::test(start_paused = true)]
async fn a_row_for_which_a_condition_fails_is_delivered_nowhere() {
    let bench = Bench::new();
    let make = |row: u64| {
        let mut record = record(row);
        record.payload.after = match row % 3 {
            0 => Data::text("no number"),
            n => object_with(n),
        };
        record
    };
    let upstream = Arc::new(Upstream::new(&bench.journal, 300, AtEnd::End).make(make));
    let shelves = ["a", "b", "c"].map(|name| shelf(&bench, name));
    let mut pipeline = bench.tolerant();
    let rules = [(None, false), (Some(LARGE), false), (None, true)];
    routed(&mut pipeline, &upstream, &shelves, (&rules, Unmatched::Drop));
    finished(&bench.run(&pipeline.plan()).await);
    let good: Vec<u64> = (0..300).filter(|row| row % 3 != 0).collect();
    assert_eq!(shelves[0].rows(), good);
    assert_eq!(shelves[1].rows(), (0..300).filter(|row| row % 3 == 2).collect::<Vec<_>>());
    assert_eq!(shelves[2].rows(), Vec::<u64>::new());
    assert_eq!(rows(&bench.letters.durable()).len(), 100);
    assert_eq!(upstream.kept(), 0);
}

/// An object with this number.
fn object_with(n: u64) -> Data {
    let n = i64::try_from(n).unwrap();
    let entries = [("n", anabranch_record::value::Value::from(n))];
    Data::from(entries.into_iter().collect::<anabranch_record::value::Object>())
}
