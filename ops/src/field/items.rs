//! Lists of references in a setting: `.Key.a, .Metadata["a,b"]`.

use std::ops::Range;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_record::reference::Reference;

/// An item of a list setting, with its offset in the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub(super) text: &'a str,
    pub(super) offset: usize,
}

impl<'a> Item<'a> {
    /// Returns the whole setting as one item.
    pub(super) fn whole(text: &'a str) -> Self {
        Item { text, offset: 0 }.trimmed()
    }

    fn trimmed(self) -> Self {
        let start = self.text.len() - self.text.trim_start().len();
        Item { text: self.text.trim(), offset: self.offset + start }
    }

    /// Returns the byte range of this item in the setting.
    pub(super) fn range(self) -> Range<usize> {
        self.offset..self.offset + self.text.len()
    }

    /// Splits at `separator` and trims white space around the items. A separator inside the quotes of `["…"]` does not
    /// count.
    pub(super) fn split(self, separator: u8) -> Vec<Item<'a>> {
        let bytes = self.text.as_bytes();
        let (mut parts, mut start, mut at, mut quoted) = (Vec::new(), 0, 0, false);
        let mut part = |start: usize, end: usize| {
            parts.push(Item { text: &self.text[start..end], offset: self.offset + start }.trimmed());
        };
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if quoted => at += 1,
                b'"' if quoted => quoted = false,
                b'[' if !quoted && bytes.get(at + 1) == Some(&b'"') => {
                    quoted = true;
                    at += 1;
                }
                byte if byte == separator && !quoted => {
                    part(start, at);
                    start = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        part(start, bytes.len());
        parts
    }

    /// Returns a finding about this item of the setting `name`.
    pub(super) fn finding(self, arguments: &Arguments, name: &str, message: &str) -> Diagnostic {
        let place = match self.text {
            "" => arguments.span(name),
            text => arguments.place(name, self.offset, text.len()),
        };
        Diagnostic::error("settings.invalid", format!("{name}: {message}"))
            .with_span(place)
            .with_path(format!("/{name}"))
    }

    /// Parses this item as a reference.
    pub(super) fn reference(self, arguments: &Arguments, name: &str) -> Result<Reference, Diagnostics> {
        Reference::parse(self.text).map_err(|e| {
            let mut finding = self.finding(arguments, name, &e.to_string());
            finding.code = "settings.invalid_reference";
            let place = arguments.place(name, self.offset, self.text.len());
            if let Some(meant) = e.meant().or(e.several()) {
                finding = finding.with_fix(place, self.text, meant);
            }
            match e.hint() {
                Some(hint) => finding.with_hint(hint).into(),
                None => finding.into(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, separator: u8) -> Vec<(&str, usize)> {
        Item::whole(text).split(separator).into_iter().map(|item| (item.text, item.offset)).collect()
    }

    #[test]
    fn separators_in_quotes_do_not_count() {
        assert_eq!(split(" .Key.a ,\n .Key.b\n", b','), [(".Key.a", 1), (".Key.b", 11)]);
        assert_eq!(split(r#".Key["a,\"]\\"],.Key.b"#, b','), [(r#".Key["a,\"]\\"]"#, 0), (".Key.b", 16)]);
        assert_eq!(split(r#".Key["a:b"]:c"#, b':'), [(r#".Key["a:b"]"#, 0), ("c", 12)]);
        assert_eq!(split("a,,", b','), [("a", 0), ("", 2), ("", 3)]);
        assert_eq!(split("", b','), [("", 0)]);
        assert_eq!(split(r#".Key["ä,\"#, b','), [(r#".Key["ä,\"#, 0)]);
    }
}
