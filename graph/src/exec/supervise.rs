//! The course of a run: open, run, drain, and determine the outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anabranch_record::fault::Fault;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Ending;
use super::context::{Context, StopOrder, is_left_over};
use super::open::{OpenedParts, open};
use super::panic;
use crate::codes;
use crate::plan::stage::StagePlan;

/// Maximum wait of a failed run for a commit in progress, so that the positions it stores are acknowledged.
const LAST_COMMIT: Duration = Duration::from_secs(5);

/// Runs a plan to its end and returns the outcome.
pub(super) async fn run(
    context: Arc<Context>,
    plan: Arc<StagePlan>,
    opened: watch::Sender<Option<Result<(), Fault>>>,
) -> Ending {
    let opening = tokio::select! {
        biased;
        () = context.halt.wait() => return Ending::Killed,
        () = context.stopping.wait() => return Ending::Stopped,
        result = AssertUnwindSafe(open(&context, &plan)).catch_unwind() => result.unwrap_or_else(|panic| {
            let what = format!("a panic while the pipeline was opened: {}", panic::message(&*panic));
            Err(Fault::fatal(codes::ENGINE_PANICKED, what))
        }),
    };
    let OpenedParts { stages, drain } = match opening {
        Ok(opening) => opening,
        Err(fault) => {
            context.fail(fault);
            let fault =
                context.fault().unwrap_or_else(|| Fault::fatal(codes::NOT_OPENED, "the run could not be opened"));
            opened.send_replace(Some(Err(fault.clone())));
            return Ending::Faulted(fault);
        }
    };
    let mut running: FuturesUnordered<_> = stages.into_iter().map(|stage| context.spawn_stage(stage)).collect();
    let committing = context.clone();
    let mut commits = context.spawn(async move {
        tokio::select! {
            biased;
            () = committing.killed.wait() => {}
            () = drain.run() => {}
        }
    });
    context.progress.set_opened();
    opened.send_replace(Some(Ok(())));
    drop(opened);

    let mut orders = context.stop_orders();
    let mut order: Option<StopOrder> = None;
    let mut stages_ended = false;
    let mut committed = false;
    let mut expired = false;
    while !(stages_ended && committed) {
        let at = |percent| order.and_then(|order| order.at(percent));
        tokio::select! {
            biased;
            Ok(()) = orders.changed() => order = *orders.borrow_and_update(),
            () = context.alarm.rung(), if !context.halt.is_set() => {
                let what = format!("{} records left the graph without a result", context.alarm.lost());
                context.fail(Fault::fatal(codes::LOST, what));
            }
            ended = running.next(), if !stages_ended => match ended {
                Some(Ok(())) => {}
                Some(Err(_)) if mutant!(StagePanicUnseen) => {}
                Some(Err(error)) => {
                    context.fail(Fault::fatal(codes::ENGINE_PANICKED, format!("a stage of the executor panicked: {}", panic::of_task(error))));
                }
                None => {
                    stages_ended = true;
                    context.drained.set();
                }
            },
            // If the commit loop fails, it ends before the stages, which would then wait for room forever.
            ended = &mut commits, if !committed && (stages_ended || !mutant!(CommitPanicUnseen)) => {
                committed = true;
                if let Err(error) = ended {
                    context.fail(Fault::fatal(codes::ENGINE_PANICKED, format!("the commit loop panicked: {}", panic::of_task(error))));
                }
            }
            () = due(at(60)), if !context.retries_over.is_set() => context.give_up(&context.retries_over),
            () = due(at(85)), if !context.writes_over.is_set() => context.give_up(&context.writes_over),
            () = due(at(100)), if !expired && !mutant!(StopWithoutEnd) => {
                expired = true;
                context.kill();
            }
            () = late(&context, stages_ended), if !committed => {
                commits.abort();
                break;
            }
        }
    }
    let ending = ending(&context, expired);
    if let Some(traces) = &context.traces {
        match &ending {
            Ending::Faulted(fault) => traces.end(&format!("the run failed: {}", fault.message())),
            Ending::Finished | Ending::Stopped | Ending::NotDrained { .. } | Ending::Killed => {
                traces.end("the run ended before everything was delivered");
            }
        }
    }
    ending
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Completes when a failed run has waited long enough for its last commit, in case the store hangs.
async fn late(context: &Context, stages_ended: bool) {
    context.halt.wait().await;
    if stages_ended {
        tokio::time::sleep(LAST_COMMIT).await;
    } else {
        std::future::pending::<()>().await;
    }
}

/// Returns the outcome of a run after every stage and the commit loop have ended.
fn ending(context: &Context, expired: bool) -> Ending {
    let stopping = context.stopping.is_set();
    if let Some(fault) = context.fault() {
        if stopping && is_left_over(&fault) {
            let mut left = context.left();
            left.extend(fault.node().cloned());
            return Ending::NotDrained { left };
        }
        return Ending::Faulted(fault);
    }
    if context.killed.is_set() && !expired {
        return Ending::Killed;
    }
    let unsettled = context.lanes.left();
    let mut left = context.left();
    if (!unsettled.is_empty() || !left.is_empty() || expired) && !mutant!(LeftOverIsDrained) {
        if !stopping {
            let what = format!("rows of {} are not settled although every stage has ended", unsettled.join(", "));
            return Ending::Faulted(Fault::fatal(codes::LOST, what));
        }
        if left.is_empty() {
            left = unsettled;
        }
        return Ending::NotDrained { left };
    }
    let totals = context.progress.totals();
    let adds_up = context.lanes.any_abandoned() || context.lanes.conserved() && totals.balance();
    if !adds_up {
        return Ending::Faulted(Fault::fatal(codes::NOT_CONSERVED, format!("the rows do not add up: {totals:?}")));
    }
    if stopping { Ending::Stopped } else { Ending::Finished }
}
