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
    /// Its name.
    pub name: Str,
    /// What it does.
    pub body: Body,
    /// Number of variables alive at once at most. Slot 0 is `$`.
    pub slots: usize,
}

/// What is done in order.
pub type Body = Box<[Node]>;
/// Bytes of the source.
pub type Place = Range<u32>;

/// One part of a body.
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
    /// The body for each element.
    Range(Box<Range_>),
    /// Another template.
    Template(Call),
    /// Leaves the loop.
    Break,
    /// Goes on with the next element of the loop.
    Continue,
}

/// The arms of `if` and `with`.
#[derive(Debug)]
pub struct Branches {
    /// What is asked, and what is done where it is true.
    pub arms: Box<[(Pipeline, Body)]>,
    /// What is done where no arm is true.
    pub otherwise: Body,
}

/// `{{range $key, $element := pipeline}}`.
#[derive(Debug)]
pub struct Range_ {
    /// What the loop goes over.
    pub pipeline: Pipeline,
    /// Variable of the key or index.
    pub key: Option<usize>,
    /// Variable of the element.
    pub element: Option<usize>,
    /// What is done for each element.
    pub body: Body,
    /// What is done where there is none.
    pub otherwise: Body,
}

/// `{{template "name" pipeline}}`.
#[derive(Debug)]
pub struct Call {
    /// Name of the template.
    pub name: Str,
    /// Which one, if it is defined.
    pub target: Option<usize>,
    /// What is `.` in it.
    pub argument: Option<Pipeline>,
    /// Where it stands.
    pub at: Place,
}

/// `a | b | c`, perhaps into a variable.
#[derive(Debug)]
pub struct Pipeline {
    /// The variable it is put into.
    pub variable: Option<usize>,
    /// Its commands, each given the value of the one before as its last argument.
    pub commands: Box<[Command]>,
    /// Where it stands.
    pub at: Place,
}

/// An operand with arguments.
#[derive(Debug)]
pub struct Command {
    /// The function, or the value where there are no arguments.
    pub head: Operand,
    /// The arguments.
    pub args: Box<[Operand]>,
}

/// A value in a command.
#[derive(Debug)]
pub struct Operand {
    /// The value.
    pub term: Term,
    /// Where it stands.
    pub at: Place,
}

/// What a value is written as.
#[derive(Debug)]
pub enum Term {
    /// `.`
    Dot,
    /// `nil`
    Nil,
    /// A literal.
    Literal(Literal),
    /// `.a.b`
    Field(Fields),
    /// `$x.a.b`
    Variable {
        /// The variable.
        slot: usize,
        /// The fields below it.
        fields: Fields,
    },
    /// `f`
    Function(&'static Function),
    /// `(…)`
    Pipeline(Box<Pipeline>),
    /// `(…).a.b`
    Chain {
        /// What is in parentheses.
        base: Box<Operand>,
        /// The fields below it.
        fields: Fields,
    },
}

/// A literal, as the parameter it goes to wants it.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `true`, `false`.
    Bool(bool),
    /// Text.
    Text(Str),
    /// Text with escaped bytes that are not UTF-8.
    Bytes(Arc<[u8]>),
    /// A number.
    Number(Number),
}

/// A number may be taken for an integer and a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// As an integer, if it is one.
    pub int: Option<i64>,
    /// As a float.
    pub float: f64,
    /// It was written with a point or an exponent: a float where nothing else is asked for.
    pub is_float: bool,
}

/// Names of fields, entries or methods, from left to right.
#[derive(Debug)]
pub struct Fields {
    /// The names.
    pub names: Box<[Str]>,
    /// Where the names start at the record: which part they begin in.
    pub part: Option<Part>,
}

/// A part of the record, with the number of names that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `.Metadata`
    Metadata,
    /// `.Key`
    Key,
    /// `.Payload.Before`
    Before,
    /// `.Payload.After`
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
