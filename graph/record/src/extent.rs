//! External resources that connectors read and write, described by names that can be compared without I/O.

use crate::text::Str;

/// Resources of one kind in one place with a common name prefix: the objects of a bucket below a prefix, or one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Kind of the resources, in the plural, for messages: `objects`.
    pub what: &'static str,
    /// Place of the resources: a server and a bucket, or a database, without credentials. Never shown.
    pub space: Str,
    /// Common prefix of the names, or the only name. Never shown.
    pub name: Str,
    /// True if `name` is a complete name, false if it is a prefix.
    pub whole: bool,
    /// The setting that contains the name.
    pub setting: &'static str,
}

/// A place whose resources records name in the metadata `recfmt.collection`: the topics of a cluster, or the tables of a
/// database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionSpace {
    /// Kind of the resources, as in [`Extent::what`].
    pub what: &'static str,
    /// The place, as in [`Extent::space`]. Never shown.
    pub space: Str,
    /// The setting that chooses a resource in another way, if there is one.
    pub setting: &'static str,
}

impl Extent {
    /// Returns `true` if every resource of this extent is part of the other one too.
    pub fn is_within(&self, other: &Extent) -> bool {
        let named = match other.whole {
            true => self.whole && self.name == other.name,
            false => self.name.starts_with(other.name.as_str()),
        };
        named && self.what == other.what && self.space == other.space
    }

    /// Returns `true` if a resource is part of both extents.
    pub fn meets(&self, other: &Extent) -> bool {
        self.is_within(other) || other.is_within(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(space: &str, name: &str, whole: bool) -> Extent {
        Extent { what: "objects", space: space.into(), name: name.into(), whole, setting: "prefix" }
    }

    #[test]
    fn a_longer_prefix_is_within_a_shorter_one_of_the_same_place() {
        let all = objects("lake", "feed/", false);
        for (space, name, whole, within) in [
            ("lake", "feed/", false, true),
            ("lake", "feed/out/", false, true),
            ("lake", "feed/a", true, true),
            ("lake", "fe", false, false),
            ("lake", "feeder/", false, false),
            ("pond", "feed/out/", false, false),
        ] {
            assert_eq!(objects(space, name, whole).is_within(&all), within, "{space} {name}");
        }
        assert!(all.meets(&objects("lake", "feed/a", true)) && objects("lake", "feed/a", true).meets(&all));
        assert!(!all.meets(&objects("lake", "feeder/", false)));
        let one = objects("lake", "feed/a", true);
        assert!(one.is_within(&one) && !all.is_within(&one) && !objects("lake", "feed/a", false).is_within(&one));
    }
}
