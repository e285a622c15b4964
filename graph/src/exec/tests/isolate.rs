//! Chains with a thread of their own.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anabranch_plugin::operator::{
    BuiltIsolate, Configured, ConfiguredOperator, Decision, Operator, OperatorContext, Rows, Signature,
};
use anabranch_plugin::testing::{inline, isolated, row_at};
use anabranch_record::fault::Fault;

use super::*;
use crate::plan::stage::StageKind;

#[tokio::test]
async fn isolates_run_on_their_own_threads_and_keep_the_order() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 5000);
    let a = shelf(&bench, "a");
    let threads: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let seen = threads.clone();
    let note = isolated(move |_| {
        seen.lock().unwrap().insert(format!("{:?}", thread::current().id()));
        Ok(Decision::Keep)
    });
    let split = inline(|record| match row_at(record.position()) % 10 {
        0 => Ok(Decision::Split(vec![record.clone(); 2])),
        1 => Ok(Decision::Filter),
        _ => Ok(Decision::Keep),
    });
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let steps = vec![Pipeline::step("note", &note), Pipeline::step("split", &split)];
    let isolate = pipeline.stage("js", &[read], StageKind::Isolate { steps, workers: 2 });
    pipeline.write(&[isolate], "a", &a);
    finished(&bench.start(&pipeline.plan()).join().await);
    let rows = a.rows();
    assert!(rows.is_sorted());
    assert_eq!(rows.len(), 5000);
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 2);
    assert!(!threads.contains(&format!("{:?}", thread::current().id())));
}

#[tokio::test]
async fn a_panic_fails_the_rest_of_the_strip_and_a_fresh_isolate_goes_on() {
    struct Fragile(Arc<Mutex<Vec<thread::ThreadId>>>);
    struct Built;
    impl ConfiguredOperator for Fragile {
        type Built = BuiltIsolate;
        fn signature(&self) -> Signature {
            Signature::new()
        }
        fn build(&self, _: &OperatorContext) -> Result<BuiltIsolate, Fault> {
            self.0.lock().unwrap().push(thread::current().id());
            Ok(Box::new(Built))
        }
    }
    impl Operator for Built {
        fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
            rows.for_each(|record| {
                assert!(![130, 400].contains(&row_at(record.position())), "boom");
                Ok(Decision::Keep)
            });
        }
    }
    let bench = Bench::new();
    let upstream = upstream(&bench, 1280);
    let a = shelf(&bench, "a");
    let built = Arc::default();
    let fragile = Configured::from(Fragile(Arc::clone(&built)));
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let steps = vec![Pipeline::step("js", &fragile)];
    let isolate = pipeline.stage("js", &[read], StageKind::Isolate { steps, workers: 1 });
    pipeline.write(&[isolate], "a", &a);
    finished(&bench.start(&pipeline.plan()).join().await);
    let failed: Vec<u64> = (130..256).chain(400..512).collect();
    assert_eq!(a.rows().len(), 1280 - failed.len());
    assert_eq!(bench.letters.rows(), failed);
    let threads = built.lock().unwrap();
    assert_eq!(threads.len(), 3);
    assert_eq!(threads.iter().collect::<std::collections::HashSet<_>>().len(), 3);
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test]
async fn an_isolate_that_cannot_open_fails_the_start() {
    struct Broken(AtomicBool);
    impl ConfiguredOperator for Broken {
        type Built = BuiltIsolate;
        fn signature(&self) -> Signature {
            Signature::new()
        }
        fn build(&self, _: &OperatorContext) -> Result<BuiltIsolate, Fault> {
            assert!(!self.0.load(Ordering::Relaxed), "boom");
            Err(Fault::fatal(anabranch_plugin::testing::codes::BAD_SCRIPT, "line 3: unexpected token"))
        }
    }
    for panics in [false, true] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 10);
        let a = shelf(&bench, "a");
        let broken = Configured::from(Broken(AtomicBool::new(panics)));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        let steps = vec![Pipeline::step("js", &broken)];
        let isolate = pipeline.stage("js", &[read], StageKind::Isolate { steps, workers: 1 });
        pipeline.write(&[isolate], "a", &a);
        let running = bench.start(&pipeline.plan());
        let fault = running.opened().await.unwrap_err();
        assert_eq!(fault.code().name(), if panics { "operator_panicked" } else { "bad_script" });
        assert!(matches!(running.join().await, Ending::Faulted(_)));
        assert_eq!(upstream.rows_read(), 0);
    }
}

#[tokio::test]
async fn an_operator_that_says_it_makes_one_record_of_one_may_not_make_two() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 10);
    let a = shelf(&bench, "a");
    let two = inline(|record| match row_at(record.position()) {
        3 => Ok(Decision::Split(vec![record.clone(); 2])),
        4 => Ok(Decision::Split(vec![record.clone()])),
        _ => Ok(Decision::Keep),
    });
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let step = crate::plan::stage::StepSpec { multiplies: false, ..Pipeline::step("two", &two) };
    let chain = pipeline.stage("two", &[read], StageKind::Chain(vec![step]));
    pipeline.write(&[chain], "a", &a);
    finished(&bench.start(&pipeline.plan()).join().await);
    assert_eq!((a.rows().len(), bench.letters.rows()), (9, vec![3]));
}
