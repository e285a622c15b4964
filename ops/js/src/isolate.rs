//! An isolated instance of a script, one per processor and worker. Its globals keep their values from record to record.

mod conversion;
mod envelope;
mod globals;
mod lasting;
mod view;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::Path as FilePath;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as Waiting, Poll, Waker};
use std::time::{Instant, UNIX_EPOCH};

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_template::processor_time::taken_by_thread;
use boa_engine::builtins::promise::{Promise, PromiseState};
use boa_engine::context::Clock;
use boa_engine::context::time::{JsInstant, StdClock};
use boa_engine::job::{Job, JobExecutor, SimpleJobExecutor};
use boa_engine::object::builtins::JsPromise;
use boa_engine::property::Attribute;
use boa_engine::{
    Context, JsArgs, JsError, JsNativeError, JsObject, JsResult, JsValue, NativeFunction, Script, Source, js_string,
};

use crate::codes;
use crate::limits::{Limits, UNSCHEDULED};
use crate::log::LineReceiver;
use crate::outcome::ScriptOutcome;
use crate::position::{PATH, Position};
use crate::program::Program;
use crate::wire::Wants;
use conversion::leave::Leave;
use conversion::path::{Path, Unfit, described};
use conversion::time;
use envelope::ShownValue;

/// Calls `process` with the current record. The engine limits the time of scripts, not of functions.
const CALL: &str = "process(__anabranch_record())";

/// Like [`CALL`], for reused objects, which depend on the function that is called.
const CALL_KNOWN: &str = "process(__anabranch_record(process))";

/// Instructions between two checks of the clock, about one millisecond.
const SLICE: u32 = 50_000;

/// Maximum call depth. The engine's frames take stack of the thread only if native functions call back.
const RECURSION: usize = 512;
/// Maximum number of values on the engine's stack: `apply` with an array pushes all its items.
const STACK: usize = 8 << 20;

/// Failure of a call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The script failed; the next record may succeed.
    Record(Fault),
    /// The script was interrupted, so the isolate is unusable.
    Stopped(Fault),
    /// The script was not called, because it would see that parts of the record are missing.
    Unseen,
}

/// A script that is ready for records.
pub(crate) struct Isolate {
    context: Context,
    jobs: Rc<Jobs>,
    call: Script,
    program: Program,
    limits: Limits,
    /// Parts of records that the script can read, valid while its objects are reused.
    wants: Rc<Wants>,
}

/// Job queue of promises. The engine's own executor is slow to find that it is empty.
#[derive(Default)]
struct Jobs {
    waiting: Cell<bool>,
    queue: Rc<SimpleJobExecutor>,
}

impl JobExecutor for Jobs {
    fn enqueue_job(self: Rc<Self>, job: Job, context: &mut Context) {
        self.waiting.set(true);
        self.queue.clone().enqueue_job(job, context);
    }

    fn run_jobs(self: Rc<Self>, context: &mut Context) -> JsResult<()> {
        self.queue.clone().run_jobs(context)
    }
}

/// Time of day as all processors of a pipeline see it, and a monotonic clock.
#[derive(Default)]
struct Clocks(StdClock);

impl Clock for Clocks {
    fn now(&self) -> JsInstant {
        self.0.now()
    }

    fn system_time_millis(&self) -> i64 {
        let since = anabranch_record::clock::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// The current record, with which `process` is called.
#[derive(Default)]
struct AtHand {
    record: RefCell<Option<Record>>,
    /// True if the record holds only the parts that the script was seen to use.
    is_part: Cell<bool>,
    /// True if a function other than the analyzed one was about to receive a partial record.
    unseen: Cell<bool>,
}

impl Isolate {
    /// Evaluates the script, which must then have defined `process`.
    pub(crate) fn open(program: &Program, limits: Limits, lines: &Rc<dyn LineReceiver>) -> Result<Self, Failure> {
        let jobs = Rc::new(Jobs::default());
        let mut context = match Context::builder().job_executor(jobs.clone()).clock(Rc::new(Clocks::default())).build()
        {
            Ok(context) => context,
            Err(error) => return Err(Failure::Stopped(Fault::fatal(codes::SCRIPT_FAILED, first_line(&error)))),
        };
        let prepared = prepare(&mut context, lines).and_then(|()| {
            let calls = [CALL, CALL_KNOWN].map(|call| Script::parse(Source::from_bytes(call), None, &mut context));
            let source = Source::from_bytes(program.text.as_bytes()).with_path(FilePath::new(PATH));
            Ok((calls, Script::parse(source, None, &mut context)?))
        });
        let ([call, call_known], script) = match prepared {
            Ok(scripts) => scripts,
            Err(error) => return Err(Failure::Stopped(threw(&error, program, &mut context))),
        };
        let mut isolate =
            Isolate { context, jobs, call: script, program: program.clone(), limits, wants: Rc::new(Wants::ALL) };
        isolate.evaluate().map_err(|failure| match failure {
            Failure::Record(fault) | Failure::Stopped(fault) => Failure::Stopped(fault),
            Failure::Unseen => Failure::Unseen,
        })?;
        let _ = isolate.context.run_jobs();
        let process = isolate.context.eval(Source::from_bytes("process"));
        let Some(process) = process.ok().and_then(|process| process.as_callable()) else {
            let text = format!("{} defines no function named process", program.name);
            return Err(Failure::Stopped(Fault::fatal(codes::SCRIPT_NO_PROCESS, text)));
        };
        let call = match lasting::make(&process, &mut isolate.context) {
            Ok(true) => call_known,
            Ok(false) => call,
            Err(error) => Err(error),
        };
        match call {
            Ok(call) => Ok(Isolate { call, wants: Rc::new(lasting::wanted(&isolate.context)), ..isolate }),
            Err(error) => Err(Failure::Stopped(threw(&error, program, &mut isolate.context))),
        }
    }

    /// Returns the parts of a record for which [`Isolate::process`] gives the same result as for the whole. They may
    /// grow with each record.
    pub(crate) fn wants(&mut self) -> Rc<Wants> {
        if *self.wants != Wants::ALL && !lasting::lasts(&self.context) {
            self.wants = Rc::new(Wants::ALL);
        }
        self.wants.clone()
    }

    /// Processes a record, which may hold only the parts in [`Isolate::wants`].
    pub(crate) fn process(&mut self, record: &Record, is_part: bool) -> Result<ScriptOutcome, Failure> {
        view::begin(&self.context);
        if let Some(at_hand) = self.context.get_data::<AtHand>() {
            at_hand.record.replace(Some(record.clone()));
            at_hand.is_part.set(is_part);
        }
        let value = self.evaluate();
        if is_part && self.context.get_data::<AtHand>().is_some_and(|at_hand| at_hand.unseen.take()) {
            return Err(Failure::Unseen);
        }
        let value = value?;
        let value = self.settled(value)?;
        self.outcome(&value, record)
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Evaluates the current script within the limits.
    fn evaluate(&mut self) -> Result<JsValue, Failure> {
        let result = {
            let mut evaluation = pin!(self.call.evaluate_async_with_budget(&mut self.context, SLICE));
            let mut waiting = Waiting::from_waker(Waker::noop());
            let mut since = None;
            loop {
                match evaluation.as_mut().poll(&mut waiting) {
                    Poll::Ready(result) => break Some(result),
                    Poll::Pending => {
                        let (since, taken) = *since.get_or_insert_with(|| (Instant::now(), taken_by_thread()));
                        // Time in which the thread had no processor does not count.
                        let longest = self.limits.time + UNSCHEDULED;
                        if since.elapsed() >= self.limits.time
                            && (taken_by_thread() - taken >= self.limits.time || since.elapsed() >= longest)
                        {
                            break None;
                        }
                    }
                }
            }
        };
        match result {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(self.failed(&error)),
            None => Err(Failure::Stopped(Fault::record(
                codes::SCRIPT_TIMEOUT,
                format!("{} was stopped after {:?} (setting timeout)", self.program.name, self.limits.time),
            ))),
        }
    }

    /// Returns the value of a promise, or any other value unchanged.
    fn settled(&mut self, value: JsValue) -> Result<JsValue, Failure> {
        if self.jobs.waiting.take()
            && let Err(error) = self.context.run_jobs()
        {
            return Err(self.failed(&error));
        }
        let promise = value.as_object().filter(|object| object.is::<Promise>());
        let Some(promise) = promise.and_then(|object| JsPromise::from_object(object).ok()) else {
            return Ok(value);
        };
        match promise.state() {
            PromiseState::Fulfilled(value) => Ok(value),
            PromiseState::Rejected(error) => Err(self.failed(&JsError::from_opaque(error))),
            PromiseState::Pending => Err(self.unfit("result", "is a promise that never settles")),
        }
    }

    fn outcome(&mut self, value: &JsValue, input: &Record) -> Result<ScriptOutcome, Failure> {
        if value.is_null_or_undefined() {
            return Ok(ScriptOutcome::Filter);
        }
        let Some(object) = value.as_object().filter(|object| !object.is_callable()) else {
            let what = format!("is {}: return a record, null to drop it, or a list of records", described(value));
            return Err(self.unfit("result", &what));
        };
        let read = if object.is_array() {
            self.list(&object, input).map(ScriptOutcome::Split)
        } else {
            Leave::new(&mut self.context).record(&object, input, Path::new("rec")).map(ScriptOutcome::Keep)
        };
        read.map_err(|unfit| match unfit {
            Unfit::Value { path, what } => self.unfit(&path, &what),
            Unfit::Threw(error) => self.failed(&error),
        })
    }

    fn list(&mut self, list: &JsObject, input: &Record) -> Result<Vec<Record>, Unfit> {
        let length = list.get(js_string!("length"), &mut self.context)?.to_length(&mut self.context)?;
        let root = Path::new("result");
        let mut records = Vec::new();
        for index in 0..length {
            let item = list.get(index, &mut self.context)?;
            let Some(object) = item.as_object().filter(|object| !object.is_callable()) else {
                let what = format!("is {}, not a record", described(&item));
                return Err(Unfit::Value { path: root.item(index).to_string(), what });
            };
            records.push(Leave::new(&mut self.context).record(&object, input, root.item(index))?);
        }
        Ok(records)
    }

    #[cold]
    fn unfit(&self, path: &str, what: &str) -> Failure {
        Failure::Record(Fault::record(codes::SCRIPT_RESULT, format!("{}: {path} {what}", self.program.name)))
    }

    #[cold]
    fn failed(&mut self, error: &JsError) -> Failure {
        let fault = threw(error, &self.program, &mut self.context);
        match error.as_engine() {
            Some(boa_engine::error::EngineError::Panic(_)) => Failure::Stopped(fault),
            _ => Failure::Record(fault),
        }
    }
}

fn prepare(context: &mut Context, lines: &Rc<dyn LineReceiver>) -> JsResult<()> {
    let limits = context.runtime_limits_mut();
    limits.set_recursion_limit(RECURSION);
    limits.set_stack_size_limit(STACK);
    context.insert_data(AtHand::default());
    view::prepare(context)?;
    time::prepare(context)?;
    lasting::prepare(context)?;
    envelope::prepare(context)?;
    globals::define(context, lines)?;
    let at_hand = NativeFunction::from_fn_ptr(at_hand).to_js_function(context.realm());
    context.register_global_property(js_string!("__anabranch_record"), at_hand, Attribute::empty())
}

fn at_hand(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let record = context.get_data::<AtHand>().and_then(|at_hand| at_hand.record.take());
    let record = record.ok_or_else(|| JsNativeError::typ().with_message("there is no record to read"))?;
    let process = args.get_or_undefined(0).as_object();
    if let Some(object) = lasting::record(process.as_ref(), context) {
        envelope::turn(&object, ShownValue::Record(record));
        return Ok(object.into());
    }
    if let Some(at_hand) = context.get_data::<AtHand>().filter(|at_hand| at_hand.is_part.get()) {
        at_hand.unseen.set(true);
        lasting::give_up(context);
        return Err(JsNativeError::typ().with_message("the record is incomplete").into());
    }
    envelope::show(ShownValue::Record(record), context)
}

/// Returns the fault for a thrown error, with its place.
#[cold]
fn threw(error: &JsError, program: &Program, context: &mut Context) -> Fault {
    let place = Position::of_error(error);
    let (code, text) = match (error.as_engine(), error.as_opaque()) {
        (Some(_), _) => (codes::SCRIPT_LIMIT, first_line(error)),
        (None, Some(value)) => (
            codes::SCRIPT_THREW,
            match value.to_string(context) {
                Ok(text) => text.to_std_string_lossy(),
                Err(_) => first_line(error),
            },
        ),
        (None, None) => (codes::SCRIPT_THREW, first_line(error)),
    };
    let name = &program.name;
    match place {
        Some(place) => Fault::record(code, place.fault(format!("{text} (at {name}:{place})"))),
        None => Fault::record(code, format!("{text} (in {name})")),
    }
}

/// Returns the text of an engine error without its backtrace.
fn first_line(error: &JsError) -> String {
    if let Some(native) = error.as_native() {
        return format!("{}: {}", native.kind(), native.message());
    }
    let text = error.to_string();
    text.split("\n    at ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
