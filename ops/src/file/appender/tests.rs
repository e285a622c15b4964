use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

fn frame(lines: &[&str]) -> Frame {
    let mut frame = Frame::new(b"\n");
    frame.clear();
    for line in lines {
        frame
            .line(|bytes| {
                bytes.extend_from_slice(line.as_bytes());
                Ok::<(), ()>(())
            })
            .unwrap();
    }
    frame
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    (directory, path)
}

/// Leaves the file and the intent as a process that was killed leaves them.
fn kill(appender: Appender) {
    std::mem::forget(appender);
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn names(directory: &tempfile::TempDir) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn lines_are_appended_and_nothing_is_left_behind() {
    let (directory, path) = directory();
    fs::write(&path, "theirs\n").unwrap();
    let mut appender = Appender::open(&path, true).unwrap();
    appender.append(&mut frame(&["a", "b"])).unwrap();
    appender.append(&mut frame(&["c"])).unwrap();
    appender.sync().unwrap();
    assert_eq!(names(&directory), [".out.anabranch", "out"]);
    let mode = fs::metadata(directory.path().join(".out.anabranch")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(appender.warnings(), [""; 0]);
    drop(appender);
    assert_eq!(text(&path), "theirs\na\nb\nc\n");
    assert_eq!(names(&directory), ["out"]);
}

#[test]
fn a_torn_line_of_ours_is_cut() {
    let (_directory, path) = directory();
    for torn in 1..12 {
        let mut appender = Appender::open(&path, false).unwrap();
        appender.append(&mut frame(&["whole"])).unwrap();
        appender.append(&mut frame(&["first", "second"])).unwrap();
        let size = text(&path).len() as u64;
        kill(appender);
        File::options().write(true).open(&path).unwrap().set_len(size - torn).unwrap();

        let mut appender = Appender::open(&path, false).unwrap();
        let kept = if torn > 7 { "whole\n" } else { "whole\nfirst\n" };
        assert_eq!(text(&path), kept, "{torn}");
        assert_eq!(appender.warnings().len(), usize::from(torn != 7));
        appender.append(&mut frame(&["next"])).unwrap();
        assert_eq!(text(&path), format!("{kept}next\n"));
        drop(appender);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn records_of_several_lines_are_cut_whole() {
    let (_directory, path) = directory();
    let mut appender = Appender::open(&path, false).unwrap();
    appender.append(&mut frame(&["whole"])).unwrap();
    appender.append(&mut frame(&["a\nb", "c\nd"])).unwrap();
    kill(appender);
    File::options().write(true).open(&path).unwrap().set_len(13).unwrap();
    drop(Appender::open(&path, false).unwrap());
    assert_eq!(text(&path), "whole\n");
}

#[test]
fn foreign_data_is_never_cut() {
    let (_directory, path) = directory();
    fs::write(&path, "their unfinished").unwrap();
    let mut appender = Appender::open(&path, false).unwrap();
    appender.append(&mut frame(&["ours"])).unwrap();
    assert_eq!(text(&path), "their unfinished\nours\n");
    append(&path, "again");
    appender.append(&mut frame(&["more"])).unwrap();
    assert_eq!(text(&path), "their unfinished\nours\nagain\nmore\n");

    // Ours is torn, and somebody goes on after it.
    kill(appender);
    let size = text(&path).len() as u64;
    File::options().write(true).open(&path).unwrap().set_len(size - 3).unwrap();
    append(&path, "X");
    let mut appender = Appender::open(&path, false).unwrap();
    assert_eq!(text(&path), "their unfinished\nours\nagain\nmoX");
    appender.append(&mut frame(&["next"])).unwrap();
    assert_eq!(text(&path), "their unfinished\nours\nagain\nmoX\nnext\n");

    // The line feed we had put after their line stays: it changes nothing of theirs.
    kill(appender);
    fs::write(&path, "theirs").unwrap();
    let mut appender = Appender::open(&path, false).unwrap();
    appender.append(&mut frame(&["ours"])).unwrap();
    kill(appender);
    File::options().write(true).open(&path).unwrap().set_len(9).unwrap();
    drop(Appender::open(&path, false).unwrap());
    assert_eq!(text(&path), "theirs\n");

    // Another file in the place of the one that was torn.
    let mut appender = Appender::open(&path, false).unwrap();
    appender.append(&mut frame(&["ours"])).unwrap();
    kill(appender);
    let copy = path.with_extension("copy");
    fs::write(&copy, "theirs\nou").unwrap();
    fs::rename(&copy, &path).unwrap();
    drop(Appender::open(&path, false).unwrap());
    assert_eq!(text(&path), "theirs\nou");
}

#[test]
fn two_writers_share_a_file() {
    let (directory, path) = directory();
    let threads: Vec<_> = (0..2)
        .map(|writer| {
            let path = path.clone();
            std::thread::spawn(move || {
                let line = writer.to_string().repeat(3000);
                for _ in 0..10 {
                    let mut appender = Appender::open(&path, false).unwrap();
                    for _ in 0..5 {
                        appender.append(&mut frame(&[&line, &line])).unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let text = text(&path);
    assert_eq!(text.lines().count(), 200);
    assert!(text.lines().all(|line| line.len() == 3000 && (line.starts_with('0') != line.contains('1'))));
    assert_eq!(names(&directory), ["out"]);
}

#[test]
fn a_file_that_is_moved_away_is_begun_anew() {
    let (directory, path) = directory();
    let mut appender = Appender::open(&path, false).unwrap();
    appender.append(&mut frame(&["a"])).unwrap();
    fs::rename(&path, directory.path().join("out.1")).unwrap();
    appender.append(&mut frame(&["b"])).unwrap();
    assert_eq!(appender.warnings().len(), 1);
    fs::remove_file(&path).unwrap();
    appender.append(&mut frame(&["c"])).unwrap();
    assert_eq!((text(&directory.path().join("out.1")).as_str(), text(&path).as_str()), ("a\n", "c\n"));
    drop(appender);
    assert_eq!(names(&directory), ["out", "out.1"]);
}

#[test]
fn a_name_taken_by_something_else_is_left_alone() {
    let (directory, path) = directory();
    let victim = directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, directory.path().join(".out.anabranch")).unwrap();
    let mut appender = Appender::open(&path, false).unwrap();
    assert_eq!(appender.warnings().len(), 1);
    appender.append(&mut frame(&["a"])).unwrap();
    drop(appender);
    assert_eq!((text(&victim).as_str(), text(&path).as_str()), ("precious", "a\n"));
}

#[test]
fn a_short_write_says_how_far_it_came() {
    struct Full(Vec<u8>);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = 5 - self.0.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let n = bytes.len().min(room).min(2);
            self.0.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (error, written) = write_all(&mut Full(Vec::new()), b"1234567").unwrap_err();
    assert_eq!((error.kind(), written), (io::ErrorKind::StorageFull, 5));
    write_all(&mut Full(Vec::new()), b"12345").unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wherever a crash tears the last write, what is left are the earlier lines and some whole lines of it.
    #[test]
    fn no_tear_leaves_half_a_line(
        before in "[a\n]{0,12}",
        lines in proptest::collection::vec("[a-c]{0,9}", 1..12),
        torn in 0usize..200,
    ) {
        let (_directory, path) = directory();
        fs::write(&path, &before).unwrap();
        let mut appender = Appender::open(&path, false).unwrap();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        appender.append(&mut frame(&lines)).unwrap();
        kill(appender);
        let whole = text(&path);
        let left = whole.len().saturating_sub(torn).max(before.len());
        File::options().write(true).open(&path).unwrap().set_len(left as u64).unwrap();
        let mut appender = Appender::open(&path, false).unwrap();
        let kept = text(&path);
        prop_assert!(whole.starts_with(&kept) && kept.len() >= before.len() && kept.len() <= left);
        prop_assert!(kept == before || kept.ends_with('\n'), "{kept:?}");
        appender.append(&mut frame(&["new"])).unwrap();
        prop_assert!(text(&path).ends_with("\nnew\n") || kept.is_empty());
    }
}
