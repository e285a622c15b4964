//! SIGKILL of the service and of plugins at random moments, with a plugin at each end: no line lost, no process left.

use std::time::Duration;

use super::plugin::{no_plugin_is_left, pipeline, run_to, started, workspace, written};
use crate::kills::{Kills, When};

const LINES: usize = 40_000;
const REPLAY: usize = 2_048;

#[test]
fn killed_with_its_plugins_it_loses_nothing() {
    let mut kills = Kills::new();
    loop {
        let round = kills.round();
        if round == 0 {
            break;
        }
        let mut workspace = workspace();
        workspace.env("ANABRANCH_ENGINE_REPLAY_ROWS", &REPLAY.to_string());
        pipeline(&workspace, &format!("count: {LINES}, batch: 20"), "");
        let size = || std::fs::metadata(workspace.path("out.txt")).map_or(0, |m| m.len());
        let all = (0..LINES).map(|n| format!("line {n}\n").len() as u64).sum::<u64>();
        let mut killed = 0;
        for n in 0..round {
            let before = size();
            let already = started(&workspace).len();
            let mut process = workspace.start(&["run"]);
            match kills.when(30_000) {
                // Repeated records may be all that arrive: the file reaches at least the size of all lines.
                When::Grown(bytes) => process.wait_until("progress", || size() >= all.min(before + bytes.min(9_000))),
                When::After(time) => std::thread::sleep(time.min(Duration::from_millis(200))),
            }
            // Every other time a plugin dies first.
            let plugins = started(&workspace);
            if n % 2 == 1
                && let Some(plugin) = plugins.get(already + n / 2 % 2)
            {
                let _ = std::process::Command::new("kill").args(["-9", &plugin.to_string()]).status();
                std::thread::sleep(Duration::from_millis(5));
            }
            process.signal("KILL");
            let output = process.finish();
            assert!(!output.both().contains("panicked"), "{}", output.both());
            killed += usize::from(output.code().is_none());
            no_plugin_is_left(&workspace);
        }
        run_to(&workspace, LINES).expect_code(0);
        let lines = written(&workspace);
        let mut times = vec![0usize; LINES];
        lines.iter().for_each(|line| times[*line] += 1);
        assert_eq!(times.iter().filter(|times| **times == 0).count(), 0, "lines lost");
        let source = workspace.read("source.log");
        assert!(!source.contains("WRONG"), "{source}");
        assert!(!workspace.read("destination.log").contains("WRONG"));
        let repeated = times.iter().map(|times| times - 1).sum();
        // A kill of a plugin and one of the service each repeat no more than the window.
        kills.add(killed * 2, &[repeated], REPLAY);
    }
}
