//! Rotated files between two runs that cannot be read: their names tell that they were there.

use super::rotated::written;
use super::*;

/// The names of the file that was read and of those that came after it, the oldest first; each holds its name.
async fn rotated_between_two_runs(names: &[&str]) -> (tempfile::TempDir, PathBuf, Resume) {
    let (directory, path) = directory();
    append(&path, "0\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:0"]);
    let resume = Resume::decode(&reading.last.unwrap()).unwrap();
    fs::rename(&path, directory.path().join(names[0])).unwrap();
    let begun = SystemTime::now() - Duration::from_secs(600);
    for (n, name) in names.iter().enumerate() {
        let text = if n == 0 { String::new() } else { format!("{name}\n") };
        written(&directory.path().join(name), &text, begun + Duration::from_secs(60 * n as u64));
    }
    (directory, path, resume)
}

/// The lines that a restart reads up to the end of the file, the number of missed files, and the message.
fn restarted(path: &Path, resume: Resume, mut while_it_waits: impl FnMut()) -> (String, u64, Vec<String>) {
    let mut follower = Follower::new(path.to_owned(), Some(resume));
    let (mut text, mut warnings) = (Vec::new(), Vec::new());
    loop {
        match follower.step(&mut text, usize::MAX).unwrap() {
            StepResult::Opened(opened) => warnings.extend(opened.warning),
            StepResult::Leaving => {
                while_it_waits();
                std::thread::sleep(Duration::from_millis(10));
            }
            StepResult::Grown | StepResult::Replaced => {}
            StepResult::AtEnd => return (String::from_utf8(text).unwrap(), follower.missed().files, warnings),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn files_between_two_runs_that_cannot_be_read_are_counted() {
    let cases: [(&[&str], u64); 12] = [
        (&["in.log.2", "in.log.1.gz", "in.log"], 1),
        (&["in.log.2", "in.log"], 1),
        (&["in.log.3", "in.log.1", "in.log"], 1),
        (&["in.log.4", "in.log.3.bz2", "in.log.2.zst", "in.log.1", "in.log"], 2),
        (&["in.log.5", "in.log.4", "in.log.2", "in.log"], 2),
        (&["in.log-20261120", "in.log-20261121.gz", "in.log-20261122.bz2", "in.log"], 2),
        (&["in.log-20261120", "in.log-20261121.gz", "in.log-20261122", "in.log"], 1),
        // Nothing came between.
        (&["in.log.1", "in.log"], 0),
        (&["in.log.2", "in.log.1", "in.log"], 0),
        (&["in.log-20261120", "in.log-20261125", "in.log"], 0),
        (&["in.log.31337", "in.log"], 0),
        (&["in-2.log", "in-4.log", "in-7.log", "in.log"], 3),
    ];
    for (names, missed) in cases {
        let (_directory, path, resume) = rotated_between_two_runs(names).await;
        // Older ones, compressed after they were read.
        for (name, hours) in [("in.log.6.gz", 1), ("in.log-20261119.gz", 2)] {
            written(&path.with_file_name(name), "old", SystemTime::now() - Duration::from_secs(3600 * hours));
        }
        let (text, files, warnings) = restarted(&path, resume, || {});
        let is_read = |name: &&&str| !["gz", "bz2", "zst"].iter().any(|end| name.ends_with(end));
        let expected: String = names[1..].iter().filter(is_read).map(|name| format!("{name}\n")).collect();
        assert_eq!((text, files), (expected, missed), "{names:?}: {warnings:?}");
        let said = warnings.iter().filter(|warning| warning.contains("rotated away after the file that was read"));
        assert_eq!(said.count() > 0, missed > 0, "{names:?}: {warnings:?}");
    }
}

#[tokio::test]
async fn a_rotation_that_is_under_way_leaves_no_gap() {
    let (directory, path, resume) = rotated_between_two_runs(&["in.log.2", "in.log"]).await;
    let mut put = || {
        let first = directory.path().join("in.log.1");
        if !first.exists() {
            written(&first, "in.log.1\n", SystemTime::now() - Duration::from_secs(560));
        }
    };
    let (text, files, warnings) = restarted(&path, resume, &mut put);
    assert_eq!((text.as_str(), files), ("in.log.1\nin.log\n", 0), "{warnings:?}");
}

/// Files that the reader has open may be compressed and deleted.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_that_the_system_told_of_leave_no_gap() {
    let (directory, path, resume) = rotated_between_two_runs(&["in.log.1", "in.log"]).await;
    let at = |name: &str| directory.path().join(name);
    let mut is_rotated = false;
    let (text, files, warnings) = restarted(&path, resume, || {
        if !std::mem::replace(&mut is_rotated, true) {
            super::rotated::until_open(&path);
            fs::rename(at("in.log.1"), at("in.log.2")).unwrap();
            fs::rename(&path, at("in.log.1.gz")).unwrap();
            fs::write(&path, "new\n").unwrap();
        }
    });
    assert_eq!((text.as_str(), files), ("in.log\nnew\n", 0), "{warnings:?}");
}

#[tokio::test]
async fn what_is_compressed_beside_one_that_is_gone_is_counted() {
    let (directory, path, resume) = rotated_between_two_runs(&["in.log.3", "in.log"]).await;
    fs::remove_file(directory.path().join("in.log.3")).unwrap();
    for (name, ahead) in [("in.log.3.gz", 60), ("in.log.2.gz", 120), ("in.log.1.gz", 180)] {
        written(&directory.path().join(name), "x", SystemTime::now() + Duration::from_secs(ahead));
    }
    let (text, files, warnings) = restarted(&path, resume, || {});
    assert_eq!((text.as_str(), files), ("in.log\n", 3), "{warnings:?}");
    assert!(warnings[0].ends_with("2 or more exist only in compressed form and are not read"), "{warnings:?}");
}
