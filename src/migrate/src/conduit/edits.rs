//! Changes of the text of a file that keep its comments and its layout.

use std::collections::BTreeMap;

use anabranch_plugin::diagnostic::Span;
use anabranch_plugin::secret::{forms, mask, without_passwords};
use anabranch_record::text::Str;

/// Ranges of bytes of a file, and the texts that replace them.
#[derive(Debug, Default)]
pub(super) struct Edits(BTreeMap<(usize, usize), String>);

/// A text after its edits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edited {
    pub(super) text: String,
    /// Numbers of lines with a masked credential that the pipelines do not use: in a comment or a description.
    pub(super) masked: Vec<usize>,
    /// Numbers of lines with another masked credential.
    pub(super) broken: Vec<usize>,
}

impl Edits {
    /// Returns the text that replaces exactly this range.
    pub(super) fn at(&self, range: (usize, usize)) -> Option<&str> {
        self.0.get(&range).map(String::as_str)
    }

    /// Replaces a range. Other edits inside it are dropped.
    pub(super) fn replace(&mut self, (start, end): (usize, usize), becomes: String) {
        self.0.retain(|(other_start, other_end), _| *other_end <= start || *other_start >= end || start == end);
        self.0.insert((start, end), becomes);
    }

    /// Returns the text with the edits. Credentials that remain, for example in comments, are masked: those in URLs, and
    /// `secrets`.
    pub(super) fn apply(&self, text: &str, secrets: Vec<Str>) -> Edited {
        let (mut out, mut kept) = (String::with_capacity(text.len()), 0);
        for ((start, end), becomes) in &self.0 {
            let Some(unchanged) = text.get(kept..*start) else { continue };
            out.push_str(unchanged);
            out.push_str(becomes);
            kept = *end;
        }
        out.push_str(text.get(kept..).unwrap_or_default());
        masked(&out, secrets)
    }
}

fn masked(text: &str, secrets: Vec<Str>) -> Edited {
    let secrets = forms(secrets);
    let mut edited = Edited { text: String::with_capacity(text.len()), masked: Vec::new(), broken: Vec::new() };
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let code = line.len() - comment(line).len();
        let is_prose = ["description:", "- description:", "name:"].iter().any(|key| line.trim_start().starts_with(key));
        let clean = mask(&without_passwords(line), &secrets);
        if clean != line {
            let is_unused = is_prose || clean.starts_with(&line[..code]);
            let lines = if is_unused { &mut edited.masked } else { &mut edited.broken };
            lines.push(index + 1);
        }
        edited.text.push_str(&clean);
    }
    edited
}

/// Returns the comment at the end of a line. A number sign in a quoted text may count as one.
fn comment(line: &str) -> &str {
    let at = match line.trim_start().starts_with('#') {
        true => Some(0),
        false => line.find(" #"),
    };
    at.map_or("", |at| &line[at..])
}

/// Returns the range of a scalar in the file, without its anchor and tag: with its quotes, or with the header of a block.
/// `None` if the place is not that of a scalar.
pub(super) fn scalar(text: &str, span: Span) -> Option<(usize, usize)> {
    let (mut start, end) = (span.start as usize, span.end as usize);
    let mut written = text.get(start..end)?;
    while written.starts_with(['&', '!']) {
        let rest = written[written.find(char::is_whitespace)?..].trim_start();
        start = end - rest.len();
        written = rest;
    }
    // A block may be reported without its header.
    let head = text[..start].trim_end();
    let header = head[head.rfind([' ', '\n']).map_or(0, |at| at + 1)..].to_owned();
    if header.starts_with(['|', '>']) && header[1..].chars().all(|c| c.is_ascii_digit() || "+-".contains(c)) {
        start = head.len() - header.len();
    }
    (!written.is_empty() && !written.starts_with(['{', '['])).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_credential_is_masked() {
        let text =
            "# postgres://u:p@h and hunter22\nurl: \"${A}\" # hunter22\ndescription: x://u:p@h\nother: hunter22\n";
        let edited = Edits::default().apply(text, vec!["hunter22".into()]);
        assert_eq!(
            edited,
            Edited {
                text: "# postgres://u:***@h and ***\nurl: \"${A}\" # ***\ndescription: x://u:***@h\nother: ***\n"
                    .to_owned(),
                masked: vec![1, 2, 3],
                broken: vec![4],
            }
        );
    }

    #[test]
    fn an_edit_replaces_those_inside_it() {
        let mut edits = Edits::default();
        edits.replace((2, 3), "x".to_owned());
        edits.replace((1, 4), "y".to_owned());
        edits.replace((0, 0), "z".to_owned());
        assert_eq!(edits.apply("abcde", Vec::new()).text, "zaye");
        assert_eq!(edits.at((1, 4)), Some("y"));
    }
}
