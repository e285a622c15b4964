//! What a service takes that has nothing to do, and the memory of one that is busy. From `/proc`: Linux only.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use crate::api_lifecycle::Service;
use crate::process::{PATIENCE, Process, Workspace, file_to_file};

/// A field of a `status` file of `/proc`, or of `smaps_rollup`; sizes are in KiB.
fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    value.split_whitespace().next().unwrap().parse().unwrap()
}

fn proc_file(process: &Process, name: &str) -> String {
    fs::read_to_string(format!("/proc/{}/{name}", process.id())).unwrap()
}

/// How often each thread was given a processor.
fn wakes(process: &Process) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    // A thread may end meanwhile.
    let texts = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        Some((task.display().to_string(), fs::read_to_string(task.join("status")).ok()?))
    });
    texts
        .map(|(task, text)| {
            (task, field(&text, "voluntary_ctxt_switches") + field(&text, "nonvoluntary_ctxt_switches"))
        })
        .collect()
}

/// Waits for a second in which nothing happens; says how many threads there are then.
#[track_caller]
fn rest(process: &Process) -> usize {
    let started = Instant::now();
    loop {
        let before = wakes(process);
        sleep(Duration::from_secs(1));
        let after = wakes(process);
        if before == after {
            return after.len();
        }
        assert!(started.elapsed() < PATIENCE, "no rest: {before:?}, a second later {after:?}");
    }
}

/// A pipeline that follows a file.
fn follow(workspace: &Workspace, i: usize, status: &str) {
    workspace.write(&format!("in{i}.txt"), "first\n");
    let text = file_to_file(&format!("f{i}"), "").replace("in.txt", &format!("in{i}.txt"));
    let text = text.replace("out.ndjson", &format!("f{i}.out")).replace("status: running", status);
    workspace.write(&format!("pipelines/f{i}.yaml"), text);
}

/// Followed files, and generators that are hardly ever due.
fn at_rest(files: usize, generators: usize) -> (Workspace, Process) {
    let workspace = Workspace::new();
    (0..files).for_each(|i| follow(&workspace, i, "status: running"));
    for i in 0..generators {
        let source = "plugin: generator\n        settings:\n          format.type: structured\n          \
                      format.options.id: int\n          operations: create\n          rate: 0.0001";
        let text = file_to_file(&format!("g{i}"), "");
        let text = text.replace("plugin: file\n        settings:\n          path: in.txt", source);
        workspace.write(&format!("pipelines/g{i}.yaml"), text.replace("out.ndjson", &format!("g{i}.out")));
    }
    let mut process = workspace.start(&["run", "--log.level=warn"]);
    let outs = (0..files).map(|i| format!("f{i}.out")).chain((0..generators).map(|i| format!("g{i}.out")));
    for out in outs {
        process.wait_until(&out, || !workspace.read(&out).is_empty());
    }
    (workspace, process)
}

#[test]
fn pipelines_without_work_wake_no_thread_and_keep_few() {
    let (workspace, mut process) = at_rest(20, 5);
    // Workers, the control thread, the one that writes the log, the one that is told of changed files, the one that asks
    // for schemas; one more per blocking call under way.
    let most = available_parallelism().unwrap().get() + 4;
    let started = Instant::now();
    while rest(&process) > most {
        assert!(started.elapsed() < PATIENCE, "threads without work do not end");
    }
    let mut followed = fs::OpenOptions::new().append(true).open(workspace.path("in7.txt")).unwrap();
    followed.write_all(b"second\n").unwrap();
    process.wait_until("the second line", || workspace.lines("f7.out").len() == 2);
    process.signal("TERM");
    process.finish().expect_code(0);
}

#[test]
fn a_hundred_pipelines_without_work_take_ten_megabytes() {
    let following = |pipelines: usize| {
        let workspace = Workspace::new();
        (0..pipelines).for_each(|i| follow(&workspace, i, "status: stopped"));
        let mut service = Service::start(&workspace);
        // One after the other: how many start at the same time, and what that leaves, is up to the machine.
        for i in 0..pipelines {
            service.done("POST", &format!("/v1/pipelines/f{i}/start"), &serde_json::json!({}));
            service.process.wait_until("its line", || !workspace.read(&format!("f{i}.out")).is_empty());
        }
        (workspace, service)
    };
    let memory = |id: u32| field(&fs::read_to_string(format!("/proc/{id}/status")).unwrap(), "RssAnon");
    let (_one, service) = following(1);
    rest(&service.process);
    let one = memory(service.process.id());
    let (_many, mut service) = following(101);
    let id = service.process.id();
    // They look at their files every ten seconds, each when its time comes: there is no second in which none does.
    service.process.wait_until("100 more pipelines to take less than 10 MiB", || memory(id) < one + 10_240);
}

#[test]
fn a_busy_pipeline_is_small() {
    let workspace = Workspace::new();
    let text = fs::read_to_string(format!("{}/bench/workloads/w1.yaml", env!("CARGO_MANIFEST_DIR"))).unwrap();
    // A count of nothing is no limit.
    workspace.write("pipelines/p.yaml", text.replace("${N}", "0").replace("${OUT}", "out.ndjson"));
    let mut process = workspace.start(&["run", "--log.level=warn"]);
    let out = workspace.path("out.ndjson");
    process.wait_until("30 MB", || fs::metadata(&out).is_ok_and(|metadata| metadata.len() > 30 << 20));
    let memory = |what| field(&proc_file(&process, "smaps_rollup"), what);
    assert_eq!(memory("AnonHugePages"), 0);
    // Beside other tests, its threads wait for each other, and more is in flight at times.
    let least = (0..20).map(|_| {
        sleep(Duration::from_millis(50));
        memory("Anonymous")
    });
    let anonymous = least.min().unwrap_or_default();
    assert!((1..20_480).contains(&anonymous), "{anonymous} KiB");
}
