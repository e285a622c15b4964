//! A compiled template.

use std::ops::Range;
use std::sync::Arc;

use anabranch_record::text::Str;

use super::functions::Function;
use super::methods;

/// All that one text defines.
#[derive(Debug)]
pub struct Tree {
    /// The text.
    pub source: Arc<str>,
    /// The templates it defines; the first is the text itself, named `""`.
    pub templates: Vec<Definition>,
}

/// One template.
#[derive(Debug)]
pub struct Definition {
    pub name: Str,
    pub body: Body,
    /// Number of variables alive at once at most. Slot 0 is `$`.
    pub slots: usize,
}

pub type Body = Box<[Node]>;
pub type Place = Range<u32>;

/// What is done in order.
#[derive(Debug)]
pub enum Node {
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
pub struct Branches {
    pub arms: Box<[(Pipeline, Body)]>,
    pub otherwise: Body,
}

#[derive(Debug)]
pub struct Range_ {
    pub pipeline: Pipeline,
    /// Variable of the key or index.
    pub key: Option<usize>,
    /// Variable of the element.
    pub element: Option<usize>,
    pub body: Body,
    pub otherwise: Body,
}

/// `{{template "name" pipeline}}`.
#[derive(Debug)]
pub struct Call {
    pub name: Str,
    /// Which one, if it is defined.
    pub target: Option<usize>,
    pub argument: Option<Pipeline>,
    pub at: Place,
}

/// `a | b | c`, perhaps into a variable.
#[derive(Debug)]
pub struct Pipeline {
    /// The variable it is put into.
    pub variable: Option<usize>,
    pub commands: Box<[Command]>,
    pub at: Place,
}

/// An operand with arguments.
#[derive(Debug)]
pub struct Command {
    pub head: Operand,
    pub args: Box<[Operand]>,
}

/// A value in a command.
#[derive(Debug)]
pub struct Operand {
    pub term: Term,
    pub at: Place,
}

#[derive(Debug)]
pub enum Term {
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
pub enum Literal {
    Bool(bool),
    Text(Str),
    /// Text with escaped bytes that are not UTF-8.
    Bytes(Arc<[u8]>),
    Number(Number),
}

/// A number may be taken for an integer and a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    pub int: Option<i64>,
    pub float: f64,
    /// It was written with a point or an exponent: a float where nothing else is asked for.
    pub is_float: bool,
}

/// Names of fields, entries or methods, from left to right.
#[derive(Debug)]
pub struct Fields {
    pub names: Box<[Str]>,
    /// Where the names start at the record: which part they begin in.
    pub part: Option<Part>,
}

/// A part of the record, with the number of names that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Metadata,
    Key,
    Before,
    After,
}

impl Part {
    /// The part that `names` lead into, if they start at the record and go on below it
    /// to a field or entry, not to a method.
    pub fn of(names: &[Str]) -> Option<Part> {
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
    pub fn depth(self) -> usize {
        match self {
            Part::Metadata | Part::Key => 1,
            Part::Before | Part::After => 2,
        }
    }
}
