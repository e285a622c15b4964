//! Short hashes of texts (FNV-1a, 64 bits). They are the same in every build, because positions contain them.

/// Returns the hash of a sequence of parts.
pub(crate) fn fingerprint(parts: &[&[u8]]) -> u64 {
    parts.iter().fold(0xcbf2_9ce4_8422_2325, |sum, part| {
        // The separator 0xff does not occur in UTF-8.
        part.iter().chain(&[0xff]).fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    })
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn parts_are_told_apart() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
        // Positions hold these: they must not change.
        assert_eq!(fingerprint(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(&[b"a"]), 0x089b_c907_b544_c769);
    }
}
