//! A cache of schemas that also joins concurrent requests.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_record::text::Str;
use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _, Shared, WeakShared};

use super::{Definition, Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry, SchemaVersion};

/// Maximum number of cached results of each kind, so that data with ever-changing schemas cannot exhaust the memory.
const KEPT: usize = 10_000;

type Asking<V> = BoxFuture<'static, Result<Arc<V>, SchemaError>>;

/// A cache in front of a registry: it requests each schema once, because the schema of a version, an id or a text never
/// changes. Concurrent requests for the same schema are joined, and all callers receive the result. A failure is
/// returned to the waiting callers and not cached.
#[derive(Debug, Default)]
pub struct Cached<R> {
    registry: Arc<R>,
    versions: Arc<Answers<(Str, SchemaVersion), Schema>>,
    texts: Arc<Answers<(Str, Str), Schema>>,
    ids: Arc<Answers<SchemaId, Definition>>,
}

/// The results of one kind of request.
#[derive(Debug)]
struct Answers<K, V>(Mutex<State<K, V>>);

#[derive(Debug)]
struct State<K, V> {
    known: HashMap<K, Arc<V>>,
    /// Requests in progress. Each is owned by the callers that wait for it and continues as long as one of them does.
    asked: HashMap<K, WeakShared<Asking<V>>>,
}

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Answers(Mutex::new(State { known: HashMap::new(), asked: HashMap::new() }))
    }
}

impl<K: Clone + Eq + Hash + Send + 'static, V: Send + Sync + 'static> Answers<K, V> {
    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches a result.
    fn put(&self, key: K, answer: Arc<V>) {
        let mut state = self.lock();
        if state.known.len() >= KEPT {
            state.known.clear();
        }
        state.known.insert(key, answer);
    }

    /// Returns the cached result, joins a request in progress, or starts one.
    async fn get(self: &Arc<Self>, key: K, ask: impl FnOnce() -> Asking<V>) -> Result<Arc<V>, SchemaError> {
        let question: Shared<Asking<V>> = {
            let mut state = self.lock();
            if let Some(known) = state.known.get(&key) {
                return Ok(known.clone());
            }
            match state.asked.get(&key).and_then(WeakShared::upgrade) {
                Some(question) => question,
                None => {
                    // Removes requests that all their callers cancelled.
                    state.asked.retain(|_, question| question.upgrade().is_some());
                    let question = self.clone().asking(key.clone(), ask()).boxed().shared();
                    if let Some(weak) = question.downgrade() {
                        state.asked.insert(key, weak);
                    }
                    question
                }
            }
        };
        question.await
    }

    /// Sends the request, caches the result, and removes the request from those in progress.
    async fn asking(self: Arc<Self>, key: K, question: Asking<V>) -> Result<Arc<V>, SchemaError> {
        let answer = question.await;
        if let Ok(answer) = &answer {
            self.put(key.clone(), answer.clone());
        }
        self.lock().asked.remove(&key);
        answer
    }
}

impl<R> Cached<R> {
    /// Creates an empty cache in front of a registry.
    pub fn new(registry: R) -> Self {
        Cached { registry: Arc::new(registry), versions: Arc::default(), texts: Arc::default(), ids: Arc::default() }
    }
}

#[async_trait]
impl<R: SchemaRegistry + 'static> SchemaRegistry for Cached<R> {
    async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        let (subject, text) = (subject.clone(), text.clone());
        let ask = || {
            let (registry, versions) = (self.registry.clone(), self.versions.clone());
            let (subject, text) = (subject.clone(), text.clone());
            async move {
                let schema = registry.create(&subject, kind, &text).await?;
                versions.put((subject, schema.version), schema.clone());
                Ok(schema)
            }
            .boxed()
        };
        self.texts.get((subject.clone(), text.clone()), ask).await
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        let ask = || {
            let (registry, subject) = (self.registry.clone(), subject.clone());
            async move { registry.get(&subject, version).await }.boxed()
        };
        self.versions.get((subject.clone(), version), ask).await
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        let ask = || {
            let registry = self.registry.clone();
            async move { registry.by_id(id).await }.boxed()
        };
        self.ids.get(id, ask).await
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        self.registry.versions(subject).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::schema::MemoryRegistry;

    /// Counts questions, each of which waits until it may be answered.
    struct Slow {
        memory: MemoryRegistry,
        asked: AtomicUsize,
        answers: Semaphore,
        failures: AtomicUsize,
    }

    impl Slow {
        async fn turn(&self) -> Result<(), SchemaError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.answers.acquire().await.unwrap().forget();
            match self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
                Ok(_) => {
                    Err(SchemaError::Unavailable(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from("away"))))
                }
                Err(_) => Ok(()),
            }
        }
    }

    #[async_trait]
    impl SchemaRegistry for Arc<Slow> {
        async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
            self.turn().await?;
            self.memory.create(subject, kind, text).await
        }

        async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
            self.turn().await?;
            self.memory.get(subject, version).await
        }

        async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
            self.turn().await?;
            self.memory.by_id(id).await
        }

        async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
            self.memory.versions(subject).await
        }
    }

    fn slow(failures: usize) -> (Arc<Slow>, Cached<Arc<Slow>>) {
        let (memory, asked) = (MemoryRegistry::new(), AtomicUsize::new(0));
        let (answers, failures) = (Semaphore::new(0), AtomicUsize::new(failures));
        let slow = Arc::new(Slow { memory, asked, answers, failures });
        (slow.clone(), Cached::new(slow))
    }

    fn asked(slow: &Slow) -> usize {
        slow.asked.load(Ordering::SeqCst)
    }

    static SUBJECT: Str = Str::from_static("s");
    static TEXT: Str = Str::from_static("\"long\"");

    /// Polls questions until each of them waits for an answer.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    /// Sends several requests concurrently. The registry answers after all have arrived.
    async fn together<T>(slow: &Slow, questions: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
        let answer = async {
            settle().await;
            slow.answers.add_permits(100);
        };
        let (answers, ()) = futures::join!(join_all(questions), answer);
        slow.answers.forget_permits(usize::MAX >> 4);
        answers
    }

    #[tokio::test]
    async fn those_who_need_the_same_schema_ask_once() {
        let (slow, cached) = slow(0);
        let created = together(&slow, (0..8).map(|_| cached.create(&SUBJECT, SchemaKind::Avro, &TEXT))).await;
        assert!(created.into_iter().all(|schema| schema.unwrap().id == SchemaId::FIRST));
        assert_eq!(asked(&slow), 1);
        assert!(cached.get(&SUBJECT, SchemaVersion::FIRST).await.is_ok());
        assert_eq!(asked(&slow), 1, "the version is known of the text");
        let second = SchemaVersion::new(2).unwrap();
        slow.memory.create(&SUBJECT, SchemaKind::Avro, &"\"int\"".into()).await.unwrap();
        let found = together(&slow, (0..8).map(|_| cached.get(&SUBJECT, second))).await;
        assert!(found.into_iter().all(|schema| schema.unwrap().version == second));
        assert_eq!(asked(&slow), 2);
        let found = together(&slow, (0..8).map(|_| cached.by_id(SchemaId::FIRST))).await;
        assert!(found.into_iter().all(|definition| definition.unwrap().text == TEXT));
        assert_eq!(asked(&slow), 3);
        let others = [SchemaId::FIRST, SchemaId::new(2).unwrap(), SchemaId::new(3).unwrap()];
        let found = together(&slow, others.into_iter().map(|id| cached.by_id(id))).await;
        assert_eq!(found.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(asked(&slow), 5);
    }

    #[tokio::test]
    async fn a_failure_is_told_to_all_who_wait_and_then_asked_again() {
        let (slow, cached) = slow(1);
        let created = together(&slow, (0..4).map(|_| cached.create(&SUBJECT, SchemaKind::Avro, &TEXT))).await;
        assert!(created.into_iter().all(|schema| schema.is_err()));
        assert_eq!(asked(&slow), 1);
        let created = together(&slow, (0..4).map(|_| cached.create(&SUBJECT, SchemaKind::Avro, &TEXT))).await;
        assert!(created.into_iter().all(|schema| schema.is_ok()));
        assert_eq!(asked(&slow), 2);
    }

    #[tokio::test]
    async fn one_who_goes_away_takes_the_answer_from_nobody() {
        let (slow, cached) = slow(0);
        let ask = || cached.create(&SUBJECT, SchemaKind::Avro, &TEXT);
        let (mut first, mut second) = (ask(), ask());
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(asked(&slow), 1);
        drop(first);
        slow.answers.add_permits(1);
        assert!(second.await.is_ok());
        assert_eq!(asked(&slow), 1);
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_is_asked_again() {
        let (slow, cached) = slow(0);
        let question = cached.create(&SUBJECT, SchemaKind::Avro, &TEXT);
        assert!(question.now_or_never().is_none());
        slow.answers.add_permits(1);
        assert!(cached.create(&SUBJECT, SchemaKind::Avro, &TEXT).await.is_ok());
        assert_eq!(asked(&slow), 2);
        assert!(cached.texts.lock().asked.is_empty());
    }
}
