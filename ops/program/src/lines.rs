//! Lines of the output of a program.

use std::io::{ErrorKind, Read};

/// Maximum length of a line; longer ones are split.
const LONGEST: usize = 64 << 10;

/// Splits a byte stream into lines.
#[derive(Debug, Default)]
pub struct LineSplitter {
    rest: Vec<u8>,
}

impl LineSplitter {
    /// Adds bytes and passes the completed lines to `each`.
    pub fn push(&mut self, mut piece: &[u8], mut each: impl FnMut(&str)) {
        while !piece.is_empty() {
            let room = LONGEST - self.rest.len();
            let end = piece.iter().take(room).position(|byte| *byte == b'\n');
            let (line, after, whole) = match end {
                Some(end) => (&piece[..end], &piece[end + 1..], true),
                None => {
                    let (line, after) = piece.split_at(piece.len().min(room));
                    (line, after, line.len() == room)
                }
            };
            self.rest.extend_from_slice(line);
            piece = after;
            if whole {
                self.finish(&mut each);
            }
        }
    }

    /// Passes the rest without a newline to `each`.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            each(&String::from_utf8_lossy(&self.rest));
            self.rest.clear();
        }
    }
}

/// Reads a stream to its end, line by line.
pub fn drain(mut from: impl Read, mut each: impl FnMut(&str)) {
    let mut lines = LineSplitter::default();
    let mut piece = vec![0; 8 << 10];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => lines.push(&piece[..read], &mut each),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lines.finish(&mut each);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_to_lines_and_long_lines_cut() {
        let mut lines = LineSplitter::default();
        let mut heard = Vec::new();
        for piece in ["on", "e\ntwo\n\nthr", "ee"] {
            lines.push(piece.as_bytes(), |line| heard.push(line.to_owned()));
        }
        lines.finish(|line| heard.push(line.to_owned()));
        assert_eq!(heard, ["one", "two", "three"]);
        let mut longest = Vec::new();
        drain("x".repeat(2 * LONGEST + 5).as_bytes(), |line| longest.push(line.len()));
        assert_eq!(longest, [LONGEST, LONGEST, 5]);
    }
}
