//! Which sets of pipeline files the store of a cluster imports.

/// The imports of a store, as one set of files sees them. Imports are numbered from 1.
///
/// ```
/// use anabranch_cluster::{PastImports, SetDecision};
///
/// let decide = |this, latest| PastImports { this, latest }.decide(false);
/// assert_eq!(decide(None, 3), SetDecision::Import(4));
/// assert_eq!(decide(Some(3), 3), SetDecision::Current);
/// // Another set has replaced it.
/// assert_eq!(decide(Some(2), 3), SetDecision::Older);
/// assert_eq!(PastImports { this: Some(2), latest: 3 }.decide(true), SetDecision::Import(4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastImports {
    /// Number of the latest import of this set; `None` = the store never had it.
    pub this: Option<u64>,
    /// Number of the latest import of any set; 0 = none.
    pub latest: u64,
}

/// The decision about a set of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetDecision {
    /// The store imports it, with this number.
    Import(u64),
    /// It was imported last: nothing changes.
    Current,
    /// Another set has replaced it: nothing changes.
    Older,
}

impl PastImports {
    /// Returns `true` if this set was imported last.
    pub fn is_current(self) -> bool {
        self.this == Some(self.latest)
    }

    /// Decides about the set. If a user asks for it, it is imported in any case. Otherwise a set that another one has
    /// replaced is not imported: a node that restarts with old files must not undo what the others have.
    pub fn decide(self, on_request: bool) -> SetDecision {
        match self.this {
            Some(_) if self.is_current() && !on_request => SetDecision::Current,
            Some(_) if !on_request => SetDecision::Older,
            _ => SetDecision::Import(self.latest + 1),
        }
    }
}
