//! The simulated destinations and store, whose behaviour the scenario determines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::state::{Commit, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};
use async_trait::async_trait;

use crate::record::{copy, number};
use crate::scenario::{AcceptedDurability, Sink, WriteRetry, hits, mix};
use crate::transaction::{self, Session};
use crate::world::World;

/// Creates a transient fault.
pub(crate) fn passing(what: &'static str) -> Fault {
    Fault::transient(crate::codes::SIM_PASSING, what)
}

/// A destination of the scenario. The one after the last is for dead letters.
pub struct SimDestination {
    /// The world.
    pub world: Arc<World>,
    /// Index of the destination.
    pub index: usize,
}

impl SimDestination {
    fn spec(&self) -> &Sink {
        self.world.scenario.sinks.get(self.index).unwrap_or(&self.world.scenario.letters)
    }

    fn is_letters(&self) -> bool {
        self.index == self.world.scenario.sinks.len()
    }
}

#[async_trait]
impl Destination for SimDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        self.world.opening().await?;
        let sink = SimDestination { world: self.world.clone(), index: self.index };
        Ok(Box::new(SimWriter { sink, unknown: false, session: Session::default() }))
    }

    fn policy(&self) -> WritePolicy {
        let spec = self.spec();
        let retry = match spec.retry {
            WriteRetry::Idempotent => Retry::Idempotent,
            WriteRetry::AtMostOnce => Retry::AtMostOnce,
            WriteRetry::Transactional => Retry::Transactional,
        };
        WritePolicy { rows: spec.rows, bytes: 1 << 20, linger: Duration::from_millis(spec.linger), retry }
    }
}

struct SimWriter {
    sink: SimDestination,
    /// The outcome of a call was unknown.
    unknown: bool,
    /// State of the writer of a transactional destination.
    session: Session,
}

impl SimWriter {
    /// Stores a row. A dead letter is identified by its contents.
    fn put(&self, row: &Record, delivered: Delivered, uncertain: bool) {
        let world = &self.sink.world;
        let durable = delivered == Delivered::Durable;
        if !self.sink.is_letters() {
            return world.put(self.sink.index, copy(row).id, durable, uncertain);
        }
        let node = row.metadata.get("svc.dlq.nack.node.id").cloned().unwrap_or_default();
        let after = row.payload.after.fields().and_then(|letter| letter.get("payload"));
        let id = match after.and_then(Value::as_map).and_then(|payload| payload.get("after")) {
            Some(Value::Bytes(bytes)) => number(bytes),
            _ => 0,
        };
        let key = match &row.key {
            Data::Raw(key) => &key[..],
            _ => &[],
        };
        world.put_letter(&node, id, key, durable);
    }
}

#[async_trait]
impl Writer for SimWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        transaction::marks(&self.sink.world, self.sink.index, self.sink.spec(), &mut self.session).await
    }

    async fn write(&mut self, Write { rows, marks, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let world = self.sink.world.clone();
        let (spec, index) = (self.sink.spec(), self.sink.index);
        let (call, troubled) = {
            let mut state = world.lock();
            state.destinations[index].calls += 1;
            (state.destinations[index].calls, state.is_troubled())
        };
        world.may_panic();
        if !self.sink.is_letters() {
            let ids: Vec<u64> = rows.iter().map(|row| copy(row).id).collect();
            world.lock().note(|| format!("d{index} is given {} rows: {ids:x?}", ids.len()));
            world.check_rows(index, &ids, rows.iter().map(Record::position));
            world.check_marks(index, &ids, marks);
            if self.unknown && spec.retry == WriteRetry::AtMostOnce {
                world.breaks(|| format!("d{index} is written again although that must not be"));
            }
            if spec.retry == WriteRetry::Transactional {
                return transaction::write(&world, index, self.sink.spec(), &mut self.session, rows, marks).await;
            }
        }
        tokio::time::sleep(spec.takes_time(call)).await;
        world.tick().await;
        if troubled && hits(spec.salt ^ 1, call, spec.hangs) {
            world.hang().await;
        }
        let refused = |row: &Record| hits(spec.salt, copy(row).id, spec.refuses) && !self.sink.is_letters();
        let refusal = || Fault::record(anabranch_plugin::testing::codes::REFUSED, "the destination does not want it");
        if spec.whole && rows.iter().any(refused) {
            return Err(refusal());
        }
        let delivered = |row: usize| match spec.takes {
            AcceptedDurability::Durable => Delivered::Durable,
            AcceptedDurability::Accepted => Delivered::Accepted,
            AcceptedDurability::Mixed if mix(call, row as u64).is_multiple_of(2) => Delivered::Durable,
            AcceptedDurability::Mixed => Delivered::Accepted,
        };
        if troubled && hits(spec.salt ^ 2, call, spec.fails) {
            if spec.ambiguous {
                let some = mix(call, 9) as usize % (rows.len() + 1);
                rows[..some].iter().filter(|row| !refused(row)).enumerate().for_each(|(i, row)| {
                    self.put(row, delivered(i), true);
                });
            }
            self.unknown = true;
            return Err(passing("the destination is away"));
        }
        let partial = troubled && hits(spec.salt ^ 3, call, spec.partial);
        let verdict = |(i, row): (usize, &Record)| match () {
            () if refused(row) => Err(refusal()),
            () if partial && mix(call, i as u64 ^ 3).is_multiple_of(3) => Err(passing("the row is locked")),
            () => Ok(delivered(i)),
        };
        let mut verdicts: Vec<Result<Delivered, Fault>> = rows.iter().enumerate().map(verdict).collect();
        if troubled && hits(spec.salt ^ 5, call, spec.miscounts) && world.miscounts() {
            match mix(call, 4).is_multiple_of(2) {
                true => drop(verdicts.pop()),
                false => verdicts.push(Ok(Delivered::Durable)),
            }
            for (i, (row, _)) in rows.iter().zip(&verdicts).enumerate().filter(|(_, (_, verdict))| verdict.is_ok()) {
                self.put(row, delivered(i), true);
            }
            self.unknown = true;
            return Ok(Verdicts::Each(verdicts));
        }
        self.unknown |=
            verdicts.iter().any(|verdict| matches!(verdict, Err(fault) if fault.code() == crate::codes::SIM_PASSING));
        for (i, (row, verdict)) in rows.iter().zip(&verdicts).enumerate() {
            // A crash can happen in the middle of a call.
            if i == rows.len() / 2 {
                world.tick().await;
                world.may_panic();
            }
            if let Ok(delivered) = verdict {
                self.put(row, *delivered, false);
            }
        }
        world.tick().await;
        if let Some(Ok(first)) = verdicts.first()
            && verdicts.iter().all(|verdict| matches!(verdict, Ok(other) if other == first))
        {
            return Ok(Verdicts::All(*first));
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn forget(&mut self, lanes: &[LaneId]) -> Result<bool, Fault> {
        transaction::forget(&self.sink.world, self.sink.index, self.sink.spec(), &mut self.session, lanes).await
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let world = self.sink.world.clone();
        let (spec, index) = (self.sink.spec(), self.sink.index);
        let (call, troubled) = {
            let mut state = world.lock();
            state.destinations[index].calls += 1;
            (state.destinations[index].calls, state.is_troubled())
        };
        let busy = world.busy();
        tokio::time::sleep(spec.takes_time(call)).await;
        drop(busy);
        world.tick().await;
        if troubled && hits(spec.salt ^ 6, call, spec.hangs) {
            world.hang().await;
        }
        world.may_panic();
        if troubled && hits(spec.salt ^ 4, call, spec.flush_fails) {
            return Err(passing("the destination cannot be flushed"));
        }
        world.flushed(index);
        world.tick().await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.sink.world.tick().await;
        self.sink.world.may_panic();
        Ok(())
    }
}

/// The simulated state store.
pub struct SimStore(pub Arc<World>);

#[async_trait]
impl StateStore for SimStore {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        self.0.tick().await;
        // The claim can take effect even if the call fails.
        let mut state = self.0.lock();
        state.epoch += 1;
        let call = state.next_call();
        if state.is_troubled() && hits(7, call, self.0.scenario.open_fails) {
            return Err(StoreError::Unavailable("the store is away".into()));
        }
        Ok(Epoch { unit: unit.clone(), number: state.epoch })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(self.0.marks())
    }

    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(self.0.receipts())
    }

    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        let world = &self.0;
        world.check_stored(commit.moves);
        world.check_removed(commit.drops);
        let (call, troubled) = {
            let mut state = world.lock();
            (state.next_call(), state.is_troubled())
        };
        world.tick().await;
        tokio::task::yield_now().await;
        if world.scenario.store_delay > 0 {
            world.lock().storing = true;
            let busy = world.busy();
            tokio::time::sleep(Duration::from_millis(world.scenario.store_delay)).await;
            drop(busy);
            world.lock().storing = false;
        }
        if let Some(theirs) = world.refuses(epoch.number) {
            return Err(StoreError::Fenced { unit: epoch.unit.clone(), ours: epoch.number, theirs });
        }
        let fails = troubled && hits(5, call, world.scenario.store_fails);
        // The commit can take effect even if the call fails.
        if !fails || mix(call, 1).is_multiple_of(2) {
            world.lock().note(|| format!("stored {:?}", commit.moves));
            world.store(commit);
        }
        world.tick().await;
        tokio::task::yield_now().await;
        if fails { Err(StoreError::Unavailable("the store is away".into())) } else { Ok(()) }
    }
}
