//! Several copies of a chain: whole strips in turn to each, their output in the order of the input.

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

/// Strips that one worker has: the one it works on and the next.
pub(super) const WINDOW: usize = 2;
/// Pieces that wait for their turn to leave, per worker.
pub(super) const REPLIES: usize = 4;

/// What a worker says about the strips it was given, in their order.
pub(super) enum Reply {
    /// A piece that reached the end of the chain.
    Piece(Batch),
    /// Rows that did not.
    Left(Leftover),
    /// The strip is done.
    Done,
    /// The worker cannot go on.
    Failed(Fault),
}

/// The stage's end of a worker, be it a task or a thread.
pub(super) struct Worker {
    pub(super) strips: mpsc::Sender<Batch>,
    pub(super) replies: mpsc::Receiver<Reply>,
}

/// The worker's end.
pub(super) struct Desk {
    pub(super) strips: mpsc::Receiver<Batch>,
    pub(super) replies: mpsc::Sender<Reply>,
}

pub(super) fn worker() -> (Worker, Desk) {
    let (strips, their_strips) = mpsc::channel(WINDOW);
    let (their_replies, replies) = mpsc::channel(REPLIES);
    (Worker { strips, replies }, Desk { strips: their_strips, replies: their_replies })
}

/// Hands strip `i` to worker `i mod n` and takes the replies in the same order.
pub(super) async fn run(mut workers: Vec<Worker>, mut input: Receiver, output: Output) -> Result<(), Interrupt> {
    let n = workers.len();
    let gone = || Fault::fatal("worker_gone", "a worker ended without a word");
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
                    // A worker that is gone says why when its turn to reply comes.
                    let _ = workers[given % n].strips.send(batch).await;
                    given += 1;
                }
                None => open = false,
            },
        }
    }
    // They close their operators and end.
    for Worker { strips, mut replies } in workers {
        drop(strips);
        if let Some(Reply::Failed(fault)) = replies.recv().await {
            return Err(fault.into());
        }
    }
    Ok(())
}

/// Whose turn it is to reply.
fn turn(taken: usize, given: usize, workers: usize) -> usize {
    if mutant!(WorkersOutOfTurn) && given - taken > 1 { (taken + 1) % workers } else { taken % workers }
}

/// The next strip; a stage that has others under way is not idle while it waits.
pub(super) async fn receive(input: &mut Receiver, idle: bool) -> Option<Batch> {
    if idle { input.recv_idle().await } else { input.recv().await }
}

/// One piece of work of a strip: what left it, and the next piece of output, if there is one more. A failure ends the
/// run here already: by the time the stage hears of it, the loss of the rows at hand might have ended the run.
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
    let (worker, mut desk) = worker();
    let work = async move {
        let mut since = Instant::now();
        while let Some(batch) = desk.strips.recv().await {
            steps.push(batch);
            loop {
                let (left, piece) = match advance(&mut steps, &output) {
                    Ok(found) => found,
                    Err(fault) => {
                        let _ = desk.replies.send(Reply::Failed(fault)).await;
                        return;
                    }
                };
                let end = piece.is_none();
                let replies = [left.map(Reply::Left), Some(piece.map_or(Reply::Done, Reply::Piece))];
                for reply in replies.into_iter().flatten() {
                    if desk.replies.send(reply).await.is_err() {
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
