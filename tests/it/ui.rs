//! The web interface, used in a real browser.

use std::io::{Write as _, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::api::{ask, get};
use crate::process::{Process, Workspace, numbered_lines, skip};

const BROWSER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui");

/// Text that is markup unless it is escaped.
const MARKUP: &str = "<img src=x onerror=alert(1)></script>";

/// A script that drives a browser; `None` = what it needs is not there.
fn script(name: &str, address: SocketAddr, workspace: &Workspace) -> Option<Command> {
    let browser = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    for (what, path) in
        [("Chromium", Path::new(&browser)), ("playwright-core", &Path::new(BROWSER).join("node_modules"))]
    {
        if !path.exists() {
            skip(&format!("{what} is not installed; .ci/setup installs it"));
            return None;
        }
    }
    let mut command = Command::new("node");
    command.arg(format!("{BROWSER}/{name}.mjs")).arg(format!("http://{address}")).arg(workspace.root());
    Some(command)
}

/// Runs a script to its end, which must be a good one.
#[track_caller]
fn browse(name: &str, service: &mut Process, workspace: &Workspace) {
    browse_with(name, &[], service, workspace);
}

#[track_caller]
pub fn browse_with(name: &str, arguments: &[&str], service: &mut Process, workspace: &Workspace) {
    let address = service.address();
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    let Some(mut command) = script(name, address, workspace) else { return };
    command.args(arguments);
    let output = Process::spawn(&mut command).finish();
    print!("{}", output.stdout);
    output.expect_code(0);
}

/// Follows a file of JSON lines; some of the records are large. Failed records are kept.
fn orders(workspace: &Workspace) {
    workspace.write("in.ndjson", "{\"order\":0,\"amount\":10}\n");
    workspace.write(
        "pipelines/orders.yaml",
        r#"version: "2.2"
pipelines:
  - id: orders
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.ndjson } }
      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson } }
    processors:
      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: large, plugin: field.set, condition: '{{ gt (len .Metadata) 0 }}', settings: { field: .Metadata.size, value: large } }
    dead-letter-queue: { plugin: store, window-size: 0 }
"#,
    );
}

#[test]
fn a_pipeline_is_watched_mended_stopped_and_started() {
    let workspace = Workspace::new();
    orders(&workspace);
    browse("operate", &mut workspace.start(&["run"]), &workspace);
}

#[test]
fn everybody_can_use_it_on_every_screen() {
    let workspace = Workspace::new();
    orders(&workspace);
    browse("reach", &mut workspace.start(&["run"]), &workspace);
}

#[test]
fn the_description_of_the_api_is_read_and_tried() {
    const TOKEN: &str = "a-token-of-the-test";
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", TOKEN);
    orders(&workspace);
    browse_with("description", &[TOKEN], &mut workspace.start(&["run"]), &workspace);
}

#[test]
fn markup_is_shown_as_text() {
    let workspace = Workspace::new();
    workspace.write("in.txt", format!("{MARKUP}\n"));
    workspace.write(
        "pipelines/hostile.yaml",
        format!(
            r#"version: "2.2"
pipelines:
  - id: hostile
    name: "{MARKUP}"
    description: "{MARKUP} invoice\u202Etxt.exe\u2066"
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - id: tag
        plugin: field.set
        condition: '{{{{ ne .Metadata.kind "{MARKUP}" }}}}'
        settings: {{ field: .Metadata.tag, value: "{MARKUP}" }}
      - {{ id: refuse, plugin: error, settings: {{ message: "{MARKUP}" }} }}
    dead-letter-queue: {{ plugin: store, window-size: 0 }}
"#
        ),
    );
    browse("hostile", &mut workspace.start(&["run"]), &workspace);
}

#[test]
fn a_hundred_pipelines_and_sixty_nodes_stay_fluid() {
    let workspace = Workspace::new();
    for i in 0..100 {
        workspace.write(
            &format!("pipelines/p{i}.yaml"),
            format!(
                "version: \"2.2\"\npipelines:\n  - id: orders-{i}\n    connectors:\n      \
                 - {{ id: in, type: source, plugin: generator, settings: {{ rate: 5, format.type: raw, \
                 format.options.id: int, operations: create }} }}\n      \
                 - {{ id: out, type: destination, plugin: file, settings: {{ path: out-{i}.ndjson }} }}\n"
            ),
        );
    }
    for i in 0..4 {
        workspace.write(&format!("source-{i}.txt"), numbered_lines(1000));
    }
    workspace.write("pipelines/sixty.yaml", crate::drawing::sixty());
    browse("fluid", &mut workspace.start(&["run"]), &workspace);
}

/// Connections are handed on to where the service is at the moment, and closed where it is nowhere.
fn door() -> (SocketAddr, Arc<Mutex<Option<SocketAddr>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let to = Arc::<Mutex<Option<SocketAddr>>>::default();
    let behind = to.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Some(Ok(server)) = behind.lock().unwrap().map(TcpStream::connect) else { continue };
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                std::thread::spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                    let _ = from.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, to)
}

#[test]
fn the_page_asks_for_the_token_and_outlives_the_service() {
    const TOKEN: &str = "a-token-of-the-test";
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", TOKEN);
    orders(&workspace);
    let (address, behind) = door();
    let Some(mut command) = script("gone", address, &workspace) else { return };
    let mut service = workspace.start(&["run"]);
    *behind.lock().unwrap() = Some(service.address());
    let mut browser = Process::spawn(command.arg(TOKEN).stdin(Stdio::piped()));
    let mut answers = browser.stdin();

    browser.wait_for_line("stop");
    *behind.lock().unwrap() = None;
    service.signal("TERM");
    service.finish().expect_code(0);
    answers.write_all(b"done\n").unwrap();

    browser.wait_for_line("start");
    let mut service = workspace.start(&["run"]);
    *behind.lock().unwrap() = Some(service.address());
    answers.write_all(b"done\n").unwrap();
    browser.finish().expect_code(0);
}

#[test]
fn the_page_is_served_whole_and_to_everybody() {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "a-token-of-the-test");
    orders(&workspace);
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    let page = get(address, "/");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.body.contains("<style") && !page.body.contains("style=") && !page.body.contains("<script>"));
    let named: Vec<&str> = page.body.split('"').filter(|text| text.starts_with("/ui/")).collect();
    assert!(named.len() >= 3, "{named:?}");
    for path in named {
        let file = get(address, path);
        assert_eq!((file.status, file.header("x-content-type-options")), (200, Some("nosniff")), "{path}");
        let tag = format!("If-None-Match: {}\r\n", file.header("etag").unwrap());
        let again = ask(address, "GET", path, &tag, "");
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
    }
    assert_eq!(get(address, "/v1/pipelines").status, 401, "the page may be had without the token, and nothing else");
    for path in ["/ui/", "/ui/../Cargo.toml", "/ui/%2e%2e/Cargo.toml", "/ui/index.html", "/ui/api.js/x"] {
        assert!(matches!(get(address, path).status, 401 | 404), "{path}");
    }
    assert_eq!(ask(address, "POST", "/", "", "").status, 405);
    drop(service);

    let workspace = Workspace::new();
    orders(&workspace);
    let mut service = workspace.start(&["run", "--api.http.ui.enabled=false"]);
    let address = service.address();
    assert_eq!((get(address, "/").status, get(address, "/ui/main.js").status), (404, 404));
}

#[test]
fn the_scripts_of_the_page_are_typed() {
    let compiler = Path::new(BROWSER).join("node_modules/.bin/tsc");
    if !compiler.exists() {
        return skip("TypeScript is not installed; .ci/setup installs it");
    }
    let mut command = Command::new(compiler);
    Process::spawn(command.arg("-p").arg(BROWSER)).finish().expect_code(0);
}
