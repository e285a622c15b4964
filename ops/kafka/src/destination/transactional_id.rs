//! A transactional id at the brokers: its producers, and the run that uses it.

use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use krafka::__private::kafka_metadata;
use krafka::Kafka;
use krafka::producer::TransactionalProducer;

use super::Sending;
use super::marks::{MarksTopic, Run, StoredClaim};
use super::units::KafkaUnit;
use crate::codes;
use crate::fault::{Doing, refused};
use crate::waiting::until_brokers;

/// Time that a transaction may take longer than its messages.
const LEAD: Duration = Duration::from_secs(60);
/// Maximum time limit of a transaction that brokers accept by default (`transaction.max.timeout.ms`).
const LONGEST: Duration = Duration::from_secs(900);

/// Interval of the requests for the list of brokers while a call to the transaction coordinator has no answer.
const LOOK: Duration = Duration::from_secs(2);

/// The transactional id of a unit.
#[derive(Clone)]
pub(super) struct TransactionalId {
    pub(super) kafka: Kafka,
    pub(super) sending: Sending,
    pub(super) marks: MarksTopic,
    unit: KafkaUnit,
    name: Str,
}

impl TransactionalId {
    pub(super) fn new(kafka: Kafka, sending: Sending, marks: MarksTopic, unit: KafkaUnit) -> Self {
        let name = unit.id(marks.id()).into();
        TransactionalId { kafka, sending, marks, unit, name }
    }

    pub(super) fn failed(&self, error: krafka::KrafkaError) -> Fault {
        refused(&Doing::Transaction(&self.name), error)
    }

    /// Waits for a call to the transaction coordinator, and requests the list of brokers at intervals until it ends. The client
    /// library finds the coordinator only in its list. A broker that was down at the last request is not in the list.
    pub(super) async fn coordinated<T>(&self, what: &'static str, call: impl Future<Output = T>) -> T {
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
        until_brokers(|| format!("{what} the transactional id {}", self.name), waiting).await
    }

    /// Initialises the id: the coordinator ends the transaction of an earlier producer with the id, and fences that producer.
    /// The batches of the new producer have at most `limit` bytes.
    ///
    /// # Errors
    /// The coordinator refuses the id.
    pub(super) async fn producer(&self, limit: usize) -> Result<TransactionalProducer, Fault> {
        // The coordinator aborts a transaction after its time limit, and then refuses the producer as if another had taken
        // over. So the messages of a transaction time out before.
        let timeout = (self.sending.timeout + LEAD).min(LONGEST);
        let producer = self.sending.producer(&self.kafka, limit).transaction_timeout(timeout);
        let initialised = self.coordinated("initialised", producer.build_transactional(self.name.as_str()));
        initialised.await.map_err(|error| self.failed(error))
    }

    /// Initialises the id once more for the run that has claimed it.
    ///
    /// A later run may have claimed the id since this one asked last. If that run has other slots, it reads the marks once and
    /// does not notice that this run has the id again. So the claim is read after the id was initialised.
    ///
    /// # Errors
    /// Those of [`TransactionalId::producer`] and [`TransactionalId::successor`].
    pub(super) async fn producer_again(&self, run: &Run, limit: usize) -> Result<TransactionalProducer, Fault> {
        let producer = self.producer(limit).await?;
        self.successor(run).await?;
        Ok(producer)
    }

    /// Stores a claim in a transaction, so that earlier runs see that another one has taken over.
    pub(super) async fn claim(&self, producer: &TransactionalProducer, claim: &StoredClaim) -> Result<(), Fault> {
        producer.begin().map_err(|error| self.failed(error))?;
        let claim = self.marks.claim(self.unit, claim)?;
        let claiming = async {
            let handle = producer.enqueue(claim).await?;
            let _ = producer.flush().await;
            let _ = handle.await?;
            producer.commit().await
        };
        let claimed = self.coordinated("stored the owner of", claiming);
        claimed.await.map_err(|error| self.failed(error))
    }

    /// Returns the fault if a later run than `run` has claimed the id.
    pub(super) async fn successor(&self, run: &Run) -> Result<(), Fault> {
        match self.marks.user(&self.kafka, self.unit).await? {
            Some(user) if user != *run => {
                let text = format!(
                    "the transactional id {}: a later run uses it: this run stops; if two services write to this cluster, \
                     set another exactlyOnce.transactionalID for one of them",
                    self.name
                );
                Err(Fault::fatal(codes::FENCED, text))
            }
            _ => Ok(()),
        }
    }

    /// Returns the fault for a transaction that the coordinator aborted, because it did not end in time.
    pub(super) fn timed_out(&self) -> Fault {
        let text = format!(
            "the transactional id {}: the transaction did not end within its time limit, and the coordinator aborted it",
            self.name
        );
        Fault::transient(codes::UNAVAILABLE, text)
    }
}
