//! Running a compiled template over a record.

use smallvec::{SmallVec, smallvec};

use super::functions::{Context, Function, Param};
use super::out::Out;
use super::tree::{Body, Branches, Call, Command, Fields, Literal, Node, Operand, Pipeline, Place, Range_, Term, Tree};
use super::val::{Elements, List, Map, Text, Val};
use super::{EvalError, MissingKey, format};
use crate::record::Record;

mod argument;
mod lookup;

use lookup::find;

/// How deep bodies, pipelines and template calls may nest at run time. Each level takes up to some
/// kilobytes of stack in a debug build; worker threads have two megabytes.
const MOST_DEPTH: usize = 250;

type Eval<T> = Result<T, EvalError>;

/// Renders onto the end of `out`, or leaves it as it was.
pub(super) fn render(tree: &Tree, missing: MissingKey, record: &Record, out: &mut String) -> Eval<()> {
    let mut evaluator =
        Evaluator { tree, record, missing, context: Context::new(), out: Out::after(std::mem::take(out)), depth: 0 };
    let result = match tree.templates.first() {
        Some(main) => evaluator.run(main.slots, Dot::Record, &main.body),
        None => Ok(()),
    };
    if let Err(error) = result {
        *out = evaluator.out.undo();
        return Err(error);
    }
    let (text, valid) = evaluator.out.finish();
    *out = text;
    if valid { Ok(()) } else { Err(EvalError { offset: 0, message: "the output is not valid UTF-8".to_owned() }) }
}

/// What `.` is.
#[derive(Clone)]
enum Dot {
    /// The record: its parts are read without making a value of the whole.
    Record,
    Val(Val),
}

/// The variables of a running template.
struct Frame {
    root: Dot,
    /// Slot 0 is `root` and unused here.
    slots: SmallVec<[Val; 2]>,
}

/// What goes on after a node.
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

/// An error at a place.
fn fail<T>(at: &Place, message: impl Into<String>) -> Eval<T> {
    Err(EvalError { offset: at.start as usize, message: message.into() })
}

impl<'a> Evaluator<'a> {
    fn run(&mut self, slots: usize, dot: Dot, body: &'a Body) -> Eval<()> {
        let mut frame = Frame { root: dot.clone(), slots: smallvec![Val::Missing; slots] };
        self.walk(&mut frame, &dot, body).map(|_| ())
    }

    fn deeper(&mut self, at: &Place) -> Eval<()> {
        if self.depth == MOST_DEPTH {
            return fail(at, "templates call each other too deeply");
        }
        self.depth += 1;
        Ok(())
    }

    fn step(&mut self, at: &Place) -> Eval<()> {
        self.context.take_steps(1).or_else(|e| fail(at, e.to_string()))
    }

    fn walk(&mut self, frame: &mut Frame, dot: &Dot, body: &'a Body) -> Eval<Flow> {
        for node in body {
            let flow = match node {
                Node::Text(at) => {
                    self.out.push_str(&self.tree.source[at.start as usize..at.end as usize]);
                    Flow::Next
                }
                Node::Print(pipeline) => {
                    self.print(frame, dot, pipeline)?;
                    Flow::Next
                }
                Node::Let(pipeline) => {
                    self.pipeline(frame, dot, pipeline)?;
                    Flow::Next
                }
                Node::If(branches) => self.branches(frame, dot, branches, false)?,
                Node::With(branches) => self.branches(frame, dot, branches, true)?,
                Node::Range(range) => self.range(frame, dot, range)?,
                Node::Template(call) => {
                    self.call_template(frame, dot, call)?;
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

    fn nested_walk(&mut self, frame: &mut Frame, dot: &Dot, body: &'a Body, at: &Place) -> Eval<Flow> {
        self.deeper(at)?;
        let flow = self.walk(frame, dot, body);
        self.depth -= 1;
        flow
    }

    /// The value of a pipeline, printed. A plain field of the record goes from there to the output.
    fn print(&mut self, frame: &mut Frame, dot: &Dot, pipeline: &'a Pipeline) -> Eval<()> {
        if let [Command { head: Operand { term: Term::Field(fields) | Term::Variable { fields, .. }, .. }, args }] =
            &*pipeline.commands
            && args.is_empty()
            && let Some(found) = find(self.record, fields)
            && found.write(&mut self.out)
        {
            return Ok(());
        }
        let val = self.pipeline(frame, dot, pipeline)?;
        format::write_action(&mut self.out, &val).or_else(|e| fail(&pipeline.at, e.to_string()))?;
        if self.out.len() > Context::MAX_BYTES {
            return fail(&pipeline.at, "the output is longer than 256 MiB");
        }
        Ok(())
    }

    fn branches(&mut self, frame: &mut Frame, dot: &Dot, branches: &'a Branches, with: bool) -> Eval<Flow> {
        for (pipeline, body) in &branches.arms {
            let val = self.pipeline(frame, dot, pipeline)?;
            if val.is_true() {
                return if with {
                    // `with .` over the record goes on without a value of the whole.
                    let inner = if matches!(val, Val::Record(_)) { Dot::Record } else { Dot::Val(val) };
                    self.nested_walk(frame, &inner, body, &pipeline.at)
                } else {
                    self.nested_walk(frame, dot, body, &pipeline.at)
                };
            }
        }
        let Some((last, _)) = branches.arms.last() else { return Ok(Flow::Next) };
        self.nested_walk(frame, dot, &branches.otherwise, &last.at)
    }

    fn range(&mut self, frame: &mut Frame, dot: &Dot, range: &'a Range_) -> Eval<Flow> {
        let val = self.pipeline(frame, dot, &range.pipeline)?;
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
            this.nested_walk(frame, &Dot::Val(element), &range.body, at)
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
            other => return fail(at, format!("range can't iterate over a {}", other.type_name())),
        }
        if any { Ok(Flow::Next) } else { self.nested_walk(frame, dot, &range.otherwise, at) }
    }

    fn call_template(&mut self, frame: &mut Frame, dot: &Dot, call: &'a Call) -> Eval<()> {
        let Some(template) = call.target.and_then(|target| self.tree.templates.get(target)) else {
            return fail(&call.at, format!("template {:?} not defined", &*call.name));
        };
        self.step(&call.at)?;
        let inner = match &call.argument {
            None => Dot::Val(Val::Missing),
            Some(pipeline) => match self.pipeline(frame, dot, pipeline)? {
                Val::Record(_) => Dot::Record,
                val => Dot::Val(val),
            },
        };
        self.deeper(&call.at)?;
        let result = self.run(template.slots, inner, &template.body);
        self.depth -= 1;
        result
    }

    fn pipeline(&mut self, frame: &mut Frame, dot: &Dot, pipeline: &'a Pipeline) -> Eval<Val> {
        self.deeper(&pipeline.at)?;
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(match self.command(frame, dot, command, last)? {
                // The nil of an entry or element is no value once it has left its place.
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

    fn command(&mut self, frame: &mut Frame, dot: &Dot, command: &'a Command, last: Option<Val>) -> Eval<Val> {
        let Command { head, args } = command;
        match &head.term {
            Term::Field(fields) => self.fields(frame, dot, None, fields, args, last, &head.at),
            Term::Variable { slot, fields } if !fields.names.is_empty() => {
                self.variable_fields(frame, dot, *slot, fields, args, last, &head.at)
            }
            Term::Chain { base, fields } => {
                let base = self.operand(frame, dot, base)?;
                self.fields(frame, dot, Some(base), fields, args, last, &head.at)
            }
            Term::Function(function) => self.call(frame, dot, function, None, args, last, &head.at),
            _ if last.is_some() || !args.is_empty() => {
                let text = &self.tree.source[head.at.start as usize..head.at.end as usize];
                fail(&head.at, format!("can't give argument to non-function {text}"))
            }
            Term::Nil => fail(&head.at, "nil is not a command"),
            Term::Dot | Term::Literal(_) | Term::Variable { .. } | Term::Pipeline(_) => self.operand(frame, dot, head),
        }
    }

    /// The value of an operand that gets no arguments.
    fn operand(&mut self, frame: &mut Frame, dot: &Dot, operand: &'a Operand) -> Eval<Val> {
        match &operand.term {
            Term::Dot => Ok(self.value(dot)),
            Term::Nil => Ok(Val::Nil),
            Term::Literal(literal) => Ok(literal_value(literal)),
            Term::Field(fields) => self.fields(frame, dot, None, fields, &[], None, &operand.at),
            Term::Variable { slot, fields } => self.variable_fields(frame, dot, *slot, fields, &[], None, &operand.at),
            Term::Function(function) => self.call(frame, dot, function, None, &[], None, &operand.at),
            Term::Pipeline(pipeline) => self.pipeline(frame, dot, pipeline),
            Term::Chain { base, fields } => {
                let base = self.operand(frame, dot, base)?;
                self.fields(frame, dot, Some(base), fields, &[], None, &operand.at)
            }
        }
    }

    fn value(&self, dot: &Dot) -> Val {
        match dot {
            Dot::Record => Val::Record(self.record.clone().into()),
            Dot::Val(val) => val.clone(),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a call site of the template: where, on what, with what")]
    fn variable_fields(
        &mut self,
        frame: &mut Frame,
        dot: &Dot,
        slot: usize,
        fields: &'a Fields,
        args: &'a [Operand],
        last: Option<Val>,
        at: &Place,
    ) -> Eval<Val> {
        if slot == 0 {
            if fields.names.is_empty() {
                return Ok(self.value(&frame.root));
            }
            let root = frame.root.clone();
            return match root {
                Dot::Record => self.fields(frame, &Dot::Record, None, fields, args, last, at),
                // Arguments of a method are evaluated against the current dot.
                Dot::Val(val) => self.fields(frame, dot, Some(val), fields, args, last, at),
            };
        }
        let val = frame.slots[slot].clone();
        self.fields(frame, dot, Some(val), fields, args, last, at)
    }

    /// Follows `fields` from `base`, or from the dot. Arguments belong to the last name.
    #[expect(clippy::too_many_arguments, reason = "a call site of the template: where, on what, with what")]
    fn fields(
        &mut self,
        frame: &mut Frame,
        dot: &Dot,
        base: Option<Val>,
        fields: &'a Fields,
        args: &'a [Operand],
        last: Option<Val>,
        at: &Place,
    ) -> Eval<Val> {
        if args.is_empty()
            && last.is_none()
            && let Some(found) = find(self.record, fields)
        {
            return Ok(found.into());
        }
        let mut names = fields.names.iter().peekable();
        let mut val = match (base, dot) {
            (Some(base), _) => base,
            (None, Dot::Val(val)) => val.clone(),
            (None, Dot::Record) => {
                let plain = names.len() > 1 || (args.is_empty() && last.is_none());
                match names.peek().filter(|_| plain).and_then(|name| lookup::part(self.record, name)) {
                    Some(val) => {
                        names.next();
                        val
                    }
                    None => self.value(dot),
                }
            }
        };
        let mut last = last;
        while let Some(name) = names.next() {
            let (args, last) = if names.peek().is_none() { (args, last.take()) } else { (&[][..], None) };
            val = self.field(frame, dot, &val, name, args, last, at)?;
        }
        Ok(val)
    }

    #[expect(clippy::too_many_arguments, reason = "a call site of the template: where, on what, with what")]
    fn field(
        &mut self,
        frame: &mut Frame,
        dot: &Dot,
        receiver: &Val,
        name: &str,
        args: &'a [Operand],
        last: Option<Val>,
        at: &Place,
    ) -> Eval<Val> {
        match receiver {
            Val::Missing => {
                return match self.missing {
                    MissingKey::NoValue => Ok(Val::Missing),
                    MissingKey::Error => fail(at, format!("there is no value to read field {name:?} of")),
                };
            }
            Val::Nil => return fail(at, format!("can't read field {name:?} of a null")),
            Val::NoData => return fail(at, format!("can't read field {name:?}: the data are absent")),
            _ => {}
        }
        if let Some(method) = super::methods::find(receiver, name) {
            return self.call(frame, dot, method, Some(receiver.clone()), args, last, at);
        }
        let has_arguments = !args.is_empty() || last.is_some();
        match receiver {
            Val::Map(_) | Val::Record(_) | Val::Payload(_) if has_arguments => {
                fail(at, format!("{name} is not a method but has arguments"))
            }
            Val::Map(map) => match (map.get(name), self.missing) {
                (Some(val), _) => Ok(val),
                (None, MissingKey::NoValue) => Ok(Val::Missing),
                (None, MissingKey::Error) => fail(at, format!("there is no entry {name:?} in the map")),
            },
            Val::Raw(_) => fail(
                at,
                format!("can't read field {name:?} of raw data; decode them first, with json.decode or the like"),
            ),
            other => match lookup::member(other, name) {
                Some(val) => Ok(val),
                None => fail(at, format!("can't read field {name:?} of a {}", other.type_name())),
            },
        }
    }

    /// Calls a function, or a method of `receiver`.
    #[expect(clippy::too_many_arguments, reason = "a call site of the template: where, on what, with what")]
    fn call(
        &mut self,
        frame: &mut Frame,
        dot: &Dot,
        function: &'static Function,
        receiver: Option<Val>,
        args: &'a [Operand],
        last: Option<Val>,
        at: &Place,
    ) -> Eval<Val> {
        let mut values: SmallVec<[Val; 4]> = receiver.into_iter().collect();
        let given = values.len() + args.len() + usize::from(last.is_some());
        if given < function.params.len() || (function.rest.is_none() && given > function.params.len()) {
            let hidden = values.len();
            let (wanted, least) =
                (function.params.len() - hidden, if function.rest.is_some() { "at least " } else { "" });
            let name = function.name;
            return fail(
                at,
                format!("wrong number of arguments for {name}: want {least}{wanted}, got {}", given - hidden),
            );
        }
        if let Some(when) = super::builtins::short_circuit(function) {
            return self.logic(frame, dot, when, args, last);
        }
        let param = |i: usize| function.params.get(i).copied().or(function.rest).unwrap_or(Param::Any);
        for arg in args {
            let val = self.argument(frame, dot, arg, param(values.len()))?;
            values.push(val);
        }
        if let Some(last) = last {
            let last = argument::convert(last, param(values.len())).or_else(|message| fail(at, message))?;
            values.push(last);
        }
        let result = (function.call)(&mut self.context, &values)
            .and_then(|val| {
                if let Val::Text(text) = &val {
                    self.context.take_bytes(text.as_bytes().len())?;
                }
                Ok(val)
            })
            .or_else(|error| fail(at, format!("error calling {}: {error}", function.name)))?;
        Ok(result)
    }

    /// `and`, `or`: the first argument whose truth is `when`, else the last one.
    fn logic(&mut self, frame: &mut Frame, dot: &Dot, when: bool, args: &'a [Operand], last: Option<Val>) -> Eval<Val> {
        let mut val = Val::Missing;
        for arg in args {
            val = self.argument(frame, dot, arg, Param::Reflect)?;
            if val.is_true() == when {
                return Ok(val);
            }
        }
        Ok(last.unwrap_or(val))
    }

    fn argument(&mut self, frame: &mut Frame, dot: &Dot, operand: &'a Operand, param: Param) -> Eval<Val> {
        match &operand.term {
            Term::Nil => match param {
                Param::Any => Ok(Val::Nil),
                Param::Reflect => Ok(Val::Missing),
                Param::Map => Ok(Val::Map(Map::Nil)),
                Param::List => Ok(Val::List(List::nil(Elements::Any))),
                _ => fail(&operand.at, format!("cannot assign nil to {}", param.type_name())),
            },
            Term::Literal(literal) => argument::literal(literal, param).or_else(|()| {
                let text = &self.tree.source[operand.at.start as usize..operand.at.end as usize];
                fail(&operand.at, format!("expected {}; found {text}", param.type_name()))
            }),
            _ => {
                let val = self.operand(frame, dot, operand)?;
                argument::convert(val, param).or_else(|message| fail(&operand.at, message))
            }
        }
    }
}

/// A literal where no type is asked for.
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
