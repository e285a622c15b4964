//! Plans for Graphviz.

use std::fmt::Write as _;

use super::{Picture, PictureNode, one_line};
use anabranch_graph::plan::graph::Port;

pub(super) fn print(picture: &Picture<'_>) -> String {
    let mut out = String::new();
    let title = format!("{}: {} plan\n{}", picture.pipeline, picture.pass.as_str(), picture.limits.sentence());
    let routes: String = picture
        .routes
        .iter()
        .map(|r| format!("\n{} -> {}: {}; {}", r.source, r.destination, r.guarantee(), r.duplicates()))
        .collect();
    let _ = write!(out, "digraph {} {{\n  rankdir=LR;\n", quoted(picture.pipeline));
    let _ = writeln!(out, "  graph [fontname=\"sans-serif\", labelloc=b, label={}];", quoted(&(title + &routes)));
    out.push_str("  node [fontname=\"sans-serif\", shape=box, style=rounded];\n");
    out.push_str("  edge [fontname=\"sans-serif\", fontsize=10];\n");
    let mut clustered = vec![false; picture.nodes.len()];
    for stage in &picture.stages {
        let _ = writeln!(out, "  subgraph cluster_{} {{", stage.id);
        let _ = writeln!(out, "    label={}; style=rounded; color=gray;", quoted(&stage.title('×')));
        for &index in &stage.nodes {
            clustered[index] = true;
            node(&mut out, "    ", &picture.nodes[index]);
        }
        out.push_str("  }\n");
    }
    for shape in picture.nodes.iter().filter(|shape| !clustered[shape.index]) {
        node(&mut out, "  ", shape);
    }
    for line in &picture.edges {
        let _ = write!(out, "  n{} -> n{}", line.from, line.to);
        out.push_str(&match line.port {
            Port::Failed => " [style=dotted, color=gray, constraint=false]".to_owned(),
            _ => {
                let style = if line.cut.is_some() { ", style=bold" } else { "" };
                let words = line.words().join("\n");
                if words.is_empty() { String::new() } else { format!(" [label={}{style}]", quoted(&words)) }
            }
        });
        out.push_str(";\n");
    }
    out.push_str("}\n");
    out
}

fn node(out: &mut String, indent: &str, shape: &PictureNode<'_>) {
    let form = match shape.kind {
        "source" | "destination" | super::DEAD_LETTER => ", shape=cylinder, style=\"\"",
        "branch" | "route" => ", shape=diamond, style=\"\"",
        "merge" | "fan-out" => ", shape=circle, style=\"\"",
        "split" => ", shape=trapezium, style=\"\"",
        _ => "",
    };
    let _ = writeln!(out, "{indent}n{} [label={}{form}];", shape.index, quoted(&label(shape).join("\n")));
}

/// Returns the lines of text in a node of a diagram.
pub(super) fn label(shape: &PictureNode<'_>) -> Vec<String> {
    let mut lines = vec![shape.id.to_owned()];
    match shape.plugin {
        Some(plugin) if matches!(shape.kind, "processor" | "split") => lines.push(plugin.to_owned()),
        Some(plugin) => lines.push(format!("{} {plugin}", shape.kind)),
        None if shape.kind == "branch" => {}
        None => lines = vec![shape.kind.to_owned()],
    }
    if let Some(workers) = shape.workers.filter(|workers| *workers > 1) {
        lines.push(format!("{workers} workers"));
    }
    match &shape.condition {
        Some(terms) if terms.as_before => lines.push("same records as the previous step".to_owned()),
        Some(terms) => {
            let how = if terms.native { "native" } else { "template" };
            lines.push(format!("{} {} ({how})", shape.verb(), one_line(terms.text, 60, "…")));
        }
        None => {}
    }
    if shape.kind == "route" {
        lines.extend(shape.notes.iter().cloned());
    }
    lines.extend(shape.settings.iter().map(|(name, value)| format!("{name}={}", one_line(value, 40, "…"))));
    lines
}

/// Returns a quoted string of the DOT language.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => {}
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
