//! The origin of a field's value at a point: the effect of the earlier processors on it, independent of the data.

use std::collections::HashSet;

use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::graph::{Node, NodeKind};
use anabranch_record::access::Access;
use anabranch_template::tree::{Body, Command, Literal, Node as Part, Operand, Pipeline, Term};
use anabranch_template::{MissingKey, Template};
use petgraph::graph::NodeIndex;
use petgraph::visit::{Dfs, DfsPostOrder, Reversed, Walker as _};

use super::names::{FieldPath, paths};
use super::patterns::{Pattern, Piece};
use super::records::whole;
use super::script;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ValueOrigin {
    /// From the source, or decoded from the whole value of the source.
    Given,
    /// From the pipeline alone: a constant, or no value at all.
    Fixed,
    /// From a processor that determines its form, such as a hash or a number.
    Formed,
    /// From a template that puts text of the record between constant text.
    Around(Pattern),
    /// From a processor with unknown results.
    Any,
}

/// Returns the origin of a field after the processors of each source, as [`steps_before`] returns them.
pub(super) fn origin(lines: &[Vec<&Node>], path: &FieldPath) -> ValueOrigin {
    let mut found: Option<ValueOrigin> = None;
    for steps in lines {
        let here = behind(steps, path);
        found = match found {
            Some(other) if other != here => return ValueOrigin::Any,
            _ => Some(here),
        };
    }
    found.unwrap_or(ValueOrigin::Any)
}

/// The processors between each source and the node of `rewritten`, in order.
pub(super) fn steps_before(compiled: &Compiled, at: NodeIndex) -> Vec<Vec<&Node>> {
    let plan = &compiled.rewritten;
    let above: Vec<NodeIndex> = DfsPostOrder::new(Reversed(plan), at).iter(Reversed(plan)).collect();
    let sources = above.iter().filter(|index| matches!(plan[**index].kind, NodeKind::Source(_)));
    let lines = sources.map(|source| {
        let below: HashSet<NodeIndex> = Dfs::new(plan, *source).iter(plan).collect();
        let steps = above.iter().filter(|index| **index != at && below.contains(index)).map(|index| &plan[*index]);
        steps.filter(|node| node.kind.operator().is_some()).collect()
    });
    lines.collect()
}

/// Returns the origin of a field after the processors that follow a source.
fn behind(steps: &[&Node], path: &FieldPath) -> ValueOrigin {
    let Some((last, steps)) = steps.split_last() else { return ValueOrigin::Given };
    let before = behind(steps, path);
    let after = made(last, steps, path, &before);
    let is_guarded = last.kind.operator().is_some_and(|step| step.guard.is_some());
    match is_guarded && after != before && before != ValueOrigin::Given {
        true => ValueOrigin::Any,
        false => after,
    }
}

/// Returns the origin of a field after a processor.
fn made(step: &Node, steps: &[&Node], path: &FieldPath, before: &ValueOrigin) -> ValueOrigin {
    let Some(operator) = step.kind.operator() else { return before.clone() };
    let fields: Vec<FieldPath> = setting(step, "field").map(paths).unwrap_or_default();
    let is_at = fields.iter().any(|field| field == path);
    let is_in = fields.iter().any(|field| holds(field, path));
    // A processor that keeps a value which depends only on the pipeline.
    let kept = |other: ValueOrigin| if *before == ValueOrigin::Fixed { ValueOrigin::Fixed } else { other };
    match operator.plugin.as_str() {
        "field.set" => match setting(step, "value").map(form) {
            Some(form) if is_at || (is_in && form == ValueOrigin::Fixed) => form,
            Some(_) if is_in => ValueOrigin::Any,
            _ => before.clone(),
        },
        "field.convert" if is_at && setting(step, "type") != Some("string") => kept(ValueOrigin::Formed),
        "json.decode" if is_in => match (before, fields.iter().any(|field| field.names.is_empty())) {
            (ValueOrigin::Given, true) => ValueOrigin::Given,
            _ => kept(ValueOrigin::Any),
        },
        "vrl" => ValueOrigin::Any,
        "base64.decode" | "split" if is_in => kept(ValueOrigin::Any),
        "base64.encode" | "json.encode" if is_at => kept(ValueOrigin::Formed),
        // A text has no fields.
        "base64.encode" | "json.encode" if is_in => ValueOrigin::Fixed,
        "ai.chunk" if is_in => ValueOrigin::Formed,
        "unwrap.debezium" | "unwrap.kafkaconnect" | "unwrap.opencdc" => kept(ValueOrigin::Any),
        "field.exclude" => {
            let gone = setting(step, "fields").map(paths).unwrap_or_default();
            if gone.iter().any(|field| holds(field, path)) { ValueOrigin::Fixed } else { before.clone() }
        }
        "field.rename" => renamed(step, steps, path, before),
        "custom.javascript" => {
            let script = step.settings.iter().find(|given| given.name.starts_with("script"));
            match script.map(|given| script::effect(whole(&given.value), path)) {
                Some(script::Effect::None) => before.clone(),
                Some(script::Effect::Fixed) => ValueOrigin::Fixed,
                _ => ValueOrigin::Any,
            }
        }
        _ => before.clone(),
    }
}

/// `from:to,from:to`.
fn renamed(step: &Node, steps: &[&Node], path: &FieldPath, before: &ValueOrigin) -> ValueOrigin {
    let mapping = setting(step, "mapping").unwrap_or_default();
    for pair in mapping.split(',') {
        let Some((from, to)) = pair.split_once(':') else { continue };
        let [from] = &paths(from)[..] else { continue };
        let mut target = from.clone();
        target.names.pop();
        target.names.push(to.trim().to_owned());
        if holds(&target, path) {
            let rest = &path.names[target.names.len()..];
            let names = from.names.iter().chain(rest).cloned().collect();
            return behind(steps, &FieldPath { side: path.side, names });
        }
        if holds(from, path) {
            return ValueOrigin::Fixed;
        }
    }
    before.clone()
}

/// Returns `true` if the field is `inner` or holds it.
fn holds(field: &FieldPath, inner: &FieldPath) -> bool {
    field.side == inner.side && inner.names.starts_with(&field.names)
}

fn setting<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.settings.iter().find(|given| given.name == *name).map(|given| whole(&given.value))
}

/// The form of the text that a template prints.
pub(super) fn form(text: &str) -> ValueOrigin {
    let Ok(template) = Template::parse(text, MissingKey::NoValue) else { return ValueOrigin::Any };
    if template.reads() == Access::NOTHING {
        return ValueOrigin::Fixed;
    }
    let tree = template.tree();
    let Some(main) = tree.templates.first() else { return ValueOrigin::Any };
    let mut printed = PrintedTemplate::default();
    printed.read(&tree.source, &main.body);
    match printed {
        PrintedTemplate { is_free: false, .. } => ValueOrigin::Formed,
        PrintedTemplate { is_branched: true, .. } => ValueOrigin::Any,
        PrintedTemplate { pieces, .. } => ValueOrigin::Around(Pattern(pieces)),
    }
}

/// Output of a template.
#[derive(Default)]
struct PrintedTemplate {
    pieces: Vec<Piece>,
    /// `true` if a value of the record is printed unchanged.
    is_free: bool,
    /// `true` if the choice of the printed pieces depends on the record.
    is_branched: bool,
}

impl PrintedTemplate {
    fn read(&mut self, source: &str, body: &Body) {
        for part in body {
            match part {
                Part::Text(at) => {
                    let text = source.get(at.start as usize..at.end as usize).unwrap_or_default();
                    self.pieces.push(Piece::Text(text.to_owned()));
                }
                Part::Print(pipeline) => {
                    self.pieces.extend(joined(pipeline).unwrap_or_else(|| vec![Piece::Hole]));
                    self.is_free |= !is_formed(pipeline);
                }
                Part::Let(_) => {}
                Part::If(branches) | Part::With(branches) => {
                    self.is_branched = true;
                    branches.arms.iter().for_each(|(_, body)| self.read(source, body));
                    self.read(source, &branches.otherwise);
                }
                Part::Range(range) => {
                    self.is_branched = true;
                    self.read(source, &range.body);
                    self.read(source, &range.otherwise);
                }
                Part::Template(_) => (self.is_branched, self.is_free) = (true, true),
                Part::Break | Part::Continue => self.is_branched = true,
            }
        }
    }
}

/// The pieces of the text that `printf` or `cat` creates from its arguments.
fn joined(pipeline: &Pipeline) -> Option<Vec<Piece>> {
    let [Command { head, args }] = &*pipeline.commands else { return None };
    let Term::Function(function) = &head.term else { return None };
    match function.name {
        "printf" => {
            let mut values = args.get(1..)?.iter();
            let mut rest = text(args.first()?)?;
            let mut pieces = Vec::new();
            while let Some((before, after)) = rest.split_once('%') {
                pieces.push(Piece::Text(before.to_owned()));
                let at = after.find(|c: char| c.is_ascii_alphabetic() || "%*[".contains(c))?;
                let verb = after[at..].chars().next()?;
                match verb {
                    '%' => pieces.push(Piece::Text("%".to_owned())),
                    '*' | '[' => return None,
                    verb => {
                        let constant = text(values.next()?).filter(|_| at == 0 && matches!(verb, 's' | 'v'));
                        pieces.push(constant.map_or(Piece::Hole, |text| Piece::Text(text.to_owned())));
                    }
                }
                rest = &after[at + 1..];
            }
            pieces.push(Piece::Text(rest.to_owned()));
            Some(pieces)
        }
        // Between its arguments `cat` writes spaces, and none for those that are null.
        "cat" => {
            let piece = |arg| text(arg).map_or(Piece::Hole, |text| Piece::Text(text.trim().to_owned()));
            let pieces = args.iter().flat_map(|arg| [piece(arg), Piece::Hole]).collect::<Vec<_>>();
            let (_, pieces) = pieces.split_last()?;
            Some(pieces.to_vec())
        }
        _ => None,
    }
}

/// Functions whose output has a fixed form, whatever their arguments are.
const FORMED: [&str; 66] = [
    "add",
    "add1",
    "add1f",
    "addf",
    "adler32sum",
    "ago",
    "b32enc",
    "b64enc",
    "ceil",
    "contains",
    "dict",
    "div",
    "divf",
    "duration",
    "durationRound",
    "empty",
    "eq",
    "float64",
    "floor",
    "ge",
    "gt",
    "has",
    "hasKey",
    "hasPrefix",
    "hasSuffix",
    "htmlDate",
    "int",
    "int64",
    "kindIs",
    "kindOf",
    "le",
    "len",
    "list",
    "lt",
    "max",
    "maxf",
    "min",
    "minf",
    "mod",
    "mul",
    "mulf",
    "mustHas",
    "mustRegexMatch",
    "mustToJson",
    "ne",
    "not",
    "now",
    "quote",
    "randAlpha",
    "regexMatch",
    "round",
    "semverCompare",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "split",
    "splitList",
    "squote",
    "sub",
    "subf",
    "toJson",
    "toPrettyJson",
    "toRawJson",
    "typeOf",
    "unixEpoch",
    "uuidv4",
];

fn is_formed(pipeline: &Pipeline) -> bool {
    let Some(Command { head, args }) = pipeline.commands.last() else { return false };
    let is_literal = |at: usize| matches!(args.get(at).map(|arg| &arg.term), Some(Term::Literal(_)));
    match &head.term {
        Term::Literal(_) => true,
        Term::Function(function) => match function.name {
            "printf" => args.first().and_then(text).is_some_and(|format| !prints_text(format)),
            "date" | "dateInZone" | "date_in_zone" => is_literal(0),
            "ternary" => is_literal(0) && is_literal(1),
            // The path is in the file system of the source.
            "index" => args.get(1).and_then(text) == Some("file.path"),
            name => FORMED.contains(&name),
        },
        Term::Field(fields) => fields.names.first().is_some_and(|first| first == "Operation"),
        Term::Pipeline(inner) => is_formed(inner),
        Term::Chain { fields, .. } => is_literal(0) && fields.names.last().is_some_and(|last| last == "Format"),
        Term::Dot | Term::Nil | Term::Variable { .. } => false,
    }
}

fn text(operand: &Operand) -> Option<&str> {
    match &operand.term {
        Term::Literal(Literal::Text(text)) => Some(text),
        _ => None,
    }
}

/// Returns `true` if a format prints a text as it is: `%s`, `%v`.
fn prints_text(format: &str) -> bool {
    let verb = |rest: &str| rest.chars().find(|c| c.is_ascii_alphabetic() || *c == '%');
    let format = format.replace("%%", "");
    format.match_indices('%').any(|(at, _)| matches!(verb(&format[at + 1..]), Some('s' | 'v' | '%') | None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_a_form_of_its_own_or_that_of_the_data() {
        for text in ["n/a", "{{ list 1 2 | join \",\" }}", "{{ add 1 2 }} EUR"] {
            assert_eq!(form(text), ValueOrigin::Fixed, "{text}");
        }
        for text in [
            "{{ quote .Payload.After.n }}",
            "{{ if .Payload.After.on }}yes{{ else }}no{{ end }}",
            "{{ printf \"%.2f\" .Payload.After.n }} EUR",
            "{{ .Payload.After | toJson }}",
            "{{ ternary \"on\" \"off\" .Payload.After.on }}",
            "{{ .Operation }}",
            "{{ now }}",
            "{{ printf \"%.1f%%\" (float64 .Payload.After.n) }}",
            "{{ ago now }}{{ .Operation }}",
            "{{ index .Metadata \"file.path\" }}",
        ] {
            assert_eq!(form(text), ValueOrigin::Formed, "{text}");
        }
        for text in ["{{ .Payload.After.n }}", "a {{ trim .Payload.After.n }}", "{{ printf \"%s!\" .Key }}"] {
            assert!(matches!(form(text), ValueOrigin::Around(_)), "{text}");
        }
        let pieces = |pieces: &[Option<&str>]| {
            let piece = |piece: &Option<&str>| piece.map_or(Piece::Hole, |text| Piece::Text(text.to_owned()));
            ValueOrigin::Around(Pattern(pieces.iter().map(piece).collect()))
        };
        assert_eq!(form("{{ cat .Key \"EUR \" }}"), pieces(&[None, None, Some("EUR")]));
        assert_eq!(
            form("{{ printf \"%s-%5s%%\" \"a\" .Key }}"),
            pieces(&[Some(""), Some("a"), Some("-"), None, Some(""), Some("%"), Some("")])
        );
        for text in ["{{ range .Payload.After.l }}{{ . }}{{ end }}", "{{ if .Key }}{{ .Payload.After.n }}{{ end }}"] {
            assert_eq!(form(text), ValueOrigin::Any, "{text}");
        }
    }
}
