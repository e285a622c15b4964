//! One run of the binary: its input, its expected output, and its cost.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::workload::guest;

/// Returns the line of an input file with this number.
pub(crate) type Line = Box<dyn Fn(u64) -> String>;

/// The input and expected output of a run.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) name: String,
    /// The pipeline files.
    pub(crate) pipelines: Vec<String>,
    /// The lines of the input file, and their number.
    pub(crate) input: Option<(Line, u64)>,
    /// The variable `N` of the pipelines.
    pub(crate) records: u64,
    /// Output files, with the expected number of lines of each.
    pub(crate) outputs: Vec<(String, u64)>,
    /// True if standard output is redirected to the first of these files.
    pub(crate) to_log: bool,
    /// Records that the last line of standard output says were delivered, if that is checked.
    pub(crate) delivered: Option<u64>,
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// The cost of one run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// User and system time of the whole process.
    pub(crate) cpu_seconds: f64,
    pub(crate) wall_seconds: f64,
    /// Time from the start of the process to the first byte at the destination.
    pub(crate) first_record_seconds: Option<f64>,
    pub(crate) peak_kib: i64,
    #[serde(skip_serializing, default)]
    code: Option<i32>,
}

/// A job in a directory of its own.
pub(crate) struct Prepared<'a> {
    job: &'a Job,
    directory: TempDir,
}

impl Job {
    /// Writes all input files, to memory-backed storage if available.
    pub(crate) fn prepare(&self, binary: &Path) -> anyhow::Result<Prepared<'_>> {
        let base = Path::new("/dev/shm");
        let directory = if base.is_dir() { tempfile::tempdir_in(base)? } else { tempfile::tempdir()? };
        fs::create_dir(directory.path().join("pipelines"))?;
        for (i, pipeline) in self.pipelines.iter().enumerate() {
            fs::write(directory.path().join(format!("pipelines/p{i}.yaml")), pipeline)?;
        }
        for (i, pipeline) in self.pipelines.iter().enumerate() {
            let Some(module) = guest(pipeline, binary)? else { continue };
            fs::create_dir_all(directory.path().join("processors"))?;
            fs::write(directory.path().join(format!("processors/guest{i}.wasm")), module)?;
        }
        if let Some((line, lines)) = &self.input {
            let mut input = BufWriter::new(File::create(directory.path().join("in.txt"))?);
            for i in 0..*lines {
                writeln!(input, "{}", line(i))?;
            }
            input.flush()?;
        }
        Ok(Prepared { job: self, directory })
    }

    /// Runs the job once and checks its output.
    pub(crate) fn run(&self, binary: &Path) -> anyhow::Result<Cost> {
        let prepared = self.prepare(binary)?;
        let (stdout, first) = match self.outputs.first() {
            Some((name, _)) if self.to_log => (prepared.path(name), prepared.path(name)),
            Some((name, _)) => (PathBuf::from("/dev/null"), prepared.path(name)),
            None => (PathBuf::from("/dev/null"), PathBuf::new()),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--measure").arg(stdout).arg(first).arg(binary);
        let report = prepared.arguments(&mut command).output()?;
        let cost: Cost = serde_json::from_slice(&report.stdout)
            .with_context(|| format!("{}: {}", self.name, String::from_utf8_lossy(&report.stderr)))?;
        let said = String::from_utf8_lossy(&report.stderr);
        ensure!(cost.code == Some(0), "{} ended with {:?}: {said}", self.name, cost.code);
        prepared.check()?;
        Ok(cost)
    }
}

impl Prepared<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sets the arguments, variables and directory of the run.
    pub(crate) fn arguments<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .args(["run", "--once", "--preview.pipeline-arch-v2", "--log.level=warn"])
            .current_dir(self.directory.path())
            .env("N", self.job.records.to_string())
            .env("IN", self.path("in.txt"))
            .env("OUT", self.path("out.ndjson"))
            .envs(self.job.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
    }

    /// Checks the number of records in the output.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for (name, expected) in &self.job.outputs {
            let arrived = lines(&self.path(name)).with_context(|| format!("{}: {name}", self.job.name))?;
            ensure!(arrived == *expected, "{}: {arrived} of {expected} records arrived", self.job.name);
        }
        if let (Some(delivered), Some((name, _))) = (self.job.delivered, self.job.outputs.first()) {
            let said = fs::read_to_string(self.path(name))?;
            let is_said = said.contains(&format!(", {delivered} delivered,"));
            ensure!(is_said, "{}: not {delivered} delivered: {said}", self.job.name);
        }
        Ok(())
    }

    /// Returns the standard output of a run under a tool that starts the process itself.
    pub(crate) fn standard_output(&self) -> anyhow::Result<Stdio> {
        Ok(match self.job.outputs.first() {
            Some((name, _)) if self.job.to_log => File::create(self.path(name))?.into(),
            _ => Stdio::null(),
        })
    }
}

/// Counts the lines of a file without loading it.
fn lines(path: &Path) -> anyhow::Result<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut lines = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(lines),
            n => lines += buffer[..n].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

/// Runs in a process of its own, so that the resource usage of its children is that of one run: `--measure STDOUT
/// FIRST_OUTPUT PROGRAM ARGS..`
pub(crate) fn measure(arguments: &[OsString]) -> anyhow::Result<()> {
    let [stdout, first, program, arguments @ ..] = arguments else {
        bail!("--measure STDOUT FIRST_OUTPUT PROGRAM ARGS..")
    };
    let stdout = File::create(stdout)?;
    let start = Instant::now();
    let mut child = Command::new(program).args(arguments).stdout(stdout).spawn()?;
    let mut first_record_seconds = None;
    // Polls only until the first record, so that the rest of the run is not disturbed.
    while first_record_seconds.is_none() && !first.is_empty() && child.try_wait()?.is_none() {
        if fs::metadata(first).is_ok_and(|file| file.len() > 0) {
            first_record_seconds = Some(start.elapsed().as_secs_f64());
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let status = child.wait()?;
    let wall_seconds = start.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    let cpu_seconds = seconds(usage.user_time()) + seconds(usage.system_time());
    println!(
        "{}",
        serde_json::json!({
            "cpu_seconds": cpu_seconds,
            "wall_seconds": wall_seconds,
            "first_record_seconds": first_record_seconds,
            "peak_kib": usage.max_rss(),
            "code": status.code(),
        })
    );
    Ok(())
}
