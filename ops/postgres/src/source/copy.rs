//! Rows in the text format of `COPY`.
//!
//! Source: "COPY, Text Format" in the PostgreSQL manual.

use bytes::{Bytes, BytesMut};

use super::pgoutput::{Cell, Tuple};

/// Reads a row: values between tabs, up to the end of the line. Values without escapes share the memory of the row.
/// `None` if the row does not have `columns` values. Cost: O(length).
pub(super) fn row(line: &Bytes, columns: usize) -> Option<Tuple> {
    let text = line.strip_suffix(b"\n")?;
    let mut cells = Vec::with_capacity(columns);
    if columns == 0 {
        return text.is_empty().then_some(Tuple(cells));
    }
    let mut start = 0;
    for end in memchr::memchr_iter(b'\t', text).chain([text.len()]) {
        let value = &text[start..end];
        cells.push(match memchr::memchr(b'\\', value) {
            None => Cell::Text(line.slice(start..end)),
            Some(_) if value == b"\\N" => Cell::Null,
            Some(first) => Cell::Text(unescaped(value, first)),
        });
        start = end + 1;
    }
    (cells.len() == columns).then_some(Tuple(cells))
}

/// Replaces the escapes from `first` on.
fn unescaped(value: &[u8], first: usize) -> Bytes {
    let mut out = BytesMut::with_capacity(value.len());
    out.extend_from_slice(&value[..first]);
    let mut rest = &value[first..];
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let Some((escape, after)) = rest[at + 1..].split_first() else { break };
        out.extend_from_slice(&[match escape {
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            other => *other,
        }]);
        rest = after;
    }
    out.extend_from_slice(rest);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes a row as the server does.
    fn written(cells: &[Option<Vec<u8>>]) -> Bytes {
        let mut line = Vec::new();
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                line.push(b'\t');
            }
            let Some(value) = cell else {
                line.extend_from_slice(b"\\N");
                continue;
            };
            for byte in value {
                match byte {
                    8 => line.extend_from_slice(b"\\b"),
                    b'\t' => line.extend_from_slice(b"\\t"),
                    b'\n' => line.extend_from_slice(b"\\n"),
                    11 => line.extend_from_slice(b"\\v"),
                    12 => line.extend_from_slice(b"\\f"),
                    b'\r' => line.extend_from_slice(b"\\r"),
                    b'\\' => line.extend_from_slice(b"\\\\"),
                    other => line.push(*other),
                }
            }
        }
        line.push(b'\n');
        line.into()
    }

    proptest! {
        #[test]
        fn rows_survive(cells in proptest::collection::vec(proptest::option::of(proptest::collection::vec(
            prop_oneof![Just(b'\\'), Just(b'\t'), Just(b'N'), any::<u8>()], 0..8,
        )), 1..5)) {
            let expected = cells.iter().map(|cell| match cell {
                None => Cell::Null,
                Some(value) => Cell::Text(Bytes::copy_from_slice(value)),
            });
            prop_assert_eq!(row(&written(&cells), cells.len()), Some(Tuple(expected.collect())));
        }
    }

    #[test]
    fn rows_of_another_width_are_refused() {
        let line = Bytes::from_static(b"a\tb\n");
        assert!(row(&line, 2).is_some());
        assert_eq!(row(&line, 3), None);
        assert_eq!(row(&Bytes::from_static(b"a\tb"), 2), None);
        assert_eq!(row(&Bytes::from_static(b"\n"), 0), Some(Tuple(Vec::new())));
    }
}
