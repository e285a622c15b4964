//! Coverage of a pipeline by its tests: nodes that received records, and outcomes of conditions.

use std::path::PathBuf;

use anabranch_graph::plan::graph::{NodeKind, RouteNode, successors};
use anabranch_graph::plan::{Compiled, Measured};
use anabranch_picture::{Format, Pass, TextStyle};
use petgraph::stable_graph::NodeIndex;
use serde::Serialize;

/// The counters of all tests of one pipeline.
pub struct Coverage {
    of: Option<PathBuf>,
    compiled: Compiled,
    measured: Measured,
}

/// Something that a test can cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Id of the node.
    pub node: String,
    /// Plugin of the node.
    pub plugin: String,
    /// Outcome of the condition; absent for the node itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<Branch>,
    /// The condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Number of records.
    pub records: u64,
}

/// An outcome of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Branch {
    /// True.
    Taken,
    /// False.
    Skipped,
}

impl Coverage {
    /// Creates the coverage of one test. The drawing shows the graph of the first test.
    pub(super) fn new(of: Option<PathBuf>, compiled: Compiled, measured: Measured) -> Self {
        Coverage { of, compiled, measured }
    }

    /// Returns `true` if `other` has the same graph, which can depend on variables.
    pub(super) fn is_of_the_same(&self, other: &Coverage) -> bool {
        let names =
            |compiled: &Compiled| -> Vec<_> { compiled.stages.stages.iter().map(|stage| stage.name.clone()).collect() };
        self.of == other.of
            && self.compiled.stages.pipeline == other.compiled.stages.pipeline
            && self.measured.stages.iter().map(Vec::len).eq(other.measured.stages.iter().map(Vec::len))
            && names(&self.compiled) == names(&other.compiled)
    }

    /// Adds the counters of another test.
    pub(super) fn add(&mut self, other: &Coverage) {
        let all = |measured: &Measured| measured.stages.iter().flatten().copied().collect::<Vec<_>>();
        for (count, more) in self.measured.stages.iter_mut().flatten().zip(all(&other.measured)) {
            super::run::sum(count, &more);
        }
        self.measured.read += other.measured.read;
        self.measured.delivered += other.measured.delivered;
        self.measured.failed += other.measured.failed;
        self.measured.elapsed += other.measured.elapsed;
    }

    /// Returns the id of the pipeline.
    pub fn pipeline(&self) -> &str {
        &self.compiled.stages.pipeline
    }

    /// Returns all nodes and outcomes of conditions, in the order of the graph.
    pub fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for (counts, members) in self.measured.stages.iter().zip(&self.compiled.members) {
            for (count, member) in counts.iter().zip(members) {
                let Some(node) = self.compiled.rewritten.node_weight(*member) else { continue };
                let (plugin, guard) = match &node.kind {
                    NodeKind::Source(read) => (&read.plugin, None),
                    NodeKind::Operator(operator) | NodeKind::Split(operator) => {
                        (&operator.plugin, operator.guard.as_ref())
                    }
                    NodeKind::Destination(write) => (&write.plugin, None),
                    NodeKind::Route(route) => {
                        items.extend(self.routed(route, *member, count.rows_in.saturating_sub(count.failed)));
                        continue;
                    }
                    NodeKind::Branch(_) | NodeKind::FanOut { .. } | NodeKind::Merge | NodeKind::DeadLetter(_) => {
                        continue;
                    }
                };
                let item = |branch: Option<Branch>, records| Item {
                    node: node.id.to_string(),
                    plugin: plugin.to_string(),
                    branch,
                    condition: branch.and(guard).map(|guard| guard.written.written().to_string()),
                    records,
                };
                match guard {
                    None => items.push(item(None, count.rows_in.max(count.rows_out))),
                    Some(_) => {
                        items.push(item(Some(Branch::Taken), count.selected));
                        items.push(item(Some(Branch::Skipped), count.rows_in.saturating_sub(count.selected)));
                    }
                }
            }
        }
        items
    }

    /// Returns the outcomes of the conditions of destinations, of `judged` records.
    fn routed(&self, route: &RouteNode, node: NodeIndex, judged: u64) -> Vec<Item> {
        let mut items = Vec::new();
        for (rule, (_, next)) in route.rules.iter().zip(successors(&self.compiled.rewritten, node)) {
            let Some(guard) = &rule.guard else { continue };
            let taken = self.entered(next);
            for (branch, records) in [(Branch::Taken, taken), (Branch::Skipped, judged.saturating_sub(taken))] {
                items.push(Item {
                    node: rule.destination.to_string(),
                    plugin: "route".to_owned(),
                    branch: Some(branch),
                    condition: Some(guard.written.written().to_string()),
                    records,
                });
            }
        }
        items
    }

    /// Returns the number of records that entered a node.
    fn entered(&self, node: NodeIndex) -> u64 {
        let of_stages = self.measured.stages.iter().zip(&self.compiled.members);
        let counts = of_stages.flat_map(|(counts, members)| counts.iter().zip(members));
        counts.filter(|(_, member)| **member == node).map(|(count, _)| count.rows_in).sum()
    }

    /// Returns the covered share in percent; 100 if there is nothing to cover.
    pub fn percent(&self) -> f64 {
        let items = self.items();
        let covered = items.iter().filter(|item| item.records > 0).count();
        if items.is_empty() { 100.0 } else { (covered as f64 * 1000.0 / items.len() as f64).round() / 10.0 }
    }

    /// Draws the graph with the counters of its nodes.
    pub fn drawn(&self, format: Format, style: TextStyle) -> String {
        anabranch_picture::explain_measured(&self.compiled, Pass::Fused, format, style, Some(&self.measured))
    }
}
