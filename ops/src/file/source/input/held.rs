//! Standard input over the runs of a pipeline in this process. It cannot be read again: what one run read and did not
//! deliver, the next one reads first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_plugin::source::{Acker, Read, Reader, Room};
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::{Position, Record};
use async_trait::async_trait;

use super::super::partition::FileFormat;
use super::StandardInput;

/// The standard input of this process.
pub(in super::super) static STANDARD: InputSlot = InputSlot::new();

/// An input between two runs.
pub(in super::super) struct InputSlot(Mutex<Option<HeldInput>>);

/// The records that were read and are not settled, in read order.
type Undelivered = Arc<Mutex<VecDeque<Record>>>;

struct HeldInput {
    input: StandardInput,
    undelivered: Undelivered,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InputSlot {
    pub(super) const fn new() -> InputSlot {
        InputSlot(Mutex::new(None))
    }

    /// Continues the input of an earlier run, or starts to read it.
    ///
    /// # Errors
    /// Those of [`StandardInput::start`].
    pub(in super::super) fn open(&'static self, format: &Arc<FileFormat>) -> Result<(HeldReader, HeldAcker), Fault> {
        let held = locked(&self.0).take();
        let held = held.map_or_else(|| StandardInput::start(format.clone()).map(HeldInput::new), Ok)?;
        Ok(self.begin(held))
    }

    fn begin(&'static self, held: HeldInput) -> (HeldReader, HeldAcker) {
        let undelivered = held.undelivered.clone();
        let again = locked(&undelivered).clone();
        (HeldReader { slot: self, held: Some(held), again }, HeldAcker(undelivered))
    }
}

impl HeldInput {
    fn new(input: StandardInput) -> HeldInput {
        HeldInput { input, undelivered: Undelivered::default() }
    }
}

/// Reader of an input that a later run may continue.
pub(in super::super) struct HeldReader {
    slot: &'static InputSlot,
    /// `Some` until the reader is dropped.
    held: Option<HeldInput>,
    /// The records of earlier runs that are still to be read in this one.
    again: VecDeque<Record>,
}

#[async_trait]
impl Reader for HeldReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if !self.again.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&Record| {
                bytes += record.weight();
                bytes <= room.bytes
            };
            let count = self.again.iter().take(room.rows).take_while(fits).count().max(1);
            return Ok(Read::Rows { partition: Partition::ONLY, records: self.again.drain(..count).collect() });
        }
        let Some(held) = &mut self.held else { return Ok(Read::End) };
        let read = held.input.read(room).await?;
        if let Read::Rows { records, .. } = &read {
            locked(&held.undelivered).extend(records.iter().cloned());
        }
        Ok(read)
    }
}

impl Drop for HeldReader {
    fn drop(&mut self) {
        *locked(&self.slot.0) = self.held.take();
    }
}

/// Forgets records that are settled.
pub(in super::super) struct HeldAcker(Undelivered);

#[async_trait]
impl Acker for HeldAcker {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let mut undelivered = locked(&self.0);
        for position in positions {
            if let Some(at) = undelivered.iter().position(|record| record.position() == position) {
                undelivered.drain(..=at);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch_record::Data;
    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::file::compression::Compression;
    use crate::file::framing::Framing;

    async fn lines(reader: &mut HeldReader, rows: usize) -> (Vec<String>, Vec<Position>) {
        let Read::Rows { records, .. } = reader.read(Room { rows, bytes: 1 << 20 }).await.unwrap() else {
            panic!("no rows")
        };
        let text = |record: &Record| match &record.payload.after {
            Data::Raw(text) => text.escape_ascii().to_string(),
            other => panic!("{other:?}"),
        };
        (records.iter().map(text).collect(), records.iter().map(|record| record.position().clone()).collect())
    }

    #[tokio::test]
    async fn what_a_run_did_not_deliver_is_read_by_the_next_one() {
        let slot: &'static InputSlot = Box::leak(Box::new(InputSlot::new()));
        let format = FileFormat {
            framing: Framing::Lines,
            has_header: false,
            compression: Compression::Auto,
            limit: 1000,
            settling: Duration::ZERO,
        };
        let format = Arc::new(format);
        let (to, from) = channel(1);
        to.send(Ok(b"a\nb\nc\nd\n".to_vec())).await.unwrap();
        let (mut reader, mut acker) = slot.begin(HeldInput::new(StandardInput::reading(format.clone(), from)));
        let (read, positions) = lines(&mut reader, 3).await;
        assert_eq!(read, ["a", "b", "c"]);
        acker.ack(&Partition::ONLY, &positions[..1]).await.unwrap();
        drop(reader);
        // The last acknowledgements of a run may come after its last read.
        acker.ack(&Partition::ONLY, &positions[1..2]).await.unwrap();

        let (mut reader, mut acker) = slot.open(&format).unwrap();
        let (read, positions) = lines(&mut reader, 3).await;
        assert_eq!(read, ["c"]);
        assert_eq!(lines(&mut reader, 3).await.0, ["d"]);
        acker.ack(&Partition::ONLY, &positions).await.unwrap();
        drop((reader, to));

        let (mut reader, _) = slot.open(&format).unwrap();
        assert_eq!(lines(&mut reader, 3).await.0, ["d"]);
        assert!(matches!(reader.read(Room { rows: 3, bytes: 1 }).await, Ok(Read::End)));
    }
}
