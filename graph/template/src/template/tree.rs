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
    /// The name.
    pub name: Str,
    /// The content.
    pub body: Body,
    /// Maximum number of variables in scope at the same time. Slot 0 is `$`.
    pub slots: usize,
}

/// A list of nodes, evaluated in order.
pub type Body = Box<[Node]>;
/// A range of bytes of the source.
pub type Offsets = Range<u32>;

/// A node of a template, evaluated in order.
#[derive(Debug)]
pub enum Node {
    /// Literal text of the source.
    Text(Offsets),
    /// A pipeline whose value is printed.
    Print(Pipeline),
    /// A pipeline whose value is assigned to a variable.
    Let(Pipeline),
    /// Evaluates the body of the first arm whose pipeline is true.
    If(Branches),
    /// Like `If`, with the value as `.`.
    With(Branches),
    /// Evaluates a body for each element.
    Range(Box<Range_>),
    /// Evaluates another template.
    Template(Call),
    /// Leaves the loop.
    Break,
    /// Continues with the next element of the loop.
    Continue,
}

/// The arms of `if` and `with`.
#[derive(Debug)]
pub struct Branches {
    /// The conditions, each with the body that is evaluated if it is true.
    pub arms: Box<[(Pipeline, Body)]>,
    /// The body that is evaluated if no condition is true.
    pub otherwise: Body,
}

/// `{{range $key, $element := pipeline}}`.
#[derive(Debug)]
pub struct Range_ {
    /// The value to iterate over.
    pub pipeline: Pipeline,
    /// Variable of the key or index.
    pub key: Option<usize>,
    /// Variable of the element.
    pub element: Option<usize>,
    /// The body for each element.
    pub body: Body,
    /// The body that is evaluated if there are no elements.
    pub otherwise: Body,
}

/// `{{template "name" pipeline}}`.
#[derive(Debug)]
pub struct Call {
    /// Name of the template.
    pub name: Str,
    /// Index of the template, if it is defined.
    pub target: Option<usize>,
    /// The value of `.` in the template.
    pub argument: Option<Pipeline>,
    /// The place in the source.
    pub at: Offsets,
}

/// `a | b | c`, optionally with a variable.
#[derive(Debug)]
pub struct Pipeline {
    /// The variable that receives the value.
    pub variable: Option<usize>,
    /// The commands. Each receives the value of the previous one as its last argument.
    pub commands: Box<[Command]>,
    /// The place in the source.
    pub at: Offsets,
}

/// An operand with arguments.
#[derive(Debug)]
pub struct Command {
    /// The function, or a value if there are no arguments.
    pub head: Operand,
    /// The arguments.
    pub args: Box<[Operand]>,
}

/// A value in a command.
#[derive(Debug)]
pub struct Operand {
    /// The value.
    pub term: Term,
    /// The place in the source.
    pub at: Offsets,
}

/// The syntactic form of a value.
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
        /// The fields to read from it.
        fields: Fields,
    },
    /// `f`
    Function(&'static Function),
    /// `(…)`
    Pipeline(Box<Pipeline>),
    /// `(…).a.b`
    Chain {
        /// The expression in parentheses.
        base: Box<Operand>,
        /// The fields to read from it.
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
    /// The value as an integer, if it is one.
    pub int: Option<i64>,
    /// The value as a float.
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
    pub part: Option<RecordPart>,
}

/// A part of the record, with the number of names that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPart {
    /// `.Metadata`
    Metadata,
    /// `.Key`
    Key,
    /// `.Payload.Before`
    Before,
    /// `.Payload.After`
    After,
}

impl RecordPart {
    /// Returns the part that `names` begin in, if they start at the record and lead to a field or entry below the part,
    /// not to a method.
    pub fn of(names: &[Str]) -> Option<RecordPart> {
        let (part, depth) = match names {
            [first, ..] if first == "Metadata" => (RecordPart::Metadata, 1),
            [first, ..] if first == "Key" => (RecordPart::Key, 1),
            [first, second, ..] if first == "Payload" && second == "Before" => (RecordPart::Before, 2),
            [first, second, ..] if first == "Payload" && second == "After" => (RecordPart::After, 2),
            _ => return None,
        };
        let below = names.get(depth)?;
        let is_method =
            if part == RecordPart::Metadata { methods::is_of_metadata(below) } else { methods::is_of_data(below) };
        (!is_method).then_some(part)
    }

    /// Returns the number of names that lead to the part.
    pub fn depth(self) -> usize {
        match self {
            RecordPart::Metadata | RecordPart::Key => 1,
            RecordPart::Before | RecordPart::After => 2,
        }
    }
}
