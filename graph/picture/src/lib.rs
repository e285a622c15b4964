//! Plans as text, drawing, page or JSON.
//!
//! [`explain`] shows the result of a compiler pass over a pipeline. Every format prints the same `Picture`, which does
//! not contain credentials. A `layout` in layers (Sugiyama's method) places the nodes of drawings. [`Places`] maps the
//! running stages and steps to the picture. This crate does no I/O and does not depend on the executor: measurements of
//! a run are passed in as a plain [`Measured`].
//!
//! # Example
//!
//! ```
//! use anabranch_graph::plan::{CompileOptions, compile};
//! use anabranch_graph::testing::{notation::pipeline, scripted::registry};
//! use anabranch_picture::{Format, Pass, TextStyle, explain};
//!
//! let config = pipeline("source orders gen\nmask set key=a value=1\ndestination lake out\n");
//! let compiled = compile(&config, &registry(), &CompileOptions::default()).unwrap();
//! let text = explain(&compiled, Pass::Fused, Format::Text, TextStyle::default());
//! assert!(text.contains("orders") && text.contains("lake"));
//! ```

mod dot;
mod figure;
mod html;
mod json;
mod layout;
mod measured;
mod mermaid;
mod places;
mod route;
mod svg;
/// Returns what a node reads of a source that is split.
fn share(stage: &StageSpec) -> Option<(&str, &'static str)> {
    match &stage.kind {
        StageKind::Read(read) => match read.source.split() {
            Split::Static(what) | Split::Dynamic(what) => Some((&read.connector, what)),
            Split::Whole => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
mod text;
mod typeface;

use std::collections::BTreeMap;
use std::time::Duration;

use petgraph::stable_graph::NodeIndex;
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use serde::Serialize;

use anabranch_config::limits::MemoryLimits;
use anabranch_graph::plan::fuse::{CutReason, StageBoundary};
use anabranch_graph::plan::graph::{Guard, Node, NodeKind, PlanGraph, Port, RouteNode, RouteRule};
use anabranch_graph::plan::stage::{DeadLetterSpec, ReadSpec, StageKind, StageSpec, Unmatched, WriteSpec};
use anabranch_graph::plan::{Compiled, Measured, flow};
use anabranch_plugin::flow::RecordShape;
use anabranch_plugin::secret::mask;
use anabranch_plugin::source::Split;
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;

pub use self::places::{EdgePlace, EdgeRuns, NodePlace, NodeRuns, Places};

use self::figure::Purpose;
use self::measured::{Cost, Totals};
use self::route::Route;

/// The pass whose result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// The configuration as a graph.
    Lowered,
    /// The graph after all rewrites.
    Rewritten,
    /// The stages that the executor runs.
    #[default]
    Fused,
}

impl Pass {
    /// Returns the name: `lowered`, `rewritten` or `fused`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pass::Lowered => "lowered",
            Pass::Rewritten => "rewritten",
            Pass::Fused => "fused",
        }
    }
}

/// Output format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Text for a terminal.
    #[default]
    Text,
    /// DOT, for Graphviz.
    Dot,
    /// Mermaid, as in Markdown.
    Mermaid,
    /// JSON, for programs.
    Json,
    /// SVG drawing.
    Svg,
    /// Interactive page with all passes, and the settings of every node.
    Html,
    /// JSON with the lines of the text and the part that each describes, for programs that draw with characters.
    Outline,
    /// SVG drawing without style and titles, with areas for the activity of a run. A page fills in the texts of class
    /// `live` in the nodes (`data-node` is the index) and of class `flow` on the edges (`data-from`, `data-to`).
    Live,
}

/// Capabilities of a terminal. Used by [`Format::Text`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TextStyle {
    /// Box-drawing characters instead of ASCII.
    pub unicode: bool,
    /// ANSI colours.
    pub color: bool,
}

/// Returns the plan after a pass, with a line feed at the end. The output depends only on the configuration and
/// contains no credentials. O(nodes²) for drawings, else O(nodes + edges).
pub fn explain(compiled: &Compiled, pass: Pass, format: Format, style: TextStyle) -> String {
    explain_measured(compiled, pass, format, style, None)
}

/// Like [`explain`], with measurements of a run next to the nodes.
pub fn explain_measured(
    compiled: &Compiled,
    pass: Pass,
    format: Format,
    style: TextStyle,
    measured: Option<&Measured>,
) -> String {
    let picture = |pass| Picture::of(compiled, pass, measured);
    if format == Format::Html {
        return html::print(&[Pass::Lowered, Pass::Rewritten, Pass::Fused].map(picture), pass);
    }
    let picture = picture(pass);
    match format {
        Format::Html | Format::Svg => svg::print(&picture),
        Format::Live => svg::embedded(&picture, Purpose::Live),
        Format::Text => text::print(&picture, style),
        Format::Outline => text::outline(&picture),
        Format::Dot => dot::print(&picture),
        Format::Mermaid => mermaid::print(&picture),
        Format::Json => json::print(&picture),
    }
}

/// The displayed content of a plan.
#[derive(Serialize)]
struct Picture<'a> {
    pipeline: &'a str,
    pass: Pass,
    nodes: Vec<PictureNode<'a>>,
    edges: Vec<PictureEdge>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<Cluster<'a>>,
    #[serde(skip_serializing_if = "<[StageBoundary]>::is_empty")]
    wires: &'a [StageBoundary],
    dead_letter_queue: DeadLetters<'a>,
    routes: Vec<Route<'a>>,
    /// In a cluster: true if the nodes share the partitions, false if one node runs the whole pipeline; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_by_nodes: Option<bool>,
    /// What each node reads of the sources, if the nodes share them.
    #[serde(skip)]
    shares: Vec<(&'a str, &'static str)>,
    limits: Bounds,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Totals<'a>>,
}

/// A node.
#[derive(Serialize)]
struct PictureNode<'a> {
    /// Index in the picture.
    index: usize,
    id: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<Terms<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    settings: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// The name of what users can have read again while the source reads on.
    #[serde(skip_serializing_if = "Option::is_none")]
    backfills: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Cost>,
}

/// A condition.
#[derive(Serialize)]
struct Terms<'a> {
    text: &'a str,
    /// True if it is evaluated without building text.
    native: bool,
    /// True if the results of the step before are reused.
    as_before: bool,
}

/// An edge between two nodes of the picture.
#[derive(Clone, PartialEq, Eq, Serialize)]
struct PictureEdge {
    from: usize,
    to: usize,
    port: Port,
    /// Reason why the two nodes are in different stages.
    #[serde(skip)]
    cut: Option<CutReason>,
    /// Known shape of the records on the edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<Str>,
    /// True if the shape differs from that before the first node. Drawings show only such shapes.
    #[serde(skip)]
    reshaped: bool,
}

/// A stage with its nodes in the picture.
#[derive(Serialize)]
struct Cluster<'a> {
    id: usize,
    name: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strips_in_flight: Option<u32>,
    nodes: Vec<usize>,
}

#[derive(Serialize)]
struct DeadLetters<'a> {
    plugin: &'a str,
    window_size: u64,
    window_nack_threshold: u64,
}

#[derive(Serialize)]
struct Bounds {
    replay_rows: usize,
    held_bytes: usize,
    queue_strips: usize,
    queue_bytes: usize,
}

impl<'a> Picture<'a> {
    fn of(compiled: &'a Compiled, pass: Pass, measured: Option<&'a Measured>) -> Self {
        let graph = if pass == Pass::Lowered { &compiled.lowered } else { &compiled.rewritten };
        let indices: Vec<NodeIndex> = match pass {
            Pass::Fused => places::fused_nodes(graph),
            Pass::Lowered | Pass::Rewritten => graph.node_indices().collect(),
        };
        let mut nodes: Vec<_> = indices.iter().enumerate().map(|(i, n)| PictureNode::of(i, &graph[*n])).collect();
        let place = |node: NodeIndex| indices.binary_search(&node).ok();
        let stages: &[StageSpec] = if pass == Pass::Fused { &compiled.stages.stages } else { &[] };
        let stages: Vec<Cluster<'a>> = stages
            .iter()
            .zip(places::members(compiled, &indices))
            .enumerate()
            .map(|(id, (stage, members))| Cluster::of(id, stage, members))
            .collect();
        // The first step of a stage has no step before it whose results it could reuse.
        for first in stages.iter().filter_map(|stage| stage.nodes.first().copied()) {
            if let Some(terms) = &mut nodes[first].condition {
                terms.as_before = false;
            }
        }
        if let Some(measured) = measured {
            measured::note(&mut nodes, measured, &compiled.members, place);
        }
        let mut edges = match pass {
            Pass::Fused => stage_lines(&Places::of(compiled), &compiled.cuts),
            Pass::Lowered | Pass::Rewritten => graph_lines(graph, place),
        };
        let shapes: Vec<Option<Str>> = {
            let shapes = flow::shapes(graph);
            let text = |shape: &RecordShape| mask(&shape.to_string(), &compiled.secrets).into();
            let known = |node: &NodeIndex| shapes.after(*node).filter(|shape| !shape.is_unknown());
            indices.iter().map(|node| known(node).map(text)).collect()
        };
        for line in edges.iter_mut().filter(|line| line.port != Port::Failed) {
            line.shape.clone_from(&shapes[line.from]);
        }
        let mut reshaped = vec![true; nodes.len()];
        for line in edges.iter().filter(|line| line.port != Port::Failed && shapes[line.from] == shapes[line.to]) {
            reshaped[line.to] = false;
        }
        edges.iter_mut().for_each(|line| line.reshaped = line.shape.is_some() && reshaped[line.from]);
        let MemoryLimits { replay_rows, held_bytes, queue_bytes, queue_strips } = compiled.stages.limits;
        let DeadLetterSpec { plugin, window_size, threshold, .. } = &compiled.stages.dead_letter;
        Picture {
            pipeline: &compiled.stages.pipeline,
            pass,
            nodes,
            edges,
            stages,
            wires: if pass == Pass::Fused { &compiled.cuts } else { &[] },
            dead_letter_queue: DeadLetters { plugin, window_size: *window_size, window_nack_threshold: *threshold },
            routes: route::all(&compiled.lowered, replay_rows, compiled.cluster),
            shared_by_nodes: compiled.cluster.then(|| compiled.stages.splits()),
            shares: compiled.stages.stages.iter().filter_map(share).collect(),
            limits: Bounds { replay_rows, held_bytes, queue_strips, queue_bytes },
            measured: measured.map(Totals::of),
        }
    }

    /// Returns the pass and the size: `fused plan, 6 stages`.
    fn counted(&self) -> String {
        let size = match self.stages.len() {
            0 => format!("{} nodes", grouped(self.nodes.len() as u64)),
            stages => format!("{} stages", grouped(stages as u64)),
        };
        format!("{} plan, {size}", self.pass.as_str())
    }

    /// Returns the edges of successful records.
    fn ways(&self) -> impl Iterator<Item = &PictureEdge> {
        self.edges.iter().filter(|line| line.port != Port::Failed)
    }

    /// Returns the node of the dead-letter queue.
    fn dead_letter_node(&self) -> Option<&PictureNode<'a>> {
        self.nodes.iter().find(|node| node.kind == DEAD_LETTER)
    }
}

fn graph_lines(graph: &PlanGraph, place: impl Fn(NodeIndex) -> Option<usize>) -> Vec<PictureEdge> {
    let mut lines: Vec<PictureEdge> = graph
        .edge_references()
        .filter_map(|edge| {
            let (from, to) = (place(edge.source())?, place(edge.target())?);
            Some(PictureEdge { port: edge.weight().port, ..PictureEdge::inside(from, to) })
        })
        .collect();
    lines.sort_unstable_by_key(|line| (line.from, line.port, line.to));
    lines
}

/// Returns the edges inside stages, between stages, and from each stage that can fail.
fn stage_lines(places: &Places, cuts: &[StageBoundary]) -> Vec<PictureEdge> {
    let line = |edge: &EdgePlace| {
        let line = PictureEdge::inside(edge.from, edge.to);
        match edge.runs {
            EdgeRuns::Inside(..) => line,
            EdgeRuns::Wire(wire) => PictureEdge { cut: cuts.get(wire).map(|cut| cut.reason), ..line },
            EdgeRuns::Failed(_) => PictureEdge { port: Port::Failed, ..line },
        }
    };
    let mut lines: Vec<PictureEdge> = places.edges.iter().map(line).collect();
    lines.sort_unstable_by_key(|line| (line.from, line.port, line.to));
    lines
}

impl PictureEdge {
    /// Returns the texts next to an edge in a diagram: port, reason for the stage boundary, shape of the records.
    fn words(&self) -> Vec<String> {
        let port = matches!(self.port, Port::Taken | Port::Skipped).then(|| self.port.as_str().to_owned());
        let cut = self.cut.map(|reason| reason.to_string());
        let shape = self.shown_shape().map(|shape| one_line(shape, 80, "…"));
        port.into_iter().chain(cut).chain(shape).collect()
    }

    /// Returns the shape of the records if drawings show it.
    fn shown_shape(&self) -> Option<&str> {
        self.shape.as_deref().filter(|_| self.reshaped)
    }

    /// Creates an edge from one step of a stage to the next.
    fn inside(from: usize, to: usize) -> Self {
        PictureEdge { from, to, port: Port::Out, cut: None, shape: None, reshaped: false }
    }
}

const DEAD_LETTER: &str = "dead-letter queue";

impl<'a> PictureNode<'a> {
    /// Returns the words before the condition: a filter drops the records for which it holds.
    fn verb(&self) -> &'static str {
        if self.plugin == Some("filter") { "drops if" } else { "if" }
    }

    fn of(index: usize, node: &'a Node) -> Self {
        let mut shape = PictureNode {
            index,
            id: &node.id,
            kind: "",
            plugin: None,
            workers: None,
            condition: None,
            settings: node.settings.iter().map(|given| (&*given.name, &*given.shown)).collect(),
            notes: Vec::new(),
            backfills: None,
            measured: None,
        };
        match &node.kind {
            NodeKind::Source(read) => {
                (shape.kind, shape.plugin) = ("source", Some(&*read.plugin));
                shape.notes.extend(reading(read));
                shape.backfills = read.source.backfills();
            }
            NodeKind::Operator(operator) | NodeKind::Split(operator) => {
                shape.kind = if matches!(node.kind, NodeKind::Split(_)) { "split" } else { "processor" };
                shape.plugin = Some(&operator.plugin);
                shape.workers = Some(operator.workers);
                shape.condition = operator.guard.as_ref().map(Terms::of);
            }
            NodeKind::Branch(guard) => {
                shape.kind = "branch";
                shape.condition = Some(Terms::of(guard));
            }
            NodeKind::FanOut { copies } => {
                shape.kind = "fan-out";
                shape.notes.push(format!("a copy to each of {copies} destinations"));
            }
            NodeKind::Route(route) => {
                shape.kind = "route";
                shape.notes = routing(route);
            }
            NodeKind::Merge => {
                shape.kind = "merge";
                shape.notes.push("strips as they arrive".to_owned());
            }
            NodeKind::Destination(write) => {
                (shape.kind, shape.plugin) = ("destination", Some(&*write.plugin));
                shape.notes.push(writing(write));
            }
            NodeKind::DeadLetter(dead_letter) => {
                (shape.kind, shape.plugin) = (DEAD_LETTER, Some(&*dead_letter.plugin));
            }
        }
        shape
    }
}

/// Returns one line per destination with the records that it receives, and what becomes of the others.
fn routing(route: &RouteNode) -> Vec<String> {
    let rule = |rule: &RouteRule| {
        let what = match (&rule.guard, rule.otherwise) {
            (Some(guard), false) => format!("if {}", one_line(guard.written.written(), 60, "…")),
            (Some(guard), true) => format!("if {}, or no condition holds", one_line(guard.written.written(), 60, "…")),
            (None, true) => "if no condition holds".to_owned(),
            (None, false) => "every record".to_owned(),
        };
        format!("{}: {what}", rule.destination)
    };
    let mut lines: Vec<String> = route.rules.iter().map(rule).collect();
    if !route.rules.iter().any(|rule| rule.otherwise || rule.takes_all()) {
        lines.push(match route.unmatched {
            Unmatched::Drop => "other records are dropped".to_owned(),
            Unmatched::DeadLetter => "other records become dead letters".to_owned(),
            Unmatched::Fail => "another record stops the pipeline".to_owned(),
        });
    }
    lines
}

fn reading(read: &ReadSpec) -> Option<String> {
    let rows = read.batch_rows?;
    Some(match read.batch_delay {
        Duration::ZERO => format!("batches of {} {}", grouped(rows as u64), plural(rows as u64, "record")),
        delay => {
            format!("batches of {} {} or after {delay:?}", grouped(rows as u64), plural(rows as u64, "record"))
        }
    })
}

fn writing(write: &WriteSpec) -> String {
    let policy = write.destination.policy();
    let rows = write.batch_rows.unwrap_or(policy.rows) as u64;
    let mut text = format!("up to {} {} per write", grouped(rows), plural(rows, "record"));
    match write.batch_delay.unwrap_or(policy.linger) {
        Duration::ZERO => {}
        delay => text.push_str(&format!(", waits {delay:?} for more")),
    }
    if let Some(rate) = write.rate {
        text.push_str(&format!(", {rate} records per second"));
    }
    text
}

impl<'a> Terms<'a> {
    fn of(guard: &'a Guard) -> Self {
        Terms { text: guard.written.written(), native: guard.condition.is_native(), as_before: guard.as_before }
    }
}

impl<'a> Cluster<'a> {
    fn of(id: usize, stage: &'a StageSpec, nodes: Vec<usize>) -> Self {
        let (kind, workers, strips_in_flight) = match &stage.kind {
            StageKind::Read(_) => ("read", None, None),
            StageKind::Chain(_) => ("chain", None, None),
            StageKind::Parallel { workers, .. } => ("parallel", Some(*workers), None),
            StageKind::Async { in_flight, .. } => ("async", None, Some(*in_flight)),
            StageKind::Isolate { workers, .. } => ("isolate", Some(*workers), None),
            StageKind::Route(_) => ("route", None, None),
            StageKind::Write(_) => ("write", None, None),
        };
        Cluster { id, name: &stage.name, kind, workers, strips_in_flight, nodes }
    }

    /// Returns number, kind and width of the stage: `S2 parallel ×4`.
    fn title(&self, times: char) -> String {
        let mut title = format!("S{} {}", self.id, self.kind);
        match (self.workers, self.strips_in_flight) {
            (Some(workers), _) if workers > 1 => title.push_str(&format!(" {times}{workers}")),
            (_, Some(strips)) => title.push_str(&format!(", {strips} strips in flight")),
            _ => {}
        }
        title
    }
}

impl DeadLetters<'_> {
    /// Describes the effect of failed records.
    fn rule(&self) -> String {
        match (self.window_size, self.window_nack_threshold) {
            (0, _) => "failures never stop the pipeline".to_owned(),
            (_, 0) => "the first failure stops the pipeline".to_owned(),
            (window, threshold) => format!(
                "more than {} {} among the last {} {} stop the pipeline",
                grouped(threshold),
                plural(threshold, "failure"),
                grouped(window),
                plural(window, "record")
            ),
        }
    }
}

impl Bounds {
    /// Describes the limits of the queues and the pipeline.
    fn sentence(&self) -> String {
        format!(
            "queues between stages hold {} strips and {}, the pipeline {}",
            self.queue_strips,
            bytes(self.queue_bytes),
            bytes(self.held_bytes)
        )
    }
}

/// Returns a text on one line of at most `most` characters, with white space collapsed and control characters escaped.
fn one_line(text: &str, most: usize, ellipsis: &str) -> String {
    let mut line = String::with_capacity(text.len().min(most * 4));
    let words = text.split_whitespace().flat_map(|word| [" ", word]).skip(1);
    let escaped = words.flat_map(str::chars).flat_map(|c| {
        let (plain, control) = if c.is_control() { (None, Some(c.escape_default())) } else { (Some(c), None) };
        plain.into_iter().chain(control.into_iter().flatten())
    });
    for (length, c) in escaped.enumerate() {
        if length == most {
            line.push_str(ellipsis);
            break;
        }
        line.push(c);
    }
    line
}

/// Formats a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of bytes in the largest unit that divides it.
fn bytes(number: usize) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| number > 0 && number.is_multiple_of(1 << shift));
    match unit {
        Some((name, shift)) => format!("{} {name}", grouped((number >> shift) as u64)),
        None => format!("{} B", grouped(number as u64)),
    }
}
