//! Checks of comparisons of the operation's name with texts.

use std::ops::Range;

use anabranch_record::Operation;
use anabranch_record::near::did_you_mean;
use anabranch_template::Template;
use anabranch_template::tree::{Body, Literal, Node, Operand};

use super::Walk;
use super::expression::{Known, bytes};
use crate::codes;
use crate::diagnostic::Severity;
use crate::flow::{Flow, Place};

impl Flow {
    /// Checks a template that renders an operation: reports branches with a constant text that is not an operation.
    pub fn operation_template(&mut self, place: impl Into<Place>, template: &Template) {
        let place = place.into();
        let source = &template.tree().source;
        let mut texts = Vec::new();
        if let Some(main) = template.tree().templates.first() {
            constant_texts(&main.body, source, &mut texts);
        }
        for at in texts {
            let text = source[at.clone()].trim();
            if text.parse::<Operation>().is_err() {
                let names = Operation::ALL.map(Operation::as_str);
                let near = Operation::meant_by(text).map(Operation::as_str).or_else(|| did_you_mean(text, names));
                let hint = near
                    .map_or_else(|| format!("the operations are {}", names.join(", ")), |near| format!("write {near}"));
                let message = format!("every record that reaches this branch fails: {text:?} is not an operation");
                self.warn(codes::FLOW_NO_OPERATION, place.at(at), message, None, Some(hint));
            }
        }
    }
}

/// Collects the places of texts that are the whole output of a branch.
fn constant_texts(body: &Body, source: &str, texts: &mut Vec<Range<usize>>) {
    let is_blank =
        |node: &&Node| matches!(node, Node::Text(at) if source[at.start as usize..at.end as usize].trim().is_empty());
    let solid: Vec<&Node> = body.iter().filter(|node| !is_blank(node)).collect();
    if let [Node::If(branches) | Node::With(branches)] = solid[..] {
        for inner in branches.arms.iter().map(|(_, body)| body).chain([&branches.otherwise]) {
            match &**inner {
                [Node::Text(at)] => texts.push(at.start as usize..at.end as usize),
                _ => constant_texts(inner, source, texts),
            }
        }
    }
}

impl Walk<'_> {
    /// Reports texts that are not an operation, or not one of the operations that occur here: the comparison is
    /// constant.
    pub(super) fn operations(
        &mut self,
        equal: bool,
        args: &[Operand],
        values: &[Known],
        at: &Range<usize>,
        certain: bool,
    ) {
        if !values.iter().any(|value| matches!(value, Known::OperationName)) {
            return;
        }
        let text = |value: &Known| match value {
            Known::Literal(Literal::Text(text)) => Some(text.clone()),
            _ => None,
        };
        // With another text, the comparison may still be useful.
        let only = values.len() == 2;
        // A guard against records that do not occur, and a branch for some that do, are harmless.
        let harmless = !equal || !only || self.branching;
        for (i, text) in values.iter().enumerate().filter_map(|(i, value)| Some((i, text(value)?))) {
            let at = args.get(i).map_or_else(|| at.clone(), bytes);
            match text.parse::<Operation>() {
                Ok(operation) if harmless || self.flow.record.operations.contains(operation) => {}
                Ok(operation) => {
                    let may = Operation::ALL.into_iter().filter(|may| self.flow.record.operations.contains(*may));
                    let may: Vec<&str> = may.map(Operation::as_str).collect();
                    let message = format!("no record has the operation {:?} here", operation.as_str());
                    let hint = format!("here, the operation is {}", may.join(" or "));
                    let place = self.at(at);
                    self.flow.warn(codes::FLOW_NO_OPERATION, place, message, None, Some(hint));
                }
                Err(_) => self.no_operation(&text, at, certain && only),
            }
        }
    }

    fn no_operation(&mut self, text: &str, at: Range<usize>, certain: bool) {
        let names = Operation::ALL.map(Operation::as_str);
        let near = Operation::meant_by(text).map(Operation::as_str);
        let message = format!("{text:?} is not an operation, so the comparison has the same result for every record");
        let hint = match near.or_else(|| did_you_mean(text, names)) {
            Some(near) => format!("write {near:?}"),
            None => format!("the operations are {}", names.join(", ")),
        };
        // Without a clearly intended operation, the comparison may be always true on purpose.
        let severity = if certain && near.is_some() { Severity::Error } else { Severity::Warning };
        let place = self.at(at.clone());
        self.flow.remark(severity, codes::FLOW_NO_OPERATION, place, message, None, Some(hint));
        if let Some(near) = near {
            self.correct(at, format!("{near:?}"));
        }
    }
}
