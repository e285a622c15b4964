//! Splits a text into atoms, which are not split further.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use super::pack::Atom;

/// Places at which a text is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// At paragraphs, lines, sentences or words: the largest unit that fits.
    Recursive,
    /// At headings and blocks.
    Markdown,
    /// Between sentences.
    Sentences,
    /// Between words.
    Words,
    /// Between grapheme clusters.
    Characters,
}

impl Cut {
    /// Returns the atoms of a text. If the unit is characters, none exceeds `size`.
    pub(super) fn atoms<'t>(self, text: &'t str, size: usize) -> Box<dyn Iterator<Item = Atom> + 't> {
        match self {
            Cut::Characters => Box::new(
                text.grapheme_indices(true).map(move |(start, piece)| measured(text, start..start + piece.len())),
            ),
            Cut::Sentences => Box::new(
                text.split_sentence_bound_indices().map(move |(start, piece)| one(text, start..start + piece.len())),
            ),
            Cut::Words => Box::new(words(text).map(move |range| one(text, range))),
            Cut::Recursive => {
                let mut atoms = Vec::new();
                fit(text, 0..text.len(), Level::Paragraph, size, &mut atoms);
                Box::new(atoms.into_iter())
            }
            Cut::Markdown => Box::new(markdown(text, size).into_iter()),
        }
    }
}

/// Returns an atom of size one, or zero if it is only white space.
fn one(text: &str, range: Range<usize>) -> Atom {
    let size = usize::from(!text[range.clone()].trim().is_empty());
    Atom { range, before: 0, size, after: 0, opens: false }
}

/// Returns an atom measured in characters.
fn measured(text: &str, range: Range<usize>) -> Atom {
    let part = &text[range.clone()];
    let (from_content, content) = (part.trim_start(), part.trim());
    let before = part[..part.len() - from_content.len()].chars().count();
    let after = from_content[content.len()..].chars().count();
    Atom { range, before, size: content.chars().count(), after, opens: false }
}

/// Units of a text, from large to small.
#[derive(Clone, Copy, Debug)]
enum Level {
    Paragraph,
    Line,
    Sentence,
    Word,
    Character,
}

impl Level {
    fn finer(self) -> Level {
        match self {
            Level::Paragraph => Level::Line,
            Level::Line => Level::Sentence,
            Level::Sentence => Level::Word,
            Level::Word | Level::Character => Level::Character,
        }
    }
}

/// Adds the atoms of a range, each as large as fits without the surrounding white space.
fn fit(text: &str, range: Range<usize>, level: Level, size: usize, atoms: &mut Vec<Atom>) {
    let part = &text[range.clone()];
    let whole = measured(text, range.clone());
    if whole.size <= size {
        atoms.push(whole);
        return;
    }
    let offset = range.start;
    let mut each = |start: usize, piece: &str| {
        fit(text, offset + start..offset + start + piece.len(), level.finer(), size, atoms);
    };
    match level {
        Level::Paragraph => paragraphs(part).for_each(|range| each(range.start, &part[range.clone()])),
        Level::Line => {
            let mut start = 0;
            for line in part.split_inclusive('\n') {
                each(start, line);
                start += line.len();
            }
        }
        Level::Sentence => part.split_sentence_bound_indices().for_each(|(start, piece)| each(start, piece)),
        Level::Word => words(part).for_each(|range| each(range.start, &part[range.clone()])),
        Level::Character => runs(text, range, size, atoms),
    }
}

/// Adds runs of characters that are small enough for overlaps.
fn runs(text: &str, range: Range<usize>, size: usize, atoms: &mut Vec<Atom>) {
    let longest = (size / 8).max(1);
    let (mut start, mut held) = (range.start, 0);
    for (at, character) in text[range.clone()].grapheme_indices(true) {
        let (at, count) = (range.start + at, character.chars().count());
        if held > 0 && held + count > longest {
            atoms.push(measured(text, start..at));
            (start, held) = (at, 0);
        }
        held += count;
    }
    atoms.push(measured(text, start..range.end));
}

/// Returns the words, each with the white space after it. White space at the beginning belongs to the first word.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= text.len() {
            return None;
        }
        let rest = &text[start..];
        let first = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
        let space = rest[first..].find(char::is_whitespace).map_or(rest.len(), |at| first + at);
        let end = rest[space..].find(|c: char| !c.is_whitespace()).map_or(rest.len(), |at| space + at);
        let range = start..start + end;
        start += end;
        Some(range)
    })
}

/// Returns the paragraphs, each with the empty lines after it.
fn paragraphs(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut lines = lines(text).peekable();
    std::iter::from_fn(move || {
        let first = lines.next()?;
        let (start, mut end) = (first.start, first.end);
        let mut empty = text[first].trim().is_empty();
        while let Some(line) = lines.next_if(|line| !empty || text[line.clone()].trim().is_empty()) {
            empty |= text[line.clone()].trim().is_empty();
            end = line.end;
        }
        Some(start..end)
    })
}

fn lines(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.split_inclusive('\n').scan(0, |start, line| {
        let range = *start..*start + line.len();
        *start = range.end;
        Some(range)
    })
}

/// Returns the Markdown blocks; splits blocks that are too large like other text. A heading starts a chunk, unless only
/// headings precede it.
fn markdown(text: &str, size: usize) -> Vec<Atom> {
    let mut atoms = Vec::new();
    let mut block: Option<Block> = None;
    let mut fence: Option<(char, usize)> = None;
    let mut headings_only = true;
    let mut close = |block: &mut Option<Block>| {
        if let Some(Block { range, opens }) = block.take() {
            let first = atoms.len();
            fit(text, range, Level::Paragraph, size, &mut atoms);
            if let Some(atom) = atoms.get_mut(first) {
                atom.opens = opens;
            }
        }
    };
    for line in lines(text) {
        let content = text[line.clone()].trim_end();
        let inside = fence.is_some();
        fence = match (fence, fence_of(content)) {
            (None, Some((mark, length, _))) => Some((mark, length)),
            (Some((mark, length)), Some((other, other_length, true))) if mark == other && other_length >= length => {
                None
            }
            (fence, _) => fence,
        };
        let is_heading = !inside && is_heading(content);
        let is_empty = !inside && content.trim().is_empty();
        let after_empty = block.as_ref().is_some_and(|block| ends_empty(text, &block.range));
        if is_heading || (!inside && !is_empty && after_empty) {
            close(&mut block);
        }
        match &mut block {
            Some(block) => block.range.end = line.end,
            None => block = Some(Block { range: line, opens: is_heading && !headings_only }),
        }
        if is_heading {
            headings_only = true;
        } else if !is_empty {
            headings_only = false;
        }
    }
    close(&mut block);
    atoms
}

struct Block {
    range: Range<usize>,
    opens: bool,
}

/// Returns `true` if the last line is blank.
fn ends_empty(text: &str, range: &Range<usize>) -> bool {
    text[range.clone()].trim_end_matches([' ', '\t', '\r']).ends_with("\n\n")
        || text[range.clone()].lines().next_back().is_some_and(|line| line.trim().is_empty())
}

/// Matches one to six number signs and a space.
fn is_heading(line: &str) -> bool {
    let line = line.trim_start_matches(' ');
    let signs = line.len() - line.trim_start_matches('#').len();
    (1..=6).contains(&signs) && line[signs..].chars().next().is_none_or(char::is_whitespace)
}

/// Returns the character and length of a code fence, and whether the line contains nothing else.
fn fence_of(line: &str) -> Option<(char, usize, bool)> {
    let line = line.trim_start_matches(' ');
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    (length >= 3).then_some((mark, length, rest.trim().is_empty()))
}
