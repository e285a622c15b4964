//! Corrections that a program may make.

use super::{Diagnostic, Span, edit_distance};

/// A correction of a few letters whose meaning is beyond doubt. Everything around it stays as it is, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Where the wrong text stands, perhaps among others: a quoted name, a list.
    pub span: Span,
    /// The wrong text; empty for one that is missing at the start of the span.
    pub was: String,
    /// The right one.
    pub becomes: String,
}

impl Fix {
    /// The bytes of `text` that are to be replaced. `None` where the wrong text does not stand there exactly once, as
    /// where it came out of a variable, or is written with escapes.
    pub fn range(&self, text: &str) -> Option<std::ops::Range<usize>> {
        let (start, end) = (self.span.start as usize, self.span.end as usize);
        let place = text.get(start..end)?;
        if self.was.is_empty() {
            return Some(start..start);
        }
        let at = start + place.find(&self.was)?;
        let last = start + place.rfind(&self.was)?;
        (at == last && self.was != self.becomes).then(|| at..at + self.was.len())
    }
}

impl Diagnostic {
    /// Says what a program may do about it: in `span`, `was` becomes `becomes`.
    #[must_use]
    pub fn with_fix(mut self, span: Span, was: impl Into<String>, becomes: impl Into<String>) -> Self {
        self.fix = Some(Fix { span, was: was.into(), becomes: becomes.into() });
        self
    }

    /// The same for a name that is one slip of the pen away from one of `names`, and from no other.
    #[must_use]
    pub fn with_slip<'a>(self, span: Span, was: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        match slip(was, names) {
            Some(meant) => self.with_fix(span, was, meant),
            None => self,
        }
    }
}

/// The one name that a single letter makes of `text`: one too many, one too few, another, or two exchanged. `None` where
/// there are several, and for names so short that a letter is half of them.
pub(crate) fn slip<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const SHORTEST: usize = 3;
    let lower = text.to_lowercase();
    let length = lower.chars().count();
    if length < SHORTEST {
        return None;
    }
    let mut near = names.into_iter().filter(|name| {
        let name = name.to_lowercase();
        let other = name.chars().count();
        other >= SHORTEST
            && other.abs_diff(length) <= 1
            && (edit_distance(&lower, &name) <= 1 || are_swapped(&lower, &name))
    });
    let found = near.next()?;
    near.all(|other| other == found).then_some(found)
}

/// Whether two neighbours are exchanged, and nothing else.
fn are_swapped(a: &str, b: &str) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut differing = a.chars().zip(b.chars()).enumerate().filter(|(_, (a, b))| a != b);
    let (Some((i, first)), Some((j, second)), None) = (differing.next(), differing.next(), differing.next()) else {
        return false;
    };
    j == i + 1 && first.0 == second.1 && first.1 == second.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_letter_is_a_slip_if_only_one_name_is_near() {
        let names = ["path", "paths", "field.set", "Status"];
        assert_eq!(slip("pathh", names), None, "two are near");
        assert_eq!(slip("pth", names), Some("path"));
        assert_eq!(slip("field.ste", names), Some("field.set"), "exchanged");
        assert_eq!(slip("field.sett", names), Some("field.set"));
        assert_eq!(slip("STATUS", names), Some("Status"));
        assert_eq!(slip("fild.st", names), None, "two letters");
        assert_eq!(slip("lt", ["eq", "le"]), None, "too short");
        assert_eq!(slip("path", ["path", "path"]), Some("path"));
    }

    #[test]
    fn only_what_stands_there_once_is_replaced() {
        let text = "type: [a, b, a] # a";
        let fix = |start, end, was: &str| {
            let span = Span { file: super::super::FileId(0), start, end };
            Fix { span, was: was.into(), becomes: "x".into() }.range(text)
        };
        assert_eq!(fix(6, 15, "b"), Some(10..11));
        assert_eq!(fix(6, 15, "a"), None);
        assert_eq!(fix(0, 4, "type"), Some(0..4));
        assert_eq!(fix(0, 4, "typ"), Some(0..3));
        assert_eq!(fix(0, 4, ""), Some(0..0));
        assert_eq!(fix(0, 400, "b"), None);
    }
}
