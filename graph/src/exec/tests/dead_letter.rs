//! Failures: how many are too many, and what the letters say.

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Event, Reaction, inline, row_at};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::LaneId;
use anabranch_record::value::Value;

use super::*;

fn failing(bad: impl Fn(u64) -> bool + Send + 'static) -> anabranch_plugin::operator::Configured {
    inline(move |record| {
        if bad(row_at(record.position())) {
            return Err(Fault::record(anabranch_plugin::testing::codes::BAD_ROW, "the password is hunter22"));
        }
        record.metadata.insert("seen", "yes");
        Ok(Decision::Keep)
    })
}

#[tokio::test(start_paused = true)]
async fn by_default_the_first_failure_stops_the_pipeline_below_the_row() {
    let bench = Bench::new();
    let upstream =
        Arc::new(Upstream::new(&bench.journal, 100, AtEnd::End).per_read(10).delay(Duration::from_millis(100)));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[failing(|row| row == 57)]);
    pipeline.write(&[chain], "a", &a);
    let Ending::Faulted(fault) = bench.run(&pipeline.plan()).await else { panic!("it went on") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "bad_row"));
    assert_eq!(fault.node().unwrap(), &"step0");
    assert!(bench.letters.durable().is_empty());
    assert!(upstream.kept() >= 100 - 57);
    let lane = LaneId { connector: "in".into(), partition: Default::default() };
    assert!(bench.store.mark("p", &lane).unwrap().seq <= 57);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_its_source_fails_is_a_letter_in_its_place() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::End).per_read(1).failing(4));
    let a = shelf(&bench, "a");
    let letters = Arc::new(Downstream::new("letters", &bench.journal).accepting());
    let mut pipeline = crate::testing::Pipeline::new(&letters, 0, 0);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(a.rows(), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    let [letter] = &letters.durable()[..] else { panic!("{:?}", letters.durable()) };
    assert_eq!(anabranch_plugin::testing::rows(std::slice::from_ref(letter)), [4]);
    assert_eq!(upstream.kept(), 0);
    super::ordering::check_order(&bench.journal.events(), &["a"], 10);

    // By default, the first one stops the pipeline.
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::End).per_read(1).failing(4));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let Ending::Faulted(fault) = bench.run(&pipeline.plan()).await else { panic!("it went on") };
    assert_eq!((fault.code().name(), fault.node().unwrap().as_ref()), ("bad_row", "in"));
    assert!(upstream.kept() >= 6);
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_durable_before_its_row_is_acknowledged() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let a = shelf(&bench, "a");
    let letters = Arc::new(Downstream::new("letters", &bench.journal).accepting());
    let mut pipeline = crate::testing::Pipeline::new(&letters, 0, 0);
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[failing(|row| row % 10 == 3)]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(a.rows().len(), 90);
    assert_eq!(anabranch_plugin::testing::rows(&letters.durable()), (0..10).map(|i| i * 10 + 3).collect::<Vec<_>>());
    let events = bench.journal.events();
    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let durable = at(&|event| matches!(event, Event::Durable { shelf, row: 3 } if shelf == "letters"));
    let acked = at(&|event| matches!(event, Event::Acked(_, 3)));
    assert!(durable < acked);
    super::ordering::check_order(&events, &["a"], 100);
}

#[tokio::test(start_paused = true)]
async fn a_letter_holds_the_record_as_it_entered_the_step() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 2);
    let a = shelf(&bench, "a");
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[failing(|_| false), failing(|row| row == 1)]);
    pipeline.write(&[chain], "a", &a);
    let options = RunOptions { mask: Arc::new(["hunter22".into()]), ..RunOptions::default() };
    finished(&in_time(start(pipeline.plan(), services(&bench.store), options).join()).await);
    let letters = bench.letters.durable();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    let metadata = |key: &str| letter.metadata.get(key).unwrap().to_string();
    assert_eq!(metadata("svc.dlq.nack.error"), "the password is ***");
    assert_eq!(metadata("svc.dlq.nack.code"), "bad_row");
    assert_eq!(metadata("svc.dlq.nack.node.id"), "step1");
    assert_eq!(metadata("svc.source.connector.id"), "p:in");
    assert!(metadata("recfmt.createdAt").len() >= 19);
    let fields = letter.payload.after.fields().unwrap();
    assert_eq!(fields.get("operation"), Some(&Value::from("create")));
    assert_eq!(fields.get("position"), Some(&Value::Bytes((*b"1").into())));
    assert_eq!(fields.get("metadata").unwrap().as_map().unwrap().get("seen"), Some(&Value::from("yes")));
    let payload = fields.get("payload").unwrap().as_map().unwrap();
    assert_eq!(
        (payload.get("before"), payload.get("after")),
        (Some(&Value::Null), Some(&Value::Bytes((*b"1").into())))
    );
    assert_eq!(letter.key, anabranch_record::Data::text("p:in//1/1///step1"));
}

#[tokio::test(start_paused = true)]
async fn too_many_failures_in_the_window_stop_the_pipeline() {
    for (bad, stops) in [(5u64, true), (50, false)] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 1000);
        let a = shelf(&bench, "a");
        let mut pipeline = crate::testing::Pipeline::new(&bench.letters, 100, 5);
        let read = pipeline.read("in", &upstream);
        let chain = pipeline.chain(&[read], &[failing(move |row| row % bad == 0)]);
        pipeline.write(&[chain], "a", &a);
        match bench.run(&pipeline.plan()).await {
            Ending::Faulted(fault) if stops => {
                assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "dead_letter_threshold"));
                assert!(fault.message().contains("more than 5 of the latest 100"), "{fault}");
            }
            ending => {
                assert!(!stops, "{ending:?}");
                finished(&ending);
                assert_eq!(bench.letters.rows().len(), 20);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_destinations_fails_rows() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 300);
    let (a, b) = (shelf(&bench, "a"), Arc::new(Downstream::new("b", &bench.journal).rejecting(|row| row % 3 == 0)));
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    pipeline.write(&[read], "b", &b);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&in_time(running.join()).await);
    assert_eq!((a.rows().len(), b.rows().len(), bench.letters.rows().len()), (300, 200, 100));
    let totals = progress.totals();
    assert_eq!((totals.read, totals.born, totals.delivered, totals.dead_lettered), (300, 300, 500, 100));
    assert!(bench.letters.durable().iter().all(|l| l.metadata.get("svc.dlq.nack.node.id").unwrap() == "b"));
    super::ordering::check_order(&bench.journal.events(), &["a", "b"], 300);
}

#[tokio::test(start_paused = true)]
async fn a_failing_letter_is_fatal_and_its_row_is_kept() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 10);
    let a = shelf(&bench, "a");
    let letters = Arc::new(
        Downstream::new("letters", &bench.journal)
            .script(|_, _| Reaction::Fail(Fault::record(anabranch_plugin::testing::codes::FULL, "the queue is full"))),
    );
    let mut pipeline = crate::testing::Pipeline::new(&letters, 0, 0);
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[failing(|row| row == 4)]);
    pipeline.write(&[chain], "a", &a);
    let Ending::Faulted(fault) = bench.run(&pipeline.plan()).await else { panic!("it went on") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "dead_letter_failed"));
    assert_eq!(fault.node().unwrap(), &"p-dlq");
    assert!(upstream.kept() >= 6);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_letter_has_the_same_key() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 50, AtEnd::Wait));
    let hung = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Hang));
    let split = inline(|record| Ok(Decision::Split(vec![record.clone(), record.clone()])));
    let plan = |shelf: &Arc<Downstream>| {
        let mut pipeline = bench.tolerant();
        let read = pipeline.read("in", &upstream);
        let chain = pipeline.chain(&[read], &[split.clone(), failing(|row| row == 20)]);
        pipeline.write(&[chain], "a", shelf);
        pipeline.plan()
    };
    for _ in 0..2 {
        let running = bench.start(&plan(&hung));
        tokio::time::sleep(Duration::from_secs(1)).await;
        running.kill();
        running.join().await;
    }
    let keys: Vec<_> = bench.letters.durable().into_iter().map(|letter| letter.key).collect();
    assert_eq!(keys.len(), 4);
    assert_eq!(keys[..2], keys[2..]);
    assert_ne!(keys[0], keys[1]);
}
