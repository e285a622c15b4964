//! Evaluation of a compiled template for a record.

use anabranch_record::Record;
use smallvec::{SmallVec, smallvec};

use super::functions::Context;
use super::out::Out;
use super::tree::{Body, Branches, Call, Command, Literal, Node, Offsets, Operand, Pipeline, Range_, Term, Tree};
use super::val::{Text, Val};
use super::{EvalError, MissingKey, Reason, format};

mod argument;
mod call;
mod lookup;
mod watch;

use call::CallArguments;
use lookup::find;

/// Maximum depth of bodies, pipelines and template calls at run time. Each level takes up to a few KiB of stack in a
/// debug build; worker threads have 2 MiB.
const MOST_DEPTH: usize = 250;

type Eval<T> = Result<T, EvalError>;

/// Appends the output to `out`, or leaves it unchanged on failure. Also returns the context with the remaining
/// allowance.
pub(super) fn render(
    tree: &Tree,
    missing: MissingKey,
    record: &Record,
    context: Context,
    out: &mut String,
) -> (Eval<()>, Context) {
    let mut evaluator = Evaluator { tree, record, missing, context, out: Out::after(std::mem::take(out)), depth: 0 };
    let result = match tree.templates.first() {
        Some(main) => evaluator.run(main.slots, Dot::Record, &main.body),
        None => Ok(()),
    };
    let Evaluator { out: written, context, .. } = evaluator;
    if let Err(error) = result {
        *out = written.undo();
        return (Err(error), context);
    }
    let (text, valid) = written.finish();
    *out = text;
    let invalid =
        || EvalError { offset: 0, message: "the output is not valid UTF-8".to_owned(), reason: Reason::Content };
    (if valid { Ok(()) } else { Err(invalid()) }, context)
}

/// The value of `.`.
#[derive(Clone)]
enum Dot {
    /// The record. Its parts are read without converting the whole record to a value.
    Record,
    Val(Val),
}

/// The state of a running template: the values of `.` and `$`, and its variables.
struct Frame {
    dot: Dot,
    root: Dot,
    /// Slot 0 stands for `root` and is unused here.
    slots: SmallVec<[Val; 2]>,
}

impl Frame {
    fn variable(&self, slot: usize) -> Dot {
        if slot == 0 { self.root.clone() } else { Dot::Val(self.slots[slot].clone()) }
    }
}

/// The control flow after a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

struct Evaluator<'a> {
    tree: &'a Tree,
    record: &'a Record,
    missing: MissingKey,
    context: Context,
    out: Out,
    depth: usize,
}

/// Returns an error at a place, about the kind of a value or about the template itself.
fn fail<T>(at: &Offsets, message: impl Into<String>) -> Eval<T> {
    fail_for(Reason::Kind, at, message)
}

/// Returns an error at a place, with its reason.
fn fail_for<T>(reason: Reason, at: &Offsets, message: impl Into<String>) -> Eval<T> {
    Err(EvalError { offset: at.start as usize, message: message.into(), reason })
}

impl<'a> Evaluator<'a> {
    fn run(&mut self, slots: usize, dot: Dot, body: &'a Body) -> Eval<()> {
        let mut frame = Frame { dot: dot.clone(), root: dot, slots: smallvec![Val::Missing; slots] };
        self.walk(&mut frame, body).map(|_| ())
    }

    fn deeper(&mut self, at: &Offsets) -> Eval<()> {
        if self.depth == MOST_DEPTH {
            return fail_for(Reason::Content, at, "templates call each other too deeply");
        }
        self.depth += 1;
        Ok(())
    }

    fn step(&mut self, at: &Offsets) -> Eval<()> {
        self.context.take_steps(1).or_else(|e| fail_for(e.reason, at, e.to_string()))
    }

    fn walk(&mut self, frame: &mut Frame, body: &'a Body) -> Eval<Flow> {
        for node in body {
            let flow = match node {
                Node::Text(at) => {
                    self.out.push_str(&self.tree.source[at.start as usize..at.end as usize]);
                    Flow::Next
                }
                Node::Print(pipeline) => {
                    self.print(frame, pipeline)?;
                    Flow::Next
                }
                Node::Let(pipeline) => {
                    self.pipeline(frame, pipeline)?;
                    Flow::Next
                }
                Node::If(branches) => self.branches(frame, branches, false)?,
                Node::With(branches) => self.branches(frame, branches, true)?,
                Node::Range(range) => self.range(frame, range)?,
                Node::Template(call) => {
                    self.call_template(frame, call)?;
                    Flow::Next
                }
                Node::Break => Flow::Break,
                Node::Continue => Flow::Continue,
            };
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn nested_walk(&mut self, frame: &mut Frame, body: &'a Body, at: &Offsets) -> Eval<Flow> {
        self.deeper(at)?;
        let flow = self.walk(frame, body);
        self.depth -= 1;
        flow
    }

    /// Evaluates a body with another value of `.`.
    fn walk_with(&mut self, frame: &mut Frame, dot: Dot, body: &'a Body, at: &Offsets) -> Eval<Flow> {
        let outer = std::mem::replace(&mut frame.dot, dot);
        let flow = self.nested_walk(frame, body, at);
        frame.dot = outer;
        flow
    }

    /// Prints the value of a pipeline. A plain field of the record is written directly to the output.
    fn print(&mut self, frame: &mut Frame, pipeline: &'a Pipeline) -> Eval<()> {
        if let [Command { head: Operand { term: Term::Field(fields) | Term::Variable { fields, .. }, .. }, args }] =
            &*pipeline.commands
            && args.is_empty()
            && let Some(found) = find(self.record, fields)
            && found.write(&mut self.out)
        {
            return Ok(());
        }
        let val = self.pipeline(frame, pipeline)?;
        if self.context.is_watched() {
            self.printed(pipeline, &val);
        }
        format::write_action(&mut self.out, &val).or_else(|e| fail_for(e.reason, &pipeline.at, e.to_string()))?;
        if self.out.len() > Context::MAX_BYTES {
            return fail_for(Reason::Content, &pipeline.at, "the output is longer than 256 MiB");
        }
        Ok(())
    }

    fn branches(&mut self, frame: &mut Frame, branches: &'a Branches, with: bool) -> Eval<Flow> {
        for (pipeline, body) in &branches.arms {
            let val = self.pipeline(frame, pipeline)?;
            if val.is_true() {
                return if with {
                    // `with .` over the record continues without converting the record to a value.
                    let inner = if matches!(val, Val::Record(_)) { Dot::Record } else { Dot::Val(val) };
                    self.walk_with(frame, inner, body, &pipeline.at)
                } else {
                    self.nested_walk(frame, body, &pipeline.at)
                };
            }
        }
        let Some((last, _)) = branches.arms.last() else { return Ok(Flow::Next) };
        self.nested_walk(frame, &branches.otherwise, &last.at)
    }

    fn range(&mut self, frame: &mut Frame, range: &'a Range_) -> Eval<Flow> {
        let val = self.pipeline(frame, &range.pipeline)?;
        let at = &range.pipeline.at;
        let mut any = false;
        let mut each = |this: &mut Self, key: Val, element: Val| -> Eval<Flow> {
            any = true;
            this.step(at)?;
            if let Some(slot) = range.key {
                frame.slots[slot] = key;
            }
            if let Some(slot) = range.element {
                frame.slots[slot] = element.clone();
            }
            this.walk_with(frame, Dot::Val(element), &range.body, at)
        };
        match &val {
            Val::Missing => {}
            Val::List(list) => {
                for i in 0..list.len() {
                    let element = list.get(i).unwrap_or(Val::Missing);
                    if each(self, Val::Int(i as i64), element)? == Flow::Break {
                        break;
                    }
                }
            }
            Val::Bytes(_) | Val::Raw(_) | Val::Position(_) => {
                for (i, byte) in val.as_bytes().unwrap_or_default().iter().enumerate() {
                    if each(self, Val::Int(i as i64), Val::Byte(*byte))? == Flow::Break {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for (key, element) in map.entries() {
                    if each(self, Val::text(key), element)? == Flow::Break {
                        break;
                    }
                }
            }
            Val::Int(n) | Val::Int64(n) if range.key.is_none() => {
                for i in 0..*n {
                    let element = if matches!(val, Val::Int(_)) { Val::Int(i) } else { Val::Int64(i) };
                    if each(self, Val::Missing, element)? == Flow::Break {
                        break;
                    }
                }
            }
            Val::Uint64(n) if range.key.is_none() => {
                for i in 0..*n {
                    if each(self, Val::Missing, Val::Uint64(i))? == Flow::Break {
                        break;
                    }
                }
            }
            Val::Int(n) | Val::Int64(n) => {
                return fail(at, format!("can't use {n} to iterate over more than one variable"));
            }
            other => return fail(at, format!("range can't iterate over {}", other.in_words())),
        }
        if any { Ok(Flow::Next) } else { self.nested_walk(frame, &range.otherwise, at) }
    }

    fn call_template(&mut self, frame: &mut Frame, call: &'a Call) -> Eval<()> {
        let Some(template) = call.target.and_then(|target| self.tree.templates.get(target)) else {
            return fail(&call.at, format!("template {:?} not defined", &*call.name));
        };
        self.step(&call.at)?;
        let inner = match &call.argument {
            None => Dot::Val(Val::Missing),
            Some(pipeline) => match self.pipeline(frame, pipeline)? {
                Val::Record(_) => Dot::Record,
                val => Dot::Val(val),
            },
        };
        self.deeper(&call.at)?;
        let result = self.run(template.slots, inner, &template.body);
        self.depth -= 1;
        result
    }

    fn pipeline(&mut self, frame: &mut Frame, pipeline: &'a Pipeline) -> Eval<Val> {
        self.deeper(&pipeline.at)?;
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(match self.command(frame, command, last)? {
                // The nil of an entry or element becomes a missing value when a pipeline returns it.
                Val::Nil => Val::Missing,
                val => val,
            });
        }
        self.depth -= 1;
        let val = last.unwrap_or(Val::Missing);
        if let Some(slot) = pipeline.variable {
            frame.slots[slot] = val.clone();
        }
        Ok(val)
    }

    fn command(&mut self, frame: &mut Frame, command: &'a Command, last: Option<Val>) -> Eval<Val> {
        let Command { head, args } = command;
        let given = CallArguments { args, last };
        match &head.term {
            Term::Field(fields) => self.fields(frame, frame.dot.clone(), fields, given, &head.at),
            Term::Variable { slot, fields } if !fields.names.is_empty() => {
                let base = frame.variable(*slot);
                self.fields(frame, base, fields, given, &head.at)
            }
            Term::Chain { base, fields } => {
                let base = Dot::Val(self.operand(frame, base)?);
                self.fields(frame, base, fields, given, &head.at)
            }
            Term::Function(function) => self.call(frame, function, None, given, &head.at),
            _ if !given.is_empty() => {
                let text = &self.tree.source[head.at.start as usize..head.at.end as usize];
                fail(&head.at, format!("can't give argument to non-function {text}"))
            }
            Term::Nil => fail(&head.at, "nil is not a command"),
            Term::Dot | Term::Literal(_) | Term::Variable { .. } | Term::Pipeline(_) => self.operand(frame, head),
        }
    }

    /// Evaluates an operand without arguments.
    fn operand(&mut self, frame: &mut Frame, operand: &'a Operand) -> Eval<Val> {
        match &operand.term {
            Term::Dot => Ok(self.value(&frame.dot)),
            Term::Nil => Ok(Val::Nil),
            Term::Literal(literal) => Ok(literal_value(literal)),
            Term::Field(fields) => self.fields(frame, frame.dot.clone(), fields, CallArguments::NOTHING, &operand.at),
            Term::Variable { slot, fields } => {
                let base = frame.variable(*slot);
                if fields.names.is_empty() {
                    return Ok(self.value(&base));
                }
                self.fields(frame, base, fields, CallArguments::NOTHING, &operand.at)
            }
            Term::Function(function) => self.call(frame, function, None, CallArguments::NOTHING, &operand.at),
            Term::Pipeline(pipeline) => self.pipeline(frame, pipeline),
            Term::Chain { base, fields } => {
                let base = Dot::Val(self.operand(frame, base)?);
                self.fields(frame, base, fields, CallArguments::NOTHING, &operand.at)
            }
        }
    }

    fn value(&self, dot: &Dot) -> Val {
        match dot {
            Dot::Record => Val::Record(self.record.clone().into()),
            Dot::Val(val) => val.clone(),
        }
    }
}

/// Converts a literal for a context that does not require a type.
fn literal_value(literal: &Literal) -> Val {
    match literal {
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Text(text) => Val::text(text.clone()),
        Literal::Bytes(bytes) => Val::Text(Text::from_bytes(bytes)),
        Literal::Number(number) => match number.int {
            Some(int) if !number.is_float => Val::Int(int),
            _ => Val::Float(number.float),
        },
    }
}
