//! Files that a pipeline of a cluster names: other nodes may not have them.

use anabranch_config::PipelineConfig;
use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::graph::NodeKind;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};

use crate::codes;
use crate::outputs::{place, read, written};

/// Reports the files of a pipeline that says nothing about its placement.
pub(crate) fn check(config: &PipelineConfig, compiled: &Compiled) -> Diagnostics {
    let mut found = Diagnostics::new();
    if config.placement.as_ref().is_some_and(|placement| !placement.value().is_empty()) {
        return found;
    }
    for node in compiled.lowered.node_weights() {
        let below = || match &node.kind {
            NodeKind::Destination(write) => write.destination.directory(),
            NodeKind::DeadLetter(queue) => queue.destination.directory(),
            _ => None,
        };
        let Some(file) = read(node).or_else(|| written(node)).or_else(below) else { continue };
        let what = format!(
            "{} of the pipeline {} names the file {file:?}, which only some nodes of the cluster may have",
            node.id, config.id.value
        );
        let hint = "set `placement` of the pipeline to a label of the nodes that have the file (cluster.labels), or to \
                    `shared` if all nodes see the same file";
        found.push(Diagnostic::error(codes::PLAN_NO_PLACEMENT, what).with_span(place(node)).with_hint(hint));
    }
    found
}
