//! Resources that only one source of a service can have: standard input, and addresses at which a source listens.

use anabranch_config::DesiredStatus;
use anabranch_graph::plan::check::place_of;
use anabranch_graph::plan::graph::{Node, NodeKind};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_record::extent::Extent;

use crate::codes;
use crate::pipeline::Pipeline;

/// A source that takes a resource.
struct Taker<'p> {
    pipeline: &'p Pipeline,
    node: &'p Node,
    extent: Extent,
}

impl Taker<'_> {
    /// Returns `true` if the service starts the pipeline.
    fn is_started(&self) -> bool {
        self.pipeline.config.status == DesiredStatus::Running
    }

    fn finding(&self, first: &Taker<'_>) -> Diagnostic {
        let id = first.pipeline.config.id.value.as_str();
        let is_same = id == self.pipeline.config.id.value.as_str();
        let whose = if is_same { String::new() } else { format!(" of the pipeline {id:?}") };
        let Extent { what, setting, .. } = self.extent;
        let message = format!(
            "{:?} and {:?}{whose} both read {what}: only one source of a service can",
            self.node.id, first.node.id
        );
        // Pipelines of which one is stopped may take turns.
        let finding = match is_same || self.is_started() && first.is_started() {
            true => Diagnostic::error(codes::PLAN_INPUT_TAKEN, message),
            false => Diagnostic::warning(codes::PLAN_INPUT_TAKEN, message),
        };
        finding
            .with_span(place_of(self.node, setting))
            .with_related(place_of(first.node, first.extent.setting), "read here too")
            .with_path(format!("{}/settings/{setting}", self.node.path))
            .with_hint(format!("set another {setting} for one of the sources, or remove it"))
    }
}

/// Reports sources that take a resource of an earlier one. Returns the pipelines with findings by index, in order.
pub(crate) fn shared(pipelines: &[Pipeline]) -> Vec<(usize, Diagnostics)> {
    let mut takers: Vec<Taker<'_>> = Vec::new();
    let mut all = Vec::new();
    for (index, pipeline) in pipelines.iter().enumerate() {
        let mut findings = Diagnostics::new();
        for node in pipeline.compiled.lowered.node_weights() {
            let NodeKind::Source(read) = &node.kind else { continue };
            let Some(extent) = read.source.takes() else { continue };
            let taker = Taker { pipeline, node, extent };
            let mut first = takers.iter().filter(|first| first.extent.meets(&taker.extent));
            if let Some(first) = first.next() {
                findings.push(taker.finding(first));
            }
            takers.push(taker);
        }
        if !findings.is_empty() {
            all.push((index, findings));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::pipelines::of_text;

    /// The findings of pipelines with these statuses, whose sources are `file` with these paths.
    fn findings(pipelines: &[(&str, &[&str])]) -> Vec<String> {
        let source = |(index, path): (usize, &&str)| {
            format!("      - {{ id: in{index}, type: source, plugin: file, settings: {{ path: '{path}' }} }}\n")
        };
        let items: String = pipelines
            .iter()
            .enumerate()
            .map(|(index, (status, paths))| {
                let sources: String = paths.iter().enumerate().map(source).collect();
                format!(
                    "  - id: p{index}\n    status: {status}\n    connectors:\n{sources}      - {{ id: out, type: \
                     destination, plugin: drop }}\n"
                )
            })
            .collect();
        let pipelines = of_text(&format!("version: 2.2\npipelines:\n{items}"));
        let found = pipelines.findings.iter().filter(|finding| finding.code.name() == "plan.input_taken");
        found.map(|finding| format!("{:?}: {}", finding.severity, finding.message)).collect()
    }

    #[test]
    fn standard_input_has_one_reader() {
        let one = "Error: \"in1\" and \"in0\" both read standard input: only one source of a service can";
        assert_eq!(findings(&[("running", &["-", "-"])]), [one]);
        let other =
            "\"in0\" and \"in0\" of the pipeline \"p0\" both read standard input: only one source of a service can";
        assert_eq!(findings(&[("running", &["-"]), ("running", &["-"])]), [format!("Error: {other}")]);
        assert_eq!(findings(&[("stopped", &["-"]), ("running", &["-"])]), [format!("Warning: {other}")]);
        assert_eq!(findings(&[("running", &["-", "in.txt"]), ("running", &["in.txt"])]), Vec::<String>::new());
    }
}
