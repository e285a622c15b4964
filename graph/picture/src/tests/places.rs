//! What runs is where the picture of the fused pass shows it.

use anabranch_graph::plan::graph::RouteNode;
use anabranch_graph::plan::stage::StageKind;
use anabranch_graph::plan::{CompileOptions, Compiled, compile};
use anabranch_graph::testing::notation::pipeline;
use anabranch_graph::testing::scripted::registry;
use serde_json::Value;

use crate::{EdgeRuns, Format, NodeRuns, Pass, Places, TextStyle, explain};

/// Merges, a condition shared by two steps, several workers, a thread, two destinations of which one has a step.
const BRANCHED: &str = r#"
source a gen
  first set key=a
source b gen
mask set key=a value=1 if {{ eq (index .Metadata "kind") "x" }}
again set key=c value=1 if {{ eq (index .Metadata "kind") "x" }}
wide set key=b workers=3
js script key=c workers=2
destination s3 out path=p
  enc set key=d
destination log once
"#;

const ROUTED: &str = r#"
unmatched log
source a gen
destination s3 out path=p if {{ eq .Metadata.a "1" }}
  enc set key=d
destination log once
"#;

const STRAIGHT: &str = r"
source a gen
destination log once
";

/// The id of what runs in a step of a stage.
fn running(compiled: &Compiled, stage: usize, step: usize) -> &str {
    match &compiled.stages.stages[stage].kind {
        StageKind::Read(read) => &read.connector,
        StageKind::Write(write) => &write.connector,
        StageKind::Async { step, .. } => &step.node,
        StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
            &steps[step].node
        }
        StageKind::Route(_) => RouteNode::NODE,
    }
}

#[test]
fn places_are_those_of_the_picture() {
    for text in [BRANCHED, ROUTED, STRAIGHT] {
        let options = CompileOptions { split: true, ..CompileOptions::default() };
        let compiled = compile(&pipeline(text), &registry(), &options).unwrap();
        let picture: Value =
            serde_json::from_str(&explain(&compiled, Pass::Fused, Format::Json, TextStyle::default())).unwrap();
        let places = Places::of(&compiled);

        let shown = picture["nodes"].as_array().unwrap();
        assert_eq!(shown.len(), places.nodes.len());
        let mut letters = 0;
        for (index, (shown, place)) in shown.iter().zip(&places.nodes).enumerate() {
            assert_eq!((&shown["index"], &shown["id"]), (&index.into(), &place.id.as_str().into()));
            match place.runs {
                NodeRuns::Step(stage, step) => {
                    assert_eq!(running(&compiled, stage.0, step), place.id.as_str());
                    assert_eq!(picture["stages"][stage.0]["nodes"][step], index);
                }
                NodeRuns::DeadLetters => letters += 1,
            }
        }
        assert_eq!(letters, 1);

        let mut edges: Vec<(usize, usize, &str)> = places
            .edges
            .iter()
            .map(|edge| (edge.from, edge.to, if matches!(edge.runs, EdgeRuns::Failed(_)) { "failed" } else { "out" }))
            .collect();
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let lines = picture["edges"].as_array().unwrap().iter();
        let mut lines: Vec<(usize, usize, &str)> =
            lines.map(|line| (number(&line["from"]), number(&line["to"]), line["port"].as_str().unwrap())).collect();
        edges.sort_unstable();
        lines.sort_unstable();
        assert_eq!(edges, lines);
        for edge in &places.edges {
            if let EdgeRuns::Wire(wire) = edge.runs {
                let wire = compiled.stages.wires[wire];
                let at = |node: usize| match places.nodes[node].runs {
                    NodeRuns::Step(stage, _) => Some(stage),
                    NodeRuns::DeadLetters => None,
                };
                assert_eq!((at(edge.from), at(edge.to)), (Some(wire.from), Some(wire.to)));
            }
        }
    }
}
