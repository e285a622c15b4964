//! Finds the id of a message that is too long to parse.

use serde_json::Value;

/// Maximum length of an id.
const LONGEST: usize = 512;

/// Searches for the member `id` of a JSON object, piece by piece, without keeping the rest.
#[derive(Default)]
pub(super) struct IdScanner {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The name or value at the first level that is being read, truncated to [`LONGEST`] bytes.
    token: Vec<u8>,
    /// `true` if the last name was `id`.
    is_id: bool,
    id: Option<Value>,
}

impl IdScanner {
    pub(super) fn feed(&mut self, piece: &[u8]) {
        piece.iter().for_each(|byte| self.take(*byte));
    }

    /// Returns the id; null if none was found.
    pub(super) fn found(self) -> Value {
        self.id.filter(|id| id.is_string() || id.is_number()).unwrap_or_default()
    }

    fn take(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return self.keep(byte);
        }
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.token.trim_ascii() == b"\"id\"";
                self.token.clear();
            }
            b',' if self.depth == 1 => self.end_value(),
            byte => {
                self.in_string = byte == b'"';
                self.keep(byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < LONGEST {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        if std::mem::take(&mut self.is_id) && self.id.is_none() {
            self.id = serde_json::from_slice(&self.token).ok();
        }
        self.token.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_id_of_the_message_is_found_and_none_of_its_parts() {
        let found = |text: &str| {
            let mut scanner = IdScanner::default();
            text.as_bytes().chunks(3).for_each(|piece| scanner.feed(piece));
            scanner.found()
        };
        assert_eq!(found(r#"{"params":{"id":1,"a":"\"id\":2,"},"id":7,"x":0}"#), 7);
        assert_eq!(found(r#"{"a":"{\\", "id" : "s,}" }"#), "s,}");
        assert_eq!(found(r#"{"b":[{"id":1}],"c":"id"}"#), json!(null));
        assert_eq!(found(&format!(r#"{{"id":"{}"}}"#, "x".repeat(LONGEST))), json!(null));
        assert_eq!(found(r#"{"id":{"a":1}}"#), json!(null));
        assert_eq!(found("}}]]{"), json!(null));
    }
}
