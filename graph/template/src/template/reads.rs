//! Analysis of the parts of a record that a template reads.

use std::collections::HashSet;

use anabranch_record::access::Access;
use anabranch_record::metadata::own_key;
use anabranch_record::text::Str;

use super::tree::{Body, Branches, Fields, Literal, Node, Operand, Pipeline, Term, Tree};

/// Returns the parts of a record that the whole tree reads.
pub(super) fn of(tree: &Tree) -> Access {
    let mut reads = Reads { tree, everything: false, paths: Vec::new(), seen: HashSet::new() };
    for (i, template) in tree.templates.iter().enumerate() {
        // Only in the main template are `.` and `$` known to be the record. The argument of another
        // template is counted at its call.
        reads.body(&template.body, i == 0, i == 0);
    }
    if reads.everything { Access::Everything } else { Access::These(reads.paths) }
}

struct Reads<'t> {
    tree: &'t Tree,
    everything: bool,
    /// In the order in which they occur, each once.
    paths: Vec<Vec<Str>>,
    seen: HashSet<Vec<Str>>,
}

impl Reads<'_> {
    fn body(&mut self, body: &Body, dot: bool, root: bool) {
        for node in body {
            match node {
                Node::Text(_) | Node::Break | Node::Continue => {}
                Node::Print(pipeline) | Node::Let(pipeline) => self.pipeline(pipeline, dot, root),
                Node::If(branches) => self.branches(branches, dot, dot, root),
                Node::With(branches) => self.branches(branches, false, dot, root),
                Node::Range(range) => {
                    self.pipeline(&range.pipeline, dot, root);
                    self.body(&range.body, false, root);
                    self.body(&range.otherwise, dot, root);
                }
                Node::Template(call) => {
                    if let Some(argument) = &call.argument {
                        self.pipeline(argument, dot, root);
                    }
                }
            }
        }
    }

    /// Visits branches. In the arms of a `with`, `.` is a value that its pipeline has already read.
    fn branches(&mut self, branches: &Branches, inner: bool, dot: bool, root: bool) {
        for (pipeline, body) in &branches.arms {
            self.pipeline(pipeline, dot, root);
            self.body(body, inner, root);
        }
        self.body(&branches.otherwise, dot, root);
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: bool, root: bool) {
        for command in &pipeline.commands {
            if let Term::Function(function) = &command.head.term
                && function.name == "index"
                && let [item, Operand { term: Term::Literal(Literal::Text(key)), .. }, rest @ ..] = &*command.args
                && let Some(mut path) = plain_path(item, dot, root)
            {
                path.push(match &*path {
                    [part] if part == "Metadata" => own_key(key).unwrap_or_else(|| key.clone()),
                    _ => key.clone(),
                });
                let literals = rest.iter().map_while(|operand| match &operand.term {
                    Term::Literal(Literal::Text(key)) => Some(key.clone()),
                    _ => None,
                });
                path.extend(literals);
                self.add(path);
                rest.iter().for_each(|operand| self.operand(operand, dot, root));
                continue;
            }
            self.operand(&command.head, dot, root);
            command.args.iter().for_each(|operand| self.operand(operand, dot, root));
        }
    }

    fn operand(&mut self, operand: &Operand, dot: bool, root: bool) {
        match &operand.term {
            Term::Dot => self.everything |= dot,
            Term::Field(fields) if dot => self.fields(fields),
            Term::Variable { slot: 0, fields } if root && fields.names.is_empty() => self.everything = true,
            Term::Variable { slot: 0, fields } if root => self.fields(fields),
            Term::Pipeline(pipeline) => self.pipeline(pipeline, dot, root),
            Term::Chain { base, .. } => self.operand(base, dot, root),
            Term::Function(function) => self.everything |= !function.pure,
            Term::Nil | Term::Literal(_) | Term::Field(_) | Term::Variable { .. } => {}
        }
    }

    fn fields(&mut self, fields: &Fields) {
        match record_path(fields) {
            Some(path) => self.add(path),
            None => self.everything = true,
        }
    }

    fn add(&mut self, path: Vec<Str>) {
        debug_assert!(self.tree.source.len() >= path.len());
        if self.seen.insert(path.clone()) {
            self.paths.push(path);
        }
    }
}

/// Returns the path of an operand that is a field of the record, such as `.Metadata` in `index .Metadata "k"`.
fn plain_path(operand: &Operand, dot: bool, root: bool) -> Option<Vec<Str>> {
    match &operand.term {
        Term::Field(fields) if dot => record_path(fields),
        Term::Variable { slot: 0, fields } if root => record_path(fields),
        _ => None,
    }
}

/// Returns the path of the record part that the names lead to, without methods.
fn record_path(fields: &Fields) -> Option<Vec<Str>> {
    let names = &fields.names;
    let known = match &**names.first()? {
        "Position" | "Operation" => 1,
        "Metadata" | "Key" => names.len().min(if fields.part.is_some() { names.len() } else { 1 }),
        "Payload" => match fields.part {
            Some(_) => names.len(),
            None => names.len().min(2),
        },
        _ => return None,
    };
    names.get(..known).map(<[Str]>::to_vec)
}
