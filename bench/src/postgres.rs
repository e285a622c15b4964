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

use anyhow::ensure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::process::ticks_of;
use crate::workload::Rows;

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
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "autovacuum=off"])
            .args(["-c", "wal_level=logical", "-c", "max_wal_size=4GB", "-k"])
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

    /// Prepares the table `bench_source`, of rows of about 200 bytes in six columns, and the empty table `bench_copy`. With
    /// [`Rows::Changed`], the rows are inserted after a slot was created, in transactions of a hundred.
    pub(crate) fn fill(&self, rows: u64, how: Rows) -> anyhow::Result<()> {
        self.query(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots; \
             DROP PUBLICATION IF EXISTS conduitpub; \
             DROP TABLE IF EXISTS bench_source, bench_copy, anabranch_marks, anabranch_writers; CREATE TABLE bench_source \
             (id bigint PRIMARY KEY, n int, name text, at timestamptz, amount numeric, document jsonb); \
             CREATE TABLE bench_copy (LIKE bench_source INCLUDING ALL)",
        )?;
        // The values of a row are the same in each run.
        let insert = "INSERT INTO bench_source SELECT i, (i * 7919) % 1000000, md5(i::text) || md5((-i)::text), \
             timestamptz '2026-01-01' + i * interval '1 second', (i % 100000) + 0.25, \
             jsonb_build_object('customer', md5((i * 3)::text), 'country', 'DE', 'state', 'confirmed') FROM generate_series";
        match how {
            Rows::Present => self.query(&format!("{insert}(1, {rows}::bigint) i"))?,
            Rows::Changed => {
                self.query("CREATE PUBLICATION conduitpub FOR TABLE bench_source")?;
                self.query("SELECT pg_create_logical_replication_slot('conduitslot', 'pgoutput')")?;
                self.query(&format!(
                    "DO $$ BEGIN FOR base IN 1..{rows} BY 100 LOOP \
                     {insert}(base::bigint, least(base + 99, {rows})) i; COMMIT; END LOOP; END $$"
                ))?
            }
        };
        self.query("VACUUM (ANALYZE) bench_source")?;
        self.query("CHECKPOINT")?;
        Ok(())
    }

    /// Creates an empty table for the workload.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        self.query(
            "DROP TABLE IF EXISTS bench; CREATE TABLE bench \
             (k text PRIMARY KEY, id bigint, name text, active boolean, score bigint, city text); CHECKPOINT",
        )?;
        Ok(())
    }

    /// Returns the number of rows of a table.
    pub(crate) fn rows(&self, table: &str) -> anyhow::Result<u64> {
        Ok(self.query(&format!("SELECT count(*) FROM {table}"))?.trim().parse()?)
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
        ensure!(self.rows("bench")? == rows, "not every row was written");
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
        assert_eq!(server.rows("bench").unwrap(), 20_500);
        server.clear().unwrap();
        assert_eq!(server.rows("bench").unwrap(), 0);
        for how in [Rows::Present, Rows::Changed] {
            server.fill(250, how).unwrap();
            assert_eq!(server.rows("bench_source").unwrap(), 250);
        }
        let bytes: u64 =
            server.query("SELECT max(length(b::text)) FROM bench_source b").unwrap().trim().parse().unwrap();
        assert!((190..260).contains(&bytes), "a row has {bytes} bytes");
        drop(server);
        assert!(ticks_of(process, 2).is_err(), "the server has ended");
    }
}
