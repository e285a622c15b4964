//! Every command that the documentation shows, run as it stands there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;

use crate::api::get;
use crate::docs::below;
use crate::process::{Process, Workspace, file_to_file, numbered_lines, write_program};

/// Pages whose commands are run by a test.
const RUN: [(&str, &str); 12] = [
    ("README.md", "here"),
    ("docs/tutorial.md", "here"),
    ("docs/connectors.md", "here"),
    ("docs/guarantees.md", "here"),
    ("docs/inspect.md", "here"),
    ("docs/mcp.md", "here"),
    ("docs/operations.md", "here"),
    ("docs/runbooks.md", "here"),
    ("docs/dead-letters.md", "letters.rs"),
    ("examples/orders-over-http/README.md", "examples.rs"),
    ("docs/write-a-connector.md", "../../sdk/connector/tests/page.rs"),
    ("docs/testing-pipelines.md", "pipeline_tests.rs"),
];

/// Commands that cannot be run as they stand, and why.
const NOT_RUN: [(&str, &str); 62] = [
    ("cargo run --profile simulate -p anabranch-sim -- --seconds 60", RELEASE),
    ("cargo run --profile simulate -p anabranch-sim -- --seed N", RELEASE),
    ("cargo run --profile simulate -p anabranch-sim -- --race --seconds 60", RELEASE),
    ("ANABRANCH_KILLS=1000 cargo test --test it -- --nocapture killed_again what_is_acknowledged", OF_TESTS),
    ("cargo run --release -p anabranch-bench", RELEASE),
    ("ANABRANCH_BENCH_RECORD=1 cargo test -p anabranch-bench --test instructions", OF_TESTS),
    ("cargo run --release -p anabranch-bench -- w1 w9", RELEASE),
    ("cargo run --release -p anabranch-bench -- --no-instructions --against ../before/anabranch w1 chain", RELEASE),
    ("cargo bench -p anabranch-bench", RELEASE),
    ("cargo bench -p anabranch-bench --bench operators", RELEASE),
    ("cargo bench -p anabranch-bench --bench tables", RELEASE),
    ("cargo bench -p anabranch-bench --bench mapping", RELEASE),
    ("cargo test -p anabranch-bench --test instructions", OF_TESTS),
    ("cargo new --lib my-anabranch", CONNECTOR),
    ("cargo test", CONNECTOR),
    (".ci/setup", ROOT),
    (".ci/run", CHECK),
    ("cargo build", CHECK),
    ("cargo test -p anabranch-graph ack::", CHECK),
    ("cargo test -p anabranch --test it outage::", CHECK),
    ("cargo clippy --workspace --all-targets --locked -- -D warnings", CHECK),
    ("cargo fmt --all", CHECK),
    (".ci/fuzz", NIGHTLY),
    ("OPT_LEVEL=3 .ci/fuzz 3600 template plan", NIGHTLY),
    ("./run.sh", DOCUMENTS),
    ("./run.sh --check", DOCUMENTS),
    ("./run.sh --broker", KAFKA),
    ("export KAFKA_SERVERS=broker-1:9092,broker-2:9092", BROKERS),
    ("anabranch run --pipelines ./pipeline.yaml", BROKERS),
    (
        "export SOURCE_URL=postgresql://user:password@source/shop COPY_URL=postgresql://user:password@copy/shop",
        DATABASES,
    ),
    ("export SOURCE_POSTGRES_URL=postgresql://user:password@source/shop", DATABASES),
    ("anabranch pipelines init --template postgres-to-file", DATABASES),
    ("anabranch pipelines backfill shop orders --table sales.invoices", DATABASES),
    ("anabranch pipelines init --template kafka-to-kafka", BROKERS),
    ("anabranch doctor --check pipelines.connectors", BROKERS),
    ("anabranch positions reset shop --yes", BROKERS),
    ("kafka-consumer-groups.sh --bootstrap-server broker-1:9092 --group shop \\", BROKERS),
    ("--topic orders --reset-offsets --to-datetime 2026-11-01T00:00:00.000 --execute", BROKERS),
    ("ANABRANCH_SOAK=600 cargo test --test it -- --nocapture kafka::chaos", OF_TESTS),
    ("ANABRANCH_KILLS=100 cargo test --test it -- --nocapture kafka::kills", OF_TESTS),
    (". ./env.sh", DOCUMENTS),
    ("anabranch run --preview.pipeline-arch-v2 --pipelines ./pipeline.yaml", DOCUMENTS),
    ("curl -s \"http://connect:8083/connectors?expand=info\" > connectors.json", CONNECT),
    ("anabranch migrate kafka-connect connectors.json --worker connect-distributed.properties --dry-run", CONNECT),
    ("anabranch migrate kafka-connect connectors.json --worker connect-distributed.properties", CONNECT),
    ("anabranch migrate conduit my-conduit --to my-anabranch --dry-run", CONNECT),
    ("anabranch migrate conduit my-conduit --to my-anabranch", CONNECT),
    (
        "anabranch run --once --pipelines ./pipeline.yaml",
        "runs in the directory of the example; examples.rs does the same",
    ),
    ("python3 -m venv /opt/taps/mysql", TAPS),
    ("/opt/taps/mysql/bin/pip install pipelinewise-tap-mysql", TAPS),
    ("anabranch connectors discover shop", TAPS),
    ("cargo deb", RELEASE),
    ("sudo apt install ./target/debian/anabranch_*.deb", ROOT),
    ("sudo systemctl enable --now anabranch", ROOT),
    ("anabranch backup --config.path /etc/anabranch/anabranch.yaml --to /var/backups/anabranch.db", INSTALLED),
    ("anabranch store copy --to '${CLUSTER_URL}'", COPIED),
    ("anabranch store copy --to anabranch.db", COPIED),
    ("anabranch cluster apply pipelines", "needs a cluster; cluster/applied.rs applies sets of files"),
    ("pg_dump --table 'anabranch_kv_store*' --file anabranch.sql \"$CONNECTION\"", INSTALLED),
    ("journalctl -u anabranch -f", ROOT),
    ("docker build -f packaging/Dockerfile -t anabranch .", ROOT),
    (
        "docker run -p 127.0.0.1:8080:8080 -v ./pipelines:/etc/anabranch/pipelines:ro -v anabranch:/var/lib/anabranch -e ANABRANCH_API_HTTP_TOKEN anabranch",
        ROOT,
    ),
];
const RELEASE: &str = "compiles everything with optimizations, which takes minutes";
const OF_TESTS: &str = "runs tests, of which this is one";
const CHECK: &str = "is the check or a part of it, and so is this test";
const NIGHTLY: &str = "needs another compiler; .ci/run runs it for a short while";
const CONNECTOR: &str = "makes and tests a project; sdk/connector is that project, and a member of this workspace";
const DOCUMENTS: &str = "needs PostgreSQL and an S3 server; documents.rs does the same with those that it starts";
const KAFKA: &str = "waits for Ctrl+C; kafka.rs runs the script with --check";
const BROKERS: &str = "needs brokers of the reader; kafka/visible.rs does the same with the broker of the tests";
const DATABASES: &str = "needs databases of the reader; cdc/visible.rs does the same with those of the tests";
const CONNECT: &str = "needs a configuration of the reader; migrate.rs does the same with those of the tests";
const TAPS: &str = "needs a tap and a database of the reader; singer/real.rs does the same with those of the tests";
const COPIED: &str = "needs a cluster; cluster/copied.rs copies in both directions";
const INSTALLED: &str = "needs an installed service; store.rs makes and restores a backup";
const ROOT: &str = "changes the machine; packages.rs looks at what it would do";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Pages for people, below the root.
fn pages() -> Vec<String> {
    let mut pages = below(&root().join("docs"), ".md");
    pages.extend(below(&root().join("examples"), ".md"));
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "bench/README.md", "fuzz/README.md"]
            .map(|page| root().join(page)),
    );
    pages.iter().map(|page| page.strip_prefix(root()).unwrap().to_string_lossy().into_owned()).collect()
}

fn text(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// A fenced block: the word after the opening fence, and the lines.
fn fenced(page: &str) -> Vec<(String, String)> {
    let text = text(page);
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(word), None) => open = Some((word.to_owned(), String::new())),
            (None, Some((_, lines))) => lines.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block has no end");
    blocks
}

/// The command of a line, without what is said of it.
fn command(line: &str) -> &str {
    line.split(" #").next().unwrap().trim()
}

fn is_run(line: &str) -> bool {
    !NOT_RUN.iter().any(|(shown, _)| *shown == command(line))
}

/// The commands of a page, block by block, in order.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    for (word, lines) in fenced(page) {
        let kept = |line: &&str| is_run(line);
        let block: String = match word.as_str() {
            "sh" => lines.lines().filter(kept).map(|line| format!("{line}\n")).collect(),
            "console" => {
                lines.lines().filter_map(|line| line.strip_prefix("$ ")).map(|line| format!("{line}\n")).collect()
            }
            _ => continue,
        };
        if !block.trim().is_empty() {
            blocks.push(block);
        }
    }
    blocks
}

#[test]
fn no_command_is_left_out() {
    let looks_like_one = Regex::new(r"^(\$ )?((anabranch|cargo|sudo|docker|curl)( [^=]|$)|\./|[A-Z_]+=\S+ )").unwrap();
    let mut found = BTreeSet::new();
    for page in pages() {
        let is_run_somewhere = RUN.iter().any(|(run, _)| *run == page);
        for (word, lines) in fenced(&page) {
            for line in lines.lines().filter(|line| !line.trim().is_empty()) {
                match word.as_str() {
                    "sh" | "console" => {
                        let line = line.strip_prefix("$ ").unwrap_or(line);
                        assert!(is_run_somewhere || !is_run(line), "{page}: no test runs {line:?}");
                        found.insert(command(line).to_owned());
                    }
                    _ => assert!(!looks_like_one.is_match(line), "{page}: a command in a block of {word}: {line}"),
                }
            }
        }
    }
    for (line, _) in NOT_RUN {
        assert!(found.contains(line), "no page shows {line:?} any more");
    }
    for (page, by) in RUN {
        assert!(!blocks(page).is_empty() || page == "docs/guarantees.md", "{page} shows no command");
        let test =
            fs::read_to_string(root().join("tests/it").join(if by == "here" { "commands.rs" } else { by })).unwrap();
        assert!(test.contains(page), "{by} does not run {page}");
    }
}

/// Commands in sentences of the documentation, and in the advice that the program gives: there is such a command, and it
/// knows such flags.
#[test]
fn commands_in_sentences_exist() {
    let span = Regex::new(r"`anabranch ([^`]+)`").unwrap();
    let word = Regex::new(r"^[a-z][a-z-]*$").unwrap();
    let mut commands: BTreeSet<(Vec<String>, BTreeSet<String>)> = BTreeSet::new();
    let sources = below(&root().join("src"), ".rs").into_iter().chain(below(&root().join("ui"), ".js"));
    let shown = pages().into_iter().chain(["llms.txt", "llms-full.txt"].map(str::to_owned)).map(|page| text(&page));
    for text in shown.chain(sources.map(|path| fs::read_to_string(path).unwrap())) {
        for found in span.captures_iter(&text) {
            // Of a pipe, the first command.
            let whole = found.get(1).unwrap().as_str();
            let words: Vec<&str> = whole.split(" | ").next().unwrap_or(whole).split_whitespace().collect();
            let path = words.iter().take_while(|part| word.is_match(part)).map(|&part| part.to_owned()).collect();
            let flags = words.iter().filter(|part| part.starts_with("--") && part.len() > 2);
            let flags = flags.map(|flag| flag.split('=').next().unwrap().to_owned()).collect();
            commands.insert((path, flags));
        }
    }
    assert!(commands.len() > 30, "{commands:?}");
    let workspace = Workspace::new();
    for (path, flags) in commands {
        let arguments: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = workspace.run(&arguments).expect_code(0).stdout;
        for flag in flags {
            assert!(help.contains(&flag), "anabranch {}: there is no {flag}", path.join(" "));
        }
    }
}

/// Programs that stand before others in the path: commands that go on until Ctrl+C get one once they have shown what they
/// are for, as from a person; and what the reader compiles is what was compiled for the tests.
fn stand_ins() -> tempfile::TempDir {
    let bin = tempfile::tempdir().unwrap();
    let real = env!("CARGO_BIN_EXE_anabranch");
    write_program(
        &bin.path().join("anabranch"),
        &format!(
            r#"#!/bin/bash
case "$*" in
  *--limit*|*--once*) exec {real} "$@" ;;
  quickstart|run) wanted=scheduledDeparture ;;
  run*) wanted='HTTP is served at' ;;
  *inspect*) wanted='^{{.*}}$' ;;
  "mcp --http"*) wanted='MCP is served at' ;;
  *) exec {real} "$@" ;;
esac
set -m
shown=$(mktemp -p "{bin}")
{real} "$@" >"$shown" &
for _ in {{1..2400}}; do
  if grep -q "$wanted" "$shown" || ! kill -0 $! 2>/dev/null; then break; fi
  sleep 0.05
done
kill -s INT $! 2>/dev/null
wait $!
code=$?
cat "$shown"
exit $code
"#,
            bin = bin.path().display()
        ),
    );
    write_program(
        &bin.path().join("cargo"),
        r#"#!/bin/bash
case "$1" in
  run) while [ "$1" != -- ]; do shift; done; shift; exec anabranch "$@" ;;
  test) exit 0 ;;
  *) exit 9 ;;
esac
"#,
    );
    bin
}

/// Runs them one after the other in the directory, and gives what each printed.
#[track_caller]
fn run(blocks: &[String], workspace: &Workspace, address: &str) -> Vec<String> {
    let bin = stand_ins();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let mut outputs = Vec::new();
    for block in blocks {
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", block]).current_dir(workspace.root()).stdin(Stdio::null());
        shell.env("ANABRANCH_API_HTTP_ADDRESS", address).env("PATH", &path);
        let output = Process::spawn(&mut shell).finish();
        assert!(output.status.success(), "{block}\n{}\n{}", output.status, output.both());
        outputs.push(output.stdout);
    }
    outputs
}

/// In an empty directory, with ports that the system chooses.
#[track_caller]
fn run_afresh(blocks: &[String]) -> (Workspace, Vec<String>) {
    let workspace = Workspace::new();
    fs::remove_dir(workspace.path("pipelines")).unwrap();
    let outputs = run(blocks, &workspace, "127.0.0.1:0");
    (workspace, outputs)
}

#[test]
fn every_command_works() {
    let blocks = blocks("README.md");
    assert_eq!(blocks.iter().filter(|b| b.starts_with("cargo ")).count(), 2, "two set-up commands");
    assert!(blocks.len() >= 4);
    let (workspace, outputs) = run_afresh(&blocks);
    assert!(outputs[0].contains("scheduledDeparture"), "the demo shows records: {}", outputs[0]);
    let items = outputs.last().unwrap();
    assert_eq!(items.lines().filter(|l| l.contains("\"cheap\":\"yes\"")).count(), 2, "{items}");
    assert_eq!(workspace.lines("items.ndjson").len(), 3);
}

#[test]
fn every_command_of_the_tutorial_works() {
    let blocks = blocks("docs/tutorial.md");
    assert!(blocks.len() >= 8);
    let (workspace, outputs) = run_afresh(&blocks);
    assert!(outputs[0].contains("scheduledDeparture"), "the demo shows records: {}", outputs[0]);
    let items = workspace.lines("items.ndjson");
    assert_eq!(items.len(), 4, "each item once, over all runs: {items:?}");
    assert_eq!(items.iter().filter(|line| line.contains("\"cheap\":\"yes\"")).count(), 2, "{items:?}");
    let letters = workspace.lines("failed.ndjson");
    assert_eq!(letters.len(), 1, "{letters:?}");
}

#[test]
fn connectors_are_listed_and_described() {
    // NAME is the reader's.
    let blocks: Vec<String> = blocks("docs/connectors.md").iter().map(|block| block.replace("NAME", "file")).collect();
    let (_, outputs) = run_afresh(&blocks);
    assert!(outputs[0].contains("generator") && outputs[0].contains("path"), "{outputs:?}");
}

#[test]
fn the_server_for_assistants_listens() {
    let blocks = blocks("docs/mcp.md");
    let workspace = Workspace::new();
    workspace.write("token", "secret-of-the-test\n");
    // Another program may have the port.
    let freely: Vec<String> = blocks.iter().map(|block| block.replace("127.0.0.1:8090", "127.0.0.1:0")).collect();
    assert_ne!(blocks, freely);
    let outputs = run(&freely, &workspace, "127.0.0.1:0");
    assert!(outputs[0].contains("MCP is served at http://127.0.0.1:"), "{outputs:?}");
    // And as clients that start programs are told to.
    let (_, configuration) = fenced("docs/mcp.md").into_iter().find(|(word, _)| word == "json").unwrap();
    let configuration: serde_json::Value = serde_json::from_str(&configuration).unwrap();
    let server = &configuration["mcpServers"]["anabranch"];
    let arguments: Vec<&str> = server["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(server["command"], "anabranch");
    workspace.run(&arguments).expect_code(0);
}

/// A service whose pipeline `orders` has always something to do.
struct Busy {
    workspace: Workspace,
    service: Process,
    address: String,
}

impl Busy {
    #[track_caller]
    fn start() -> Self {
        let workspace = Workspace::new();
        workspace.write(
            "pipelines/orders.yaml",
            r#"version: "2.2"
pipelines:
  - id: orders
    connectors:
      - id: shop
        type: source
        plugin: generator
        settings: { rate: "200", format.type: structured, format.options.id: int, operations: create }
      - { id: orders-db, type: destination, plugin: file, settings: { path: out.ndjson } }
    processors:
      - { id: tenant, plugin: field.set, settings: { field: .Metadata.tenant, value: "7" } }
      - { id: upper, plugin: field.set, settings: { field: .Metadata.upper, value: "yes" } }
    dead-letter-queue: { plugin: store, window-size: 0 }
"#,
        );
        let mut service = workspace.start(&["run"]);
        let address = service.address();
        service.wait_until("readiness", || get(address, "/readyz").status == 200);
        service.wait_until("records", || !workspace.read("out.ndjson").is_empty());
        Busy { workspace, service, address: address.to_string() }
    }

    #[track_caller]
    fn run(&self, blocks: &[String]) -> Vec<String> {
        run(blocks, &self.workspace, &self.address)
    }

    fn end(self) {
        self.service.signal("TERM");
        self.service.finish().expect_code(0);
    }
}

#[test]
fn records_on_their_way_are_looked_at() {
    let busy = Busy::start();
    let lines = blocks("docs/inspect.md").concat();
    let outputs = busy.run(&lines.lines().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(outputs.len(), 3);
    for shown in &outputs[..2] {
        assert!(shown.lines().all(|line| line.starts_with('{')) && !shown.is_empty(), "{shown}");
    }
    assert!(!outputs[1].contains("\"upper\""), "before that step: {}", outputs[1]);
    assert_eq!(busy.workspace.lines("ten.ndjson").len(), 10);
    busy.end();
}

#[test]
fn a_service_is_looked_after() {
    let busy = Busy::start();
    let mut blocks = blocks("docs/operations.md");
    let reachable = blocks.pop().unwrap();
    let all = busy.run(&blocks).concat();
    for shown in ["orders", "records", "orders-db", "upper"] {
        assert!(all.contains(shown), "{shown}: {all}");
    }
    busy.end();
    // Another program may have the port, and a test is nobody that other machines reach.
    let freely = reachable.replace("0.0.0.0:8080", "127.0.0.1:0");
    assert_ne!(reachable, freely);
    let workspace = Workspace::new();
    run(&[freely], &workspace, "127.0.0.1:0");
    assert!(workspace.lines("token")[0].len() >= 32, "a token that nobody guesses");
    let mode = fs::metadata(workspace.path("token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn the_runbooks_do_what_they_say() {
    let [copy, export, import, check] = &blocks("docs/runbooks.md")[..] else { panic!("four commands") };
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/orders.yaml", file_to_file("orders", ""));
    workspace.once();
    workspace.write("pipelines/orders.yaml", file_to_file("orders", "").replace("- id: in\n", "- id: lines\n"));
    run(std::slice::from_ref(copy), &workspace, "127.0.0.1:0");
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 3, "each line once under the new id");

    run(std::slice::from_ref(export), &workspace, "127.0.0.1:0");
    let there = Workspace::new();
    for name in ["in.txt", "pipelines/orders.yaml", "positions.json"] {
        there.write(name, workspace.read(name));
    }
    let stopped = there.read("pipelines/orders.yaml").replace("status: running", "status: stopped");
    there.write("pipelines/orders.yaml", stopped);
    let mut service = there.start(&["run"]);
    let address = service.address();
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    run(std::slice::from_ref(import), &there, &address.to_string());
    let positions = get(address, "/v1/pipelines/orders/positions").json();
    assert_eq!(positions["positions"][0]["connector"], "lines", "{positions}");
    there.write("desired/orders.yaml", there.read("pipelines/orders.yaml"));
    run(std::slice::from_ref(check), &there, &address.to_string());
    service.signal("TERM");
    service.finish().expect_code(0);
}
