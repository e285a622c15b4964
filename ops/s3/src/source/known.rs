//! Memory of a bucket while the source runs: its keys in order, with the versions seen of each.
//!
//! It is written during one sweep and read in the same order during the next. Keys are stored without the prefix that
//! they share with the previous key: a million keys of fifty characters that differ in the last ten take about twenty
//! megabytes. The part that was read is freed while the new one grows.

use std::collections::VecDeque;

/// Bytes of a block; each begins with a complete key.
const BLOCK: usize = 64 << 10;

/// Keys in ascending order, with the fingerprints of their versions.
#[derive(Debug, Default)]
pub(super) struct KnownKeys {
    blocks: VecDeque<Vec<u8>>,
    last: Vec<u8>,
}

impl KnownKeys {
    /// Adds a key, which must be greater than all added before.
    pub(super) fn push(&mut self, key: &str, versions: &[u64]) {
        let fresh = self.blocks.back().is_none_or(|block| block.len() >= BLOCK);
        if fresh {
            self.blocks.push_back(Vec::with_capacity(BLOCK + 1024));
        }
        let Some(block) = self.blocks.back_mut() else { return };
        let key = key.as_bytes();
        let shared = if fresh { 0 } else { self.last.iter().zip(key).take_while(|(a, b)| a == b).count() };
        for number in [shared, key.len() - shared, versions.len()] {
            push_number(block, number);
        }
        block.extend_from_slice(&key[shared..]);
        versions.iter().for_each(|version| block.extend_from_slice(&version.to_le_bytes()));
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
    }

    /// Converts it for reading.
    pub(super) fn into_past(self) -> PreviousKeys {
        let mut past = PreviousKeys { blocks: self.blocks, ..PreviousKeys::default() };
        past.advance();
        past
    }
}

/// The keys of the last sweep, read from the start.
#[derive(Debug, Default)]
pub(super) struct PreviousKeys {
    blocks: VecDeque<Vec<u8>>,
    at: usize,
    key: Vec<u8>,
    versions: Vec<u64>,
    ended: bool,
}

impl PreviousKeys {
    /// Returns the current key; `None` at the end.
    pub(super) fn key(&self) -> Option<&str> {
        if self.ended { None } else { str::from_utf8(&self.key).ok() }
    }

    /// If `key` is the current key, returns its known versions and advances; otherwise returns none.
    pub(super) fn take(&mut self, key: &str) -> Vec<u64> {
        if self.key() != Some(key) {
            return Vec::new();
        }
        let versions = std::mem::take(&mut self.versions);
        self.advance();
        versions
    }

    /// Advances to the next key.
    pub(super) fn advance(&mut self) {
        if self.blocks.front().is_some_and(|block| self.at >= block.len()) {
            self.blocks.pop_front();
            self.at = 0;
        }
        self.versions.clear();
        let Some(block) = self.blocks.front() else {
            self.ended = true;
            return;
        };
        let [shared, rest, versions] = [(); 3].map(|()| read_number(block, &mut self.at));
        self.key.truncate(shared);
        self.key.extend_from_slice(&block[self.at..self.at + rest]);
        self.at += rest;
        let (sums, _) = block[self.at..self.at + 8 * versions].as_chunks::<8>();
        self.versions.extend(sums.iter().map(|sum| u64::from_le_bytes(*sum)));
        self.at += 8 * versions;
    }
}

/// Writes a number in groups of seven bits, the lowest first.
fn push_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(block: &[u8], at: &mut usize) -> usize {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = block[*at];
        *at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_in_order_with_their_versions() {
        let mut keys: Vec<String> = (0..20_000).map(|n| format!("data/{:05}/{}", n / 7, "x".repeat(n % 300))).collect();
        keys.extend(["ü".to_owned(), String::new()]);
        keys.sort();
        keys.dedup();
        let mut known = KnownKeys::default();
        for (n, key) in keys.iter().enumerate() {
            known.push(key, &vec![n as u64; n % 3 + 1]);
        }
        assert!(known.blocks.len() > 3);
        let mut past = known.into_past();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(past.key(), Some(key.as_str()));
            assert!(past.take("no such key").is_empty());
            assert_eq!(past.take(key), vec![n as u64; n % 3 + 1]);
        }
        assert_eq!(past.key(), None);
        past.advance();
        assert_eq!(past.key(), None);
        assert_eq!(KnownKeys::default().into_past().key(), None);
    }

    #[test]
    fn a_million_keys_take_what_the_documentation_says() {
        const SHARE: u64 = 10;
        let mut known = KnownKeys::default();
        for n in 0..1_000_000 / SHARE {
            known.push(&format!("customers/eu-central/documents/2026/11/{n:010}.json"), &[n]);
        }
        let bytes: usize = known.blocks.iter().map(Vec::capacity).sum();
        assert!(bytes as u64 * SHARE < 25_000_000, "{bytes}");
    }
}
