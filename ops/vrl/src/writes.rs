//! The paths that a program writes, and their places in a record.

use vrl::path::OwnedTargetPath;

use crate::spot::Spot;

/// A path that a program sets or removes.
#[derive(Clone, Debug)]
pub(crate) struct WrittenPath {
    /// The path in the program.
    pub(crate) path: OwnedTargetPath,
    /// The place in the record that changes: up to an index, and the whole field if empty parents are removed too.
    pub(crate) spot: Spot,
    /// The path of that place.
    pub(crate) place: OwnedTargetPath,
    /// The numbers of the paths whose places contain this one, or are the same and come earlier: if one of them changes, this
    /// change is a part of it.
    pub(crate) covered_by: Vec<usize>,
}

impl WrittenPath {
    /// Notes which places contain each other. O(paths²), once per program.
    pub(crate) fn cover(paths: &mut [WrittenPath]) {
        for at in 0..paths.len() {
            let path = &paths[at];
            let covers = |(other_at, other): (usize, &WrittenPath)| {
                let contains = other.spot.contains(&path.spot) && (other.spot != path.spot || other_at < at);
                (other_at != at && contains).then_some(other_at)
            };
            paths[at].covered_by = paths.iter().enumerate().filter_map(covers).collect();
        }
    }

    /// Returns `true` if the path is a part of a field, and not all of it.
    pub(crate) fn changes_part_of(&self, field: &Spot) -> bool {
        field.contains(&self.spot) && self.path.path.segments.len() > field.path().path.segments.len()
    }
}
