//! Several copies of a chain: each gets whole strips in turn, and the output is in the order of the input.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::operator::Operator;
use anabranch_record::fault::Fault;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Interrupt;
use super::chain::Steps;
use super::context::Context;
use super::fan_out::Output;
use super::queue::Receiver;
use crate::batch::{Batch, Leftover};
use crate::codes;

/// Maximum number of strips of a worker: the current one and the next.
pub(super) const WINDOW: usize = 2;
/// Maximum number of replies of a worker that wait for their turn.
pub(super) const REPLIES: usize = 4;

/// Reply of a worker about the strips it was given, in their order.
pub(super) enum Reply {
    /// Rows that reached the end of the chain.
    Piece(Batch),
    /// Rows that were filtered or failed.
    Left(Leftover),
    /// The strip is finished.
    Done,
    /// The worker cannot continue.
    Failed(Fault),
}

/// The stage's end of the channels to a worker, which is a task or a thread.
pub(super) struct Worker {
    pub(super) strips: mpsc::Sender<Batch>,
    pub(super) replies: mpsc::Receiver<Reply>,
}

/// The worker's end of the channels.
pub(super) struct WorkerChannels {
    pub(super) strips: mpsc::Receiver<Batch>,
    pub(super) replies: mpsc::Sender<Reply>,
}

pub(super) fn worker() -> (Worker, WorkerChannels) {
    let (strips, their_strips) = mpsc::channel(WINDOW);
    let (their_replies, replies) = mpsc::channel(REPLIES);
    (Worker { strips, replies }, WorkerChannels { strips: their_strips, replies: their_replies })
}

/// Sends strip `i` to worker `i mod n`, and receives the replies in the same order.
pub(super) async fn run(mut workers: Vec<Worker>, mut input: Receiver, output: Output) -> Result<(), Interrupt> {
    let n = workers.len();
    let gone = || Fault::fatal(codes::WORKER_GONE, "a worker ended without a message");
    let (mut given, mut taken) = (0usize, 0usize);
    let mut open = true;
    while open || taken < given {
        tokio::select! {
            biased;
            reply = workers[turn(taken, given, n)].replies.recv(), if taken < given => match reply.ok_or_else(gone)? {
                Reply::Piece(piece) => output.emit(piece).await?,
                Reply::Left(left) => output.put_aside(left).await?,
                Reply::Done => taken += 1,
                Reply::Failed(fault) => return Err(fault.into()),
            },
            batch = receive(&mut input, taken == given), if open && given - taken < n * WINDOW => match batch {
                Some(batch) => {
                    // A worker that has ended reports the reason when it is its turn to reply.
                    let _ = workers[given % n].strips.send(batch).await;
                    given += 1;
                }
                None => open = false,
            },
        }
    }
    // The workers close their operators and end.
    for Worker { strips, mut replies } in workers {
        drop(strips);
        if let Some(Reply::Failed(fault)) = replies.recv().await {
            return Err(fault.into());
        }
    }
    Ok(())
}

/// Returns the worker whose turn it is to reply.
fn turn(taken: usize, given: usize, workers: usize) -> usize {
    if mutant!(WorkersOutOfTurn) && given - taken > 1 { (taken + 1) % workers } else { taken % workers }
}

/// Returns the next strip. A stage with other strips in progress is not idle while it waits.
pub(super) async fn receive(input: &mut Receiver, idle: bool) -> Option<Batch> {
    if idle { input.recv_idle().await } else { input.recv().await }
}

/// Performs the next piece of work on a strip. Returns the rows that left it, and the next output unless the strip is
/// finished. A failure ends the run right here: before the stage receives it, the loss of the current rows could end
/// the run with a less useful fault.
pub(super) fn advance<O: Operator + ?Sized>(
    steps: &mut Steps<O>,
    output: &Output,
) -> Result<(Option<Leftover>, Option<Batch>), Fault> {
    let mut left = output.leftover();
    let piece = steps.next(&mut left, &mut output.lend()).and_then(|mut piece| {
        if let Some(piece) = &mut piece {
            output.count(piece)?;
        }
        Ok(piece)
    });
    let piece = piece.inspect_err(|fault| {
        if !mutant!(WorkerFailsSilently) {
            output.context.fail(fault.clone());
        }
    })?;
    Ok(((!left.is_empty()).then_some(left), piece))
}

/// Starts a worker as a task.
pub(super) fn spawn(context: &Arc<Context>, mut steps: Steps<dyn Operator + Send>, output: Output) -> Worker {
    let (worker, mut channels) = worker();
    let work = async move {
        let mut since = Instant::now();
        while let Some(batch) = channels.strips.recv().await {
            steps.push(batch);
            loop {
                let (left, piece) = match advance(&mut steps, &output) {
                    Ok(found) => found,
                    Err(fault) => {
                        let _ = channels.replies.send(Reply::Failed(fault)).await;
                        return;
                    }
                };
                let end = piece.is_none();
                let replies = [left.map(Reply::Left), Some(piece.map_or(Reply::Done, Reply::Piece))];
                for reply in replies.into_iter().flatten() {
                    if channels.replies.send(reply).await.is_err() {
                        return;
                    }
                }
                if since.elapsed() > Duration::from_micros(500) {
                    tokio::task::yield_now().await;
                    since = Instant::now();
                }
                if end {
                    break;
                }
            }
        }
        steps.close(&output.context);
    };
    drop(context.spawn(work));
    worker
}
