//! SIGKILL of the service and of taps in the middle of syncs: no record lost, no process left.

use std::collections::BTreeSet;

use super::scripted::{ids, no_file_is_left, no_tap_is_left, starts, workspace};

const COUNT: u64 = 12_000;
/// Records before a state. The tap pauses for 10 ms after each, so that kills meet a sync.
const EVERY: u64 = 50;
const KILLS: usize = 12;

#[test]
fn killed_with_its_tap_the_service_loses_nothing() {
    let workspace = workspace(&format!(
        "          config.count: {COUNT}\n          config.every: {EVERY}\n          config.pause: 0.01\n"
    ));
    let size = || std::fs::metadata(workspace.path("out.ndjson")).map_or(0, |metadata| metadata.len());
    let mut random = fastrand::Rng::with_seed(1);
    let mut killed = 0;
    for n in 0..KILLS {
        let (before, already) = (size(), starts(&workspace).len());
        let mut service = workspace.start(&["run"]);
        service.wait_until("the tap", || starts(&workspace).len() > already);
        let grown = random.u64(1..40_000);
        service.wait_until("records", || size() >= before + grown);
        if n % 2 == 0 {
            // A tap that dies is started again, from its last state.
            let tap = starts(&workspace).last().unwrap()["pid"].as_u64().unwrap();
            let tap = rustix::process::Pid::from_raw(i32::try_from(tap).unwrap()).unwrap();
            let started = starts(&workspace).len();
            let _ = rustix::process::kill_process(tap, rustix::process::Signal::KILL);
            service.wait_until("another start", || starts(&workspace).len() > started);
        }
        service.signal("KILL");
        let output = service.finish();
        assert!(!output.both().contains("panicked"), "{}", output.both());
        killed += usize::from(output.code().is_none());
        no_tap_is_left(&workspace);
        no_file_is_left(&workspace);
    }
    assert_eq!(killed, KILLS);
    workspace.once();
    let all = ids(&workspace);
    let written: BTreeSet<u64> = all.iter().copied().collect();
    let missing: Vec<u64> = (0..COUNT).filter(|id| !written.contains(id)).collect();
    assert_eq!(missing, [] as [u64; 0]);
    // Kills met the middle of the sync, and no start was given an earlier state than one before.
    let states: Vec<u64> = starts(&workspace).iter().filter_map(|start| start["state"]["next"].as_u64()).collect();
    assert!(states.is_sorted() && BTreeSet::from_iter(&states).len() > 2, "{states:?}");
    println!("{} records came again after {killed} kills; states {states:?}", all.len() as u64 - COUNT);
}
