//! A destination that stores rows and marks in one transaction.

use std::collections::BTreeMap;

use anabranch_plugin::destination::{Delivered, Verdicts};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};

use crate::codes;
use crate::record::copy;
use crate::scenario::{Sink, hits, mix};
use crate::world::World;

/// Stored marks, as a writer last read or wrote them.
pub type KnownMarks = BTreeMap<LaneId, Mark>;

/// Returns the stored marks.
pub async fn marks(
    world: &World,
    destination: usize,
    spec: &Sink,
    known: &mut KnownMarks,
) -> Result<Vec<(LaneId, Mark)>, Fault> {
    let (call, troubled) = {
        let mut state = world.lock();
        (state.next_call(), state.is_troubled())
    };
    world.tick().await;
    if troubled && hits(spec.salt ^ 5, call, spec.fails) {
        return Err(Fault::transient(crate::codes::SIM_PASSING, "the marks cannot be read"));
    }
    *known = world.lock().destinations[destination].marks.clone();
    Ok(known.clone().into_iter().collect())
}

/// Writes one transaction, which is call number `call` of the destination.
pub async fn write(
    world: &World,
    destination: usize,
    spec: &Sink,
    known: &mut KnownMarks,
    rows: &[Record],
    marks: &[(LaneId, Mark)],
) -> Result<Verdicts, Fault> {
    let (call, troubled) = {
        let state = world.lock();
        (state.destinations[destination].calls, state.is_troubled())
    };
    tokio::time::sleep(spec.takes_time(call)).await;
    world.tick().await;
    if troubled && hits(spec.salt ^ 1, call, spec.hangs) {
        world.hang().await;
    }
    let refusal = || Fault::record(anabranch_plugin::testing::codes::REFUSED, "the destination does not want it");
    let unwanted = |(i, row): (usize, &Record)| hits(spec.salt, copy(row).id, spec.refuses).then(|| (i, refusal()));
    let refused: Vec<(usize, Fault)> = rows.iter().enumerate().filter_map(unwanted).collect();
    if let Some((first, _)) = refused.first() {
        // It refuses one row, all rows, or only reports that there are some. The result is the same for all pieces of a
        // source row.
        return match () {
            () if spec.whole => Ok(Verdicts::Refused(vec![(*first, refusal())])),
            () => Ok(Verdicts::Refused(refused)),
        };
    }
    if troubled && hits(spec.salt ^ 7, call, spec.goes_back) {
        world.goes_back(destination, 1 + mix(call, 8) % 4);
    }
    let fails = troubled && hits(spec.salt ^ 2, call, spec.fails);
    if fails && !(spec.ambiguous && mix(call, 9).is_multiple_of(2)) {
        return Err(Fault::transient(crate::codes::SIM_PASSING, "the destination is away"));
    }
    let (moved, went_back) = {
        let destination = &world.lock().destinations[destination];
        (destination.marks != *known, destination.went_back_now)
    };
    if moved && went_back {
        return Err(Fault::transient(codes::MARKS_MOVED, "the destination lost what it had confirmed"));
    }
    if moved {
        world.breaks(|| format!("d{destination} has marks that its writer does not know"));
    }
    for row in rows {
        let id = copy(row).id;
        if world.lock().destinations[destination].durable.contains_key(&id) {
            world.breaks(|| format!("d{destination} stores record {id:x} a second time"));
        }
        world.put(destination, id, true, fails);
    }
    {
        let destination = &mut world.lock().destinations[destination];
        let before = destination.marks.clone();
        destination.transactions.push((rows.iter().map(|row| copy(row).id).collect(), before));
        destination.marks.extend(marks.iter().cloned());
    }
    // A crash can happen before the writer returns.
    world.tick().await;
    if fails {
        return Err(Fault::transient(crate::codes::SIM_PASSING, "the connection was lost"));
    }
    known.extend(marks.iter().cloned());
    Ok(Verdicts::All(Delivered::Durable))
}

/// Removes the marks of lanes in one transaction.
pub async fn forget(
    world: &World,
    destination: usize,
    spec: &Sink,
    known: &mut KnownMarks,
    lanes: &[LaneId],
) -> Result<bool, Fault> {
    let (call, troubled) = {
        let mut state = world.lock();
        (state.next_call(), state.is_troubled())
    };
    world.tick().await;
    let fails = troubled && hits(spec.salt ^ 3, call, spec.fails);
    let passing = || Fault::transient(crate::codes::SIM_PASSING, "the connection was lost");
    if fails && !(spec.ambiguous && mix(call, 9).is_multiple_of(2)) {
        return Err(passing());
    }
    {
        let mut state = world.lock();
        state.note(|| format!("d{destination} forgets {lanes:?}"));
        let marks = &mut state.destinations[destination].marks;
        lanes.iter().for_each(|lane| drop(marks.remove(lane)));
    }
    world.tick().await;
    if fails {
        return Err(passing());
    }
    lanes.iter().for_each(|lane| drop(known.remove(lane)));
    Ok(true)
}
