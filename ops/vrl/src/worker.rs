//! Runs a program on records.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_plugin::operator::{Decision, Pieces};
use anabranch_record::fault::Fault;
use anabranch_record::metadata::Metadata;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record};
use vrl::compiler::runtime::{ExecutionControl, Runtime, Terminate};
use vrl::compiler::{ExpressionError, TimeZone};
use vrl::value::Value as ProgramValue;

use crate::codes;
use crate::fields::{FieldValues, Fields};
use crate::program::{CheckedProgram, PayloadForm};
use crate::source::{ProgramFlaw, ProgramSource};
use crate::spot::{Spot, TargetPart, key_of};
use crate::target::{Content, RecordTarget, Refusal};
use crate::values::{NotRepresentable, TooDeep, leave, leave_object};
use crate::weight::{MOST_LEVELS, TOO_DEEP, weight};
use crate::writes::WrittenPath;

/// Number of expressions between two looks at the clock. A program with fewer does not need it.
const EXPRESSIONS: u32 = 512;

/// What becomes of a record on which the program ends with `abort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAbort {
    /// It is dropped.
    Drop,
    /// It fails.
    Fail,
    /// It stays as it was.
    Keep,
}

/// Limits of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time of one record.
    pub(crate) time: Duration,
    /// Size in bytes of a record, before and after, and of each value that the program sets.
    pub(crate) bytes: usize,
}

impl Limits {
    fn check(self, bytes: usize, what: &str) -> Result<(), Fault> {
        match bytes > self.bytes {
            true => {
                let message = format!("{what} {bytes} bytes, at most {} are allowed", self.bytes);
                Err(Fault::record(codes::VRL_SIZE, message))
            }
            false => Ok(()),
        }
    }
}

/// A program with the state of one worker.
pub(crate) struct Worker {
    program: Arc<CheckedProgram>,
    runtime: Runtime,
    zone: TimeZone,
    on_abort: OnAbort,
    limits: Limits,
    memory: Memory,
}

/// Memory for reuse.
#[derive(Default)]
struct Memory {
    values: FieldValues,
    changed: Vec<bool>,
    changes: Vec<RecordChange>,
}

/// A change of a record. A write is the number of a path that the program writes.
enum RecordChange {
    Data(Side, Data),
    /// The record is replaced by one for each element.
    Payloads(Vec<Data>),
    Field {
        side: Side,
        write: usize,
        value: Option<Value>,
    },
    Metadata(Metadata),
    Entry(Str, Option<Str>),
    Operation(Operation),
}

impl Worker {
    pub(crate) fn new(program: Arc<CheckedProgram>, zone: TimeZone, on_abort: OnAbort, limits: Limits) -> Worker {
        Worker { program, runtime: Runtime::default(), zone, on_abort, limits, memory: Memory::default() }
    }

    /// Runs the program on a record. If it fails, the record is unchanged.
    pub(crate) fn run(&mut self, record: &mut Record) -> Result<Decision, Fault> {
        let checked = &*self.program;
        let form = PayloadForm::of(&record.payload.after);
        let program = checked.of_form(form).map_err(|flaw| unfit(form, flaw))?;
        self.limits.check(record.weight(), "the record has")?;
        let not_representable = |error: NotRepresentable| {
            Fault::record(codes::VRL_VALUE, format!("the program reads a value that it cannot hold: {error}"))
        };
        let Memory { values, changed, changes } = &mut self.memory;
        let content = match &checked.fields {
            Some(table) => Fields::of(table, record, std::mem::take(values)).map(Content::Fields),
            None => checked.loads.whole(record, &checked.sets).map(Content::Whole),
        };
        let content = content.map_err(not_representable)?;
        let mut target = RecordTarget::new(content, &checked.writes, self.limits.bytes, std::mem::take(changed));
        let mut clock = Clock { left: EXPRESSIONS, end: None, limit: self.limits.time };
        let ended = self.runtime.resolve_with_control(&mut target, program, &self.zone, &mut clock);
        self.runtime.clear();
        let ending = Ending { program: checked, on_abort: self.on_abort, limits: self.limits };
        let decision = ending.finish(record, &target, ended, changes);
        let (content, flags) = target.into_parts();
        *changed = flags;
        if let Content::Fields(fields) = content {
            *values = fields.into_memory();
        }
        decision
    }
}

/// How a program ends on a record.
struct Ending<'p> {
    program: &'p CheckedProgram,
    on_abort: OnAbort,
    limits: Limits,
}

impl Ending<'_> {
    /// Applies the changes of a program to its record. If one does not fit, none is applied. `changes` is memory for reuse.
    fn finish(
        &self,
        record: &mut Record,
        target: &RecordTarget<'_>,
        ended: Result<ProgramValue, Terminate>,
        changes: &mut Vec<RecordChange>,
    ) -> Result<Decision, Fault> {
        let program = self.program;
        if let Some(refusal) = target.refusal() {
            return Err(self.refused(refusal));
        }
        match ended {
            Ok(_) => {}
            Err(Terminate::Interrupted) => {
                let message = format!("the program took longer than {:?}", self.limits.time);
                return Err(Fault::record(codes::VRL_TIMEOUT, message));
            }
            Err(Terminate::Abort(ExpressionError::Abort { span, message })) => {
                return match self.on_abort {
                    OnAbort::Drop => Ok(Decision::Filter),
                    OnAbort::Keep => Ok(Decision::Keep),
                    OnAbort::Fail => {
                        let message = message.unwrap_or_else(|| "the program ended with abort".to_owned());
                        Err(Fault::record(codes::VRL_ABORTED, program.source.in_text(span.start(), message)))
                    }
                };
            }
            Err(Terminate::Abort(error) | Terminate::Error(error)) => return Err(failed(&program.source, &error)),
        }
        let bytes = target.changes().filter_map(|(_, value)| value).map(weight).sum();
        self.limits.check(bytes, "the values that the program sets have")?;
        changes.clear();
        for (write, value) in target.changes() {
            changes.extend(change(record, write, &program.writes[write].spot, value)?);
        }
        Ok(apply(record, &program.writes, changes))
    }

    #[cold]
    fn refused(&self, refusal: &Refusal) -> Fault {
        match refusal {
            Refusal::NotStructured(path) => Fault::record(
                codes::VRL_NOT_STRUCTURED,
                format!("the program sets {path}, but the data that would have this field is not structured"),
            ),
            Refusal::TooLarge(bytes) => {
                let most = self.limits.bytes;
                let message = match *bytes {
                    TOO_DEEP => format!("the program sets a value with more than {MOST_LEVELS} levels"),
                    bytes => format!("the program sets a value of {bytes} bytes, at most {most} are allowed"),
                };
                Fault::record(codes::VRL_SIZE, message)
            }
            Refusal::Unannounced(path) => Fault::record(
                codes::VRL_FAILED,
                format!("the program changes {path} in a way that the compiler did not announce; this is a defect"),
            ),
        }
    }
}

/// Returns the fault of a record whose payload has a form for which the program does not compile.
#[cold]
fn unfit(form: PayloadForm, flaw: &ProgramFlaw) -> Fault {
    let message = format!("the program does not compile for a payload that is {}: {}", form.text(), flaw.message);
    Fault::record(codes::VRL_UNFIT, message)
}

/// Looks at the clock now and then.
struct Clock {
    /// Expressions until the next look.
    left: u32,
    /// The end, once the clock was looked at.
    end: Option<Instant>,
    limit: Duration,
}

impl ExecutionControl for Clock {
    fn checkpoint(&mut self) -> ControlFlow<()> {
        self.left -= 1;
        if self.left > 0 {
            return ControlFlow::Continue(());
        }
        self.left = EXPRESSIONS;
        let now = Instant::now();
        // The first expressions took microseconds.
        let end = *self.end.get_or_insert_with(|| now + self.limit);
        if now < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Applies changes, each of which fits.
fn apply(record: &mut Record, writes: &[WrittenPath], changes: &mut Vec<RecordChange>) -> Decision {
    let mut payloads = None;
    for change in changes.drain(..) {
        match change {
            RecordChange::Data(side, data) => *side.of_mut(record) = data,
            RecordChange::Payloads(list) => payloads = Some(list),
            RecordChange::Field { side, write, value } => {
                if let Some(fields) = side.of_mut(record).fields_mut() {
                    set_field(fields, &writes[write].spot.names, value);
                }
            }
            RecordChange::Metadata(metadata) => record.metadata = metadata,
            RecordChange::Entry(key, Some(text)) => drop(record.metadata.insert(key, text)),
            RecordChange::Entry(key, None) => drop(record.metadata.remove(&key)),
            RecordChange::Operation(operation) => record.operation = operation,
        }
    }
    payloads.map_or(Decision::Keep, |list| split(record, list))
}

/// Returns the records that replace one: each has its payload, and shares everything else.
fn split(record: &Record, payloads: Vec<Data>) -> Decision {
    if payloads.is_empty() {
        return Decision::Filter;
    }
    let rest = record.clone();
    let make = move |data: &Data| {
        let mut piece = rest.clone();
        piece.payload.after = data.clone();
        piece
    };
    match payloads.len() <= Pieces::FEW {
        true => Decision::Split(payloads.iter().map(make).collect()),
        false => Decision::Pieces(Pieces::new(payloads.len(), move |at| make(&payloads[at]))),
    }
}

/// Returns the change of a record; `None` if there is none.
fn change(
    record: &Record,
    write: usize,
    spot: &Spot,
    value: Option<&ProgramValue>,
) -> Result<Option<RecordChange>, Fault> {
    let too_deep =
        |error: TooDeep| Fault::record(codes::VRL_RESULT, format!("the program sets {}: {error}", spot.path()));
    Ok(Some(match spot.part {
        TargetPart::Data(side) if spot.names.is_empty() => {
            let before = side.of(record);
            match value {
                Some(ProgramValue::Array(list)) if side == Side::After => RecordChange::Payloads(
                    list.iter().map(|item| data(side, Some(item), before)).collect::<Result<_, _>>()?,
                ),
                value => RecordChange::Data(side, data(side, value, before)?),
            }
        }
        TargetPart::Data(side) => {
            let Some(fields) = side.of(record).fields() else {
                // A field of raw data was removed; one that is set is refused before.
                return Ok(None);
            };
            let before = || field_of(fields, &spot.names);
            let value = match value {
                None if before().is_none() => return Ok(None),
                None => None,
                Some(value) => Some(leave(value, before).map_err(too_deep)?),
            };
            RecordChange::Field { side, write, value }
        }
        TargetPart::Metadata => match spot.names.first() {
            Some(name) => RecordChange::Entry(key_of(name), entry(name, value)?),
            None => {
                let Some(ProgramValue::Object(object)) = value else {
                    return Err(Fault::record(codes::VRL_RESULT, "%metadata is set to a value that is not an object"));
                };
                let mut metadata = Metadata::with_capacity(object.len());
                for (name, value) in object {
                    let name = Str::from(name.as_str());
                    if let Some(text) = entry(&name, Some(value))? {
                        metadata.insert(key_of(&name), text);
                    }
                }
                RecordChange::Metadata(metadata)
            }
        },
        TargetPart::Operation => {
            let text = value.and_then(ProgramValue::as_bytes).and_then(|bytes| std::str::from_utf8(bytes).ok());
            let operation = text.and_then(|text| text.parse().ok()).ok_or_else(|| {
                let found = value.map_or("removed".to_owned(), ProgramValue::to_string);
                Fault::record(
                    codes::VRL_RESULT,
                    format!(
                        "%operation is {found}, and it can only be \"create\", \"update\", \"delete\" or \"snapshot\""
                    ),
                )
            })?;
            RecordChange::Operation(operation)
        }
        TargetPart::Position => return Ok(None),
    }))
}

/// Converts data.
fn data(side: Side, value: Option<&ProgramValue>, before: &Data) -> Result<Data, Fault> {
    match value {
        None | Some(ProgramValue::Null) => Ok(Data::Absent),
        Some(ProgramValue::Object(object)) => leave_object(object, before.fields())
            .map(Data::from)
            .map_err(|error| Fault::record(codes::VRL_RESULT, format!("the program sets {}: {error}", side.as_str()))),
        Some(ProgramValue::Bytes(bytes)) => Ok(Data::Raw(bytes.clone())),
        Some(ProgramValue::String(text)) => Ok(Data::Raw(text.as_bytes().clone())),
        Some(other) => Err(Fault::record(
            codes::VRL_RESULT,
            format!("{} becomes {}, and it can only be an object, a string or null", side.as_str(), other.kind_str()),
        )),
    }
}

/// Converts an entry of the metadata; `None` if it is removed.
fn entry(name: &Str, value: Option<&ProgramValue>) -> Result<Option<Str>, Fault> {
    let not_a_text = |found: &str| {
        Fault::record(
            codes::VRL_RESULT,
            format!("the metadata {:?} becomes {found}, and it can only be a text", name.as_str()),
        )
    };
    Ok(Some(match value {
        None | Some(ProgramValue::Null) => return Ok(None),
        Some(ProgramValue::Bytes(bytes)) => {
            Str::from(std::str::from_utf8(bytes).map_err(|_| not_a_text("bytes that are not UTF-8"))?)
        }
        Some(ProgramValue::String(text)) => Str::from(&**text),
        Some(ProgramValue::Integer(number)) => Str::from(number.to_string()),
        Some(ProgramValue::Float(number)) => Str::from(number.to_string()),
        Some(ProgramValue::Boolean(value)) => Str::from_static(if *value { "true" } else { "false" }),
        Some(ProgramValue::Timestamp(time)) => Str::from(anabranch_record::value::timestamp_text(time)),
        Some(other) => return Err(not_a_text(other.kind_str())),
    }))
}

fn field_of<'o>(object: &'o Object, names: &[Str]) -> Option<&'o Value> {
    let (last, parents) = names.split_last()?;
    let parent = parents.iter().try_fold(object, |object, name| object.get(name)?.as_map())?;
    parent.get(last)
}

/// Sets or removes a field. A parent that is not a map is replaced by one, unless the field is removed.
fn set_field(object: &mut Object, names: &[Str], value: Option<Value>) {
    let Some((name, rest)) = names.split_first() else { return };
    if rest.is_empty() {
        match value {
            Some(value) => drop(object.set(name, value)),
            None => drop(object.remove(name)),
        }
        return;
    }
    if object.get(name).is_none_or(|parent| parent.as_map().is_none()) {
        if value.is_none() {
            return;
        }
        object.insert(name.clone(), Value::from(Object::new()));
    }
    if let Some(parent) = object.get_mut(name).and_then(Value::as_map_mut) {
        set_field(parent, rest, value);
    }
}

/// Returns the fault of an error of the program. The library writes the place into some messages, as bytes.
#[cold]
fn failed(source: &ProgramSource, error: &ExpressionError) -> Fault {
    let ExpressionError::Error { message, labels, .. } = error else {
        return Fault::record(codes::VRL_FAILED, error.to_string());
    };
    let called = called(message);
    let labelled = || labels.first().map(|label| (label.span.start(), message.clone()));
    match called.or_else(labelled) {
        Some((start, message)) => Fault::record(codes::VRL_FAILED, source.in_text(start, message)),
        None => Fault::record(codes::VRL_FAILED, message.clone()),
    }
}

/// Takes the place out of the message of a call, and that of the innermost call out of one whose argument failed.
fn called(message: &str) -> Option<(usize, String)> {
    let (name, rest) = message.strip_prefix("function call error for \"")?.split_once("\" at (")?;
    let (place, rest) = rest.split_once("): ")?;
    let start = place.split_once(':')?.0.parse().ok()?;
    Some(match called(rest) {
        Some((inner, rest)) => (inner, format!("{name}: {rest}")),
        None => (start, format!("{name}: {rest}")),
    })
}
