//! What a copy of keyed and numbered messages must be.

use std::collections::{BTreeMap, BTreeSet};

use crate::comparison::Comparison;

/// The numbers of each key, in the order of a topic.
pub type Sequences = BTreeMap<String, Vec<u64>>;

/// Compares a copy with what was produced: for each key, the numbers from 0 to the given one, without it.
pub fn compare(copy: &Sequences, produced: &BTreeMap<String, u64>) -> Comparison {
    let mut found = Comparison::default();
    for (key, numbers) in copy {
        let end = produced.get(key).copied().unwrap_or(0);
        found.unknown.extend(numbers.iter().filter(|number| **number >= end).map(|number| format!("{key}: {number}")));
    }
    let nothing = Vec::new();
    for (key, end) in produced {
        let numbers = copy.get(key).unwrap_or(&nothing);
        let different: BTreeSet<u64> = numbers.iter().copied().filter(|number| number < end).collect();
        found.lost += usize::try_from(*end).unwrap() - different.len();
        found.repeated += numbers.len() - different.len();
        let mut expected = 0;
        for (at, number) in numbers.iter().enumerate() {
            if *number > expected {
                let before = &numbers[at.saturating_sub(3)..at];
                found.gaps.push(format!("{key}: {number} follows {before:?}"));
            }
            expected = number + 1;
        }
        // The last message of a key is what counts.
        if let Some(last) = numbers.last().filter(|last| *last + 1 < *end) {
            found.gaps.push(format!("{key}: {last} is the last of {end}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(numbers: &[u64]) -> Comparison {
        compare(&Sequences::from([("k".to_owned(), numbers.to_vec())]), &BTreeMap::from([("k".to_owned(), 4)]))
    }

    #[test]
    fn a_copy_in_order_has_no_faults() {
        assert_eq!(compared(&[0, 1, 2, 3]), Comparison::default());
        assert_eq!(compared(&[0, 1, 0, 1, 2, 3]), Comparison { repeated: 2, ..Comparison::default() });
    }

    #[test]
    fn faults_are_found() {
        assert_eq!((compared(&[0, 1, 2]).lost, compared(&[0, 1, 2]).gaps.len()), (1, 1));
        assert_eq!(compared(&[0, 1, 2, 3, 0, 1]).gaps.len(), 1);
        assert_eq!(compare(&Sequences::new(), &BTreeMap::from([("k".to_owned(), 4)])).lost, 4);
        assert_eq!(compared(&[0, 2, 1, 3]).gaps.len(), 2);
        // An old message after a newer one, and then the newest.
        assert_eq!(compared(&[0, 1, 2, 1, 3]).gaps.len(), 1);
        assert_eq!(compared(&[0, 1, 2, 3, 4]).unknown.len(), 1);
        assert_eq!(compare(&Sequences::from([("x".to_owned(), vec![0])]), &BTreeMap::new()).unknown.len(), 1);
    }
}
