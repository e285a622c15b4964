//! HTTP requests of guests.

use anabranch_ops_http::testing::{Reply, Server};

use super::{Guest, delivered, field, parameter, pipeline, text, workspace};

/// A guest that sends a request and leaves records as they are if it was answered with `code`, or with a text if that
/// is 0; else it breaks.
fn run(url: &str, secret: &str, code: i32, settings: &str, flags: &[&str]) -> (Vec<String>, String) {
    let request = [field(2, url.as_bytes()), field(5, secret.as_bytes())].concat();
    let size = request.len();
    let data = format!("(data (i32.const 20000) \"{}\")", text(&request));
    let wanted = match code {
        // The answer did not fit; the request, zeros after it, is given again with more room, and not sent again.
        0 => format!(
            "(if (i32.le_u (call $http_request (i32.const 20000) (i32.const {size})) (i32.const {size})) (then unreachable))
             (if (i32.ge_u (call $http_request (i32.const 20000) (i32.const 1000)) (i32.const 1000)) (then unreachable))
             (if (i32.ne (i32.load8_u (i32.const 20000)) (i32.const 8)) (then unreachable))"
        ),
        code => format!(
            "(if (i32.ne (call $http_request (i32.const 20000) (i32.const {size})) (i32.const {code})) (then unreachable))"
        ),
    };
    let process = format!("{wanted} call $all_kept");
    let parameters = [parameter("mine", "", 1, None)];
    let guest = Guest { process: &process, more: &data, parameters: &parameters, ..Guest::default() };
    let mut workspace = workspace(&[("guest.wasm", guest)]);
    workspace.env("ANABRANCH_SECRET_MY_KEY", "Bearer abcdefgh");
    workspace.write("in.txt", "a\n");
    workspace.write(
        "pipelines/p.yaml",
        pipeline(&format!("{{ id: guest, plugin: test.guest, settings: {{ {settings} }} }}")),
    );
    let output = workspace.run(&[&["run", "--once", "--log.level", "debug"], flags].concat());
    (delivered(&workspace), output.expect_code(0).both())
}

const FORBIDDEN: i32 = -11;
const DISABLED: i32 = -10;
const ENABLED: &[&str] = &["--processors.egress.enabled"];

#[test]
fn requests_are_denied_unless_both_sides_allow_them() {
    // Longer than the request.
    let server = Server::start(|_| Reply::ok("x".repeat(300)));
    let (address, url) = (server.address(), format!("http://{}/x", server.address()));
    let allow = format!("sdk.egress.allow: \"http://{address}\", mine: x");
    assert_eq!(run(&url, "", DISABLED, "mine: x", ENABLED).0, ["a"]);
    let (delivered, text) = run(&url, "", DISABLED, &allow, &[]);
    assert_eq!(delivered, ["a"]);
    assert!(text.contains("processors.egress.enabled is false"), "{text}");
    let elsewhere = "sdk.egress.allow: example.com, mine: x";
    assert_eq!(run(&url, "", FORBIDDEN, elsewhere, ENABLED).0, ["a"]);
    let ceiling = [ENABLED, &["--processors.egress.allow", "example.com"]].concat();
    let (delivered, text) = run(&url, "", FORBIDDEN, &allow, &ceiling);
    assert_eq!(delivered, ["a"]);
    assert!(text.contains("processors.egress.allow does not contain it"), "{text}");
    assert!(server.received().is_empty());

    assert_eq!(run(&url, "", 0, &allow, ENABLED).0, ["a"]);
    assert_eq!(server.received().len(), 1, "once, though the guest had to ask twice for the answer");
}

#[test]
fn a_secret_is_sent_and_never_shown() {
    // Longer than the request.
    let server = Server::start(|_| Reply::ok("x".repeat(300)));
    let (address, url) = (server.address(), format!("http://{}/x", server.address()));
    let allow = format!("sdk.egress.allow: \"http://{address}\"");
    assert_eq!(run(&url, "my-key", FORBIDDEN, &allow, ENABLED).0, ["a"]);
    assert!(server.received().is_empty());
    let granted = format!("{allow}, sdk.egress.secretRefs: my-key");
    let (delivered, text) = run(&url, "my-key", 0, &granted, ENABLED);
    assert_eq!(delivered, ["a"]);
    assert_eq!(server.received()[0].header("authorization"), Some("Bearer abcdefgh"));
    assert!(!text.contains("abcdefgh"), "{text}");
}
