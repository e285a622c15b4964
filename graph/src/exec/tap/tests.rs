use std::time::Duration;

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Upstream, asynchronous, inline, isolated, record, row_at, rows};
use anabranch_record::Data;
use anabranch_record::fault::Fault;
use anabranch_template::condition::CompiledCondition;

use super::*;
use crate::exec::tests::{Bench, finished, in_time, shelf, upstream};
use crate::exec::{RunOptions, Running, start};
use crate::plan::stage::{DeadLetterSpec, StepCondition};
use crate::testing::services;

fn look(places: Vec<TapPoint>) -> InspectionParameters {
    InspectionParameters { places, condition: None, per_second: 10_000 }
}

fn place(role: NodeRole, node: &str, side: Side) -> TapPoint {
    TapPoint { role, node: node.into(), side }
}

fn step(node: &str, side: Side) -> Vec<TapPoint> {
    vec![place(NodeRole::Processor, node, side)]
}

impl Bench {
    fn start_tapped(&self, plan: &Arc<StagePlan>, taps: &Arc<Taps>) -> Running {
        start(plan.clone(), services(&self.store), RunOptions { taps: taps.clone(), ..RunOptions::default() })
    }
}

/// Returns the records that an inspection has so far.
fn seen(inspection: &mut Inspection) -> Vec<TappedRecord> {
    std::iter::from_fn(|| inspection.try_next()).collect()
}

fn rows_seen(inspection: &mut Inspection) -> Vec<u64> {
    seen(inspection).iter().map(|tapped| row_at(tapped.record.position())).collect()
}

fn marked(mark: &'static str) -> impl FnMut(&mut Record) -> Result<Decision, Fault> + Send + 'static {
    move |record| {
        record.metadata.insert(mark, "yes");
        Ok(match row_at(record.position()) % 4 {
            1 => Decision::Filter,
            2 => return Err(Fault::record(anabranch_plugin::testing::codes::BAD, "bad")),
            3 => Decision::Split(vec![record.clone(), record.clone()]),
            _ => Decision::Keep,
        })
    }
}

/// Rows 0 to 7 through one step of each class in turn: what is seen before and behind it, and of the dead letters.
async fn around(kind: impl FnOnce() -> StageKind) {
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 8), shelf(&bench, "a"));
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let stage = pipeline.stage("stage", &[read], kind());
    pipeline.write(&[stage], "a", &a);
    let plan = pipeline.plan();
    let places = places(&plan);
    let at: Vec<_> = places.iter().map(|place| (place.node.as_str(), place.side)).collect();
    use Side::{After, Before};
    assert_eq!(at, [("in", After), ("step", Before), ("step", After), ("a", Before), ("dead-letter-queue", Before)]);

    let taps = Arc::new(Taps::default());
    let mut inspections: Vec<_> = places.iter().map(|place| taps.inspect(look(vec![place.clone()]))).collect();
    let mut all = taps.inspect(look(places));
    finished(&in_time(bench.start_tapped(&plan, &taps).join()).await);
    let all_rows: Vec<u64> = (0..8).collect();
    let left = [0, 3, 3, 4, 7, 7];
    assert_eq!(rows_seen(&mut inspections[0]), all_rows);
    let before = seen(&mut inspections[1]);
    assert_eq!(before.iter().map(|seen| row_at(seen.record.position())).collect::<Vec<_>>(), all_rows);
    // The inspection does not show later changes of the step.
    assert!(before.iter().all(|seen| seen.record.metadata.get("mark").is_none()));
    let after = seen(&mut inspections[2]);
    assert_eq!(after.iter().map(|seen| row_at(seen.record.position())).collect::<Vec<_>>(), left);
    assert!(after.iter().all(|seen| seen.record.metadata.get("mark").is_some()));
    assert_eq!(rows_seen(&mut inspections[3]), left);
    assert_eq!(rows_seen(&mut inspections[4]), [2, 6]);
    assert_eq!(rows(&a.durable()), left);
    let counts = seen(&mut all).iter().fold([0; 5], |mut counts, tapped| {
        counts[tapped.place] += 1;
        counts
    });
    assert_eq!(counts, [8, 8, 6, 6, 2]);
    assert!(inspections.iter().all(|inspection| inspection.take_left_out() == 0));
    assert_eq!(taps.inspections(), 6);
    drop((inspections, all));
    assert_eq!(taps.inspections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fused_step_is_seen_from_both_sides() {
    around(|| StageKind::Chain(vec![crate::testing::Pipeline::step("step", &inline(marked("mark")))])).await;
}

#[tokio::test(start_paused = true)]
async fn so_is_a_step_with_workers() {
    let steps = || vec![crate::testing::Pipeline::step("step", &inline(marked("mark")))];
    around(|| StageKind::Parallel { steps: steps(), workers: 3 }).await;
}

#[tokio::test]
async fn so_is_a_step_with_a_thread() {
    let steps = || vec![crate::testing::Pipeline::step("step", &isolated(marked("mark")))];
    around(|| StageKind::Isolate { steps: steps(), workers: 2 }).await;
}

#[tokio::test(start_paused = true)]
async fn so_is_a_step_that_waits() {
    let operator = asynchronous(|records| {
        Box::pin(async move {
            let mut step = marked("mark");
            records.iter_mut().map(|record| step(record).unwrap_or_else(Decision::Fail)).collect()
        })
    });
    around(|| StageKind::Async { step: crate::testing::Pipeline::step("step", &operator), in_flight: 4 }).await;
}

#[tokio::test(start_paused = true)]
async fn an_inspection_is_there_before_the_run_and_after_it() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 3, AtEnd::CaughtUp));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[inline(|_| Ok(Decision::Keep))]);
    pipeline.write(&[chain], "a", &a);
    let plan = pipeline.plan();
    let taps = Arc::new(Taps::default());
    let mut inspection = taps.inspect(look(step("step0", Side::After)));
    let once = RunOptions { once: true, taps: taps.clone(), ..RunOptions::default() };
    finished(&in_time(start(plan.clone(), services(&bench.store), once.clone()).join()).await);
    assert_eq!(rows_seen(&mut inspection), [0, 1, 2]);
    upstream.add(3..5);
    finished(&in_time(start(plan.clone(), services(&bench.store), once.clone()).join()).await);
    assert_eq!(rows_seen(&mut inspection), [3, 4]);

    drop(inspection);
    // Nobody has the tap any more: the next node that is asked for takes its place.
    let late = taps.inspect(look(step("other", Side::After)));
    assert_eq!(taps.taps.lock().unwrap().len(), 1);
    drop(late);
    assert!(taps.at(NodeRole::Processor, &"other".into()).watchers().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_step_with_a_condition_is_seen_with_the_rows_that_pass_it_by() {
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 4), shelf(&bench, "a"));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let condition = CompiledCondition::compile(r#"{{ eq (printf "%s" .Payload.After) "2" }}"#).unwrap();
    let mut first = crate::testing::Pipeline::step("step", &inline(|_| Ok(Decision::Filter)));
    first.condition = StepCondition::If(Arc::new(condition));
    let chain = pipeline.stage("chain", &[read], StageKind::Chain(vec![first]));
    pipeline.write(&[chain], "a", &a);
    let taps = Arc::new(Taps::default());
    let mut before = taps.inspect(look(step("step", Side::Before)));
    let mut after = taps.inspect(look(step("step", Side::After)));
    finished(&in_time(bench.start_tapped(&pipeline.plan(), &taps).join()).await);
    assert_eq!(rows_seen(&mut before), [0, 1, 2, 3]);
    assert_eq!(rows_seen(&mut after), [0, 1, 3]);
}

fn numbered(n: usize) -> Vec<Record> {
    (0..n as u64).map(record).collect()
}

fn source(condition: Option<&str>, per_second: u32) -> (Arc<Tap>, Inspection) {
    let taps = Taps::default();
    let places = vec![place(NodeRole::Source, "in", Side::After)];
    let condition = condition.map(|text| Arc::new(CompiledCondition::compile(text).unwrap()));
    let inspection = taps.inspect(InspectionParameters { places, condition, per_second });
    (taps.at(NodeRole::Source, &"in".into()), inspection)
}

#[tokio::test(start_paused = true)]
async fn no_more_are_shown_in_a_second_than_wanted_and_the_others_are_counted() {
    let (tap, mut inspection) = source(None, 10);
    let show = || tap.watchers().unwrap().show(Side::After, &numbered(100));
    show();
    assert_eq!(rows_seen(&mut inspection), (0..10).collect::<Vec<_>>());
    assert_eq!(inspection.take_left_out(), 90);
    tokio::time::advance(Duration::from_millis(300)).await;
    show();
    assert_eq!(rows_seen(&mut inspection).len(), 3);
    assert_eq!(inspection.take_left_out(), 97);
    tokio::time::advance(Duration::from_secs(3600)).await;
    show();
    assert_eq!(rows_seen(&mut inspection).len(), 10);
    tap.watchers().unwrap().show(Side::Before, &numbered(1));
    assert_eq!(inspection.take_left_out(), 90, "the other side is not watched");
}

#[tokio::test(start_paused = true)]
async fn the_condition_chooses_before_the_pace_does() {
    let (tap, mut inspection) = source(Some(r#"{{ eq .Metadata.rare "yes" }}"#), 10);
    let mut records = numbered(1000);
    for row in (0..1000).step_by(300) {
        records[row].metadata.insert("rare", "yes");
    }
    tap.watchers().unwrap().show(Side::After, &records);
    assert_eq!(rows_seen(&mut inspection), [0, 300, 600, 900]);
    assert_eq!(inspection.take_left_out(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_condition_fails_on_is_told() {
    let (tap, mut inspection) = source(Some("{{ .Payload.After.nothing.there }}"), 10);
    assert!(inspection.take_unjudged().is_none());
    tap.watchers().unwrap().show(Side::After, &numbered(3));
    assert_eq!(rows_seen(&mut inspection), Vec::<u64>::new());
    let Unjudged { rows, fault } = inspection.take_unjudged().unwrap();
    assert_eq!(rows, 3, "{fault:?}");
    assert!(inspection.take_unjudged().is_none());
    assert_eq!(inspection.take_left_out(), 0);
}

/// The threads of the pipeline evaluate it: one verdict must not keep them.
#[tokio::test(start_paused = true)]
async fn a_condition_that_would_never_end_is_given_up() {
    let next = r#"{{template "f" (print . "x")}}"#;
    let condition = format!(
        r#"{{{{define "f"}}}}{{{{if lt (len .) 40}}}}{next}{next}{{{{end}}}}{{{{end}}}}{{{{template "f" ""}}}}true"#
    );
    let (tap, mut inspection) = source(Some(&condition), 10);
    tap.watchers().unwrap().show(Side::After, &numbered(3));
    assert_eq!(rows_seen(&mut inspection), Vec::<u64>::new());
    let Unjudged { rows, fault } = inspection.take_unjudged().unwrap();
    assert_eq!((rows, fault.code().name()), (3, "condition_too_costly"));
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_fetch_holds_a_bounded_number_of_records_and_bytes() {
    let (tap, mut inspection) = source(None, 1_000_000);
    tap.watchers().unwrap().show(Side::After, &numbered(5000));
    assert_eq!(inspection.take_left_out(), 4000);
    assert_eq!(seen(&mut inspection).len(), 1000);

    // A record of any size is shown, one at a time.
    let large = || {
        let mut record = record(1);
        record.payload.after = Data::Raw(vec![b'x'; 10 << 20].into());
        record
    };
    let show = |record| tap.watchers().unwrap().show(Side::After, &[record]);
    (0..5).for_each(|_| show(large()));
    assert_eq!(inspection.take_left_out(), 4);
    show(record(2));
    assert_eq!(inspection.take_left_out(), 1);
    let shown = seen(&mut inspection);
    let [TappedRecord { record, .. }] = &shown[..] else { panic!("{}", shown.len()) };
    assert!(matches!(&record.payload.after, Data::Raw(bytes) if bytes.len() == 10 << 20));
    show(large());
    assert_eq!(seen(&mut inspection).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_look_takes_is_paid_for_by_not_looking() {
    let (tap, mut inspection) = source(None, 1_000_000);
    // Each of these is charged 20 ms and more: a look may take 20 ms in a second.
    let mut large = record(1);
    large.payload.after = Data::Raw(vec![b'x'; 20 << 20].into());
    let mut shown = 0;
    for _ in 0..100 {
        tap.watchers().unwrap().show(Side::After, std::slice::from_ref(&large));
        shown += seen(&mut inspection).len();
        tokio::time::advance(Duration::from_millis(99)).await;
    }
    assert!((8..=12).contains(&shown), "{shown} in ten seconds");
    assert_eq!(inspection.take_left_out(), 100 - shown as u64);
}

#[tokio::test(start_paused = true)]
async fn a_small_slice_does_not_keep_its_buffer() {
    let (tap, mut inspection) = source(None, 10);
    let buffer = bytes::Bytes::from(vec![b'x'; 1 << 20]);
    let mut small = record(1);
    small.payload.after = Data::Raw(buffer.slice(0..10));
    tap.watchers().unwrap().show(Side::After, &[small]);
    assert!(buffer.is_unique());
    assert_eq!(seen(&mut inspection).len(), 1);
}

#[test]
fn the_dead_letter_queue_has_the_id_that_plans_show() {
    let bench = Bench::new();
    let places = places(&bench.pipeline().plan());
    assert_eq!(places, [place(NodeRole::DeadLetters, DeadLetterSpec::NODE, Side::Before)]);
}
