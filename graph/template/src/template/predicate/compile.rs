//! Compilation of a template's tree to a predicate.

use anabranch_record::metadata::own_key;
use anabranch_record::text::Str;

use super::source::{PrintedForms, Source};
use super::{Predicate, TextTest, verdict};
use crate::template::functions::Function;
use crate::template::tree::{Branches, Command, Fields, Literal, Node, Operand, Pipeline, RecordPart, Term, Tree};

/// Returns the predicate of a template that consists of one action, optionally surrounded by white space.
pub(super) fn template(tree: &Tree) -> Option<Predicate> {
    body(tree, &tree.templates.first()?.body)
}

/// Returns the predicate for the printed output of a body.
fn body(tree: &Tree, nodes: &[Node]) -> Option<Predicate> {
    let text = |node: &Node| match node {
        Node::Text(at) => Some(&tree.source[at.start as usize..at.end as usize]),
        _ => None,
    };
    let mut solid = nodes.iter().filter(|node| text(node).is_none_or(|text| !text.trim().is_empty()));
    let only = solid.next()?;
    if solid.next().is_some() {
        return None;
    }
    match only {
        Node::Text(_) => verdict(text(only)?).map(Predicate::Constant),
        Node::Print(pipeline) => printed(&Expression::of(pipeline)?),
        Node::If(branches) => choose(tree, branches),
        _ => None,
    }
}

fn choose(tree: &Tree, branches: &Branches) -> Option<Predicate> {
    let arms = branches
        .arms
        .iter()
        .map(|(condition, then)| Some((truth(&Expression::of(condition)?)?, body(tree, then)?)))
        .collect::<Option<Vec<_>>>()?;
    Some(Predicate::Choose(arms.into(), Box::new(body(tree, &branches.otherwise)?)))
}

/// A pipeline in the form of nested calls.
enum Expression<'t> {
    Call(&'static Function, Vec<Expression<'t>>),
    /// Fields of the record.
    Field(&'t Fields),
    Nil,
    Literal(&'t Literal),
}

impl<'t> Expression<'t> {
    fn of(pipeline: &'t Pipeline) -> Option<Expression<'t>> {
        if pipeline.variable.is_some() {
            return None;
        }
        let mut last = None;
        for Command { head, args } in &pipeline.commands {
            let args = args.iter().map(Expression::operand);
            last = Some(match &head.term {
                Term::Function(function) => {
                    Expression::Call(function, args.chain(last.map(Some)).collect::<Option<Vec<_>>>()?)
                }
                _ if last.is_some() || args.len() > 0 || matches!(head.term, Term::Nil) => return None,
                _ => Expression::operand(head)?,
            });
        }
        last
    }

    fn operand(operand: &'t Operand) -> Option<Expression<'t>> {
        match &operand.term {
            Term::Nil => Some(Expression::Nil),
            Term::Literal(literal) => Some(Expression::Literal(literal)),
            Term::Field(fields) => Some(Expression::Field(fields)),
            // Predicates do not support declared variables, so slot 0 is the record.
            Term::Variable { slot: 0, fields } if !fields.names.is_empty() => Some(Expression::Field(fields)),
            Term::Pipeline(pipeline) => Expression::of(pipeline),
            _ => None,
        }
    }
}

/// Returns the predicate of an expression whose value is printed.
fn printed(expression: &Expression<'_>) -> Option<Predicate> {
    boolean(expression).or_else(|| source(expression).map(Predicate::Printed))
}

/// Returns the predicate of an expression of which only the truth matters.
fn truth(expression: &Expression<'_>) -> Option<Predicate> {
    if let Expression::Call(function, args) = expression {
        match function.name {
            "and" => return args.iter().map(truth).collect::<Option<_>>().map(Predicate::All),
            "or" => return args.iter().map(truth).collect::<Option<_>>().map(Predicate::Any),
            _ => {}
        }
    }
    boolean(expression).or_else(|| source(expression).map(Predicate::Truth))
}

/// Returns the predicate of an expression whose value is a bool.
fn boolean(expression: &Expression<'_>) -> Option<Predicate> {
    let (name, args) = match expression {
        Expression::Literal(Literal::Bool(b)) => return Some(Predicate::Constant(*b)),
        Expression::Call(function, args) => (function.name, &args[..]),
        _ => return None,
    };
    let not = |predicate| Predicate::Not(Box::new(predicate));
    match (name, args) {
        ("not", [arg]) => truth(arg).map(not),
        ("and", [_, ..]) => args.iter().map(boolean).collect::<Option<_>>().map(Predicate::All),
        ("or", [_, ..]) => args.iter().map(boolean).collect::<Option<_>>().map(Predicate::Any),
        ("eq", [left, others @ ..]) if !others.is_empty() => equal(left, others),
        ("ne", [left, right]) => equal(left, std::slice::from_ref(right)).map(not),
        ("lt", [a, b]) => Some(Predicate::Less(source(a)?, source(b)?)),
        ("le", [a, b]) => Some(Predicate::LessOrEqual(source(a)?, source(b)?)),
        ("gt", [a, b]) => Some(not(Predicate::LessOrEqual(source(a)?, source(b)?))),
        ("ge", [a, b]) => Some(not(Predicate::Less(source(a)?, source(b)?))),
        ("hasPrefix", [sought, text]) => Some(Predicate::Text(TextTest::Prefix, source(sought)?, source(text)?)),
        ("hasSuffix", [sought, text]) => Some(Predicate::Text(TextTest::Suffix, source(sought)?, source(text)?)),
        ("contains", [sought, text]) => Some(Predicate::Text(TextTest::Contains, source(sought)?, source(text)?)),
        _ => None,
    }
}

fn equal(left: &Expression<'_>, others: &[Expression<'_>]) -> Option<Predicate> {
    // A printed value on one side, a literal text on the other.
    if let [right] = others {
        for (value, text) in [(left, right), (right, left)] {
            if let (Some((source, only_text)), Expression::Literal(Literal::Text(text))) = (shown(value), text) {
                return Some(Predicate::Shows(source, PrintedForms::new(text.clone(), only_text)));
            }
        }
    }
    let left = source(left)?;
    let others = others.iter().map(source).collect::<Option<Vec<_>>>()?;
    Some(Predicate::Equal(left, others.into()))
}

/// Returns the value that an expression prints, and whether only text prints unchanged: `printf "%v" x`,
/// `printf "%s" x`, `print x`, `toString x`.
fn shown(expression: &Expression<'_>) -> Option<(Source, bool)> {
    let Expression::Call(function, args) = expression else { return None };
    match (function.name, &args[..]) {
        ("printf", [Expression::Literal(Literal::Text(format)), value]) if matches!(&**format, "%v" | "%s") => {
            Some((source(value)?, &**format == "%s"))
        }
        ("print", [value]) => Some((source(value)?, false)),
        // `toString` prints nil in its own way.
        ("toString", [value]) => Some((source(value)?, true)),
        _ => None,
    }
}

fn source(expression: &Expression<'_>) -> Option<Source> {
    match expression {
        Expression::Nil => Some(Source::Nil),
        Expression::Literal(literal) => Some(match literal {
            Literal::Bool(b) => Source::Bool(*b),
            Literal::Text(text) => Source::Text(text.clone()),
            Literal::Bytes(_) => return None,
            Literal::Number(number) => match number.int {
                Some(int) if !number.is_float => Source::Int(int),
                _ => Source::Float(number.float),
            },
        }),
        Expression::Field(fields) => field(fields),
        Expression::Call(function, args) => match (function.name, &args[..]) {
            ("index", [Expression::Field(fields), keys @ ..]) => index(fields, keys),
            ("len", [arg]) => source(arg).map(|inner| Source::Len(Box::new(inner))),
            ("int", [arg]) => source(arg).map(|inner| Source::Truncated(Box::new(inner))),
            _ => None,
        },
    }
}

fn field(fields: &Fields) -> Option<Source> {
    let names: Vec<&str> = fields.names.iter().map(Str::as_str).collect();
    match (fields.part, &names[..]) {
        (None, ["Operation"]) => Some(Source::Operation),
        (None, ["Operation", "String"]) => Some(Source::OperationName),
        (None, ["Key"]) => Some(Source::Data(RecordPart::Key)),
        (None, ["Payload", "Before"]) => Some(Source::Data(RecordPart::Before)),
        (None, ["Payload", "After"]) => Some(Source::Data(RecordPart::After)),
        (Some(RecordPart::Metadata), ["Metadata", key]) => {
            Some(Source::Metadata { key: Str::from(*key), indexed: false })
        }
        (Some(part), _) if part != RecordPart::Metadata => {
            let names: Box<[Str]> = fields.names.get(part.depth()..)?.into();
            Some(Source::Field { part, indexed: names.len(), names })
        }
        _ => None,
    }
}

fn index(fields: &Fields, keys: &[Expression<'_>]) -> Option<Source> {
    let keys = keys
        .iter()
        .map(|key| match key {
            Expression::Literal(Literal::Text(key)) => Some(key.clone()),
            _ => None,
        })
        .collect::<Option<Vec<Str>>>()?;
    if keys.is_empty() {
        return None;
    }
    if let ([root], [key]) = (&*fields.names, &keys[..])
        && root == "Metadata"
    {
        let key = own_key(key).unwrap_or_else(|| key.clone());
        return Some(Source::Metadata { key, indexed: true });
    }
    let (part, mut names) = match field(fields)? {
        Source::Data(part) => (part, Vec::new()),
        Source::Field { part, names, .. } => (part, names.into_vec()),
        _ => return None,
    };
    let indexed = names.len();
    names.extend(keys);
    Some(Source::Field { part, names: names.into(), indexed })
}
