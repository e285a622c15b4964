//! Where a template reads fields of the record, found in its tree: for what can be said before it runs.

use std::ops::Range;

use super::methods;
use super::tree::{Body, Branches, Command, Fields, Literal, Node, Operand, Pipeline, Place, Term, Tree};
use crate::text::Str;

/// What a template reads and compares.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    /// In the order of the text.
    pub(crate) fields: Vec<Reading>,
    /// `eq`, `ne`, `lt`, `le`, `gt`, `ge`.
    pub(crate) comparisons: Vec<Comparison>,
}

/// A way from the record to a field or metadata entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Names from the record on: `Payload`, `After`, `city`.
    pub(crate) names: Vec<Str>,
    /// How many of them are written as a chain; the others are arguments of `index`.
    pub(crate) chained: usize,
    /// Bytes of the text.
    pub(crate) at: Range<usize>,
    /// Whether every rendering gets there.
    pub(crate) certain: bool,
}

/// A comparison of the first two arguments.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) sides: [Side; 2],
    pub(crate) at: Range<usize>,
}

/// What is compared.
#[derive(Debug)]
pub(crate) enum Side {
    Field(Reading),
    Operation,
    Text,
    Bool,
    Int,
    Float,
    Unknown,
}

pub(super) fn of(tree: &Tree) -> Readings {
    let mut finder = Finder { found: Readings::default() };
    if let Some(main) = tree.templates.first() {
        // Only in the main template are `.` and `$` known to be the record.
        finder.body(&main.body, Scope { dot: true, certain: true });
    }
    finder.found.fields.sort_by_key(|reading| (reading.at.start, reading.at.end));
    finder.found
}

/// What is known of the place in the tree.
#[derive(Clone, Copy)]
struct Scope {
    /// `.` is the record.
    dot: bool,
    /// Every rendering gets there.
    certain: bool,
}

struct Finder {
    found: Readings,
}

impl Finder {
    fn body(&mut self, body: &Body, mut scope: Scope) {
        for node in body {
            match node {
                Node::Text(_) => {}
                Node::Break | Node::Continue => scope.certain = false,
                Node::Print(pipeline) | Node::Let(pipeline) => self.pipeline(pipeline, scope),
                Node::If(branches) => self.branches(branches, scope.dot, scope),
                Node::With(branches) => self.branches(branches, false, scope),
                Node::Range(range) => {
                    self.pipeline(&range.pipeline, scope);
                    self.body(&range.body, Scope { dot: false, certain: false });
                    self.body(&range.otherwise, Scope { certain: false, ..scope });
                }
                Node::Template(call) => {
                    if let Some(argument) = &call.argument {
                        self.pipeline(argument, scope);
                    }
                }
            }
        }
    }

    fn branches(&mut self, branches: &Branches, dot: bool, scope: Scope) {
        for (i, (pipeline, body)) in branches.arms.iter().enumerate() {
            self.pipeline(pipeline, Scope { certain: scope.certain && i == 0, ..scope });
            self.body(body, Scope { dot, certain: false });
        }
        self.body(&branches.otherwise, Scope { certain: false, ..scope });
    }

    fn pipeline(&mut self, pipeline: &Pipeline, scope: Scope) {
        for (i, command) in pipeline.commands.iter().enumerate() {
            self.command(command, i == 0, scope);
        }
    }

    fn command(&mut self, command: &Command, first: bool, scope: Scope) {
        let Command { head, args } = command;
        if let Some(reading) = indexed(command, scope) {
            let literals = reading.names.len() - reading.chained;
            args.iter().skip(1 + literals).for_each(|operand| self.operand(operand, scope));
            return self.found.fields.push(reading);
        }
        let Term::Function(function) = &head.term else {
            self.operand(head, scope);
            return args.iter().for_each(|operand| self.operand(operand, scope));
        };
        if let ("eq" | "ne" | "lt" | "le" | "gt" | "ge", [left, right, ..], true) = (function.name, &**args, first) {
            let at = head.at.start as usize..right.at.end as usize;
            self.found.comparisons.push(Comparison { sides: [side(left, scope), side(right, scope)], at });
        }
        let short_circuits = matches!(function.name, "and" | "or");
        for (i, operand) in args.iter().enumerate() {
            self.operand(operand, Scope { certain: scope.certain && !(short_circuits && i > 0), ..scope });
        }
    }

    fn operand(&mut self, operand: &Operand, scope: Scope) {
        match &operand.term {
            Term::Pipeline(pipeline) => self.pipeline(pipeline, scope),
            Term::Chain { base, .. } => self.operand(base, scope),
            _ => self.found.fields.extend(chain(operand, scope)),
        }
    }
}

/// The names of an operand that starts at the record.
fn fields(operand: &Operand, scope: Scope) -> Option<&Fields> {
    match &operand.term {
        Term::Field(fields) if scope.dot => Some(fields),
        // Nothing but the main template is walked, and there `$` is the record.
        Term::Variable { slot: 0, fields } => Some(fields),
        _ => None,
    }
}

/// How many names lead to a part of the record whose fields or entries follow.
fn depth(names: &[Str]) -> Option<usize> {
    match names {
        [first, ..] if first == "Metadata" || first == "Key" => Some(1),
        [first, second, ..] if first == "Payload" && (second == "Before" || second == "After") => Some(2),
        _ => None,
    }
}

fn is_method(names: &[Str], depth: usize) -> bool {
    names.get(depth).is_some_and(|name| match names[0].as_str() {
        "Metadata" => methods::is_of_metadata(name),
        _ => methods::is_of_data(name),
    })
}

/// `.Payload.After.x`.
fn chain(operand: &Operand, scope: Scope) -> Option<Reading> {
    let names = &fields(operand, scope)?.names;
    let depth = depth(names)?;
    let reading = Reading {
        names: names.to_vec(),
        chained: names.len(),
        at: bytes(&operand.at, &operand.at),
        certain: scope.certain,
    };
    (names.len() > depth && !is_method(names, depth)).then_some(reading)
}

/// `index .Payload.After "x"`.
fn indexed(command: &Command, scope: Scope) -> Option<Reading> {
    let Term::Function(function) = &command.head.term else { return None };
    let [item, keys @ ..] = &*command.args else { return None };
    let chained = &fields(item, scope).filter(|_| function.name == "index")?.names;
    let depth = depth(chained)?;
    let mut names = chained.to_vec();
    let mut end = &item.at;
    for key in keys {
        let Term::Literal(Literal::Text(text)) = &key.term else { break };
        names.push(text.clone());
        end = &key.at;
    }
    let reading = Reading { chained: chained.len(), at: bytes(&command.head.at, end), certain: scope.certain, names };
    (reading.names.len() > reading.chained && !is_method(chained, depth)).then_some(reading)
}

fn bytes(first: &Place, last: &Place) -> Range<usize> {
    first.start as usize..last.end as usize
}

fn side(operand: &Operand, scope: Scope) -> Side {
    match &operand.term {
        Term::Literal(Literal::Text(_)) => Side::Text,
        Term::Literal(Literal::Bool(_)) => Side::Bool,
        Term::Literal(Literal::Number(number)) if number.int.is_some() && !number.is_float => Side::Int,
        Term::Literal(Literal::Number(_)) => Side::Float,
        Term::Pipeline(pipeline) => match &*pipeline.commands {
            [command] if command.args.is_empty() => side(&command.head, scope),
            [command] => indexed(command, scope).map_or(Side::Unknown, Side::Field),
            _ => Side::Unknown,
        },
        _ => match fields(operand, scope).map(|fields| &*fields.names) {
            Some([only]) if only == "Operation" => Side::Operation,
            Some([first, method]) if first == "Operation" && method == "String" => Side::Text,
            _ => chain(operand, scope).map_or(Side::Unknown, Side::Field),
        },
    }
}
