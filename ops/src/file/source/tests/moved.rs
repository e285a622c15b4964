//! Files that were rotated between two runs, in directories that are moved, replaced or copied.

use super::*;
use crate::file::position::identity;

/// `parent/logs` with the path, and where a restart resumes: after `2` of `in.log.2`, which has a line more. After it
/// came `in.log.1`, and then the file at the path.
struct Rotated {
    root: tempfile::TempDir,
    path: PathBuf,
    resume: Resume,
}

impl Rotated {
    async fn create() -> Self {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("parent/logs");
        fs::create_dir_all(&logs).unwrap();
        let path = logs.join("in.log");
        append(&path, "1\n2\n");
        let mut reading = open(&path, None).await;
        assert_eq!(reading.lines().await, ["1:1", "2:2"]);
        let resume = Resume::decode(&reading.last.unwrap()).unwrap();
        append(&path, "3\n");
        fs::rename(&path, logs.join("in.log.2")).unwrap();
        append(&logs.join("in.log.1"), "4\n5\n");
        append(&path, "6\n");
        let written = SystemTime::now() - Duration::from_secs(1);
        for (name, age) in [("in.log.2", 3), ("in.log.1", 2), ("in.log", 1)] {
            let file = File::options().append(true).open(logs.join(name)).unwrap();
            // Not so long ago that nobody may write to it any more: it is waited at.
            file.set_modified(written - Duration::from_millis(100 * age)).unwrap();
        }
        Rotated { root, path, resume }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn follower(&self) -> Follower {
        Follower::new(self.path.clone(), Some(self.resume))
    }
}

/// Waits until files are made at another time than those that are there, as the file system keeps it.
fn tick(directory: &Path) {
    let probe = directory.join("probe");
    let made = || {
        fs::write(&probe, "").unwrap();
        let made = fs::metadata(&probe).unwrap().created().unwrap();
        fs::remove_file(&probe).unwrap();
        made
    };
    let began = made();
    while made().duration_since(began).unwrap_or_default() < Duration::from_millis(2) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A path whose file was read, which holds `1` and `2`; `in.log.9` beside it is older.
async fn read_after_another(directory: &Path) -> (PathBuf, Resume) {
    append(&directory.join("in.log.9"), "before it\n");
    tick(directory);
    let path = directory.join("in.log");
    append(&path, "1\n2\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:1", "2:2"]);
    (path, Resume::decode(&reading.last.unwrap()).unwrap())
}

/// While the source does not run, the file that it read is rotated until it is deleted.
#[tokio::test]
async fn files_that_were_made_after_one_that_is_gone_are_read() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let (path, resume) = read_after_another(root.path()).await;
    append(&path, "3\n");
    fs::rename(&path, at("in.log.3")).unwrap();
    for (name, text) in [("in.log.2", "4\n"), ("in.log.1", "5\n"), ("in.log", "6\n")] {
        tick(root.path());
        append(&at(name), text);
    }
    append(&at("in-errors.log"), "another log\n");
    append(&at("in.log.1.gz"), "compressed\n");
    let written = SystemTime::now() - Duration::from_secs(1);
    for (name, age) in [("in.log.9", 9), ("in.log.2", 3), ("in.log.1", 2), ("in.log", 1)] {
        let file = File::options().append(true).open(at(name)).unwrap();
        file.set_modified(written - Duration::from_millis(100 * age)).unwrap();
    }
    fs::remove_file(at("in.log.3")).unwrap();
    let (mut follower, mut text) = (Follower::new(path.clone(), Some(resume)), Vec::new());
    read_on(&mut follower, &mut text, 6, LONG);
    assert_eq!(String::from_utf8(text).unwrap(), "4\n5\n6\n");
    assert_eq!(follower.missed().files, 1, "what the file that is gone had");
    // The file at the path got the number of the one that is gone.
    let mut reused = resume;
    reused.identity = identity(&fs::metadata(&path).unwrap());
    let (mut follower, mut text) = (Follower::new(path.clone(), Some(reused)), Vec::new());
    read_on(&mut follower, &mut text, 6, LONG);
    assert_eq!(String::from_utf8(text).unwrap(), "4\n5\n6\n");
    // A path that was never rotated: what is beside it was there before.
    let mut resume = resume;
    resume.born = u64::MAX >> 16;
    let (mut follower, mut text) = (Follower::new(path, Some(resume)), Vec::new());
    read_on(&mut follower, &mut text, 2, LONG);
    assert_eq!(String::from_utf8(text).unwrap(), "6\n");
}

/// The same, and nothing is at the path yet.
#[tokio::test]
async fn files_that_were_made_after_one_that_is_gone_are_read_while_the_path_is_free() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let (path, resume) = read_after_another(root.path()).await;
    fs::remove_file(&path).unwrap();
    // Nothing was made since.
    let mut follower = Follower::new(path.clone(), Some(resume));
    assert!(matches!(follower.step(&mut Vec::new(), usize::MAX).unwrap(), StepResult::Missing));
    for (name, text) in [("in.log.2", "4\n"), ("in.log.1", "5\n")] {
        tick(root.path());
        append(&at(name), text);
    }
    let written = SystemTime::now() - Duration::from_secs(1);
    for (name, age) in [("in.log.9", 9), ("in.log.2", 3), ("in.log.1", 2)] {
        let file = File::options().append(true).open(at(name)).unwrap();
        file.set_modified(written - Duration::from_millis(100 * age)).unwrap();
    }
    let mut text = Vec::new();
    read_on(&mut follower, &mut text, 4, LONG);
    assert_eq!(String::from_utf8(text.clone()).unwrap(), "4\n5\n");
    assert_eq!(follower.missed().files, 1, "what the file that is gone had");
    append(&path, "6\n");
    read_on(&mut follower, &mut text, 6, LONG);
    assert_eq!(String::from_utf8(text).unwrap(), "4\n5\n6\n");
    assert_eq!(follower.missed().files, 1);
}

/// The path in the settings was changed: nothing of the new file was read, and nothing of it is lost.
#[tokio::test]
async fn a_path_that_was_changed_is_not_a_file_that_was_replaced() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    append(&at("a.txt"), "a1\na2\n");
    let mut reading = open(&at("a.txt"), None).await;
    assert_eq!(reading.lines().await, ["1:a1", "2:a2"]);
    let resume = Resume::decode(&reading.last.unwrap()).unwrap();
    tick(root.path());
    append(&at("b.txt.1"), "before b\n");
    append(&at("b.txt"), "b1\n");
    let warning = |path: &Path| {
        let mut follower = Follower::new(path.to_owned(), Some(resume));
        let StepResult::Opened(opened) = follower.step(&mut Vec::new(), usize::MAX).unwrap() else { panic!() };
        let mut text = Vec::new();
        read_on(&mut follower, &mut text, 3, LONG);
        assert_eq!(follower.missed().files, 0);
        (opened.warning, String::from_utf8(text).unwrap())
    };
    let (told, text) = warning(&at("b.txt"));
    assert_eq!(text, "b1\n");
    let told = told.unwrap();
    assert!(told.contains("the path of the source was changed") && !told.contains("lost"), "{told}");
    // The file was moved with it: it is read on.
    append(&at("a.txt"), "a3\n");
    fs::rename(at("a.txt"), at("c.txt")).unwrap();
    assert_eq!(warning(&at("c.txt")), (None, "a3\n".to_owned()));
}

/// Looks on until this many bytes are there, or for so long.
fn read_on(follower: &mut Follower, text: &mut Vec<u8>, len: usize, longest: Duration) {
    let began = Instant::now();
    while text.len() < len && began.elapsed() < longest {
        match follower.step(text, usize::MAX).unwrap() {
            StepResult::Opened(_) | StepResult::Grown | StepResult::Replaced => {}
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Reads to the end of the rotated file, does `meanwhile`, looks for longer than a writer is waited for, does `then`,
/// and reads all there is.
fn interrupted(rotated: &Rotated, meanwhile: impl FnOnce(), then: impl FnOnce(), end: &str) -> String {
    let (mut follower, mut text) = (rotated.follower(), Vec::new());
    read_on(&mut follower, &mut text, 2, LONG);
    assert_eq!(text, b"3\n");
    meanwhile();
    read_on(&mut follower, &mut text, usize::MAX, Duration::from_millis(1300));
    then();
    while !text.ends_with(end.as_bytes()) {
        let before = text.len();
        read_on(&mut follower, &mut text, before + 1, LONG);
        assert!(text.len() > before, "it stays at {:?}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_directory_that_is_away_for_a_moment_hides_no_rotated_file() {
    for name in ["parent/logs", "parent"] {
        let rotated = Rotated::create().await;
        let (here, away) = (rotated.at(name), rotated.at("away"));
        let (go, come) = (|| fs::rename(&here, &away).unwrap(), || fs::rename(&away, &here).unwrap());
        assert_eq!(interrupted(&rotated, go, come, "6\n"), "3\n4\n5\n6\n", "{name}");
    }
}

#[tokio::test]
async fn a_directory_that_another_one_took_the_place_of_is_read_to_its_end() {
    let rotated = Rotated::create().await;
    let (here, away) = (rotated.at("parent/logs"), rotated.at("away"));
    let replace = || {
        fs::rename(&here, &away).unwrap();
        fs::create_dir(&here).unwrap();
        append(&rotated.path, "7\n");
    };
    assert_eq!(interrupted(&rotated, replace, || (), "7\n"), "3\n4\n5\n6\n7\n");
}

#[tokio::test]
async fn a_link_to_the_directory_that_is_set_anew_hides_no_rotated_file() {
    let mut rotated = Rotated::create().await;
    let (link, other) = (rotated.at("link"), rotated.at("other"));
    std::os::unix::fs::symlink(rotated.at("parent/logs"), &link).unwrap();
    rotated.path = link.join("in.log");
    let switch = || {
        fs::create_dir(&other).unwrap();
        append(&other.join("in.log"), "7\n");
        let next = rotated.at("next");
        std::os::unix::fs::symlink(&other, &next).unwrap();
        fs::rename(&next, &link).unwrap();
    };
    assert_eq!(interrupted(&rotated, switch, || (), "7\n"), "3\n4\n5\n6\n7\n");
}

/// A copy of a directory as `cp -a` makes it: other inodes, the same times.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let copied = to.join(entry.file_name());
        fs::copy(entry.path(), &copied).unwrap();
        let written = entry.metadata().unwrap().modified().unwrap();
        File::options().append(true).open(&copied).unwrap().set_modified(written).unwrap();
    }
}

#[tokio::test]
async fn a_directory_that_a_copy_took_the_place_of_hides_no_rotated_file() {
    let rotated = Rotated::create().await;
    let (here, copied) = (rotated.at("parent/logs"), rotated.at("copied"));
    let remove = || {
        copy(&here, &copied);
        fs::remove_dir_all(&here).unwrap();
    };
    let text = interrupted(&rotated, remove, || fs::rename(&copied, &here).unwrap(), "6\n");
    assert!(text.starts_with("3\n4\n5\n6\n"), "{text}");
}

#[tokio::test]
async fn the_files_after_one_that_is_deleted_while_it_is_read_are_found() {
    let rotated = Rotated::create().await;
    let delete = || fs::remove_file(rotated.path.with_file_name("in.log.2")).unwrap();
    assert_eq!(interrupted(&rotated, delete, || (), "6\n"), "3\n4\n5\n6\n");
}

#[tokio::test]
async fn the_files_after_one_of_two_names_are_found() {
    for other in ["in.log.keep", "a-in.log", "in.log.7", "z.log"] {
        let rotated = Rotated::create().await;
        fs::hard_link(rotated.path.with_file_name("in.log.2"), rotated.path.with_file_name(other)).unwrap();
        assert_eq!(interrupted(&rotated, || (), || (), "6\n"), "3\n4\n5\n6\n", "{other}");
    }
}

/// All that a restart reads, and how many files it counts as missed.
fn all(rotated: &Rotated) -> (String, u64) {
    let (mut follower, mut text) = (rotated.follower(), Vec::new());
    while !text.ends_with(b"6\n") {
        let before = text.len();
        read_on(&mut follower, &mut text, before + 1, LONG);
        assert!(text.len() > before, "it stays at {:?}", String::from_utf8_lossy(&text));
    }
    (String::from_utf8(text).unwrap(), follower.missed().files)
}

#[tokio::test]
async fn a_rotated_file_is_recognised_by_its_content() {
    // In a copy of the directory.
    let rotated = Rotated::create().await;
    let (here, copied) = (rotated.at("parent/logs"), rotated.at("copied"));
    copy(&here, &copied);
    fs::remove_dir_all(&here).unwrap();
    fs::rename(&copied, &here).unwrap();
    assert!(rotated.follower().finds().unwrap());
    assert_eq!(all(&rotated), ("3\n4\n5\n6\n".to_owned(), 0));

    // A backup of what was read then holds no more than the rotated file does.
    fs::write(here.join("in.log.bak"), "1\n2\n").unwrap();
    fs::write(here.join("in.log.orig"), "1\n2\n3\n").unwrap();
    assert_eq!(all(&rotated), ("3\n4\n5\n6\n".to_owned(), 0));

    // It was copied, and then cut to begin anew.
    let rotated = Rotated::create().await;
    let file = |name: &str| rotated.path.with_file_name(name);
    fs::rename(file("in.log.2"), file("kept")).unwrap();
    fs::copy(file("kept"), file("in.log.1")).unwrap();
    fs::write(file("kept"), "6\n").unwrap();
    fs::rename(file("kept"), file("in.log")).unwrap();
    assert_eq!(all(&rotated), ("3\n6\n".to_owned(), 0));

    // There is none.
    fs::remove_file(file("in.log.1")).unwrap();
    fs::write(file("new"), "6\n").unwrap();
    fs::rename(file("new"), file("in.log")).unwrap();
    assert!(!rotated.follower().finds().unwrap());
    assert_eq!(all(&rotated), ("6\n".to_owned(), 1));
}

#[tokio::test]
async fn a_start_that_all_files_share_does_not_hide_a_rotated_file() {
    // Only the first line was read, and it is the same in each.
    let (directory, path) = directory();
    append(&path, "name\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:name"]);
    let resume = Resume::decode(&reading.last.unwrap()).unwrap();
    fs::remove_file(&path).unwrap();
    rotated(&directory, &[("in.log.2", "name\n1\n"), ("in.log.1", "name\n2\n"), ("in.log", "name\n")]);
    let (mut follower, mut text) = (Follower::new(path.clone(), Some(resume)), Vec::new());
    read_on(&mut follower, &mut text, 14, LONG);
    assert_eq!(String::from_utf8(text).unwrap(), "1\nname\n2\nname\n");

    // A backup of the file that is read on is not read.
    fs::write(&path, "name\n3\n4\n").unwrap();
    for name in ["in.log.1", "in.log.2"] {
        fs::remove_file(path.with_file_name(name)).unwrap();
    }
    fs::write(path.with_file_name("in.log.bak"), "name\n3\n").unwrap();
    let (mut follower, mut text) = (Follower::new(path, Some(resume)), Vec::new());
    read_on(&mut follower, &mut text, 4, LONG);
    assert_eq!(String::from_utf8(text).unwrap(), "3\n4\n");
}
