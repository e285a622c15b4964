//! Scripts that attack the service: what they do ends a process of their own, costs one record, and nothing else.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use crate::api_lifecycle::Service;
use crate::process::{PATIENCE, Process, Workspace, file_to_file, numbered_lines};

/// A pipeline with a script; letters go to a file, and no number of them stops it.
fn scripted(id: &str, script: &str, settings: &str) -> String {
    let script: String = script.lines().map(|line| format!("            {line}\n")).collect();
    let processors = format!(
        "      - id: js\n        plugin: custom.javascript\n        settings:\n          timeout: 60s\n{settings}          script: |\n{script}    \
         dead-letter-queue: {{ plugin: file, settings: {{ path: {id}-dlq.ndjson }}, window-size: 0 }}\n"
    );
    file_to_file(id, &processors).replace("out.ndjson", &format!("{id}.ndjson"))
}

/// The script that does `what` for the lines in `at`, and passes on all lines.
fn at(lines: &[usize], what: &str) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("\"line {line}\"")).collect();
    format!(
        "function process(rec) {{\n  const line = new TextDecoder().decode(rec.Payload.After);\n  \
         if ([{}].includes(line)) {{ {what} }}\n  return rec;\n}}",
        lines.join(", ")
    )
}

fn codes(workspace: &Workspace, file: &str) -> Vec<String> {
    let letters = workspace.lines(file).into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
    letters.map(|letter| letter["metadata"]["svc.dlq.nack.code"].as_str().unwrap().to_owned()).collect()
}

/// The processes that run scripts of a pipeline, by their command lines.
fn workers(pipeline: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &u32| {
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0).skip(1);
            words.next() == Some(b"run-script") && words.next() == Some(pipeline.as_bytes())
        })
        .collect()
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    until_told(what, || if done() { Ok(()) } else { Err("it does not happen".to_owned()) });
}

/// An open file of a process.
#[derive(Debug)]
struct Descriptor {
    number: u32,
    /// The path of a file; for others a name with their kind and number, such as `socket:[123]`.
    file: PathBuf,
    /// Whether a program that the process starts would have it too.
    inheritable: bool,
}

/// The open files of a process, without those that it closes meanwhile.
fn descriptors(process: u32) -> impl Iterator<Item = Descriptor> {
    const CLOSED_ON_EXEC: i64 = 0o2_000_000;
    let numbers = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(move |number: u32| {
        let file = fs::read_link(format!("/proc/{process}/fd/{number}")).ok()?;
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let inheritable = i64::from_str_radix(flags.trim(), 8).unwrap() & CLOSED_ON_EXEC == 0;
        Some(Descriptor { number, file, inheritable })
    })
}

/// Waits until nothing is wrong any more, and says otherwise what still is.
#[track_caller]
fn until_told(what: &str, mut wrong: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    while let Err(still) = wrong() {
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}: {still}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no process runs scripts of these pipelines: the service ends its workers, and the system buries them.
#[track_caller]
fn no_worker_is_left(pipelines: &[&str]) {
    until("the workers to end", || pipelines.iter().all(|pipeline| workers(pipeline).is_empty()));
}

/// A name for a pipeline that no other test, and no other run, has.
fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[test]
fn a_script_nested_too_deep_is_refused_by_all_who_check_it_and_the_service_lives() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let service = Service::start(&workspace);
    for (open, close, times, is_good) in [
        // The script of 177 bytes.
        ("(", ")", 80, true),
        ("(", ")", 20_000, false),
        ("[", "]", 20_000, false),
        ("{", "}", 20_000, false),
        ("`${", "}`", 5_000, false),
        ("!", "", 5_000, true),
        ("1?2:", "", 5_000, true),
        ("1+", "", 15_000, true),
    ] {
        let (before, middle) = if open == "{" { ("", "") } else { ("let x=", "1") };
        let script =
            format!("function process(r){{return r}}; {before}{}{middle}{}", open.repeat(times), close.repeat(times));
        let yaml = scripted("deep", &script, "");
        workspace.write("other/deep.yaml", &yaml);
        let planned = service.send("POST", "/v1/pipelines/plan", &json!({ "yaml": yaml }));
        let validated = workspace.run(&["pipelines", "validate", "other"]);
        let shown = workspace.run(&["pipelines", "plan", "other"]);
        let expected = if is_good { (200, Some(0), Some(0)) } else { (400, Some(2), Some(2)) };
        assert_eq!((planned.status, validated.code(), shown.code()), expected, "{open}: {}", planned.body);
        if !is_good {
            assert!(validated.both().contains("script.too_deep") && validated.both().contains("script:1:"));
            assert!(planned.body.contains("script.too_deep"), "{}", planned.body);
        }
    }
    assert_eq!(service.get("/v1/pipelines/p")["id"], "p");
    service.end();
}

#[test]
fn a_record_that_overflows_the_interpreter_is_a_letter_at_every_start() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(300));
    let (attacked, other) = (own("overflow"), own("beside"));
    let nested = "let a = []; for (let i = 0; i < 300000; i++) a = [a];";
    let attacks = [
        format!("{nested} JSON.stringify(a);"),
        format!("{nested} String(a);"),
        "let p = {}; for (let i = 0; i < 300000; i++) p = new Proxy(p, {}); p.x;".to_owned(),
        "eval('('.repeat(300000));".to_owned(),
        "eval('!'.repeat(300000) + '1');".to_owned(),
    ];
    for (turn, attack) in attacks.iter().enumerate() {
        let (id, beside) = (format!("{attacked}-{turn}"), format!("{other}-{turn}"));
        workspace.write("pipelines/p.yaml", scripted(&id, &at(&[7, 250], attack), ""));
        workspace.write("pipelines/q.yaml", scripted(&beside, "const process = (rec) => rec;", ""));
        let output = workspace.run(&["run", "--once"]);
        assert_eq!(output.code(), Some(0), "{attack}: {}", output.both());
        // An engine that bounds this by itself makes a letter of it, too.
        let letters = codes(&workspace, &format!("{id}-dlq.ndjson"));
        assert!(letters.iter().all(|code| code.starts_with("script_")), "{letters:?}");
        let delivered = workspace.lines(&format!("{id}.ndjson")).len();
        assert_eq!(delivered + letters.len(), 300, "{attack}: {letters:?}");
        if turn < 2 {
            assert_eq!(letters, ["script_crashed", "script_crashed"], "{attack}");
        }
        assert_eq!(workspace.lines(&format!("{beside}.ndjson")).len(), 300);
        no_worker_is_left(&[&id, &beside]);
    }
}

/// With scripts in the process of the service this was: five starts, five aborts, no letter.
#[test]
fn five_starts_on_a_record_that_ends_its_worker_are_five_successes_and_one_letter() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(20));
    let (attacked, other) = (own("attacked"), own("other"));
    let attack = "let a = []; for (let i = 0; i < 300000; i++) a = [a]; JSON.stringify(a);";
    workspace.write("pipelines/p.yaml", scripted(&attacked, &at(&[7], attack), ""));
    workspace.write("pipelines/q.yaml", scripted(&other, "const process = (rec) => rec;", ""));
    let rows = |id: &str| workspace.lines(&format!("{id}.ndjson")).len();
    let letters = |id: &str| codes(&workspace, &format!("{id}-dlq.ndjson"));
    for start in 0..5 {
        let mut service = Service::start(&workspace);
        let expected = 20 + start;
        service.process.wait_until("what there is", || rows(&attacked) == expected - 1 && rows(&other) == expected);
        // Both go on.
        workspace.append("in.txt", &format!("more {start}\n"));
        service.process.wait_until("what comes then", || rows(&attacked) == expected && rows(&other) == expected + 1);
        for id in [&attacked, &other] {
            service.wait_for(id, "running");
        }
        service.end();
        assert_eq!(letters(&attacked), ["script_crashed"], "start {start}");
    }
    assert_eq!((rows(&attacked), rows(&other), letters(&other).len()), (24, 25, 0));
    no_worker_is_left(&[&attacked, &other]);
}

#[test]
fn regular_expressions_that_never_end_are_letters_and_leave_nothing_behind() {
    let workspace = Workspace::new();
    let id = own("stuck");
    workspace.write("in.txt", numbered_lines(400));
    let stuck = at(&[3, 100, 101, 250, 399], "/^(a+)+$/.test('a'.repeat(50) + '!');");
    // Time of a processor, of which a good record takes far less: not the time in which others have it.
    workspace.write("pipelines/p.yaml", scripted(&id, &stuck, "").replace("timeout: 60s", "timeout: 200ms"));
    let mut service = Service::start(&workspace);
    let (out, letters) = (format!("{id}.ndjson"), format!("{id}-dlq.ndjson"));
    // Records and dead letters go different ways: neither says that the other has arrived.
    let done = |rows, failed| workspace.lines(&out).len() == rows && workspace.lines(&letters).len() == failed;
    service.process.wait_until("all others and 5 letters", || done(395, 5));
    assert_eq!(codes(&workspace, &letters), ["script_timeout"; 5]);
    let threads = |service: &Service| fs::read_dir(format!("/proc/{}/task", service.process.id())).unwrap().count();
    let before = threads(&service);
    workspace.append("in.txt", "line 3\nline 100\nline 101\nline 250\nline 399\nmore\n");
    service.process.wait_until("what comes then", || done(396, 10));
    assert_eq!(codes(&workspace, &letters), ["script_timeout"; 10]);
    // One that stayed for each of them would be five more; some come and go for reading and storing.
    until("the threads of them to end", || threads(&service) < before + 5);
    service.process.wait_until("one worker", || workers(&id).len() == 1);
    service.end();
    no_worker_is_left(&[&id]);
}

#[test]
fn memory_without_bound_is_a_letter() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(200));
    // Some are refused by the engine with an error of its own, which is a letter too.
    let hoards = [
        ("let a = []; for (;;) a.push({ a: [a.length] });", "script_memory"),
        ("let a = []; for (;;) a.push(new Uint8Array(1 << 20));", "script_threw"),
        ("let s = 'x'; for (;;) s += s;", "script_threw"),
    ];
    for (turn, (hoard, likely)) in hoards.into_iter().enumerate() {
        let id = format!("{}-{turn}", own("hoard"));
        let yaml = scripted(&id, &at(&[5, 150], hoard), "").replace("timeout: 60s", "timeout: 100s");
        workspace.write("pipelines/p.yaml", yaml);
        let output = workspace.run(&["run", "--once", "--processors.max-memory", "64MiB"]);
        assert_eq!(output.code(), Some(0), "{}", output.both());
        let letters = codes(&workspace, &format!("{id}-dlq.ndjson"));
        let fits = |code: &String| code == likely || code == "script_memory" && turn > 0;
        assert!(letters.len() == 2 && letters.iter().all(fits), "{hoard}: {letters:?} {}", output.both());
        assert_eq!(workspace.lines(&format!("{id}.ndjson")).len(), 198);
    }
}

/// Sends a signal to a worker, which may have ended by itself.
fn send(worker: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(worker.cast_signed()).unwrap(), signal);
}

fn kill(worker: u32) {
    send(worker, Signal::KILL);
}

#[test]
fn a_worker_that_is_killed_costs_no_record() {
    let workspace = Workspace::new();
    let id = own("killed");
    workspace.write("in.txt", "");
    let slow = "function process(rec) {\n  for (let i = 0; i < 300; i++);\n  return rec;\n}";
    workspace.write("pipelines/p.yaml", scripted(&id, slow, ""));
    let mut service = Service::start(&workspace);
    let out = format!("{id}.ndjson");
    let rows = || workspace.lines(&out).len();
    // One kill for each share: a record at which two workers end is taken for the one that ends them.
    for share in 1..=3 {
        let before = rows();
        workspace.append("in.txt", &numbered_lines(1_500));
        service.process.wait_until("some rows", || rows() > before);
        workers(&id).into_iter().for_each(kill);
        service.process.wait_until("the rest of the rows", || rows() >= share * 1_501 - 1);
        // If the kill came after the last of them, this one finds the worker gone.
        workspace.append("in.txt", "one more\n");
        service.process.wait_until("one more row", || rows() >= share * 1_501);
    }
    service.end();
    assert_eq!((rows(), codes(&workspace, &format!("{id}-dlq.ndjson"))), (3 * 1_501, Vec::new()));
}

#[test]
fn a_worker_that_is_killed_while_it_starts_costs_no_record() {
    let workspace = Workspace::new();
    let id = own("starting");
    workspace.write("in.txt", "first\n");
    workspace.write("pipelines/p.yaml", scripted(&id, "const process = (rec) => rec;", ""));
    let mut service = Service::start(&workspace);
    let rows = || workspace.lines(&format!("{id}.ndjson")).len();
    service.process.wait_until("a row", || rows() == 1);
    for turn in 2..=4 {
        // One that waits for records is gone when the next one comes; another takes its place, and has just begun.
        let waiting = workers(&id);
        waiting.iter().copied().for_each(kill);
        workspace.append("in.txt", "more\n");
        let starting = || workers(&id).into_iter().find(|worker| !waiting.contains(worker));
        service.process.wait_until("another worker", || starting().is_some());
        starting().into_iter().for_each(kill);
        service.process.wait_until("the row or a letter", || {
            rows() == turn || !workspace.lines(&format!("{id}-dlq.ndjson")).is_empty()
        });
        assert_eq!(codes(&workspace, &format!("{id}-dlq.ndjson")), Vec::<String>::new());
    }
    service.end();
}

/// A machine that gives a worker no processor for a while, here because it is told to.
#[test]
fn time_in_which_a_worker_has_no_processor_is_not_time_of_the_script() {
    let workspace = Workspace::new();
    let id = own("starved");
    workspace.write("in.txt", "line 0\nline 1\n");
    let half = at(&[1], "console.log(\"it works\"); const end = Date.now() + 500; while (Date.now() < end);");
    workspace.write("pipelines/p.yaml", scripted(&id, &half, "").replace("timeout: 60s", "timeout: 1s"));
    let mut service = Service::start(&workspace);
    let printed = service.process.printed();
    service.process.wait_until("the script to work", || printed().contains("it works"));
    let workers = workers(&id);
    workers.iter().for_each(|worker| send(*worker, Signal::STOP));
    // Longer than its time, and than the service waits for it.
    std::thread::sleep(Duration::from_millis(2500));
    workers.iter().for_each(|worker| send(*worker, Signal::CONT));
    let (out, letters) = (format!("{id}.ndjson"), format!("{id}-dlq.ndjson"));
    service.process.wait_until("two rows", || workspace.lines(&out).len() + workspace.lines(&letters).len() == 2);
    assert_eq!(codes(&workspace, &letters), Vec::<String>::new(), "{}", workspace.read(&letters));
    service.end();
}

#[test]
fn workers_end_with_the_service_however_it_ends() {
    let workspace = Workspace::new();
    let id = own("orphan");
    workspace.write("in.txt", numbered_lines(2));
    // The second record keeps the worker busy, so that it cannot notice by itself.
    workspace
        .write("pipelines/p.yaml", scripted(&id, &at(&[1], "for (;;);"), "").replace("timeout: 60s", "timeout: 1h"));
    let mut service = Service::start(&workspace);
    service.process.wait_until("a worker", || workers(&id).len() == 1);
    let worker = workers(&id)[0];
    // What another test left open for a moment when this one started the service, the service and the worker both have.
    let service_id = service.process.id();
    // Its sockets and their copies, and what it has while it starts: files of its own that it closes.
    until_told("the worker to have no descriptors but its own", || {
        let from_outside: Vec<PathBuf> =
            descriptors(service_id).filter(|open| open.inheritable).map(|open| open.file).collect();
        let worker = descriptors(worker).collect::<Vec<_>>();
        let sockets = worker.iter().filter(|open| open.number == 0 || open.number == 2).map(|open| &open.file);
        let own: Vec<&PathBuf> = sockets.chain(&from_outside).collect();
        let foreign = worker.iter().filter(|open| open.number > 2 && !own.contains(&&open.file));
        let foreign: Vec<&Descriptor> = foreign.collect();
        if foreign.is_empty() { Ok(()) } else { Err(format!("{foreign:?}")) }
    });
    let environment = fs::read(format!("/proc/{worker}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("ANABRANCH") && !environment.contains("PATH="), "{environment}");
    service.process.signal("KILL");
    service.process.wait_for_end();
    until("the worker to end", || workers(&id).is_empty());
}

#[test]
fn a_ctrl_c_at_the_terminal_delivers_what_was_read() {
    let workspace = Workspace::new();
    let id = own("drained");
    workspace.write("in.txt", numbered_lines(2_000));
    let slow = "function process(rec) {\n  for (let i = 0; i < 2000; i++);\n  return rec;\n}";
    workspace.write("pipelines/p.yaml", scripted(&id, slow, ""));
    let mut command = workspace.command(["run", "--shutdown.timeout=10m"]);
    // As a terminal does it: the signal is for the whole group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut service = Process::spawn(&mut command);
    let out = format!("{id}.ndjson");
    service.wait_until("some rows", || !workspace.lines(&out).is_empty());
    let group = Pid::from_raw(service.id().cast_signed()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    let output = service.finish().expect_code(0);
    assert_eq!(codes(&workspace, &format!("{id}-dlq.ndjson")), Vec::<String>::new(), "{}", output.both());
    let before = workspace.lines(&out).len();
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(workspace.lines(&out).len(), 2_000, "{before} before");
    no_worker_is_left(&[&id]);
}
