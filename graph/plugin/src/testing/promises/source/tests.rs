use std::sync::Mutex;

use anabranch_record::Data;
use async_trait::async_trait;

use super::*;
use crate::host::Host;
use crate::testing::codes;
use crate::testing::{position, record, row_at, rows};

/// A mistake of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    EmptyPositions,
    EqualPositions,
    RefusesItsPositions,
    IgnoresRows,
    IgnoresBytes,
    SkipsAfterAMark,
    RepeatsTheMark,
    DeletesWhatItReads,
    DeletesWhatItRereads,
    LosesCancelledReads,
    DoesNotWait,
    ChangesContent,
    FailsToAcknowledge,
}

/// Ten rows in two partitions; acknowledged rows are deleted.
struct Numbers {
    mistake: Mistake,
    rows: Arc<Mutex<BTreeSet<u64>>>,
}

fn partition_of(row: u64) -> Partition {
    Partition(if row.is_multiple_of(2) { "even" } else { "odd" }.into())
}

#[async_trait]
impl Source for Numbers {
    fn catches_up(&self) -> bool {
        true
    }

    fn rereads(&self) -> bool {
        self.mistake == Mistake::DeletesWhatItRereads
    }

    fn check(&self, _: &Position) -> Option<Result<(), Fault>> {
        let refused = Fault::fatal(crate::codes::POSITION_UNKNOWN, "it is none");
        (self.mistake == Mistake::RefusesItsPositions).then_some(Err(refused))
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        let step = match self.mistake {
            Mistake::SkipsAfterAMark => 2,
            Mistake::RepeatsTheMark => 0,
            _ => 1,
        };
        let is_left = |row: &&u64| match resume.get(&partition_of(**row)) {
            Some(mark) => **row + 2 > row_at(&mark.position) + 2 * step,
            None => true,
        };
        let left: Vec<u64> = self.rows.lock().unwrap().iter().filter(is_left).copied().collect();
        let reader =
            NumbersReader { mistake: self.mistake, rows: self.rows.clone(), left: left.into(), caught_up: false };
        Ok(OpenedSource::new(
            Box::new(reader),
            Box::new(NumbersAcker { mistake: self.mistake, rows: self.rows.clone() }),
        ))
    }
}

struct NumbersReader {
    mistake: Mistake,
    rows: Arc<Mutex<BTreeSet<u64>>>,
    left: std::collections::VecDeque<u64>,
    caught_up: bool,
}

#[async_trait]
impl Reader for NumbersReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let most = match self.mistake {
            Mistake::IgnoresRows => 2,
            Mistake::IgnoresBytes => room.rows,
            _ if room.bytes == 1 => 1,
            _ => room.rows,
        };
        if self.mistake == Mistake::LosesCancelledReads {
            let taken = self.left.pop_front();
            tokio::time::sleep(Duration::from_millis(1)).await;
            taken.into_iter().for_each(|row| self.left.push_front(row));
        }
        let Some(partition) = self.left.front().copied().map(partition_of) else {
            if std::mem::replace(&mut self.caught_up, self.mistake != Mistake::DoesNotWait) {
                std::future::pending::<()>().await;
            }
            return Ok(Read::CaughtUp);
        };
        let mut taken: Vec<u64> = self.left.iter().copied().filter(|row| partition_of(*row) == partition).collect();
        taken.truncate(most);
        self.left.retain(|row| !taken.contains(row));
        if self.mistake == Mistake::DeletesWhatItReads {
            self.rows.lock().unwrap().retain(|row| !taken.contains(row));
        }
        let made = |row: &u64| {
            let mut made = match self.mistake {
                Mistake::EmptyPositions => record(*row).with_position(Position::default()),
                Mistake::EqualPositions => record(*row).with_position(position(row / 4)),
                _ => record(*row),
            };
            if self.mistake == Mistake::ChangesContent && room.rows == 1 {
                made.key = Data::text("alone");
            }
            made
        };
        Ok(Read::Rows { records: taken.iter().map(made).collect(), partition })
    }
}

struct NumbersAcker {
    mistake: Mistake,
    rows: Arc<Mutex<BTreeSet<u64>>>,
}

#[async_trait]
impl Acker for NumbersAcker {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        if self.mistake == Mistake::FailsToAcknowledge {
            return Err(Fault::fatal(codes::REFUSED, "it cannot"));
        }
        self.rows.lock().unwrap().retain(|row| !positions.contains(&position(*row)));
        Ok(())
    }
}

async fn checked(mistake: Mistake) -> Result<Vec<u64>, String> {
    let fresh = async || {
        let rows = Arc::new(Mutex::new((0..10).collect()));
        Arc::new(Numbers { mistake, rows }) as Arc<dyn Source>
    };
    check_source(fresh).await.map(|records| rows(&records)).map_err(|broken| broken.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_source_that_keeps_its_promises_passes() {
    assert_eq!(checked(Mistake::None).await.unwrap(), [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]);
}

#[tokio::test(start_paused = true)]
async fn each_mistake_is_found() {
    for (mistake, message) in [
        (Mistake::EmptyPositions, "a record has an empty position"),
        (Mistake::EqualPositions, "two records have the position \"0\""),
        (Mistake::RefusesItsPositions, "the source does not accept its own position \"0\": it is none"),
        (Mistake::IgnoresRows, "a read returns 2 rows, with room for 1 row"),
        (Mistake::IgnoresBytes, "a read returns 5 rows, with room for 1 byte"),
        (Mistake::SkipsAfterAMark, "after storing 1 record without an acknowledgement, the source reads"),
        (Mistake::RepeatsTheMark, "after storing 1 record without an acknowledgement, the source reads"),
        (Mistake::DeletesWhatItReads, "after storing 0 records without an acknowledgement, the source reads []"),
        (Mistake::DeletesWhatItRereads, "from the beginning, after acknowledging 1 record, the source reads"),
        (Mistake::LosesCancelledReads, "with reads that are cancelled, the source reads"),
        (
            Mistake::DoesNotWait,
            "after it has caught up, the source does not wait for more records: it returns CaughtUp",
        ),
        (Mistake::ChangesContent, "with room for 1 row, the source reads"),
        (Mistake::FailsToAcknowledge, "an acknowledgement fails: it cannot"),
    ] {
        let found = checked(mistake).await.unwrap_err();
        assert!(found.starts_with(message), "{mistake:?}: {found}");
    }
}
