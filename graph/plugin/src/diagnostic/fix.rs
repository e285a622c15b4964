//! Corrections that a program may apply.

use anabranch_record::near::slip;

use super::{Diagnostic, Span};

/// A correction of a few letters that is unambiguous. Everything around it stays unchanged, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Place that contains the wrong text, possibly with other text: a quoted name, a list.
    pub span: Span,
    /// The wrong text; empty if text is missing at the start of the span.
    pub was: String,
    /// The replacement.
    pub becomes: String,
}

impl Fix {
    /// Returns the bytes of `text` to replace. `None` if the wrong text does not occur exactly once in the span, for
    /// example because it comes from a variable or is written with escapes.
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
    /// Adds a correction: in `span`, `was` becomes `becomes`.
    #[must_use]
    pub fn with_fix(mut self, span: Span, was: impl Into<String>, becomes: impl Into<String>) -> Self {
        self.fix = Some(Fix { span, was: was.into(), becomes: becomes.into() });
        self
    }

    /// Adds a correction if the name differs from exactly one of `names` by a single typing error.
    #[must_use]
    pub fn with_slip<'a>(self, span: Span, was: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        match slip(was, names) {
            Some(meant) => self.with_fix(span, was, meant),
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
