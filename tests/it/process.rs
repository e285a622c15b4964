//! Runs the binary in a directory of its own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time anything here may take, on a slow and busy machine; the end of a process may take three times as long,
/// for a run to the end has its work to do until then.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Where nobody listens: no system gives this port to a program that asks for any. One that was just given back may be
/// another test's a moment later.
pub const NOBODY: &str = "127.0.0.1:1";

/// A temporary working directory.
pub struct Workspace {
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
}

/// The result of a finished process.
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The exit code; a process ended by a signal has none.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Fails the test unless the exit code is `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Standard output and standard error.
    pub fn both(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl Workspace {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("anabranch-it-").tempdir().unwrap();
        fs::create_dir(dir.path().join("pipelines")).unwrap();
        Workspace { dir, env: BTreeMap::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn env(&mut self, name: &str, value: &str) {
        self.env.insert(name.into(), value.into());
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a program. Another process does it: a file that this one has open for writing while a test beside it
    /// starts a process cannot be executed for a moment.
    pub fn write_program(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        write_program(&path, content);
        path
    }

    /// Adds to the end of a file.
    pub fn append(&self, name: &str, content: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.path(name)).unwrap();
        file.write_all(content.as_bytes()).unwrap();
    }

    /// Reads a file, which may be written at the same time: an incomplete character at its end is left out. Returns an
    /// empty string if the file does not exist.
    pub fn read(&self, name: &str) -> String {
        let mut bytes = fs::read(self.path(name)).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Puts another file in the place of this one, so that who reads it meanwhile finds the old text or the new one.
    pub fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        let draft = self.write(&format!("{name}.draft"), content);
        fs::rename(draft, self.path(name)).unwrap();
    }

    /// The whole lines of a file. The rest of a line that is being written is not among them.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let bytes = fs::read(self.path(name)).unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        std::str::from_utf8(&bytes[..whole]).unwrap().lines().map(String::from).collect()
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command
            .args(args)
            .current_dir(self.root())
            .env_clear()
            .envs(std::env::vars().filter(|(k, _)| k == "PATH" || k == "HOME" || k == "TMPDIR"))
            // Services that run beside each other must not want the same port.
            .env("ANABRANCH_API_HTTP_ADDRESS", "127.0.0.1:0")
            .envs(&self.env)
            .stdin(Stdio::null());
        command
    }

    /// Runs to the end.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Output {
        self.start(args).finish()
    }

    /// `run --once`, which must end well.
    #[track_caller]
    pub fn once(&self) -> Output {
        self.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(0)
    }

    /// Runs until the sources have ended, and says how much memory it had at most, in kB.
    #[track_caller]
    pub fn peak(&self, args: &[&str]) -> u64 {
        let args = ["run", "--once", "--preview.pipeline-arch-v2"].iter().chain(args);
        let mut child = self.command(args).stdout(Stdio::null()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak: u64 = 0;
        while child.try_wait().unwrap().is_none() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let highest = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
            peak = highest.map_or(peak, |highest| highest.parse().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(child.wait().unwrap().success());
        peak
    }

    /// Starts and goes on.
    #[track_caller]
    pub fn start(&self, args: &[&str]) -> Process {
        Process::spawn(&mut self.command(args))
    }
}

/// A running process; killed on drop.
pub struct Process {
    child: Child,
    stdout: Printed,
    stderr: Printed,
}

/// The output of a process so far.
struct Printed {
    bytes: Arc<Mutex<Vec<u8>>>,
    reading: Option<JoinHandle<()>>,
}

impl Printed {
    fn gather(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let gathered = bytes.clone();
        let reading = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                gathered.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Printed { bytes, reading: Some(reading) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn whole(&mut self) -> String {
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
        self.so_far()
    }
}

impl Process {
    /// Starts a program and gathers what it prints.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Process { stdout: Printed::gather(stdout), stderr: Printed::gather(stderr), child }
    }

    /// Its standard input, once and if it was piped.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where a service serves HTTP, as its log says.
    #[track_caller]
    pub fn address(&mut self) -> SocketAddr {
        self.address_after("HTTP is served at http://")
    }

    /// The address that it prints after these words.
    #[track_caller]
    pub fn address_after(&mut self, before: &str) -> SocketAddr {
        let mut found = None;
        let printed = self.stdout.bytes.clone();
        self.wait_until("the address of HTTP", || {
            let text = String::from_utf8_lossy(&printed.lock().unwrap()).into_owned();
            found = text.split_once(before).and_then(|(_, rest)| {
                let end = rest.find(|c: char| c.is_whitespace() || c == '"' || c == '/')?;
                rest[..end].parse().ok()
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until it has printed a line.
    #[track_caller]
    pub fn wait_for_line(&mut self, line: &str) {
        let printed = self.stdout.bytes.clone();
        self.wait_until(&format!("the line {line:?}"), || {
            String::from_utf8_lossy(&printed.lock().unwrap()).lines().any(|printed| printed == line)
        });
    }

    /// Sends a signal (`TERM`), at once: a program that sends it would take its time on a busy machine.
    pub fn signal(&self, name: &str) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match name {
            "CONT" => Signal::CONT,
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "KILL" => Signal::KILL,
            "STOP" => Signal::STOP,
            "TERM" => Signal::TERM,
            other => panic!("no test sends {other}"),
        };
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Everything that it has printed until now, whenever that is asked.
    pub fn printed(&self) -> impl Fn() -> String + use<> {
        let streams = [self.stdout.bytes.clone(), self.stderr.bytes.clone()];
        move || streams.iter().map(|bytes| String::from_utf8_lossy(&bytes.lock().unwrap()).into_owned()).collect()
    }

    /// Returns `true` if it has this file open under this name, as far as the system says.
    pub fn has_open(&self, path: &Path) -> bool {
        let Ok(path) = path.canonicalize() else { return false };
        let files = fs::read_dir(format!("/proc/{}/fd", self.id())).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|open| open == path)
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until `done` holds, and fails the test if the process ends or time is up before.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            if let Some(status) = self.child.try_wait().unwrap() {
                if done() {
                    return;
                }
                let (stdout, stderr) = self.collect();
                panic!("ended with {status} before {what}\nstdout:\n{stdout}\nstderr:\n{stderr}");
            }
            if start.elapsed() >= PATIENCE {
                let (stdout, stderr) = (self.stdout.so_far(), self.stderr.so_far());
                panic!("waited too long for {what}\nstdout:\n{stdout}\nstderr:\n{stderr}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE * 3 {
                let _ = self.child.kill();
                let (stdout, stderr) = self.collect();
                panic!("did not end\nstdout:\n{stdout}\nstderr:\n{stderr}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (stdout, stderr) = self.collect();
        Output { status, stdout, stderr }
    }

    /// Waits until it has ended, however it ends.
    #[track_caller]
    pub fn wait_for_end(&mut self) {
        let start = Instant::now();
        while self.is_running() {
            assert!(start.elapsed() < PATIENCE, "waited too long for the end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn collect(&mut self) -> (String, String) {
        (self.stdout.whole(), self.stderr.whole())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pipeline from `in.txt` to `out.ndjson` with a list of processors (YAML, indented by four).
pub fn file_to_file(id: &str, processors: &str) -> String {
    let processors = if processors.is_empty() { String::new() } else { format!("    processors:\n{processors}") };
    format!(
        r#"version: "2.2"
pipelines:
  - id: {id}
    status: running
    connectors:
      - id: in
        type: source
        plugin: file
        settings:
          path: in.txt
      - id: out
        type: destination
        plugin: file
        settings:
          path: out.ndjson
{processors}"#
    )
}

/// A pipeline `p` that reads the lines of `in.txt`, with these processors, indented by six, and a destination in one
/// line. The first processor stands in line 8.
pub fn lines_to(destination: &str, processors: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: ./in.txt }} }}
      - {{ id: out, type: destination, {destination} }}
    processors:
{processors}
"#
    )
}

/// The step that decodes JSON, in one line.
pub const DECODE: &str = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n";
/// The destination that writes `out.txt`.
pub const TO_FILE: &str = "plugin: file, settings: { path: ./out.txt }";

/// Writes a program to a path; see [`Workspace::write_program`].
pub fn write_program(path: &Path, content: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{}", path.display());
}

/// Lines `line 0` to `line n-1`, each ended by a newline.
pub fn numbered_lines(n: usize) -> String {
    (0..n).map(|i| format!("line {i}\n")).collect()
}

/// The raw payload of a record in JSON, as text.
pub fn raw_after(line: &str) -> String {
    let record: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let text = record["payload"]["after"].as_str().unwrap_or_else(|| panic!("not raw: {line}"));
    String::from_utf8(base64_decode(text)).unwrap()
}

/// The bytes of base64 text.
pub fn base64_decode(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let digit = ALPHABET.iter().position(|a| *a == c).expect("base64") as u32;
        bits = bits << 6 | digit;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

/// Says that a test was skipped, past the capture of the test runner, so that the check can count it.
/// With `ANABRANCH_TEST_REQUIRE=1` a missing program fails the test instead.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "{reason}");
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}
