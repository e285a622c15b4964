//! `pipelines dev`: what is saved is taken up, what is wrong is shown, and the rest passes.

use crate::process::{Process, Workspace, file_to_file, raw_after};

fn pipeline(to: &str) -> String {
    file_to_file("p", "").replace("out.ndjson", to)
}

/// Saves as editors do: another file gets the name.
fn save(workspace: &Workspace, name: &str, content: &str) {
    let draft = workspace.write("draft", content);
    std::fs::rename(draft, workspace.path(name)).unwrap();
}

#[track_caller]
fn delivered(service: &mut Process, workspace: &Workspace, file: &str, lines: &[&str]) {
    service.wait_until(&format!("{lines:?} in {file}"), || {
        workspace.lines(file).iter().map(|line| raw_after(line)).eq(lines.iter().copied())
    });
}

#[track_caller]
fn said(service: &mut Process, words: &str) {
    let printed = service.printed();
    service.wait_until(words, || printed().contains(words));
}

/// A service whose files are managed by other programs: `pipelines.watch` applies them and puts back what fails.
#[test]
fn a_watched_directory_is_applied_and_rolled_back() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", pipeline("first.ndjson"));
    let mut service = workspace.start(&["run", "--pipelines.watch"]);
    delivered(&mut service, &workspace, "first.ndjson", &["one"]);
    said(&mut service, "watching 1 file");
    save(&workspace, "pipelines/p.yaml", &pipeline("missing/second.ndjson"));
    said(&mut service, "the service restores the old one");
    workspace.append("in.txt", "two\n");
    delivered(&mut service, &workspace, "first.ndjson", &["one", "two"]);
    save(&workspace, "pipelines/p.yaml", &pipeline("third.ndjson"));
    said(&mut service, "restarted in");
    workspace.append("in.txt", "three\n");
    delivered(&mut service, &workspace, "third.ndjson", &["three"]);
    service.signal("INT");
    service.finish().expect_code(0);
}

#[test]
fn a_saved_file_is_taken_up_and_goes_on_where_it_was() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", pipeline("first.ndjson"));
    let mut service = workspace.start(&["pipelines", "dev", "pipelines"]);
    said(&mut service, "watching 1 file");
    delivered(&mut service, &workspace, "first.ndjson", &["one"]);

    save(&workspace, "pipelines/p.yaml", &pipeline("second.ndjson"));
    said(&mut service, "restarted in");
    workspace.append("in.txt", "two\n");
    delivered(&mut service, &workspace, "second.ndjson", &["two"]);

    // An error is shown with its place, and nothing stops.
    save(&workspace, "pipelines/p.yaml", &pipeline("third.ndjson").replace("plugin: file", "plugin: fiel"));
    said(&mut service, "did you mean \"file\"?");
    said(&mut service, "it keeps running unchanged");
    workspace.append("in.txt", "three\n");
    delivered(&mut service, &workspace, "second.ndjson", &["two", "three"]);

    // A new file is started, one that is deleted goes on.
    let another = file_to_file("another", "").replace("out.ndjson", "another.ndjson");
    save(&workspace, "pipelines/another.yaml", &another);
    delivered(&mut service, &workspace, "another.ndjson", &["one", "two", "three"]);
    std::fs::remove_file(workspace.path("pipelines/another.yaml")).unwrap();
    said(&mut service, "the file is gone; its pipelines keep running");
    workspace.append("in.txt", "four\n");
    delivered(&mut service, &workspace, "another.ndjson", &["one", "two", "three", "four"]);

    service.signal("INT");
    service.finish().expect_code(0);
    assert_eq!(workspace.lines("first.ndjson").len(), 1);
}

#[cfg(feature = "js")]
#[test]
fn a_saved_script_is_taken_up_beside_its_pipeline_file() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    let script =
        |mark: &str| format!("function process(rec) {{\n  rec.Payload.After = RawData('{mark}');\n  return rec;\n}}\n");
    // Beside the pipeline file, and not below the working directory.
    workspace.write("pipelines/scripts/mark.js", script("a"));
    let step =
        "      - id: js\n        plugin: custom.javascript\n        settings: { script.path: scripts/mark.js }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", step));
    let mut service = workspace.start(&["pipelines", "dev", "pipelines"]);
    delivered(&mut service, &workspace, "out.ndjson", &["a"]);
    said(&mut service, "watching 1 file");

    save(&workspace, "pipelines/scripts/mark.js", &script("b"));
    said(&mut service, "/processors/0/settings/script.path");
    said(&mut service, "restarted in");
    workspace.append("in.txt", "two\n");
    delivered(&mut service, &workspace, "out.ndjson", &["a", "b"]);

    // One that is broken is shown, with its place; the next that is sound is taken up.
    save(&workspace, "pipelines/scripts/mark.js", "function process(rec) {\n  retrun rec;\n}\n");
    said(&mut service, "scripts/mark.js:2:10: expected `;`, found `rec`");
    said(&mut service, "it keeps running unchanged");
    save(&workspace, "pipelines/scripts/mark.js", &script("c"));
    let printed = service.printed();
    service.wait_until("the second restart", || printed().matches("restarted in").count() >= 2);
    workspace.append("in.txt", "three\n");
    delivered(&mut service, &workspace, "out.ndjson", &["a", "b", "c"]);
    service.signal("INT");
    service.finish().expect_code(0);
}

#[test]
fn it_starts_with_nothing_and_with_what_is_wrong() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    let mut service = workspace.start(&["pipelines", "dev", "--json"]);
    said(&mut service, "watching 0 files");
    save(&workspace, "pipelines/p.yaml", "version: \"2.2\"\npipelines: [\n");
    said(&mut service, "\"outcome\":\"invalid\"");
    save(&workspace, "pipelines/p.yaml", &pipeline("out.ndjson"));
    delivered(&mut service, &workspace, "out.ndjson", &["one"]);
    said(&mut service, "\"mode\":\"started\"");
    service.signal("INT");
    service.finish().expect_code(0);
}

/// A file that is saved after the service has read it and before it watches: here it waits for its store in between.
#[test]
fn what_is_saved_before_the_first_look_is_taken_up() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("other/q.yaml", file_to_file("q", "").replace("out.ndjson", "q.ndjson"));
    workspace.write("pipelines/p.yaml", pipeline("first.ndjson"));
    let mut holder = workspace.start(&["run", "--pipelines.path=other"]);
    holder.wait_until("the store to be held", || workspace.lines("q.ndjson").len() == 1);
    let mut service = workspace.start(&["run", "--pipelines.watch", "--db.wait=10m"]);
    said(&mut service, "waiting for the state store");
    save(&workspace, "pipelines/p.yaml", &pipeline("second.ndjson"));
    holder.signal("TERM");
    holder.finish().expect_code(0);
    said(&mut service, "watching 1 file");
    said(&mut service, "restarted in");
    workspace.append("in.txt", "two\n");
    service.wait_until("the new text", || workspace.lines("second.ndjson").iter().any(|line| raw_after(line) == "two"));
    service.signal("INT");
    service.finish().expect_code(0);
}
