//! The parts of a record that a processor or condition reads or writes.

use crate::text::Str;

/// A set of parts of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Unknown parts: any part of the record may be accessed.
    Everything,
    /// The listed parts and everything below them, as paths such as `["Metadata", "split.index"]` or
    /// `["Payload", "After", "x"]`.
    These(Vec<Vec<Str>>),
}

impl Access {
    /// The empty set.
    pub const NOTHING: Access = Access::These(Vec::new());

    /// Returns the access to one entry of the metadata.
    pub fn metadata(key: Str) -> Access {
        Access::These(vec![vec![Str::from_static("Metadata"), key]])
    }

    /// Returns the union of all sets, each part once. O(parts²).
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

    /// Returns `true` if a write to `self` may change what a read of `other` sees.
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
