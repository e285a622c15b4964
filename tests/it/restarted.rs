//! A service that a test kills and starts again, with a pipeline that copies at least once and one that copies exactly once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api::get;
use crate::process::{PATIENCE, Process, Workspace};

/// The pipelines.
pub const PIPELINES: [&str; 2] = ["once", "exact"];

/// The service.
pub struct RestartedService {
    pub workspace: Workspace,
    process: Option<Process>,
    address: Option<SocketAddr>,
    kills: usize,
    /// Runs of the pipelines in services that have ended.
    runs: [usize; 2],
    /// What the service has logged before it was killed.
    logged: String,
}

impl RestartedService {
    /// Creates a service that does not run yet. A crash repeats at most `replay` records of a partition.
    pub fn new(replay: usize) -> Self {
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_ENGINE_REPLAY_ROWS", &replay.to_string());
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "200ms");
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "1s");
        if let Ok(level) = std::env::var("ANABRANCH_LOG_LEVEL") {
            workspace.env("ANABRANCH_LOG_LEVEL", &level);
        }
        RestartedService { workspace, process: None, address: None, kills: 0, runs: [0; 2], logged: String::new() }
    }

    /// Starts it.
    pub fn begin(&mut self) {
        let mut process = self.workspace.start(&["run"]);
        self.address = Some(process.address());
        self.process = Some(process);
    }

    /// Returns its process.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    /// Kills it. [`RestartedService::begin`] starts it again.
    #[track_caller]
    pub fn kill(&mut self) {
        self.add_runs();
        let mut process = self.process.take().unwrap();
        assert!(process.is_running(), "the service ended by itself: {}", self.log());
        process.signal("KILL");
        let output = process.finish();
        assert!(!output.stderr.contains("panic"), "{}", output.stderr);
        self.logged += &output.both();
        self.kills += 1;
    }

    /// Ends it as a user does. It must end well.
    #[track_caller]
    pub fn end(&mut self) {
        self.add_runs();
        let process = self.process.take().unwrap();
        process.signal("TERM");
        let output = process.finish();
        self.logged += &output.both();
        assert_eq!(output.code(), Some(0), "{}", self.logged);
    }

    fn add_runs(&mut self) {
        let of = |pipeline| self.metric("anabranch_pipeline_runs_total", pipeline).map_or(1, |runs| runs as usize);
        let runs = PIPELINES.map(of);
        self.runs = [self.runs[0] + runs[0], self.runs[1] + runs[1]];
    }

    /// Returns how often it was killed.
    pub fn kills(&self) -> usize {
        self.kills
    }

    /// Returns the runs of each pipeline in services that have ended.
    pub fn runs(&self) -> [usize; 2] {
        self.runs
    }

    /// Returns what it has logged.
    pub fn log(&self) -> String {
        let now = self.process.as_ref().map(|process| process.printed()()).unwrap_or_default();
        format!("{}{now}", self.logged)
    }

    /// Returns how many records of a partition a crash may repeat, as `pipelines plan` says.
    pub fn promised(&self) -> usize {
        let plan = self.workspace.run(&["pipelines", "plan", "pipelines/once.yaml", "--format", "json"]);
        let plan: Value = serde_json::from_str(&plan.expect_code(0).stdout).unwrap();
        let records = plan["routes"][0]["replay"]["records"].as_u64().unwrap_or_else(|| panic!("{plan}"));
        usize::try_from(records).unwrap()
    }

    /// Waits until both pipelines have delivered something in their current runs.
    #[track_caller]
    pub fn await_progress(&self) {
        for pipeline in PIPELINES {
            let begun = Instant::now();
            while self.metric("anabranch_records_delivered_total", pipeline).is_none_or(|count| count == 0.0) {
                assert!(begun.elapsed() < PATIENCE, "{pipeline} delivers nothing: {}", self.log());
                assert!(!self.log().contains("degraded: "), "{}", self.log());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Returns the value of a metric of a pipeline.
    fn metric(&self, name: &str, pipeline: &str) -> Option<f64> {
        let text = get(self.address?, "/metrics").body;
        let line = format!("{name}{{pipeline=\"{pipeline}\"");
        text.lines().find(|found| found.starts_with(&line))?.rsplit_once(' ')?.1.parse().ok()
    }
}
