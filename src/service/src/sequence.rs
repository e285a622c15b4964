//! The order in which `run --once` starts pipelines that feed each other.

use std::sync::Arc;

use crate::control::Control;
use crate::outputs;
use crate::pipeline_table::{NextStart, PipelineEntry};

/// Starts pipelines. A pipeline that reads the output of others starts when those have ended: a source that caught up
/// earlier would not read their later output. One look-up per file connector.
pub(super) fn begin_in_turn(starting: &[Arc<PipelineEntry>], control: &Control) {
    let plans = starting.iter().map(|entry| match entry.plan() {
        NextStart::Good(pipeline) => Some((entry, pipeline)),
        NextStart::Invalid(_) | NextStart::Incomplete(_) | NextStart::Loading => None,
    });
    let (entries, pipelines): (Vec<_>, Vec<_>) = plans.flatten().unzip();
    let feeders = outputs::feeders(&pipelines.iter().map(Arc::as_ref).collect::<Vec<_>>());
    let mut begun = vec![false; entries.len()];
    // A pipeline waits only for pipelines that have started. Without cycles, each round finds one.
    while let Some(at) = (0..entries.len()).find(|at| !begun[*at] && feeders[*at].iter().all(|other| begun[*other])) {
        begun[at] = true;
        let entry = entries[at];
        let others: Vec<Arc<PipelineEntry>> = feeders[at].iter().map(|other| entries[*other].clone()).collect();
        if !others.is_empty() {
            let ids: Vec<&str> = others.iter().map(|other| other.id.as_str()).collect();
            tracing::info!(
                pipeline = %entry.id,
                "starts after the end of {}, whose output it reads", ids.join(" and ")
            );
        }
        if let Err(error) = control.begin_after(entry, others) {
            tracing::error!(pipeline = %entry.id, %error, "not started");
        }
    }
}
