//! What is wrong with a copy that was made while programs were killed.

/// What is wrong with a copy, and how much of it was written more than once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Changes that are missing.
    pub lost: usize,
    /// Changes that were written before.
    pub repeated: usize,
    /// Some of them, where that is known.
    pub repetitions: Vec<String>,
    /// Places where changes are out of order: a repetition may go back, but nothing may be skipped, and it must come to
    /// the last change.
    pub gaps: Vec<String>,
    /// Changes that nobody made, and records with faults.
    pub unknown: Vec<String>,
}

impl Comparison {
    /// Fails the test if changes are lost, out of order or made up, or more than `most` were repeated.
    #[track_caller]
    pub fn check(&self, most: usize, what: &str) {
        let (gaps, unknown) = (&self.gaps[..self.gaps.len().min(10)], &self.unknown[..self.unknown.len().min(10)]);
        let said = format!(
            "{what}: {} lost, {} repeated, out of order {gaps:#?}, unknown {unknown:#?}",
            self.lost, self.repeated
        );
        assert!(self.lost == 0 && gaps.is_empty() && unknown.is_empty(), "{said}");
        let repetitions = &self.repetitions[..self.repetitions.len().min(10)];
        assert!(self.repeated <= most, "{said}: at most {most} may be repeated, not {repetitions:#?}");
    }
}
