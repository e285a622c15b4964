//! Plans as text for a terminal.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::{Picture, PictureNode, TextStyle, one_line};
use anabranch_graph::plan::graph::Port;

/// Maximum numbers of characters of a condition, a setting value and a record shape.
const CONDITION: usize = 96;
const SETTING: usize = 48;
const SHAPE: usize = 120;

/// Returns the lines of the drawing as JSON, without the text above and below it, for a program that adds the activity
/// of a run.
pub(super) fn outline(picture: &Picture<'_>) -> String {
    let page = Page::of(picture, TextStyle { unicode: true, color: false });
    let rows: Vec<&DrawnLine> = page.rows.iter().filter(|row| row.about != LineSubject::Detail).collect();
    // Text and numbers only, so this cannot fail.
    serde_json::to_string(&json!({ "pipeline": picture.pipeline, "rows": rows })).unwrap_or_default() + "\n"
}

pub(super) fn print(picture: &Picture<'_>, style: TextStyle) -> String {
    let page = Page::of(picture, style);
    let mut out = String::new();
    let pipeline = one_line(picture.pipeline, SETTING, page.ellipsis());
    let _ = writeln!(out, "{}: {}\n", page.ink.bold(&pipeline), picture.counted());
    if let Some(totals) = &picture.measured {
        let _ = writeln!(out, "{}\n", if style.unicode { totals.sentence() } else { plain(&totals.sentence()) });
    }
    page.print(&mut out);
    page.promises(picture, &mut out);
    out
}

/// Writes ANSI colours if enabled.
#[derive(Clone, Copy)]
struct AnsiColours(bool);

impl AnsiColours {
    fn paint(self, code: &str, text: &str) -> String {
        if self.0 && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn kind(self, text: &str) -> String {
        self.paint("36", text)
    }

    fn measured(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn shape(self, text: &str) -> String {
        self.paint("34", text)
    }

    fn condition(self, text: &str) -> String {
        self.paint("33", text)
    }
}

/// A line of the drawing.
#[derive(Serialize)]
struct DrawnLine {
    /// Line characters before the text.
    lead: String,
    text: String,
    /// Text in a separate column next to the id of a node.
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(flatten)]
    about: LineSubject,
}

/// The part of the plan that a line describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "about", rename_all = "camelCase")]
enum LineSubject {
    /// A node; the text is its id.
    Node { node: usize },
    /// The condition of the node above.
    Condition { node: usize },
    /// Another property of the node.
    Detail,
    /// The start of a stage.
    Stage,
    /// A connection from the stage above.
    Edge { from: usize, to: usize },
    /// A path of a branch, or the end of a path.
    Way,
}

struct Page {
    style: TextStyle,
    ink: AnsiColours,
    /// True if stages are drawn, whose titles include the number of workers.
    staged: bool,
    /// Shapes of the records that leave each node, if they differ from those that enter it.
    shapes: Vec<Option<String>>,
    rows: Vec<DrawnLine>,
}

impl Page {
    /// Builds every line of the drawing.
    fn of(picture: &Picture<'_>, style: TextStyle) -> Self {
        let staged = !picture.stages.is_empty();
        let mut shapes = vec![None; picture.nodes.len()];
        for line in &picture.edges {
            shapes[line.from] = shapes[line.from].take().or(line.shown_shape().map(str::to_owned));
        }
        let mut page = Page { style, ink: AnsiColours(style.color), staged, shapes, rows: Vec::new() };
        match staged {
            true => page.stages(picture),
            false => page.graph(picture),
        }
        page
    }

    fn line(&mut self, lead: impl Into<String>, text: impl Into<String>, about: LineSubject) {
        self.rows.push(DrawnLine { lead: lead.into(), text: text.into(), kind: String::new(), about });
    }

    fn pick(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.style.unicode { unicode } else { ascii }
    }

    fn ellipsis(&self) -> &'static str {
        self.pick("…", "...")
    }

    /// Converts a shape to ASCII if the terminal needs it.
    fn ascii(&self, shape: &str) -> String {
        if self.style.unicode { shape.to_owned() } else { shape.replace('…', "...") }
    }

    // ---- lowered and rewritten: a graph --------------------------------------------------------

    fn graph(&mut self, picture: &Picture<'_>) {
        let mut ways = vec![Vec::new(); picture.nodes.len()];
        for line in picture.edges.iter().filter(|line| line.port != Port::Failed) {
            ways[line.from].push((line.port, line.to));
        }
        let sources: Vec<usize> = picture.nodes.iter().filter(|n| n.kind == "source").map(|n| n.index).collect();
        let mut joined = None;
        for (i, &source) in sources.iter().enumerate() {
            let (first, rest) = match sources.len() {
                1 => ("", ""),
                _ if i == 0 => (self.pick("┌─", ",-"), self.pick("│ ", "| ")),
                _ => (self.pick("├─", "+-"), self.pick("│ ", "| ")),
            };
            joined = self.way(&picture.nodes, &ways, source, first, rest);
        }
        if let Some(merge) = joined {
            self.way(&picture.nodes, &ways, merge, "", "");
        }
    }

    /// Draws a path up to its end or a merge, which is returned. `first` precedes its first line, `rest` the others.
    fn way(
        &mut self,
        nodes: &[PictureNode<'_>],
        ways: &[Vec<(Port, usize)>],
        start: usize,
        first: &str,
        rest: &str,
    ) -> Option<usize> {
        let (tee, last) = (self.pick("├─", "+-"), self.pick("└─", "`-"));
        let bar = self.pick("│ ", "| ");
        let mut lead = first;
        let mut at = start;
        let mut closing = start;
        loop {
            if nodes[at].kind == "merge" && at != closing {
                return Some(at);
            }
            self.node(&nodes[at], lead, rest, !ways[at].is_empty());
            lead = rest;
            at = match *ways[at] {
                [] => return None,
                [(_, next)] => next,
                [(Port::Taken, taken), (Port::Skipped, merge)] => {
                    let below = format!("{rest}{bar}");
                    self.line(format!("{rest}{tee} "), Port::Taken.as_str(), LineSubject::Way);
                    self.way(nodes, ways, taken, &below, &below);
                    self.line(format!("{rest}{tee} "), Port::Skipped.as_str(), LineSubject::Way);
                    closing = merge;
                    merge
                }
                [ref others @ .., (_, end)] => {
                    for (_, to) in others {
                        self.way(nodes, ways, *to, &format!("{rest}{tee}"), &format!("{rest}{bar}"));
                    }
                    return self.way(nodes, ways, end, &format!("{rest}{last}"), &format!("{rest}  "));
                }
            };
        }
    }

    fn node(&mut self, node: &PictureNode<'_>, lead: &str, rest: &str, goes_on: bool) {
        let mark = match node.kind {
            "branch" | "route" => self.pick("◇ ", "? "),
            "merge" | "fan-out" => self.pick("○ ", "o "),
            _ => self.pick("● ", "* "),
        };
        let bar = if goes_on { self.pick("│   ", "|   ") } else { "    " };
        self.shape(node, format!("{lead}{mark}"), &format!("{rest}{bar}"));
    }

    // ---- fused: stages -------------------------------------------------------------------------

    fn stages(&mut self, picture: &Picture<'_>) {
        let (top, bar) = (self.pick("╭ ", ". "), self.pick("│ ", "| "));
        for stage in &picture.stages {
            let title = stage.title(if self.style.unicode { '×' } else { 'x' });
            self.line(top, self.ink.kind(&title), LineSubject::Stage);
            for &index in &stage.nodes {
                self.shape(&picture.nodes[index], bar.to_owned(), &format!("{bar}  "));
            }
            // Wires are sorted by the stage that they leave.
            let first = picture.wires.partition_point(|cut| cut.wire.from.0 < stage.id);
            let end = picture.wires.partition_point(|cut| cut.wire.from.0 <= stage.id);
            let wires = &picture.wires[first..end];
            for (i, cut) in wires.iter().enumerate() {
                let lead = match i + 1 == wires.len() {
                    true => self.pick("╰─► ", "`-> "),
                    false => self.pick("├─► ", "+-> "),
                };
                let text = format!("S{:<4} {}", cut.wire.to.0, self.ink.dim(&cut.reason.to_string()));
                let ends = (stage.nodes.last(), picture.stages.get(cut.wire.to.0).and_then(|next| next.nodes.first()));
                let about = match ends {
                    (Some(&from), Some(&to)) => LineSubject::Edge { from, to },
                    _ => LineSubject::Way,
                };
                self.line(lead, text, about);
            }
            if wires.is_empty() {
                self.line(self.pick("╰─■ ", "`-- "), self.ink.dim("delivered"), LineSubject::Way);
            }
        }
    }

    // ---- lines ---------------------------------------------------------------------------------

    fn shape(&mut self, node: &PictureNode<'_>, lead: String, below: &str) {
        let kind = match node.plugin {
            Some(plugin) if matches!(node.kind, "processor" | "split") => plugin.to_owned(),
            Some(plugin) => format!("{} {plugin}", node.kind),
            None if node.kind == node.id => node.notes.join(", "),
            None => node.kind.to_owned(),
        };
        let dots = self.ellipsis();
        let about = LineSubject::Node { node: node.index };
        self.rows.push(DrawnLine { lead, text: one_line(node.id, SETTING, dots), kind, about });
        let condition = node.condition.as_ref().map(|terms| match terms.as_before {
            true => self.ink.condition("for the same records as the previous step"),
            false => {
                let how = if terms.native { "native" } else { "template" };
                let text = self.ink.condition(&format!("{} {}", node.verb(), one_line(terms.text, CONDITION, dots)));
                format!("{text} {}", self.ink.dim(&format!("({how})")))
            }
        });
        if let Some(text) = condition {
            self.line(below, text, LineSubject::Condition { node: node.index });
        }
        let mut details = Vec::new();
        if let Some(workers) = node.workers.filter(|workers| *workers > 1 && !self.staged) {
            details.push(format!("{workers} workers, output in input order"));
        }
        let settings = node.settings.iter().map(|(name, value)| format!("{name}={}", one_line(value, SETTING, dots)));
        let settings = settings.collect::<Vec<_>>().join("  ");
        details.extend((!settings.is_empty()).then(|| self.ink.dim(&settings)));
        if let Some(cost) = &node.measured {
            let text = format!("{}, {}", cost.rows(), cost.cost());
            let text = if self.style.unicode { text } else { plain(&text) };
            details.push(self.ink.measured(&text));
        }
        if node.plugin.is_some() || node.kind == "route" {
            details.extend(node.notes.iter().map(|note| self.ink.dim(note)));
        }
        if let Some(shape) = self.shapes[node.index].take() {
            let arrow = self.pick("⇒", "=>");
            details.push(self.ink.shape(&format!("{arrow} {}", one_line(&self.ascii(&shape), SHAPE, dots))));
        }
        for text in details {
            self.line(below, text, LineSubject::Detail);
        }
    }

    fn print(&self, out: &mut String) {
        let width = |text: &str| text.chars().count();
        let is_node = |row: &&DrawnLine| matches!(row.about, LineSubject::Node { .. });
        let widths = self.rows.iter().filter(is_node).map(|row| width(&row.lead) + width(&row.text));
        let column = widths.max().unwrap_or(0).min(CONDITION) + 2;
        for row in &self.rows {
            let DrawnLine { lead, text, kind, .. } = row;
            let line = match is_node(&row) {
                true => {
                    let gap = " ".repeat(column.saturating_sub(width(lead) + width(text)).max(1));
                    format!("{}{}{gap}{}", self.ink.dim(lead), self.ink.bold(text), self.ink.kind(kind))
                }
                false => format!("{}{text}", self.ink.dim(lead)),
            };
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }

    fn promises(&self, picture: &Picture<'_>, out: &mut String) {
        let arrow = self.pick("─►", "->");
        let _ = writeln!(out, "\n{}", self.ink.bold("delivery"));
        for route in &picture.routes {
            let _ = writeln!(out, "  {} {arrow} {}: {}", route.source, route.destination, route.guarantee());
            let _ = writeln!(out, "    {}", route.duplicates());
        }
        let dead_letters = &picture.dead_letter_queue;
        let _ = writeln!(out, "  failed records {arrow} {}: {}", dead_letters.plugin, dead_letters.rule());
        let settings = picture.dead_letter_node().into_iter().flat_map(|node| &node.settings);
        let settings: Vec<_> =
            settings.map(|(name, value)| format!("{name}={}", one_line(value, SETTING, self.ellipsis()))).collect();
        if !settings.is_empty() {
            let _ = writeln!(out, "    {}", self.ink.dim(&settings.join("  ")));
        }
        if let Some(shared) = picture.shared_by_nodes {
            let runs = match shared {
                true => "the nodes share the partitions",
                false => "one node at a time runs the whole pipeline",
            };
            let _ = writeln!(out, "{}\n  {runs}", self.ink.bold("cluster"));
            for (source, what) in picture.shares.iter().filter(|_| shared) {
                let _ = writeln!(out, "    {source}: {what}");
            }
        }
        let _ = writeln!(out, "{}\n  {}", self.ink.bold("limits"), picture.limits.sentence());
    }
}

/// Converts a measurement to ASCII.
fn plain(text: &str) -> String {
    text.replace('→', "->").replace(" ·", ",").replace('µ', "u")
}
