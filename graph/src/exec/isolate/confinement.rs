//! A thread for operators that may never return: it can be given up without losing a row.
//!
//! Rows stay with the chain, the confined thread works on copies. Where it does not get past a row in the operator's
//! patience, that row fails, the thread is left to itself, and a fresh one does the other rows of the call again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use std::{cell::RefCell, fmt};

use tokio::runtime::Handle;

use super::STACK;
use crate::exec::chain::text;
use crate::exec::context::Context;
use crate::exec::open::{build, wrong_class};
use crate::fault::Fault;
use crate::operator::{BuiltOperator, Decision, Operator, Rows};
use crate::plan::stage::StepSpec;
use crate::record::Record;

/// Threads that a run gives up before it ends itself: each may keep a core busy for ever.
const MOST_GIVEN_UP: usize = 4;

/// The confined operators of a chain. Those without patience are not its business.
pub(super) struct Confinement {
    context: Arc<Context>,
    steps: Arc<[StepSpec]>,
    number: usize,
    runtime: Handle,
    /// None after it was given up.
    thread: RefCell<Option<Thread>>,
}

struct Thread {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
    /// The row that it is at.
    progress: Arc<AtomicUsize>,
}

enum Order {
    Process { step: usize, records: Vec<Record> },
    Close { step: usize },
}

enum Answer {
    Opened(Result<(), Fault>),
    Processed(Processed),
    Closed(Result<(), Fault>),
}

/// What became of the rows of a call.
struct Processed {
    records: Vec<Record>,
    decisions: Vec<(usize, Decision)>,
    /// The row at which the operator panicked, and what it said.
    panicked: Option<(Option<usize>, String)>,
}

/// Why there is no answer.
enum Silence {
    /// It does not get past this row.
    Stuck(usize),
    /// The thread is not there.
    Gone(Fault),
}

impl fmt::Debug for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confinement").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Confinement {
    /// Starts the thread and opens the operators that have patience.
    pub(super) fn open(
        context: &Arc<Context>,
        steps: &Arc<[StepSpec]>,
        number: usize,
        runtime: &Handle,
    ) -> Result<Rc<Self>, Fault> {
        let confinement = Confinement {
            context: context.clone(),
            steps: steps.clone(),
            number,
            runtime: runtime.clone(),
            thread: RefCell::default(),
        };
        *confinement.thread.borrow_mut() = Some(confinement.launch()?);
        Ok(Rc::new(confinement))
    }

    /// The operator of a step, as the chain sees it.
    pub(super) fn operator(self: &Rc<Self>, step: usize, patience: Duration) -> Box<dyn Operator> {
        Box::new(Confined { step, patience, confinement: self.clone() })
    }

    fn launch(&self) -> Result<Thread, Fault> {
        let (orders, their_orders) = channel();
        let (their_answers, answers) = channel();
        let progress = Arc::new(AtomicUsize::new(0));
        // A thread that was given up must not keep the run alive.
        let inmate = Inmate {
            context: Arc::downgrade(&self.context),
            steps: self.steps.clone(),
            number: self.number,
            progress: progress.clone(),
        };
        let runtime = self.runtime.clone();
        let name = format!("confined {}", self.steps.first().map_or("", |step| &step.node));
        let live = move || {
            let _entered = runtime.enter();
            inmate.live(&their_orders, &their_answers);
        };
        thread::Builder::new()
            .name(name)
            .stack_size(STACK)
            .spawn(live)
            .map_err(|error| Fault::transient("no_thread", format!("cannot start a thread: {error}")))?;
        let thread = Thread { orders, answers, progress };
        let patience: Duration = self.steps.iter().filter_map(|step| step.operator.patience()).sum();
        match thread.answers.recv_timeout(patience) {
            Ok(Answer::Opened(opened)) => opened.map(|()| thread),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(died()),
            Err(RecvTimeoutError::Timeout) => {
                Err(Fault::fatal("isolate_stuck", format!("a processor did not open in {patience:?}")))
            }
        }
    }

    fn ask(&self, order: Order, patience: Duration) -> Result<Answer, Silence> {
        let mut held = self.thread.borrow_mut();
        let thread = match held.take() {
            Some(thread) => thread,
            None => self.launch().map_err(Silence::Gone)?,
        };
        thread.progress.store(0, Ordering::Relaxed);
        if thread.orders.send(order).is_err() {
            return Err(Silence::Gone(died()));
        }
        let mut seen = None;
        loop {
            match thread.answers.recv_timeout(patience) {
                Ok(answer) => {
                    *held = Some(thread);
                    return Ok(answer);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::Gone(died())),
                Err(RecvTimeoutError::Timeout) => {
                    let at = thread.progress.load(Ordering::Relaxed);
                    if seen == Some(at) {
                        return Err(Silence::Stuck(at));
                    }
                    seen = Some(at);
                }
            }
        }
    }

    /// Counts a thread that was given up; says what becomes of the row.
    fn give_up(&self, patience: Duration) -> Fault {
        let given_up = self.context.given_up.fetch_add(1, Ordering::Relaxed) + 1;
        let what = format!("the processor did not get past this record in {patience:?} and was left behind");
        if given_up > MOST_GIVEN_UP {
            let text = format!("{what}; {MOST_GIVEN_UP} were before, each may still keep a core busy");
            return Fault::fatal("isolate_stuck", text);
        }
        tracing::warn!(pipeline = %self.context.pipeline, given_up, "{what}: its thread may keep a core busy");
        Fault::record("isolate_stuck", what)
    }
}

fn died() -> Fault {
    Fault::record("isolate_died", "the thread of the processor ended")
}

/// Stands for an operator on the confined thread.
struct Confined {
    step: usize,
    patience: Duration,
    confinement: Rc<Confinement>,
}

impl Operator for Confined {
    fn process(&mut self, rows: &mut Rows<'_>) {
        let mut waiting: Vec<usize> = rows.iter_mut().map(|(row, _)| row).collect();
        while !waiting.is_empty() {
            let mut left = waiting.iter().copied().peekable();
            let records = rows.iter_mut().filter(|(row, _)| left.next_if_eq(row).is_some());
            let records = records.map(|(_, record)| record.clone()).collect();
            let order = Order::Process { step: self.step, records };
            match self.confinement.ask(order, self.patience) {
                Ok(Answer::Processed(processed)) => return take(processed, &waiting, rows),
                Err(Silence::Stuck(at)) => {
                    let row = waiting.remove(at.min(waiting.len() - 1));
                    rows.decide(row, Decision::Fail(self.confinement.give_up(self.patience)));
                }
                Ok(Answer::Opened(_) | Answer::Closed(_)) => return fail(&died(), &waiting, rows),
                Err(Silence::Gone(fault)) => return fail(&fault, &waiting, rows),
            }
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        match self.confinement.ask(Order::Close { step: self.step }, self.patience) {
            Ok(Answer::Closed(closed)) => closed,
            Ok(_) => Err(died()),
            Err(Silence::Gone(fault)) => Err(fault),
            Err(Silence::Stuck(_)) => {
                Err(Fault::record("isolate_stuck", format!("the processor did not close in {:?}", self.patience)))
            }
        }
    }
}

fn fail(fault: &Fault, waiting: &[usize], rows: &mut Rows<'_>) {
    waiting.iter().for_each(|row| rows.decide(*row, Decision::Fail(fault.clone())));
}

/// Puts what the thread made of copies in the place of the rows.
fn take(processed: Processed, waiting: &[usize], rows: &mut Rows<'_>) {
    let Processed { records, decisions, panicked } = processed;
    let mut left = waiting.iter().copied().zip(records).peekable();
    for (row, record) in rows.iter_mut() {
        if let Some((_, new)) = left.next_if(|(next, _)| *next == row) {
            *record = new;
        }
    }
    rows.append(decisions.into_iter().filter_map(|(at, decision)| Some((*waiting.get(at)?, decision))));
    if let Some((at, message)) = panicked {
        rows.reach(at.and_then(|at| waiting.get(at).copied()));
        resume_unwind(Box::new(message));
    }
}

/// What the confined thread begins with.
struct Inmate {
    context: Weak<Context>,
    steps: Arc<[StepSpec]>,
    number: usize,
    progress: Arc<AtomicUsize>,
}

impl Inmate {
    fn live(self, orders: &Receiver<Order>, answers: &Sender<Answer>) {
        let built = catch_unwind(AssertUnwindSafe(|| self.build())).unwrap_or_else(|panic| {
            Err(Fault::fatal("operator_panicked", format!("opening a processor panicked: {}", text(&*panic))))
        });
        let mut operators = match built {
            Ok(operators) => operators,
            Err(fault) => {
                let _ = answers.send(Answer::Opened(Err(fault)));
                return;
            }
        };
        if answers.send(Answer::Opened(Ok(()))).is_err() {
            return;
        }
        while let Ok(order) = orders.recv() {
            let answer = match order {
                Order::Process { step, records } => match operators.get_mut(step) {
                    Some(Some(operator)) => Answer::Processed(process(&mut **operator, records, &self.progress)),
                    _ => return,
                },
                Order::Close { step } => Answer::Closed(match operators.get_mut(step) {
                    Some(Some(operator)) => catch_unwind(AssertUnwindSafe(|| operator.close()))
                        .unwrap_or_else(|panic| Err(Fault::record("operator_panicked", text(&*panic).to_owned()))),
                    _ => Ok(()),
                }),
            };
            if answers.send(answer).is_err() {
                break;
            }
        }
        // After a panic it is not certain that they can be dropped.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(operators)));
    }

    /// One operator per step; those without patience live with the chain.
    fn build(&self) -> Result<Vec<Option<Box<dyn Operator>>>, Fault> {
        let Some(context) = self.context.upgrade() else { return Err(died()) };
        let confined = |step: &StepSpec| {
            if step.operator.patience().is_none() {
                return Ok(None);
            }
            match build(&context, step, self.number)? {
                BuiltOperator::Isolate(operator) => Ok(Some(operator)),
                BuiltOperator::Inline(_) | BuiltOperator::Async(_) => Err(wrong_class(step)),
            }
        };
        self.steps.iter().map(confined).collect()
    }
}

fn process(operator: &mut dyn Operator, mut records: Vec<Record>, progress: &AtomicUsize) -> Processed {
    let mut decisions = Vec::new();
    let mut rows = Rows::new(&mut records, None, &mut decisions).watched(progress);
    let result = catch_unwind(AssertUnwindSafe(|| operator.process(&mut rows)));
    let current = rows.current();
    let panicked = result.err().map(|panic| (current, text(&*panic).to_owned()));
    Processed { records, decisions, panicked }
}
