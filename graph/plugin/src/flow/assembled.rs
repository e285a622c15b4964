//! JSON that a template assembles by hand, judged by its literal parts.

use serde::de::IgnoredAny;

use anabranch_template::Template;
use anabranch_template::tree::{Command, Node, Operand, Pipeline, Term};

/// Longest template that is judged, in bytes.
const LONGEST: usize = 4096;
/// Texts that a value of an unknown kind may print outside of quotes, the most likely one first.
const UNKNOWN: [&str; 12] = ["1", "\"x\"", "{}", "", "\"x\":1", ",\"x\":1", "\"x\":1,", ",1", "{", "}", "[", "]"];
/// Maximum number of values outside of quotes for which all combinations are tried.
const COMBINED: usize = 3;

/// A part of a template.
enum TemplatePiece<'t> {
    Text(&'t str),
    /// A value, with the texts that it may print.
    Value(&'static [&'static str]),
}

/// Returns `false` if the output of a template is JSON for no record, judged by its literal parts. With
/// `is_object`, the output must be an object, a text or null; otherwise it may be several values.
pub fn may_be_json(template: &Template, is_object: bool) -> bool {
    if template.source().len() > LONGEST {
        return true;
    }
    let fits = |text: &str| match is_object {
        true => serde_json::from_str::<serde_json::Value>(text)
            .is_ok_and(|value| value.is_object() || value.is_string() || value.is_null()),
        false => serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>().all(|value| value.is_ok()),
    };
    let Some(pieces) = pieces(template) else { return true };
    let values: Vec<&[&str]> = pieces
        .iter()
        .filter_map(|piece| match piece {
            TemplatePiece::Value(texts) => Some(*texts),
            TemplatePiece::Text(_) => None,
        })
        .collect();
    let printed = |chosen: &[usize]| {
        let mut chosen = chosen.iter();
        let of = |piece: &TemplatePiece<'_>| match piece {
            TemplatePiece::Text(text) => (*text).to_owned(),
            TemplatePiece::Value(texts) => {
                chosen.next().and_then(|at| texts.get(*at)).copied().unwrap_or_default().to_owned()
            }
        };
        pieces.iter().map(of).collect::<String>()
    };
    let mut chosen = vec![0; values.len()];
    let open: Vec<usize> = (0..values.len()).filter(|at| values[*at].len() > 1).collect();
    if open.len() > COMBINED {
        // At most one value is unusual.
        return fits(&printed(&chosen))
            || open.iter().any(|at| {
                (1..values[*at].len()).any(|text| {
                    let mut chosen = chosen.clone();
                    chosen[*at] = text;
                    fits(&printed(&chosen))
                })
            });
    }
    loop {
        if fits(&printed(&chosen)) {
            return true;
        }
        let Some(next) = open.iter().find(|at| chosen[**at] + 1 < values[**at].len()) else { return false };
        chosen[*next] += 1;
        open.iter().take_while(|at| *at != next).for_each(|at| chosen[*at] = 0);
    }
}

/// Returns the parts of a template; `None` for a template with branches, whose parts are not known.
fn pieces(template: &Template) -> Option<Vec<TemplatePiece<'_>>> {
    let source = template.source();
    let mut pieces = Vec::new();
    let (mut quoted, mut escaped) = (false, false);
    let tree = template.tree();
    for node in tree.templates.first()?.body.iter() {
        match node {
            Node::Text(at) => {
                let text = source.get(at.start as usize..at.end as usize)?;
                for c in text.chars() {
                    quoted ^= c == '"' && !escaped;
                    escaped = quoted && c == '\\' && !escaped;
                }
                pieces.push(TemplatePiece::Text(text));
            }
            Node::Print(pipeline) => pieces.push(TemplatePiece::Value(printed(pipeline, quoted))),
            Node::Let(_) => {}
            _ => return None,
        }
    }
    Some(pieces)
}

/// Returns the texts that a value may print.
fn printed(pipeline: &Pipeline, quoted: bool) -> &'static [&'static str] {
    let Some(Command { head: Operand { term, .. }, .. }) = pipeline.commands.last() else { return &UNKNOWN };
    let is_operation = |names: &[anabranch_record::text::Str]| {
        matches!(names, [first] if *first == *"Operation")
            || matches!(names, [first, second] if *first == *"Operation" && *second == *"String")
    };
    match term {
        Term::Function(function) => match function.name {
            "quote" => &["\"x\""],
            "uuidv4" => &["0f8fad5b-d9cb-469f-a165-70867728950e"],
            "sha1sum" | "sha256sum" | "sha512sum" => &["0f8fad5b"],
            // A JSON value inside of quotes ends them, unless it is a number or a word.
            "toJson" | "toRawJson" | "toPrettyJson" | "mustToJson" => &["1", "\"x\"", "{}", "[]"],
            _ if quoted => &["x"],
            _ => &UNKNOWN,
        },
        Term::Field(fields) if is_operation(&fields.names) => &["create"],
        _ if quoted => &["x"],
        _ => &UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use anabranch_template::MissingKey;

    use super::*;

    fn judged(text: &str, is_object: bool) -> bool {
        may_be_json(&Template::parse(text, MissingKey::NoValue).unwrap(), is_object)
    }

    #[test]
    fn what_literal_parts_rule_out_is_never_json() {
        for text in [
            "{'id': {{ .Payload.After.id }}}",
            "{\"id\": {{ .Payload.After.id }},}",
            "{\"id\": {{ .Payload.After.id }}",
            "{\"id\": {{ uuidv4 }}}",
            "{\"id\": \"{{ quote .Payload.After.name }}\"}",
            "{\"op\": {{ .Operation }}}",
            "{id: {{ .Payload.After.id }}}",
            "id={{ .Payload.After.id }}",
            "{\"a\": None}",
            "{\"a\": {{ .Key }}, \"b\": {{ .Key }}, \"c\": {{ .Key }}, \"d\": {{ .Key }},}",
        ] {
            assert!(!judged(text, true), "{text}");
            assert!(!judged(text, false), "{text}");
        }
        assert!(!judged("[{{ .Payload.After.id }}]", true));
    }

    #[test]
    fn what_some_data_make_json_is_left_alone() {
        for text in [
            "{\"id\": {{ .Payload.After.id }}}",
            "{\"id\": \"{{ .Payload.After.id }}\", \"n\": {{ toJson .Payload.After.n }}}",
            "{\"id\": {{ quote .Payload.After.id }}{{ .Payload.After.more }}}",
            "{{ .Payload.After.text }}",
            "{{ .Payload.After.open }}\"a\": 1}",
            "{\"id\": \"a-{{ uuidv4 }}\", \"h\": \"{{ sha256sum .Payload.After.id }}\"}",
            "{\"a\": {{ .Key }}, \"b\": {{ .Key }}, \"c\": {{ .Key }}{{ .Payload.After.more }}}",
            "{\"a\": 1{{ if .Key }}, \"b\": 2{{ end }}}",
            "{ {{- \"\\\"a\\\": 1\" -}} }",
            "{\"t\": \"a \\\" {{ .Payload.After.t }}\"}",
            "\"{{ toJson .Payload.After.n }}\"",
        ] {
            assert!(judged(text, true), "{text}");
        }
        assert!(judged("{{ toJson .Payload.After }}\n{{ toJson .Payload.After }}", false));
        assert!(judged("[{{ .Payload.After.id }}]", false));
    }
}
