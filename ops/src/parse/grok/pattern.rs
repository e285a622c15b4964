//! Grok patterns: regular expressions with names of other patterns in them.

use std::collections::HashMap;
use std::sync::LazyLock;

use anabranch_plugin::parameters::Choice;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use fancy_regex::{Captures, Regex, RegexBuilder};

use crate::field::convert::ScalarType;

/// Steps back of one search before it ends with an error: some tenths of a second.
const STEPS: usize = 200_000;

/// Patterns within each other; those that are known have less.
const DEPTH: usize = 32;

/// Maximum length of a pattern with all patterns that it names, in bytes.
const LENGTH: usize = 1 << 18;

/// The patterns of Logstash by their names.
static KNOWN: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| ::grok::patterns().iter().copied().collect());

/// A named part of a text.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: Str,
    pub(super) ty: ScalarType,
    /// The groups of the expression with the name; at most one of them takes part in a match.
    pub(super) groups: Vec<usize>,
}

/// A compiled pattern.
pub(super) struct Pattern {
    regex: Regex,
    /// In the order of their names.
    parts: Vec<Part>,
}

/// What is wrong with a pattern.
#[derive(Debug)]
pub(super) struct PatternError {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl PatternError {
    fn new(message: impl Into<String>) -> PatternError {
        PatternError { message: message.into(), hint: None }
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It is no regular expression, names a pattern or type that does not exist, or names no part.
    pub(super) fn compile(text: &str) -> Result<Pattern, PatternError> {
        let mut expansion = Expansion { text: String::new(), named: Vec::new() };
        expansion.expand(text, DEPTH)?;
        let regex = RegexBuilder::new(&expansion.text)
            .oniguruma_mode(true)
            .backtrack_limit(STEPS)
            .build()
            .map_err(|error| PatternError::new(format!("the pattern is wrong: {error}")))?;
        let mut parts: Vec<Part> = Vec::new();
        for (group, name) in regex.capture_names().enumerate() {
            let Some(name) = name else { continue };
            let (name, ty) = match name.strip_prefix(OWN).and_then(|number| number.parse::<usize>().ok()) {
                Some(number) => expansion.named[number].clone(),
                None => (Str::from(name), ScalarType::String),
            };
            match parts.iter_mut().find(|part| part.name == name) {
                Some(part) => {
                    part.groups.push(group);
                    if ty != ScalarType::String {
                        part.ty = ty;
                    }
                }
                None => parts.push(Part { name, ty, groups: vec![group] }),
            }
        }
        if parts.is_empty() {
            let hint = Some("name the parts to take, for example %{NUMBER:bytes:int}".to_owned());
            return Err(PatternError { message: "the pattern names no part".to_owned(), hint });
        }
        parts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Pattern { regex, parts })
    }

    /// Returns the named parts in the order of their names.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Searches a text; at most [`STEPS`] steps back.
    ///
    /// # Errors
    /// The search took too many steps.
    pub(super) fn search<'t>(&self, text: &'t str) -> Result<Option<Captures<'t, str>>, Box<fancy_regex::Error>> {
        self.regex.captures(text).map_err(Box::new)
    }
}

/// How the names of groups begin that stand for the parts of a pattern: names of parts may be none of groups.
const OWN: &str = "anabranch_part_";

/// A regular expression that grows while patterns are put in the places of their names.
struct Expansion {
    text: String,
    /// The names and types of the parts, by the number of their group.
    named: Vec<(Str, ScalarType)>,
}

impl Expansion {
    fn expand(&mut self, pattern: &str, depth: usize) -> Result<(), PatternError> {
        if depth == 0 || self.text.len() > LENGTH {
            return Err(PatternError::new("the pattern with all patterns in it is too long"));
        }
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once("%{") {
            self.text.push_str(before);
            let (reference, after) =
                after.split_once('}').ok_or_else(|| PatternError::new("the pattern has %{ without }"))?;
            self.reference(reference, depth)?;
            rest = after;
        }
        self.text.push_str(rest);
        Ok(())
    }

    /// Appends the pattern of `NAME`, `NAME:part` or `NAME:part:type`.
    fn reference(&mut self, reference: &str, depth: usize) -> Result<(), PatternError> {
        let mut elements = reference.split(':').map(str::trim);
        let name = elements.next().unwrap_or_default();
        let part = elements.next().filter(|part| !part.is_empty());
        let Some(definition) = KNOWN.get(name) else {
            let near = did_you_mean(name, KNOWN.keys().copied());
            let hint = near.map(|near| format!("did you mean {near}?"));
            return Err(PatternError { message: format!("there is no pattern {name}"), hint });
        };
        match part {
            Some(part) => {
                let ty = match elements.next() {
                    None => ScalarType::String,
                    Some(ty) => type_of(ty, part)?,
                };
                self.text.push_str(&format!("(?<{OWN}{}>", self.named.len()));
                self.named.push((part_name(part), ty));
            }
            None => self.text.push_str("(?:"),
        }
        self.expand(definition, depth - 1)?;
        self.text.push(')');
        Ok(())
    }
}

/// Returns the name of a part: `[source][ip]`, as newer patterns have it, is `source.ip`.
fn part_name(part: &str) -> Str {
    match part.strip_prefix('[').and_then(|part| part.strip_suffix(']')) {
        Some(path) => Str::from(path.split("][").collect::<Vec<_>>().join(".")),
        None => Str::from(part),
    }
}

fn type_of(ty: &str, part: &str) -> Result<ScalarType, PatternError> {
    let name = match ty {
        "integer" | "long" => "int",
        "double" => "float",
        "boolean" => "bool",
        other => other,
    };
    ScalarType::CHOICES.iter().find(|(known, _)| *known == name).map(|(_, ty)| *ty).ok_or_else(|| {
        let names = ScalarType::CHOICES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        PatternError {
            message: format!("the type {ty:?} of the part {part:?} is unknown"),
            hint: Some(format!("the types are {names}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_pattern_compiles() {
        let mut wrong = Vec::new();
        for name in KNOWN.keys() {
            if let Err(error) = Pattern::compile(&format!("%{{{name}:it}}")) {
                wrong.push(format!("{name}: {}", error.message));
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }
}
