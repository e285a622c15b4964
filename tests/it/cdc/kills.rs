//! SIGKILL of the service and of its server under load: nothing is lost, repetitions are within the limit that `plan`
//! prints, and an exact copy is exact.
//!
//! A check kills a few times. `ANABRANCH_KILLS=200 cargo test --test it -- --nocapture cdc::kills` kills the service two
//! hundred times and the server fifty times; `ANABRANCH_SEED` repeats the choices of another time.

use std::time::Duration;

use super::copier::Copier;
use super::server::{Database, LOGICAL, Release, Server};
use crate::fault_plan::{self, say, wait};
use crate::process::Workspace;

/// Kills of a check.
const FEW: usize = 4;

/// Returns the number of kills, and the choices of the time.
pub fn choices() -> (usize, fastrand::Rng) {
    fault_plan::choices(FEW)
}

#[test]
fn a_service_that_is_killed_under_load_loses_no_change() {
    for release in [Release::Installed, Release::V18] {
        let Some(source) = Server::of(release, &LOGICAL) else { continue };
        let (kills, mut random) = choices();
        let Some(mut copier) = Copier::start(&source, &source.url(), random.u64(..)) else { return };
        for kill in 0..kills {
            // At any moment: making the slot, reading the snapshot, resuming, or reading changes.
            if kill == kills / 2 {
                copier.await_changes();
            } else if random.u32(..4) > 0 {
                copier.service.await_progress();
            }
            wait(&mut random, 0..800);
            copier.service.kill();
            copier.service.begin();
        }
        say(&copier.finish(0));
    }
}

#[test]
fn a_server_that_is_killed_under_load_loses_no_change() {
    let Some(source) = Server::of(Release::V17, &LOGICAL) else { return };
    let (kills, mut random) = choices();
    let kills = kills.div_ceil(4);
    let Some(mut copier) = Copier::start(&source, &source.url(), random.u64(..)) else { return };
    for kill in 0..kills {
        if kill > 0 {
            copier.await_changes();
        }
        wait(&mut random, 0..1_500);
        source.kill();
        wait(&mut random, 0..1_000);
        source.resume();
    }
    copier.await_changes();
    say(&copier.finish(kills));
}

/// The server goes on creating a slot when the service is gone: it waits for the end of a transaction, and does not look
/// for its client meanwhile.
#[test]
fn a_service_that_is_killed_while_its_slot_is_created_reads_every_row() {
    for release in Release::ALL {
        let Some(source) = Database::logical(release) else { continue };
        let name = source.name();
        source.query("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)");
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms");
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "500ms");
        let text = format!(
            "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: postgres, \
             settings: {{ url: '{}', tables: t, logrepl.slotName: {name}, logrepl.publicationName: {name} }} }}\n      \
             - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}\n",
            source.url()
        );
        workspace.write("pipelines/p.yaml", text);
        let slots =
            format!("SELECT confirmed_flush_lsn IS NULL, active FROM pg_replication_slots WHERE slot_name = '{name}'");
        for _ in 0..2 {
            let open = source.hold("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t");
            let mut process = workspace.start(&["run"]);
            process.wait_until("a slot that is being created", || source.query(&slots) == ["t|t"]);
            process.signal("KILL");
            process.finish();
            assert_eq!(source.query(&slots), ["t|t"], "the server goes on");
            // Another start finds it so, and the transaction ends at last.
            let mut process = workspace.start(&["run"]);
            let printed = process.printed();
            process.wait_until("the start", || printed().contains("starting pipeline=p"));
            std::thread::sleep(Duration::from_millis(500));
            // Before the transaction ends: this process may read all rows otherwise, and the next one creates no slot.
            process.signal("KILL");
            process.finish();
            drop(open);
        }
        let mut process = workspace.start(&["run"]);
        process.wait_until("the rows", || workspace.lines("out.ndjson").len() >= 10);
        source.query("INSERT INTO t VALUES (100)");
        process.wait_until("a change", || workspace.read("out.ndjson").contains(r#"{"id":100}"#));
        process.signal("TERM");
        process.finish().expect_code(0);
        let ids: std::collections::BTreeSet<String> = workspace
            .lines("out.ndjson")
            .iter()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"]["id"].to_string())
            .collect();
        let expected = source.query("SELECT id FROM t ORDER BY id::text COLLATE \"C\"");
        assert_eq!(ids.into_iter().collect::<Vec<_>>(), expected);
    }
}
