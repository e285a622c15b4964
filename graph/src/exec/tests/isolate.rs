//! Chains with a thread of their own.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::fault::Fault;
use crate::operator::{BuiltOperator, Class, ConfiguredOperator, Decision, Host, Operator, Rows, Signature};
use crate::plan::stage::StageKind;
use crate::testing::{inline, isolated, row_at};

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
        fn signature(&self) -> Signature {
            Signature { class: Class::Isolate, ..Signature::inline() }
        }
        fn build(&self, _: usize, _: &Host) -> Result<BuiltOperator, Fault> {
            self.0.lock().unwrap().push(thread::current().id());
            Ok(BuiltOperator::Isolate(Box::new(Built)))
        }
    }
    impl Operator for Built {
        fn process(&mut self, rows: &mut Rows<'_>) {
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
    let fragile: Arc<dyn ConfiguredOperator> = Arc::new(Fragile(Arc::clone(&built)));
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
        fn signature(&self) -> Signature {
            Signature { class: Class::Isolate, ..Signature::inline() }
        }
        fn build(&self, _: usize, _: &Host) -> Result<BuiltOperator, Fault> {
            assert!(!self.0.load(Ordering::Relaxed), "boom");
            Err(Fault::fatal("bad_script", "line 3: unexpected token"))
        }
    }
    for panics in [false, true] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 10);
        let a = shelf(&bench, "a");
        let broken: Arc<dyn ConfiguredOperator> = Arc::new(Broken(AtomicBool::new(panics)));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        let steps = vec![Pipeline::step("js", &broken)];
        let isolate = pipeline.stage("js", &[read], StageKind::Isolate { steps, workers: 1 });
        pipeline.write(&[isolate], "a", &a);
        let running = bench.start(&pipeline.plan());
        let fault = running.opened().await.unwrap_err();
        assert_eq!(fault.code(), if panics { "operator_panicked" } else { "bad_script" });
        assert!(matches!(running.join().await, Ending::Faulted(_)));
        assert_eq!(upstream.rows_read(), 0);
    }
}

/// Hangs at some rows, until it is dropped from outside.
struct Hanging {
    at: &'static [u64],
    built: Arc<Mutex<Vec<thread::ThreadId>>>,
    patience: Duration,
}

impl ConfiguredOperator for Hanging {
    fn signature(&self) -> Signature {
        Signature { class: Class::Isolate, ..Signature::inline() }
    }
    fn patience(&self) -> Option<Duration> {
        Some(self.patience)
    }
    fn build(&self, _: usize, _: &Host) -> Result<BuiltOperator, Fault> {
        struct Built(&'static [u64]);
        impl Operator for Built {
            fn process(&mut self, rows: &mut Rows<'_>) {
                rows.for_each(|record| {
                    let row = row_at(record.position());
                    while self.0.contains(&row) {
                        thread::park();
                    }
                    assert_ne!(row, 1000, "boom");
                    match row % 10 {
                        3 => Ok(Decision::Split(vec![record.clone(); 2])),
                        4 => Ok(Decision::Filter),
                        5 => Err(Fault::record("odd", "five")),
                        _ => {
                            record.metadata.insert("seen", "yes");
                            Ok(Decision::Keep)
                        }
                    }
                });
            }
        }
        self.built.lock().unwrap().push(thread::current().id());
        Ok(BuiltOperator::Isolate(Box::new(Built(self.at))))
    }
}

/// What arrives, what fails, how the run ends, and on how many threads the operator was built.
async fn hang(at: &'static [u64], rows: u64) -> (Vec<u64>, Vec<u64>, Ending, usize) {
    let bench = Bench::new();
    let upstream = upstream(&bench, rows);
    let a = shelf(&bench, "a");
    let built = Arc::default();
    // Long enough that a busy machine is not taken for a row that hangs.
    let patience = if at.is_empty() { Duration::from_secs(60) } else { Duration::from_millis(400) };
    let hanging: Arc<dyn ConfiguredOperator> = Arc::new(Hanging { at, built: Arc::clone(&built), patience });
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let note = inline(|record| {
        assert!(row_at(record.position()) % 10 == 3 || record.metadata.get("seen").is_some());
        Ok(Decision::Keep)
    });
    let steps = vec![Pipeline::step("js", &hanging), Pipeline::step("note", &note)];
    let isolate = pipeline.stage("js", &[read], StageKind::Isolate { steps, workers: 1 });
    pipeline.write(&[isolate], "a", &a);
    let ending = bench.start(&pipeline.plan()).join().await;
    let threads: std::collections::HashSet<_> = built.lock().unwrap().iter().copied().collect();
    assert!(!threads.contains(&thread::current().id()));
    (a.rows(), bench.letters.rows(), ending, threads.len())
}

#[tokio::test]
async fn a_row_that_hangs_fails_alone_and_its_thread_is_left_behind() {
    let (arrived, failed, ending, threads) = hang(&[0, 130, 255, 256], 640).await;
    finished(&ending);
    let fails = |row: &u64| [0, 130, 255, 256].contains(row) || row % 10 == 5;
    assert_eq!(failed, (0..640).filter(fails).collect::<Vec<_>>());
    let arrives = |row: u64| match row % 10 {
        3 => 2,
        4 => 0,
        _ => usize::from(!fails(&row)),
    };
    assert_eq!(arrived, (0..640).flat_map(|row| vec![row; arrives(row)]).collect::<Vec<_>>());
    assert_eq!(threads, 5);
}

#[tokio::test]
async fn a_run_leaves_four_threads_behind_and_no_fifth() {
    let (_, failed, ending, _) = hang(&[1, 2, 3, 4, 6], 128).await;
    let Ending::Faulted(fault) = ending else { panic!("{ending:?}") };
    assert_eq!((fault.code(), fault.node().map(crate::text::Str::as_str)), ("isolate_stuck", Some("js")));
    assert!(!failed.contains(&6));
}

#[tokio::test]
async fn a_panic_on_a_confined_thread_fails_the_rest_of_the_strip() {
    let (arrived, failed, ending, threads) = hang(&[], 1280).await;
    finished(&ending);
    let rest: Vec<u64> = (1000..1024).collect();
    assert!(rest.iter().all(|row| failed.contains(row)) && !rest.iter().any(|row| arrived.contains(row)));
    assert!(arrived.contains(&999) && arrived.contains(&1026), "{arrived:?}");
    assert_eq!(threads, 2);
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
