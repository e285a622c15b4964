//! The plugin of these tests, and directories with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::{Process, Workspace};

/// The plugin, compiled as these tests were. It is an example of the crate of connectors, which only a build of
/// everything makes, so it is made here; where it is made already that takes no time.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let this = std::env::current_exe().unwrap();
        let profile = this.parent().and_then(Path::parent).unwrap();
        let target = profile.parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--workspace", "--example", "connector", "--target-dir"]);
        cargo.arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        profile.join("examples").join("connector")
    })
}

/// A workspace with the plugin installed under the name `helper`.
pub fn workspace() -> Workspace {
    let mut workspace = empty_workspace();
    std::os::unix::fs::symlink(program(), workspace.path("connectors/helper")).unwrap();
    workspace.env("ANABRANCH_CONNECTORS_TIMEOUT", "60s");
    workspace
}

/// A workspace where connectors may be installed.
pub fn empty_workspace() -> Workspace {
    let mut workspace = Workspace::new();
    std::fs::create_dir(workspace.path("connectors")).unwrap();
    let cache = workspace.path("cache").display().to_string();
    workspace.env("XDG_CACHE_HOME", &cache);
    let starts = workspace.path("starts").display().to_string();
    workspace.env("HELPER_STARTS", &starts);
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "10ms");
    workspace
}

/// A pipeline from the plugin to the plugin. Settings are in YAML, within braces.
pub fn pipeline(workspace: &Workspace, source: &str, destination: &str) {
    let path = |name: &str| workspace.path(name).display().to_string();
    let (out, source_log, destination_log) = (path("out.txt"), path("source.log"), path("destination.log"));
    let text = format!(
        r#"version: "2.2"
pipelines:
  - id: p
    dead-letter-queue:
      plugin: file
      window-size: 0
      window-nack-threshold: 0
      settings: {{ path: letters.ndjson }}
    connectors:
      - id: in
        type: source
        plugin: helper
        settings: {{ log: "{source_log}", {source} }}
      - id: out
        type: destination
        plugin: helper
        settings: {{ log: "{destination_log}", path: "{out}", {destination} }}
"#
    );
    workspace.write("pipelines/p.yaml", text);
}

/// Runs until the last of so many lines is written, and stops the service.
#[track_caller]
pub fn run_to(workspace: &Workspace, lines: usize) -> crate::process::Output {
    let mut process = workspace.start(&["run"]);
    wait_for(&mut process, workspace, lines);
    process.signal("INT");
    process.finish()
}

/// Waits until the last of so many lines is written.
#[track_caller]
pub fn wait_for(process: &mut Process, workspace: &Workspace, lines: usize) {
    let last = ["\n", " "].map(|end| format!("line {}{end}", lines - 1));
    let path = workspace.path("out.txt");
    let has = |text: String| last.iter().any(|last| text.contains(last));
    process.wait_until("the last line", || std::fs::read_to_string(&path).is_ok_and(has));
}

/// Numbers of the lines that were written, in the order in which they were.
pub fn written(workspace: &Workspace) -> Vec<usize> {
    let number = |line: &String| line.strip_prefix("line ").and_then(|n| n.split(' ').next()?.parse().ok());
    workspace.lines("out.txt").iter().map(|line| number(line).unwrap_or_else(|| panic!("{line:?}"))).collect()
}

/// Ids of the processes that were started as plugins of pipelines.
pub fn started(workspace: &Workspace) -> Vec<u32> {
    let lines = workspace.lines("starts").into_iter().filter(|line| !line.starts_with("load-specifications"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

/// Returns `true` if the process of a plugin is still there. Another program may have its id by now. A zombie
/// has no program any more: it counts as ended although its parent has not waited for it yet.
pub fn is_alive(pid: u32) -> bool {
    let runs = std::fs::read_link(format!("/proc/{pid}/exe"));
    runs.is_ok_and(|runs| runs.file_name() == program().file_name())
}

/// Waits until none of the plugins that were ever started is there.
#[track_caller]
pub fn no_plugin_is_left(workspace: &Workspace) {
    let start = std::time::Instant::now();
    while let Some(pid) = started(workspace).into_iter().find(|pid| is_alive(*pid)) {
        assert!(start.elapsed() < crate::process::PATIENCE, "plugin {pid} lives on");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
