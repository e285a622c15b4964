//! `pipelines apply` on files and directories: differences, exit codes, pruning, repeated reading.

use serde_json::Value;

use crate::api_lifecycle::Service;
use crate::process::{Output, Workspace, file_to_file, numbered_lines, raw_after};

/// A service without pipeline files of its own, and a directory of files that are applied to it.
fn service(workspace: &mut Workspace) -> Service {
    workspace.write("in.txt", numbered_lines(3));
    let service = Service::start(workspace);
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &service.address.to_string());
    service
}

fn pipeline(id: &str) -> String {
    file_to_file(id, "").replace("out.ndjson", &format!("{id}.ndjson"))
}

fn apply(workspace: &Workspace, arguments: &[&str], code: i32) -> Output {
    workspace.run(&[&["pipelines", "apply"], arguments].concat()).expect_code(code)
}

fn ids(service: &Service) -> Vec<String> {
    let all = service.get("/v1/pipelines");
    all.as_array().unwrap().iter().map(|pipeline| pipeline["id"].as_str().unwrap().to_owned()).collect()
}

/// The service has a script of the same name.
#[test]
fn a_script_is_the_one_beside_the_applied_file() {
    let mut workspace = Workspace::new();
    let mut service = service(&mut workspace);
    let script = |text: &str| format!("function process(r) {{ r.Payload.After = {text:?}; return r }}");
    workspace.write("s.js", script("of the service"));
    workspace.write("desired/s.js", script("of the file"));
    let step = |name: &str| {
        format!("      - {{ id: js, plugin: custom.javascript, settings: {{ script.path: {name} }} }} # beside\n")
    };
    for (id, name) in [("plain", "s.js"), ("single", "'s.js'"), ("double", "\"./s.js\"")] {
        let text = file_to_file(id, &step(name)).replace("out.ndjson", &format!("{id}.ndjson"));
        workspace.write(&format!("desired/{id}.yaml"), text);
    }
    apply(&workspace, &["desired", "--yes"], 0);
    apply(&workspace, &["desired", "--check"], 0);
    for id in ["plain", "single", "double"] {
        let lines = || workspace.lines(&format!("{id}.ndjson"));
        service.process.wait_until("the lines", || lines().len() == 3);
        assert!(lines().iter().all(|line| raw_after(line) == "of the file"), "{:?}", lines());
    }
    // From now on the service reads the files that it stored.
    workspace.write("desired/s.js", script("changed"));
    let changed = apply(&workspace, &["desired", "--check"], 4).stdout;
    assert!(changed.contains("Pipeline plain"), "{changed}");
    service.end();
}

#[test]
fn a_directory_is_compared_applied_and_pruned() {
    let mut workspace = Workspace::new();
    let service = service(&mut workspace);
    workspace.write("desired/a.yaml", pipeline("a"));
    let (b, c) = (pipeline("b"), pipeline("c"));
    // Two pipelines in one file.
    let c = c.split_once("pipelines:\n").unwrap().1;
    workspace.write("desired/b.yaml", format!("{b}{c}"));

    let checked = apply(&workspace, &["desired", "--check"], 4);
    assert!(
        checked.stdout.contains("Pipeline a: 3 changes") && checked.stdout.contains("Pipeline c"),
        "{}",
        checked.both()
    );
    assert_eq!(ids(&service), Vec::<String>::new(), "--check changes nothing");
    let unasked = apply(&workspace, &["desired"], 4).both();
    assert!(unasked.contains("Nothing was changed"), "{unasked}");
    assert_eq!(ids(&service), Vec::<String>::new());

    apply(&workspace, &["desired", "--yes"], 0);
    assert_eq!(ids(&service), ["a", "b", "c"]);
    apply(&workspace, &["desired", "--check"], 0);
    let same = apply(&workspace, &["desired", "--yes"], 0).stdout;
    assert!(same.contains("3 pipelines are up to date with the files"), "{same}");

    // One file more that is not valid: nothing at all is applied.
    workspace.write("desired/a.yaml", pipeline("a").replace("a.ndjson", "other.ndjson"));
    workspace.write("desired/d.yaml", pipeline("d").replace("plugin: file", "plugin: fiel"));
    let wrong = apply(&workspace, &["desired", "--yes"], 2).both();
    assert!(wrong.contains("d.yaml") && wrong.contains("did you mean"), "{wrong}");
    assert_eq!(service.get("/v1/connectors/a:out")["config"]["settings"]["path"], "a.ndjson");
    std::fs::remove_file(workspace.path("desired/d.yaml")).unwrap();

    // The plan that was shown is the one that is applied.
    let shown = apply(&workspace, &["desired", "--prune"], 4).stdout;
    let hash = shown.lines().find_map(|line| line.strip_prefix("Hash: ")).unwrap().to_owned();
    std::fs::remove_file(workspace.path("desired/b.yaml")).unwrap();
    let stale = apply(&workspace, &["desired", "--prune", "--plan-hash", &hash], 2).both();
    assert!(stale.contains("--plan-hash"), "{stale}");
    let shown = apply(&workspace, &["desired", "--prune", "--check"], 4).stdout;
    assert!(shown.contains("- pipeline b is in none of the files: drained, stopped and deleted"), "{shown}");
    assert_eq!(ids(&service), ["a", "b", "c"]);
    let output = apply(&workspace, &["desired", "--prune", "--yes", "--json"], 0).stdout;
    let result: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(result["result"]["pruned"][0]["deleted"], true, "{result}");
    assert_eq!(ids(&service), ["a"]);
    assert_eq!(service.get("/v1/connectors/a:out")["config"]["settings"]["path"], "other.ndjson");
    apply(&workspace, &["desired", "--prune", "--check"], 0);
    service.end();
}

#[test]
fn a_pipeline_of_a_file_of_the_service_is_not_pruned() {
    let mut workspace = Workspace::new();
    workspace.write("pipelines/own.yaml", pipeline("own"));
    let service = service(&mut workspace);
    workspace.write("desired/a.yaml", pipeline("a"));
    let planned = apply(&workspace, &["desired", "--prune"], 4).stdout;
    let hash = planned.lines().find_map(|line| line.strip_prefix("Hash: ")).unwrap().to_owned();
    let output = apply(&workspace, &["desired", "--prune", "--yes"], 0).stdout;
    assert!(output.contains("own") && output.contains("remove that file") && output.contains("Applied."), "{output}");
    assert_eq!(ids(&service), ["a", "own"]);
    // It is not a difference: nothing could remove it, so there is nothing to confirm, and no hash.
    let same: [&[&str]; 4] = [&["--check"], &["--yes"], &[], &["--plan-hash", &hash]];
    for arguments in same {
        let output = apply(&workspace, &[&["desired", "--prune"], arguments].concat(), 0).both();
        assert!(output.contains("Note: pipeline own is in none of the files"), "{arguments:?}: {output}");
        for wrong in ["Applied", "Hash: ", "--yes", "--plan-hash"] {
            assert!(!output.contains(wrong), "{arguments:?}: {output}");
        }
    }
    let output = apply(&workspace, &["desired", "--prune", "--check", "--json"], 0).stdout;
    let shown: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(shown["summary"]["pruned"], 0, "{shown}");
    let own = serde_json::json!([{ "pipelineId": "own", "declaredInFile": true, "deleted": false }]);
    assert_eq!(shown["result"]["pruned"], own, "{shown}");
    // A pipeline beside it that can go.
    workspace.write("desired/b.yaml", pipeline("b"));
    apply(&workspace, &["desired", "--prune", "--yes"], 0);
    std::fs::remove_file(workspace.path("desired/b.yaml")).unwrap();
    apply(&workspace, &["desired", "--prune", "--check"], 4);
    apply(&workspace, &["desired", "--prune", "--yes"], 0);
    assert_eq!(ids(&service), ["a", "own"]);
    service.end();
}

#[test]
fn what_cannot_be_applied_is_refused_before_anything_is_asked() {
    let mut workspace = Workspace::new();
    let service = service(&mut workspace);
    workspace.write("desired/a.yaml", pipeline("a"));
    workspace.write("desired/again.yaml", pipeline("a"));
    let twice = apply(&workspace, &["desired", "--yes"], 2).both();
    assert!(twice.contains("a.yaml") && twice.contains("again.yaml"), "{twice}");
    let none = apply(&workspace, &["missing", "--yes"], 2).both();
    assert!(none.contains("missing"), "{none}");
    std::fs::remove_file(workspace.path("desired/again.yaml")).unwrap();
    for text in ["", "# nothing yet\n", "version: \"2.2\"\npipelines: []\n"] {
        workspace.write("desired/b.yaml", text);
        let none = apply(&workspace, &["desired", "--yes"], 2).both();
        assert!(none.contains("desired/b.yaml declares no pipeline"), "{none}");
    }
    assert_eq!(ids(&service), [""; 0]);
    std::fs::create_dir(workspace.path("empty")).unwrap();
    let none = apply(&workspace, &["empty", "--prune", "--yes"], 2).both();
    assert!(none.contains("no pipeline file"), "an empty directory prunes nothing: {none}");
    service.end();
}

/// 3 lines became 6, behind the words "goes on where it was".
#[test]
fn a_renamed_source_is_not_applied_without_a_word_of_its_own() {
    let mut workspace = Workspace::new();
    let mut service = service(&mut workspace);
    workspace.write("a.yaml", pipeline("a"));
    apply(&workspace, &["a.yaml", "--yes"], 0);
    let stored = |service: &Service| service.get("/v1/pipelines/a/positions")["positions"][0]["records"] == 3;
    let address = service.address;
    service.process.wait_until("the positions", || {
        crate::api::get(address, "/v1/pipelines/a/positions").json()["positions"][0]["records"] == 3
    });
    assert!(stored(&service));

    workspace.write("a.yaml", pipeline("a").replace("- id: in\n", "- id: lines\n"));
    let refused = apply(&workspace, &["a.yaml", "--yes"], 2).both();
    assert!(refused.contains("a:in, at least 3 records are delivered again"), "{refused}");
    assert!(refused.contains("--accept-rereads") && refused.contains("positions copy a:in a:lines"), "{refused}");
    assert_eq!(service.status("a")["run"], 1, "nothing was changed");

    // The remedy that was named.
    workspace.run(&["positions", "copy", "a:in", "a:lines", "--new", "--yes"]).expect_code(0);
    let applied = apply(&workspace, &["a.yaml", "--yes"], 0).stdout;
    assert!(!applied.contains("delivered again"), "{applied}");
    workspace.append("in.txt", "line 3\n");
    service.process.wait_until("the fourth line", || workspace.lines("a.ndjson").len() >= 4);
    workspace.run(&["pipelines", "stop", "a", "--wait"]).expect_code(0);
    assert_eq!(workspace.lines("a.ndjson").len(), 4, "each line once");

    // Or said in so many words. What was stopped stays so, and is not taken for what the file wants.
    let stopped = "pipeline a is stopped and stays stopped: run `anabranch pipelines start a` to start it";
    assert!(apply(&workspace, &["a.yaml", "--check"], 0).stdout.contains(stopped));
    workspace.write("a.yaml", pipeline("a").replace("- id: in\n", "- id: third\n"));
    assert!(apply(&workspace, &["a.yaml", "--yes", "--accept-rereads"], 0).stdout.contains(stopped));
    workspace.run(&["pipelines", "start", "a", "--wait"]).expect_code(0);
    service.process.wait_until("everything again", || workspace.lines("a.ndjson").len() == 8);
    service.end();
}

/// The log said that the new file was replaced and that something is lost.
#[test]
fn a_source_of_another_path_is_told_what_becomes_of_its_position() {
    let mut workspace = Workspace::new();
    let mut service = service(&mut workspace);
    workspace.write("other.txt", "another\n");
    workspace.write("a.yaml", pipeline("a"));
    let applied = apply(&workspace, &["a.yaml", "--yes"], 0).stdout;
    assert!(!applied.contains("position"), "it has none: {applied}");
    let address = service.address;
    service.process.wait_until("the positions", || {
        crate::api::get(address, "/v1/pipelines/a/positions").json()["positions"][0]["records"] == 3
    });
    workspace.write("a.yaml", pipeline("a").replace("in.txt", "other.txt"));
    let checked = apply(&workspace, &["a.yaml", "--check"], 4).stdout;
    assert!(checked.contains("source a:in has a position in the file of its former path"), "{checked}");
    let planned = apply(&workspace, &["a.yaml", "--yes"], 0).stdout;
    assert!(planned.contains("otherwise, it reads other.txt from the beginning"), "{planned}");
    service.process.wait_until("the other file", || workspace.lines("a.ndjson").len() == 4);
    service.process.signal("TERM");
    let log = service.process.finish().expect_code(0).both();
    assert!(log.contains("the path of the source was changed") && !log.contains("is lost"), "{log}");
}
