//! PostgreSQL servers of the tests' own.
//!
//! Uses the standard library, `tempfile` and the modules that it names only, so that other crates of the workspace take it
//! by its path.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

#[path = "installed.rs"]
pub mod installed;
#[path = "port.rs"]
mod port;
#[path = "postgres/session.rs"]
mod session;
#[path = "postgres/standby.rs"]
mod standby;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

pub use installed::Release;
pub use port::Port;
pub use session::Session;

/// Longest time a server may take to start or stop, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server: superuser `postgres`, database `postgres`, no password from the loopback and the socket.
/// Killed with everything it holds when dropped, and when the test process dies.
pub struct Server {
    release: Release,
    programs: PathBuf,
    dir: tempfile::TempDir,
    port: Port,
    user: Option<(u32, u32)>,
    running: Mutex<Option<Child>>,
    is_paused: AtomicBool,
    databases: AtomicU32,
}

/// Settings of servers that decode their logs.
pub const LOGICAL: [&str; 3] = ["wal_level = logical", "max_replication_slots = 100", "max_wal_senders = 100"];

/// A database of a server that other tests use too.
pub struct Database {
    /// The server.
    pub server: Arc<Server>,
    name: String,
    drops_slots: bool,
}

impl Database {
    /// A new, empty database on the server that the tests of this process share; it ends with the last of them.
    /// `None`, and a word about it, where PostgreSQL is not installed.
    pub fn create() -> Option<Database> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        shared(&SHARED, Release::Installed, &[]).map(|server| server.database())
    }

    /// Like [`Database::create`], on a shared server of a release that decodes its log. The slots of the database end with
    /// it. Names of slots are common to all databases of a server: take [`Database::name`] for them.
    pub fn logical(release: Release) -> Option<Database> {
        static SHARED: [Mutex<Weak<Server>>; 3] = [const { Mutex::new(Weak::new()) }; 3];
        let mut database = shared(&SHARED[release as usize], release, &LOGICAL)?.database();
        database.drops_slots = true;
        Some(database)
    }

    /// Its name, which no other database of the server has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port of its server.
    pub fn port(&self) -> u16 {
        self.server.port()
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

    /// Opens a session.
    pub fn session(&self) -> Session {
        self.server.session_in(&self.name)
    }

    /// Runs SQL in a transaction that is open, and holds its locks, until the session is dropped.
    #[track_caller]
    pub fn hold(&self, sql: &str) -> Session {
        let mut session = self.session();
        session.run(&format!("BEGIN; {sql}"));
        session
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.drops_slots {
            // A slot would keep all that the other tests of the server write.
            let sql = "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots \
                       WHERE database = current_database() AND active; \
                       SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots \
                       WHERE database = current_database()";
            let _ = self.server.psql(&self.name).args(["-c", sql]).output();
        }
    }
}

/// Returns the server that the tests of this process share, and starts it if there is none.
fn shared(shared: &Mutex<Weak<Server>>, release: Release, settings: &[&str]) -> Option<Arc<Server>> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let server = match shared.upgrade() {
        Some(server) => server,
        None => Arc::new(Server::of(release, settings)?),
    };
    *shared = Arc::downgrade(&server);
    Some(server)
}

impl Server {
    /// Starts one of the distribution's release with further settings (`work_mem = 1MB`). `None`, and a word about it,
    /// where PostgreSQL is not installed.
    pub fn start(settings: &[&str]) -> Option<Server> {
        Server::of(Release::Installed, settings)
    }

    /// Starts one of a release with further settings; see [`Server::start`] and [`LOGICAL`].
    pub fn of(release: Release, settings: &[&str]) -> Option<Server> {
        let server = Server::prepare(release)?;
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

    /// A server that has no data yet.
    fn prepare(release: Release) -> Option<Server> {
        let skip = |reason: &str| {
            assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "{reason}");
            let _ = writeln!(std::io::stderr(), "skipped: {reason}");
        };
        let Some(programs) = release.programs().filter(|_| installed::programs().is_some()) else {
            skip(match release {
                Release::Installed => "PostgreSQL is not installed",
                Release::V17 => "PostgreSQL 17 is missing: run .ci/setup",
                Release::V18 => "PostgreSQL 18 is missing: run .ci/setup",
            });
            return None;
        };
        let dir = tempfile::Builder::new().prefix("anabranch-pg-").tempdir().unwrap();
        let user = installed::user_for(dir.path()).unwrap();
        Some(Server {
            release,
            programs,
            dir,
            port: Port::hold(),
            user,
            running: Mutex::new(None),
            is_paused: AtomicBool::new(false),
            databases: AtomicU32::new(0),
        })
    }

    /// Its release.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Its version as a number, for example `150018`.
    pub fn version(&self) -> u32 {
        self.query("SHOW server_version_num")[0].parse().unwrap()
    }

    /// Address of the database `postgres` over TCP.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// A new, empty database.
    pub fn database(self: &Arc<Server>) -> Database {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.query(&format!("CREATE DATABASE {name}"));
        Database { server: self.clone(), name, drops_slots: false }
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

    /// Stops all its processes where they are, as on a machine that stands still, until [`Server::unpause`].
    pub fn pause(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
        let Some(main) = self.main_process() else { return };
        // It starts no further process meanwhile.
        stop_process(main);
        children(main).into_iter().for_each(stop_process);
    }

    /// Lets its processes go on.
    pub fn unpause(&self) {
        let Some(main) = self.main_process() else { return };
        children(main).into_iter().chain([main]).for_each(|pid| send("CONT", pid));
        self.is_paused.store(false, Ordering::SeqCst);
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

    fn session_in(&self, database: &str) -> Session {
        Session::start(self.psql(database))
    }

    fn psql(&self, database: &str) -> Command {
        psql(&self.url_of(database))
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
        let script = r#""$@" >>log 2>&1 & read -r _; kill -QUIT $! 2>/dev/null; kill -CONT $! 2>/dev/null; wait"#;
        let mut command = self.as_user(Command::new("sh"));
        command.args(["-c", script, "sh"]).arg(self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port().to_string()]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        loop {
            let status = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            if status.lines().nth(7).is_some_and(|line| matches!(line.trim(), "ready" | "standby")) {
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
            if signal == "KILL" {
                // It starts no further process meanwhile, which would outlive it and keep the next one from starting.
                stop_process(pid);
            } else if self.is_paused.load(Ordering::SeqCst) {
                self.unpause();
            }
            let start = Instant::now();
            let mut processes = children(pid);
            processes.push(pid);
            send(signal, pid);
            if self.is_paused.load(Ordering::SeqCst) {
                // They do not notice the end of the main process.
                processes.iter().for_each(|pid| send("KILL", *pid));
            }
            while processes.iter().any(|pid| is_alive(*pid)) && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.is_paused.store(false, Ordering::SeqCst);
        drop(child.stdin.take());
        let _ = child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end("QUIT");
    }
}

/// The client of the distribution.
fn psql(url: &str) -> Command {
    let mut psql = Command::new(installed::programs().unwrap_or_default().join("psql"));
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url]).env("LC_ALL", "C");
    psql
}

/// With owners and rights.
fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "cp: {}", String::from_utf8_lossy(&copied.stderr));
}

fn send(signal: &str, pid: u32) {
    let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
}

/// Stops a process until it is continued or killed.
fn stop_process(pid: u32) {
    send("STOP", pid);
    let start = Instant::now();
    while is_alive(pid) && !is_stopped(pid) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
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
