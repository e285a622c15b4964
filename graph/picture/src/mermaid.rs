//! Plans for Mermaid.

use std::fmt::Write as _;

use super::dot::label;
use super::{Picture, PictureNode};
use anabranch_graph::plan::graph::Port;

pub(super) fn print(picture: &Picture<'_>) -> String {
    let mut out = String::new();
    comment(&mut out, &format!("{}: {} plan", picture.pipeline, picture.pass.as_str()));
    comment(&mut out, &picture.limits.sentence());
    for route in &picture.routes {
        let (guarantee, duplicates) = (route.guarantee(), route.duplicates());
        comment(&mut out, &format!("{} to {}: {guarantee}; {duplicates}", route.source, route.destination));
    }
    out.push_str("flowchart LR\n");
    let mut clustered = vec![false; picture.nodes.len()];
    for stage in &picture.stages {
        let _ = writeln!(out, "  subgraph S{}[\"{}\"]", stage.id, escaped(&stage.title('×')));
        for &index in &stage.nodes {
            clustered[index] = true;
            node(&mut out, "    ", &picture.nodes[index]);
        }
        out.push_str("  end\n");
    }
    for shape in picture.nodes.iter().filter(|shape| !clustered[shape.index]) {
        node(&mut out, "  ", shape);
    }
    for line in &picture.edges {
        let arrow = match line.port {
            Port::Failed => "-.->".to_owned(),
            port => {
                let arrow = if line.cut.is_some() { "==>" } else { "-->" };
                let words = line.words();
                match &words[..] {
                    [] => arrow.to_owned(),
                    [word] if *word == port.as_str() => format!("{arrow}|{word}|"),
                    words => {
                        let words: Vec<String> = words.iter().map(|word| escaped(word)).collect();
                        format!("{arrow}|\"{}\"|", words.join("<br/>"))
                    }
                }
            }
        };
        let _ = writeln!(out, "  n{} {arrow} n{}", line.from, line.to);
    }
    out
}

fn comment(out: &mut String, text: &str) {
    // A brace would open a directive.
    let text: String = text.chars().map(|c| if c.is_control() || matches!(c, '{' | '}') { ' ' } else { c }).collect();
    let _ = writeln!(out, "%% {text}");
}

fn node(out: &mut String, indent: &str, shape: &PictureNode<'_>) {
    let (open, close) = match shape.kind {
        "source" | "destination" | super::DEAD_LETTER => ("[(", ")]"),
        "branch" => ("{", "}"),
        "merge" | "fan-out" => ("((", "))"),
        "split" => ("[/", "\\]"),
        _ => ("(", ")"),
    };
    let label = label(shape).iter().map(|line| escaped(line)).collect::<Vec<_>>().join("<br/>");
    let _ = writeln!(out, "{indent}n{}{open}\"{label}\"{close}", shape.index);
}

/// Escapes text for a quoted label: markup characters of Mermaid and HTML become entities.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '#' | '&' | '<' | '>' | '`' | ';' | '\\' | '{' | '}' | '[' | ']' | '(' | ')' | '|' | '*' | '_' => {
                let _ = write!(escaped, "#{};", u32::from(c));
            }
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
