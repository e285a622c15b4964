//! A registry that does not answer.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anabranch_plugin::operator::{Class, Configured, Decision, OperatorContext};
use anabranch_plugin::schema::{Definition, MemoryRegistry, SchemaKind};
use anabranch_record::Record;
use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::*;
use crate::around::tests::{Adding, ID, named};
use crate::source::tests::reader_of;
use crate::testing::{configured, fields, host};

/// Answers requests for subject `s` at once, and for other subjects after [`Hangs::release`].
struct Hangs {
    others: MemoryRegistry,
    sender: Sender<Str>,
    answers: Semaphore,
}

#[async_trait]
impl SchemaRegistry for Hangs {
    async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        self.wait(subject).await;
        self.others.create(subject, kind, text).await
    }
    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        self.wait(subject).await;
        self.others.get(subject, version).await
    }
    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        self.others.by_id(id).await
    }
    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        self.others.versions(subject).await
    }
}

impl Hangs {
    fn new() -> (Arc<Hangs>, mpsc::Receiver<Str>) {
        let (sender, requests) = mpsc::channel();
        let others = MemoryRegistry::new();
        let create = |subject: &str| {
            crate::testing::block_on(others.create(&subject.into(), SchemaKind::Avro, &ID.into())).unwrap()
        };
        create("s");
        create("hangs");
        (Arc::new(Hangs { others, sender, answers: Semaphore::new(0) }), requests)
    }

    async fn wait(&self, subject: &Str) {
        if subject != "s" {
            let _ = self.sender.send(subject.clone());
            let _ = self.answers.acquire().await;
        }
    }

    fn release(&self) {
        self.answers.close();
    }
}

/// A time that no test waits for.
const LONG: Duration = Duration::from_secs(60);

fn of_subject(subject: &str) -> Record {
    let mut record = named(bytes::Bytes::from_static(b"\x02"), "1");
    record.metadata.insert("recfmt.payload.schema.subject", subject.to_owned());
    record
}

#[test]
fn other_strips_go_on_while_one_waits_for_the_registry() {
    let (registry, requests) = Hangs::new();
    let Configured::Async(configured) = configured(&Adding::kind(Class::Async), &[]).unwrap() else { panic!() };
    let context = OperatorContext::new(0, host(registry.clone()));
    let operator = configured.build(&context).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let call = |subject: &'static str| {
        let (operator, context, (sender, receiver)) = (operator.clone(), context.clone(), mpsc::channel());
        runtime.spawn(async move { sender.send(operator.call(&mut [of_subject(subject)], &context).await) });
        receiver
    };
    let held_up = call("hangs");
    assert_eq!(requests.recv_timeout(LONG).unwrap(), "hangs");
    for _ in 0..3 {
        let decisions = call("s").recv_timeout(LONG).expect("the other strip goes on");
        assert!(matches!(&decisions[..], [Decision::Keep]), "{decisions:?}");
    }
    assert!(held_up.try_recv().is_err(), "the registry has not answered");
    registry.release();
    let decisions = held_up.recv_timeout(LONG).unwrap();
    assert!(matches!(&decisions[..], [Decision::Keep]), "{decisions:?}");
}

/// A read that is dropped while it waits for a schema is there at the next call.
#[test]
fn a_source_that_waits_for_the_registry_holds_no_thread_and_loses_nothing() {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (registry, requests) = Hangs::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let record = crate::testing::after(fields(r#"{"id":1}"#));
            let mut reader = reader_of(registry.clone(), vec![record]).await;
            let room = || anabranch_plugin::source::Room { rows: 9, bytes: 1 << 20 };
            tokio::select! {
                biased;
                read = reader.read(room()) => panic!("{read:?}"),
                () = async { while requests.try_recv().is_err() { tokio::time::sleep(Duration::from_millis(1)).await } } => {}
            }
            registry.release();
            let read = reader.read(room()).await.unwrap();
            let anabranch_plugin::source::Read::Rows { records, .. } = read else { panic!("{read:?}") };
            let version = records[0].metadata.get("recfmt.payload.schema.version").cloned();
            sender.send((records.len(), version)).unwrap();
        });
    });
    assert_eq!(receiver.recv_timeout(LONG).expect("the thread is not held"), (1, Some("1".into())));
}

#[test]
fn a_request_has_a_time_limit() {
    let (registry, _requests) = Hangs::new();
    let mut cache = SchemaCache::new(registry);
    cache.client.patience = Duration::from_millis(20);
    let code = |answer: Result<Arc<CompiledSchema>, Fault>| {
        answer.map(drop).map_err(|fault| (fault.code().name(), fault.class()))
    };
    let late = Err(("schema_registry_unavailable", FaultClass::Transient));
    assert_eq!(code(cache.version(&"hangs".into(), SchemaVersion::FIRST)), late);
    assert_eq!(code(crate::testing::block_on(cache.run(|cache| cache.register(&"other".into(), ID)))), late);
    // A second later.
    cache.away = None;
    assert_eq!(code(cache.version(&"s".into(), SchemaVersion::FIRST)), Ok(()));
}

/// Each request is sent once, whatever the answer. If the registry is unavailable, no further request is sent.
#[test]
fn work_sends_each_request_once() {
    let (registry, requests) = Hangs::new();
    let mut cache = SchemaCache::new(registry.clone());
    registry.release();
    let run = |cache: &mut SchemaCache, subjects: &[&'static str]| {
        let subjects = subjects.to_vec();
        crate::testing::block_on(cache.run(move |cache| {
            let code = |subject: &&str| {
                cache.version(&(*subject).into(), SchemaVersion::FIRST).map_or_else(|f| f.code().name(), |_| "")
            };
            subjects.iter().map(code).collect::<Vec<&str>>()
        }))
    };
    let missing = "schema_subject_not_found";
    assert_eq!(run(&mut cache, &["a", "s", "b", "a", "hangs", "b"]), [missing, "", missing, missing, "", missing]);
    assert_eq!(requests.try_iter().collect::<Vec<Str>>(), ["a", "b", "hangs"]);

    let (registry, requests) = Hangs::new();
    let mut cache = SchemaCache::new(registry);
    cache.client.patience = Duration::from_millis(20);
    let away = "schema_registry_unavailable";
    assert_eq!(run(&mut cache, &["s", "a", "b", "c"]), ["", away, away, away]);
    assert_eq!(requests.try_iter().collect::<Vec<Str>>(), ["a"]);
}

/// Counts requests, and answers none.
struct Away(std::sync::atomic::AtomicUsize);

impl Away {
    fn refuse<T>(&self) -> Result<T, SchemaError> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let error: Box<dyn std::error::Error + Send + Sync> = "away".into();
        Err(SchemaError::Unavailable(error.into()))
    }
}

#[async_trait]
impl SchemaRegistry for Away {
    async fn create(&self, _: &Str, _: SchemaKind, _: &Str) -> Result<Arc<Schema>, SchemaError> {
        self.refuse()
    }
    async fn get(&self, _: &Str, _: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        self.refuse()
    }
    async fn by_id(&self, _: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        self.refuse()
    }
    async fn versions(&self, _: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        self.refuse()
    }
}

/// Each request has retries, so a batch of rows must not wait for each of its rows.
#[test]
fn a_batch_waits_once_for_a_registry_that_is_away() {
    let registry = Arc::new(Away(std::sync::atomic::AtomicUsize::new(0)));
    let mut decode = crate::testing::opened(&crate::decode::kind(), &[], &host(registry.clone()));
    let frame = |id: u8| crate::testing::after(anabranch_record::Data::Raw(vec![0, 0, 0, 0, id, 0].into()));
    let decisions = decode.process(&mut (1..=100).map(frame).collect::<Vec<_>>(), None);
    assert_eq!(decisions.len(), 100);
    for (_, decision) in decisions {
        let Decision::Fail(fault) = decision else { panic!("{decision:?}") };
        assert_eq!(fault.class(), FaultClass::Transient);
    }
    assert_eq!(registry.0.load(std::sync::atomic::Ordering::SeqCst), 1);
}
