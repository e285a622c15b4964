//! What is asked on a terminal, and that nothing is asked where there is none.

use std::process::Command;

use crate::api::get;
use crate::api_lifecycle::Service;
use crate::process::{Output, Process, Workspace, file_to_file, numbered_lines, raw_after, skip};

const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/terminal.py");

/// Runs a command on a terminal, with an editor; when the question is shown, types the answer. `None` = there is no
/// Python to make a terminal with.
#[track_caller]
fn on_terminal(workspace: &Workspace, editor: &str, [question, answer]: [&str; 2], line: &[&str]) -> Option<Output> {
    if Command::new("python3").arg("--version").output().is_err() {
        skip("python3 is not installed: nothing was asked on a terminal");
        return None;
    }
    let plain = workspace.command(line);
    let mut command = Command::new("python3");
    command.args([TERMINAL, question, answer]).arg(plain.get_program()).args(plain.get_args());
    command.current_dir(workspace.root()).env_clear().env("TERM", "xterm").env("EDITOR", editor);
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Process::spawn(&mut command).finish())
}

/// Lines that end in 7 are dead letters.
fn refusing() -> String {
    let fails = r#"      - id: fail
        plugin: error
        condition: '{{ hasSuffix "7" (printf "%s" .Payload.After) }}'
        settings: { message: bad }
    dead-letter-queue: { plugin: store, window-size: 0 }
"#;
    file_to_file("orders", fails)
}

fn after_run() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(20));
    workspace.write("pipelines/p.yaml", refusing());
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 18);
    workspace
}

#[test]
fn a_letter_is_mended_in_the_editor() {
    let workspace = after_run();
    let edit = ["dlq", "replay", "orders", "1", "--edit"];
    // Nothing is changed, and the editor fails.
    let Some(same) = on_terminal(&workspace, "true", ["", ""], &edit) else { return };
    assert!(same.expect_code(0).stdout.contains("othing was"));
    let failed = on_terminal(&workspace, "false", ["", ""], &edit).unwrap().expect_code(1).stdout;
    assert!(failed.contains("false ended with"), "{failed}");
    // A line that is no longer a record is kept for another attempt.
    let broken = on_terminal(&workspace, "sed -i 's/create/creat/'", ["", ""], &edit).unwrap().expect_code(2).stdout;
    let kept = broken.split_once("--edit ").unwrap_or_else(|| panic!("{broken}")).1.split_whitespace().next().unwrap();
    let text = std::fs::read_to_string(kept).unwrap();
    assert!(text.contains("\"creat\""), "{text}");
    std::fs::remove_file(kept).unwrap();
    assert_eq!(workspace.lines("out.ndjson").len(), 18, "nothing was replayed until now");
    // The editor may be given arguments, as the shell takes them. Raw data that are text are edited as text.
    let mended = on_terminal(&workspace, "sed -i -e 's/line 7/mended/'", ["", ""], &edit).unwrap().expect_code(0);
    assert!(mended.stdout.contains("1"), "{}", mended.stdout);
    assert_eq!(raw_after(workspace.lines("out.ndjson").last().unwrap()), "mended");
    let none = workspace.run(&["dlq", "replay", "orders", "2", "--edit"]).expect_code(2).both();
    assert!(none.contains("--edit FILE"), "{none}");
}

#[test]
fn letters_are_removed_when_the_answer_is_yes() {
    let workspace = after_run();
    let purge = ["dlq", "purge", "orders", "--all"];
    const QUESTION: &str = "This cannot be undone. [y/N]";
    let none = workspace.run(&purge).expect_code(4).both();
    assert!(none.contains("2 dead letters") && none.contains("--yes") && !none.contains("[y/N]"), "{none}");
    let numbered = ["dlq", "purge", "orders", "1", "7"];
    let Some(no) = on_terminal(
        &workspace,
        "",
        ["Remove 2 dead letters of pipeline orders? This cannot be undone. [y/N]", ""],
        &numbered,
    ) else {
        return;
    };
    assert!(no.expect_code(0).stdout.contains("Nothing was removed"));
    let Some(no) = on_terminal(&workspace, "", [QUESTION, ""], &purge) else { return };
    assert!(no.expect_code(0).stdout.contains("Nothing was removed"));
    let yes = on_terminal(&workspace, "", [QUESTION, "y"], &purge).unwrap().expect_code(0).stdout;
    assert!(yes.contains("Removed 2 dead letters"), "{yes}");
    assert!(workspace.run(&["dlq", "list", "orders"]).expect_code(0).stdout.contains("no dead letters"));
}

#[test]
fn a_pipeline_is_changed_and_deleted_when_the_answer_is_yes() {
    let mut workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    let service = Service::start(&workspace);
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &service.address.to_string());
    workspace.write("new.yaml", file_to_file("p", ""));
    let apply = ["pipelines", "apply", "new.yaml"];
    let is_there = || get(service.address, "/v1/pipelines/p").status == 200;
    let none = workspace.run(&apply).expect_code(4).both();
    assert!(none.contains("--plan-hash") && !none.contains("[y/N]"), "{none}");
    let Some(no) = on_terminal(&workspace, "", ["[y/N]", "n"], &apply) else { return };
    assert!(no.stdout.contains("p:out"), "what changes is shown: {}", no.stdout);
    assert!(no.expect_code(0).stdout.contains("Nothing was changed"));
    assert!(!is_there());
    let yes = on_terminal(&workspace, "", ["[y/N]", "yes"], &apply).unwrap().expect_code(0).stdout;
    assert!(yes.contains("Applied."), "{yes}");
    assert!(is_there());

    let delete = ["pipelines", "delete", "p"];
    let runs = on_terminal(&workspace, "", ["", ""], &delete).unwrap().expect_code(2).stdout;
    assert!(runs.contains("stop the pipeline first") && !runs.contains("[y/N]"), "{runs}");
    workspace.run(&["pipelines", "stop", "p"]).expect_code(0);
    let none = workspace.run(&delete).expect_code(2).both();
    assert!(none.contains("add --yes to delete it") && !none.contains("[y/N]"), "{none}");
    let no = on_terminal(&workspace, "", ["[y/N]", "nonsense"], &delete).unwrap().expect_code(0).stdout;
    assert!(no.contains("Nothing was deleted"), "{no}");
    assert!(is_there());
    on_terminal(&workspace, "", ["[y/N]", "Y"], &delete).unwrap().expect_code(0);
    assert!(!is_there());
    service.end();
}

/// A pipeline file is never written over by chance, and nobody is asked about it.
#[test]
fn a_new_pipeline_asks_nothing() {
    let workspace = Workspace::new();
    let init = ["pipelines", "init", "fresh"];
    let Some(first) = on_terminal(&workspace, "", ["", ""], &init) else { return };
    first.expect_code(0);
    let text = workspace.read("pipelines/fresh.yaml");
    assert!(text.contains("fresh"), "{text}");
    let again = on_terminal(&workspace, "", ["", ""], &init).unwrap();
    assert!(again.stdout.contains("--force"), "{}", again.stdout);
    assert_eq!(again.code(), Some(2));
    assert_eq!(workspace.read("pipelines/fresh.yaml"), text);
}

/// Orders to a terminal, in seven and in eight bits; and what turns the direction of a line or hides in it.
const ORDERS: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\u{200b}";

/// The output has no such control sequence. Our own remain: colours, and those that draw a line again.
#[track_caller]
fn gives_no_orders(what: &str, output: &Output) {
    let mut left = output.both();
    for ours in ["\u{1b}[2K", "\u{1b}[?7l", "\u{1b}[?7h", "\r", "\n", "\t"] {
        left = left.replace(ours, "");
    }
    let mut rest = left.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        assert!(!before.contains(char::is_control), "{what}: {:?}", output.both());
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(after.len());
        assert!(after[end..].starts_with('m'), "{what}: {:?}", output.both());
        rest = &after[end + 1..];
    }
    let odd = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{200b}');
    assert!(!rest.contains(odd), "{what}: {:?}", output.both());
}

/// Whatever a record, a file or an error of a record says, the terminal only shows it.
#[test]
fn records_give_the_terminal_no_orders() {
    let workspace = Workspace::new();
    workspace.write("in.txt", format!("line {ORDERS} 7\nline {ORDERS} 8\n"));
    let to_the_log = "  - id: shown\n    connectors:\n      - { id: in, type: source, plugin: file, settings: { path: in.txt } }\n      \
         - { id: out, type: destination, plugin: log }\n";
    let says = r#"settings: { message: 'bad {{ printf "%s" .Payload.After }}' }"#;
    let file = refusing().replace("settings: { message: bad }", says);
    workspace.write("pipelines/p.yaml", format!("{file}{to_the_log}"));
    let Some(ran) = on_terminal(&workspace, "", ["", ""], &["run", "--once"]) else { return };
    gives_no_orders("run --once", &ran);
    assert!(ran.stdout.contains("1 dead-lettered"), "{}", ran.stdout);
    let commands: [&[&str]; 9] = [
        &["dlq", "list", "orders"],
        &["dlq", "show", "orders", "1"],
        &["dlq", "show", "orders", "1", "--json"],
        &["dlq", "replay", "orders", "1"],
        &["pipelines", "list"],
        &["pipelines", "describe", "orders"],
        &["pipelines", "dry-run"],
        &["pipelines", "dry-run", "--json"],
        &["template", "eval", "\u{1b}[2J\u{9b}2J\u{202e}{{ 1 }}"],
    ];
    for command in commands {
        let output = on_terminal(&workspace, "", ["", ""], command).unwrap();
        gives_no_orders(&command.join(" "), &output);
        assert!(!output.stdout.trim().is_empty(), "{command:?}");
    }
    // The default queue: the first failure ends the pipeline, and its words are the last line.
    workspace.write("pipelines/p.yaml", file.replace("    dead-letter-queue: { plugin: store, window-size: 0 }\n", ""));
    workspace.append("in.txt", &format!("line {ORDERS} 97\n"));
    let ended = on_terminal(&workspace, "", ["", ""], &["run", "--once"]).unwrap().expect_code(1);
    gives_no_orders("run --once that fails", &ended);
    assert!(ended.stdout.contains("degraded: orders"), "{}", ended.stdout);
    gives_no_orders("list", &on_terminal(&workspace, "", ["", ""], &["pipelines", "list"]).unwrap());

    workspace.write("bad.yaml", "version: \"2.2\"\npipelines:\n  - id: \"a\\e[2J\\u202Eb\"\n    \"x\\e]0;t\\ay\": 1\n");
    for command in [&["pipelines", "validate", "bad.yaml"][..], &["pipelines", "validate", "bad.yaml", "--json"]] {
        let output = on_terminal(&workspace, "", ["", ""], command).unwrap();
        gives_no_orders(&command.join(" "), &output);
        assert!(output.stdout.contains("bad.yaml"), "{}", output.stdout);
    }
}

/// All that is printed goes through `terminal` of `src/process`, or as lines of the log through its `log/output.rs`.
#[test]
fn there_is_one_way_to_the_terminal() {
    fn sources(directory: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut found = Vec::new();
    sources(root, &mut found);
    assert!(found.len() > 100, "the sources are there");
    let mut others = Vec::new();
    for path in found.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if name.starts_with("process/src/terminal/")
            || ["process/src/log/output.rs", "process/src/log/line.rs"].contains(&name.as_str())
        {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let prints = |line: &&str| {
            let line = line.replace("use_stderr()", "");
            ["stdout()", "stderr()", "println!(", "print!(", "dbg!(", "\"\\x1b["].iter().any(|way| line.contains(way))
        };
        others.extend(text.lines().filter(prints).map(|line| format!("{name}: {line}")));
    }
    assert!(others.is_empty(), "print with anabranch_process::terminal:\n{}", others.join("\n"));
}

/// Records of fifteen seconds, a hundred each second: long enough for several looks, also where a core is taken for seconds.
fn slow() -> Workspace {
    let workspace = Workspace::new();
    let source = "plugin: generator\n        settings:\n          format.type: raw\n          \
                  format.options.id: int\n          operations: create\n          rate: 100\n          recordCount: 1500";
    let text = file_to_file("p", "").replace("plugin: file\n        settings:\n          path: in.txt", source);
    workspace.write("pipelines/p.yaml", text);
    workspace
}

/// The status lines that a terminal was shown, and all lines that stayed on it.
fn drawn(shown: &str) -> (Vec<String>, Vec<String>) {
    const ERASE: &str = "\r\u{1b}[2K";
    let mut status = Vec::new();
    let mut stayed = String::new();
    for part in shown.split(ERASE) {
        match part.rsplit_once("\u{1b}[?7l") {
            Some((before, line)) => {
                stayed += before;
                status.push(line.trim_end_matches("\u{1b}[?7h").to_owned());
            }
            None => stayed += part,
        }
    }
    (status, stayed.lines().map(str::to_owned).collect())
}

#[test]
fn progress_on_a_terminal_has_count_share_and_time_and_leaves_nothing_behind() {
    let workspace = slow();
    let once = ["run", "--once"];
    let Some(output) = on_terminal(&workspace, "", ["", ""], &once) else { return };
    let shown = output.expect_code(0).stdout;
    let (status, stayed) = drawn(&shown);
    let is_whole = |line: &&String| line.contains(" records read, ") && line.contains(" %, ") && line.contains("left");
    assert!(status.iter().filter(is_whole).count() >= 3, "{status:?}");
    let share = |line: &String| -> Option<f64> { line.split(" %").next()?.rsplit(' ').next()?.parse().ok() };
    let shares: Vec<f64> = status.iter().filter_map(share).collect();
    assert!(shares.iter().any(|share| (20.0..90.0).contains(share)), "{status:?}");
    assert!(stayed.iter().all(|line| !line.contains("records/s")), "it stays on the screen: {stayed:?}");
    assert!(stayed.last().unwrap().starts_with("p finished: 1500 records read"), "{stayed:?}");
    assert!(shown.contains("\u{1b}[32m"), "without colour: {shown}");

    // NO_COLOR takes the colour and leaves the line.
    let mut workspace = slow();
    workspace.env("NO_COLOR", "1");
    let shown = on_terminal(&workspace, "", ["", ""], &once).unwrap().expect_code(0).stdout;
    let (status, stayed) = drawn(&shown);
    assert!(status.iter().filter(is_whole).count() >= 3, "{status:?}");
    assert!(!stayed.concat().contains('\u{1b}') && !status.concat().contains('\u{1b}'), "{shown:?}");
}

#[test]
fn progress_as_json_is_objects_only() {
    // On a terminal too, nothing is drawn between the objects.
    let workspace = slow();
    let once = ["run", "--once", "--json"];
    let on_terminal = on_terminal(&workspace, "", ["", ""], &once).map(|output| output.expect_code(0).stdout);
    let in_pipe = slow().run(&once).expect_code(0).stdout;
    for shown in on_terminal.iter().chain([&in_pipe]) {
        let objects: Vec<serde_json::Value> =
            shown.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}"))).collect();
        let progress: Vec<_> = objects.iter().filter(|object| !object["percent"].is_null()).collect();
        for object in &progress {
            let number = |name: &str| object[name].as_f64().unwrap_or_else(|| panic!("{name}: {object}"));
            assert!((0.0..=100.0).contains(&number("percent")) && object["pipeline"] == "p", "{object}");
            assert!(number("settled") <= number("read") && number("read") <= 1500.0, "{object}");
        }
        // One that was written in the middle: nothing was read at the start of a slow machine.
        let is_half_way = |object: &&serde_json::Value| {
            let number = |name: &str| object[name].as_f64().unwrap_or_default();
            number("percent") > 0.0 && number("percent") < 100.0 && number("read") > 0.0 && number("seconds_left") > 0.0
        };
        assert!(progress.iter().copied().any(|object| is_half_way(&object)), "{shown}");
        assert_eq!(objects.last().unwrap()["command"], "run");
    }
}
