//! Cryptographically secure random values, read from the operating system through a buffer.

use std::cell::RefCell;
use std::fmt::Write as _;

use base64::Engine as _;

use super::signature::function;
use super::{CallError, Context, Function};

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("randAlpha", |cx| (count: Int) => try characters(cx, count, |b| b.is_ascii_alphabetic())).impure(),
    function!("randAlphaNum", |cx| (count: Int) => try characters(cx, count, |b| b.is_ascii_alphanumeric())).impure(),
    function!("randNumeric", |cx| (count: Int) => try characters(cx, count, |b| b.is_ascii_digit())).impure(),
    function!("randAscii", |cx| (count: Int) => try characters(cx, count, |b| (b' '..0x7f).contains(&b))).impure(),
    function!("randBytes", |cx| (count: Int) => try base64_bytes(cx, count)).impure(),
    function!("randInt", (least: Int, below: Int) => try {
        integer(least, below).map(crate::template::val::Val::Int)
    })
    .impure(),
    function!("shuffle", (text: Text) => try shuffled(&text.lossy())).impure(),
    function!("uuidv4", () => try uuid()).impure(),
];

/// Fills `out`. One read from the operating system serves many calls.
fn fill(out: &mut [u8]) -> Result<(), CallError> {
    struct Buffer {
        bytes: [u8; 512],
        used: usize,
    }
    thread_local! {
        static BUFFER: RefCell<Buffer> = const { RefCell::new(Buffer { bytes: [0; 512], used: 512 }) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        for byte in out {
            if buffer.used == buffer.bytes.len() {
                getrandom::fill(&mut buffer.bytes)
                    .map_err(|error| CallError::from(format!("the system returned no random bytes: {error}")))?;
                buffer.used = 0;
            }
            // A returned byte is erased from the buffer.
            *byte = std::mem::take(&mut buffer.bytes[buffer.used]);
            buffer.used += 1;
        }
        Ok(())
    })
}

/// Returns a uniformly distributed number below `limit`.
fn below(limit: u64) -> Result<u64, CallError> {
    // The numbers above the last whole multiple of `limit` would favour the small ones.
    let surplus = (u64::MAX % limit + 1) % limit;
    loop {
        let mut bytes = [0; 8];
        fill(&mut bytes)?;
        let number = u64::from_le_bytes(bytes);
        if number <= u64::MAX - surplus {
            return Ok(number % limit);
        }
    }
}

/// Returns `count` characters of a kind; none for a negative count.
fn characters(cx: &mut Context, count: i64, is_wanted: fn(u8) -> bool) -> Result<String, CallError> {
    let count = usize::try_from(count).unwrap_or(0);
    cx.take_bytes(count)?;
    let mut out = String::with_capacity(count);
    let mut bytes = [0; 64];
    while out.len() < count {
        fill(&mut bytes)?;
        let wanted = bytes.iter().map(|b| b & 0x7f).filter(|b| is_wanted(*b)).map(char::from);
        out.extend(wanted.take(count - out.len()));
    }
    Ok(out)
}

fn base64_bytes(cx: &mut Context, count: i64) -> Result<String, CallError> {
    let count = usize::try_from(count).map_err(|_| "the count is negative")?;
    cx.take_bytes(count.saturating_mul(3))?;
    let mut bytes = vec![0; count];
    fill(&mut bytes)?;
    Ok(base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn integer(least: i64, limit: i64) -> Result<i64, CallError> {
    let Ok(range @ 1..) = u64::try_from(i128::from(limit) - i128::from(least)) else {
        return Err(format!("there is no integer that is at least {least} and below {limit}").into());
    };
    Ok(least.wrapping_add_unsigned(below(range)?))
}

fn shuffled(text: &str) -> Result<String, CallError> {
    let mut chars: Vec<char> = text.chars().collect();
    for last in (1..chars.len()).rev() {
        let other = usize::try_from(below(last as u64 + 1)?).unwrap_or(last);
        chars.swap(last, other);
    }
    Ok(chars.into_iter().collect())
}

fn uuid() -> Result<String, CallError> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut out = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        // Writing to a `String` cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range() {
        for _ in 0..1_000 {
            assert!(below(3).is_ok_and(|n| n < 3));
            assert!(integer(-2, 1).is_ok_and(|n| (-2..1).contains(&n)));
        }
        assert!(integer(i64::MIN, i64::MAX).is_ok());
        assert!(integer(5, 5).is_err());
        assert!(integer(5, 3).is_err());
    }

    #[test]
    fn a_uuid_tells_its_version() {
        let uuid = uuid().unwrap();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    }

    #[test]
    fn characters_are_of_their_kind() {
        let mut cx = Context::new();
        let digits = characters(&mut cx, 300, |b| b.is_ascii_digit()).unwrap();
        assert!(digits.len() == 300 && digits.bytes().all(|b| b.is_ascii_digit()));
        assert!(characters(&mut cx, i64::MAX, |_| true).is_err());
    }
}
