//! Plans for reading in a terminal.

use std::fmt::Write as _;

use super::{Picture, Shape, TextStyle, grouped, one_line};
use crate::plan::graph::Port;

/// Characters of a condition or of one setting's value, and of all settings of a node.
const CONDITION: usize = 96;
const SETTING: usize = 48;
const SHAPE: usize = 120;

pub(super) fn print(picture: &Picture<'_>, style: TextStyle) -> String {
    let staged = !picture.stages.is_empty();
    let mut shapes = vec![None; picture.nodes.len()];
    for line in &picture.edges {
        shapes[line.from] = shapes[line.from].take().or(line.shown_shape().map(str::to_owned));
    }
    let mut page = Page { style, ink: Ink(style.color), staged, shapes, rows: Vec::new() };
    match staged {
        true => page.stages(picture),
        false => page.graph(picture),
    }
    let mut out = String::new();
    let counted = match picture.stages.len() {
        0 => format!("{} nodes", grouped(picture.nodes.len() as u64)),
        stages => format!("{} stages", grouped(stages as u64)),
    };
    let pipeline = one_line(picture.pipeline, SETTING, page.ellipsis());
    let _ = writeln!(out, "{}: {} plan, {counted}\n", page.ink.bold(&pipeline), picture.pass.as_str());
    page.print(&mut out);
    page.promises(picture, &mut out);
    out
}

/// ANSI colours, or none.
#[derive(Clone, Copy)]
struct Ink(bool);

impl Ink {
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

    fn shape(self, text: &str) -> String {
        self.paint("34", text)
    }

    fn condition(self, text: &str) -> String {
        self.paint("33", text)
    }
}

/// One line of the drawing.
enum Row {
    /// A node: what is drawn before its id, the id, its kind.
    Node { lead: String, id: String, kind: String },
    /// What is to be said about the node above.
    Detail { lead: String, text: String },
    /// A line of its own.
    Heading { lead: String, text: String },
}

struct Page {
    style: TextStyle,
    ink: Ink,
    /// Whether stages are drawn: they say how many workers there are.
    staged: bool,
    /// What is known of the records that leave each node, where that is new.
    shapes: Vec<Option<String>>,
    rows: Vec<Row>,
}

impl Page {
    fn pick(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.style.unicode { unicode } else { ascii }
    }

    fn ellipsis(&self) -> &'static str {
        self.pick("…", "...")
    }

    /// A shape as this terminal can show it.
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

    /// Draws a way until it ends or comes to a merge, which is returned. `first` is drawn before its first
    /// line, `rest` before the others.
    fn way(
        &mut self,
        nodes: &[Shape<'_>],
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
                    self.rows.push(Row::Heading { lead: format!("{rest}{tee} "), text: Port::Taken.as_str().into() });
                    self.way(nodes, ways, taken, &below, &below);
                    self.rows.push(Row::Heading { lead: format!("{rest}{tee} "), text: Port::Skipped.as_str().into() });
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

    fn node(&mut self, node: &Shape<'_>, lead: &str, rest: &str, goes_on: bool) {
        let mark = match node.kind {
            "branch" => self.pick("◇ ", "? "),
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
            self.rows.push(Row::Heading { lead: top.to_owned(), text: self.ink.kind(&title) });
            for &index in &stage.nodes {
                self.shape(&picture.nodes[index], bar.to_owned(), &format!("{bar}  "));
            }
            // Wires are sorted by the stage they leave.
            let first = picture.wires.partition_point(|cut| cut.wire.from.0 < stage.id);
            let end = picture.wires.partition_point(|cut| cut.wire.from.0 <= stage.id);
            let wires = &picture.wires[first..end];
            for (i, cut) in wires.iter().enumerate() {
                let lead = match i + 1 == wires.len() {
                    true => self.pick("╰─► ", "`-> "),
                    false => self.pick("├─► ", "+-> "),
                };
                let text = format!("S{:<4} {}", cut.wire.to.0, self.ink.dim(&cut.reason.to_string()));
                self.rows.push(Row::Heading { lead: lead.to_owned(), text });
            }
            if wires.is_empty() {
                self.rows.push(Row::Heading { lead: self.pick("╰", "`").to_owned(), text: String::new() });
            }
        }
    }

    // ---- lines ---------------------------------------------------------------------------------

    fn shape(&mut self, node: &Shape<'_>, lead: String, below: &str) {
        let kind = match node.plugin {
            Some(plugin) if matches!(node.kind, "processor" | "split") => plugin.to_owned(),
            Some(plugin) => format!("{} {plugin}", node.kind),
            None if node.kind == node.id => node.notes.join(", "),
            None => node.kind.to_owned(),
        };
        let dots = self.ellipsis();
        self.rows.push(Row::Node { lead, id: one_line(node.id, SETTING, dots), kind });
        let mut details = Vec::new();
        match &node.condition {
            Some(terms) if terms.as_before => {
                details.push(self.ink.condition("for the same records as the step before"));
            }
            Some(terms) => {
                let how = if terms.native { "native" } else { "template" };
                let text = self.ink.condition(&format!("if {}", one_line(terms.text, CONDITION, dots)));
                details.push(format!("{text} {}", self.ink.dim(&format!("({how})"))));
            }
            None => {}
        }
        if let Some(workers) = node.workers.filter(|workers| *workers > 1 && !self.staged) {
            details.push(format!("{workers} workers, output in input order"));
        }
        let settings = node.settings.iter().map(|(name, value)| format!("{name}={}", one_line(value, SETTING, dots)));
        let settings = settings.collect::<Vec<_>>().join("  ");
        details.extend((!settings.is_empty()).then(|| self.ink.dim(&settings)));
        if node.plugin.is_some() {
            details.extend(node.notes.iter().map(|note| self.ink.dim(note)));
        }
        if let Some(shape) = self.shapes[node.index].take() {
            let arrow = self.pick("⇒", "=>");
            details.push(self.ink.shape(&format!("{arrow} {}", one_line(&self.ascii(&shape), SHAPE, dots))));
        }
        self.rows.extend(details.into_iter().map(|text| Row::Detail { lead: below.to_owned(), text }));
    }

    fn print(&self, out: &mut String) {
        let width = |text: &str| text.chars().count();
        let widths = self.rows.iter().map(|row| match row {
            Row::Node { lead, id, .. } => width(lead) + width(id),
            Row::Detail { .. } | Row::Heading { .. } => 0,
        });
        let column = widths.max().unwrap_or(0).min(CONDITION) + 2;
        for row in &self.rows {
            let line = match row {
                Row::Node { lead, id, kind } => {
                    let gap = " ".repeat(column.saturating_sub(width(lead) + width(id)).max(1));
                    format!("{}{}{gap}{}", self.ink.dim(lead), self.ink.bold(id), self.ink.kind(kind))
                }
                Row::Detail { lead, text } | Row::Heading { lead, text } => format!("{}{text}", self.ink.dim(lead)),
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
        let _ = writeln!(out, "{}\n  {}", self.ink.bold("limits"), picture.limits.sentence());
    }
}
