//! The grammar of references.
//!
//! ```text
//! reference := [ "$" ] ( "." | ( "." name | "[" text "]" )+ )      the first part is a name
//! name      := letter or "_", then letters, digits, "_"
//! text      := '"' characters '"'        escapes: \" \\ \n \r \t
//! ```

use std::str::CharIndices;

use super::{Path, Side, Target, slips};
use crate::metadata::own_key;
use crate::near::{did_you_mean, slip};
use crate::text::Str;

/// More parts than any record has levels. Keeps the nesting that a `set` creates well below the limit for writing JSON.
const MOST_PARTS: usize = 64;

const ROOTS: [&str; 5] = ["Position", "Operation", "Metadata", "Key", "Payload"];

/// Error: the text is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReferenceError {
    message: String,
    hint: Option<String>,
    meant: Option<String>,
    several: Option<String>,
}

impl ReferenceError {
    fn new(text: &str, problem: &str) -> Self {
        ReferenceError {
            message: format!("invalid reference {text:?}: {problem}"),
            hint: None,
            meant: None,
            several: None,
        }
    }

    fn with_hint(self, hint: impl Into<String>) -> Self {
        ReferenceError { hint: Some(hint.into()), ..self }
    }

    fn meaning(self, meant: Option<String>) -> Self {
        ReferenceError { meant, ..self }
    }

    /// Returns the complete intended reference, if it is unambiguous.
    pub fn meant(&self) -> Option<&str> {
        self.meant.as_deref()
    }

    /// Returns the text as a list of references, if it contains several of them without commas.
    pub fn several(&self) -> Option<&str> {
        self.several.as_deref()
    }

    /// Returns a suggestion.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// Parses the target of a reference. An error contains suggestions for common mistakes.
pub(super) fn explained(text: &str) -> Result<Target, ReferenceError> {
    target(text).map_err(|error| match slips::find(text) {
        Some(slip) => ReferenceError {
            hint: Some(slip.hint),
            meant: slip.meant,
            several: slip.several,
            ..ReferenceError::new(text, &slip.problem)
        },
        None => error,
    })
}

/// Parses the target of a reference.
pub(super) fn target(text: &str) -> Result<Target, ReferenceError> {
    let wrong = |problem: &str| ReferenceError::new(text, problem);
    let rest = text.strip_prefix('$').unwrap_or(text);
    if rest.is_empty() && text.is_empty() {
        return Err(wrong("it is empty")
            .with_hint("write a reference, for example .Payload.After.name, .Key or .Metadata[\"a.b\"]"));
    }
    if rest.is_empty() || rest == "." {
        return Ok(Target::Record);
    }
    if !rest.starts_with('.') {
        let error = wrong("a reference starts with a dot");
        let dotted = slips::spelled(&format!(".{rest}"));
        return Err(match target(&dotted) {
            Ok(_) => error.with_hint(format!("did you mean {dotted}?")).meaning(Some(dotted)),
            Err(ReferenceError { hint: Some(hint), .. }) => error.with_hint(hint),
            Err(_) => error,
        });
    }
    let parts = parts(text, rest)?;
    let Some((root, below)) = parts.split_first() else { return Err(wrong("it names no part of the record")) };
    let data = |side: Side, below: &[Str]| match below.split_last() {
        None => Target::Data(side),
        Some((last, parents)) => Target::Field(side, Path { parents: parents.into(), last: last.clone() }),
    };
    match (root.as_str(), below) {
        ("Position" | "position", []) => Ok(Target::Position),
        ("Operation" | "operation", []) => Ok(Target::Operation),
        ("Position" | "position" | "Operation" | "operation", _) => Err(wrong("it has no parts")),
        ("Metadata" | "metadata", []) => Ok(Target::Metadata),
        // Files of other systems use their own names for metadata.
        ("Metadata" | "metadata", [key]) => Ok(Target::Entry(own_key(key).unwrap_or_else(|| key.clone()))),
        ("Metadata" | "metadata", keys) => {
            let joined: Str = keys.iter().map(Str::as_str).collect::<Vec<_>>().join(".").into();
            let joined = own_key(&joined).unwrap_or(joined);
            let mut meant = String::from(".Metadata");
            push_part(&joined, &mut meant);
            Err(wrong("metadata has one level").with_hint(format!("did you mean {meant}?")).meaning(Some(meant)))
        }
        ("Key" | "key", below) => Ok(data(Side::Key, below)),
        ("Payload" | "payload", []) => Ok(Target::Payload),
        ("Payload" | "payload", [side, below @ ..]) => match side.as_str() {
            "Before" | "before" => Ok(data(Side::Before, below)),
            "After" | "after" => Ok(data(Side::After, below)),
            other => {
                let hint = match did_you_mean(other, ["Before", "After"]) {
                    Some(near) => written(&["Payload", near], below),
                    None => written(&["Payload", "After", other], below),
                };
                let meant = slip(other, ["Before", "After"]).map(|part| written(&["Payload", part], below));
                Err(wrong("a payload has the parts Before and After")
                    .with_hint(format!("did you mean {hint}?"))
                    .meaning(meant))
            }
        },
        (other, below) => {
            let hint = match did_you_mean(other, ["Before", "After"].into_iter().chain(ROOTS)) {
                Some(side @ ("Before" | "After")) => written(&["Payload", side], below),
                Some(root) => written(&[root], below),
                None => written(&["Payload", "After", other], below),
            };
            let meant = slip(other, ROOTS).map(|root| written(&[root], below)).filter(|meant| target(meant).is_ok());
            Err(wrong("a record has the parts Position, Operation, Metadata, Key and Payload")
                .with_hint(format!("did you mean {hint}?"))
                .meaning(meant))
        }
    }
}

fn written(start: &[&str], below: &[Str]) -> String {
    let mut text = String::new();
    start.iter().copied().chain(below.iter().map(Str::as_str)).for_each(|part| push_part(part, &mut text));
    text
}

fn parts(text: &str, rest: &str) -> Result<Vec<Str>, ReferenceError> {
    let wrong = |problem: &str| ReferenceError::new(text, problem);
    let mut parts: Vec<Str> = Vec::new();
    let mut at = 0;
    while at < rest.len() {
        if parts.len() == MOST_PARTS {
            return Err(wrong("it has too many parts"));
        }
        if let Some(tail) = rest[at..].strip_prefix('.') {
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            let name = &tail[..end];
            if name.is_empty() {
                return Err(wrong("a name must follow each dot"));
            }
            if !is_name(name) {
                return Err(wrong(
                    "a name after a dot consists of letters, digits and \"_\", and does not start with a digit",
                )
                .with_hint("write any other key in brackets, for example .Payload.After[\"any key\"]"));
            }
            parts.push(name.into());
            at += 1 + end;
        } else if let Some(tail) = rest[at..].strip_prefix('[') {
            let Some(quoted) = tail.strip_prefix('"') else {
                let error = wrong("a key in brackets must be in double quotes");
                let inner = tail.split(']').next().unwrap_or_default();
                return Err(if !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_digit()) {
                    wrong("a reference cannot name an element of a list")
                        .with_hint("the processor \"split\" makes each element a record")
                } else {
                    error.with_hint(format!("write [{:?}]", inner.trim_matches('\'')))
                });
            };
            let mut chars = quoted.char_indices();
            let key = quoted_text(&mut chars).map_err(wrong)?;
            let Some(after) = chars.as_str().strip_prefix(']') else { return Err(wrong("a bracket is not closed")) };
            parts.push(key.into());
            at = rest.len() - after.len();
        } else {
            return Err(wrong("a dot or a bracket must follow a closing bracket"));
        }
    }
    Ok(parts)
}

/// Reads up to and including the closing quote.
fn quoted_text(chars: &mut CharIndices<'_>) -> Result<String, &'static str> {
    let mut key = String::new();
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => return Ok(key),
            '\n' => break,
            '\\' => key.push(match chars.next() {
                Some((_, c @ ('"' | '\\'))) => c,
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                Some((_, 't')) => '\t',
                _ => return Err("after a backslash, only \" \\ n r t may follow (write a backslash as two)"),
            }),
            c => key.push(c),
        }
    }
    Err("a quote is not closed")
}

pub(super) fn is_name(text: &str) -> bool {
    !text.starts_with(char::is_numeric) && text.chars().all(|c| c == '_' || c.is_alphanumeric())
}

/// Appends a part in the syntax of references: `.name`, or `["any text"]`.
pub fn push_part(key: &str, out: &mut String) {
    if !key.is_empty() && is_name(key) {
        out.push('.');
        out.push_str(key);
        return;
    }
    out.push_str("[\"");
    for c in key.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push_str("\"]");
}

pub(super) fn canonical(target: &Target) -> Str {
    let mut text;
    match target {
        Target::Record => return Str::from_static("."),
        Target::Position => return Str::from_static(".Position"),
        Target::Operation => return Str::from_static(".Operation"),
        Target::Metadata => return Str::from_static(".Metadata"),
        Target::Payload => return Str::from_static(".Payload"),
        Target::Data(side) => return Str::from_static(side.as_str()),
        Target::Entry(key) => {
            text = String::from(".Metadata");
            push_part(key, &mut text);
        }
        Target::Field(side, path) => {
            text = String::from(side.as_str());
            path.parents.iter().chain([&path.last]).for_each(|key| push_part(key, &mut text));
        }
    }
    text.into()
}
