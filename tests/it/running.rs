//! Commands that ask a running service: list, describe, positions, start, stop.

use serde_json::Value;

use crate::api::get;
use crate::api_lifecycle::is;
use crate::process::{NOBODY, Process, Workspace, file_to_file, numbered_lines, raw_after};

/// A service with a pipeline that follows a file, and the flag that names it.
fn service() -> (Workspace, Process, String) {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\ntwo\n");
    let processors =
        "      - { id: tag, plugin: field.set, condition: '{{ true }}', settings: { field: .Metadata.a, value: b } }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", processors));
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    let flag = format!("--api.http.address={address}");
    service.wait_until("records", || workspace.lines("out.ndjson").len() == 2);
    // They are there a moment before the pipeline says that it runs.
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    service.wait_until("it to run", || is(&get(address, "/v1/pipelines/p").json()["status"], "running"));
    (workspace, service, flag)
}

#[track_caller]
fn asked(workspace: &Workspace, arguments: &[&str], flag: &str) -> Value {
    let output = workspace.run(&[arguments, &["--json", flag]].concat()).expect_code(0);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    report["result"].clone()
}

#[track_caller]
fn end(service: Process) {
    service.signal("TERM");
    service.finish().expect_code(0);
}

#[test]
fn pipelines_are_listed_and_described_as_they_run() {
    let (workspace, service, flag) = service();
    let listed = asked(&workspace, &["pipelines", "list"], &flag);
    let pipeline = &listed["pipelines"][0];
    assert_eq!(pipeline["id"], "p");
    assert!(["running", "idle"].contains(&pipeline["state"].as_str().unwrap()), "{listed}");
    let text = workspace.run(&["pipelines", "list", &flag]).expect_code(0).stdout;
    assert!(text.contains("ID") && text.contains("p ") && !text.contains('\x1b'), "{text}");

    let described = asked(&workspace, &["pipelines", "describe", "p"], &flag);
    assert_eq!(described["connectors"][0]["settings"]["path"], "in.txt");
    assert_eq!(
        (&described["connectors"][0]["id"], &described["connectors"][1]["type"]),
        (&"in".into(), &"destination".into())
    );
    assert_eq!(
        (&described["processors"][0]["id"], &described["processors"][0]["plugin"]),
        (&"tag".into(), &"field.set".into())
    );
    assert_eq!(described["deadLetterQueue"]["plugin"], "builtin:log");
    let text = workspace.run(&["pipelines", "describe", "p", &flag]).expect_code(0).stdout;
    for part in ["Connectors", "in (source file)", "if {{ true }}", "Next", "when a record fails"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("kept"), "its dead letters are logged: {text}");
    let unknown = workspace.run(&["pipelines", "describe", "x", &flag]).expect_code(2).stderr;
    assert!(unknown.contains("there is no pipeline"), "{unknown}");
    end(service);

    // Without a service, what the store knows; not in place of a service that was named.
    let nobody = format!("--api.http.address={NOBODY}");
    workspace.run(&["pipelines", "describe", "p", &nobody]).expect_code(3);
    let flag = "--api.enabled=false";
    let described = asked(&workspace, &["pipelines", "describe", "p"], flag);
    assert_eq!((&described["service"], &described["state"]), (&Value::Null, &"stopped".into()));
    assert_eq!(described["positions"][0]["records"], 2);
    let unknown = workspace.run(&["pipelines", "describe", "pp", flag]).expect_code(2).stderr;
    assert!(unknown.contains("did you mean p?"), "{unknown}");
}

#[test]
fn without_a_service_it_is_said_where_one_was_looked_for() {
    let workspace = Workspace::new();
    let flag = format!("--api.http.address={NOBODY}");
    for arguments in
        [&["pipelines", "start", "p"][..], &["pipelines", "stop", "p"], &["pipelines", "delete", "p", "--yes"]]
    {
        let text = workspace.run(&[arguments, &[flag.as_str()]].concat()).expect_code(3).stderr;
        assert!(text.contains(&format!("http://{NOBODY}")) && text.contains("anabranch run"), "{text}");
    }
    let output = workspace.run(&["pipelines", "stop", "p", "--json", &flag]).expect_code(3).stdout;
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["error"]["code"], "service.unreachable");
}

#[test]
fn the_token_is_the_one_of_the_settings() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("token", "secret-of-the-test\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut service = workspace.start(&["run", "--api.http.token-file=token"]);
    let flag = format!("--api.http.address={}", service.address());
    let text = workspace.run(&["pipelines", "list", &flag]).expect_code(3).stderr;
    assert!(text.contains("token") && text.contains("--api.http.token-file"), "{text}");
    let listed = workspace.run(&["pipelines", "list", &flag, "--api.http.token-file=token", "--json"]).expect_code(0);
    assert!(listed.stdout.contains("\"id\":\"p\"") && !listed.both().contains("secret-of"), "{}", listed.both());
    end(service);
}

#[test]
fn a_pipeline_is_stopped_and_started() {
    let (workspace, mut service, flag) = service();
    let stopped = asked(&workspace, &["pipelines", "stop", "p", "--wait"], &flag);
    assert_eq!(stopped["state"], "stopped");
    let again = workspace.run(&["pipelines", "stop", "p", &flag]).expect_code(2).stderr;
    assert!(again.contains("does not run"), "{again}");
    workspace.append("in.txt", "three\n");
    let started = workspace.run(&["pipelines", "start", "p", "--wait", &flag]).expect_code(0).stdout;
    assert!(started.contains("p is running") || started.contains("p is idle"), "{started}");
    service.wait_until("the third record", || workspace.lines("out.ndjson").len() == 3);
    workspace.run(&["pipelines", "start", "p", &flag]).expect_code(2);
    workspace.run(&["pipelines", "start", "x", &flag]).expect_code(2);
    workspace.run(&["pipelines", "stop", "p", "--force", "--wait", "--timeout", "1m", &flag]).expect_code(0);
    let described = workspace.run(&["pipelines", "describe", "p", &flag]).expect_code(0).stdout;
    assert!(described.contains("anabranch pipelines start p"), "{described}");
    end(service);
}

/// A server that many pipelines need is back: one command starts all that failed without it.
#[test]
fn all_degraded_pipelines_are_started_at_once() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    for id in ["a", "b", "well"] {
        let out = if id == "well" { "well.ndjson".to_owned() } else { format!("missing/{id}.ndjson") };
        workspace.write(&format!("pipelines/{id}.yaml"), file_to_file(id, "").replace("out.ndjson", &out));
    }
    let mut service = workspace.start(&["run", "--pipelines.error-recovery.max-retries=0"]);
    let flag = format!("--api.http.address={}", service.address());
    let degraded = || {
        let listed = workspace.run(&["pipelines", "list", "--json", &flag]).stdout;
        listed.matches("\"state\":\"degraded\"").count()
    };
    service.wait_until("two degraded pipelines", || degraded() == 2);
    let still = workspace.run(&["pipelines", "start", "--degraded", "--wait", &flag]).expect_code(1).stdout;
    assert!(still.contains("a is degraded") && still.contains("b is degraded"), "{still}");
    std::fs::create_dir(workspace.path("missing")).unwrap();
    let started = workspace.run(&["pipelines", "start", "--degraded", "--wait", &flag]).expect_code(0).stdout;
    assert_eq!(started.lines().count(), 2, "{started}");
    for id in ["a", "b"] {
        service.wait_until("its record", || workspace.lines(&format!("missing/{id}.ndjson")).len() == 1);
    }
    let none = workspace.run(&["pipelines", "start", "--degraded", &flag]).expect_code(0).stdout;
    assert!(none.contains("No pipeline is degraded"), "{none}");
    workspace.run(&["pipelines", "start", &flag]).expect_code(2);
    let some = workspace.run(&["pipelines", "stop", "a", "x", "b", "--wait", &flag]).expect_code(2).both();
    assert!(some.contains("Failed: x") && some.contains("b is stopped"), "{some}");
    end(service);
}

#[test]
fn nothing_is_deleted_without_a_word() {
    let (workspace, service, flag) = service();
    let text = workspace.run(&["pipelines", "delete", "p", &flag]).expect_code(2).stderr;
    assert!(text.contains("stop the pipeline first"), "{text}");
    asked(&workspace, &["pipelines", "stop", "p", "--wait"], &flag);
    let text = workspace.run(&["pipelines", "delete", "p", &flag]).expect_code(2).stderr;
    assert!(text.contains("add --yes to delete it"), "{text}");
    assert_eq!(asked(&workspace, &["pipelines", "list"], &flag)["pipelines"][0]["id"], "p");
    end(service);
}

#[test]
fn a_file_is_applied_as_it_was_shown() {
    let (workspace, mut service, flag) = service();
    let changed = workspace.read("pipelines/p.yaml").replace("out.ndjson", "other.ndjson");
    workspace.write("p.yaml", &changed);
    let shown = workspace.run(&["pipelines", "apply", "p.yaml", &flag]).expect_code(4);
    assert!(shown.stdout.contains("~ connector p:out: /connectors/1/settings/path"), "{}", shown.both());
    assert!(shown.stderr.contains("Nothing was changed") && !shown.stdout.contains("other.ndjson"), "{}", shown.both());
    let hash = shown.stdout.lines().find_map(|line| line.strip_prefix("Hash: ")).unwrap().to_owned();
    workspace.append("in.txt", "three\n");
    service.wait_until("the third record", || workspace.lines("out.ndjson").len() == 3);

    let stale = workspace.run(&["pipelines", "apply", "p.yaml", "--plan-hash", "0", &flag]).expect_code(2).stderr;
    assert!(stale.contains(&hash), "{stale}");
    let applied = workspace.run(&["pipelines", "apply", "p.yaml", "--plan-hash", &hash, &flag]).expect_code(0).stdout;
    assert!(applied.contains("Applied."), "{applied}");
    workspace.append("in.txt", "four\n");
    service.wait_until("the fourth record", || workspace.lines("other.ndjson").len() == 1);
    assert_eq!(workspace.lines("out.ndjson").len(), 3);
    let again = asked(&workspace, &["pipelines", "apply", "p.yaml", "--yes"], &flag);
    assert_eq!((&again["changes"], &again["applied"]), (&serde_json::json!([]), &false.into()));

    // A pipeline that cannot be opened replaces none; the error is shown at its place.
    workspace.write("p.yaml", changed.replace("other.ndjson", "missing/other.ndjson"));
    workspace.run(&["pipelines", "apply", "p.yaml", "--yes", &flag]).expect_code(2);
    workspace.write("p.yaml", changed.replace("plugin: field.set", "plugin: field.sett"));
    let wrong = workspace.run(&["pipelines", "apply", "p.yaml", "--yes", &flag]).expect_code(2).stderr;
    assert!(wrong.contains("p.yaml:") && wrong.contains("did you mean"), "{wrong}");
    workspace.append("in.txt", "five\n");
    service.wait_until("the fifth record", || workspace.lines("other.ndjson").len() == 2);
    end(service);
}

#[test]
fn what_was_applied_can_be_deleted() {
    let (workspace, mut service, flag) = service();
    workspace.write("new.yaml", file_to_file("new", "").replace("out.ndjson", "new.ndjson"));
    workspace.run(&["pipelines", "apply", "new.yaml", "--yes", &flag]).expect_code(0);
    service.wait_until("its records", || workspace.lines("new.ndjson").len() == 2);
    let running = workspace.run(&["pipelines", "delete", "new", "--yes", &flag]).expect_code(2).stderr;
    assert!(running.contains("pipeline new runs"), "{running}");
    workspace.run(&["pipelines", "stop", "new", "--wait", &flag]).expect_code(0);
    workspace.run(&["pipelines", "delete", "new", "--yes", &flag]).expect_code(0);
    let listed = asked(&workspace, &["pipelines", "list"], &flag);
    assert_eq!(listed["pipelines"].as_array().unwrap().len(), 1, "{listed}");
    workspace.run(&["pipelines", "stop", "p", "--wait", &flag]).expect_code(0);
    let declared = workspace.run(&["pipelines", "delete", "p", "--yes", &flag]).expect_code(2).stderr;
    assert!(declared.contains("declared in a file"), "{declared}");
    end(service);
}

#[test]
fn positions_are_shown_and_moved_while_the_service_runs() {
    let (workspace, mut service, flag) = service();
    service.wait_until("the position", || {
        asked(&workspace, &["positions", "show", "p"], &flag)["positions"][0]["records"] == 2
    });
    let text = workspace.run(&["positions", "reset", "p", &flag]).expect_code(4);
    assert!(text.stdout.contains("in would resume after (the beginning)"), "{}", text.both());
    assert!(text.stderr.contains("Nothing was changed"), "{}", text.both());
    let moved = asked(&workspace, &["positions", "reset", "p", "--yes"], &flag);
    assert_eq!((&moved["pipeline"], &moved["positions"][0]["connector"]), (&"p".into(), &"in".into()));
    service.wait_until("both again", || workspace.lines("out.ndjson").len() == 4);
    workspace.run(&["positions", "reset", "p", "--connector", "x", &flag]).expect_code(2);
    workspace.run(&["positions", "show", "x", &flag]).expect_code(2);
    end(service);
}

/// The log would be written over them in a file that the shell opened.
#[test]
fn records_on_standard_output_are_not_mixed_with_the_log() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("out.ndjson", "/dev/stdout"));
    let to = std::fs::File::create(workspace.path("captured")).unwrap();
    let output = workspace.command(["run", "--once"]).stdout(to).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = workspace.lines("captured");
    let payloads: Vec<String> = lines.iter().map(|line| raw_after(line)).collect();
    assert_eq!(payloads, ["line 0", "line 1", "line 2"]);
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("finished") && log.contains("3 records read"), "{log}");
}

#[test]
fn a_queue_that_drops_its_oldest_letters_is_described_as_such() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1));
    for (when_full, said) in
        [("drop-oldest", "never: when the queue is full, it drops"), ("stop", "when the queue is full\n")]
    {
        let queue = format!(
            "    dead-letter-queue: {{ plugin: store, window-size: 0, settings: {{ when-full: {when_full} }} }}\n"
        );
        workspace.write("pipelines/p.yaml", file_to_file("p", "") + &queue);
        workspace.run(&["run", "--once"]).expect_code(0);
        let text = workspace.run(&["pipelines", "describe", "p"]).expect_code(0).stdout;
        assert!(text.contains(said), "{text}");
    }
}
