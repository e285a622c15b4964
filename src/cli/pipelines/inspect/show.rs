//! Formats a record for a terminal.

use anabranch_process::terminal::{Style, shown};
use anabranch_record::Record;

use crate::cli::record::{pretty, readable};

/// Maximum number of lines of a record.
const LINES: usize = 60;
/// Maximum number of characters of a line.
const WIDTH: usize = 500;

/// A record and the place where it was captured.
pub(super) struct CapturedRecord<'a> {
    pub(super) number: u64,
    pub(super) place: &'a str,
    pub(super) json: &'a str,
}

impl CapturedRecord<'_> {
    /// Returns the record as a block of text, truncated if it is too long.
    pub(super) fn text(&self, color: bool) -> String {
        let (head, body) = match Record::from_json(self.json.as_bytes()) {
            Ok(record) => {
                let position = readable(&record.position().0);
                (format!("at {}", cut(&shown(&position))), pretty(&record))
            }
            Err(error) => (format!("unreadable: {error}"), format!("{}\n", self.json)),
        };
        let head = format!("record {} {}, {head}", self.number, shown(self.place));
        let mut text = format!("{}\n", Style::BOLD.paint(&head, color));
        let mut lines = body.lines();
        for line in lines.by_ref().take(LINES) {
            text.extend(["  ", &cut(&shown(line)), "\n"]);
        }
        let rest = lines.count();
        if rest > 0 {
            let note = format!("  … {rest} more lines; redirect the output to see all of them");
            text.extend([&*Style::DIM.paint(&note, color), "\n"]);
        }
        text.push('\n');
        text
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}… {} more characters", &line[..end], line[end..].chars().count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(json: &str) -> String {
        CapturedRecord { number: 1, place: "after a", json }.text(false)
    }

    fn record(after: &str) -> String {
        format!(
            r#"{{"position":"MQ==","operation":"create","metadata":{{}},"key":null,"payload":{{"before":null,"after":{after}}}}}"#
        )
    }

    #[test]
    fn a_record_is_a_block() {
        let text = block(&record(r#"{"n":1}"#));
        assert!(text.starts_with("record 1 after a, at 1\n  {\n"), "{text}");
        assert!(text.contains("\n        \"n\": 1\n"), "{text}");
        assert!(text.ends_with("  }\n\n"), "{text}");
    }

    #[test]
    fn what_is_too_much_to_read_is_cut_and_said_to_be() {
        let text = block(&record(&format!("{:?}", "eHh4".repeat(1000))));
        assert!(text.lines().all(|line| line.chars().count() < WIDTH + 40), "{text}");
        assert!(text.contains("more characters"), "{text}");
        let list = format!("[{}]", vec!["1"; 500].join(","));
        let text = block(&record(&format!(r#"{{"l":{list}}}"#)));
        assert!(text.contains("more lines; redirect"), "{text}");
        assert!(text.lines().count() < LINES + 5);
    }

    #[test]
    fn a_record_gives_no_orders_to_the_terminal() {
        // In the payload, as text of the record and as raw data, and in the position.
        for json in [record("{\"x\":\"\\u001b[2J\\u009b2J\"}"), record("\"G1sySg==\""), "{\x1b".to_owned()] {
            let text = block(&json);
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
