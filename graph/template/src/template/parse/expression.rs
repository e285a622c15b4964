//! Pipelines: declarations, commands, operands.

use std::ops::Range;

use anabranch_record::near::{did_you_mean, slip};
use anabranch_record::text::Str;

use super::{Parsed, Parser, place, range};
use crate::template::TemplateError;
use crate::template::functions::{self, Function};
use crate::template::lex::{Token, TokenClass, error};
use crate::template::tree::{Command, Fields, Operand, Pipeline, RecordPart, Term};

/// Maximum number of variables alive at one place.
const MOST_VARIABLES: usize = 1000;

/// The variables at the beginning of a pipeline.
pub(super) struct DeclaredVariables {
    names: Vec<(Str, Range<usize>)>,
    assigns: bool,
}

impl Parser<'_> {
    pub(super) fn pipeline(&mut self, context: &str, end: TokenClass) -> Parsed<Pipeline> {
        let start = self.peek_solid().at.start;
        let declared = self.declarations(context)?;
        let commands = self.commands(context, end)?;
        let at = place(&(start..self.tokens[self.next - 1].at.start));
        let variable = self.assign(&declared)?.pop();
        Ok(Pipeline { variable, commands, at })
    }

    /// Parses `$x :=`, `$x =`, and in a range `$k, $v :=`.
    pub(super) fn declarations(&mut self, context: &str) -> Parsed<DeclaredVariables> {
        let mut declared = DeclaredVariables { names: Vec::new(), assigns: false };
        loop {
            let variable = self.peek_solid();
            if variable.kind != TokenClass::Variable {
                break;
            }
            let before = self.next;
            self.next += 1;
            let name = (Str::from(self.text(&variable)), variable.at.clone());
            let next = self.peek_solid();
            match next.kind {
                TokenClass::Assign | TokenClass::Declare => {
                    self.next += 1;
                    declared.names.push(name);
                    declared.assigns = next.kind == TokenClass::Assign;
                    return Ok(declared);
                }
                TokenClass::Other if self.text(&next) == "," => {
                    self.next += 1;
                    declared.names.push(name);
                    if context != "range" || declared.names.len() > 1 {
                        return Err(error(next.at, format!("too many declarations in {context}")));
                    }
                    if self.peek_solid().kind != TokenClass::Variable {
                        return Err(error(next.at, "range can only initialize variables"));
                    }
                }
                _ => {
                    self.next = before;
                    break;
                }
            }
        }
        match declared.names.pop() {
            None => Ok(declared),
            Some((name, at)) => Err(error(at, format!("{:?} is not followed by :=", &*name))),
        }
    }

    /// Returns the slots of declared or assigned variables. Declared ones are alive only after their pipeline.
    pub(super) fn assign(&mut self, declared: &DeclaredVariables) -> Parsed<Vec<usize>> {
        let mut slots = Vec::new();
        for (name, at) in &declared.names {
            if self.scope.variables.len() > MOST_VARIABLES {
                return Err(error(at.clone(), format!("more than {MOST_VARIABLES} variables")));
            }
            if !declared.assigns {
                slots.push(self.scope.declare(name.clone()));
            } else if let Some(slot) = self.scope.find(name) {
                slots.push(slot);
            } else {
                return Err(self.undefined(name, at));
            }
        }
        Ok(slots)
    }

    fn undefined(&self, name: &str, at: &Range<usize>) -> TemplateError {
        let found = error(at.clone(), format!("undefined variable {name:?}"));
        match did_you_mean(name, self.scope.variables.iter().map(Str::as_str)) {
            Some(near) => found.hint(format!("did you mean `{near}`?")),
            None => found.hint(format!("declare it first: `{{{{ {name} := … }}}}`")),
        }
    }

    pub(super) fn commands(&mut self, context: &str, end: TokenClass) -> Parsed<Box<[Command]>> {
        let mut commands: Vec<Command> = Vec::new();
        loop {
            let token = self.peek_solid();
            match token.kind {
                kind if kind == end => {
                    self.next += 1;
                    if commands.is_empty() {
                        return Err(error(token.at, format!("missing value for {context}")));
                    }
                    return Ok(commands.into());
                }
                TokenClass::Bool
                | TokenClass::Char
                | TokenClass::Dot
                | TokenClass::Field
                | TokenClass::Name
                | TokenClass::Number
                | TokenClass::Nil
                | TokenClass::Raw
                | TokenClass::Quoted
                | TokenClass::Variable
                | TokenClass::ParenOpen => {
                    let command = self.command()?;
                    if !commands.is_empty() && matches!(command.head.term, Term::Literal(_) | Term::Dot | Term::Nil) {
                        let stage = commands.len() + 1;
                        return Err(error(
                            range(&command.head.at),
                            format!("non executable command in pipeline stage {stage}"),
                        ));
                    }
                    commands.push(command);
                }
                _ => return Err(self.unexpected(&token, context)),
            }
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        let mut operands = Vec::new();
        loop {
            self.skip_space();
            if let Some(operand) = self.operand()? {
                operands.push(operand);
            }
            let token = self.peek();
            match token.kind {
                TokenClass::Space => {}
                TokenClass::Close | TokenClass::ParenClose => break,
                TokenClass::Pipe => {
                    self.next += 1;
                    let after = self.peek_solid();
                    if matches!(after.kind, TokenClass::Close | TokenClass::ParenClose) {
                        return Err(error(token.at, "missing command after |"));
                    }
                    break;
                }
                _ => return Err(self.unexpected(&token, "operand")),
            }
        }
        let mut operands = operands.into_iter();
        match operands.next() {
            Some(head) => Ok(Command { head, args: operands.collect() }),
            None => Err(error(self.peek().at, "empty command")),
        }
    }

    /// Parses a term and the fields after it.
    fn operand(&mut self) -> Parsed<Option<Operand>> {
        let Some(mut operand) = self.term()? else { return Ok(None) };
        let mut names = Vec::new();
        while self.peek().kind == TokenClass::Field {
            let token = self.take();
            names.push(Str::from(&self.text(&token)[1..]));
            operand.at.end = place(&token.at).end;
        }
        if names.is_empty() {
            return Ok(Some(operand));
        }
        let at = operand.at.clone();
        let term = match operand.term {
            Term::Field(fields) => {
                let names: Vec<Str> = fields.names.into_iter().chain(names).collect();
                Term::Field(self.fields(names, self.scope.dot_is_record))
            }
            Term::Variable { slot, .. } => {
                let fields = self.fields(names, slot == 0 && self.scope.root_is_record);
                Term::Variable { slot, fields }
            }
            Term::Literal(_) | Term::Nil | Term::Dot => {
                let text = &self.source[range(&at)];
                return Err(error(range(&at), format!("unexpected . after term in {text:?}")));
            }
            term => Term::Chain {
                base: Box::new(Operand { term, at: at.clone() }),
                fields: Fields { names: names.into(), part: None },
            },
        };
        Ok(Some(Operand { term, at }))
    }

    fn fields(&self, names: Vec<Str>, from_record: bool) -> Fields {
        let part = if from_record { RecordPart::of(&names) } else { None };
        Fields { names: names.into(), part }
    }

    fn term(&mut self) -> Parsed<Option<Operand>> {
        let token = self.peek();
        self.next += 1;
        let text = self.text(&token);
        let term = match token.kind {
            TokenClass::Name => Term::Function(self.function(&token)?),
            TokenClass::Dot => Term::Dot,
            TokenClass::Nil => Term::Nil,
            TokenClass::Variable => {
                let slot = self.scope.find(text).ok_or_else(|| self.undefined(text, &token.at))?;
                Term::Variable { slot, fields: self.fields(Vec::new(), false) }
            }
            TokenClass::Field => Term::Field(self.fields(vec![text[1..].into()], self.scope.dot_is_record)),
            TokenClass::Bool | TokenClass::Char | TokenClass::Number | TokenClass::Quoted | TokenClass::Raw => {
                Term::Literal(self.literal(&token)?)
            }
            TokenClass::ParenOpen => {
                let inner = self.nested(&token.at, |p| p.pipeline("parenthesized pipeline", TokenClass::ParenClose))?;
                let at = place(&(token.at.start..self.tokens[self.next - 1].at.end));
                return Ok(Some(Operand { term: Term::Pipeline(Box::new(inner)), at }));
            }
            _ => {
                self.next -= 1;
                return Ok(None);
            }
        };
        Ok(Some(Operand { term, at: place(&token.at) }))
    }

    fn function(&self, token: &Token) -> Parsed<&'static Function> {
        let name = self.text(token);
        if let Some(function) = functions::find(name) {
            return Ok(function);
        }
        if let Some(reason) = functions::refusal(name) {
            return Err(error(token.at.clone(), format!("function {name:?} is not available")).hint(reason));
        }
        let found = error(token.at.clone(), format!("function {name:?} not defined"));
        if matches!(name, "Position" | "Operation" | "Metadata" | "Key" | "Payload") {
            return Err(found.hint(format!("write a field of the record with a dot: `.{name}`")));
        }
        // For short names, a difference of two letters may be coincidence.
        const LONG: usize = 6;
        let meant = slip(name, functions::names());
        let near = meant.or_else(|| did_you_mean(name, functions::names().filter(|name| name.len() >= LONG)));
        Err(match near.filter(|near| meant == Some(*near) || name.len() >= LONG) {
            Some(near) => {
                let correction = meant.map(|meant| (token.at.clone(), meant.to_owned()));
                TemplateError { correction, ..found.hint(format!("did you mean `{near}`?")) }
            }
            None => found,
        })
    }
}
