//! Many small byte strings in few allocations: positions, keys, short payloads.

use bytes::{Bytes, BytesMut};

/// Size of one allocation. A string that is kept keeps its whole allocation.
const BLOCK: usize = 8 << 10;

/// Hands out copies of bytes that share allocations with their neighbours.
#[derive(Debug, Default)]
pub(crate) struct Arena(BytesMut);

impl Arena {
    /// A copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if self.0.capacity() < bytes.len() {
            // A new one: growing the old one would copy it.
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
