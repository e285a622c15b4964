//! Producers: what the writers ask of a client library, and the library that answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use async_trait::async_trait;
use krafka::producer::{Acks, DeliveryHandle, Producer, ProducerBuilder, TransactionalProducer};
use krafka::{CloseOptions, Kafka, KrafkaError};

use super::Sending;
use super::takeover::{Taken, Takeover};
use super::topics::{Demands, Topics};
use super::transactional_id::TransactionalId;
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
    pub(super) fn producer(&self, kafka: &Kafka, limit: usize) -> ProducerBuilder {
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

/// The transactional producer of a slot, with the client library.
pub(super) struct KafkaTransactions {
    topics: Topics,
    /// The ids of the run.
    takeover: Arc<Takeover>,
    slot: u32,
    id: TransactionalId,
    /// The producer and the limit of its batches. `None` until it is initialised, and after an unknown outcome.
    producer: Option<(TransactionalProducer, usize)>,
}

impl KafkaTransactions {
    pub(super) fn new(topics: Topics, takeover: Arc<Takeover>, slot: u32) -> Self {
        let id = takeover.id(slot);
        KafkaTransactions { topics, takeover, slot, id, producer: None }
    }

    /// Takes the producer, which a failure with an unknown outcome leaves behind.
    fn take(&mut self) -> Result<(TransactionalProducer, usize), Fault> {
        self.producer.take().ok_or_else(|| {
            let text = "the transactional producer is not initialised: the last transaction has an unknown outcome";
            Fault::transient(codes::UNAVAILABLE, text)
        })
    }

    /// Initialises the id once more, and reads the marks of the slot.
    async fn initialise_again(&self) -> Result<Taken, Fault> {
        let TransactionalId { kafka, sending, marks, .. } = &self.id;
        let (run, slots) = (self.takeover.run(), self.takeover.slots());
        marks.prepare(kafka).await?;
        // A later run is not disturbed.
        self.id.successor(run).await?;
        let producer = self.id.producer_again(run, sending.batch_bytes).await?;
        let mut marks = marks.read(kafka, slots.of()).await?.marks;
        marks.retain(|lane, _| slots.slot_of(&lane.partition) == self.slot);
        Ok((producer, marks))
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
        let (producer, marks) = match self.takeover.first(self.slot).await? {
            Some(taken) => taken,
            None => self.initialise_again().await?,
        };
        self.producer = Some((producer, self.id.sending.batch_bytes));
        Ok(marks)
    }

    async fn fenced(&mut self) -> Fault {
        match self.id.successor(self.takeover.run()).await {
            Err(fault) => fault,
            Ok(()) => self.id.timed_out(),
        }
    }

    async fn send(&mut self, messages: Vec<krafka::Record>, limit: usize) -> Result<Failures, Fault> {
        let (producer, has) = self.take()?;
        // The limit is part of the producer. A new producer of this run fences the old one.
        let (producer, has) = match has <= limit {
            true => (producer, has),
            false => {
                let _ = producer.close().await;
                (self.id.producer_again(self.takeover.run(), limit).await?, limit)
            }
        };
        producer.begin().map_err(|error| self.id.failed(error))?;
        let mut sent = InFlight::new(&messages);
        let (count, topics, limit) = (messages.len(), sent.topics.clone(), self.id.sending.timeout);
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
        let committed = self.id.coordinated("committed a transaction of", producer.commit());
        committed.await.map_err(|error| self.id.failed(error))?;
        self.producer = Some((producer, has));
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), Fault> {
        let (producer, has) = self.take()?;
        let aborted = self.id.coordinated("aborted a transaction of", producer.abort());
        aborted.await.map_err(|error| self.id.failed(error))?;
        self.producer = Some((producer, has));
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        match self.producer.take() {
            Some((producer, _)) => producer.close().await.map_err(|error| self.id.failed(error)),
            None => Ok(()),
        }
    }
}
