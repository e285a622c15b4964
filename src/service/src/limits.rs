//! Resource limits of the process, and what the pipelines need of them.

use anabranch_config::DesiredStatus;
use anabranch_graph::plan::graph::NodeKind;
use rustix::process::{Resource, getrlimit};

use crate::pipeline::Pipeline;

/// Open files of a service without pipelines: its runtimes, its store, its log and its listener.
const OWN: u64 = 20;
/// A file source holds the file and its directory, a file destination the file and `.<name>.anabranch` next to it.
const PER_FILE: u64 = 2;

/// Returns the number of files that the process may have open; `None` = unlimited.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Warns if the pipelines that are to be started need more open files than the limit.
pub(super) fn tell(pipelines: &[Pipeline]) {
    if let Some(warning) = open_files().and_then(|limit| too_few(pipelines, limit)) {
        tracing::warn!("{warning}");
    }
}

/// Returns a warning if the minimum need exceeds the limit. Connections, script processes and rotated files come on
/// top.
fn too_few(pipelines: &[Pipeline], limit: u64) -> Option<String> {
    let started = pipelines.iter().filter(|pipeline| pipeline.config.status == DesiredStatus::Running);
    let nodes = started.flat_map(|pipeline| pipeline.compiled.lowered.node_weights());
    let files = nodes.filter(|node| match &node.kind {
        NodeKind::Source(read) => read.source.file().is_some(),
        NodeKind::Destination(write) => write.destination.file().is_some_and(|path| !path.starts_with("/dev/")),
        _ => false,
    });
    let needed = OWN + PER_FILE * files.count() as u64;
    (needed > limit).then(|| {
        format!(
            "this process can open {limit} files, but the pipelines to start need at least {needed}: raise the limit \
             (`ulimit -n`, or LimitNOFILE of the systemd unit)"
        )
    })
}
