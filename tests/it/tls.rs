//! The HTTP listener over TLS, and commands that ask it there.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::process::{PATIENCE, Workspace, file_to_file, numbered_lines};
use crate::servers::certificates::Certificates;

const TOKEN: &str = "--api.http.token=secret-of-the-test";

#[test]
fn commands_ask_a_service_over_tls() {
    let workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.sign("server", "anabranch", "DNS:localhost");
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let own = ["--api.http.tls.cert=server.crt", "--api.http.tls.key=server.key"];
    let mut process = workspace.start(&[&["run", TOKEN][..], &own].concat());
    let address = process.address_after("HTTP is served at https://");
    let (port, authority) = (address.port(), "--api.http.tls.ca=ca.crt");
    let by_name = format!("--api.http.address=https://localhost:{port}");
    process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    let list = |arguments: &[&str]| workspace.run(&[&["pipelines", "list", TOKEN], arguments].concat());

    let listed = list(&[&by_name, authority]).expect_code(0).stdout;
    assert!(listed.contains("\np ") || listed.contains("\n p "), "{listed}");
    // With the settings of the service itself: by whatever name it is reached.
    list(&[&format!("--api.http.address=127.0.0.1:{port}"), own[0], own[1]]).expect_code(0);
    // A websocket.
    let mut inspecting = workspace.start(&["pipelines", "inspect", "p", "--limit=1", TOKEN, &by_name, authority]);
    process.wait_until("a record to be seen", || {
        workspace.append("in.txt", "one more\n");
        !inspecting.is_running()
    });
    assert_eq!(inspecting.finish().expect_code(0).stdout.lines().count(), 1);

    // Whom nobody vouches for, or who has another name, is not given the token.
    for arguments in [&[&*by_name][..], &[&format!("--api.http.address=https://127.0.0.1:{port}"), authority]] {
        let refused = list(arguments).expect_code(3).stderr;
        assert!(refused.contains("cannot open a secure connection to https://"), "{refused}");
    }
    let broken = list(&[&format!("--api.http.address=127.0.0.1:{port}")]).expect_code(1).stderr;
    assert!(broken.contains("begins with https://"), "{broken}");
    // Who speaks no TLS is nobody's problem.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&answer));
    list(&[&by_name, authority]).expect_code(0);
    process.signal("TERM");
    process.finish().expect_code(0);
}

/// A certificate as `openssl req -x509` makes it by default.
#[test]
fn a_certificate_may_be_its_own_authority() {
    let workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.self_signed("own", "own", "IP:127.0.0.1");
    let mut process = workspace.start(&["run", "--api.http.tls.cert=own.crt", "--api.http.tls.key=own.key"]);
    let address = process.address_after("HTTP is served at https://");
    let address = format!("--api.http.address=https://{address}");
    workspace.run(&["pipelines", "list", &address, "--api.http.tls.ca=own.crt"]).expect_code(0);
    process.signal("TERM");
    process.finish().expect_code(0);
}

#[test]
fn certificates_that_cannot_be_used_are_refused_before_anything_starts() {
    let workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.sign("server", "anabranch", "DNS:localhost");
    workspace.write("empty.pem", "");
    let (cert, key) = ("--api.http.tls.cert=server.crt", "--api.http.tls.key=server.key");
    for (arguments, said) in [
        (&[cert, "--api.http.tls.key=ca.key"][..], "ca.key"),
        (&[cert, "--api.http.tls.key=empty.pem"], "empty.pem"),
        (&["--api.http.tls.cert=none.pem", key], "none.pem"),
        (&["--api.http.address=https://127.0.0.1:0"], "no certificate is configured"),
        (&[cert], "api.http.tls.key, or neither"),
        (&[cert, key, "--api.http.address=http://127.0.0.1:0"], "without TLS"),
    ] {
        let refused = workspace.run(&[&["run"], arguments].concat()).expect_code(2).stderr;
        assert!(refused.contains(said), "{arguments:?}: {refused}");
    }
    let doctor = workspace.run(&["doctor", cert, "--api.http.tls.key=ca.key"]).both();
    assert!(doctor.contains("ca.key"), "{doctor}");
}

#[test]
fn a_certificate_that_has_expired_is_told_of() {
    let workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.self_signed("own", "own", "IP:127.0.0.1");
    // It expired before it was made.
    let made = std::process::Command::new("openssl")
        .args(["x509", "-in", "own.crt", "-signkey", "own.key", "-days", "-1", "-out", "expired.crt"])
        .current_dir(workspace.root())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let identity = ["--api.http.tls.cert=expired.crt", "--api.http.tls.key=own.key"];
    let doctor = workspace.run(&["doctor", identity[0], identity[1]]).both();
    assert!(doctor.contains("expired.crt expired at 20"), "{doctor}");
    // Pipelines are more than their API: it is served all the same.
    let mut process = workspace.start(&["run", identity[0], identity[1]]);
    let address = process.address_after("HTTP is served at https://");
    let log = process.printed();
    process.wait_until("the warning", || log().contains("expired.crt expired at 20"));
    // Nothing in what the command says is of the library.
    let address = format!("--api.http.address=https://{address}");
    for authority in ["--api.http.tls.ca=own.crt", "--api.http.tls.ca=ca.crt"] {
        let refused = workspace.run(&["pipelines", "list", &address, authority]).expect_code(3).stderr;
        assert!(refused.contains("the certificate ") && !refused.contains(['(', '[']), "{refused}");
        assert!(!refused.contains("InvalidCertificate") && !refused.contains("Other"), "{refused}");
    }
    process.signal("TERM");
    process.finish().expect_code(0);
}

#[test]
fn assistants_are_served_over_tls() {
    let workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.sign("server", "anabranch", "DNS:localhost");
    workspace.write("token", "secret-of-the-test");
    let mcp = ["mcp", "--http=127.0.0.1:0", "--token-file=token", "--tls-cert=server.crt"];
    workspace.run(&mcp).expect_code(2);
    let mut process = workspace.start(&[&mcp[..], &["--tls-key=server.key"]].concat());
    let address = process.address_after("MCP is served at https://");
    // It answers as a service that has no such path.
    let address = format!("--api.http.address=https://localhost:{}", address.port());
    let list = ["pipelines", "list", "--api.http.token-file=token", "--api.http.tls.ca=ca.crt", &address];
    let refused = workspace.run(&list).expect_code(3).stderr;
    assert!(refused.contains("is not an Anabranch service"), "{refused}");
    process.signal("INT");
    process.finish().expect_code(0);
}
