//! Chains on a thread of their own, for operators that cannot leave their thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use anabranch_plugin::operator::{Configured, Operator};
use anabranch_record::fault::Fault;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::chain::Steps;
use super::context::Context;
use super::fan_out::Output;
use super::open::{check_conditions, operator_context, wrong_stage};
use super::panic;
use super::parallel::{Reply, Worker, WorkerChannels, advance, worker};
use crate::codes;
use crate::plan::stage::StepSpec;
use anabranch_plugin::current::work_for;

/// Stack size of a thread. Interpreters recurse deeply, and only the used part of a stack takes memory.
const STACK: usize = 64 << 20;

type IsolateAnswer = oneshot::Sender<Result<(), Fault>>;

/// State of a thread, which passes to a new thread if its operators cannot be trusted after a panic.
struct Isolate {
    context: Arc<Context>,
    steps: Arc<[StepSpec]>,
    number: usize,
    output: Output,
    channels: WorkerChannels,
    runtime: Handle,
}

/// Starts a worker as a thread, and waits until its operators are open.
pub(super) async fn spawn(
    context: &Arc<Context>,
    steps: Arc<[StepSpec]>,
    number: usize,
    output: Output,
) -> Result<Worker, Fault> {
    let (worker, channels) = worker();
    let isolate = Isolate { context: context.clone(), steps, number, output, channels, runtime: Handle::current() };
    let (said, opened) = oneshot::channel();
    isolate.launch(Some(said))?;
    opened
        .await
        .map_err(|_| Fault::fatal(codes::ISOLATE_DIED, "the thread of the processors ended while they opened"))??;
    Ok(worker)
}

impl Isolate {
    fn launch(self, said: Option<IsolateAnswer>) -> Result<(), Fault> {
        let alive = self.context.alive();
        let name = format!("isolate {}", self.steps.first().map_or("", |step| &step.node));
        let thread = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
            let _alive = alive;
            work_for(&self.context.pipeline);
            self.live(said);
        });
        thread.map(drop).map_err(|error| Fault::transient(codes::NO_THREAD, format!("cannot start a thread: {error}")))
    }

    fn build(&self) -> Result<Steps<dyn Operator>, Fault> {
        check_conditions(&self.steps)?;
        let mut built = Vec::with_capacity(self.steps.len());
        for step in self.steps.iter() {
            let context = operator_context(&self.context, step, self.number);
            let operator: Result<Box<dyn Operator>, Fault> = match &step.operator {
                Configured::Inline(configured) => configured.build(&context).map(|operator| operator as _),
                Configured::Isolate(configured) => configured.build(&context),
                Configured::Async(_) => return Err(wrong_stage(step)),
            };
            built.push((step, operator.map_err(|fault| fault.at(&step.node))?, context));
        }
        Ok(Steps::new(built, true, &self.output))
    }

    /// Runs the thread until its input ends.
    fn live(mut self, said: Option<IsolateAnswer>) {
        let runtime = self.runtime.clone();
        let _entered = runtime.enter();
        let built = catch_unwind(AssertUnwindSafe(|| self.build())).unwrap_or_else(|panic| {
            Err(Fault::fatal(
                codes::OPERATOR_PANICKED,
                format!("opening a processor panicked: {}", panic::message(&*panic)),
            ))
        });
        let mut steps = match (built, said) {
            (Ok(steps), None) => steps,
            (Ok(steps), Some(said)) => {
                let _ = said.send(Ok(()));
                steps
            }
            (Err(fault), Some(said)) => {
                let _ = said.send(Err(fault));
                return;
            }
            (Err(fault), None) => {
                let _ = self.channels.replies.blocking_send(Reply::Failed(fault));
                return;
            }
        };
        while let Some(batch) = self.channels.strips.blocking_recv() {
            steps.push(batch);
            if !self.finish(&mut steps) {
                return;
            }
            if steps.panicked() {
                // The rows have failed. The state of the operators cannot be trusted, and dropping them may panic.
                let _ = catch_unwind(AssertUnwindSafe(move || drop(steps)));
                let replies = self.channels.replies.clone();
                if let Err(fault) = self.launch(None) {
                    let _ = replies.blocking_send(Reply::Failed(fault));
                }
                return;
            }
        }
        steps.close(&self.context);
    }

    /// Processes the strip to its end. Returns `true` if the stage still exists and the chain can continue.
    fn finish(&self, steps: &mut Steps<dyn Operator>) -> bool {
        loop {
            let (left, piece) = match advance(steps, &self.output) {
                Ok(found) => found,
                Err(fault) => {
                    let _ = self.channels.replies.blocking_send(Reply::Failed(fault));
                    return false;
                }
            };
            let end = piece.is_none();
            let replies = [left.map(Reply::Left), Some(piece.map_or(Reply::Done, Reply::Piece))];
            if replies.into_iter().flatten().any(|reply| self.channels.replies.blocking_send(reply).is_err()) {
                return false;
            }
            if end {
                return true;
            }
        }
    }
}
