//! Positions in a script: line and column, both from 1.

use std::fmt;

use anabranch_record::fault::InText;
use boa_engine::JsError;
use boa_engine::ast::Position as Place;

/// The setting that holds an inline script.
pub(crate) const SETTING: &str = "script";

/// Path of the script in the engine; errors in the globals have another path.
pub(crate) const PATH: &str = "script";

/// A position in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Position {
    /// Returns the place where an error was thrown: the innermost place of its backtrace in the script.
    pub(crate) fn of_error(error: &JsError) -> Option<Position> {
        // The engine provides backtraces only as text: `    at process (script:3:9)`.
        let text = error.to_string();
        let lines = text.lines().rev().take_while(|line| line.starts_with("    at "));
        lines.filter_map(Position::parse).last()
    }

    fn parse(line: &str) -> Option<Position> {
        let (_, place) = line.strip_suffix(')')?.rsplit_once('(')?;
        let (line, column) = place.strip_prefix(PATH)?.strip_prefix(':')?.split_once(':')?;
        Some(Position { line: line.parse().ok()?, column: column.parse().ok()? })
    }

    /// Returns a fault with this message at this position.
    pub(crate) fn fault(self, message: String) -> InText {
        InText { message, setting: SETTING, line: self.line, column: self.column }
    }

    /// Returns the byte offset of the position in a text.
    pub(crate) fn offset(self, text: &str) -> usize {
        let start: usize = text.split_inclusive('\n').take(self.line - 1).map(str::len).sum();
        let line = text[start..].lines().next().unwrap_or_default();
        start + line.char_indices().nth(self.column - 1).map_or(line.len(), |(offset, _)| offset)
    }
}

impl From<Place> for Position {
    fn from(place: Place) -> Self {
        Position { line: place.line_number() as usize, column: place.column_number() as usize }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_characters() {
        let text = "let ä = 1;\nlet b = 2;\n";
        assert_eq!(Position { line: 1, column: 7 }.offset(text), 7);
        assert_eq!(Position { line: 2, column: 5 }.offset(text), 16);
        assert_eq!(Position { line: 9, column: 9 }.offset(text), text.len());
    }
}
