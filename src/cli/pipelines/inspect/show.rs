//! A record on a terminal.

use anabranch_graph::record::Record;

use crate::cli::record::{pretty, readable};

/// Most lines of a record.
const LINES: usize = 60;
/// Most characters of a line.
const WIDTH: usize = 500;

/// A record and where it was seen.
pub(super) struct Shown<'a> {
    pub(super) number: u64,
    pub(super) place: &'a str,
    pub(super) json: &'a str,
}

impl Shown<'_> {
    /// As a block, cut where it is too much to read.
    pub(super) fn text(&self, color: bool) -> String {
        let (head, body) = match Record::from_json(self.json.as_bytes()) {
            Ok(record) => {
                let position = clean(&readable(&record.position().0));
                (format!("at {}", cut(&position)), pretty(&record))
            }
            Err(error) => (format!("it cannot be read: {error}"), format!("{}\n", self.json)),
        };
        let head = format!("record {} {}, {head}", self.number, clean(self.place));
        let mut text = if color { format!("\x1b[1m{head}\x1b[0m\n") } else { format!("{head}\n") };
        let mut lines = body.lines();
        for line in lines.by_ref().take(LINES) {
            text.extend(["  ", &cut(&clean(line)), "\n"]);
        }
        let rest = lines.count();
        if rest > 0 {
            let note = format!("  … {rest} more lines; in a pipe all of it is written");
            text.push_str(&if color { format!("\x1b[2m{note}\x1b[0m\n") } else { format!("{note}\n") });
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

/// Without what a terminal would take for an order.
fn clean(line: &str) -> String {
    if !line.contains(char::is_control) {
        return line.to_owned();
    }
    line.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str) -> String {
        Shown { number: 1, place: "after a", json }.text(false)
    }

    fn record(after: &str) -> String {
        format!(
            r#"{{"position":"MQ==","operation":"create","metadata":{{}},"key":null,"payload":{{"before":null,"after":{after}}}}}"#
        )
    }

    #[test]
    fn a_record_is_a_block() {
        let text = shown(&record(r#"{"n":1}"#));
        assert!(text.starts_with("record 1 after a, at 1\n  {\n"), "{text}");
        assert!(text.contains("\n        \"n\": 1\n"), "{text}");
        assert!(text.ends_with("  }\n\n"), "{text}");
    }

    #[test]
    fn what_is_too_much_to_read_is_cut_and_said_to_be() {
        let text = shown(&record(&format!("{:?}", "eHh4".repeat(1000))));
        assert!(text.lines().all(|line| line.chars().count() < WIDTH + 40), "{text}");
        assert!(text.contains("more characters"), "{text}");
        let list = format!("[{}]", vec!["1"; 500].join(","));
        let text = shown(&record(&format!(r#"{{"l":{list}}}"#)));
        assert!(text.contains("more lines; in a pipe"), "{text}");
        assert!(text.lines().count() < LINES + 5);
    }

    #[test]
    fn a_record_gives_no_orders_to_the_terminal() {
        // In the payload, as text of the record and as raw data, and in the position.
        for json in [record("{\"x\":\"\\u001b[2J\\u009b2J\"}"), record("\"G1sySg==\""), "{\x1b".to_owned()] {
            let text = shown(&json);
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
