//! Row selections of a strip.

/// A set of selected rows, as one bit per row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    words: Vec<u64>,
    len: usize,
}

impl Mask {
    /// Creates a mask of `len` rows, none selected.
    pub fn none(len: usize) -> Self {
        Mask { words: vec![0; len.div_ceil(64)], len }
    }

    /// Resizes the mask to `len` rows, none selected, and keeps the allocation.
    pub fn reset(&mut self, len: usize) {
        self.words.clear();
        self.words.resize(len.div_ceil(64), 0);
        self.len = len;
    }

    /// Selects a row.
    #[inline]
    pub fn set(&mut self, row: usize) {
        debug_assert!(row < self.len);
        self.words[row / 64] |= 1 << (row % 64);
    }

    /// Deselects a row.
    #[inline]
    pub fn clear(&mut self, row: usize) {
        debug_assert!(row < self.len);
        self.words[row / 64] &= !(1 << (row % 64));
    }

    /// Returns `true` if the row is selected.
    #[inline]
    pub fn get(&self, row: usize) -> bool {
        row < self.len && self.words[row / 64] >> (row % 64) & 1 == 1
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the mask has 0 rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of selected rows.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns the selected rows in ascending order.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            std::iter::successors((word != 0).then_some(word), |w| {
                let rest = w & (w - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |w| i * 64 + w.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_the_set_bits(bits in proptest::collection::vec(any::<bool>(), 0..200)) {
            let mut mask = Mask::none(bits.len());
            bits.iter().enumerate().filter(|(_, b)| **b).for_each(|(i, _)| mask.set(i));
            let expected: Vec<usize> = (0..bits.len()).filter(|i| bits[*i]).collect();
            prop_assert_eq!(mask.count(), expected.len());
            prop_assert_eq!(mask.rows().collect::<Vec<_>>(), expected);
        }
    }
}
