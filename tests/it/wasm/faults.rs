//! Guests that break: their record fails, the others and the service do not.

use super::{Guest, delivered, failures, pipeline, run, workspace};

/// Does it to records with `!!!!`, in a batch or alone.
fn at_a_mark(what: &str) -> String {
    format!("(if (call $has (i32.const 0x21212121)) (then {what})) call $all_kept")
}

#[track_caller]
fn only_the_marked_one_fails(what: &str, flags: &[&str], error: &str) {
    let (workspace, output) = run(&at_a_mark(what), &["a", "b", "!!!!", "c", "d"], flags);
    let output = output.expect_code(0);
    assert_eq!(delivered(&workspace), ["a", "b", "c", "d"], "{}", output.both());
    let failures = failures(&workspace);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains(error), "{failures:?}");
    assert!(output.both().contains("the processor is restarted"), "{}", output.both());
}

#[test]
fn a_trap() {
    only_the_marked_one_fails("unreachable", &[], "the processor trapped");
}

#[test]
fn an_exit_without_an_answer() {
    only_the_marked_one_fails("(call $proc_exit (i32.const 0))", &[], "stopped with exit code 0");
    only_the_marked_one_fails("(call $proc_exit (i32.const 7))", &[], "stopped with exit code 7");
}

#[test]
fn an_endless_loop() {
    // A good record takes far less, also on a machine whose cores are taken.
    let flags = ["--processors.timeout", "5s"];
    only_the_marked_one_fails("(loop $ever (br $ever))", &flags, "did not answer within 5s");
}

#[test]
fn all_the_memory_there_is() {
    let bomb = "(loop $ever (br_if $ever (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) unreachable";
    only_the_marked_one_fails(bomb, &["--processors.max-memory", "80MiB"], "trapped");
}

#[test]
fn an_answer_that_is_none() {
    let garbage = "(drop (call $command_response (i32.const 1120) (i32.const 9)))";
    only_the_marked_one_fails(garbage, &[], "data that is not a response");
}

#[test]
fn a_command_out_of_turn() {
    only_the_marked_one_fails("(drop (call $command_request (i32.const 0) (i32.const 9)))", &[], "before it answered");
}

#[test]
fn an_error_for_all_records() {
    let (workspace, output) =
        run(&at_a_mark("(call $answer (i32.const 1072) (i32.const 12)) return"), &["a", "!!!!"], &[]);
    output.expect_code(0);
    assert!(delivered(&workspace).is_empty());
    assert!(failures(&workspace).iter().all(|error| error.contains("no thank")), "{:?}", failures(&workspace));
}

/// A guest that gives what no guest may give stops its pipeline; what was read is read again.
#[test]
fn a_breach_of_the_protocol() {
    for (process, error) in [
        ("", "returned no records"),
        ("(call $byte (i32.const 0x0a)) (call $byte (i32.const 0))", "processed none of its records"),
        ("call $all_kept (call $byte (i32.const 0x0a)) (call $byte (i32.const 0))", "returned 3 results for 2 records"),
        ("(call $answer (i32.const 1064) (i32.const 2)) return", "does not match the request"),
    ] {
        let (workspace, output) = run(process, &["a", "b"], &[]);
        let text = output.both();
        assert!(text.contains(error), "{text}");
        let done = delivered(&workspace).len() + failures(&workspace).len();
        assert!(done == 0 || done == 2, "{done}: {text}");
    }
}

/// One guest breaks with every record; the pipeline beside it does not care.
#[test]
fn a_guest_that_always_breaks_stops_only_its_pipeline() {
    let broken = Guest { process: "unreachable", ..Guest::default() };
    let sound = Guest { name: "test.sound", ..Guest::default() };
    let workspace = workspace(&[("broken.wasm", broken), ("sound.wasm", sound)]);
    let lines: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    workspace.write("in.txt", lines.join("\n") + "\n");
    workspace.write("pipelines/a.yaml", pipeline("{ id: guest, plugin: test.sound }"));
    let other = pipeline("{ id: guest, plugin: test.guest }").replace("id: guests", "id: broken");
    workspace
        .write("pipelines/b.yaml", other.replace("out.ndjson", "no.ndjson").replace("dlq.ndjson", "no-dlq.ndjson"));
    let text = workspace.run(&["run", "--once"]).both();
    assert_eq!(delivered(&workspace), lines);
    assert!(text.contains("wasm_trap") || text.contains("trapped"), "{text}");
    assert!(workspace.lines("no.ndjson").is_empty());
}
