//! A PostgreSQL server of the test's own.
//!
//! Uses the standard library and `tempfile` only, so that other crates of the workspace take it by its path.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

#[path = "installed.rs"]
mod installed;
#[path = "port.rs"]
mod port;

use std::fs;
use std::io::{BufRead as _, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

pub use port::Port;

/// Longest time a server may take to start or stop, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server: superuser `postgres`, database `postgres`, no password from the loopback and the socket.
/// Killed with everything it holds when dropped, and when the test process dies.
pub struct Server {
    programs: PathBuf,
    dir: tempfile::TempDir,
    port: Port,
    user: Option<(u32, u32)>,
    running: Mutex<Option<Child>>,
    databases: AtomicU32,
}

/// A database of a server that other tests use too.
pub struct Database {
    /// The server.
    pub server: Arc<Server>,
    name: String,
}

impl Database {
    /// A new, empty database on the server that the tests of this process share; it ends with the last of them.
    /// `None`, and a word about it, where PostgreSQL is not installed.
    pub fn create() -> Option<Database> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let server = match shared.upgrade() {
            Some(server) => server,
            None => Arc::new(Server::start(&[])?),
        };
        *shared = Arc::downgrade(&server);
        drop(shared);
        Some(server.database())
    }

    /// Its address over TCP.
    pub fn url(&self) -> String {
        self.server.url_of(&self.name)
    }

    /// Runs SQL and returns the rows, columns separated by `|`; `NULL` is empty. Fails the test on an error.
    #[track_caller]
    pub fn query(&self, sql: &str) -> Vec<String> {
        self.server.query_in(&self.name, sql)
    }

    /// Runs SQL in a transaction that is open, and holds its locks, until the session is dropped.
    #[track_caller]
    pub fn hold(&self, sql: &str) -> Session {
        let mut psql = self.server.psql(&self.name).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "BEGIN; {sql};\n\\echo held").unwrap();
        let printed =
            BufReader::new(psql.stdout.take().unwrap()).lines().map_while(Result::ok).any(|line| line == "held");
        assert!(printed, "{sql}");
        Session { psql, _input: input }
    }
}

/// A session with an open transaction.
pub struct Session {
    psql: Child,
    _input: ChildStdin,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

impl Server {
    /// Starts one with further settings (`wal_level=logical`). `None`, and a word about it, where PostgreSQL is not
    /// installed.
    pub fn start(settings: &[&str]) -> Option<Server> {
        let Some(programs) = installed::programs() else {
            let reason = "PostgreSQL is not installed";
            assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "{reason}");
            let _ = writeln!(std::io::stderr(), "skipped: {reason}");
            return None;
        };
        let dir = tempfile::Builder::new().prefix("anabranch-pg-").tempdir().unwrap();
        let user = installed::user_for(dir.path()).unwrap();
        let running = Mutex::new(None);
        let server = Server { programs, dir, port: Port::hold(), user, running, databases: AtomicU32::new(0) };
        let made = server
            .command("initdb")
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"])
            .arg("-D")
            .arg(server.data())
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut lines = String::from(
            "fsync = off\nfull_page_writes = off\nshared_buffers = 32MB\n\
             listen_addresses = '127.0.0.1'\nlog_min_messages = warning\ndeadlock_timeout = 100ms\n",
        );
        lines += &format!("unix_socket_directories = '{}'\n", server.dir.path().display());
        for setting in settings {
            lines += &format!("{setting}\n");
        }
        let configuration = server.data().join("postgresql.conf");
        fs::OpenOptions::new().append(true).open(configuration).unwrap().write_all(lines.as_bytes()).unwrap();
        server.launch();
        Some(server)
    }

    /// Address of the database `postgres` over TCP.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// A new, empty database.
    pub fn database(self: &Arc<Server>) -> Database {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.query(&format!("CREATE DATABASE {name}"));
        Database { server: self.clone(), name }
    }

    /// The loopback port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Directory of the Unix socket.
    pub fn socket(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Has it speak TLS with this certificate. Users who are not `postgres` need one of this authority for their name.
    pub fn certify(&self, certificate: &str, key: &str, authority: &str) {
        let owned = |path: &str, name: &str| {
            let to = self.data().join(name);
            fs::copy(path, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((uid, gid)) = self.user {
                chown(&to, Some(uid), Some(gid)).unwrap();
            }
        };
        owned(certificate, "server.crt");
        owned(key, "server.key");
        owned(authority, "ca.crt");
        let rules = self.data().join("pg_hba.conf");
        let usual = fs::read_to_string(&rules).unwrap();
        let ours =
            "host all postgres all trust\nhostssl all all all trust clientcert=verify-full\nhost all all all reject\n";
        fs::write(&rules, format!("{ours}{usual}")).unwrap();
        self.query("ALTER SYSTEM SET ssl_ca_file = 'ca.crt'");
        self.query("ALTER SYSTEM SET ssl = on");
        self.stop();
        self.resume();
    }

    /// Runs SQL in the database `postgres`; see [`Database::query`].
    #[track_caller]
    pub fn query(&self, sql: &str) -> Vec<String> {
        self.query_in("postgres", sql)
    }

    /// Stops the server at once, as a crash would, and keeps its data.
    pub fn kill(&self) {
        self.end("KILL");
    }

    /// Ends all connections and stops the server.
    pub fn stop(&self) {
        self.end("INT");
    }

    /// Starts it again on the same port.
    #[track_caller]
    pub fn resume(&self) {
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
        self.launch();
    }

    /// A copy of the data of a server that is stopped, as a backup or a standby that stays behind has it.
    pub fn back_up(&self) -> PathBuf {
        let copy = self.dir.path().join("backup");
        let _ = fs::remove_dir_all(&copy);
        copy_all(&self.data(), &copy);
        copy
    }

    /// Puts a copy in the place of the data of a server that is stopped.
    pub fn restore(&self, copy: &Path) {
        fs::remove_dir_all(self.data()).unwrap();
        copy_all(copy, &self.data());
    }

    /// CPU seconds, user and system, of all its processes until now, ended ones too.
    pub fn cpu_seconds(&self) -> f64 {
        let Some(main) = self.main_process() else { return 0.0 };
        let of = |pid: u32, ended: bool| -> f64 {
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
            (ticks(11) + ticks(12) + if ended { ticks(13) + ticks(14) } else { 0.0 }) / 100.0
        };
        children(main).into_iter().map(|pid| of(pid, false)).sum::<f64>() + of(main, true)
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/{database}", self.port())
    }

    #[track_caller]
    fn query_in(&self, database: &str, sql: &str) -> Vec<String> {
        let output = self.psql(database).args(["-c", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn psql(&self, database: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"])
            .arg(self.url_of(database))
            .env("LC_ALL", "C");
        psql
    }

    fn command(&self, program: &str) -> Command {
        self.as_user(Command::new(self.programs.join(program)))
    }

    fn as_user(&self, mut command: Command) -> Command {
        command.current_dir(self.dir.path()).env("LC_ALL", "C").stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts it, and waits until it is ready.
    #[allow(clippy::zombie_processes, reason = "a server that came up is waited for when it ends")]
    #[track_caller]
    fn launch(&self) {
        // The shell waits for the end of its input, which comes with the end of this process at the latest.
        let script = r#""$@" >>log 2>&1 & read -r _; kill -QUIT $! 2>/dev/null; wait"#;
        let mut command = self.as_user(Command::new("sh"));
        command.args(["-c", script, "sh"]).arg(self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port().to_string()]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        loop {
            let status = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            if status.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                *self.running() = Some(child);
                return;
            }
            if start.elapsed() > PATIENCE {
                drop(child.stdin.take());
                let _ = child.wait();
                panic!("the server does not start: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn main_process(&self) -> Option<u32> {
        fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()
    }

    fn end(&self, signal: &str) {
        let Some(mut child) = self.running().take() else { return };
        if let Some(pid) = self.main_process() {
            let send = |signal: &str| {
                let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
            };
            let start = Instant::now();
            if signal == "KILL" {
                // It starts no further process meanwhile, which would outlive it and keep the next one from starting.
                send("STOP");
                while is_alive(pid) && !is_stopped(pid) && start.elapsed() < PATIENCE {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let mut processes = children(pid);
            processes.push(pid);
            send(signal);
            while processes.iter().any(|pid| is_alive(*pid)) && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        drop(child.stdin.take());
        let _ = child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end("QUIT");
    }
}

/// With owners and rights.
fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "cp: {}", String::from_utf8_lossy(&copied.stderr));
}

fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

/// The letter by which the system says what a process does; `None` where there is none.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_survives_a_kill_and_ends_on_drop() {
        let Some(server) = Server::start(&[]) else { return };
        server.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
        server.kill();
        server.resume();
        assert_eq!(server.query("SELECT a FROM t"), ["1"]);
        let (port, dir) = (server.port(), server.socket().to_owned());
        drop(server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        assert!(!dir.exists());
    }
}
