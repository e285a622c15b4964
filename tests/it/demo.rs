//! The demo pipeline: the first thing a new user sees.

use std::collections::BTreeSet;
use std::fs;

use crate::process::Workspace;

#[test]
fn init_demo_run_shows_records() {
    let workspace = Workspace::new();
    fs::remove_dir(workspace.path("pipelines")).unwrap();
    workspace.run(&["init"]).expect_code(0);
    for directory in ["pipelines", "processors", "connectors"] {
        assert!(workspace.path(directory).is_dir(), "{directory}");
    }
    assert!(workspace.path("anabranch.yaml").is_file());
    workspace.run(&["pipelines", "init"]).expect_code(0);
    assert!(workspace.path("pipelines/demo-pipeline.yaml").is_file());

    let log = workspace.path("log.txt");
    let mut command = workspace.command(["run"]);
    let mut child = command
        .stdout(fs::File::create(&log).unwrap())
        .stderr(fs::File::create(workspace.path("err.txt")).unwrap())
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    let records = || workspace.read("log.txt").lines().filter(|l| l.contains("scheduledDeparture")).count();
    while records() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "{}{}", workspace.read("log.txt"), workspace.read("err.txt"));
        assert!(start.elapsed() < crate::process::PATIENCE, "no records:\n{}", workspace.read("log.txt"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", workspace.read("err.txt"));

    let line = workspace.lines("log.txt").into_iter().find(|l| l.contains("scheduledDeparture")).unwrap();
    for part in ["airline", "\"operation\":\"create\"", "svc.source.connector.id", "recfmt.readAt"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn quickstart_leaves_nothing_behind() {
    let mut workspace = Workspace::new();
    let tmp = workspace.path("tmp");
    fs::create_dir(&tmp).unwrap();
    workspace.env("TMPDIR", tmp.to_str().unwrap());
    let files = || fs::read_dir(workspace.root()).unwrap().map(|e| e.unwrap().file_name()).collect::<BTreeSet<_>>();
    let before = files();
    let log = fs::File::create(tmp.join("log")).unwrap();
    let mut child = workspace.command(["quickstart"]).stdout(log).spawn().unwrap();
    let start = std::time::Instant::now();
    while !workspace.read("tmp/log").contains("scheduledDeparture") {
        assert!(child.try_wait().unwrap().is_none() && start.elapsed() < crate::process::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(
        std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap().success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(before, files());
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 1, "only the log itself");
}
