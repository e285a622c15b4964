//! A MariaDB server of the tests' own.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Port;

/// Longest time a server may take to start, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where Debian puts the statements that create the system tables.
const TABLES: &str = "/usr/share/mysql";

/// A running server with the user `tap`, who may do everything, and the database `shop`. Ended on drop.
pub struct MariaDb {
    /// It ends with the directory that the field after it removes.
    shell: Child,
    port: Port,
    dir: tempfile::TempDir,
    /// An interpreter of Python with the module `pymysql`.
    python: PathBuf,
}

/// Password of the user `tap`.
pub const PASSWORD: &str = "tap-secret-0123";

impl MariaDb {
    /// Starts a server. `None`, and a word about it, where MariaDB is not installed. `python` runs the statements of tests.
    pub fn start(python: &Path) -> Option<MariaDb> {
        let program = Path::new("/usr/sbin/mariadbd");
        if !program.exists() {
            assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "MariaDB is not installed");
            let _ = writeln!(std::io::stderr(), "skipped: MariaDB is not installed");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("anabranch-mariadb-").tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("data")).unwrap();
        // Bootstrap reads a statement per line, and so does the file of initial statements.
        let mut tables = "create database mysql;\nuse mysql;\n".to_owned();
        for name in ["mysql_system_tables.sql", "mysql_system_tables_data.sql"] {
            tables += &fs::read_to_string(Path::new(TABLES).join(name)).unwrap();
        }
        fs::write(path("tables.sql"), tables).unwrap();
        let user = "'tap'@'127.0.0.1'";
        let statements = format!(
            "CREATE USER {user} IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO {user};\nCREATE DATABASE shop;\n"
        );
        fs::write(path("init.sql"), statements).unwrap();
        let command = || {
            let mut command = Command::new(program);
            command.arg("--no-defaults").arg(format!("--datadir={}", path("data").display())).arg("--skip-log-bin");
            // It refuses to run as root unless it is told to.
            if fs::metadata(dir.path()).unwrap().uid() == 0 {
                command.arg("--user=root");
            }
            command
        };
        let made = command().arg("--bootstrap").stdin(fs::File::open(path("tables.sql")).unwrap()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = Port::hold();
        let server = command();
        // The shell waits for the end of its input, which comes with the end of this process at the latest.
        let script = r#""$@" >log 2>&1 & read -r _; kill -KILL $! 2>/dev/null; wait"#;
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(server.get_program()).args(server.get_args());
        shell
            .arg(format!("--port={}", port.number()))
            .arg(format!("--socket={}", path("socket").display()))
            .arg(format!("--pid-file={}", path("pid").display()))
            .arg(format!("--init-file={}", path("init.sql").display()))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"])
            .args(["--innodb-buffer-pool-size=16M", "--performance-schema=0"])
            .current_dir(dir.path())
            .stdin(Stdio::piped());
        let server = MariaDb { shell: shell.spawn().unwrap(), port, python: python.to_owned(), dir };
        let start = Instant::now();
        while !server.log().contains("ready for connections") {
            assert!(start.elapsed() < PATIENCE, "the server does not start: {}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(server)
    }

    /// Its port of the loopback.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Runs statements, which are separated by semicolons.
    #[track_caller]
    pub fn run(&self, statements: &str) {
        let script = "import sys, pymysql\n\
            c = pymysql.connect(host='127.0.0.1', port=int(sys.argv[1]), user='tap', password=sys.argv[2], database='shop')\n\
            for statement in filter(str.strip, sys.argv[3].split(';')): c.cursor().execute(statement)\n\
            c.commit()";
        let mut python = Command::new(&self.python);
        python.args(["-c", script, &self.port().to_string(), PASSWORD, statements]);
        let output = python.output().unwrap();
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
