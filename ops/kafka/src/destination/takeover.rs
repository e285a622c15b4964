//! Taking over the transactional ids of the slots of a run.
//!
//! The run claims the ids of its slots: earlier runs with these slots are fenced. Then it looks for claims of units of another
//! number of slots, and retires their ids. Lanes have other slots there, and a run with these units that was paused would
//! write rows of lanes that this run has. After that, the marks in the topic are final.
//!
//! Of two runs with another number of slots that open at the same time, each claims before it looks. So one of them finds the
//! claims of the other.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::state::Slots;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use futures::future::try_join_all;
use krafka::Kafka;
use krafka::producer::TransactionalProducer;
use tokio::sync::OnceCell;

use super::Sending;
use super::marks::{MarksTopic, Run, StoredClaim};
use super::transactional_id::TransactionalId;
use super::units::KafkaUnit;
use crate::codes;

/// Number of times that the ids of another number of slots are retired before the run gives up.
const ATTEMPTS: u32 = 10;
/// Pause in milliseconds after an id could not be retired, because another node retires it at the same time.
const PAUSE: Range<u64> = 50..400;

/// A producer that is initialised, and the marks of its slot.
pub(super) type Taken = (TransactionalProducer, HashMap<LaneId, Mark>);

/// The transactional ids of a run. The first of its writers that asks takes all of them over.
pub(super) struct Takeover {
    kafka: Kafka,
    sending: Sending,
    marks: MarksTopic,
    slots: Slots,
    /// True if other processes may run the pipeline.
    is_shared: bool,
    run: Run,
    /// The ids that were taken over, by slot, until their writers ask for them.
    taken: OnceCell<Mutex<HashMap<u32, Taken>>>,
}

impl Takeover {
    pub(super) fn new(kafka: Kafka, sending: Sending, marks: MarksTopic, slots: Slots, is_shared: bool) -> Self {
        Takeover { kafka, sending, marks, slots, is_shared, run: Run::new(), taken: OnceCell::new() }
    }

    /// Returns this run, as the topic of the marks has it.
    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the slots of the run.
    pub(super) fn slots(&self) -> Slots {
        self.slots
    }

    /// Returns the transactional id of a slot of the run.
    pub(super) fn id(&self, slot: u32) -> TransactionalId {
        self.id_of(KafkaUnit { slot, of: self.slots.of() })
    }

    fn id_of(&self, unit: KafkaUnit) -> TransactionalId {
        TransactionalId::new(self.kafka.clone(), self.sending.clone(), self.marks.clone(), unit)
    }

    /// Takes over the ids of the run, and returns that of a slot. Returns `None` if the slot has asked before.
    ///
    /// # Errors
    /// The coordinator refuses an id, or the marks cannot be read.
    pub(super) async fn first(&self, slot: u32) -> Result<Option<Taken>, Fault> {
        let taken = self.taken.get_or_try_init(|| self.take_over()).await?;
        Ok(taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot))
    }

    async fn take_over(&self) -> Result<Mutex<HashMap<u32, Taken>>, Fault> {
        self.marks.prepare(&self.kafka).await?;
        let claiming = self.slots.iter().map(|slot| async move {
            let id = self.id(slot);
            let producer = id.producer(self.sending.batch_bytes).await?;
            // An earlier run may take the id back until the claim is committed. It sees the claim at its next attempt.
            id.claim(&producer, &StoredClaim::of(&self.run)).await.map_err(|fault| {
                match fault.code() == codes::FENCED {
                    true => fault.with_class(FaultClass::Transient),
                    false => fault,
                }
            })?;
            Ok::<_, Fault>((slot, producer))
        });
        let producers = try_join_all(claiming).await?;
        let of = self.slots.of();
        // The transaction of a node that has failed would delay the marks.
        let mut rivals = match self.is_shared {
            true => self.marks.rivals(&self.kafka, of).await?,
            false => BTreeSet::new(),
        };
        for _ in 0..ATTEMPTS {
            try_join_all(rivals.iter().map(|unit| self.retire(*unit))).await?;
            let read = self.marks.read(&self.kafka, of).await?;
            if read.rivals.is_empty() {
                return Ok(Mutex::new(self.divided(producers, read.marks)));
            }
            rivals = read.rivals;
        }
        let text = format!("the transactional id {}: other runs use it with another number of slots", self.marks.id());
        Err(Fault::transient(codes::UNAVAILABLE, text))
    }

    /// Ends the use of an id of another number of slots.
    async fn retire(&self, unit: KafkaUnit) -> Result<(), Fault> {
        let id = self.id_of(unit);
        let retired = async {
            let producer = id.producer(self.sending.batch_bytes).await?;
            id.claim(&producer, &StoredClaim::retired(&self.run)).await?;
            let _ = producer.close().await;
            Ok(())
        };
        match retired.await {
            // Another run retires it too, or uses it: the claims say which.
            Err(fault) if Fault::code(&fault) == codes::FENCED || fault.class() == FaultClass::Transient => {
                tracing::debug!(%fault, "the transactional id of another number of slots is not retired yet");
                tokio::time::sleep(Duration::from_millis(fastrand::u64(PAUSE))).await;
                Ok(())
            }
            retired => retired,
        }
    }

    fn divided(
        &self,
        producers: Vec<(u32, TransactionalProducer)>,
        marks: HashMap<LaneId, Mark>,
    ) -> HashMap<u32, Taken> {
        let mut taken: HashMap<u32, Taken> =
            producers.into_iter().map(|(slot, producer)| (slot, (producer, HashMap::new()))).collect();
        for (lane, mark) in marks {
            if let Some((_, its)) = taken.get_mut(&self.slots.slot_of(&lane.partition)) {
                its.insert(lane, mark);
            }
        }
        taken
    }
}
