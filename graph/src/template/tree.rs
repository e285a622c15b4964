//! A compiled template.

use std::ops::Range;
use std::sync::Arc;

use super::functions::Function;
use super::methods;
use crate::text::Str;

/// All that one text defines.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The text.
    pub(crate) source: Arc<str>,
    /// The templates it defines; the first is the text itself, named `""`.
    pub(crate) templates: Vec<Definition>,
}

/// One template.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: Str,
    pub(crate) body: Body,
    /// Number of variables alive at once at most. Slot 0 is `$`.
    pub(crate) slots: usize,
}

pub(crate) type Body = Box<[Node]>;
pub(crate) type Place = Range<u32>;

/// What is done in order.
#[derive(Debug)]
pub(crate) enum Node {
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
pub(crate) struct Branches {
    pub(crate) arms: Box<[(Pipeline, Body)]>,
    pub(crate) otherwise: Body,
}

#[derive(Debug)]
pub(crate) struct Range_ {
    pub(crate) pipeline: Pipeline,
    /// Variable of the key or index.
    pub(crate) key: Option<usize>,
    /// Variable of the element.
    pub(crate) element: Option<usize>,
    pub(crate) body: Body,
    pub(crate) otherwise: Body,
}

/// `{{template "name" pipeline}}`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: Str,
    /// Which one, if it is defined.
    pub(crate) target: Option<usize>,
    pub(crate) argument: Option<Pipeline>,
    pub(crate) at: Place,
}

/// `a | b | c`, perhaps into a variable.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// The variable it is put into.
    pub(crate) variable: Option<usize>,
    pub(crate) commands: Box<[Command]>,
    pub(crate) at: Place,
}

/// An operand with arguments.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) head: Operand,
    pub(crate) args: Box<[Operand]>,
}

/// A value in a command.
#[derive(Debug)]
pub(crate) struct Operand {
    pub(crate) term: Term,
    pub(crate) at: Place,
}

#[derive(Debug)]
pub(crate) enum Term {
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
pub(crate) enum Literal {
    Bool(bool),
    Text(Str),
    /// Text with escaped bytes that are not UTF-8.
    Bytes(Arc<[u8]>),
    Number(Number),
}

/// A number may be taken for an integer and a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    pub(crate) int: Option<i64>,
    pub(crate) float: f64,
    /// It was written with a point or an exponent: a float where nothing else is asked for.
    pub(crate) is_float: bool,
}

/// Names of fields, entries or methods, from left to right.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) names: Box<[Str]>,
    /// Where the names start at the record: which part they begin in.
    pub(crate) part: Option<Part>,
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
    pub(crate) fn of(names: &[Str]) -> Option<Part> {
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
    pub(crate) fn depth(self) -> usize {
        match self {
            Part::Metadata | Part::Key => 1,
            Part::Before | Part::After => 2,
        }
    }
}
