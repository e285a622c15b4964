//! Classes of template values, as template functions distinguish them.

use std::ops::BitOr;

use crate::flow::Kinds;

/// A set of classes of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classes(u16);

impl Classes {
    pub(super) const NONE: Classes = Classes(0);
    /// No value: missing, null or absent.
    pub(super) const NIL: Classes = Classes(1);
    pub(super) const BOOL: Classes = Classes(1 << 1);
    /// An integer of the template: a literal, a length. It does not compare with a float.
    pub(super) const INT: Classes = Classes(1 << 2);
    /// An integer of the record.
    pub(super) const LONG: Classes = Classes(1 << 3);
    pub(super) const FLOAT: Classes = Classes(1 << 4);
    pub(super) const TEXT: Classes = Classes(1 << 5);
    /// Bytes in a field.
    pub(super) const BYTES: Classes = Classes(1 << 6);
    /// Raw data of a key or payload side.
    pub(super) const RAW: Classes = Classes(1 << 7);
    pub(super) const TIME: Classes = Classes(1 << 8);
    pub(super) const LIST: Classes = Classes(1 << 9);
    pub(super) const MAP: Classes = Classes(1 << 10);
    /// The operation: a number that prints as its name.
    pub(super) const OPERATION: Classes = Classes(1 << 11);
    pub(super) const POSITION: Classes = Classes(1 << 12);
    /// The record or the payload.
    pub(super) const STRUCT: Classes = Classes(1 << 13);
    /// Any other value.
    pub(super) const OTHER: Classes = Classes(1 << 14);
    pub(super) const ALL: Classes = Classes((1 << 15) - 1);

    /// Returns the classes of a field.
    pub(super) fn of_field(kinds: Kinds, missing: bool) -> Classes {
        const EACH: [(Kinds, Classes); 9] = [
            (Kinds::NULL, Classes::NIL),
            (Kinds::BOOL, Classes::BOOL),
            (Kinds::INT, Classes::LONG),
            (Kinds::FLOAT, Classes::FLOAT),
            (Kinds::TEXT, Classes::TEXT),
            (Kinds::BYTES, Classes::BYTES),
            (Kinds::TIME, Classes::TIME),
            (Kinds::LIST, Classes::LIST),
            (Kinds::MAP, Classes::MAP),
        ];
        let of = EACH.into_iter().filter(|(kind, _)| kinds.overlaps(*kind)).map(|(_, class)| class);
        of.fold(if missing { Classes::NIL } else { Classes::NONE }, Classes::bitor)
    }

    pub(super) const fn overlaps(self, other: Classes) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn within(self, other: Classes) -> bool {
        self.0 & !other.0 == 0
    }

    #[must_use]
    pub(super) const fn with(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }

    #[must_use]
    pub(super) const fn without(self, other: Classes) -> Classes {
        Classes(self.0 & !other.0)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns each class as a set.
    pub(super) fn each(self) -> impl Iterator<Item = Classes> {
        (0..15).map(|bit| Classes(1 << bit)).filter(move |class| self.overlaps(*class))
    }

    /// Describes the classes: `text or int`.
    pub(super) fn names(self) -> String {
        let name = |class| match class {
            Classes::NIL => "nothing",
            Classes::BOOL => "bool",
            Classes::INT => "a whole number",
            Classes::LONG => "int",
            Classes::FLOAT => "float",
            Classes::TEXT => "text",
            Classes::BYTES => "bytes",
            Classes::RAW => "raw data",
            Classes::TIME => "time",
            Classes::LIST => "a list",
            Classes::MAP => "a map",
            Classes::OPERATION => "an operation",
            Classes::POSITION => "a position",
            Classes::STRUCT => "a record",
            _ => "something else",
        };
        self.each().map(name).collect::<Vec<_>>().join(" or ")
    }

    /// Returns `true` if `eq` succeeds for some values of these classes.
    pub(super) fn may_equal(self, other: Classes) -> bool {
        self.some_pair(other, |a, b| a == Classes::NIL || b == Classes::NIL || alike(a, b))
    }

    /// Returns `true` if some values of these classes can be ordered.
    pub(super) fn may_order(self, other: Classes) -> bool {
        let ordered =
            Classes::INT | Classes::LONG | Classes::FLOAT | Classes::TEXT | Classes::OPERATION | Classes::OTHER;
        self.some_pair(other, |a, b| a.within(ordered) && b.within(ordered) && alike(a, b))
    }

    fn some_pair(self, other: Classes, fits: impl Fn(Classes, Classes) -> bool) -> bool {
        self.each().any(|a| other.each().any(|b| fits(a, b)))
    }
}

/// Returns `true` if values of the two classes are of one kind for comparisons.
fn alike(a: Classes, b: Classes) -> bool {
    let whole = Classes::INT | Classes::LONG | Classes::OPERATION;
    // Two empty ones are equal, regardless of their classes.
    let slices = Classes::BYTES | Classes::RAW | Classes::LIST | Classes::POSITION;
    if (a | b).overlaps(Classes::OTHER) || (a | b).within(whole) {
        return true;
    }
    if (a | b).within(slices) {
        return (a | b).overlaps(Classes::LIST | Classes::POSITION);
    }
    match (a, b) {
        _ if a == b => a != Classes::STRUCT,
        (Classes::LONG, Classes::FLOAT) | (Classes::FLOAT, Classes::LONG) => true,
        _ => false,
    }
}

impl BitOr for Classes {
    type Output = Classes;

    fn bitor(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }
}
