//! The plan of a pipeline: the result of compiling a configuration.
//!
//! ```text
//! PipelineConfig ──lower──► PlanGraph ──check──► findings       ┌─flow──► findings
//!                               └─────rewrite──► PlanGraph ────┴─fuse──► StagePlan
//! ```
//!
//! Each pass is a pure function and reports *all* its findings. [`Compiled`] keeps the result of every pass, so that
//! each can be drawn.

pub mod check;
pub mod flow;
pub mod fuse;
pub mod graph;
pub mod locate;
pub mod lower;
pub mod measure;
pub mod observe;
pub mod replay;
pub mod rewrite;
pub mod stage;

#[cfg(test)]
mod tests;

use anabranch_config::limits::MemoryLimits;
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::secret::mask;
use anabranch_record::text::Str;
use petgraph::stable_graph::NodeIndex;

use anabranch_config::PipelineConfig;

pub use fuse::{CutReason, StageBoundary};
pub use graph::PlanGraph;
pub use locate::LocatedTemplates;
pub use measure::{Measured, StepCount};
pub use observe::{Observer, ProbableMistake};
pub use stage::StagePlan;

/// Options for compiling a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// True if operators that make several records of one may be used (`--preview.pipeline-arch-v2`).
    pub split: bool,
    /// True if the run ends when there is nothing more to read (`--once`). Every source must be able to detect this.
    pub once: bool,
    /// True if warnings prevent the pipeline from running, as errors do.
    pub strict: bool,
    /// Memory limits of the pipeline.
    pub limits: MemoryLimits,
    /// True if the nodes of a cluster run the pipeline.
    pub cluster: bool,
}

/// Results of all passes over a pipeline.
#[derive(Clone)]
pub struct Compiled {
    /// The configuration as a graph.
    pub lowered: PlanGraph,
    /// The graph with conditions as masks and without dead branches.
    pub rewritten: PlanGraph,
    /// The plan that the executor runs.
    pub stages: Arc<StagePlan>,
    /// Reasons why adjacent stages are separate: one entry per wire, in the order of [`StagePlan::wires`].
    pub cuts: Vec<StageBoundary>,
    /// Nodes of `rewritten` in each stage, in order.
    pub members: Vec<Vec<NodeIndex>>,
    /// Warnings about the pipeline.
    pub warnings: Diagnostics,
    /// Values that must be masked in logs, faults and dead letters; sorted and unique.
    pub secrets: Vec<Str>,
    /// True if the nodes of a cluster run the pipeline.
    pub cluster: bool,
}

/// Compiles a pipeline without opening anything. O(nodes × applied rewrites).
///
/// # Errors
/// All errors and warnings, in the order of the file: connectors with their processors, processors, dead-letter queue.
pub fn compile(
    config: &PipelineConfig,
    registry: &Registry,
    options: &CompileOptions,
) -> Result<Compiled, Diagnostics> {
    let lowered = lower::lower(config, registry, options);
    let credentials = lowered.credentials.clone();
    let mut compiled = stages(config, options, lowered).map_err(|findings| findings.hiding(&credentials))?;
    compiled.warnings = compiled.warnings.hiding(&credentials);
    if options.strict && !compiled.warnings.is_empty() {
        return Err(compiled.warnings.raised());
    }
    Ok(compiled)
}

/// Runs the passes after lowering.
fn stages(config: &PipelineConfig, options: &CompileOptions, lowered: lower::Lowered) -> Result<Compiled, Diagnostics> {
    let lower::Lowered { graph: lowered, mut findings, secrets, .. } = lowered;
    findings.extend(check::check(&lowered, &options.limits));
    if findings.has_errors() {
        return Err(findings);
    }
    let mut rewritten = lowered.clone();
    rewrite::rewrite(&mut rewritten);
    findings.extend(masked(flow::check(&rewritten), &secrets));
    if findings.has_errors() {
        return Err(findings);
    }
    let fuse::Fused { mut plan, cuts, members } = fuse::fuse(&config.id.value, &rewritten, options.limits)?;
    plan.files_are_shared =
        config.placement.as_ref().is_some_and(|placement| *placement.value() == *PipelineConfig::SHARED);
    let (stages, cluster) = (Arc::new(plan), options.cluster);
    Ok(Compiled { lowered, rewritten, stages, cuts, members, warnings: findings, secrets, cluster })
}

/// Masks secrets in findings: names in shapes come from settings, which may hold secret values.
fn masked(mut findings: Diagnostics, secrets: &[Str]) -> Diagnostics {
    for finding in &mut findings.0 {
        let related = finding.related.iter_mut().map(|label| &mut label.text);
        for text in related.chain([&mut finding.message]).chain(&mut finding.hint) {
            *text = mask(text, secrets);
        }
        // A masked name is not a usable correction.
        finding.fix = finding.fix.take().filter(|fix| mask(&fix.becomes, secrets) == fix.becomes);
    }
    findings
}
