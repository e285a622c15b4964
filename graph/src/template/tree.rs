//! A compiled template.

use std::ops::Range;
use std::sync::Arc;

use super::functions::Function;
use super::methods;
use crate::text::Str;

/// All that one text defines.
#[derive(Debug)]
pub(super) struct Tree {
    /// The text.
    pub(super) source: Arc<str>,
    /// The templates it defines; the first is the text itself, named `""`.
    pub(super) templates: Vec<Definition>,
}

/// One template.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: Str,
    pub(super) body: Body,
    /// Number of variables alive at once at most. Slot 0 is `$`.
    pub(super) slots: usize,
}

pub(super) type Body = Box<[Node]>;
pub(super) type Place = Range<u32>;

/// What is done in order.
#[derive(Debug)]
pub(super) enum Node {
    /// Text of the source.
    Text(Place),
    /// A pipeline whose value is printed.
    Print(Pipeline),
    /// A pipeline whose value goes into a variable.
    Let(Pipeline),
    /// The first arm whose pipeline is true.
    If(Branches),
    /// The same, with the value as `.`.
    With(Branches),
    Range(Box<Range_>),
    Template(Call),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct Branches {
    pub(super) arms: Box<[(Pipeline, Body)]>,
    pub(super) otherwise: Body,
}

#[derive(Debug)]
pub(super) struct Range_ {
    pub(super) pipeline: Pipeline,
    /// Variable of the key or index.
    pub(super) key: Option<usize>,
    /// Variable of the element.
    pub(super) element: Option<usize>,
    pub(super) body: Body,
    pub(super) otherwise: Body,
}

/// `{{template "name" pipeline}}`.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: Str,
    /// Which one, if it is defined.
    pub(super) target: Option<usize>,
    pub(super) argument: Option<Pipeline>,
    pub(super) at: Place,
}

/// `a | b | c`, perhaps into a variable.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// The variable it is put into.
    pub(super) variable: Option<usize>,
    pub(super) commands: Box<[Command]>,
    pub(super) at: Place,
}

/// An operand with arguments.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) head: Operand,
    pub(super) args: Box<[Operand]>,
}

/// A value in a command.
#[derive(Debug)]
pub(super) struct Operand {
    pub(super) term: Term,
    pub(super) at: Place,
}

#[derive(Debug)]
pub(super) enum Term {
    /// `.`
    Dot,
    Nil,
    Literal(Literal),
    /// `.a.b`
    Field(Fields),
    /// `$x.a.b`
    Variable {
        slot: usize,
        fields: Fields,
    },
    /// `f`
    Function(&'static Function),
    /// `(…)`
    Pipeline(Box<Pipeline>),
    /// `(…).a.b`
    Chain {
        base: Box<Operand>,
        fields: Fields,
    },
}

/// A literal, as the parameter it goes to wants it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Bool(bool),
    Text(Str),
    /// Text with escaped bytes that are not UTF-8.
    Bytes(Arc<[u8]>),
    Number(Number),
}

/// A number may be taken for an integer and a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) int: Option<i64>,
    pub(super) float: f64,
    /// It was written with a point or an exponent: a float where nothing else is asked for.
    pub(super) is_float: bool,
}

/// Names of fields, entries or methods, from left to right.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) names: Box<[Str]>,
    /// Where the names start at the record: which part they begin in.
    pub(super) part: Option<Part>,
}

/// A part of the record, with the number of names that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Metadata,
    Key,
    Before,
    After,
}

impl Part {
    /// The part that `names` lead into, if they start at the record and go on below it
    /// to a field or entry, not to a method.
    pub(super) fn of(names: &[Str]) -> Option<Part> {
        let (part, depth) = match names {
            [first, ..] if first == "Metadata" => (Part::Metadata, 1),
            [first, ..] if first == "Key" => (Part::Key, 1),
            [first, second, ..] if first == "Payload" && second == "Before" => (Part::Before, 2),
            [first, second, ..] if first == "Payload" && second == "After" => (Part::After, 2),
            _ => return None,
        };
        let below = names.get(depth)?;
        let is_method =
            if part == Part::Metadata { methods::is_of_metadata(below) } else { methods::is_of_data(below) };
        (!is_method).then_some(part)
    }

    /// How many names lead to it.
    pub(super) fn depth(self) -> usize {
        match self {
            Part::Metadata | Part::Key => 1,
            Part::Before | Part::After => 2,
        }
    }
}
