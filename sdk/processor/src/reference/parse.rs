//! The grammar of references.
//!
//! ```text
//! reference := ( "." name | "[" text "]" )+      the first part is a name
//! name      := letters, digits and "_", no digit first
//! text      := '"' characters '"'                escapes: \" \\ \n \r \t
//! ```

use std::fmt;

use super::{Side, Target};

/// Maximum number of parts of a reference, more than any record has levels.
const MOST_PARTS: usize = 64;

/// Error for a text that is not a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceError {
    text: String,
    problem: &'static str,
}

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a reference: {}", self.text, self.problem)
    }
}

impl std::error::Error for ReferenceError {}

pub(super) fn target(text: &str) -> Result<Target, ReferenceError> {
    let wrong = |problem| ReferenceError { text: text.to_owned(), problem };
    let mut parts = parts(text).map_err(wrong)?.into_iter();
    let root = parts.next().unwrap_or_default();
    let data =
        |side, below: Vec<String>| if below.is_empty() { Target::Data(side) } else { Target::Field(side, below) };
    let alone = |target, below: Vec<String>| {
        if below.is_empty() { Ok(target) } else { Err(wrong("it has no parts")) }
    };
    match root.as_str() {
        "Position" | "position" => alone(Target::Position, parts.collect()),
        "Operation" | "operation" => alone(Target::Operation, parts.collect()),
        "Key" | "key" => Ok(data(Side::Key, parts.collect())),
        "Metadata" | "metadata" => match (parts.next(), parts.next()) {
            (None, _) => Ok(Target::Metadata),
            (Some(key), None) => Ok(Target::Entry(crate::metadata::ours(&key).into_owned())),
            _ => Err(wrong("metadata has one level; write .Metadata[\"a.b\"] for a key with dots")),
        },
        "Payload" | "payload" => match parts.next().as_deref() {
            None => Ok(Target::Payload),
            Some("Before" | "before") => Ok(data(Side::Before, parts.collect())),
            Some("After" | "after") => Ok(data(Side::After, parts.collect())),
            Some(_) => Err(wrong("a payload has the parts Before and After")),
        },
        _ => Err(wrong("a record has the parts Position, Operation, Metadata, Key and Payload")),
    }
}

fn parts(text: &str) -> Result<Vec<String>, &'static str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    if !text.starts_with('.') {
        return Err("it does not start with a dot");
    }
    while !rest.is_empty() {
        if parts.len() == MOST_PARTS {
            return Err("it has too many parts");
        }
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            let name = &tail[..end];
            if name.is_empty() {
                return Err("a name must follow each dot");
            }
            if name.starts_with(char::is_numeric) || !name.chars().all(|c| c == '_' || c.is_alphanumeric()) {
                return Err(
                    "a name after a dot consists of letters, digits and \"_\", and does not start with a digit; write \
                     [\"a-b\"] for any other key",
                );
            }
            parts.push(name.to_owned());
            rest = &tail[end..];
        } else if let Some(tail) = rest.strip_prefix("[\"") {
            let mut key = String::new();
            let mut chars = tail.chars();
            loop {
                match chars.next() {
                    None => return Err("a quote is not closed"),
                    Some('"') => break,
                    Some('\\') => key.push(match chars.next() {
                        Some(c @ ('"' | '\\')) => c,
                        Some('n') => '\n',
                        Some('r') => '\r',
                        Some('t') => '\t',
                        _ => return Err("after a backslash, only \" \\ n r t may follow"),
                    }),
                    Some(c) => key.push(c),
                }
            }
            rest = chars.as_str().strip_prefix(']').ok_or("a bracket is not closed")?;
            parts.push(key);
        } else {
            return Err("a key in brackets must be in double quotes, and a dot or bracket must follow each part");
        }
    }
    Ok(parts)
}
