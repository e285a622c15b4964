//! The graph of one pipeline, line by line, with the counters of every node.

use anabranch_process::terminal::{age, short};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::rates::{PartRates, Rate};
use crate::cli::answers::{EdgeAnswer, NodeAnswer, PartsAnswer, short as span};
use crate::client::escaped;

/// Returns the path of the drawing of a pipeline.
pub(super) fn outline_path(id: &str) -> String {
    format!("/v1/pipelines/{}/graph?format=outline", escaped(id))
}

/// The drawing, as `pipelines plan` prints it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Outline {
    rows: Vec<GraphRow>,
}

#[derive(Clone, Debug, Deserialize)]
struct GraphRow {
    lead: String,
    text: String,
    #[serde(default)]
    kind: String,
    #[serde(flatten)]
    about: RowSubject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "about", rename_all = "camelCase")]
enum RowSubject {
    Node {
        node: usize,
    },
    Condition {
        node: usize,
    },
    Edge {
        from: usize,
        to: usize,
    },
    #[serde(other)]
    Else,
}

/// A line of the graph with its counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GraphLine {
    /// The drawing before the text.
    pub(super) lead: String,
    pub(super) text: String,
    /// Text of the column after the ids.
    pub(super) kind: String,
    /// The node that the line shows.
    pub(super) node: Option<usize>,
    pub(super) rows_in: Option<f64>,
    pub(super) rows_out: Option<f64>,
    pub(super) failed: Option<u64>,
    pub(super) held: Option<u64>,
    /// Share of the time that the node works; more than 1 with several workers.
    pub(super) busy: Option<f64>,
    pub(super) queue: Option<EdgeQueue>,
}

/// The queue of an edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EdgeQueue {
    /// Fill level from 0 to 1.
    pub(super) fill: f64,
    pub(super) rows: u64,
    /// `true` if senders to the queue have to wait.
    pub(super) full: bool,
}

impl EdgeQueue {
    fn of(edge: &EdgeAnswer) -> Option<Self> {
        edge.fill().map(|fill| EdgeQueue { fill, rows: edge.queued_rows, full: edge.full })
    }

    /// Returns a bar of `width` characters, the number of records if `counted`, and the word `full` if the queue is
    /// full.
    pub(super) fn shown(&self, width: usize, counted: bool) -> String {
        let filled = ((self.fill * width as f64).round() as usize).min(width);
        // A queue that is not empty shows at least one filled character.
        let filled = if self.fill > 0.0 { filled.max(1) } else { filled };
        let mut text = format!("{}{}", "█".repeat(filled), "░".repeat(width - filled));
        if counted {
            text.push_str(&format!(" {}", short(self.rows as f64)));
        }
        if self.full {
            text.push_str(" full");
        }
        text
    }
}

/// Returns the lines of `outline` with their counters. Nodes that are not in the outline, such as the dead-letter
/// queue, follow.
pub(super) fn lines(outline: &Outline, parts: &PartsAnswer, rates: &PartRates) -> Vec<GraphLine> {
    let mut lines: Vec<GraphLine> = outline.rows.iter().map(|row| line(row, parts, rates)).collect();
    let drawn = |node: &&NodeAnswer| lines.iter().all(|line| line.node != Some(node.node));
    let others: Vec<GraphLine> = parts.nodes.iter().filter(drawn).map(|node| of_node(node, rates)).collect();
    lines.extend(others);
    lines
}

fn line(row: &GraphRow, parts: &PartsAnswer, rates: &PartRates) -> GraphLine {
    let GraphRow { lead, text, kind, about } = row;
    let numbers = match *about {
        RowSubject::Node { node } => found(parts, node).map(|found| of_node(found, rates)),
        RowSubject::Condition { node } => {
            let hits = found(parts, node).and_then(hits).map_or_else(|| "-".to_owned(), percent);
            Some(GraphLine { text: format!("{hits} {text}"), ..GraphLine::default() })
        }
        RowSubject::Edge { from, to } => {
            let edge = parts.edges.iter().find(|edge| (edge.from, edge.to) == (from, to));
            edge.map(|edge| GraphLine {
                rows_out: Some(rates.of_edge(from, to)),
                queue: EdgeQueue::of(edge),
                ..GraphLine::default()
            })
        }
        RowSubject::Else => None,
    };
    let line = numbers.unwrap_or_default();
    let text = if line.text.is_empty() { text.clone() } else { line.text };
    GraphLine { lead: lead.clone(), text, kind: kind.clone(), ..line }
}

fn found(parts: &PartsAnswer, node: usize) -> Option<&NodeAnswer> {
    parts.nodes.iter().find(|found| found.node == node)
}

/// Returns the share of the incoming records of a node for which its condition holds.
fn hits(node: &NodeAnswer) -> Option<f64> {
    (node.rows_in > 0).then(|| node.selected as f64 / node.rows_in as f64)
}

fn of_node(node: &NodeAnswer, rates: &PartRates) -> GraphLine {
    let rates = rates.of_node(node.node);
    let rate = |rate: Option<&Rate>| Some(rate.map_or(0.0, Rate::per_second));
    GraphLine {
        text: node.id.clone(),
        node: Some(node.node),
        rows_in: rate(rates.map(|rates| &rates.rows_in)),
        rows_out: rate(rates.map(|rates| &rates.rows_out)),
        failed: Some(node.failed),
        held: Some(node.held),
        busy: rate(rates.map(|rates| &rates.busy)),
        ..GraphLine::default()
    }
}

/// Returns the width of the widest id, including the drawing before it; 0 if there is none. The next column starts
/// after it.
pub(super) fn width_of_ids(lines: &[GraphLine]) -> usize {
    let drawn = lines.iter().filter(|line| line.node.is_some() && !line.lead.is_empty());
    drawn.map(GraphLine::width).max().unwrap_or(0)
}

impl GraphLine {
    /// Returns the number of characters of the drawing and the text.
    pub(super) fn width(&self) -> usize {
        self.lead.chars().count() + self.text.chars().count()
    }
}

/// Formats a share as a percentage: `42 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Describes a node: its last error, and its counters since the run began.
pub(super) fn about(node: &NodeAnswer, now: DateTime<Utc>) -> [String; 2] {
    let NodeAnswer { id, rows_in, selected, rows_out, filtered, failed, held, busy_seconds, last_error, .. } = node;
    let chosen = if selected == rows_in { String::new() } else { format!(", for {selected} of them") };
    let numbers = format!(
        "{rows_in} in{chosen}, {rows_out} out, {filtered} filtered, {failed} failed, {held} held, {} busy",
        age(*busy_seconds)
    );
    let error = match last_error {
        Some(error) => {
            let ago = span(now - error.at.0);
            format!("{id}: last error {ago} ago, {}: {}", error.code, error.message.replace('\n', " "))
        }
        None => format!("{id}: no error"),
    };
    [error, numbers]
}

/// Replaces box-drawing characters by ASCII.
pub(super) fn ascii(text: &str) -> String {
    let plain = |c: char| match c {
        '╭' => ".",
        '│' => "|",
        '╰' => "`",
        '├' => "+",
        '─' | '■' | '░' => "-",
        '►' => ">",
        '█' => "#",
        '×' => "x",
        '…' => "...",
        _ => "",
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match plain(c) {
            "" => out.push(c),
            plain => out.push_str(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_have_the_numbers_of_what_they_are_about() {
        let outline: Outline = serde_json::from_value(json!({ "pipeline": "p", "rows": [
            { "lead": "╭ ", "text": "S0 read", "about": "stage" },
            { "lead": "│ ", "text": "in", "kind": "source file", "about": "node", "node": 0 },
            { "lead": "│   ", "text": "if {{ true }}", "about": "condition", "node": 0 },
            { "lead": "╰─► ", "text": "S1", "about": "edge", "from": 0, "to": 1 },
        ]}))
        .unwrap();
        let node = |node: usize, id: &str| {
            json!({ "node": node, "id": id, "rowsIn": 200, "selected": 50, "rowsOut": 100, "filtered": 90,
                    "failed": 10, "held": 0, "busySeconds": 1.5 })
        };
        let parts: PartsAnswer = serde_json::from_value(json!({
            "id": "p", "status": { "word": "running", "run": 1 }, "nodes": [node(0, "in"), node(1, "dead-letter-queue")],
            "edges": [{ "from": 0, "to": 1, "rows": 7, "queuedRows": 5, "queuedBytes": 1, "boundRows": 10,
                        "boundBytes": 100, "full": false }],
        }))
        .unwrap();
        let lines = lines(&outline, &parts, &PartRates::default());
        let shown: Vec<(String, Option<usize>, Option<u64>)> =
            lines.iter().map(|line| (format!("{}{}", line.lead, line.text), line.node, line.failed)).collect();
        let text = |text: &str, node, failed| (text.to_owned(), node, failed);
        assert_eq!(
            shown,
            [
                text("╭ S0 read", None, None),
                text("│ in", Some(0), Some(10)),
                text("│   25 % if {{ true }}", None, None),
                text("╰─► S1", None, None),
                text("dead-letter-queue", Some(1), Some(10)),
            ]
        );
        let queue = lines[3].queue.unwrap();
        assert_eq!((queue.shown(4, true), queue.shown(4, false)), ("██░░ 5".to_owned(), "██░░".to_owned()));
        assert_eq!(ascii("╰─► ██░░ …"), "`-> ##-- ...");
        assert_eq!(
            about(&parts.nodes[0], DateTime::UNIX_EPOCH),
            ["in: no error", "200 in, for 50 of them, 100 out, 90 filtered, 10 failed, 0 held, 1.5 s busy"]
        );
    }
}
