//! Suggestions for texts that are not references: templates, pointers, paths of scripts, several references at once.

use super::parse::{is_name, push_part, target};

/// The problem of an invalid text, with a suggestion.
pub(super) struct ReferenceMistake {
    pub(super) problem: String,
    pub(super) hint: String,
    /// The intended reference, if it is unambiguous.
    pub(super) meant: Option<String>,
    /// The references that the text contains, separated by commas as in a list.
    pub(super) several: Option<String>,
}

impl ReferenceMistake {
    fn of(problem: impl Into<String>, hint: impl Into<String>) -> ReferenceMistake {
        ReferenceMistake { problem: problem.into(), hint: hint.into(), meant: None, several: None }
    }

    /// A slip that a single reference corrects.
    fn meaning(problem: impl Into<String>, meant: String) -> ReferenceMistake {
        let hint = format!("write {meant}");
        ReferenceMistake { meant: Some(meant), ..ReferenceMistake::of(problem, hint) }
    }
}

fn is_reference(text: &str) -> bool {
    target(text).is_ok()
}

/// Recognises common mistakes in a text that is not a reference.
pub(super) fn find(text: &str) -> Option<ReferenceMistake> {
    if !cfg!(feature = "suggestions") {
        return None;
    }
    let text = text.trim();
    braces(text)
        .or_else(|| template(text))
        .or_else(|| several(text))
        .or_else(|| star(text))
        .or_else(|| pointer(text))
        .or_else(|| record(text))
        .or_else(|| keys(text))
}

/// `{{ .Payload.After.a }}`.
fn braces(text: &str) -> Option<ReferenceMistake> {
    let inner = text.strip_prefix("{{")?.trim_start_matches('-');
    let inner = inner.strip_suffix("}}")?.trim_end_matches('-').trim();
    let problem = "a reference has no braces";
    if is_reference(inner) {
        return Some(ReferenceMistake::meaning(problem, inner.to_owned()));
    }
    match find(inner).and_then(|slip| slip.meant) {
        Some(meant) => Some(ReferenceMistake::meaning(problem, meant)),
        None => Some(ReferenceMistake::of(problem, "name the field itself, for example .Payload.After.name")),
    }
}

/// `.Payload.After.{{ .Key }}`.
fn template(text: &str) -> Option<ReferenceMistake> {
    text.contains("{{").then(|| {
        ReferenceMistake::of(
            "a reference is not a template: it names the same field of every record",
            "name the field itself, for example .Payload.After.name; for names that differ between records, use \
             custom.javascript",
        )
    })
}

/// Returns the reference to a field of the payload if the text leaves out `.Payload.After`: `.a`.
fn in_payload(part: &str) -> Option<String> {
    let field = format!(".Payload.After{part}");
    (part.len() > 1 && part.starts_with('.') && is_reference(&field)).then_some(field)
}

/// Returns a reference with the names of its root in the spelling of records: `.payload.after.a` becomes
/// `.Payload.After.a`.
pub(super) fn spelled(reference: &str) -> String {
    const ROOTS: [&str; 6] = [".Payload.Before", ".Payload.After", ".Metadata", ".Operation", ".Position", ".Key"];
    let begins = |root: &&str| {
        let rest = reference.get(root.len()..).filter(|_| reference[..root.len()].eq_ignore_ascii_case(root));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    match ROOTS.into_iter().filter(|root| reference.is_char_boundary(root.len().min(reference.len()))).find(begins) {
        Some(root) => format!("{root}{}", &reference[root.len()..]),
        None => reference.to_owned(),
    }
}

/// `.Key.a .Key.b`, `.Key.a; .Key.b`.
fn several(text: &str) -> Option<ReferenceMistake> {
    let parts: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '|'))
        .filter(|part| !part.is_empty())
        .collect();
    (parts.len() > 1).then_some(())?;
    let whole = |part: &&str| match part.starts_with('.') && is_reference(part) {
        true => Some((*part).to_owned()),
        false => in_payload(part),
    };
    let parts: Vec<String> = parts.iter().map(whole).collect::<Option<_>>()?;
    Some(ReferenceMistake {
        several: Some(parts.join(",")),
        ..ReferenceMistake::of(
            format!("it contains {} references", parts.len()),
            format!(
                "write one reference, or, if the setting accepts a list, separate them with commas: {}",
                parts.join(",")
            ),
        )
    })
}

/// `.Payload.After.*`.
fn star(text: &str) -> Option<ReferenceMistake> {
    let before = text.strip_suffix('*')?.trim_end_matches(['.', '*']);
    is_reference(before).then(|| {
        ReferenceMistake::of("`*` is not a wildcard", format!("write {before} for all of it, or name each field"))
    })
}

/// `/Payload/After/a`, `Payload->After->a`.
fn pointer(text: &str) -> Option<ReferenceMistake> {
    let parts: Vec<&str> = match text.starts_with('/') {
        true => text[1..].split('/').collect(),
        false if text.contains("->") => text.trim_start_matches(['.', '$']).split("->").collect(),
        false => return None,
    };
    let mut meant = String::new();
    parts.iter().filter(|part| !part.is_empty()).for_each(|part| push_part(part.trim(), &mut meant));
    is_reference(&meant).then(|| ReferenceMistake::meaning("dots separate the parts of a reference", meant))
}

/// `rec.Payload.After.a`, `.Record.Payload.After.a`.
fn record(text: &str) -> Option<ReferenceMistake> {
    let (first, rest) = text.trim_start_matches(['.', '$']).split_once(['.', '['])?;
    let rest = &text[text.len() - rest.len() - 1..];
    let names_record = matches!(
        first,
        "Record" | "record" | "rec" | "r" | "msg" | "message" | "Message" | "event" | "Event" | "this" | "self" | "it"
    );
    names_record.then_some(())?;
    let problem = format!("a reference does not name the record: {first}");
    if is_reference(rest) {
        return Some(ReferenceMistake::meaning(problem, spelled(rest)));
    }
    let field = in_payload(rest)?;
    // A field may have the same name that scripts use for a record.
    Some(match matches!(first, "this" | "self") {
        true => ReferenceMistake::meaning(problem, field),
        false => {
            let other = format!(".Payload.After.{first}{rest}");
            ReferenceMistake::of(problem, format!("write {field}, or {other} for a field of a field"))
        }
    })
}

/// `.Payload.After.a-b`, `.Payload.After['a']`, `.Payload.After.list.0`.
fn keys(text: &str) -> Option<ReferenceMistake> {
    let mut rest = text.strip_prefix('$').unwrap_or(text);
    rest.starts_with('.').then_some(())?;
    let mut meant = String::new();
    let mut problem = None;
    while !rest.is_empty() {
        let (key, behind) = match rest.strip_prefix('.') {
            Some(tail) => {
                let end = tail.find(['.', '[']).unwrap_or(tail.len());
                let key = &tail[..end];
                if !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit()) {
                    return Some(ReferenceMistake::of(
                        "a reference cannot name an element of a list",
                        format!(
                            "the processor \"split\" makes each element a record; write [{key:?}] for a field with \
                             this name"
                        ),
                    ));
                }
                if key.len() > 1 && key.starts_with('/') && key.ends_with('/') {
                    return Some(ReferenceMistake::of("a reference cannot contain a pattern", "name each field"));
                }
                if !is_name(key) {
                    // Only characters that join words are accepted; after other characters the end of the name is
                    // unclear.
                    let is_word = key
                        .chars()
                        .all(|c| is_name(c.encode_utf8(&mut [0; 4])) || c.is_numeric() || "-:/@#+~".contains(c));
                    (is_word && !key.is_empty()).then_some(())?;
                    problem.get_or_insert(
                        "a name after a dot consists of letters, digits and \"_\", and does not start with a digit",
                    );
                }
                (key, &tail[end..])
            }
            None => {
                let inner = rest.strip_prefix('[')?;
                let end = inner.find(']')?;
                let key = inner[..end].trim();
                if key.is_empty() || key == "*" {
                    return Some(ReferenceMistake::of(
                        "a reference cannot name an element of a list",
                        "the processor \"split\" makes each element a record",
                    ));
                }
                if key.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                let key = match key.strip_prefix('"') {
                    Some(key) => key.strip_suffix('"')?,
                    None => {
                        problem.get_or_insert("a key in brackets must be in double quotes");
                        key.trim_matches('\'')
                    }
                };
                (!key.contains(['"', '\'', '\\', '['])).then_some(())?;
                (key, &inner[end + 1..])
            }
        };
        push_part(key, &mut meant);
        rest = behind;
    }
    let problem = problem?;
    is_reference(&meant).then(|| ReferenceMistake::meaning(problem, meant))
}
