//! Writes a transactional destination. A transaction holds whole source rows: all rows below its marks and none above
//! them. Therefore a replay from the marks neither duplicates nor omits rows.
//!
//! Rows that are not gathered yet are held back. Meanwhile the writer continues to receive rows, so that the missing
//! ones can arrive. The held rows are part of the rows in flight, limited by the replay window and the number of their
//! pieces.

use std::pin::pin;

use anabranch_plugin::destination::Delivered;
use anabranch_plugin::operator::Decision;
use anabranch_record::fault::Fault;
use tokio::time::{Instant, sleep_until};

use super::Writing;
use crate::batch::Batch;
use crate::exec::Interrupt;
use crate::exec::deliver::Transacted;
use crate::exec::lanes::RunLocation;
use crate::exec::meter::timed;
use crate::exec::parallel::receive;
use crate::exec::queue::Receiver;
use crate::exec::trace::RowOutcome;

/// A row of a batch.
struct Piece {
    /// Index of the row.
    row: usize,
    /// Number of the lane, in order of appearance.
    lane: usize,
    /// Number of the source row that it is a piece of.
    seq: u64,
}

impl Writing {
    /// Like `write_all`, with transactions.
    pub(super) async fn transact_all(&mut self, input: &mut Receiver) -> Result<(), Interrupt> {
        let context = self.output.context.clone();
        let mut held = Batch::new(Vec::new(), self.accepted.sibling(), 0);
        let mut ripe = Instant::now();
        let mut open = true;
        loop {
            let mut more = pin!(context.lanes.more_gathered());
            more.as_mut().enable();
            let empty = held.rows() == 0;
            let due = !empty && (!open || self.is_full(&held) || Instant::now() >= ripe);
            if due {
                let part = self.whole(&mut held)?;
                if let Some(part) = part {
                    self.transact(part).await?;
                    ripe = Instant::now() + self.policy.linger;
                    continue;
                }
                if held.rows() == 0 {
                    continue;
                }
            }
            if !open && empty {
                break;
            }
            tokio::select! {
                biased;
                () = self.gate.asked() => {
                    input.idle().busy();
                    self.delivery.forget_finished().await?;
                    self.flush().await?;
                }
                next = receive(input, empty), if open => match next {
                    Some(batch) => {
                        if empty {
                            ripe = Instant::now() + self.policy.linger;
                        }
                        self.hold(&mut held, batch)?;
                        while !self.is_full(&held) && let Some(batch) = input.try_recv() {
                            self.hold(&mut held, batch)?;
                        }
                    }
                    None => open = false,
                },
                () = more, if due => {}
                () = sleep_until(ripe), if !empty && !due && !mutant!(LingerForever) => {}
            }
        }
        self.flush().await?;
        self.delivery.writer.close().await?;
        Ok(())
    }

    fn hold(&self, held: &mut Batch, batch: Batch) -> Result<(), Fault> {
        self.arrived(&batch)?;
        held.merge(batch);
        Ok(())
    }

    /// Removes and returns rows that may be written in one transaction: the number of rows in the policy, and the rest
    /// of the last source row.
    fn whole(&self, held: &mut Batch) -> Result<Option<Batch>, Fault> {
        let mut places = self.places(held);
        if places.iter().any(|place| !place.ours) {
            self.give_up(held, &places, |place| !place.ours)?;
            places = self.places(held);
        }
        if places.iter().any(|place| place.first < place.had) {
            let had: Vec<usize> = {
                let had = pieces(&places, |place, seq| seq < place.had);
                had.into_iter().map(|piece| piece.row).collect()
            };
            // The destination has them from before the restart or the new assignment of the partition, so they are
            // delivered.
            let had = held.pick(&had);
            self.delivered(had.into_parts().1)?;
            places = self.places(held);
        }
        if places.iter().all(|place| place.first >= place.gathered) {
            return Ok(None);
        }
        let each = (held.bytes() / held.rows().max(1)).max(1);
        let most = self.policy.rows.min(self.policy.bytes / each).max(1);
        let rows = arranged(pieces(&places, |place, seq| seq < place.gathered), most);
        Ok(Some(held.pick(&rows)))
    }

    fn places(&self, batch: &Batch) -> Vec<RunLocation> {
        self.output.context.lanes.places(batch.lineage(), |lane| self.delivery.known.get(lane))
    }

    /// Removes rows of lanes that the run does not own. They are not written: the new owner of the partition reads
    /// them, or this run reads them again.
    fn give_up(
        &self,
        batch: &mut Batch,
        places: &[RunLocation],
        is_gone: impl Fn(&RunLocation) -> bool,
    ) -> Result<(), Fault> {
        let gone: Vec<usize> = pieces(places, |place, _| is_gone(place)).into_iter().map(|piece| piece.row).collect();
        let lineage = batch.pick(&gone).into_parts().1;
        self.output.context.lanes.give_up(&lineage);
        self.delivered(lineage)
    }

    /// Writes whole source rows except those that are rejected.
    async fn transact(&mut self, rows: Batch) -> Result<(), Interrupt> {
        self.show(&rows);
        let mut parts = Vec::from([rows]);
        while let Some(mut part) = parts.pop() {
            if let Some(bucket) = &self.bucket {
                bucket.take(part.rows()).await;
            }
            let context = self.output.context.clone();
            let mut last = context.lanes.last_rows(part.lineage());
            // While the run waits for dead letters, rejected rows may be settled and their lanes replaced.
            let pinned = last.clone();
            context.lanes.pin(&pinned);
            let mut marks = context.lanes.marks(&last)?;
            while part.rows() > 0 {
                if !context.lanes.begin_transaction(&last) {
                    let gone = context.lanes.gone(&last);
                    let places = self.places(&part);
                    self.give_up(&mut part, &places, |place| gone.contains(&place.lane))?;
                    let mut lanes = last.iter();
                    marks.retain(|_| lanes.next().is_some_and(|(lane, _)| !gone.contains(lane)));
                    last.retain(|(lane, _)| !gone.contains(lane));
                    continue;
                }
                let since = self.tracer.as_ref().map(|_| Instant::now());
                let outcome = timed(self.delivery.transact(part.records(), &marks), &self.meters).await;
                context.lanes.end_transaction(&last);
                let refused = match outcome? {
                    Transacted::Written => {
                        self.trace(&part, since, |_| Some(RowOutcome::Delivered(Delivered::Durable)));
                        self.delivered(part.into_parts().1)?;
                        break;
                    }
                    Transacted::Refused(refused) => refused,
                    Transacted::Unfit(fault) => {
                        let half = self.half(&part);
                        if half.is_empty() {
                            (0..part.rows()).map(|row| (row, fault.clone())).collect()
                        } else {
                            let first = part.pick(&half);
                            parts.extend([part, first]);
                            break;
                        }
                    }
                };
                self.trace(&part, since, |row| {
                    let at = refused.binary_search_by_key(&row, |(row, _)| *row).ok()?;
                    Some(RowOutcome::Failed(&refused[at].1))
                });
                self.refuse(&mut part, refused).await?;
                // The marks of this part or the next one cover the rejected rows, so their dead letters must be durable
                // first.
                loop {
                    let mut more = pin!(context.lanes.more_gathered());
                    more.as_mut().enable();
                    if context.lanes.are_gathered(&last) {
                        break;
                    }
                    more.await;
                }
            }
            context.lanes.unpin(&pinned);
            if self.gate.is_wanted() {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Returns approximately the first half of several source rows.
    fn half(&self, part: &Batch) -> Vec<usize> {
        let all = pieces(&self.places(part), |_, _| true);
        let last = all.iter().map(|piece| (piece.lane, piece.seq)).max();
        let before_last =
            all.iter().filter(|piece| Some((piece.lane, piece.seq)) != last).map(|piece| piece.row).collect();
        let (rows, middle) = (all.len(), all.len() / 2);
        let first = arranged(all, middle.max(1));
        // If the middle is in the last source row, return the rows before it.
        if first.len() < rows { first } else { before_last }
    }

    /// Sends rejected rows to the dead-letter queue.
    async fn refuse(&mut self, part: &mut Batch, refused: Vec<(usize, Fault)>) -> Result<(), Interrupt> {
        let fail = |(row, fault): (usize, Fault)| (row, Decision::Fail(fault.at(&self.connector)));
        let mut decisions = refused.into_iter().map(fail).collect();
        let mut left = self.output.leftover();
        part.apply(&mut decisions, &mut left, &mut self.output.lend())?;
        self.fail(left.failed).await
    }
}

/// Returns the rows for which `wanted` is true, in batch order.
fn pieces(places: &[RunLocation], wanted: impl Fn(&RunLocation, u64) -> bool) -> Vec<Piece> {
    let mut lanes = Vec::new();
    let mut row = 0;
    let mut pieces = Vec::new();
    for place in places {
        let lane = lanes.iter().position(|lane| *lane == place.lane).unwrap_or_else(|| {
            lanes.push(place.lane);
            lanes.len() - 1
        });
        for i in 0..place.rows {
            let seq = if place.pieces { place.first } else { place.first + i as u64 };
            if wanted(place, seq) {
                pieces.push(Piece { row, lane, seq });
            }
            row += 1;
        }
    }
    pieces
}

/// Returns at most `most` rows, and the rest of the last source row. They are in order of arrival if that is the order
/// of the lane, otherwise lane by lane, in order of first appearance. The rows taken from a lane precede those not
/// taken.
fn arranged(mut pieces: Vec<Piece>, most: usize) -> Vec<usize> {
    let key = |piece: &Piece| (piece.lane, piece.seq);
    if !pieces.is_sorted_by_key(key) && (pieces.len() > most || !in_order(&pieces)) {
        pieces.sort_by_key(key);
    }
    if pieces.len() > most {
        let last = key(&pieces[most - 1]);
        let end = most + pieces[most..].iter().take_while(|piece| key(piece) == last).count();
        pieces.truncate(end);
    }
    pieces.into_iter().map(|piece| piece.row).collect()
}

/// Returns `true` if the rows of each lane are in lane order.
fn in_order(pieces: &[Piece]) -> bool {
    let mut latest: Vec<u64> = Vec::new();
    pieces.iter().all(|piece| {
        if latest.len() <= piece.lane {
            latest.resize(piece.lane + 1, 0);
        }
        let before = std::mem::replace(&mut latest[piece.lane], piece.seq);
        before <= piece.seq
    })
}
