//! Checks whether the output of a condition is true or false.

use std::ops::Range;

use anabranch_record::text::Str;
use anabranch_template::predicate::verdict;
use anabranch_template::tree::{Body, Branches, Literal, Node, Operand, Pipeline, Term};

use super::classes::Classes;
use super::expression::bytes;
use super::{Scope, Walk};
use crate::codes;
use crate::flow::Flow;

/// The possible outputs of a condition.
#[derive(Default)]
struct PossibleOutputs {
    /// True if the output may be true or false.
    verdict: bool,
    /// A possible other output, with its place.
    other: Option<(Range<usize>, NeitherBoolean)>,
}

enum NeitherBoolean {
    /// A number: 1 counts as true and 0 as false.
    Number(Classes),
    /// Values that never print as true or false.
    Values(Classes),
    /// Literal text of the template.
    Text,
    /// A literal text that `and` or `or` returns, with the intended comparison.
    Literal(Option<String>),
    /// Several results of comparisons, one after the other: `truefalse`.
    Several,
    /// No output: an `if` without an `else`.
    Nothing,
}

/// Functions whose text is never true or false.
const NO_VERDICTS: [&str; 8] = ["quote", "squote", "kindOf", "typeOf", "sha1sum", "sha256sum", "sha512sum", "uuidv4"];

impl PossibleOutputs {
    const UNKNOWN: PossibleOutputs = PossibleOutputs { verdict: true, other: None };

    fn other(at: Range<usize>, other: NeitherBoolean) -> PossibleOutputs {
        PossibleOutputs { verdict: false, other: Some((at, other)) }
    }

    fn or(self, more: PossibleOutputs) -> PossibleOutputs {
        PossibleOutputs { verdict: self.verdict || more.verdict, other: self.other.or(more.other) }
    }
}

impl Walk<'_> {
    /// Reports a condition whose output may be something other than true or false.
    pub(super) fn verdict(&mut self) {
        const HINT: &str = "a condition returns true or false, for example {{ eq .Operation.String \"create\" }}";
        let tree = self.tree;
        let Some(main) = tree.templates.first() else { return };
        // Problems of the parts are already reported. This walk only determines their output.
        let mut aside = Flow::new(self.flow.record.clone());
        let mut walk = Walk {
            flow: &mut aside,
            place: self.place.clone(),
            tree,
            strict: self.strict,
            slots: self.slots.clone(),
            prints: false,
            branching: true,
            looping: false,
            native: self.native,
        };
        let printed =
            walk.printed(&main.body, &Scope { dot: super::ValueProperties::Record, certain: true, inner: false });
        let Some((at, other)) = printed.other else { return };
        let whole = 0..tree.source.len();
        let message = match (&other, printed.verdict) {
            (NeitherBoolean::Number(classes), _) => {
                let text = format!(
                    "the condition returns {}: 1 counts as true, 0 as false, and a record with another number fails",
                    classes.names()
                );
                return self.warns(at, text, "compare it, for example with `gt … 0`");
            }
            (NeitherBoolean::Nothing, true) => {
                let branch = match &*main.body {
                    [Node::With(_)] => "`with` has no value",
                    [Node::Range(_)] => "`range` has no elements",
                    _ => "`if` is false",
                };
                self.warns(
                    whole,
                    format!("the condition returns nothing if its {branch}: then the record fails"),
                    "add {{ else }}false before the last {{ end }}",
                );
                if let Some(end) = self.last_end() {
                    self.correct(end..end, "{{ else }}false".to_owned());
                }
                return;
            }
            (NeitherBoolean::Values(classes), true) => {
                let text = format!("the condition may return {}: then the record fails", classes.names());
                return self.warns(at, text, HINT);
            }
            (NeitherBoolean::Literal(meant), true) => {
                let text = format!("the condition may return {}: then the record fails", self.text(&at));
                let hint = meant.as_ref().map_or_else(|| HINT.to_owned(), |meant| format!("write {meant}"));
                self.warns(at.clone(), text, &hint);
                if let (Some(meant), false) = (meant, self.flow.fails()) {
                    self.correct(at, meant.clone());
                }
                return;
            }
            (NeitherBoolean::Text | NeitherBoolean::Several, true) => {
                let text = "the condition may return a text that is neither true nor false: then the record fails";
                return self.warns(at, text.to_owned(), HINT);
            }
            (NeitherBoolean::Values(classes), false) => {
                format!("the condition fails for every record: it returns {}, not true or false", classes.names())
            }
            (
                NeitherBoolean::Nothing | NeitherBoolean::Text | NeitherBoolean::Several | NeitherBoolean::Literal(_),
                false,
            ) => "the condition fails for every record: it never returns true or false".to_owned(),
        };
        let (at, hint) = match other {
            NeitherBoolean::Text if self.text(&at).contains("&&") => (at, "write {{ and (…) (…) }}"),
            NeitherBoolean::Text if self.text(&at).contains("||") => (at, "write {{ or (…) (…) }}"),
            NeitherBoolean::Several => (whole, "write {{ and (…) (…) }} or {{ or (…) (…) }}"),
            NeitherBoolean::Text => {
                (at, "write the comparison inside the braces, for example {{ gt .Payload.After.price 10 }}")
            }
            _ => (if at.is_empty() { whole } else { at }, HINT),
        };
        if !self.flow.fails() {
            self.flow.fail(codes::FLOW_NOT_A_VERDICT, self.at(at), message, None, Some(hint.to_owned()));
        }
    }

    fn warns(&mut self, at: Range<usize>, message: String, hint: &str) {
        if !self.flow.fails() {
            let place = self.at(at);
            self.flow.warn(codes::FLOW_NOT_A_VERDICT, place, message, None, Some(hint.to_owned()));
        }
    }

    /// Returns the start of the last action, if the condition ends with it and it is an `end`.
    fn last_end(&self) -> Option<usize> {
        let source = self.tree.source.trim_end();
        let start = source.rfind("{{")?;
        let inner = source[start..].strip_prefix("{{")?.strip_suffix("}}")?;
        (inner.trim_matches(['-', ' ']) == "end").then_some(start)
    }

    /// Returns the possible outputs of a template body.
    fn printed(&mut self, body: &Body, scope: &Scope) -> PossibleOutputs {
        let source = self.tree.source.clone();
        let mut solid = Vec::new();
        for node in body {
            match node {
                Node::Let(pipeline) => {
                    self.pipeline(pipeline, scope);
                }
                Node::Text(at) => {
                    let start = at.start as usize;
                    let text = &source[start..at.end as usize];
                    let start = start + text.len() - text.trim_start().len();
                    let text = text.trim();
                    if !text.is_empty() {
                        if !may_be_in_a_verdict(text) {
                            return PossibleOutputs::other(start..start + text.len(), NeitherBoolean::Text);
                        }
                        solid.push(node);
                    }
                }
                node => solid.push(node),
            }
        }
        match solid[..] {
            [] => PossibleOutputs::other(0..0, NeitherBoolean::Nothing),
            [Node::Text(at)] => {
                let at = at.start as usize..at.end as usize;
                match verdict(&source[at.clone()]) {
                    Some(_) => PossibleOutputs::UNKNOWN,
                    None => PossibleOutputs::other(at, NeitherBoolean::Text),
                }
            }
            [Node::Print(pipeline)] if words(pipeline).is_some() => {
                let (at, none) = words(pipeline).unwrap_or_default();
                PossibleOutputs { verdict: !none, other: Some((at, NeitherBoolean::Text)) }
            }
            [Node::Print(pipeline)] if let Some(printed) = self.texts_printed(pipeline) => printed,
            [Node::Print(pipeline)] => {
                let value = self.pipeline(pipeline, scope);
                let start = pipeline.at.start as usize;
                let text = source[start..pipeline.at.end as usize].trim_end_matches(['-', ' ', '\n', '\t', '\r']);
                let at = start..start + text.len();
                if last_function(pipeline).is_some_and(|name| NO_VERDICTS.contains(&name)) {
                    return PossibleOutputs::other(at, NeitherBoolean::Values(Classes::TEXT));
                }
                match self.classes(&value) {
                    None | Some(Classes::NONE) => PossibleOutputs::UNKNOWN,
                    Some(classes) => self.classes_printed(at, classes),
                }
            }
            [Node::If(branches)] => self.branches_printed(branches, false, scope),
            [Node::With(branches)] => self.branches_printed(branches, true, scope),
            [Node::Print(_), Node::Print(_), ..] => {
                let is_bool = |node: &&Node| match node {
                    Node::Print(pipeline) => {
                        let value = self.pipeline(pipeline, scope);
                        self.classes(&value) == Some(Classes::BOOL)
                    }
                    _ => false,
                };
                match solid.iter().all(is_bool) {
                    true => PossibleOutputs::other(0..0, NeitherBoolean::Several),
                    false => PossibleOutputs::UNKNOWN,
                }
            }
            _ => PossibleOutputs::UNKNOWN,
        }
    }

    /// Returns the output of `and` and `or`, if it may be a text that is not true or false.
    fn texts_printed(&self, pipeline: &Pipeline) -> Option<PossibleOutputs> {
        is_logic(pipeline).then_some(())?;
        let mut texts = Vec::new();
        let others = self.outcomes(pipeline, &mut texts);
        let is_verdict = |outcome: &LiteralResult| verdict(&outcome.text).is_some();
        let at = texts.iter().position(|outcome| !is_verdict(outcome))?;
        let may = others || texts.iter().any(is_verdict);
        let LiteralResult { at, meant, .. } = texts.swap_remove(at);
        Some(PossibleOutputs { verdict: may, other: Some((at, NeitherBoolean::Literal(meant))) })
    }

    /// Reports a text among conditions, which counts as true.
    pub(super) fn text_as_truth(&mut self, pipeline: &Pipeline) {
        let mut texts = Vec::new();
        if !is_logic(pipeline) {
            return;
        }
        self.outcomes(pipeline, &mut texts);
        let Some(LiteralResult { at, text, meant }) = texts.into_iter().find(|outcome| !outcome.text.is_empty()) else {
            return;
        };
        let message =
            format!("{:?} is a text, not a condition: any text except the empty one counts as true", text.as_str());
        let hint = match &meant {
            Some(meant) => format!("write {meant}"),
            None => "compare a value with it, for example (eq .Payload.After.kind \"order\")".to_owned(),
        };
        let place = self.at(at.clone());
        self.flow.warn(codes::FLOW_NEVER_TRUE, place, message, None, Some(hint));
        if let Some(meant) = meant {
            self.correct(at, meant);
        }
    }

    /// Collects the literal texts that `and` and `or` may return. Returns `true` if they may return another value.
    fn outcomes(&self, pipeline: &Pipeline, texts: &mut Vec<LiteralResult>) -> bool {
        let [command] = &*pipeline.commands else { return true };
        let or = match &command.head.term {
            Term::Function(function) if matches!(function.name, "and" | "or") => function.name == "or",
            _ => return true,
        };
        let mut others = false;
        let mut compared: Option<&Operand> = None;
        for (i, arg) in command.args.iter().enumerate() {
            let mut found = Vec::new();
            let more = match &arg.term {
                Term::Literal(Literal::Text(text)) => {
                    let meant = compared.filter(|_| or).map(|of| {
                        let text = self.text(&bytes(arg));
                        format!("(eq {} {text})", self.text(&bytes(of)))
                    });
                    found.push(LiteralResult { at: bytes(arg), text: text.clone(), meant });
                    false
                }
                Term::Pipeline(inner) => self.outcomes(inner, &mut found),
                _ => true,
            };
            let decides = |outcome: &LiteralResult| outcome.text.is_empty() != or;
            let decided = !more && found.iter().all(decides);
            let last = i + 1 == command.args.len();
            texts.extend(found.into_iter().filter(|outcome| last || decides(outcome)));
            others |= more;
            // The other arguments are not evaluated.
            if decided {
                break;
            }
            compared = compared_with_text(arg).or(compared);
        }
        others
    }

    fn classes_printed(&self, at: Range<usize>, classes: Classes) -> PossibleOutputs {
        let numbers = Classes::INT | Classes::LONG | Classes::FLOAT;
        let verdicts = Classes::BOOL | Classes::TEXT | Classes::OTHER | Classes::POSITION;
        // A null in addition to other values only means that they may be missing.
        let others = classes.without(numbers | verdicts | Classes::NIL);
        let other = if classes == Classes::NIL {
            Some((at, NeitherBoolean::Values(classes)))
        } else if classes == Classes::ALL {
            None
        } else if !others.is_empty() {
            Some((at, NeitherBoolean::Values(others)))
        } else {
            classes.overlaps(numbers).then(|| {
                let numbers: Vec<Classes> = classes.each().filter(|class| class.within(numbers)).collect();
                (at, NeitherBoolean::Number(numbers.into_iter().fold(Classes::NONE, |a, b| a | b)))
            })
        };
        PossibleOutputs { verdict: classes.overlaps(numbers | verdicts), other }
    }

    fn branches_printed(&mut self, branches: &Branches, with: bool, scope: &Scope) -> PossibleOutputs {
        let mut printed = PossibleOutputs::default();
        for (pipeline, body) in &branches.arms {
            let value = self.unsettled(pipeline, scope);
            let truth = self.truth(&value);
            if truth != Some(false) {
                let dot = if with { value } else { scope.dot.clone() };
                let slots = self.slots.clone();
                printed = printed.or(self.printed(body, &Scope { dot, certain: false, inner: false }));
                self.slots = slots;
            }
            if truth == Some(true) {
                return printed;
            }
        }
        printed.or(self.printed(&branches.otherwise, scope))
    }
}

/// A literal text that `and` or `or` may return.
struct LiteralResult {
    at: Range<usize>,
    text: Str,
    /// The intended comparison, if there is only one.
    meant: Option<String>,
}

fn is_logic(pipeline: &Pipeline) -> bool {
    matches!(&*pipeline.commands, [command]
        if matches!(&command.head.term, Term::Function(function) if matches!(function.name, "and" | "or")))
}

/// Returns the name of the function that gives the result of a pipeline.
fn last_function(pipeline: &Pipeline) -> Option<&'static str> {
    match pipeline.commands.last()?.head.term {
        Term::Function(function) => Some(function.name),
        _ => None,
    }
}

/// Returns the value that a call such as `(eq .Payload.After.kind "order")` compares with a text.
fn compared_with_text(operand: &Operand) -> Option<&Operand> {
    let Term::Pipeline(pipeline) = &operand.term else { return None };
    let [command] = &*pipeline.commands else { return None };
    match (&command.head.term, &*command.args) {
        (Term::Function(function), [value, text]) if function.name == "eq" => {
            matches!(text.term, Term::Literal(Literal::Text(_))).then_some(value)
        }
        _ => None,
    }
}

/// For `ternary "yes" "no" …`, returns the place of the first text that is not true or false, and `true` if neither is.
fn words(pipeline: &Pipeline) -> Option<(Range<usize>, bool)> {
    let command = pipeline.commands.last()?;
    matches!(command.head.term, Term::Function(function) if function.name == "ternary").then_some(())?;
    let texts = command.args.get(..2)?.iter().map(|arg| match &arg.term {
        Term::Literal(Literal::Text(text)) => Some((bytes(arg), verdict(text).is_some())),
        _ => None,
    });
    let texts: Vec<(Range<usize>, bool)> = texts.collect::<Option<_>>()?;
    let at = texts.iter().find(|(_, is_verdict)| !is_verdict)?.0.clone();
    Some((at, texts.iter().all(|(_, is_verdict)| !is_verdict)))
}

/// Returns `true` if the text may be a part of an output that is true or false.
fn may_be_in_a_verdict(text: &str) -> bool {
    const VERDICTS: [&str; 12] = ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];
    VERDICTS.iter().any(|verdict| verdict.contains(text))
}
