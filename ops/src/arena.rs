//! Packs many small byte strings into few allocations: positions, keys, short payloads.

use bytes::{Bytes, BytesMut};

/// Bytes of one allocation. A string that is kept alive keeps its whole allocation alive.
const BLOCK: usize = 8 << 10;

/// Copies byte strings into shared allocations.
#[derive(Debug, Default)]
pub(crate) struct Arena(BytesMut);

impl Arena {
    /// Returns a copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if self.0.capacity() < bytes.len() {
            // Allocate a new block: growing the old one would copy it.
            self.0 = BytesMut::with_capacity(bytes.len().max(BLOCK));
        }
        self.0.extend_from_slice(bytes);
        self.0.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_exact_across_blocks() {
        let mut arena = Arena::default();
        let texts: Vec<Vec<u8>> = (0..300usize).map(|n| vec![n as u8; n * n % 1000]).collect();
        let copies: Vec<Bytes> = texts.iter().map(|text| arena.copy(text)).collect();
        assert_eq!(copies, texts);
        assert_eq!(arena.copy(&vec![7; 3 * BLOCK]), vec![7; 3 * BLOCK]);
    }
}
