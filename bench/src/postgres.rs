//! The benchmark's own PostgreSQL server, and its CPU time.

#[path = "../../tests/it/servers/installed.rs"]
mod installed;

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A server, which is stopped when it is dropped.
pub(crate) struct Server {
    programs: PathBuf,
    directory: TempDir,
    /// The user of the server, which refuses to run as root.
    user: Option<(u32, u32)>,
    port: u16,
    process: Child,
}

impl Server {
    /// Starts a server; returns `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> anyhow::Result<Option<Server>> {
        let Some(programs) = installed::programs() else { return Ok(None) };
        let base = Path::new("/dev/shm");
        let directory = if base.is_dir() { tempfile::tempdir_in(base)? } else { tempfile::tempdir()? };
        let user = installed::user_for(directory.path())?;
        let data = directory.path().join("data");
        let made = as_user(programs.join("initdb"), user, directory.path())
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let process = as_user(programs.join("postgres"), user, directory.path())
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "autovacuum=off", "-k"])
            .arg(directory.path())
            .stderr(fs::File::create(directory.path().join("log"))?)
            .spawn()?;
        let server = Server { programs, directory, user, port, process };
        let start = Instant::now();
        while let Err(error) = server.query("SELECT 1") {
            ensure!(start.elapsed() < Duration::from_secs(60), "PostgreSQL does not start: {error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(server))
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Creates an empty table for the workload.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        self.query(
            "DROP TABLE IF EXISTS bench; CREATE TABLE bench \
             (k text PRIMARY KEY, id bigint, name text, active boolean, score bigint, city text); CHECKPOINT",
        )?;
        Ok(())
    }

    /// Returns the number of rows of that table.
    pub(crate) fn rows(&self) -> anyhow::Result<u64> {
        Ok(self.query("SELECT count(*) FROM bench")?.trim().parse()?)
    }

    /// Returns the CPU seconds of the server for this many rows as plain upserts, a thousand per statement.
    /// Destinations are compared with it.
    pub(crate) fn plain_upserts(&self, rows: u64) -> anyhow::Result<f64> {
        self.clear()?;
        let mut sql = String::new();
        for first in (0..rows).step_by(1000) {
            sql.push_str("INSERT INTO bench VALUES ");
            for row in first..rows.min(first + 1000) {
                let comma = if row == first { "" } else { "," };
                let _ = write!(sql, "{comma}('{row}',{row},'name {row}',true,{},'city {row}')", row * 7);
            }
            sql.push_str(
                " ON CONFLICT (k) DO UPDATE SET id = EXCLUDED.id, name = EXCLUDED.name, active = EXCLUDED.active, \
                 score = EXCLUDED.score, city = EXCLUDED.city;\n",
            );
        }
        let file = self.directory.path().join("upserts.sql");
        fs::write(&file, sql)?;
        let before = self.cpu_seconds()?;
        let output = self.psql().arg("-f").arg(&file).output()?;
        ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        let spent = self.cpu_seconds()? - before;
        ensure!(self.rows()? == rows, "not every row was written");
        Ok(spent)
    }

    /// Returns the CPU time of all its processes, including those that have ended.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        // The process of a connection is counted after the server has reaped it.
        std::thread::sleep(Duration::from_millis(100));
        let server = self.process.id();
        let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children"))?;
        let mut ticks = ticks_of(server, 4)?;
        for child in children.split_whitespace() {
            // A process that ends now is counted in the next call.
            ticks += ticks_of(child.parse()?, 2).unwrap_or(0);
        }
        Ok(ticks as f64 / 100.0)
    }

    fn query(&self, sql: &str) -> anyhow::Result<String> {
        let output = self.psql().args(["-c", sql]).output()?;
        ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn psql(&self) -> Command {
        let mut command = as_user(self.programs.join("psql"), self.user, self.directory.path());
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url()]);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Immediate shutdown, which does not wait for connections.
        let _ = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGQUIT);
        let _ = self.process.wait();
    }
}

fn as_user(program: PathBuf, user: Option<(u32, u32)>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null());
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Returns the user and system time of a process, in hundredths of a second. With 4 `fields`, it includes reaped
/// children.
fn ticks_of(process: u32, fields: usize) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit_once(')').context("no process name")?.1;
    let times = after_name.split_whitespace().skip(11).take(fields);
    Ok(times.map(str::parse::<u64>).sum::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_what_they_cost_are_counted() {
        let Some(server) = Server::start().unwrap() else {
            assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "PostgreSQL is missing");
            eprintln!("skipped: PostgreSQL is missing");
            return;
        };
        let process = server.process.id();
        let spent = server.plain_upserts(20_500).unwrap();
        assert!(spent > 0.0);
        assert_eq!(server.rows().unwrap(), 20_500);
        server.clear().unwrap();
        assert_eq!(server.rows().unwrap(), 0);
        drop(server);
        assert!(ticks_of(process, 2).is_err(), "the server has ended");
    }
}
