//! Replacement texts with references to groups: `$1`, `${name}`.

use ::regex::Captures;

/// A parsed replacement text.
#[derive(Debug)]
pub(super) struct Expansion<'a>(Vec<ExpansionPiece<'a>>);

#[derive(Debug)]
enum ExpansionPiece<'a> {
    Text(&'a str),
    /// The match of the first of these groups that has one.
    Groups(Vec<usize>),
}

impl<'a> Expansion<'a> {
    /// Parses a replacement; `names` are those of the groups, from 1. O(n), times the number of groups for each name.
    pub(super) fn parse(text: &'a str, names: &[Option<String>]) -> Expansion<'a> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            pieces.push(ExpansionPiece::Text(before));
            if let Some(after) = after.strip_prefix('$') {
                pieces.push(ExpansionPiece::Text("$"));
                rest = after;
            } else if let Some((name, after)) = reference(after) {
                pieces.push(ExpansionPiece::Groups(groups(name, names)));
                rest = after;
            } else {
                // Not a reference: the sign itself.
                pieces.push(ExpansionPiece::Text("$"));
                rest = after;
            }
        }
        pieces.push(ExpansionPiece::Text(rest));
        Expansion(pieces)
    }

    /// Appends the replacement for a match.
    pub(super) fn write(&self, captures: &Captures<'_>, out: &mut String) {
        for piece in &self.0 {
            match piece {
                ExpansionPiece::Text(text) => out.push_str(text),
                ExpansionPiece::Groups(groups) => {
                    out.push_str(groups.iter().find_map(|group| captures.get(*group)).map_or("", |m| m.as_str()));
                }
            }
        }
    }
}

/// Returns the longest name after a `$`, and the rest.
fn reference(text: &str) -> Option<(&str, &str)> {
    let len = |text: &str| text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let braced = text.strip_prefix('{');
    let (name, rest) = braced.map_or(text, |inner| inner).split_at(len(braced.unwrap_or(text)));
    let rest = if braced.is_some() { rest.strip_prefix('}')? } else { rest };
    (!name.is_empty()).then_some((name, rest))
}

fn groups(name: &str, names: &[Option<String>]) -> Vec<usize> {
    let digits = name.bytes().all(|b| b.is_ascii_digit());
    // `01` is a name, not a number.
    if digits && (name.len() == 1 || !name.starts_with('0')) {
        return name.parse().into_iter().collect();
    }
    (1..).zip(names).filter(|(_, n)| n.as_deref() == Some(name)).map(|(group, _)| group).collect()
}
