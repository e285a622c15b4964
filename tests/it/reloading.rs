//! Files of the listener that are replaced by something that cannot be read: reading goes on when they are good again.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::api::ask;
use crate::process::{Process, Workspace, file_to_file, numbered_lines};
use crate::servers::certificates::Certificates;

fn status(address: SocketAddr, token: &str) -> u16 {
    ask(address, "GET", "/v1/pipelines", &format!("Authorization: Bearer {token}\r\n"), "").status
}

fn end(process: Process) {
    process.signal("TERM");
    process.finish().expect_code(0);
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

/// A file at the place of the token whose reading never ends.
#[test]
fn what_never_ends_at_the_place_of_the_token_ends_no_reading() {
    type Put = fn(&Path);
    let all: [(&str, Put); 3] = [
        ("pipe", fifo),
        ("endless", |path| symlink("/dev/zero", path).unwrap()),
        ("loop", |path| symlink(path, path).unwrap()),
    ];
    for (what, put) in all {
        let workspace = Workspace::new();
        workspace.write("token", "first-token\n");
        let mut process = workspace.start(&["run", "--api.http.token-file=token"]);
        let address = process.address();
        let log = process.printed();
        std::fs::remove_file(workspace.path("token")).unwrap();
        put(&workspace.path("token"));
        process.signal("HUP");
        process
            .wait_until(&format!("a word about the {what}"), || log().contains("the service keeps the previous token"));
        assert_eq!(status(address, "first-token"), 200, "{what}");
        assert!(!log().contains("are read again"), "{what}: {}", log());
        std::fs::remove_file(workspace.path("token")).unwrap();
        workspace.write("token", "second-token\n");
        process.wait_until("the second token", || status(address, "second-token") == 200);
        assert_eq!(status(address, "first-token"), 401, "{what}");
        end(process);
    }
}

/// The token follows its file although the certificate cannot be read.
#[test]
fn a_pipe_at_the_place_of_the_certificate_holds_up_nothing_else() {
    let workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.self_signed("own", "own", "IP:127.0.0.1");
    for file in ["own.crt", "own.key"] {
        workspace.write("token", "first-token\n");
        let arguments =
            ["run", "--api.http.tls.cert=own.crt", "--api.http.tls.key=own.key", "--api.http.token-file=token"];
        let mut process = workspace.start(&arguments);
        let address = process.address_after("HTTP is served at https://");
        let url = format!("--api.http.address=https://{address}");
        let code = |token: &str| {
            let token = format!("--api.http.token={token}");
            workspace.run(&["pipelines", "list", &url, "--api.http.tls.ca=ca.pem", &token]).code()
        };
        std::fs::copy(workspace.path("own.crt"), workspace.path("ca.pem")).unwrap();
        let log = process.printed();
        std::fs::rename(workspace.path(file), workspace.path("kept")).unwrap();
        fifo(&workspace.path(file));
        workspace.replace("token", "second-token\n");
        process.wait_until("a word about it", || log().contains("the service keeps the previous certificate"));
        process.wait_until("the second token", || code("second-token") == Some(0));
        std::fs::rename(workspace.path("kept"), workspace.path(file)).unwrap();
        process.wait_until("the certificate", || log().contains("the certificate was read again"));
        end(process);
    }
}

/// A script that became a pipe is refused like any other text that cannot be read.
#[test]
fn a_pipe_at_the_place_of_a_script_is_refused() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1));
    let script = "      - { id: js, plugin: custom.javascript, settings: { script.path: a.js } }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", script));
    fifo(&workspace.path("a.js"));
    let said = workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both();
    assert!(said.contains("not a regular file"), "{said}");
}
