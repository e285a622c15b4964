//! Producers: what the writers ask of a client library, and the library that answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;
use krafka::__private::kafka_metadata;
use krafka::producer::{Acks, DeliveryHandle, Producer, ProducerBuilder, TransactionalProducer};
use krafka::{CloseOptions, Kafka, KrafkaError};

use super::Sending;
use super::marks::{MarksTopic, Run};
use super::topics::{Demands, Topics};
use crate::codes;
use crate::fault::{Doing, refused};
use crate::waiting::{aloud, until_brokers};

/// Messages that failed: their places among those that were given, and the faults.
pub(super) type Failures = Vec<(usize, Fault)>;

/// The topics that are written.
#[async_trait]
pub(super) trait WrittenTopics: Send {
    /// Returns the demands of a topic. Creates the topic if it is missing and may be created.
    ///
    /// # Errors
    /// The topic is missing or cannot be created, or the cluster does not answer.
    async fn ensure(&mut self, topic: &str) -> Result<Demands, Fault>;
}

/// Sends messages.
#[async_trait]
pub(super) trait Publisher: WrittenTopics {
    /// Sends messages, those of a partition in order, in batches of at most `limit` bytes. Waits until each is confirmed or
    /// has failed, and returns the failures.
    ///
    /// # Errors
    /// Nothing can be sent.
    async fn publish(&mut self, messages: Vec<krafka::Record>, limit: usize) -> Result<Failures, Fault>;

    /// Forgets which topics exist, and what was sent: the messages are given again.
    fn start_over(&mut self);

    /// Ends sending.
    ///
    /// # Errors
    /// The brokers do not confirm the end.
    async fn close(&mut self) -> Result<(), Fault>;
}

/// Sends messages in the transactions of one transactional id.
#[async_trait]
pub(super) trait TransactionalPublisher: WrittenTopics {
    /// Ends the transaction that an earlier producer with the id left, fences that producer, and returns the marks that
    /// are stored then. The first call takes the id over from earlier runs.
    ///
    /// # Errors
    /// The coordinator refuses the id, or the marks cannot be read. Fatal with the code `fenced` if a later run has taken
    /// over: then that run is not disturbed.
    async fn initialise(&mut self) -> Result<HashMap<LaneId, Mark>, Fault>;

    /// Returns the fault for a producer that the coordinator refuses as fenced. It is fatal if a later run has taken over.
    /// Otherwise, the transaction lasted too long, and the coordinator aborted it: then the fault is transient.
    async fn fenced(&mut self) -> Fault;

    /// Sends messages in a new transaction, in batches of at most `limit` bytes, and returns the failures. The transaction
    /// is open afterwards.
    ///
    /// # Errors
    /// The transaction does not begin.
    async fn send(&mut self, messages: Vec<krafka::Record>, limit: usize) -> Result<Failures, Fault>;

    /// Commits the open transaction.
    ///
    /// # Errors
    /// The outcome is unknown until the next [`TransactionalPublisher::initialise`], or another producer has taken over.
    async fn commit(&mut self) -> Result<(), Fault>;

    /// Aborts the open transaction.
    ///
    /// # Errors
    /// As for a commit.
    async fn abort(&mut self) -> Result<(), Fault>;

    /// Ends sending.
    ///
    /// # Errors
    /// The coordinator does not confirm the end.
    async fn close(&mut self) -> Result<(), Fault>;
}

impl Sending {
    /// Returns a producer with batches of at most `limit` bytes, and of at most [`BATCH`] if they have several records. A
    /// batch that the topic refuses as too large would take its other records with it.
    fn producer(&self, kafka: &Kafka, limit: usize) -> ProducerBuilder {
        kafka
            .producer()
            .acks(self.acks)
            .idempotent(self.acks == Acks::All)
            .compression(self.compression)
            .batch_size(limit.min(BATCH))
            .delivery_timeout(self.timeout)
            .max_block(self.timeout)
            .metrics_push(false)
    }
}

/// Maximum size of a batch. Smaller ones travel while the others are being made; larger ones compress little better.
const BATCH: usize = 128 << 10;

/// Time that a transaction may take longer than its messages.
const LEAD: Duration = Duration::from_secs(60);
/// Maximum time limit of a transaction that brokers accept by default (`transaction.max.timeout.ms`).
const LONGEST: Duration = Duration::from_secs(900);

/// Interval of the requests for the list of brokers while a call to the transaction coordinator has no answer.
const LOOK: Duration = Duration::from_secs(2);

/// Logs that the brokers have not confirmed messages.
fn unconfirmed(messages: usize, topics: &[Arc<str>], limit: Duration, elapsed: Duration) {
    let topic: &str = topics.first().map_or("", |topic| topic);
    tracing::warn!(
        topic,
        messages,
        "the brokers have not confirmed the messages for {} s; they are sent again, and after {} s the write is repeated",
        elapsed.as_secs(),
        limit.as_secs()
    );
}

/// The messages of a write that are in flight.
struct InFlight {
    /// The topic of each message.
    topics: Arc<[Arc<str>]>,
    handles: Vec<(usize, DeliveryHandle)>,
    failures: Failures,
}

impl InFlight {
    fn new(messages: &[krafka::Record]) -> InFlight {
        let mut topics: Vec<Arc<str>> = Vec::with_capacity(messages.len());
        for message in messages {
            let same = topics.last().filter(|topic| ***topic == *message.topic).cloned();
            topics.push(same.unwrap_or_else(|| message.topic.as_str().into()));
        }
        InFlight { topics: topics.into(), handles: Vec::with_capacity(messages.len()), failures: Failures::new() }
    }

    /// Notes a message that was given to the producer. Returns `false` if it was refused.
    fn note(&mut self, place: usize, queued: krafka::Result<DeliveryHandle>) -> bool {
        match queued {
            Ok(handle) => {
                self.handles.push((place, handle));
                true
            }
            Err(KrafkaError::Config { message }) => {
                // The settings of the producer are valid: the record has a partition that the topic does not have.
                let text = format!("writing the topic {}: {message}", self.topics[place]);
                self.failures.push((place, Fault::record(codes::RECORD_INVALID, text)));
                false
            }
            Err(error) => {
                self.failures.push((place, refused(&Doing::Writing(&self.topics[place]), error)));
                false
            }
        }
    }

    /// Waits for the results.
    async fn failures(self) -> Failures {
        let InFlight { topics, handles, mut failures } = self;
        for (place, handle) in handles {
            if let Err(error) = handle.await {
                failures.push((place, refused(&Doing::Writing(&topics[place]), error)));
            }
        }
        failures
    }
}

/// The producer of the client library.
pub(super) struct KafkaPublisher {
    kafka: Kafka,
    topics: Topics,
    sending: Sending,
    /// The producer and the limit of its batches.
    producer: Option<(Producer, usize)>,
}

impl KafkaPublisher {
    pub(super) fn new(kafka: Kafka, topics: Topics, sending: Sending) -> Self {
        KafkaPublisher { kafka, topics, sending, producer: None }
    }
}

impl Drop for KafkaPublisher {
    /// Ends the producer, if nobody has closed it. Otherwise, it would still send what it holds, behind what a later run
    /// writes.
    fn drop(&mut self) {
        if let (Some((producer, _)), Ok(runtime)) = (self.producer.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { producer.close_with(CloseOptions::new().timeout(Duration::ZERO)).await });
        }
    }
}

#[async_trait]
impl WrittenTopics for KafkaPublisher {
    async fn ensure(&mut self, topic: &str) -> Result<Demands, Fault> {
        self.topics.ensure(topic).await
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&mut self, messages: Vec<krafka::Record>, limit: usize) -> Result<Failures, Fault> {
        let producer = match self.producer.take_if(|(_, has)| *has <= limit) {
            Some(producer) => producer,
            None => {
                if let Some((producer, _)) = self.producer.take() {
                    // Nothing is in flight: each call waits for all its messages.
                    let _ = producer.close().await;
                }
                let built = self.sending.producer(&self.kafka, limit).build();
                let built = until_brokers(|| "given a producer id".to_owned(), built).await;
                (built.map_err(|error| refused(&Doing::Writing(""), error))?, limit)
            }
        };
        let (producer, _) = self.producer.insert(producer);
        let mut sent = InFlight::new(&messages);
        let (count, topics, limit) = (messages.len(), sent.topics.clone(), self.sending.timeout);
        let sending = async {
            for (place, message) in messages.into_iter().enumerate() {
                sent.note(place, producer.enqueue(message).await);
            }
            // The result of each message follows.
            let _ = producer.flush().await;
            sent.failures().await
        };
        Ok(aloud(sending, |elapsed| unconfirmed(count, &topics, limit, elapsed)).await)
    }

    fn start_over(&mut self) {
        self.producer = None;
        self.topics.forget();
    }

    async fn close(&mut self) -> Result<(), Fault> {
        match self.producer.take() {
            Some((producer, _)) => producer.close().await.map_err(|error| refused(&Doing::Writing(""), error)),
            None => Ok(()),
        }
    }
}

/// The transactional producer of the client library.
pub(super) struct KafkaTransactions {
    kafka: Kafka,
    topics: Topics,
    sending: Sending,
    id: Str,
    marks: MarksTopic,
    /// This run, as the topic of the marks has it.
    run: Run,
    /// True if the topic has this run.
    is_claimed: bool,
    /// The producer and the limit of its batches. `None` until it is initialised, and after an unknown outcome.
    producer: Option<(TransactionalProducer, usize)>,
}

impl KafkaTransactions {
    pub(super) fn new(kafka: Kafka, topics: Topics, sending: Sending, id: Str, marks: MarksTopic) -> Self {
        KafkaTransactions { kafka, topics, sending, id, marks, run: Run::new(), is_claimed: false, producer: None }
    }

    fn failed(&self, error: krafka::KrafkaError) -> Fault {
        refused(&Doing::Transaction(&self.id), error)
    }

    /// Waits for a call to the transaction coordinator, and requests the list of brokers at intervals until it ends. The client
    /// library finds the coordinator only in its list. A broker that was down at the last request is not in the list.
    async fn coordinated<T>(&self, what: &'static str, call: impl Future<Output = T>) -> T {
        let look = async || {
            tokio::time::sleep(LOOK).await;
            let _ = kafka_metadata(&self.kafka).force_refresh(Some(&[self.marks.topic()])).await;
        };
        let waiting = async {
            let mut call = std::pin::pin!(call);
            loop {
                tokio::select! {
                    done = &mut call => return done,
                    () = look() => {}
                }
            }
        };
        until_brokers(|| format!("{what} the transactional id {}", self.id), waiting).await
    }

    async fn producer(&self, limit: usize) -> Result<TransactionalProducer, Fault> {
        // The coordinator aborts a transaction after its time limit, and then refuses the producer as if another had taken
        // over. So the messages of a transaction time out before.
        let timeout = (self.sending.timeout + LEAD).min(LONGEST);
        let producer = self.sending.producer(&self.kafka, limit).transaction_timeout(timeout);
        let initialised = self.coordinated("initialised", producer.build_transactional(self.id.as_str()));
        initialised.await.map_err(|error| self.failed(error))
    }

    /// Stores this run in a transaction, so that earlier runs see that it has taken over.
    async fn claim(&self, producer: &TransactionalProducer) -> Result<(), Fault> {
        producer.begin().map_err(|error| self.failed(error))?;
        let claim = self.marks.claim(&self.run)?;
        let claiming = async {
            let handle = producer.enqueue(claim).await?;
            let _ = producer.flush().await;
            let _ = handle.await?;
            producer.commit().await
        };
        let claimed = self.coordinated("stored the owner of", claiming);
        claimed.await.map_err(|error| self.failed(error))
    }

    /// Returns the fault if a later run has taken over.
    async fn successor(&self) -> Result<(), Fault> {
        match self.marks.user(&self.kafka).await? {
            Some(run) if run != self.run => {
                let text = format!(
                    "the transactional id {}: a later run uses it: this run stops; if two services write to this cluster, \
                     set another exactlyOnce.transactionalID for one of them",
                    self.id
                );
                Err(Fault::fatal(codes::FENCED, text))
            }
            _ => Ok(()),
        }
    }

    /// Takes the producer, which a failure with an unknown outcome leaves behind.
    fn take(&mut self) -> Result<(TransactionalProducer, usize), Fault> {
        self.producer.take().ok_or_else(|| {
            let text = "the transactional producer is not initialised: the last transaction has an unknown outcome";
            Fault::transient(codes::UNAVAILABLE, text)
        })
    }
}

#[async_trait]
impl WrittenTopics for KafkaTransactions {
    async fn ensure(&mut self, topic: &str) -> Result<Demands, Fault> {
        self.topics.ensure(topic).await
    }
}

#[async_trait]
impl TransactionalPublisher for KafkaTransactions {
    async fn initialise(&mut self) -> Result<HashMap<LaneId, Mark>, Fault> {
        self.producer = None;
        self.marks.prepare(&self.kafka).await?;
        if self.is_claimed {
            self.successor().await?;
        }
        let limit = self.sending.batch_bytes;
        let producer = self.producer(limit).await?;
        if !self.is_claimed {
            // An earlier run may take the id back until the claim is committed. It sees the claim at its next attempt.
            self.claim(&producer).await.map_err(|fault| match fault.code() == codes::FENCED {
                true => fault.with_class(FaultClass::Transient),
                false => fault,
            })?;
            self.is_claimed = true;
        }
        let marks = self.marks.read(&self.kafka).await?;
        self.producer = Some((producer, limit));
        Ok(marks)
    }

    async fn fenced(&mut self) -> Fault {
        match self.successor().await {
            Err(fault) => fault,
            Ok(()) => {
                let text = format!(
                    "the transactional id {}: the transaction did not end within its time limit, and the coordinator \
                     aborted it",
                    self.id
                );
                Fault::transient(codes::UNAVAILABLE, text)
            }
        }
    }

    async fn send(&mut self, messages: Vec<krafka::Record>, limit: usize) -> Result<Failures, Fault> {
        let (producer, has) = self.take()?;
        // The limit is part of the producer. A new producer of this run fences the old one.
        let (producer, has) = match has <= limit {
            true => (producer, has),
            false => {
                let _ = producer.close().await;
                (self.producer(limit).await?, limit)
            }
        };
        producer.begin().map_err(|error| self.failed(error))?;
        let mut sent = InFlight::new(&messages);
        let (count, topics, limit) = (messages.len(), sent.topics.clone(), self.sending.timeout);
        let sending = async {
            for (place, message) in messages.into_iter().enumerate() {
                if !sent.note(place, producer.enqueue(message).await) {
                    break;
                }
            }
            // The result of each message follows.
            let _ = producer.flush().await;
            sent.failures().await
        };
        let failures = aloud(sending, |elapsed| unconfirmed(count, &topics, limit, elapsed)).await;
        self.producer = Some((producer, has));
        Ok(failures)
    }

    async fn commit(&mut self) -> Result<(), Fault> {
        let (producer, has) = self.take()?;
        let committed = self.coordinated("committed a transaction of", producer.commit());
        committed.await.map_err(|error| self.failed(error))?;
        self.producer = Some((producer, has));
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), Fault> {
        let (producer, has) = self.take()?;
        let aborted = self.coordinated("aborted a transaction of", producer.abort());
        aborted.await.map_err(|error| self.failed(error))?;
        self.producer = Some((producer, has));
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        match self.producer.take() {
            Some((producer, _)) => producer.close().await.map_err(|error| self.failed(error)),
            None => Ok(()),
        }
    }
}
