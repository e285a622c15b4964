//! Files that were rotated at the same time, as far as the file system tells.

use super::*;

/// Writes a file and sets when it was written.
pub(super) fn written(path: &Path, text: &str, at: SystemTime) {
    append(path, text);
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

/// Reads `a` of two lines, then renames it to the first of `names` with all others, oldest first, written at `at`:
/// what a restart and what the reader that ran all the time deliver.
async fn rotated_at_once(before: &[&str], names: &[&str]) -> [Vec<String>; 2] {
    let at = SystemTime::now() - Duration::from_secs(60);
    let (directory, path) = directory();
    append(&path, "a\nb\n");
    let mut reading = open(&path, None).await;
    reading.some(Room { rows: 1, ..ROOM }).await;
    let after_a = reading.last.clone();
    assert_eq!(reading.lines().await, ["2:b"]);
    // Read to the end by an earlier run.
    before.iter().for_each(|name| written(&directory.path().join(name), "old\n", at));
    fs::rename(&path, directory.path().join(names[0])).unwrap();
    for (n, name) in names.iter().enumerate() {
        let text = if n == 0 { String::new() } else { format!("{n}\n") };
        written(&directory.path().join(name), &text, at);
    }
    written(&path, "new\n", at);
    let restarted = open(&path, after_a).await.lines().await;
    [restarted, reading.lines().await]
}

#[tokio::test]
async fn files_of_one_moment_are_all_read_in_the_order_of_their_names() {
    let cases: [(&[&str], &[&str]); 6] = [
        (&["in.log.12", "in.log.11"], &["in.log.10", "in.log.9", "in.log.1"]),
        (&["in.log-20261118"], &["in.log-20261119", "in.log-20261120", "in.log-20270101"]),
        (&["in-2026-11-19.log"], &["in-2026-11-20.log", "in-2026-12-01.log", "in-2027-01-01.log"]),
        (&["in.log.1700000009"], &["in.log.1700000010", "in.log.1700000011", "in.log.1700000020"]),
        (&["in.log.20261119-2"], &["in.log.20261119-9", "in.log.20261119-10", "in.log.20261120-1"]),
        (&[], &["8-in.log", "9-in.log", "10-in.log"]),
    ];
    join_all(cases.map(|(before, names)| async move {
        let [restarted, live] = rotated_at_once(before, names).await;
        assert_eq!(restarted, ["2:b", "1:1", "1:2", "1:new"], "{names:?}");
        assert_eq!(live, ["1:1", "1:2", "1:new"], "{names:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_file_is_read_once_too_often_rather_than_never() {
    // Whether 3 or 1 is the oldest, nothing says.
    for names in [["3-in.log", "2-in.log", "1-in.log"], ["1-in.log", "2-in.log", "3-in.log"]] {
        let [mut restarted, mut live] = rotated_at_once(&[], &names).await;
        assert_eq!((restarted.remove(0).as_str(), restarted.pop().as_deref()), ("2:b", Some("1:new")));
        assert_eq!(live.pop().as_deref(), Some("1:new"));
        restarted.sort();
        live.sort();
        assert_eq!(
            (restarted, live),
            (vec!["1:1".into(), "1:2".into()], vec!["1:1".into(), "1:2".into()]),
            "{names:?}"
        );
    }
    let [restarted, live] = rotated_at_once(&["1-in.log"], &["2-in.log", "3-in.log"]).await;
    assert_eq!(restarted, ["2:b", "1:old", "1:1", "1:new"]);
    assert_eq!(live, ["1:old", "1:1", "1:new"]);
}

#[tokio::test]
async fn files_of_other_times_tell_which_name_is_newer() {
    for (oldest, names, expected) in [
        ("3-in.log", ["2-in.log", "1-in.log"], ["1:1", "1:new"].as_slice()),
        ("1-in.log", ["2-in.log", "3-in.log"], ["1:1", "1:new"].as_slice()),
        // One that was read before has the same time, and the other says that it is the older one.
        ("9-in.log", ["3-in.log", "2-in.log"], ["1:1", "1:new"].as_slice()),
    ] {
        let at = SystemTime::now() - Duration::from_secs(60);
        let (directory, path) = directory();
        append(&path, "a\n");
        let mut reading = open(&path, None).await;
        assert_eq!(reading.lines().await, ["1:a"]);
        written(&directory.path().join(oldest), "older\n", at - Duration::from_secs(60));
        if oldest == "9-in.log" {
            written(&directory.path().join("8-in.log"), "read before\n", at);
        }
        fs::rename(&path, directory.path().join(names[0])).unwrap();
        written(&directory.path().join(names[0]), "", at);
        written(&directory.path().join(names[1]), "1\n", at);
        written(&path, "new\n", at);
        assert_eq!(reading.lines().await, expected, "{names:?}");
    }
}

/// Lines of a file that was read up to its first line, then moved away with all that came after it: the path, and where
/// a restart resumes.
async fn moved_away_seven_times() -> (tempfile::TempDir, PathBuf, Resume) {
    let (directory, path) = directory();
    append(&path, "0\n0\n");
    let mut reading = open(&path, None).await;
    reading.some(Room { rows: 1, ..ROOM }).await;
    let resume = Resume::decode(reading.last.as_ref().unwrap()).unwrap();
    fs::rename(&path, directory.path().join("in.log.7")).unwrap();
    let begun = SystemTime::now() - Duration::from_secs(60);
    for n in (1..=7).rev() {
        let at = begun + Duration::from_secs(7 - n);
        written(&directory.path().join(format!("in.log.{n}")), &format!("{n}\n"), at);
    }
    append(&path, "new\n");
    (directory, path, resume)
}

/// Reads to the end of the newest file; which of the files, from 0, it waited at for a writer that is late. `late` is
/// called at the first wait.
fn waits(path: &Path, resume: Resume, mut late: impl FnMut()) -> (String, Vec<usize>) {
    let mut follower = Follower::new(path.to_owned(), Some(resume));
    let (mut text, mut at, mut waits) = (Vec::new(), 0, Vec::new());
    loop {
        match follower.step(&mut text, usize::MAX).unwrap() {
            StepResult::Opened(_) | StepResult::Grown => {}
            StepResult::Replaced => at += 1,
            StepResult::Leaving if waits.last() == Some(&at) => std::thread::sleep(Duration::from_millis(5)),
            StepResult::Leaving => {
                if waits.is_empty() {
                    late();
                }
                waits.push(at);
            }
            StepResult::AtEnd => return (String::from_utf8(text).unwrap(), waits),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_restart_waits_for_late_writers_of_the_newest_rotated_file_only() {
    let (_directory, path, resume) = moved_away_seven_times().await;
    // Until all of them were at rest for as long as a writer may take.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let (text, waits) = waits(&path, resume, || {});
    assert_eq!(text, "0\n7\n6\n5\n4\n3\n2\n1\nnew\n");
    assert_eq!(waits, [6], "each wait takes a second");
}

#[tokio::test]
async fn a_restart_waits_for_late_writers_of_files_that_were_just_written() {
    let (directory, path, resume) = moved_away_seven_times().await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    // It is the fourth file, and its writer goes on with it.
    let fourth = directory.path().join("in.log.4");
    let written = fs::metadata(&fourth).unwrap().modified().unwrap();
    let touch = |text: &str| {
        append(&fourth, text);
        File::options().append(true).open(&fourth).unwrap().set_modified(written).unwrap();
    };
    let (mut expected, began) = ("0\n7\n6\n5\n4\n".to_owned(), Instant::now());
    loop {
        touch("4\n");
        expected.push_str("4\n");
        let (touched, mut come) = (Instant::now(), Duration::MAX);
        let found = waits(&path, resume, || {
            come = touched.elapsed();
            touch("late\n");
        });
        // Where this thread waited for a core for a second, the file was at rest when it came there.
        if come < Duration::from_millis(900) {
            assert_eq!(found, (format!("{expected}late\n3\n2\n1\nnew\n"), vec![3, 6]));
            break;
        }
        expected.push_str("late\n");
        assert!(began.elapsed() < Duration::from_secs(120), "it waits nowhere: {found:?}");
    }
}

/// Waits until this process has a file open: the thread that is told of files has opened it, and a reader will find it.
#[cfg(target_os = "linux")]
pub(super) fn until_open(path: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let of = |file: &fs::Metadata| (file.dev(), file.ino());
    let wanted = of(&fs::metadata(path).unwrap());
    let began = Instant::now();
    let is_open = || {
        let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
        files.filter_map(|file| fs::metadata(file.path()).ok()).any(|file| of(&file) == wanted)
    };
    while !is_open() {
        assert!(began.elapsed() < Duration::from_secs(120), "nobody opens {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A careless rotation: the old file is compressed and deleted as soon as the new one exists.
fn rotate(path: &Path, text: &str) {
    let moved = path.with_extension("log.1");
    if path.exists() {
        fs::rename(path, &moved).unwrap();
    }
    append(path, text);
    if let Ok(old) = fs::read(&moved) {
        fs::write(path.with_extension("log.1.gz"), old).unwrap();
        fs::remove_file(moved).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_that_are_gone_within_a_moment_are_read() {
    let (_directory, path) = directory();
    rotate(&path, "0\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:0"]);
    let rotating = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            for n in 1..=12 {
                rotate(&path, &format!("{n}\n"));
                until_open(&path);
            }
        }
    });
    let mut lines = Vec::new();
    while lines.len() < 12 {
        lines.extend(reading.lines().await);
    }
    rotating.await.unwrap();
    assert_eq!(lines, (1..=12).map(|n| format!("1:{n}")).collect::<Vec<_>>());
    assert_eq!(reading.reader.backlog().await.unwrap().missed, 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_reader_that_is_held_up_has_the_files_of_the_meantime() {
    let (_directory, path) = directory();
    rotate(&path, "0\n");
    let mut reading = open(&path, None).await;
    for n in 1..=20 {
        rotate(&path, &format!("{n}\n"));
        until_open(&path);
    }
    let mut lines = Vec::new();
    while lines.len() < 21 {
        lines.extend(reading.lines().await);
    }
    assert_eq!(lines, (0..=20).map(|n| format!("1:{n}")).collect::<Vec<_>>());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_that_could_not_be_opened_in_time_are_counted() {
    let (directory, path) = directory();
    append(&path, "a\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:a"]);
    // Gone before anything else can happen: no other thread sees a file of this name.
    let mut missed = 0;
    for _ in 0..200 {
        let other = directory.path().join("other");
        append(&other, "lost\n");
        fs::rename(&other, &path).unwrap();
        fs::remove_file(&path).unwrap();
        missed = reading.reader.backlog().await.unwrap().missed;
        if missed > 0 {
            break;
        }
    }
    append(&path, "b\n");
    let mut lines = Vec::new();
    while lines.last().is_none_or(|last| last != "1:b") {
        lines.extend(reading.lines().await);
    }
    missed = missed.max(reading.reader.backlog().await.unwrap().missed);
    assert!(missed > 0, "{lines:?}");
}

#[tokio::test]
async fn a_file_that_is_rotated_before_a_line_is_stored_is_found_or_missed_aloud() {
    for is_gone in [false, true] {
        let (directory, path) = directory();
        append(&path, "one\ntwo\n");
        let mut reading = open(&path, None).await;
        let Read::Progress(_, start) = reading.reader.read(ROOM).await.unwrap() else { panic!("the start is stored") };
        assert_eq!(reading.lines().await, ["1:one", "2:two"]);
        let rotated = directory.path().join("in.log.1");
        fs::rename(&path, &rotated).unwrap();
        append(&path, "three\n");
        let mut again = if is_gone {
            fs::remove_file(&rotated).unwrap();
            open(&path, Some(start)).await
        } else {
            open(&path, Some(start)).await
        };
        let expected: &[&str] = if is_gone { &["1:three"] } else { &["1:one", "2:two", "1:three"] };
        assert_eq!(again.lines().await, expected, "gone: {is_gone}");
        assert_eq!(again.reader.backlog().await.unwrap().missed, u64::from(is_gone));
    }
}
