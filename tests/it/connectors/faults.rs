//! Plugins that lie, hang, die and write what nobody understands: each is named with its reason, and loses nothing.

use std::collections::BTreeSet;

use super::plugin::{no_plugin_is_left, pipeline, run_to, wait_for, workspace, written};
use crate::process::{Output, Workspace};

const LINES: usize = 300;
/// `connectors.timeout` where a plugin hangs: everything else must be done within it, on a busy machine too.
/// Those that hang do so beside the others.
const SHORT: &str = "30s";

/// Does all of it at the same time: who waits for something that hangs leaves the machine to the others.
fn side_by_side(all: &[&(dyn Fn() + Sync)]) {
    std::thread::scope(|scope| {
        for one in all {
            scope.spawn(one);
        }
    });
}

/// Runs a pipeline in which a plugin fails for good.
#[track_caller]
fn failing(workspace: &mut Workspace) -> Output {
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES", "0");
    let output = workspace.run(&["run", "--pipelines.exit-on-degraded"]).expect_code(1);
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES", "-1");
    no_plugin_is_left(workspace);
    output
}

#[track_caller]
fn said(output: &Output, what: &str, fault: &str) {
    assert!(output.both().contains(what), "{fault}: {}", output.both());
    assert!(!output.both().contains("panicked"), "{fault}: {}", output.both());
}

/// Runs on from where a plugin failed, to the end.
#[track_caller]
fn recovered(workspace: &Workspace, lines: usize) {
    // There is none where the source was never configured.
    let _ = std::fs::remove_file(workspace.path("source.log"));
    let mut process = workspace.start(&["run"]);
    // The last line may be there from before.
    process.wait_until("the source to come to its end", || workspace.read("source.log").contains("all sent"));
    wait_for(&mut process, workspace, lines);
    process.signal("INT");
    process.finish().expect_code(0);
}

/// All lines were written, the first time in order.
#[track_caller]
fn nothing_is_lost(workspace: &Workspace, lines: usize, fault: &str) {
    let mut first = Vec::new();
    let mut seen = BTreeSet::new();
    for line in written(workspace) {
        if seen.insert(line) {
            first.push(line);
        }
    }
    assert_eq!(first, (0..lines).collect::<Vec<_>>(), "{fault}");
}

#[test]
fn a_source_that_fails_before_it_reads_says_why() {
    let check = |fault: &str, what: &str| {
        let mut workspace = workspace();
        let patience = if fault.ends_with("hang") { SHORT } else { "60s" };
        workspace.env("ANABRANCH_CONNECTORS_TIMEOUT", patience);
        pipeline(&workspace, &format!("count: 300, fault: {fault}"), "");
        let output = failing(&mut workspace);
        said(&output, what, fault);
        said(&output, "connector \"helper\" (", fault);
    };
    side_by_side(&[
        &|| check("configure-hang", "does not accept its settings: no answer within 30.0 s"),
        &|| check("open-hang", "cannot be opened: no answer within 30.0 s"),
        &|| {
            check(
                "configure-error",
                "does not accept its settings: config invalid: error validating \"greeting\": rude",
            );
        },
        &|| check("configure-die", "its process ended (exit code 2); its last output: panic: ordered to die"),
        &|| check("open-error", "cannot be opened: cannot reach the database"),
        &|| check("open-die", "its process ended (exit code 2); its last output: panic: ordered to die"),
    ]);
}
#[test]
fn a_source_that_fails_while_it_reads_loses_nothing() {
    for (fault, what) in [
        ("die-after", "cannot be read: the connection was lost"),
        ("error-after", "cannot be read: read plugin error: the disk is on fire"),
        ("end-after", "stopped reading without a request to stop"),
        ("garbage-after", "sent a message that does not contain records"),
        ("no-position-after", "empty position"),
    ] {
        let mut workspace = workspace();
        pipeline(&workspace, &format!("count: 300, batch: 4, fault: '{fault}:150'"), "");
        let output = failing(&mut workspace);
        said(&output, what, fault);
        assert!(written(&workspace).len() <= 150, "{fault}");
        pipeline(&workspace, "count: 300, batch: 4", "");
        recovered(&workspace, LINES);
        nothing_is_lost(&workspace, LINES, fault);
    }
}

#[test]
fn a_source_that_dies_is_started_again() {
    let workspace = workspace();
    pipeline(&workspace, "count: 300, batch: 4, fault: 'die-after:100'", "");
    // It dies 100 lines after each start, mostly before all of them are stored: it may need many starts.
    let soon = ["run", "--pipelines.error-recovery.min-delay=10ms", "--pipelines.error-recovery.max-delay=50ms"];
    let mut process = workspace.start(&soon);
    wait_for(&mut process, &workspace, LINES);
    process.signal("INT");
    let output = process.finish().expect_code(0);
    said(&output, "its last output: panic: ordered to die", "die-after");
    nothing_is_lost(&workspace, LINES, "die-after");
    no_plugin_is_left(&workspace);
}

#[test]
fn a_plugin_that_does_not_stop_as_it_should_is_ended_and_everything_is_delivered() {
    let check = |source: &str, destination: &str| {
        let fault = format!("{source}, {destination}");
        let workspace = workspace();
        pipeline(&workspace, &format!("count: 300, fault: {source}"), &format!("fault: {destination}"));
        let output = run_to(&workspace, LINES);
        nothing_is_lost(&workspace, LINES, &fault);
        if fault.contains("hang") {
            // These two calls have less time than others.
            said(&output, "no answer within 10.0 s", &fault);
        }
        output.expect_code(0);
        no_plugin_is_left(&workspace);
    };
    side_by_side(&[
        &|| check("stop-hang", "none"),
        &|| check("none", "stop-hang"),
        &|| check("teardown-hang", "none"),
        &|| check("none", "teardown-hang"),
        &|| check("stop-die", "none"),
        &|| check("none", "stop-die"),
        &|| check("teardown-die", "none"),
        &|| check("none", "teardown-die"),
    ]);
}

#[test]
fn a_destination_that_fails_says_why_and_loses_nothing() {
    // More lines than one write takes: what goes wrong after a write is seen at the next.
    let check = |fault: &str, version: &str, what: &str| {
        let mut workspace = workspace();
        workspace.env("HELPER_PROTOCOL", version);
        workspace.env("ANABRANCH_CONNECTORS_TIMEOUT", if fault == "no-ack" { SHORT } else { "60s" });
        pipeline(&workspace, "count: 3000, batch: 100", &format!("fault: '{fault}'"));
        let output = failing(&mut workspace);
        said(&output, what, fault);
        pipeline(&workspace, "count: 3000, batch: 100", "");
        recovered(&workspace, 3_000);
        nothing_is_lost(&workspace, 3_000, fault);
    };
    let both = |fault: &str, what: &str| ["1", "2"].into_iter().for_each(|version| check(fault, version, what));
    let late = "does not acknowledge its records: no answer within 30.0 s";
    side_by_side(&[
        &|| check("no-ack", "1", late),
        &|| check("no-ack", "2", late),
        &|| {
            both("open-error", "cannot be opened: no such directory");
            both("die-after:150", "cannot be written to: the connection was lost");
            both("error-after:150", "cannot be written to: write plugin error: the disk is full");
        },
        &|| {
            both("wrong-ack:150", "sent a wrong acknowledgement: for a record other than the next one");
            both("extra-ack:150", "sent a wrong acknowledgement: ");
        },
    ]);
}

/// Where a call for a batch fails, plugins refuse all of the batch that was not written yet, most of which they never
/// tried.
#[test]
fn a_record_that_fails_a_batch_is_the_only_letter_of_it() {
    for version in ["1", "2"] {
        let mut workspace = workspace();
        workspace.env("HELPER_PROTOCOL", version);
        pipeline(&workspace, "count: 300, batch: 100", "fault: 'refuse-rest:104'");
        run_to(&workspace, LINES).expect_code(0);
        assert_eq!(written(&workspace), (0..LINES).filter(|line| *line != 104).collect::<Vec<_>>());
        let letters = workspace.lines("letters.ndjson");
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert!(letters[0].contains("the table is gone"), "{letters:?}");
    }
}

/// A failure that no record causes is retried, instead of failing one record after the other.
#[test]
fn a_destination_that_refuses_everything_is_tried_again() {
    for (batch, most) in [(100, 0), (1, 31)] {
        let mut workspace = workspace();
        let down = workspace.path("down").display().to_string();
        workspace.env("HELPER_DOWN", &down);
        workspace.write("down", "");
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "50ms");
        pipeline(&workspace, &format!("count: 300, batch: {batch}"), "fault: refuse-all");
        let mut process = workspace.start(&["run"]);
        let log = process.printed();
        process.wait_until("several attempts", || log().matches("restarts in").count() >= 5);
        assert!(log().contains("refused 32 records in a row"), "{}", log());
        assert!(log().contains("the table is gone"), "{}", log());
        assert_eq!(written(&workspace), Vec::<usize>::new());
        std::fs::remove_file(workspace.path("down")).unwrap();
        wait_for(&mut process, &workspace, LINES);
        process.signal("INT");
        process.finish().expect_code(0);
        let letters =
            if workspace.path("letters.ndjson").exists() { workspace.lines("letters.ndjson").len() } else { 0 };
        assert!(letters <= most, "{letters} letters of batches of {batch}");
        let lines = written(&workspace);
        assert_eq!(lines.iter().collect::<BTreeSet<_>>().len() + letters, LINES);
    }
    // A user may see it otherwise.
    let mut workspace = workspace();
    workspace.env("HELPER_DOWN", &workspace.path("pipelines").display().to_string());
    workspace.env("ANABRANCH_CONNECTORS_EQUAL_REFUSALS", "0");
    pipeline(&workspace, "count: 50, batch: 10", "fault: refuse-all");
    let mut process = workspace.start(&["run"]);
    process.wait_until("all letters", || workspace.lines("letters.ndjson").len() == 50);
    process.signal("INT");
    process.finish().expect_code(0);
}

#[test]
fn a_plugin_that_cannot_be_started_any_more_says_why() {
    let check = |start: &str, what: &str| {
        let mut workspace = workspace();
        pipeline(&workspace, "count: 300", "");
        // Who it is is known from before.
        workspace.run(&["connectors", "list"]).expect_code(0);
        workspace.env("HELPER_START", start);
        workspace.env("ANABRANCH_CONNECTORS_TIMEOUT", SHORT);
        let output = failing(&mut workspace);
        said(&output, what, start);
    };
    let talks = "its first line is \"Welcome to this connector!\", which is not that of a connector";
    let version = "its first line names version \"7\" of the connector protocol; this host supports versions 1 and 2";
    side_by_side(&[&|| check("silent", "did not report its address within 30.0 s"), &|| {
        check("exit", "ended (exit code 3) before it reported its address; its last output: no licence found");
        check("talks", talks);
        check("version", version);
        check("nothing-there", "cannot be reached: the connection was lost");
        check("garbage", "the connection was lost");
    }]);
}

#[test]
fn a_supervisor_that_is_killed_takes_its_plugin_along_and_both_come_again() {
    let workspace = workspace();
    pipeline(&workspace, "batch: 4", "");
    let mut process = workspace.start(&["run"]);
    wait_for(&mut process, &workspace, LINES);
    let plugins = super::plugin::started(&workspace);
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", plugins[0])).unwrap();
    let parent: u32 = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert_ne!(parent, process.id(), "there is a process between us and the plugin");
    std::process::Command::new("kill").args(["-9", &parent.to_string()]).status().unwrap();
    process.wait_until("the plugin to end", || !super::plugin::is_alive(plugins[0]));
    process.wait_until("other plugins", || super::plugin::started(&workspace).len() >= plugins.len() + 2);
    let before = written(&workspace).into_iter().max().unwrap();
    wait_for(&mut process, &workspace, before + LINES);
    process.signal("INT");
    process.finish().expect_code(0);
    let last = written(&workspace).into_iter().max().unwrap();
    nothing_is_lost(&workspace, last + 1, "a killed supervisor");
    no_plugin_is_left(&workspace);
}

#[test]
fn a_plugin_whose_pipeline_fails_elsewhere_is_torn_down() {
    let mut workspace = workspace();
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES", "0");
    pipeline(&workspace, "count: 3000, batch: 100", "fault: 'error-after:150'");
    let mut process = workspace.start(&["run"]);
    for log in ["source.log", "destination.log"] {
        process.wait_until("the end of the plugin", || workspace.read(log).contains("teardown, was listened to once"));
    }
    no_plugin_is_left(&workspace);
    process.signal("INT");
    process.finish();
}
