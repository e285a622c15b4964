//! What an ETag says of the bytes of an object.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use md5::{Digest, Md5};

/// How Amazon says that it encrypted an object with keys of its own: its ETag is the MD5 of the plain bytes all the same.
const OF_AMAZON: &str = "AES256";

type Sum = [u8; 16];

/// What is known of the ETags of a bucket. An ETag in the form of an MD5 is one nearly everywhere, but need not be: once
/// one was, all are; where two answers agree on other bytes before that, none is.
pub(super) struct Etags {
    amazon: bool,
    state: AtomicU8,
    /// The sum of the last bytes whose ETag was another sum, and that ETag.
    last: Mutex<Option<(Sum, Sum)>>,
}

const UNKNOWN: u8 = 0;
const SUMS: u8 = 1;
const NAMES: u8 = 2;

impl Etags {
    /// Of a bucket of Amazon, or of another server.
    pub(super) fn of(amazon: bool) -> Etags {
        Etags { amazon, state: AtomicU8::new(UNKNOWN), last: Mutex::new(None) }
    }

    /// Whether the bytes may be those that the ETag of the listing stands for. `encryption`: how they are encrypted at the
    /// store, if it says so: of encrypted bytes the ETag says nothing. One pass over the bytes.
    pub(super) fn agree(&self, listed: Option<&str>, encryption: Option<&str>, body: &[u8]) -> bool {
        let Some(expected) = listed.and_then(sum) else { return true };
        let plain = encryption.is_none_or(|method| self.amazon && method == OF_AMAZON);
        if !plain || self.state.load(Ordering::Relaxed) == NAMES {
            return true;
        }
        let found: Sum = Md5::digest(body).into();
        if found == expected {
            self.state.store(SUMS, Ordering::Relaxed);
            return true;
        }
        if self.state.load(Ordering::Relaxed) == SUMS {
            return false;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = last.replace((found, expected)) == Some((found, expected));
        if same {
            self.state.store(NAMES, Ordering::Relaxed);
        }
        same
    }
}

/// An ETag without its quotes and its mark of weakness, in which listings and answers may differ.
pub(super) fn bare(etag: &str) -> &str {
    let etag = etag.trim();
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// The MD5 that an ETag has the form of; an object that was uploaded in parts has another.
fn sum(etag: &str) -> Option<Sum> {
    let etag = bare(etag).as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut sum = Sum::default();
    if etag.len() != 2 * sum.len() {
        return None;
    }
    for (byte, pair) in sum.iter_mut().zip(etag.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = "\"5d41402abc4b2a76b9719d911017c592\"";
    const OTHER: &str = "\"00000000000000000000000000000007\"";

    #[test]
    fn bytes_are_those_of_their_etag() {
        let etags = Etags::of(false);
        assert!(etags.agree(Some(HELLO), None, b"hello"));
        assert!(etags.agree(Some("5D41402ABC4B2A76B9719D911017C592"), None, b"hello"));
        for _ in 0..3 {
            assert!(!etags.agree(Some(HELLO), None, b"hellp"), "where one was a sum, all are");
        }
        // Of these an ETag says nothing.
        assert!(etags.agree(None, None, b"x"));
        assert!(etags.agree(Some("\"5d41402abc4b2a76b9719d911017c592-2\""), None, b"x"));
        assert!(etags.agree(Some("\"0123456789abcdef\""), None, b"x"));
        assert!(etags.agree(Some(HELLO), Some("aws:kms"), b"x"));
        assert!(etags.agree(Some(HELLO), Some("AES256"), b"x"));
        assert!(!Etags::of(true).agree(Some(HELLO), Some("AES256"), b"x"), "as Amazon encrypts everything");
    }

    #[test]
    fn etags_that_only_look_like_sums_are_believed_when_two_answers_agree() {
        let etags = Etags::of(false);
        assert!(!etags.agree(Some(OTHER), None, b"a"));
        assert!(!etags.agree(Some(OTHER), None, b"b"), "other bytes");
        assert!(etags.agree(Some(OTHER), None, b"b"));
        assert!(etags.agree(Some(HELLO), None, b"anything"), "and then no more is asked twice");
    }
}
