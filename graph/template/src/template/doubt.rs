//! Doubts: results of a template that are probably not intended, although the template does not fail.

use std::ops::Range;

use anabranch_record::code::Code;

use super::tree::Offsets;
use crate::codes;

/// A result that is probably not intended. It contains names of fields, never their values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// The part of the template that produces the result, in bytes from the start of the template.
    pub at: Range<usize>,
    /// The kind of result.
    pub kind: DoubtKind,
    /// The message, as text.
    pub message: String,
    /// Remedy.
    pub hint: Option<String>,
}

/// The kinds of doubtful results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DoubtKind {
    /// A missing or null value: it prints as `<no value>` or `<nil>`, and counts as 0 in sums.
    NoValue,
    /// A verb of `printf` that does not fit its value: `%!f(int64=4)`.
    Format,
    /// A value that is not a time but is formatted as one: the current time is used instead.
    NotATime,
    /// A text that is not in the encoding to be decoded: the result is an error message.
    NotEncoded,
    /// A number that loses its fraction.
    Fraction,
    /// A value that is not a number: it counts as 0.
    NotANumber,
    /// A regular expression that does not compile: it never matches.
    Pattern,
    /// A map that prints as `map[name:value]`.
    Map,
    /// Bytes that print as a list of numbers.
    Bytes,
    /// A list that prints as `[a b]`.
    List,
    /// A time that prints as `2006-01-02 15:04:05 +0000 UTC`.
    Time,
    /// Raw data that is text but prints as base64.
    Base64,
    /// The number of a byte of a text instead of a letter.
    Byte,
}

impl DoubtKind {
    /// Returns the stable code.
    pub const fn code(self) -> Code {
        match self {
            DoubtKind::NoValue => codes::TEMPLATE_NO_VALUE,
            DoubtKind::Format => codes::TEMPLATE_BAD_FORMAT,
            DoubtKind::NotATime => codes::TEMPLATE_NOT_A_TIME,
            DoubtKind::NotEncoded => codes::TEMPLATE_NOT_ENCODED,
            DoubtKind::Fraction => codes::TEMPLATE_FRACTION_CUT,
            DoubtKind::NotANumber => codes::TEMPLATE_NOT_A_NUMBER,
            DoubtKind::Pattern => codes::TEMPLATE_BAD_PATTERN,
            DoubtKind::Map => codes::TEMPLATE_MAP_PRINTED,
            DoubtKind::Bytes => codes::TEMPLATE_BYTES_PRINTED,
            DoubtKind::List => codes::TEMPLATE_LIST_PRINTED,
            DoubtKind::Time => codes::TEMPLATE_TIME_PRINTED,
            DoubtKind::Base64 => codes::TEMPLATE_BASE64_PRINTED,
            DoubtKind::Byte => codes::TEMPLATE_BYTE_PRINTED,
        }
    }
}

/// The doubts of one rendering.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// In the order in which they occurred, each once.
    found: Vec<Doubt>,
    /// Doubts that count only if the output contains their text.
    pending: Vec<(Doubt, String)>,
    /// The last name that was missing in a map.
    pub(crate) missed: Option<MissingName>,
    /// Descriptions of the first comparisons, with their values.
    pub(crate) compared: Vec<String>,
}

/// A name that is missing in a map.
#[derive(Debug)]
pub(crate) struct MissingName {
    /// The operand that reads the name.
    pub(crate) at: Offsets,
    /// A suggestion for the intended name.
    pub(crate) hint: String,
}

impl Doubts {
    /// Maximum number of doubts of one rendering: a loop may produce one for each element.
    const MOST: usize = 32;
    /// Maximum number of comparisons of one rendering that are described.
    pub(crate) const MOST_COMPARED: usize = 3;

    /// Adds a doubt, unless it is already present.
    pub(crate) fn add(&mut self, at: &Offsets, kind: DoubtKind, message: String, hint: Option<String>) {
        let at = at.start as usize..at.end as usize;
        self.push(Doubt { at, kind, message, hint });
    }

    /// Adds a doubt that counts only if the output contains `text`: the printed form of a list that is only compared is
    /// irrelevant.
    pub(crate) fn add_if_printed(
        &mut self,
        at: &Offsets,
        kind: DoubtKind,
        message: String,
        hint: Option<String>,
        text: String,
    ) {
        if self.pending.len() < Self::MOST {
            let at = at.start as usize..at.end as usize;
            self.pending.push((Doubt { at, kind, message, hint }, text));
        }
    }

    fn push(&mut self, doubt: Doubt) {
        let known = self.found.iter().any(|other| other.at == doubt.at && other.kind == doubt.kind);
        if !known && self.found.len() < Self::MOST {
            self.found.push(doubt);
        }
    }

    /// Returns the doubts that count for the complete output.
    pub(crate) fn into_found(mut self, output: &str) -> Vec<Doubt> {
        for (doubt, text) in std::mem::take(&mut self.pending) {
            if output.contains(&text) {
                self.push(doubt);
            }
        }
        self.found
    }

    /// Returns the suggestion for a name that was missing in this part of the template.
    pub(crate) fn missed_in(&self, at: &Offsets) -> Option<&str> {
        let missed = self.missed.as_ref()?;
        (at.start <= missed.at.start && missed.at.end <= at.end).then_some(missed.hint.as_str())
    }
}
