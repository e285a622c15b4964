//! Counts instructions per record with callgrind.
//!
//! The binary has one worker thread: valgrind runs one thread at a time anyway, and with several threads it would also
//! count their switches, which differ between runs. The binary runs at two lengths, so that start-up cancels out.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::job::Job;

/// Returns `true` if valgrind is installed.
pub(crate) fn available() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the cost of an additional record. `job` builds a run of that many records.
pub(crate) fn per_record(binary: &Path, lengths: [u64; 2], job: impl Fn(u64) -> Job) -> anyhow::Result<f64> {
    let [short, long] = lengths;
    let difference = count(binary, &job(long))? as f64 - count(binary, &job(short))? as f64;
    Ok(difference / (long - short) as f64)
}

/// Counts the instructions of a run.
fn count(binary: &Path, job: &Job) -> anyhow::Result<u64> {
    let prepared = job.prepare(binary)?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(binary);
    let output = prepared
        .arguments(&mut command)
        .env("TOKIO_WORKER_THREADS", "1")
        .stdout(prepared.standard_output()?)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} under callgrind: {said}", job.name);
    prepared.check()?;
    let collected =
        said.lines().find_map(|line| line.split_once("Collected :")).context("callgrind counted nothing")?.1;
    Ok(collected.trim().parse()?)
}
