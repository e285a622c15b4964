//! Comparison of text.

/// Returns `true` if both are equal. In a module, `==` is a call that compares one byte at a time, and metadata keys
/// are long.
#[inline]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && same_length(a, b)
}

fn same_length(a: &[u8], b: &[u8]) -> bool {
    if a.len() < 8 {
        return a.iter().eq(b);
    }
    // Compare eight bytes at a time; the last eight may overlap those before them.
    let (words_a, words_b) = (a.chunks_exact(8), b.chunks_exact(8));
    a.last_chunk::<8>() == b.last_chunk() && words_a.zip(words_b).all(|(a, b)| a.first_chunk::<8>() == b.first_chunk())
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn a_difference_is_seen_in_whichever_byte_it_is() {
        let text = b"recfmt.payload.schema.version";
        for length in 0..text.len() {
            let text = &text[..length];
            assert!(same(text, text.to_vec().as_slice()));
            assert!(!same(text, &[text, b"x"].concat()) && !same(&[text, b"x"].concat(), text));
            for i in 0..length {
                for bit in 0..8 {
                    let mut other = text.to_vec();
                    other[i] ^= 1 << bit;
                    assert!(!same(text, &other), "byte {i} of {length}");
                }
            }
        }
    }
}
