//! Which parts of a record something reads or writes.

use crate::text::Str;

/// The parts of a record that are read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Not known: all of it, perhaps.
    Everything,
    /// These parts and what is below them; a path is `["Metadata", "split.index"]`, `["Payload", "After", "x"]`.
    These(Vec<Vec<Str>>),
}

impl Access {
    /// Nothing at all.
    pub const NOTHING: Access = Access::These(Vec::new());

    /// All of these, each part once. O(parts²).
    pub fn union(all: impl IntoIterator<Item = Access>) -> Access {
        let mut paths: Vec<Vec<Str>> = Vec::new();
        for one in all {
            let Access::These(more) = one else { return Access::Everything };
            for path in more {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        Access::These(paths)
    }

    /// Whether a write here may change what is read there.
    pub fn overlaps(&self, other: &Access) -> bool {
        match (self, other) {
            (Access::These(a), _) if a.is_empty() => false,
            (_, Access::These(b)) if b.is_empty() => false,
            (Access::These(a), Access::These(b)) => {
                a.iter().any(|a| b.iter().any(|b| a.iter().zip(b).all(|(a, b)| a == b)))
            }
            _ => true,
        }
    }
}
