//! The fields, metadata and texts that a pipeline names, which are the material of synthetic records.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_record::reference::Side;

/// Maximum number of names of one kind that are taken from a pipeline.
const MOST: usize = 64;
/// Maximum length of a text of a pipeline that becomes a value.
const LONGEST: usize = 64;

/// Names of fields, with the names of their fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree(pub(super) BTreeMap<String, Tree>);

impl Tree {
    fn add(&mut self, path: &[String]) {
        let [first, rest @ ..] = path else { return };
        if self.0.len() < MOST || self.0.contains_key(first) {
            self.0.entry(first.clone()).or_default().add(rest);
        }
    }

    /// Names of both.
    pub(super) fn with(&self, other: &Tree) -> Tree {
        let mut both = self.clone();
        for (name, inner) in &other.0 {
            let merged = both.0.get(name).map_or_else(|| inner.clone(), |ours| ours.with(inner));
            both.0.insert(name.clone(), merged);
        }
        both
    }
}

/// A field that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPath {
    /// The side of the record.
    pub(super) side: Side,
    /// Path of names in the side; empty = the whole side.
    pub(super) names: Vec<String>,
}

/// Names in the texts of a pipeline.
#[derive(Clone, Debug, Default)]
pub(super) struct PipelineNames {
    /// Fields of the key.
    pub(super) key: Tree,
    /// Fields of both sides of the payload.
    pub(super) data: Tree,
    /// Fields of other values: of the elements of a list, or of a variable.
    pub(super) loose: Tree,
    /// Keys of metadata.
    pub(super) metadata: BTreeSet<String>,
    /// Quoted texts, in the order of the pipeline.
    pub(super) literals: Vec<String>,
}

impl PipelineNames {
    /// Adds the names in a text.
    pub(super) fn read(&mut self, text: &str) {
        for path in paths(text) {
            match path.side {
                Side::Key => self.key.add(&path.names),
                Side::Before | Side::After => self.data.add(&path.names),
            }
        }
        for chain in loose(text) {
            self.loose.add(&chain);
        }
        for literal in literals(text) {
            if is_name(&literal) {
                self.loose.add(std::slice::from_ref(&literal));
            }
            if text.contains("Metadata") && literal.len() <= LONGEST && self.metadata.len() < MOST {
                self.metadata.insert(literal.clone());
            }
            if literal.len() <= LONGEST && self.literals.len() < MOST && !self.literals.contains(&literal) {
                self.literals.push(literal);
            }
        }
    }
}

/// The fields of records that a text names, each once: `.Payload.After.a.b`, `index .Payload.After "a"`,
/// `rec.Payload.After["a"]`.
pub(super) fn paths(text: &str) -> Vec<FieldPath> {
    const ROOTS: [(&str, Side); 3] =
        [(".Payload.After", Side::After), (".Payload.Before", Side::Before), (".Key", Side::Key)];
    let mut found = Vec::new();
    for (root, side) in ROOTS {
        for (at, _) in text.match_indices(root) {
            let rest = &text[at + root.len()..];
            if rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let (mut names, rest) = chain(rest);
            if text[..at].trim_end().ends_with("index") {
                names.extend(leading_literals(rest));
            }
            let path = FieldPath { side, names };
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Chains of names that do not begin at a record.
fn loose(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('.') {
        let is_number = rest[..at].ends_with(|c: char| c.is_ascii_digit());
        let (names, after) = chain(&rest[at..]);
        let first = names.first().map(String::as_str);
        if !is_number && !matches!(first, None | Some("Payload" | "Key" | "Metadata" | "Operation" | "Position")) {
            found.push(names);
        }
        rest = if after.len() < rest.len() - at { after } else { &rest[at + 1..] };
    }
    // Names in a destructuring pattern of a script: `const { a, b } = …`.
    for (at, _) in text.match_indices('{') {
        let before = text[..at].trim_end();
        if ["const", "let", "var", "("].iter().any(|word| before.ends_with(word))
            && let Some((inner, _)) = text[at + 1..].split_once('}')
        {
            let names = inner.split([',', ':', '=']).map(|name| name.trim().to_owned());
            found.extend(names.filter(|name| is_name(name)).map(|name| vec![name]));
        }
    }
    found
}

/// The names at the beginning of a text: `.a?.b["c"]`, and what follows. A name before a parenthesis is a method.
fn chain(text: &str) -> (Vec<String>, &str) {
    let mut names = Vec::new();
    let mut rest = text;
    loop {
        let bare = rest.strip_prefix('?').unwrap_or(rest);
        if let Some(inner) = bare.strip_prefix('.') {
            let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
            let (name, after) = inner.split_at(end);
            if name.is_empty() && after.starts_with('[') {
                rest = after;
                continue;
            }
            if name.is_empty() || after.starts_with('(') || name == "length" {
                return (names, after);
            }
            names.push(name.to_owned());
            rest = after;
        } else if let Some(inner) = bare.strip_prefix("[\"").or_else(|| bare.strip_prefix("['")) {
            let Some((name, after)) = inner.split_once(['"', '\'']) else { return (names, rest) };
            let Some(after) = after.strip_prefix(']') else { return (names, rest) };
            names.push(name.to_owned());
            rest = after;
        } else {
            return (names, rest);
        }
    }
}

/// The texts in quotes that a text begins with.
fn leading_literals(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text.trim_start();
    while let Some(inner) = rest.strip_prefix('"')
        && let Some((name, after)) = inner.split_once('"')
    {
        names.push(name.to_owned());
        rest = after.trim_start();
    }
    names
}

/// Texts in quotes of any kind. A text whose quote is not closed on its line is ignored.
pub(super) fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some(at) = rest.find(['"', '\'', '`']) {
            let quote = &rest[at..=at];
            let inner = &rest[at + 1..];
            let Some((literal, after)) = inner.split_once(quote) else {
                rest = inner;
                continue;
            };
            if !literal.is_empty() {
                found.push(literal.replace("\\t", "\t").replace("\\n", "\n"));
            }
            rest = after;
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
        && text.len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(side: Side, names: &[&str]) -> FieldPath {
        FieldPath { side, names: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn fields_are_found_in_references_templates_and_scripts() {
        let of = paths;
        assert_eq!(of(".Payload.After.a.b"), [path(Side::After, &["a", "b"])]);
        assert_eq!(of("{{ index .Payload.After \"a\" \"b\" }}"), [path(Side::After, &["a", "b"])]);
        assert_eq!(of("rec.Payload.After.name.trim()"), [path(Side::After, &["name"])]);
        assert_eq!(of("rec.Key[\"first-name\"]?.x"), [path(Side::Key, &["first-name", "x"])]);
        assert_eq!(of(".Payload.After"), [path(Side::After, &[])]);
        assert_eq!(of(".Payload.Afterwards .Keyed"), []);
    }

    #[test]
    fn names_of_variables_and_texts_in_quotes_are_found() {
        let mut names = PipelineNames::default();
        names.read("const { id, total: sum } = rec.Payload.After; for (const i of items) { s += i.product.price; }");
        names.read("{{ range splitList \"::\" .Payload.After.csv }}{{ .sku }}{{ end }}");
        names.read("{{ index .Metadata \"file.path\" }}");
        assert!(["id", "total", "product", "sku"].iter().all(|name| names.loose.0.contains_key(*name)));
        assert!(names.loose.0["product"].0.contains_key("price"));
        assert!(names.data.0.contains_key("csv"));
        assert!(names.literals.iter().any(|literal| literal == "::"));
        assert!(names.metadata.contains("file.path"));
    }
}
