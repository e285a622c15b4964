//! Packs pieces of a text into chunks.

use std::collections::VecDeque;
use std::ops::Range;

/// A piece of a text that is not cut. The pieces of a text follow each other without gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Atom {
    /// Its bytes.
    pub(super) range: Range<usize>,
    /// The size of the space that it begins with, in the unit of whoever cut the text.
    pub(super) before: usize,
    /// The size of what is between the spaces; 0 = it is nothing but space.
    pub(super) size: usize,
    /// The size of the space that it ends with.
    pub(super) after: usize,
    /// Whether a chunk begins with it.
    pub(super) opens: bool,
}

/// The chunks of a text, in order, without space around them and none empty: each as many pieces as fit into `size`,
/// and of the one before it the last ones that fit into `overlap`. Space around what is measured takes no room. A
/// piece that is too large is a chunk of its own. Holds no more pieces than fit into a chunk.
pub(super) fn pack(text: &str, atoms: impl Iterator<Item = Atom>, size: usize, overlap: usize) -> Vec<Range<usize>> {
    let mut chunks: Vec<Range<usize>> = Vec::new();
    let mut emit = |window: &Window| {
        if let (Some(first), Some(last)) = (window.atoms.front(), window.atoms.back()) {
            let range = trimmed(text, first.range.start..last.range.end);
            // What only repeats the end of the chunk before it is none.
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

/// Pieces that may become a chunk, none of which is nothing but space.
#[derive(Default)]
struct Window {
    atoms: VecDeque<Atom>,
    /// The size of all of them, with space around them.
    held: usize,
}

impl Window {
    /// The size without space around it.
    fn size(&self) -> usize {
        match (self.atoms.front(), self.atoms.back()) {
            (Some(first), Some(last)) => self.held - first.before - last.after,
            _ => 0,
        }
    }

    /// The size that it would have with another piece.
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

    /// Space belongs to the piece before it; where there is none, it would be cut off anyway.
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
