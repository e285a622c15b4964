//! Writes protobuf messages: each function appends to a buffer.

/// Wire type of numbers.
pub(super) const VARINT: u32 = 0;
/// Wire type of doubles.
pub(super) const FIXED64: u32 = 1;
/// Wire type of text, bytes and messages.
pub(super) const LEN: u32 = 2;
/// Wire type of 32-bit fixed numbers.
pub(super) const FIXED32: u32 = 5;

pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn tag(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    varint(out, u64::from(field << 3 | wire_type));
}

/// Writes a field with a number, also if it is 0.
pub fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

/// Writes a field of bytes or text, also if it is empty.
pub fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    tag(out, field, LEN);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Writes a field with a number, unless it is 0: that is the meaning of a missing field.
pub fn number_unless_zero(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        number(out, field, value);
    }
}

/// Writes a field of bytes or text, unless it is empty: that is the meaning of a missing field.
pub fn bytes_unless_empty(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    if !value.is_empty() {
        bytes(out, field, value);
    }
}

/// Writes a field with a message. Its length is known only after it is written. Bytes are reserved for a length of `size`,
/// an estimate in bytes; if the length needs more or fewer bytes, the message is moved.
pub fn message(out: &mut Vec<u8>, field: u32, size: usize, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LEN);
    let reserved = length_of(size as u64);
    let at = out.len();
    out.resize(at + reserved, 0);
    write(out);
    let written = out.len() - at - reserved;
    let needed = length_of(written as u64);
    if needed > reserved {
        out.resize(out.len() + needed - reserved, 0);
        out.copy_within(at + reserved..at + reserved + written, at + needed);
    } else if needed < reserved {
        out.copy_within(at + reserved..at + reserved + written, at + needed);
        out.truncate(at + needed + written);
    }
    let mut length = written as u64;
    for (i, byte) in out[at..at + needed].iter_mut().enumerate() {
        *byte = length as u8 & 0x7f | if i + 1 < needed { 0x80 } else { 0 };
        length >>= 7;
    }
}

fn length_of(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}
