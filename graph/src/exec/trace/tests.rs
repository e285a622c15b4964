use std::time::Duration;

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Downstream, Upstream, asynchronous, inline, isolated, kept, record, row_at};
use anabranch_plugin::trace::{EarlierTraces, Share, SpanSink};
use anabranch_record::fault::Fault;
use anabranch_template::condition::CompiledCondition;

use super::*;
use crate::exec::tests::{Bench, finished, in_time, shelf, upstream};
use crate::exec::{Ending, RunOptions, Running, start};
use crate::plan::stage::{StageKind, StagePlan, StepCondition};
use crate::testing::{Pipeline, services};

#[derive(Default)]
struct Gathered(Mutex<Vec<Span>>);

impl SpanSink for Gathered {
    fn take(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

impl Gathered {
    /// The traces by the number of their row: the root, and the spans below it.
    fn traces(&self) -> Vec<(Span, Vec<Span>)> {
        let spans = self.0.lock().unwrap().clone();
        let (roots, others): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| span.kind == SpanKind::Record);
        let below = |root: &Span| {
            let spans: Vec<Span> = others.iter().filter(|s| s.parent == Some(root.context.span)).cloned().collect();
            assert!(spans.iter().all(|span| span.context.trace == root.context.trace && !span.parent_is_remote));
            assert!(spans.iter().all(|span| span.start <= span.end));
            spans
        };
        let mut traces: Vec<_> = roots.into_iter().map(|root| (below(&root), root)).map(|(b, r)| (r, b)).collect();
        traces.sort_by_key(|(root, _)| number(root, attribute::ROW));
        assert_eq!(traces.iter().map(|(_, below)| below.len()).sum::<usize>(), others.len(), "every span has its root");
        traces
    }
}

fn value<'a>(span: &'a Span, name: &str) -> Option<&'a Attribute> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn number(span: &Span, name: &str) -> Option<i64> {
    match value(span, name) {
        Some(Attribute::Number(number)) => Some(*number),
        _ => None,
    }
}

fn word<'a>(span: &'a Span, name: &str) -> &'a str {
    match value(span, name) {
        Some(Attribute::Text(text)) => text,
        Some(Attribute::Bool(true)) => "yes",
        Some(Attribute::Bool(false)) => "no",
        _ => "",
    }
}

/// Node and outcome of each span, in order of their names.
fn told(spans: &[Span]) -> Vec<String> {
    let mut told: Vec<_> = spans.iter().map(|s| format!("{} {}", s.name, word(s, attribute::OUTCOME))).collect();
    told.sort();
    told
}

fn options(sink: &Arc<Gathered>, share: Share) -> RunOptions {
    let traces = Tracing { sink: sink.clone(), share, past: None };
    RunOptions { traces: Some(traces), mask: Arc::new(["hunter22".into()]), ..RunOptions::default() }
}

impl Bench {
    fn traced(&self, plan: &Arc<StagePlan>, sink: &Arc<Gathered>) -> Running {
        start(plan.clone(), services(&self.store), options(sink, Share::ALL))
    }
}

fn mixed(record: &mut Record) -> Result<Decision, Fault> {
    match row_at(record.position()) % 4 {
        1 => Ok(Decision::Filter),
        2 => Err(Fault::record(anabranch_plugin::testing::codes::BAD_ROW, "the password is hunter22")),
        3 => Ok(Decision::Split(vec![record.clone(), record.clone()])),
        _ => Ok(Decision::Keep),
    }
}

/// Rows 0 to 7 through one step of each class in turn.
async fn through(kind: impl FnOnce() -> StageKind) {
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 8), shelf(&bench, "a"));
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let stage = pipeline.stage("stage", &[read], kind());
    pipeline.write(&[stage], "a", &a);
    let sink = Arc::new(Gathered::default());
    finished(&in_time(bench.traced(&pipeline.plan(), &sink).join()).await);
    let traces = sink.traces();
    assert_eq!(traces.len(), 8);
    for (row, (root, spans)) in traces.iter().enumerate() {
        let expected: &[&str] = match row % 4 {
            0 => &["a durable", "step kept"],
            1 => &["step filtered"],
            2 => &["dead-letter-queue ", "step failed"],
            _ => &["a durable", "a durable", "step split"],
        };
        assert_eq!(told(spans), expected, "row {row}");
        assert_eq!((root.name.as_str(), root.parent, root.link), ("p", None, None));
        assert_eq!(number(root, attribute::ROW), Some(row as i64));
        assert_eq!((word(root, attribute::PIPELINE), word(root, attribute::CONNECTOR)), ("p", "in"));
        assert!(spans.iter().all(|span| root.start <= span.start && span.end <= root.end), "row {row}");
        assert_eq!(word(root, attribute::ACKNOWLEDGED), "yes");
        let error = (row % 4 == 2).then(|| SpanError { code: "bad_row".into(), message: "the password is ***".into() });
        assert_eq!(root.error, error);
        let failed: Vec<_> = spans.iter().filter_map(|span| span.error.clone()).collect();
        assert_eq!(failed, Vec::from_iter(error));
    }
    let pieces = traces[3].1.iter().find_map(|span| number(span, attribute::PIECES));
    assert_eq!(pieces, Some(2));
    assert!(word(&traces[2].1[1], attribute::LETTER).starts_with("p:in//1/2/"), "{:?}", traces[2].1);
}

#[tokio::test(start_paused = true)]
async fn a_fused_step_has_its_spans() {
    through(|| StageKind::Chain(vec![Pipeline::step("step", &inline(mixed))])).await;
}

#[tokio::test(start_paused = true)]
async fn so_has_a_step_with_workers() {
    through(|| StageKind::Parallel { steps: vec![Pipeline::step("step", &inline(mixed))], workers: 3 }).await;
}

#[tokio::test]
async fn so_has_a_step_with_a_thread() {
    through(|| StageKind::Isolate { steps: vec![Pipeline::step("step", &isolated(mixed))], workers: 2 }).await;
}

#[tokio::test(start_paused = true)]
async fn so_has_a_step_that_waits() {
    let operator = asynchronous(|records| {
        Box::pin(async move { records.iter_mut().map(|record| mixed(record).unwrap_or_else(Decision::Fail)).collect() })
    });
    through(|| StageKind::Async { step: Pipeline::step("step", &operator), in_flight: 4 }).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_as_long_as_it_took() {
    let operator = asynchronous(|records| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(7)).await;
            kept(records)
        })
    });
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 1), shelf(&bench, "a"));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let kind = StageKind::Async { step: Pipeline::step("step", &operator), in_flight: 1 };
    let stage = pipeline.stage("stage", &[read], kind);
    pipeline.write(&[stage], "a", &a);
    let sink = Arc::new(Gathered::default());
    finished(&in_time(bench.traced(&pipeline.plan(), &sink).join()).await);
    let spans = sink.0.lock().unwrap();
    let request = spans.iter().find(|span| span.kind == SpanKind::Request).unwrap();
    let took = request.end.duration_since(request.start).unwrap();
    assert!(took.abs_diff(Duration::from_secs(7)) < Duration::from_millis(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_side_of_a_condition_is_told() {
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 4), shelf(&bench, "a"));
    let keep = || inline(|_| Ok(Decision::Keep));
    let condition = CompiledCondition::compile(r#"{{ eq (printf "%s" .Position) "1" }}"#).unwrap();
    let mut first = Pipeline::step("if", &keep());
    first.condition = StepCondition::If(Arc::new(condition));
    let mut second = Pipeline::step("as", &keep());
    second.condition = StepCondition::AsBefore;
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let kind = StageKind::Chain(vec![first, second, Pipeline::step("all", &keep())]);
    let stage = pipeline.stage("chain", &[read], kind);
    pipeline.write(&[stage], "a", &a);
    let sink = Arc::new(Gathered::default());
    finished(&in_time(bench.traced(&pipeline.plan(), &sink).join()).await);
    for (row, (root, spans)) in sink.traces().iter().enumerate() {
        let side = |node: &str| {
            let span = spans.iter().find(|span| span.name == node).unwrap();
            (word(span, attribute::CONDITION).to_owned(), word(span, attribute::OUTCOME).to_owned())
        };
        let taken = word(root, attribute::POSITION) == "1";
        let expected = if taken { ("yes".to_owned(), "kept".to_owned()) } else { ("no".into(), "passed_by".into()) };
        assert_eq!([side("if"), side("as")], [expected.clone(), expected], "row {row}");
        assert_eq!(side("all"), (String::new(), "kept".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_trace_that_a_record_brings_goes_on_where_it_is_recorded() {
    let parent = |flags| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
    let make = move |row| {
        let mut made = record(row);
        let said = [Some(parent("01")), Some(parent("00")), None][row as usize % 3].clone();
        if let Some(said) = said {
            made.metadata.insert(TRACE_PARENT, said);
        }
        made
    };
    for (share, rows) in [(Share::NONE, &[0, 3][..]), (Share::ALL, &[0, 2, 3, 5])] {
        let bench = Bench::new();
        let upstream = Arc::new(Upstream::new(&bench.journal, 6, AtEnd::End).make(make));
        let a = shelf(&bench, "a");
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &a);
        let sink = Arc::new(Gathered::default());
        let running = start(pipeline.plan(), services(&bench.store), options(&sink, share));
        finished(&in_time(running.join()).await);
        let traces = sink.traces();
        assert_eq!(traces.iter().map(|(root, _)| number(root, attribute::ROW).unwrap()).collect::<Vec<_>>(), rows);
        for (root, spans) in traces {
            let theirs = number(&root, attribute::ROW).unwrap() % 3 == 0;
            let trace = root.context.trace.to_string();
            assert_eq!((trace == "4bf92f3577b34da6a3ce929d0e0e4736", root.parent_is_remote), (theirs, theirs));
            assert_eq!(root.parent.map(|span| span.to_string()), theirs.then(|| "00f067aa0ba902b7".to_owned()));
            assert_eq!(told(&spans), ["a durable"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_row_of_the_share_has_a_whole_trace() {
    let bench = Bench::new();
    let (upstream, a, b) = (upstream(&bench, 5_000), shelf(&bench, "a"), shelf(&bench, "b"));
    let split = inline(|record| {
        let pieces = row_at(record.position()) % 3 + 1;
        Ok(Decision::Split((0..pieces).map(|_| record.clone()).collect()))
    });
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[split, inline(|_| Ok(Decision::Keep))]);
    pipeline.write(&[chain], "a", &a);
    pipeline.write(&[chain], "b", &b);
    let sink = Arc::new(Gathered::default());
    let share = Share::new(0.1).unwrap();
    let running = start(pipeline.plan(), services(&bench.store), options(&sink, share));
    finished(&in_time(running.join()).await);
    let traces = sink.traces();
    let salt = salt(&LaneId { connector: "in".into(), partition: Default::default() });
    let chosen: Vec<i64> = (0..5_000u64).filter(|row| share.takes(salt, *row)).map(|row| row as i64).collect();
    assert!((400..600).contains(&chosen.len()));
    assert_eq!(traces.iter().map(|(root, _)| number(root, attribute::ROW).unwrap()).collect::<Vec<_>>(), chosen);
    for (root, spans) in traces {
        let pieces = number(&root, attribute::ROW).unwrap() as usize % 3 + 1;
        let count = |node: &str| spans.iter().filter(|span| span.name == node).count();
        assert_eq!(["step0", "step1", "a", "b"].map(count), [1, pieces, pieces, pieces]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_split_in_thousands_is_told_in_part() {
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 1), shelf(&bench, "a"));
    let split = inline(|record| Ok(Decision::Split((0..3000).map(|_| record.clone()).collect())));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[split]);
    pipeline.write(&[chain], "a", &a);
    let sink = Arc::new(Gathered::default());
    finished(&in_time(bench.traced(&pipeline.plan(), &sink).join()).await);
    let traces = sink.traces();
    assert_eq!(traces[0].1.len(), 1000);
    assert_eq!(number(&traces[0].0, attribute::SPANS_LEFT_OUT), Some(2001));
}

#[tokio::test(start_paused = true)]
async fn what_a_run_did_not_deliver_is_told_as_that() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 3);
    let a = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| {
        anabranch_plugin::testing::Reaction::Fail(Fault::fatal(
            anabranch_plugin::testing::codes::NO_TABLE,
            "no table for hunter22",
        ))
    }));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let sink = Arc::new(Gathered::default());
    let ending = in_time(bench.traced(&pipeline.plan(), &sink).join()).await;
    assert!(matches!(ending, Ending::Faulted(_)), "{ending:?}");
    let traces = sink.traces();
    assert_eq!(traces.len(), 3);
    for (root, spans) in traces {
        assert_eq!(word(&root, attribute::ACKNOWLEDGED), "no");
        let error = root.error.unwrap();
        assert_eq!((error.code.as_str(), spans.len()), ("not_acknowledged", 0));
        assert_eq!(error.message, "the run failed: no table for ***");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_transaction_are_told() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 6);
    let refuse = |records: &[Record], _| match records.iter().position(|record| row_at(record.position()) == 4) {
        Some(row) => anabranch_plugin::testing::Reaction::Refuse(vec![(
            row,
            Fault::record(anabranch_plugin::testing::codes::BAD_ROW, "bad"),
        )]),
        None => anabranch_plugin::testing::Reaction::Durable,
    };
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional().script(refuse));
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let sink = Arc::new(Gathered::default());
    finished(&in_time(bench.traced(&pipeline.plan(), &sink).join()).await);
    for (row, (_, spans)) in sink.traces().iter().enumerate() {
        let expected: &[&str] = if row == 4 { &["a failed", "dead-letter-queue "] } else { &["a durable"] };
        assert_eq!(told(spans), expected, "row {row}");
    }
}

struct Before(SpanContext);

impl EarlierTraces for Before {
    fn failed_in(&self, row: u64) -> Option<SpanContext> {
        (row == 1).then_some(self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_refers_to_where_it_failed() {
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 3), shelf(&bench, "a"));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let sink = Arc::new(Gathered::default());
    let ids = Ids::random();
    let before = SpanContext { trace: ids.trace(), span: ids.span() };
    let traces = Tracing { sink: sink.clone(), share: Share::NONE, past: Some(Arc::new(Before(before))) };
    let options = RunOptions { traces: Some(traces), ..RunOptions::default() };
    finished(&in_time(start(pipeline.plan(), services(&bench.store), options).join()).await);
    let traces = sink.traces();
    assert_eq!(traces.len(), 1);
    let root = &traces[0].0;
    assert_eq!((root.link, word(root, attribute::REPLAY)), (Some(before), "yes"));
    assert_ne!(root.context.trace, before.trace);
}

#[test]
fn segments_are_found_when_their_numbers_wrap() {
    let strip = |segment| Strip { segment, base: 0, rows: VecDeque::new() };
    let segments = [u32::MAX - 4, u32::MAX - 1, 0, 3];
    let id = LaneId { connector: "in".into(), partition: Default::default() };
    let mut lane = LaneTraces { id, salt: 0, strips: segments.into_iter().map(strip).collect() };
    for segment in segments {
        assert_eq!(lane.strip(segment).map(|strip| strip.segment), Some(segment));
        assert!(lane.strip(segment.wrapping_add(1)).is_none());
    }
}

#[test]
fn positions_are_shown_as_text_where_they_are_one() {
    let shown = |bytes: &[u8]| shown(&Position::copy_from(bytes)).to_string();
    assert_eq!(shown(b"file:17"), "file:17");
    assert_eq!(shown(b"\x00\xff"), "00ff");
    assert_eq!(shown("é".repeat(200).as_bytes()), "é".repeat(128) + "…");
    assert_eq!(shown(format!("a{}", "é".repeat(200)).as_bytes()), format!("a{}…", "é".repeat(127)));
}
