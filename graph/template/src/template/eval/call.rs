//! Evaluation of fields, functions and methods.

use smallvec::SmallVec;

use super::lookup::{self, find};
use super::{Dot, Eval, Evaluator, Frame, argument, fail, fail_for};
use crate::template::functions::{Function, Param};
use crate::template::tree::{Fields, Offsets, Operand, Term};
use crate::template::val::{Map, Val};
use crate::template::{MissingKey, Reason, builtins, methods};

/// The arguments of a call: those written after its name, and the value of the pipeline before it.
pub(super) struct CallArguments<'a> {
    pub(super) args: &'a [Operand],
    pub(super) last: Option<Val>,
}

impl CallArguments<'_> {
    pub(super) const NOTHING: CallArguments<'static> = CallArguments { args: &[], last: None };

    pub(super) fn is_empty(&self) -> bool {
        self.args.is_empty() && self.last.is_none()
    }
}

impl<'a> Evaluator<'a> {
    /// Follows `fields` from `base`. The arguments belong to the last name.
    pub(super) fn fields(
        &mut self,
        frame: &mut Frame,
        base: Dot,
        fields: &'a Fields,
        given: CallArguments<'a>,
        at: &Offsets,
    ) -> Eval<Val> {
        if given.is_empty()
            && let Some(found) = find(self.record, fields)
        {
            return Ok(found.into());
        }
        let mut names = fields.names.iter().peekable();
        let mut val = match base {
            Dot::Val(val) => val,
            Dot::Record => {
                // If a part of the record is read without arguments, the whole record is not converted to a value.
                let plain = names.len() > 1 || given.is_empty();
                match names.peek().filter(|_| plain).and_then(|name| lookup::part(self.record, name)) {
                    Some(val) => {
                        names.next();
                        val
                    }
                    None => self.value(&base),
                }
            }
        };
        let mut given = Some(given);
        while let Some(name) = names.next() {
            let given = if names.peek().is_none() { given.take() } else { None };
            val = self.field(frame, val, name, given.unwrap_or(CallArguments::NOTHING), at)?;
        }
        Ok(val)
    }

    fn field(
        &mut self,
        frame: &mut Frame,
        receiver: Val,
        name: &str,
        given: CallArguments<'a>,
        at: &Offsets,
    ) -> Eval<Val> {
        match receiver {
            Val::Missing => {
                return match self.missing {
                    MissingKey::NoValue => Ok(Val::Missing),
                    MissingKey::Error => {
                        fail_for(Reason::Lacking, at, format!("there is no value to read field {name:?} of"))
                    }
                };
            }
            Val::Nil => return fail_for(Reason::Lacking, at, format!("can't read field {name:?} of a null")),
            Val::NoData => {
                return fail_for(Reason::Lacking, at, format!("can't read field {name:?}: the data is absent"));
            }
            _ => {}
        }
        if let Some(method) = methods::find(&receiver, name) {
            return self.call(frame, method, Some(receiver), given, at);
        }
        match &receiver {
            Val::Map(_) | Val::Record(_) | Val::Payload(_) if !given.is_empty() => {
                fail(at, format!("{name} is not a method but has arguments"))
            }
            Val::Map(map) => match (map.get(name), self.missing) {
                (Some(val), _) => Ok(val),
                (None, MissingKey::NoValue) => {
                    if self.context.is_watched() {
                        self.missed(map, name, at);
                    }
                    Ok(Val::Missing)
                }
                (None, MissingKey::Error) => {
                    fail_for(Reason::Lacking, at, format!("there is no entry {name:?} in the map"))
                }
            },
            Val::Raw(_) => fail(
                at,
                format!("can't read field {name:?} of raw data; decode it first, for example with json.decode"),
            ),
            other => match lookup::member(other, name) {
                Some(val) => Ok(val),
                None => fail(at, format!("can't read field {name:?} of {}", other.in_words())),
            },
        }
    }

    /// Calls a function, or a method of `receiver`.
    pub(super) fn call(
        &mut self,
        frame: &mut Frame,
        function: &'static Function,
        receiver: Option<Val>,
        given: CallArguments<'a>,
        at: &Offsets,
    ) -> Eval<Val> {
        let is_method = receiver.is_some();
        let mut values: SmallVec<[Val; 4]> = receiver.into_iter().collect();
        let CallArguments { args, last } = given;
        let wanted = function.params.len() - values.len();
        let count = args.len() + usize::from(last.is_some());
        if count < wanted || (function.rest.is_none() && count > wanted) {
            let least = if function.rest.is_some() { "at least " } else { "" };
            let name = function.name;
            return fail(at, format!("wrong number of arguments for {name}: want {least}{wanted}, got {count}"));
        }
        if let Some(when) = builtins::short_circuit(function) {
            return self.logic(frame, when, args, last);
        }
        let param = |i: usize| function.params.get(i).copied().or(function.rest).unwrap_or(Param::Any);
        for arg in args {
            let val = self.argument(frame, arg, param(values.len()))?;
            values.push(val);
        }
        if let Some(last) = last {
            let last = argument::convert(last, param(values.len()))
                .or_else(|(reason, message)| fail_for(reason, at, message))?;
            values.push(last);
        }
        let result = match self.context.is_watched() {
            false => (function.call)(&mut self.context, &values),
            true => self.watched_call(function, is_method, &values, args, at),
        };
        let result = result.and_then(|val| {
            if let Val::Text(text) = &val {
                self.context.take_bytes(text.as_bytes().len())?;
            }
            Ok(val)
        });
        result.or_else(|error| fail_for(error.reason, at, format!("error calling {}: {error}", function.name)))
    }

    /// Evaluates `and` or `or`: returns the first argument whose truth is `when`, otherwise the last one.
    fn logic(&mut self, frame: &mut Frame, when: bool, args: &'a [Operand], last: Option<Val>) -> Eval<Val> {
        let mut val = Val::Missing;
        for arg in args {
            val = self.argument(frame, arg, Param::Reflect)?;
            if val.is_true() == when {
                return Ok(val);
            }
        }
        Ok(last.unwrap_or(val))
    }

    fn argument(&mut self, frame: &mut Frame, operand: &'a Operand, param: Param) -> Eval<Val> {
        match &operand.term {
            Term::Nil => match param {
                Param::Any => Ok(Val::Nil),
                Param::Reflect => Ok(Val::Missing),
                Param::Map => Ok(Val::Map(Map::Nil)),
                _ => fail(&operand.at, format!("expected {}; found nil", param.in_words())),
            },
            Term::Literal(literal) => argument::literal(literal, param).or_else(|()| {
                let text = &self.tree.source[operand.at.start as usize..operand.at.end as usize];
                fail(&operand.at, format!("expected {}; found {text}", param.in_words()))
            }),
            _ => {
                let val = self.operand(frame, operand)?;
                argument::convert(val, param).or_else(|(reason, message)| fail_for(reason, &operand.at, message))
            }
        }
    }
}
