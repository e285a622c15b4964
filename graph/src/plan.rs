//! The plan of a pipeline: what the compiler makes of a configuration.
//!
//! ```text
//! PipelineConfig ──lower──► PlanGraph ──check──► findings       ┌─flow──► findings
//!                               └─────rewrite──► PlanGraph ────┴─fuse──► StagePlan
//! ```
//!
//! Each pass is a pure function and reports *all* its findings. [`Compiled`] keeps what every pass made, so that a drawing
//! can show any of them.

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

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::secret::mask;
use anabranch_record::text::Str;
use petgraph::stable_graph::NodeIndex;

use crate::config::PipelineConfig;

pub use fuse::{Cut, CutReason};
pub use graph::PlanGraph;
pub use locate::Located;
pub use measure::{Measured, StepCount};
pub use observe::{Doubtful, Observer};
pub use stage::{Limits, StagePlan};

/// What a pipeline is compiled for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Whether operators that make several records of one may be used (`--preview.pipeline-arch-v2`).
    pub split: bool,
    /// Whether the run ends when there is nothing more to read (`--once`): every source must be able to tell.
    pub once: bool,
    /// Whether a warning keeps the pipeline from running, as an error does.
    pub strict: bool,
    /// Bounds on what the pipeline holds in memory.
    pub limits: Limits,
}

/// A pipeline after every pass.
#[derive(Clone)]
pub struct Compiled {
    /// What the configuration says, node by node.
    pub lowered: PlanGraph,
    /// The same with conditions as masks and without dead branches.
    pub rewritten: PlanGraph,
    /// What the executor runs.
    pub stages: Arc<StagePlan>,
    /// Why two stages are not one: one entry per wire, in the order of [`StagePlan::wires`].
    pub cuts: Vec<Cut>,
    /// The nodes of `rewritten` that each stage consists of, in order.
    pub members: Vec<Vec<NodeIndex>>,
    /// What is probably not what was meant.
    pub warnings: Diagnostics,
    /// Values that must be masked in logs, faults and dead letters; sorted, each once.
    pub secrets: Vec<Str>,
}

/// Compiles a pipeline. Opens nothing; O(nodes × rewrites that apply).
///
/// # Errors
/// Everything that is wrong with the pipeline, warnings included, in the order of the file's parts:
/// connectors with their processors, processors, dead-letter queue.
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

/// What comes after lowering.
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
    let fuse::Fused { plan, cuts, members } = fuse::fuse(&config.id.value, &rewritten, options.limits)?;
    Ok(Compiled { lowered, rewritten, stages: Arc::new(plan), cuts, members, warnings: findings, secrets })
}

/// Names in shapes come out of settings, so they may hold what must not be shown.
fn masked(mut findings: Diagnostics, secrets: &[Str]) -> Diagnostics {
    for finding in &mut findings.0 {
        let related = finding.related.iter_mut().map(|label| &mut label.text);
        for text in related.chain([&mut finding.message]).chain(&mut finding.hint) {
            *text = mask(text, secrets);
        }
        // A name that was masked is no correction.
        finding.fix = finding.fix.take().filter(|fix| mask(&fix.becomes, secrets) == fix.becomes);
    }
    findings
}
