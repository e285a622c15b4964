//! A text is put in the place of a pipeline that runs: what was looked at, as a whole, or not at all.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api_lifecycle::{Service, is};
use crate::process::{PATIENCE, Process, Workspace, file_to_file, numbered_lines};

#[track_caller]
fn plan(service: &Service, yaml: &str) -> Value {
    service.done("POST", "/v1/pipelines/plan", &json!({ "yaml": yaml }))
}

/// Plans and applies.
#[track_caller]
fn apply(service: &Service, yaml: &str) -> Value {
    let hash = plan(service, yaml)["hash"].clone();
    service.done("POST", "/v1/pipelines/apply", &json!({ "yaml": yaml, "hash": hash }))
}

#[test]
fn a_new_pipeline_is_applied_started_and_kept() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    let mut service = Service::start(&workspace);
    let yaml = file_to_file("p", "");
    let planned = plan(&service, &yaml);
    let ids: Vec<&str> = planned["changes"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &planned["restart"]), (vec!["p", "p:in", "p:out"], &false.into()));
    service.refused("GET", "/v1/pipelines/p", &json!({}), "pipeline.not_found");
    let applied = apply(&service, &yaml);
    assert!(is(&applied["status"], "running") && applied["note"].is_null(), "{applied}");
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    // The same again changes nothing and restarts nothing.
    let again = apply(&service, &yaml);
    assert_eq!((&again["changes"], &again["status"]["run"]), (&json!([]), &1.into()), "{again}");
    service.end();
    let mut service = Service::start(&workspace);
    service.wait_for("p", "running");
    service.end();
    assert_eq!(workspace.lines("out.ndjson").len(), 3);
}

#[test]
fn only_what_was_looked_at_is_applied() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut service = Service::start(&workspace);
    service.wait_for("p", "running");
    let text = |path: &str| file_to_file("p", "").replace("out.ndjson", path);
    let hash = plan(&service, &text("a.ndjson"))["hash"].clone();
    let other = json!({ "yaml": text("b.ndjson"), "hash": hash });
    service.refused("POST", "/v1/pipelines/apply", &other, "pipelines.plan_stale");
    service.refused("POST", "/v1/pipelines/apply", &json!({ "yaml": text("a.ndjson") }), "api.malformed_request");
    service.refused("POST", "/v1/pipelines/plan", &json!({ "yaml": "pipelines: []" }), "pipelines.one_expected");
    let wrong = service.send(
        "POST",
        "/v1/pipelines/plan",
        &json!({ "yaml": text("a").replace("plugin: file", "plugin: fiel") }),
    );
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    assert!(wrong.json()["details"].as_array().unwrap().len() >= 2, "both connectors: {}", wrong.body);
    assert_eq!(service.status("p")["run"], 1, "nothing was stopped");

    let planned = plan(&service, &text("a.ndjson"));
    assert_eq!(planned["changes"][0]["configPaths"], json!(["/connectors/1/settings/path"]), "{planned}");
    assert_eq!(planned["restart"], true);
    let applied = apply(&service, &text("a.ndjson"));
    assert!(applied["note"].as_str().unwrap().contains("lost when the service restarts"), "{applied}");
    assert_eq!(service.status("p")["run"], 2);
    service.end();
    // The file decides again.
    let service = Service::start(&workspace);
    assert_eq!(service.get("/v1/connectors/p:out")["config"]["settings"]["path"], "out.ndjson");
    service.end();
    assert_eq!(workspace.lines("out.ndjson").len() + workspace.lines("a.ndjson").len(), 3, "each line once");
}

/// As `pipelines test` says it of the same text: in the fields of the same names.
#[test]
fn what_is_wrong_with_a_text_is_said_with_its_place() {
    let workspace = Workspace::new();
    let service = Service::start(&workspace);
    let places = |path: &str, body: Value| -> Vec<(Value, Value)> {
        let answer = service.send("POST", path, &body);
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        let details = answer.json()["details"].as_array().unwrap().clone();
        details.iter().map(|it| (it["metadata"]["line"].clone(), it["metadata"]["column"].clone())).collect()
    };
    let wrong = file_to_file("p", "").replace("plugin: file", "plugin: fiel");
    for yaml in ["a: [", "pipelines:\n  - {id: ü, nme: [}\n", wrong.as_str()] {
        let test = "tests:\n  - name: x\n    input: []\n    expect: { status: finished }\n";
        let tested = service.done("POST", "/v1/pipelines/test", &json!({ "pipeline": yaml, "test": test }));
        let findings = tested["result"]["tests"][0]["findings"].as_array().unwrap_or_else(|| panic!("{tested}"));
        let text = |number: &Value| Value::from(number.to_string());
        let wrong = findings.iter().filter(|it| it["severity"] == "error");
        let expected: Vec<_> = wrong.map(|it| (text(&it["line"]), text(&it["column"]))).collect();
        assert!(!expected.is_empty(), "{tested}");
        assert_eq!(places("/v1/pipelines/plan", json!({ "yaml": yaml })), expected, "{yaml}");
        assert_eq!(places("/v1/pipelines/apply", json!({ "yaml": yaml, "hash": "x" })), expected, "{yaml}");
    }
    // A configuration has no lines.
    let config = json!({ "config": { "id": "p", "connectors": [{ "id": "in", "type": "source", "plugin": "fiel" }] } });
    assert!(places("/v1/pipelines/plan", config).iter().all(|(line, column)| line.is_null() && column.is_null()));
    service.end();
}

#[test]
fn a_switch_that_fails_goes_back() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut service = Service::start(&workspace);
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    let bad = file_to_file("p", "").replace("out.ndjson", "missing/out.ndjson");
    let hash = plan(&service, &bad)["hash"].clone();
    let body = json!({ "yaml": bad, "hash": hash });
    let refused = service.refused("POST", "/v1/pipelines/apply", &body, "pipelines.switch_failed");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("missing/out.ndjson") && message.contains("the old pipeline runs again"), "{message}");
    service.wait_for("p", "running");
    // Appended: a file that is written anew is empty for a moment.
    workspace.append("in.txt", "line 3\nline 4\n");
    service.process.wait_until("more lines", || workspace.lines("out.ndjson").len() == 5);
    assert_eq!(service.get("/v1/connectors/p:out")["config"]["settings"]["path"], "out.ndjson");
    // One that is new is not there after.
    let new = bad.replace("id: p\n", "id: new\n");
    let hash = plan(&service, &new)["hash"].clone();
    let body = json!({ "yaml": new, "hash": hash });
    service.refused("POST", "/v1/pipelines/apply", &body, "pipelines.switch_failed");
    service.refused("GET", "/v1/pipelines/new", &json!({}), "pipeline.not_found");
    service.end();
    assert_eq!(workspace.lines("out.ndjson").len(), 5, "nothing is doubled");
}

/// Two see the same pipeline and change it, each without knowing of the other.
#[test]
fn of_changes_that_race_one_wins_and_the_others_are_told() {
    const CLIENTS: usize = 20;
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    let mut service = Service::start(&workspace);
    apply(&service, &file_to_file("p", ""));
    service.wait_for("p", "running");
    let text =
        |client: usize| file_to_file("p", "").replace("id: p\n", &format!("id: p\n    description: \"{client}\"\n"));
    for round in 0..3 {
        let number = |client| round * CLIENTS + client;
        // All look before the first one applies.
        let bodies: Vec<Value> = (0..CLIENTS)
            .map(|client| {
                let yaml = text(number(client));
                json!({ "yaml": yaml, "hash": plan(&service, &yaml)["hash"] })
            })
            .collect();
        let service = &service;
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asking = |body| scope.spawn(move || service.send("POST", "/v1/pipelines/apply", body));
            let asking: Vec<_> = bodies.iter().map(asking).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        let won: Vec<usize> = (0..CLIENTS).filter(|client| answers[*client].status == 200).collect();
        let [won] = won[..] else { panic!("{} changes were accepted", won.len()) };
        for lost in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!((lost.status, lost.reason().as_str()), (409, "pipelines.plan_stale"), "{}", lost.body);
        }
        let described = service.get("/v1/pipelines/p")["config"]["description"].clone();
        assert_eq!(described, number(won).to_string(), "the one that was told so");
    }
    // Changes of different pipelines do not hinder each other.
    let others: Vec<String> =
        (0..5).map(|i| file_to_file(&format!("q{i}"), "").replace("out.n", &format!("q{i}.n"))).collect();
    let planned: Vec<Value> = others.iter().map(|yaml| plan(&service, yaml)).collect();
    for (yaml, planned) in others.iter().zip(planned) {
        service.done("POST", "/v1/pipelines/apply", &json!({ "yaml": yaml, "hash": planned["hash"] }));
    }
    service.end();
}

/// Two clients change the rate of a running generator a hundred times, each pair of changes from the same base.
#[test]
fn of_each_pair_of_a_hundred_racing_edits_one_wins() {
    const PAIRS: usize = 50;
    let text = |rate: usize| {
        let source = "plugin: file\n        settings:\n          path: in.txt";
        let generator = format!(
            "plugin: generator\n        settings:\n          rate: \"{rate}\"\n          format.type: structured\n          \
             format.options.id: int"
        );
        file_to_file("p", "").replace(source, &generator)
    };
    let workspace = Workspace::new();
    let mut service = Service::start(&workspace);
    apply(&service, &text(100));
    service.wait_for("p", "running");
    let planned = std::sync::Barrier::new(2);
    let (service, planned) = (&service, &planned);
    // The first client asks for 501 records a second and more, the second for 701 and more.
    let client = |first: usize| {
        move || -> Vec<_> {
            let edit = |pair| {
                let yaml = text(first + pair);
                let hash = plan(service, &yaml)["hash"].clone();
                planned.wait();
                let answer = service.send("POST", "/v1/pipelines/apply", &json!({ "yaml": yaml, "hash": hash }));
                // Both have an answer before one of them looks at the next base.
                planned.wait();
                answer
            };
            (1..=PAIRS).map(edit).collect()
        }
    };
    let (firsts, seconds) = std::thread::scope(|scope| {
        let (one, other) = (scope.spawn(client(500)), scope.spawn(client(700)));
        (one.join().unwrap(), other.join().unwrap())
    });
    for (pair, (one, other)) in firsts.iter().zip(&seconds).enumerate() {
        let (won, lost) = if one.status == 200 { (one, other) } else { (other, one) };
        assert_eq!((won.status, lost.status), (200, 409), "pair {pair}: {}\n{}", won.body, lost.body);
        assert_eq!(lost.reason(), "pipelines.plan_stale", "pair {pair}: {}", lost.body);
    }
    let rate = service.get("/v1/connectors/p:in")["config"]["settings"]["rate"].clone();
    let last = if firsts[PAIRS - 1].status == 200 { 500 + PAIRS } else { 700 + PAIRS };
    assert_eq!(rate, last.to_string(), "the change of the winner");
    assert_eq!(service.status("p")["run"], PAIRS + 1, "a change that lost restarts nothing");
}

/// `api.allow-live-restart-apply: false`: nobody restarts a pipeline that runs, whatever they ask with.
#[test]
fn where_restarts_are_not_allowed_a_pipeline_that_runs_is_left_alone() {
    let mut workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.env("ANABRANCH_API_ALLOW_LIVE_RESTART_APPLY", "false");
    let mut service = Service::start(&workspace);
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &service.address.to_string());
    apply(&service, &file_to_file("p", ""));
    service.wait_for("p", "running");
    const CODE: &str = "pipelines.restart_not_allowed";
    const ADVICE: &str = "stop the pipeline, apply the change, and start it";
    let changed = file_to_file("p", "").replace("out.ndjson", "other.ndjson");
    workspace.write("changed.yaml", &changed);

    let planned = plan(&service, &changed);
    assert_eq!(planned["restart"], true, "{planned}");
    let hash = planned["hash"].clone();
    let refused = service.refused("POST", "/v1/pipelines/apply", &json!({ "yaml": changed, "hash": hash }), CODE);
    assert!(refused.to_string().contains(ADVICE), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("api.allow-live-restart-apply is false"), "{refused}");

    let words = ["pipelines", "apply", "changed.yaml", "--yes"];
    let told = workspace.run(&words).expect_code(2).both();
    assert!(told.contains("api.allow-live-restart-apply is false") && told.contains(ADVICE), "{told}");
    let output = workspace.run(&[&words[..], &["--json"]].concat()).expect_code(2).stdout;
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&report["error"]["code"], &report["ok"]), (&CODE.into(), &false.into()), "{report}");

    let call = crate::mcp::call("apply", &json!({ "config": changed, "hash": hash }));
    let answers = crate::mcp::asked(&workspace, &["--allow-mutations"], &[call]);
    let result = &answers[0]["result"];
    assert_eq!((&result["isError"], &result["structuredContent"]["error"]["code"]), (&true.into(), &CODE.into()));
    assert!(result.to_string().contains(ADVICE), "{result}");

    let status = service.status("p");
    assert!(is(&status, "running") && status["run"] == 1, "{status}");
    assert_eq!(service.get("/v1/connectors/p:out")["config"]["settings"]["path"], "out.ndjson");
    // The advice works.
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    workspace.run(&words).expect_code(0);
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    service.wait_for("p", "running");
    assert_eq!(service.get("/v1/connectors/p:out")["config"]["settings"]["path"], "other.ndjson");
    service.end();
}

/// The text of a pipeline only names the file of its script.
#[cfg(feature = "js")]
#[test]
fn a_plan_is_stale_once_the_file_of_its_script_is_another() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    let script = |mark: usize| {
        let text = format!("function process(rec) {{ rec.Metadata.mark = '{mark}'; return rec; }}");
        workspace.replace("mark.js", text);
    };
    let step = "      - { id: js, plugin: custom.javascript, settings: { script.path: mark.js } }\n";
    let yaml = file_to_file("p", step);
    let described = yaml.replace("id: p\n", "id: p\n    description: other\n");
    let mut service = Service::start(&workspace);
    let body = |yaml: &str, planned: &Value| json!({ "yaml": yaml, "hash": planned["hash"] });

    // Of one that is not there yet.
    script(1);
    let planned = plan(&service, &yaml);
    assert_eq!(plan(&service, &yaml)["hash"], planned["hash"], "the same is the same");
    script(2);
    service.refused("POST", "/v1/pipelines/apply", &body(&yaml, &planned), "pipelines.plan_stale");
    apply(&service, &yaml);
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);

    // Of one that runs, with the script as the only change, and with another one.
    script(3);
    let only = plan(&service, &yaml);
    assert_eq!(only["changes"][0]["configPaths"], json!(["/processors/0/settings/script.path"]), "{only}");
    let both = plan(&service, &described);
    let paths: Vec<&Value> = both["changes"].as_array().unwrap().iter().map(|change| &change["configPaths"]).collect();
    assert_eq!(paths, [&json!(["/description"]), &json!(["/processors/0/settings/script.path"])], "{both}");
    script(4);
    for (yaml, planned) in [(&yaml, &only), (&described, &both)] {
        service.refused("POST", "/v1/pipelines/apply", &body(yaml, planned), "pipelines.plan_stale");
    }
    // Somebody else applies the one of now, and the file is again what the plan was made with.
    apply(&service, &yaml);
    script(3);
    for (yaml, planned) in [(&yaml, &only), (&described, &both)] {
        service.refused("POST", "/v1/pipelines/apply", &body(yaml, planned), "pipelines.plan_stale");
    }
    apply(&service, &described);
    workspace.append("in.txt", "more\n");
    service.process.wait_until("one line more", || workspace.lines("out.ndjson").len() == 4);
    let marks: Vec<Value> =
        workspace.lines("out.ndjson").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let marks: Vec<&Value> = marks.iter().map(|record| &record["metadata"]["mark"]).collect();
    assert_eq!(marks, ["2", "2", "2", "3"]);
    service.end();
}

/// The store goes away while the new pipeline is tried out, and comes back later.
#[cfg(feature = "postgres")]
#[test]
fn a_switch_that_fails_goes_back_although_the_store_is_away() {
    let Some(server) = crate::servers::postgres::Server::start(&[]) else { return };
    let server = std::sync::Arc::new(server);
    let database = server.database();
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    assert!(Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap().success());
    let url = format!("--db.postgres.connection-string={}", database.url());
    let mut process = workspace.start(&["run", "--db.type=postgres", &url]);
    let address = process.address();
    process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    let mut service = Service { process, address };
    // It cannot be opened while nobody reads the pipe, which takes ten seconds to be seen.
    let hanging = file_to_file("p", "").replace("out.ndjson", "pipe");
    let body = json!({ "yaml": hanging, "hash": plan(&service, &hanging)["hash"] });
    std::thread::scope(|scope| {
        let applying = scope.spawn(|| service.send("POST", "/v1/pipelines/apply", &body));
        let log = service.process.printed();
        while log().matches("starting").count() < 2 {
            assert!(!applying.is_finished());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        server.kill();
        let answer = applying.join().unwrap();
        assert_eq!(answer.reason(), "pipelines.switch_failed", "{}", answer.body);
        assert!(answer.body.contains("the old pipeline runs again"), "{}", answer.body);
    });
    server.resume();
    service.wait_for("p", "running");
    workspace.append("in.txt", "one more\n");
    service.process.wait_until("the line", || workspace.lines("out.ndjson").len() == 4);
    // The store has the old one again, too.
    let address = service.address;
    service.process.wait_until("the store to be put back", || {
        crate::api::get(address, "/v1/connectors/p:out").json()["config"]["settings"]["path"] == "out.ndjson"
    });
    service.end();
}

/// A named pipe cannot be opened for writing while nobody reads it.
#[test]
fn a_new_pipeline_that_does_not_open_in_time_is_taken_out_again() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    assert!(Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap().success());
    let mut service = Service::start(&workspace);
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    let hanging = file_to_file("p", "").replace("out.ndjson", "pipe");
    let body = json!({ "yaml": hanging, "hash": plan(&service, &hanging)["hash"] });
    let refused = service.refused("POST", "/v1/pipelines/apply", &body, "pipelines.switch_failed");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("not open after 10 s") && message.contains("the old pipeline runs again"), "{message}");
    service.wait_for("p", "running");
    workspace.append("in.txt", "one more\n");
    service.process.wait_until("the line", || workspace.lines("out.ndjson").len() == 4);
    // As the message says: it may take its time once it is applied.
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    apply(&service, &hanging);
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    service.wait_for("p", "starting");
    // It holds both ends: what gave up before must not be the last to write.
    let reader = Process::spawn(Command::new("sh").args(["-c", "exec cat 0<>pipe"]).current_dir(workspace.root()));
    service.wait_for("p", "running");
    service.end();
    drop(reader);
    assert_eq!(workspace.lines("out.ndjson").len(), 4, "nothing is doubled");
}

/// A generator of numbered records into files.
fn generated(number: usize) -> String {
    format!(
        r#"
version: "2.2"
pipelines:
  - id: load
    connectors:
      - id: in
        type: source
        plugin: generator
        settings: {{ format.type: structured, format.options.n: int, rate: 2000 }}
      - id: out
        type: destination
        plugin: file
        settings: {{ path: out.ndjson }}
    processors:
      - {{ id: tag, plugin: field.set, settings: {{ field: .Metadata.apply, value: "{number}" }} }}
"#
    )
}

#[test]
fn nothing_is_lost_or_doubled_over_twenty_applies_under_load() {
    let workspace = Workspace::new();
    let mut service = Service::start(&workspace);
    for number in 0..20 {
        let applied = apply(&service, &generated(number));
        assert_eq!(applied["restart"], number > 0, "{applied}");
        // Records of the one before may come until it is replaced.
        let mark = format!("\"apply\":\"{number}\"");
        let marked = || workspace.lines("out.ndjson").iter().filter(|line| line.contains(&mark)).count();
        service.process.wait_until("records of the new one", || marked() > 20);
    }
    service.end();
    let mut applies = BTreeMap::<String, usize>::new();
    let lines = workspace.lines("out.ndjson");
    for (at, line) in lines.iter().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let position = record["position"].as_str().unwrap();
        let position = String::from_utf8(crate::process::base64_decode(position)).unwrap();
        assert_eq!(position, (at + 1).to_string(), "in order, each once");
        *applies.entry(record["metadata"]["apply"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(applies.len(), 20, "each was in place for some records: {applies:?}");
}

#[test]
fn a_crash_during_an_apply_leaves_one_or_the_other() {
    let workspace = Workspace::new();
    let paths = ["a", "b"];
    let text = |i: usize| generated(i).replace("out.ndjson", &format!("{}.ndjson", paths[i]));
    for round in 0..6 {
        let mut service = Service::start(&workspace);
        let address = service.address;
        apply(&service, &text(0));
        let plan = plan(&service, &text(1));
        let body = json!({ "yaml": text(1), "hash": plan["hash"] }).to_string();
        let asking = std::thread::spawn(move || {
            let sent = std::net::TcpStream::connect(address).map(|mut stream| {
                use std::io::{Read as _, Write as _};
                let length = body.len();
                let head =
                    format!("POST /v1/pipelines/apply HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
                let _ = stream.read(&mut [0; 16]);
            });
            drop(sent);
        });
        // Later in each round; where exactly it hits is left to chance.
        std::thread::sleep(std::time::Duration::from_millis(round * 15));
        service.process.signal("KILL");
        service.process.wait_for_end();
        asking.join().unwrap();
        let mut service = Service::start(&workspace);
        let path = service.get("/v1/connectors/load:out")["config"]["settings"]["path"].clone();
        let tag = service.get("/v1/processors/load:tag")["config"]["settings"]["value"].clone();
        let whole = [("a.ndjson", "0"), ("b.ndjson", "1")];
        assert!(whole.iter().any(|(file, number)| path == *file && tag == *number), "{path} {tag}");
        service.wait_for("load", "running");
        service.end();
    }
}

/// Whoever waits for a pipeline while it is deleted and made again must not get the one that is gone: what it started
/// would be nobody's, and a stop of the service would wait for it in vain.
#[test]
fn a_race_of_applies_stops_and_deletions_leaves_nothing_that_no_stop_reaches() {
    let mut workspace = Workspace::new();
    // A stop that waits for something that never ends is not taken for a slow one.
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "1h");
    workspace.write("in.txt", numbered_lines(10));
    let service = Service::start(&workspace);
    let yaml = file_to_file("p", "");
    let deletion = "/v1/pipelines/p?positions=true&parts=true";
    let begun = Instant::now();
    let deleted = AtomicUsize::new(0);
    let again_and_again = |work: &dyn Fn()| {
        let is_over = || begun.elapsed() >= Duration::from_secs(3) && deleted.load(Relaxed) > 2;
        while !is_over() {
            assert!(begun.elapsed() < PATIENCE, "nothing is deleted");
            work();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                again_and_again(&|| {
                    let planned = service.send("POST", "/v1/pipelines/plan", &json!({ "yaml": yaml })).json();
                    let text = json!({ "yaml": yaml, "hash": planned["hash"] });
                    service.send("POST", "/v1/pipelines/apply", &text);
                });
            });
            scope.spawn(|| again_and_again(&|| drop(service.send("POST", "/v1/pipelines/p/stop", &json!({})))));
            scope.spawn(|| {
                again_and_again(&|| {
                    let answer = service.send("DELETE", deletion, &json!({}));
                    deleted.fetch_add(usize::from(answer.status == 200), Relaxed);
                });
            });
        }
    });
    service.process.signal("TERM");
    let log = service.process.finish().expect_code(0).both();
    assert!(log.contains("deleted pipeline=p"), "{log}");
}

/// Each of them is sound by itself: only beside the others that the service has do they feed each other without end.
#[test]
fn a_pipeline_that_closes_a_circle_with_another_is_refused() {
    let workspace = Workspace::new();
    workspace.write("a", "1\n");
    let text = |id: &str, from: &str, to: &str| {
        file_to_file(id, "").replace("in.txt", from).replace("out.ndjson", &format!("./{to}"))
    };
    workspace.write("pipelines/p.yaml", text("p", "a", "b"));
    let mut service = Service::start(&workspace);
    service.wait_for("p", "running");
    let refused = |service: &Service, yaml: &str, ways: &[&str]| {
        for way in ways {
            let body = json!({ "yaml": yaml, "hash": "any" });
            let body = if way.ends_with("plan") { json!({ "yaml": yaml }) } else { body };
            let answer = service.send("POST", way, &body);
            assert_eq!((answer.status, answer.reason().as_str()), (400, "plan.feedback"), "{way}: {}", answer.body);
        }
    };
    let plan_only = ["/v1/pipelines/plan"];
    refused(&service, &text("q", "b", "a"), &plan_only);
    apply(&service, &text("q", "b", "c"));
    refused(&service, &text("r", "c", "a"), &plan_only);
    // Of one that the service has, too.
    refused(&service, &text("q", "b", "a"), &plan_only);
    // A plan made before the other pipeline existed removes it as well.
    let hash = plan(&service, &text("r", "c", "d"))["hash"].clone();
    apply(&service, &text("s", "d", "a"));
    let answer = service.send("POST", "/v1/pipelines/apply", &json!({ "yaml": text("r", "c", "d"), "hash": hash }));
    assert_eq!(answer.reason(), "plan.feedback", "{}", answer.body);
    service.end();
    // A file may close it while no service looks.
    workspace.write("pipelines/t.yaml", text("t", "c", "d"));
    let mut service = Service::start(&workspace);
    service.wait_for("s", "invalid");
    let error = service.status("s")["error"].to_string();
    assert!(error.contains("feed each other"), "{error}");
    service.end();
    assert_eq!(workspace.lines("a").len(), 1);
}
