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
    /// Whether it runs.
    live: bool,
    /// Whether a file of the service declares it. Then only a change of that file can remove it.
    from_file: bool,
    deleted: bool,
}

#[derive(Deserialize)]
struct Shown {
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

impl Shown {
    fn is_live(&self) -> bool {
        matches!(self.state.word.as_str(), "starting" | "running" | "recovering" | "idle" | "stalled")
    }
}

/// Returns the pipelines of the service that are not in `declared`.
pub(super) fn surplus(remote: &Remote, declared: &[&str]) -> Result<Vec<UndeclaredPipeline>, Box<Report>> {
    let all: Vec<Shown> = remote.get("/v1/pipelines")?;
    let surplus = all.into_iter().filter(|pipeline| !declared.contains(&pipeline.id.as_str()));
    Ok(surplus
        .map(|pipeline| UndeclaredPipeline {
            live: pipeline.is_live(),
            from_file: pipeline.origin == "file" && !pipeline.detached,
            id: pipeline.id,
            deleted: false,
        })
        .collect())
}

impl UndeclaredPipeline {
    /// Returns `true` if the service can delete it.
    pub(super) fn can_go(&self) -> bool {
        !self.from_file
    }

    pub(super) fn told(&self, color: bool) -> String {
        let id = &self.id;
        match (self.from_file, self.live) {
            (true, _) => format!(
                "Pipeline {id} is in none of the files, but is not deleted: a file of the service declares it. To \
                 delete it, remove that file and restart the service.\n"
            ),
            (false, live) => {
                let first = if live { "drained, stopped and " } else { "" };
                let head = Style::RED.paint(&format!("- pipeline {id}"), color);
                format!("{head} is in none of the files: {first}deleted with its positions\n")
            }
        }
    }

    pub(super) fn shown(&self) -> Value {
        json!({ "pipelineId": self.id, "declaredInFile": self.from_file, "deleted": self.deleted })
    }

    /// Drains, stops and deletes the pipeline.
    pub(super) fn delete(&mut self, remote: &Remote) -> Result<(), Box<Report>> {
        let path = format!("/v1/pipelines/{}", escaped(&self.id));
        if self.live {
            let _: Value = remote.post(&format!("{path}/stop"), &json!({}))?;
            for _ in 0..LOOKS {
                if !remote.get::<Shown>(&path)?.is_live() {
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
