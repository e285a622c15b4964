//! Packs the atoms of a text into chunks.

use std::collections::VecDeque;
use std::ops::Range;

/// A piece of a text that is not split. The atoms of a text are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Atom {
    /// Byte range of the atom.
    pub(super) range: Range<usize>,
    /// Size of its leading white space, in the unit of the splitter.
    pub(super) before: usize,
    /// Size without leading and trailing white space; 0 if it is only white space.
    pub(super) size: usize,
    /// Size of its trailing white space.
    pub(super) after: usize,
    /// True if a chunk must begin with it.
    pub(super) opens: bool,
}

/// Returns the chunks of a text in order, trimmed and not empty. Each holds as many atoms as fit into `size`, starting
/// with the last ones of the previous chunk that fit into `overlap`. White space around a chunk does not count. An atom
/// that is too large becomes a chunk by itself. Holds at most the atoms of one chunk in memory.
pub(super) fn pack(text: &str, atoms: impl Iterator<Item = Atom>, size: usize, overlap: usize) -> Vec<Range<usize>> {
    let mut chunks: Vec<Range<usize>> = Vec::new();
    let mut emit = |window: &Window| {
        if let (Some(first), Some(last)) = (window.atoms.front(), window.atoms.back()) {
            let range = trimmed(text, first.range.start..last.range.end);
            // Skip a chunk that only repeats the end of the previous one.
            if !range.is_empty() && chunks.last().is_none_or(|before| range.end > before.end) {
                chunks.push(range);
            }
        }
    };
    let mut window = Window::default();
    let mut fresh = false;
    for atom in atoms {
        if atom.opens {
            if fresh {
                emit(&window);
            }
            (window, fresh) = (Window::default(), false);
        }
        if atom.size == 0 {
            window.extend(&atom);
            continue;
        }
        if window.size_with(&atom) > size {
            if fresh {
                emit(&window);
            }
            while !window.atoms.is_empty() && (window.size() > overlap || window.size_with(&atom) > size) {
                window.pop();
            }
        }
        window.push(atom);
        fresh = true;
    }
    if fresh {
        emit(&window);
    }
    chunks
}

/// Atoms of the current chunk, none of which is only white space.
#[derive(Default)]
struct Window {
    atoms: VecDeque<Atom>,
    /// Size of all atoms, including white space at both ends.
    held: usize,
}

impl Window {
    /// Returns the size without white space at both ends.
    fn size(&self) -> usize {
        match (self.atoms.front(), self.atoms.back()) {
            (Some(first), Some(last)) => self.held - first.before - last.after,
            _ => 0,
        }
    }

    /// Returns the size with an additional atom.
    fn size_with(&self, atom: &Atom) -> usize {
        match self.atoms.front() {
            Some(first) => self.held - first.before + atom.before + atom.size,
            None => atom.size,
        }
    }

    fn push(&mut self, atom: Atom) {
        self.held += atom.before + atom.size + atom.after;
        self.atoms.push_back(atom);
    }

    /// Adds white space to the atom before it. If there is none, the white space would be trimmed anyway.
    fn extend(&mut self, space: &Atom) {
        if let Some(last) = self.atoms.back_mut() {
            let more = space.before + space.after;
            last.range.end = space.range.end;
            last.after += more;
            self.held += more;
        }
    }

    fn pop(&mut self) {
        if let Some(atom) = self.atoms.pop_front() {
            self.held -= atom.before + atom.size + atom.after;
        }
    }
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let whole = &text[range.clone()];
    let start = range.start + (whole.len() - whole.trim_start().len());
    let end = range.end - (whole.len() - whole.trim_end().len());
    start..end.max(start)
}
