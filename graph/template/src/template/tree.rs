//! The compiled form of a template.

use std::ops::Range;
use std::sync::Arc;

use anabranch_record::text::Str;

use super::functions::Function;
use super::methods;

/// All templates that one text defines.
#[derive(Debug)]
pub struct Tree {
    /// The source text.
    pub source: Arc<str>,
    /// The defined templates; the first is the text itself, named `""`.
    pub templates: Vec<Definition>,
}

/// One template.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: Str,
    /// What it does.
    pub body: Body,
    /// Maximum number of variables alive at once. Slot 0 is `$`.
    pub slots: usize,
}

/// What is done in order.
pub type Body = Box<[Node]>;
/// Bytes of the source.
pub type Place = Range<u32>;

/// A node of a template, evaluated in order.
#[derive(Debug)]
pub enum Node {
    /// Literal text of the source.
    Text(Place),
    /// A pipeline whose value is printed.
    Print(Pipeline),
    /// A pipeline whose value is assigned to a variable.
    Let(Pipeline),
    /// Evaluates the body of the first arm whose pipeline is true.
    If(Branches),
    /// Like `If`, with the value as `.`.
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
    /// Index of the template, if it is defined.
    pub target: Option<usize>,
    /// What is `.` in it.
    pub argument: Option<Pipeline>,
    /// Where it stands.
    pub at: Place,
}

/// `a | b | c`, optionally with a variable.
#[derive(Debug)]
pub struct Pipeline {
    /// The variable that receives the value.
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

/// A literal, converted for the parameter that receives it.
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

/// A number, which may be used as an integer or as a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// As an integer, if it is one.
    pub int: Option<i64>,
    /// As a float.
    pub float: f64,
    /// True if the number is written with a point or an exponent: it is a float unless the context requires another
    /// type.
    pub is_float: bool,
}

/// Names of fields, entries or methods, from left to right.
#[derive(Debug)]
pub struct Fields {
    /// The names.
    pub names: Box<[Str]>,
    /// The part of the record in which the names begin, if they start at the record.
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
    /// Returns the part that `names` begin in, if they start at the record and lead to a field or entry below the part,
    /// not to a method.
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

    /// Returns the number of names that lead to the part.
    pub fn depth(self) -> usize {
        match self {
            Part::Metadata | Part::Key => 1,
            Part::Before | Part::After => 2,
        }
    }
}
