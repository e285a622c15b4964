//! Destinations, and the dead-letter queue.

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::destination::{Delivered, Destination, Retry as Repeat, Verdicts, WritePolicy, Writer};
use anabranch_graph::fault::Fault;
use anabranch_graph::operator::Host;
use anabranch_graph::record::{Data, Record};
use anabranch_graph::source::Mark;
use anabranch_graph::state::LaneId;
use anabranch_graph::value::Value;
use async_trait::async_trait;

use super::{copy, number, passing};
use crate::scenario::{Retry, Sink, Takes, hits, mix};
use crate::transaction::{self, Known};
use crate::world::{World, first, position};

/// A destination of the scenario; the one after the last is for letters.
pub struct SimDestination {
    /// The world.
    pub world: Arc<World>,
    /// Its number.
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
        Ok(Box::new(SimWriter { sink, unknown: false, known: Known::new() }))
    }

    fn policy(&self) -> WritePolicy {
        let spec = self.spec();
        let retry = match spec.retry {
            Retry::Idempotent => Repeat::Idempotent,
            Retry::AtMostOnce => Repeat::AtMostOnce,
            Retry::Transactional => Repeat::Transactional,
        };
        WritePolicy { rows: spec.rows, bytes: 1 << 20, linger: Duration::from_millis(spec.linger), retry }
    }
}

struct SimWriter {
    sink: SimDestination,
    /// The outcome of a call was unknown.
    unknown: bool,
    /// What it knows of the marks of a transactional destination.
    known: Known,
}

impl SimWriter {
    /// Puts a row down; a letter is known by what it holds.
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
        transaction::marks(&self.sink.world, self.sink.index, self.sink.spec(), &mut self.known).await
    }

    async fn write(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) -> Result<Verdicts, Fault> {
        let world = self.sink.world.clone();
        let (spec, index) = (self.sink.spec(), self.sink.index);
        let (call, troubled) = {
            let mut state = world.lock();
            state.shelves[index].calls += 1;
            (state.shelves[index].calls, state.is_troubled())
        };
        world.may_panic();
        if !self.sink.is_letters() {
            let ids: Vec<u64> = rows.iter().map(|row| copy(row).id).collect();
            world.lock().note(|| format!("d{index} is given {} rows: {ids:x?}", ids.len()));
            world.presented(index, &ids, rows.iter().map(Record::position));
            world.told(index, &ids, marks);
            if self.unknown && spec.retry == Retry::AtMostOnce {
                world.breaks(|| format!("d{index} is written again although that must not be"));
            }
            if spec.retry == Retry::Transactional {
                return transaction::write(&world, index, self.sink.spec(), &mut self.known, rows, marks).await;
            }
        }
        tokio::time::sleep(spec.takes_time(call)).await;
        world.tick().await;
        if troubled && hits(spec.salt ^ 1, call, spec.hangs) {
            world.hang().await;
        }
        let refused = |row: &Record| hits(spec.salt, copy(row).id, spec.refuses) && !self.sink.is_letters();
        let refusal = || Fault::record("refused", "the destination does not want it");
        if spec.whole && rows.iter().any(refused) {
            return Err(refusal());
        }
        let delivered = |row: usize| match spec.takes {
            Takes::Durable => Delivered::Durable,
            Takes::Accepted => Delivered::Accepted,
            Takes::Mixed if mix(call, row as u64).is_multiple_of(2) => Delivered::Durable,
            Takes::Mixed => Delivered::Accepted,
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
        self.unknown |= verdicts.iter().any(|verdict| matches!(verdict, Err(fault) if fault.code() == "sim_passing"));
        for (i, (row, verdict)) in rows.iter().zip(&verdicts).enumerate() {
            // A crash may come in the middle.
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

    async fn flush(&mut self) -> Result<(), Fault> {
        let world = self.sink.world.clone();
        let (spec, index) = (self.sink.spec(), self.sink.index);
        let (call, troubled) = {
            let mut state = world.lock();
            state.shelves[index].calls += 1;
            (state.shelves[index].calls, state.is_troubled())
        };
        tokio::time::sleep(spec.takes_time(call)).await;
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
