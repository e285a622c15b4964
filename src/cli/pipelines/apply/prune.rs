//! Deletes pipelines of the service that no file declares.

use std::time::Duration;

use anabranch_process::terminal::Style;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::Report;
use crate::cli::remote::Remote;
use crate::client::escaped;

/// Interval and number of polls for a stopping pipeline. The service drains it within its own time limit.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 600;

/// A pipeline that the service has and no given file declares.
pub(super) struct UndeclaredPipeline {
    pub(super) id: String,
    /// `true` if it runs.
    live: bool,
    deleted: bool,
}

/// A pipeline that no given file declares, but a file of the service does. Only a change of that file can remove it, so
/// it is not part of the plan.
pub(super) struct KeptPipeline {
    id: String,
}

#[derive(Deserialize)]
struct PrunedPipeline {
    id: String,
    #[serde(default)]
    detached: bool,
    #[serde(default)]
    origin: String,
    state: State,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    word: String,
}

impl PrunedPipeline {
    fn is_live(&self) -> bool {
        matches!(self.state.word.as_str(), "starting" | "running" | "recovering" | "idle" | "stalled")
    }

    /// Returns `true` if a file of the service declares it, so that only a change of that file can remove it.
    fn is_of_file(&self) -> bool {
        self.origin == "file" && !self.detached
    }
}

/// Returns the pipelines of the service that are not in `declared`: those to delete, and those that stay.
pub(super) fn surplus(
    remote: &Remote,
    declared: &[&str],
) -> Result<(Vec<UndeclaredPipeline>, Vec<KeptPipeline>), Box<Report>> {
    let all: Vec<PrunedPipeline> = remote.get("/v1/pipelines")?;
    let others = all.into_iter().filter(|pipeline| !declared.contains(&pipeline.id.as_str()));
    let (kept, surplus): (Vec<PrunedPipeline>, Vec<PrunedPipeline>) = others.partition(PrunedPipeline::is_of_file);
    let surplus = surplus.into_iter().map(|it| UndeclaredPipeline { live: it.is_live(), id: it.id, deleted: false });
    Ok((surplus.collect(), kept.into_iter().map(|it| KeptPipeline { id: it.id }).collect()))
}

impl KeptPipeline {
    pub(super) fn told(&self) -> String {
        format!(
            "Note: pipeline {} is in none of the files, but --prune does not delete it: a file of the service declares \
             it. To delete it, remove that file and restart the service.\n",
            self.id
        )
    }

    pub(super) fn shown(&self) -> Value {
        json!({ "pipelineId": self.id, "declaredInFile": true, "deleted": false })
    }
}

impl UndeclaredPipeline {
    pub(super) fn told(&self, color: bool) -> String {
        let first = if self.live { "drained, stopped and " } else { "" };
        let head = Style::RED.paint(&format!("- pipeline {}", self.id), color);
        format!("{head} is in none of the files: {first}deleted with its positions\n")
    }

    pub(super) fn shown(&self) -> Value {
        json!({ "pipelineId": self.id, "declaredInFile": false, "deleted": self.deleted })
    }

    /// Drains, stops and deletes the pipeline.
    pub(super) fn delete(&mut self, remote: &Remote) -> Result<(), Box<Report>> {
        let path = format!("/v1/pipelines/{}", escaped(&self.id));
        if self.live {
            let _: Value = remote.post(&format!("{path}/stop"), &json!({}))?;
            for _ in 0..LOOKS {
                if !remote.get::<PrunedPipeline>(&path)?.is_live() {
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
        let _: Value = remote.delete(&format!("{path}?parts=true&positions=true"))?;
        self.deleted = true;
        Ok(())
    }
}
