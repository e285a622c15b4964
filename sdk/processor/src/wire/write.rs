//! Writes protobuf.

/// Appends the fields of a message. Nested messages are written in place, and their length is inserted before them
/// afterwards.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// Writes a number. Leaves out 0, which is the meaning of a missing field.
    pub(crate) fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.always_number(field, number);
        }
    }

    /// Writes a number of a oneof, where 0 differs from a missing field.
    pub(crate) fn always_number(&mut self, field: u32, number: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(number);
    }

    pub(crate) fn double(&mut self, field: u32, number: f64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes bytes or text, unless empty.
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.always_bytes(field, bytes);
        }
    }

    /// Writes bytes or text of a oneof, where empty differs from a missing field.
    pub(crate) fn always_bytes(&mut self, field: u32, bytes: &[u8]) {
        self.head(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Writes text in pieces, unless empty.
    pub(crate) fn joined(&mut self, field: u32, pieces: [&str; 2]) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length > 0 {
            self.head(field, length);
            pieces.iter().for_each(|piece| self.0.extend_from_slice(piece.as_bytes()));
        }
    }

    pub(crate) fn message(&mut self, field: u32, content: impl FnOnce(&mut Self)) {
        self.varint(u64::from(field) << 3 | 2);
        let start = self.0.len();
        // Most messages have a length of one byte.
        self.0.push(0);
        content(self);
        let end = self.0.len();
        let length = (end - start - 1) as u64;
        if length < 0x80 {
            self.0[start] = length as u8;
            return;
        }
        self.varint(length);
        let more = self.0.len() - end - 1;
        let mut digits = [0; 10];
        digits[..=more].copy_from_slice(&self.0[end..]);
        self.0.truncate(end + more);
        self.0.copy_within(start + 1..end, start + 1 + more);
        self.0[start..=start + more].copy_from_slice(&digits[..=more]);
    }

    /// Writes the tag of a field and its length in bytes.
    fn head(&mut self, field: u32, length: usize) {
        match (u8::try_from(field), u8::try_from(length)) {
            (Ok(field @ ..16), Ok(length @ ..0x80)) => self.0.extend_from_slice(&[field << 3 | 2, length]),
            _ => {
                self.varint(u64::from(field) << 3 | 2);
                self.varint(length as u64);
            }
        }
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}
