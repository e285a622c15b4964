//! Packs pieces of a text into chunks.

use std::collections::VecDeque;
use std::ops::Range;

/// A piece of a text that is not cut. The pieces of a text follow each other without gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Atom {
    /// Its bytes.
    pub(super) range: Range<usize>,
    /// Its size, in the unit of whoever cut the text.
    pub(super) size: usize,
    /// Whether a chunk begins with it.
    pub(super) opens: bool,
}

/// The chunks of a text, in order, without space around them and none empty: each as many pieces as fit into `size`,
/// and of the one before it the last ones that fit into `overlap`. A piece that is too large is a chunk of its own.
/// Holds no more pieces than fit into a chunk.
pub(super) fn pack(text: &str, atoms: impl Iterator<Item = Atom>, size: usize, overlap: usize) -> Vec<Range<usize>> {
    let mut chunks: Vec<Range<usize>> = Vec::new();
    let mut emit = |window: &VecDeque<Atom>| {
        if let (Some(first), Some(last)) = (window.front(), window.back()) {
            let range = trimmed(text, first.range.start..last.range.end);
            // What only repeats the end of the chunk before it is none.
            if !range.is_empty() && chunks.last().is_none_or(|before| range.end > before.end) {
                chunks.push(range);
            }
        }
    };
    let mut window: VecDeque<Atom> = VecDeque::new();
    let (mut held, mut fresh) = (0usize, false);
    for atom in atoms {
        if atom.opens {
            if fresh {
                emit(&window);
            }
            window.clear();
            held = 0;
        } else if held.saturating_add(atom.size) > size {
            if fresh {
                emit(&window);
            }
            while held > overlap || held.saturating_add(atom.size) > size {
                let Some(first) = window.pop_front() else { break };
                held -= first.size;
            }
        }
        held = held.saturating_add(atom.size);
        window.push_back(atom);
        fresh = true;
    }
    if fresh {
        emit(&window);
    }
    chunks
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let whole = &text[range.clone()];
    let start = range.start + (whole.len() - whole.trim_start().len());
    let end = range.end - (whole.len() - whole.trim_end().len());
    start..end.max(start)
}
