//! Files that change while the service runs: one pipeline is brought in line with what its file says now.

use std::sync::Arc;

use anabranch_graph::config::DesiredStatus;

use super::control::{Control, ControlError};
use super::roster::Plan;
use crate::pipelines::Pipeline;
use crate::store::{Change, Provision, Status, StopReason, StoredPipeline};

/// What became of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its file says what it did before.
    Unchanged,
    /// It was drained, and goes on as the file says now.
    Restarted,
    /// It was started.
    Started,
    /// It does not run, as its file wants.
    Stopped,
}

impl Mode {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Unchanged => "unchanged",
            Mode::Restarted => "restarted",
            Mode::Started => "started",
            Mode::Stopped => "stopped",
        }
    }
}

/// A pipeline that was brought in line with its file.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// What became of it.
    pub mode: Mode,
    /// What changed.
    pub changes: Vec<Change>,
}

impl Control {
    /// Brings a pipeline in line with its file. One that runs is drained for it and goes on; one that stands is started,
    /// if its file wants that.
    ///
    /// # Errors
    /// Somebody else changes it, the store failed, or it cannot be started. What it ran before goes on, if it was not
    /// stored.
    pub async fn reload(&self, pipeline: Pipeline) -> Result<Reloaded, ControlError> {
        let id = pipeline.config.id.value.clone();
        let stored = StoredPipeline::from(&pipeline.config);
        let wanted = pipeline.config.status == DesiredStatus::Running;
        let before = self.compiled(&id);
        let is_same = before.is_some_and(|before| StoredPipeline::from(&before.config) == stored);
        let hold = match self.entry(&id) {
            Ok(entry) if is_same => {
                // What failed or was stopped by hand goes on when its file is saved.
                let starts = wanted && !entry.is_live();
                if starts {
                    self.start(&id).await?;
                }
                let mode = if starts { Mode::Started } else { Mode::Unchanged };
                return Ok(Reloaded { mode, changes: Vec::new() });
            }
            Ok(_) => Some(self.hold(&id).await?),
            Err(_) => None,
        };
        // The others are in the store as they were.
        let provision = Provision { good: vec![stored], invalid: Vec::new(), complete: false };
        let changes = self.shared().store.provision(provision).await?;
        for (other, seen) in self.live() {
            self.shared().store.set_status(&other, seen.status).await?;
        }
        let reason = if wanted { StopReason::System } else { StopReason::User };
        let entry = self.put(&id, Plan::Good(Arc::new(pipeline)), Status::Stopped { reason });
        let resumes = match hold {
            Some(mut hold) => {
                hold.resumes &= wanted;
                let resumes = hold.resumes;
                drop(hold);
                resumes
            }
            None => false,
        };
        let mode = match (wanted, resumes) {
            (true, true) => Mode::Restarted,
            (true, false) => {
                if !entry.is_live() {
                    self.start(&id).await?;
                }
                Mode::Started
            }
            (false, _) => Mode::Stopped,
        };
        Ok(Reloaded { mode, changes })
    }
}
