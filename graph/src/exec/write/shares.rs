//! The writers of a destination, each with the slots whose rows it gets, and the division of rows among them.
//!
//! Most destinations have one writer. A destination with several gets the rows of each slot in a stage of its own, so that
//! the writers neither wait for each other nor share a transaction. A lane has one slot, so its order stays.

use std::sync::Arc;

use anabranch_plugin::destination::ShareWriter;
use anabranch_plugin::state::Slots;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use super::gate::FlushGate;
use super::{OpenedWriter, Writing};
use crate::batch::Batch;
use crate::codes;
use crate::exec::context::{Context, Interrupt};
use crate::exec::fan_out::Output;
use crate::exec::open::Stage;
use crate::exec::queue::{Receiver, Sender, queue};
use crate::exec::rate::SharedBucket;
use crate::plan::stage::WriteSpec;

/// Opens the writers of a destination.
///
/// # Errors
/// The destination cannot be opened, or a slot of the run does not have one writer.
pub(in crate::exec) async fn open_writers(context: &Context, spec: &WriteSpec) -> Result<Vec<ShareWriter>, Fault> {
    let host = context.host(&spec.connector);
    let mut writers = spec.destination.open_shares(&host).await.map_err(|fault| fault.at(&spec.connector))?;
    let writers_of = |slot| writers.iter().filter(|writer| writer.slots.iter().any(|its| its == slot)).count();
    if let Some(slot) = host.slots.iter().find(|slot| writers_of(*slot) != 1) {
        let what = format!("the destination has {} writers for the slot {slot}", writers_of(slot));
        return Err(Fault::fatal(codes::PLAN_BROKEN, what).at(&spec.connector));
    }
    // A source may read partitions of other runs by mistake. The first writer gets their rows, so that they are not lost.
    let others: Vec<u32> = (0..host.slots.of()).filter(|slot| writers_of(*slot) == 0).collect();
    if let Some(first) = writers.first_mut() {
        first.slots = others.into_iter().fold(first.slots, Slots::with);
    }
    Ok(writers)
}

/// Returns the stages of a destination: one for each writer, and one that divides the rows among several.
pub(in crate::exec) fn stages(
    name: &Str,
    spec: &WriteSpec,
    writers: Vec<OpenedWriter>,
    input: Receiver,
    output: &Output,
    gates: &mut Vec<Arc<FlushGate>>,
) -> Vec<Stage> {
    let bucket = SharedBucket::of(spec);
    let mut writing = |writer: OpenedWriter, input: Receiver| {
        let gate = Arc::new(FlushGate::default());
        gates.push(gate.clone());
        let idle = input.idle();
        let writing = Writing::new(spec, writer, gate, bucket.clone(), output.clone());
        Stage { name: name.clone(), idle, task: Box::pin(writing.run(input)) }
    };
    let writers = match <[OpenedWriter; 1]>::try_from(writers) {
        Ok([only]) => return vec![writing(only, input)],
        Err(several) => several,
    };
    let mut stages = Vec::with_capacity(writers.len() + 1);
    let mut division = Division { context: output.context.clone(), ways: Vec::new(), of_slot: Vec::new() };
    for writer in writers {
        let (sender, receiver) = queue(&output.context.limits);
        division.add(writer.slots, sender);
        stages.push(writing(writer, receiver));
    }
    stages.push(Stage { name: name.clone(), idle: input.idle(), task: Box::pin(division.run(input)) });
    stages
}

/// Divides rows among the writers of a destination, by the slots of their lanes.
struct Division {
    context: Arc<Context>,
    ways: Vec<Sender>,
    /// The way of each slot.
    of_slot: Vec<usize>,
}

impl Division {
    fn add(&mut self, slots: Slots, sender: Sender) {
        self.of_slot.resize(slots.of() as usize, 0);
        slots.iter().for_each(|slot| self.of_slot[slot as usize] = self.ways.len());
        self.ways.push(sender);
    }

    /// Divides batches until the input ends.
    async fn run(self, mut input: Receiver) -> Result<(), Interrupt> {
        while let Some(batch) = input.recv_idle().await {
            self.divide(batch).await?;
        }
        Ok(())
    }

    async fn divide(&self, mut batch: Batch) -> Result<(), Interrupt> {
        let slots = self.context.options.slots;
        let way = |partition: &_| self.of_slot[slots.slot_of(partition) as usize];
        let runs = self.context.lanes.by_partition(batch.lineage(), way);
        let Some((_, first)) = runs.first() else { return Ok(()) };
        if runs.iter().all(|(_, way)| way == first) {
            return self.ways[*first].send(batch).await;
        }
        let mut of_rows: Vec<usize> = runs.iter().flat_map(|(rows, way)| std::iter::repeat_n(*way, *rows)).collect();
        while let Some(way) = of_rows.first().copied() {
            let rows: Vec<usize> = (0..of_rows.len()).filter(|row| of_rows[*row] == way).collect();
            of_rows.retain(|other| *other != way);
            self.ways[way].send(batch.pick(&rows)).await?;
        }
        Ok(())
    }
}
