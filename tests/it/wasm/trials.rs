//! Guests in tests of pipelines: their clock and their network are those of the test.

use super::{Guest, field, parameter, pipeline, text, workspace};
use crate::process::{Output, Workspace};

/// Runs a test of a pipeline with one guest.
fn test(guest: Guest<'_>, settings: &str, tests: &str) -> (Workspace, Output) {
    let workspace = workspace(&[("guest.wasm", guest)]);
    let guest = format!("{{ id: guest, plugin: test.guest, settings: {{ {settings} }} }}");
    workspace.write("pipelines/p.yaml", pipeline(&guest));
    workspace.write("pipelines/p.test.yaml", tests);
    let output = workspace.run(&["pipelines", "test", "pipelines/p.test.yaml", "--processors.egress.enabled"]);
    (workspace, output)
}

#[test]
fn the_clock_of_a_guest_is_that_of_the_test() {
    // 2024-05-01T12:00:00Z
    let process = "(drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 30000)))
        (if (i64.ne (i64.load (i32.const 30000)) (i64.const 1714564800000000000)) (then unreachable))
        call $all_kept";
    let tests = |now: &str| {
        format!(
            "now: {now}\ntests:\n  - name: at noon\n    input: [a]\n    expect: {{ records: [ {{ after: a }} ], dead-letters: [] }}\n"
        )
    };
    let run = |now: &str| test(Guest { process, ..Guest::default() }, "", &tests(now)).1;
    run("2024-05-01T12:00:00Z").expect_code(0);
    run("2024-05-01T12:00:01Z").expect_code(1);
}

#[test]
fn what_a_guest_asks_is_answered_by_the_test() {
    let request = field(2, b"https://prices.example/v1/a");
    let size = request.len();
    let data = format!("(data (i32.const 20000) \"{}\")", text(&request));
    // Refusals are numbers that no answer is as long as. An answer that does not fit is asked for again with more room. It
    // has its status first, 418 here.
    let process = format!(
        "(if (i32.ge_u (call $http_request (i32.const 20000) (i32.const {size})) (i32.const 0xFFFFFF00)) (then unreachable))
         (if (i32.ge_u (call $http_request (i32.const 20000) (i32.const 1000)) (i32.const 1000)) (then unreachable))
         (if (i32.ne (i32.load8_u (i32.const 20000)) (i32.const 8)) (then unreachable))
         (if (i32.ne (i32.load16_u (i32.const 20001)) (i32.const 0x03a2)) (then unreachable))
         call $all_kept"
    );
    let parameters = [parameter("mine", "", 1, None)];
    let tests = |stub: &str| {
        format!(
            "tests:\n  - name: a price\n    input: [a]\n{stub}    expect: {{ records: [ {{ after: a }} ], dead-letters: [] }}\n"
        )
    };
    let run = |stub: &str| {
        let guest = Guest { process: &process, more: &data, parameters: &parameters, ..Guest::default() };
        test(guest, "sdk.egress.allow: prices.example", &tests(stub)).1
    };
    let stub = |url: &str, status: u16| {
        format!(
            "    http:\n      - match: {{ url: {url} }}\n        reply: {{ status: {status}, body: \"a price that needs more room than the request had\" }}\n        times: 1\n"
        )
    };
    run(&stub("https://prices.example/v1/a", 418)).expect_code(0);
    // Another answer than the guest wants.
    run(&stub("https://prices.example/v1/a", 404)).expect_code(1);
    // A request without a response fails the test, and the message has the request.
    let unmatched = run("").expect_code(1).both();
    assert!(unmatched.contains("https://prices.example/v1/a"), "{unmatched}");
}
