//! Lists of references in a setting: `.Key.a, .Metadata["a,b"]`.

use std::ops::Range;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::parameters::Argument;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;

use crate::codes;

/// An item of a list setting, with its offset in the setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub(super) text: &'a str,
    offset: usize,
    setting: &'a Argument<Vec<Str>>,
}

impl<'a> Item<'a> {
    /// Returns the whole setting as one item.
    pub(super) fn whole(setting: &'a Argument<Vec<Str>>) -> Self {
        Item { text: setting.text(), offset: 0, setting }.trimmed()
    }

    fn trimmed(self) -> Self {
        let start = self.text.len() - self.text.trim_start().len();
        Item { text: self.text.trim(), offset: self.offset + start, ..self }
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
            parts.push(Item { text: &self.text[start..end], offset: self.offset + start, ..self }.trimmed());
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

    /// Returns a finding about this item.
    pub(super) fn finding(self, message: &str) -> Diagnostic {
        let finding = self.setting.invalid(message);
        if self.text.is_empty() { finding } else { finding.with_span(self.setting.place(self.offset, self.text.len())) }
    }

    /// Parses this item as a reference.
    pub(super) fn reference(self) -> Result<Reference, Diagnostics> {
        Reference::parse(self.text).map_err(|e| {
            let mut finding = self.finding(&e.to_string());
            finding.code = codes::SETTINGS_INVALID_REFERENCE;
            if let Some(meant) = e.meant().or(e.several()) {
                finding = finding.with_fix(self.setting.place(self.offset, self.text.len()), self.text, meant);
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
    use anabranch_plugin::arguments::Arguments;
    use anabranch_plugin::parameters::{Parameters, declared};
    use anabranch_plugin::settings::Settings as Pairs;
    use anabranch_plugin::specification::Specification;

    use super::*;

    #[derive(Parameters)]
    struct Settings {
        list: Argument<Vec<Str>>,
    }

    fn split(text: &str, separator: u8) -> Vec<(String, usize)> {
        let specification = Specification::builtin("demo", "For tests.").with_all(declared::<Settings>());
        let arguments = Arguments::parse(&specification, &Pairs::from_pairs([("list", text)])).unwrap();
        let Settings { list } = arguments.read().unwrap();
        Item::whole(&list).split(separator).into_iter().map(|item| (item.text.to_owned(), item.offset)).collect()
    }

    fn items<const N: usize>(items: [(&str, usize); N]) -> Vec<(String, usize)> {
        items.into_iter().map(|(text, offset)| (text.to_owned(), offset)).collect()
    }

    #[test]
    fn separators_in_quotes_do_not_count() {
        assert_eq!(split(" .Key.a ,\n .Key.b\n", b','), items([(".Key.a", 1), (".Key.b", 11)]));
        assert_eq!(split(r#".Key["a,\"]\\"],.Key.b"#, b','), items([(r#".Key["a,\"]\\"]"#, 0), (".Key.b", 16)]));
        assert_eq!(split(r#".Key["a:b"]:c"#, b':'), items([(r#".Key["a:b"]"#, 0), ("c", 12)]));
        assert_eq!(split("a,,", b','), items([("a", 0), ("", 2), ("", 3)]));
        assert_eq!(split("", b','), items([("", 0)]));
        assert_eq!(split(r#".Key["ä,\"#, b','), items([(r#".Key["ä,\"#, 0)]));
    }
}
