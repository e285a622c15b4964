//! Checks of comparisons of the operation's name with texts.

use std::ops::Range;

use anabranch_record::Operation;
use anabranch_record::near::did_you_mean;
use anabranch_template::Template;
use anabranch_template::tree::{Body, Literal, Node, Term};

use super::Walk;
use super::call::Call;
use super::expression::ValueProperties;
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
        if let Some(why) = never_operation(template) {
            let message = format!("every record fails here: {why}, which is not an operation");
            let hint = format!("the operations are {}", Operation::ALL.map(Operation::as_str).join(", "));
            self.fail(codes::FLOW_NO_OPERATION, place.at(0..source.len()), message, None, Some(hint));
        }
    }
}

/// Functions whose text is never an operation, each with the reason.
const NEVER: [(&str, &str); 14] = [
    ("camelcase", "a capital letter"),
    ("kindOf", "the name of a kind"),
    ("quote", "quotation marks"),
    ("sha1sum", "hexadecimal digits"),
    ("sha256sum", "hexadecimal digits"),
    ("sha512sum", "hexadecimal digits"),
    ("squote", "quotation marks"),
    ("title", "a capital letter"),
    ("toJson", "JSON"),
    ("toPrettyJson", "JSON"),
    ("toRawJson", "JSON"),
    ("typeOf", "the name of a type"),
    ("upper", "capital letters"),
    ("uuidv4", "a UUID"),
];

/// Returns the reason why the output of a template is never an operation.
fn never_operation(template: &Template) -> Option<String> {
    let pieces: Vec<Option<&str>> = template.pieces().collect();
    let constant = pieces.iter().flatten().any(|text| !text.trim().is_empty());
    if constant {
        let is_one = pieces.iter().any(Option::is_none)
            && !Operation::ALL.iter().any(|operation| can_be(&pieces, operation.as_str()));
        return is_one.then(|| {
            let form: Vec<&str> = pieces.iter().map(|piece| piece.unwrap_or("…")).collect();
            format!("the result has the form {:?}", form.concat().trim())
        });
    }
    let mut nodes = template.tree().templates.first()?.body.iter().filter(|node| !matches!(node, Node::Text(_)));
    let (Some(Node::Print(pipeline)), None) = (nodes.next(), nodes.next()) else { return None };
    let command = pipeline.commands.last()?;
    let Term::Function(function) = &command.head.term else { return None };
    let text = |i: usize| match command.args.get(i).map(|arg| &arg.term) {
        Some(Term::Literal(Literal::Text(text))) => Some(text.trim()),
        _ => None,
    };
    match function.name {
        "ternary" => {
            let (yes, no) = (text(0)?, text(1)?);
            let is_wrong = [yes, no].iter().all(|text| text.parse::<Operation>().is_err());
            is_wrong.then(|| format!("ternary returns {yes:?} or {no:?}"))
        }
        "trunc" => {
            let shortest = Operation::ALL.iter().map(|operation| operation.as_str().len()).min()?;
            let Term::Literal(Literal::Number(most)) = &command.args.first()?.term else { return None };
            let most = usize::try_from(most.int?.unsigned_abs()).ok()?;
            (most < shortest).then(|| format!("trunc returns at most {most} bytes"))
        }
        name => {
            let (_, what) = NEVER.iter().find(|(function, _)| *function == name)?;
            Some(format!("{name} returns {what}"))
        }
    }
}

/// Returns `true` if a text is the constant pieces with some text between them. White space around it does not count.
fn can_be(pieces: &[Option<&str>], text: &str) -> bool {
    let mut rest = text;
    let mut is_open = false;
    for (i, piece) in pieces.iter().enumerate() {
        let Some(constant) = piece else {
            is_open = true;
            continue;
        };
        let constant = if i == 0 { constant.trim_start() } else { constant };
        if i + 1 == pieces.len() {
            let constant = constant.trim_end();
            return rest.ends_with(constant) && (is_open || rest == constant);
        }
        let Some(at) = rest.find(constant).filter(|at| is_open || *at == 0) else { return false };
        rest = &rest[at + constant.len()..];
        is_open = false;
    }
    is_open || rest.is_empty()
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
    pub(super) fn operations(&mut self, equal: bool, call: &Call<'_>) {
        let Call { values, certain, .. } = *call;
        if !values.iter().any(|value| matches!(value, ValueProperties::OperationName)) {
            return;
        }
        let text = |value: &ValueProperties| match value {
            ValueProperties::Literal(Literal::Text(text)) => Some(text.clone()),
            _ => None,
        };
        // With another text, the comparison may still be useful.
        let only = values.len() == 2;
        // A guard against records that do not occur, and a branch for some that do, are harmless.
        let harmless = !equal || !only || self.branching;
        for (i, text) in values.iter().enumerate().filter_map(|(i, value)| Some((i, text(value)?))) {
            let at = call.place(i);
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
