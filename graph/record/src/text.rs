//! Immutable text that is cheap to copy.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Immutable UTF-8 text: keys of metadata and fields, text values, names.
///
/// Cloning is O(1): a copy of a pointer for `'static` text, a reference-count bump for the rest.
#[derive(Clone)]
pub struct Str(Repr);

#[derive(Clone)]
enum Repr {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Str {
    /// Creates text that is known at compile time; never allocates.
    pub const fn from_static(text: &'static str) -> Self {
        Str(Repr::Static(text))
    }

    /// Returns the text.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Static(s) => s,
            Repr::Shared(s) => s,
        }
    }
}

impl Default for Str {
    fn default() -> Self {
        Str::from_static("")
    }
}

impl Deref for Str {
    type Target = str;
    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Str(Repr::Shared(text.into()))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Str(Repr::Shared(text.into()))
    }
}

impl From<Arc<str>> for Str {
    fn from(text: Arc<str>) -> Self {
        Str(Repr::Shared(text))
    }
}

impl PartialEq for Str {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        same(self.as_bytes(), other.as_bytes())
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    #[inline]
    fn eq(&self, other: &str) -> bool {
        same(self.as_bytes(), other.as_bytes())
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns `true` if both are equal, as `==` does. In WebAssembly, `==` is a call that compares one byte at a time, and keys
/// of metadata are long: this compares eight bytes at a time there.
#[inline]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    if cfg!(target_arch = "wasm32") { a.len() == b.len() && same_words(a, b) } else { a == b }
}

/// Compares slices of the same length.
fn same_words(a: &[u8], b: &[u8]) -> bool {
    if a.len() < 8 {
        return a.iter().eq(b);
    }
    // The last eight bytes may overlap those before them.
    let (words_a, words_b) = (a.chunks_exact(8), b.chunks_exact(8));
    a.last_chunk::<8>() == b.last_chunk() && words_a.zip(words_b).all(|(a, b)| a.first_chunk::<8>() == b.first_chunk())
}

impl serde::Serialize for Str {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Str {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Str::from)
    }
}

/// Returns `true` if a text matches a pattern in which `*` stands for any text. Exponential in
/// the number of stars: for patterns of the user.
pub fn matches_stars(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| matches_stars(tail, &rest[at..]))
        }),
    }
}

/// Returns bytes as lower-case hexadecimal digits, two per byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    push_hexadecimal(bytes, &mut text);
    text
}

/// Appends bytes as lower-case hexadecimal digits, two per byte.
pub fn push_hexadecimal(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
    }
}

#[cfg(test)]
mod tests {
    use super::{hexadecimal, same_words};

    #[test]
    fn every_byte_has_its_two_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hexadecimal(&bytes), expected);
    }

    #[test]
    fn a_difference_is_seen_in_whichever_byte_it_is() {
        let text = b"recfmt.payload.schema.version";
        for length in 0..text.len() {
            let text = &text[..length];
            assert!(same_words(text, text.to_vec().as_slice()));
            for i in 0..length {
                for bit in 0..8 {
                    let mut other = text.to_vec();
                    other[i] ^= 1 << bit;
                    assert!(!same_words(text, &other), "byte {i} of {length}");
                }
            }
        }
    }
}
