//! A store with broken bytes, a disk that fills up, a process that may open few files: refused with a message, or gone on
//! with; never started from nothing, never a panic.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::process::{Process, Workspace, file_to_file, raw_after};

fn workspace(lines: usize) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", wide_lines(0..lines));
    workspace.write("pipelines/p.yaml", file_to_file("stored", ""));
    workspace
}

/// Lines of a hundred bytes, each with a number of its own.
fn wide_lines(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|i| format!("line {i:0>94}\n")).collect()
}

/// `run --once` in a shell that sets a limit before it becomes the program. What fails fails at once.
fn limited(workspace: &Workspace, limit: &str) -> (Option<i32>, String) {
    let program = workspace.command(["run", "--once"]);
    let mut shell = Command::new("sh");
    // A write beyond the limit is to fail, as one on a full disk does, and not to end the process. Files that whoever
    // runs the tests has open would count.
    let inherited: String = (3..10).map(|file| format!(" {file}>&-")).collect();
    let run = "run --once --pipelines.error-recovery.max-retries=0";
    shell.args(["-c", &format!("trap '' XFSZ; exec{inherited}; ulimit {limit} && exec \"$0\" {run}")]);
    shell.arg(program.get_program()).current_dir(workspace.root()).env_clear().stdin(Stdio::null());
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = Process::spawn(&mut shell).finish();
    let text = output.both();
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{limit}: {text}");
    (output.code(), text)
}

/// The lines that were delivered, each once; a line that is not whole fails the test.
fn delivered(workspace: &Workspace) -> BTreeSet<String> {
    workspace.lines("out.ndjson").iter().map(|record| raw_after(record)).collect()
}

/// What becomes of a store with these bytes: a start refuses it and leaves it, or goes on where it was.
fn survives(workspace: &Workspace, what: &str, bytes: &[u8], lines: usize) -> bool {
    workspace.write("anabranch.db", bytes);
    let output = workspace.run(&["run", "--once"]);
    let text = output.both();
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{what}: {text}");
    assert_eq!(workspace.lines("out.ndjson").len(), lines, "{what}: restarted from nothing: {text}");
    if output.code() == Some(0) {
        return true;
    }
    assert_eq!(output.code(), Some(3), "{what}: {text}");
    assert!(text.contains("anabranch.db"), "{what}: {text}");
    assert!(std::fs::read(workspace.path("anabranch.db")).unwrap() == bytes, "{what}: not left as it was");
    false
}

#[test]
fn a_store_that_is_cut_off_at_any_page_is_refused() {
    let workspace = workspace(10);
    workspace.once();
    let whole = std::fs::read(workspace.path("anabranch.db")).unwrap();
    let pages = whole.len() / 4096;
    // Every page where there are few, and so many of them where there are more.
    let step = pages.div_ceil(100);
    for page in (0..pages).step_by(step) {
        for length in [page * 4096, page * 4096 + 1 + page % 4095] {
            let survived = survives(&workspace, &format!("{length} bytes"), &whole[..length], 10);
            assert!(!survived, "{length} bytes of {} were taken for all", whole.len());
        }
    }
}

#[test]
fn a_store_with_a_flipped_bit_is_refused_or_holds_what_it_held() {
    let workspace = workspace(10);
    workspace.once();
    let whole = std::fs::read(workspace.path("anabranch.db")).unwrap();
    // What is written there: a bit flipped in a page that was never used says nothing.
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut refused = 0;
    for _ in 0..150 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let near = used[(random >> 33) as usize % used.len()];
        let at = (near + (random >> 20) as usize % 3).min(whole.len() - 1);
        let bit = (random >> 60) % 8;
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        refused += usize::from(!survives(&workspace, &format!("bit {bit} of byte {at}"), &bytes, 10));
    }
    assert!(refused > 5, "only {refused} of 150 were noticed");
}

#[test]
fn a_store_on_a_full_disk_stops_the_pipeline_and_goes_on_when_there_is_room() {
    let workspace = workspace(10);
    let (code, text) = limited(&workspace, "-f 16");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("anabranch.db") && text.to_lowercase().contains("file too large"), "{text}");
    assert!(!workspace.path("anabranch.db").exists(), "half a store is none");
    workspace.once();
    workspace.write("in.txt", wide_lines(0..20));
    let (code, text) = limited(&workspace, "-f 16");
    assert_ne!(code, Some(0), "{text}");
    assert!(text.to_lowercase().contains("file too large"), "{text}");
    workspace.once();
    let expected: BTreeSet<String> = workspace.lines("in.txt").into_iter().collect();
    assert!(delivered(&workspace) == expected, "a line is missing");
    let first = workspace.lines("in.txt").swap_remove(0);
    let copies = workspace.lines("out.ndjson").iter().filter(|record| raw_after(record) == first).count();
    assert_eq!(copies, 1, "restarted from nothing");
}

#[test]
fn too_few_open_files_end_the_run_with_a_message() {
    let mut ended_well = false;
    for files in 6..40 {
        let workspace = workspace(10);
        let (code, text) = limited(&workspace, &format!("-n {files}"));
        if code == Some(0) {
            assert_eq!(delivered(&workspace).len(), 10, "{files}: {text}");
        } else {
            assert!(text.to_lowercase().contains("open files"), "{files}: {code:?} {text}");
        }
        ended_well = code == Some(0);
    }
    assert!(ended_well, "forty files are enough");
}
