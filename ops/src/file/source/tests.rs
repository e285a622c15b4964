use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::source::{Read, Reader, Room};
use anabranch_plugin::testing::{check_source, configured};
use anabranch_record::{Data, Record};
use futures::future::join_all;
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::file::follower::StepResult;
use crate::file::generations::UnreadFiles;
use crate::testing::host;

mod backlog;
mod cut;
mod gap;
mod moved;
mod rewritten;
mod rotated;
mod several;
#[cfg(feature = "parquet")]
mod tables;

#[tokio::test]
async fn the_source_keeps_its_promises() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in");
    let fresh = async || {
        fs::write(&path, "one\ntwo\n\nfour\nfive\n").unwrap();
        configured::source(&super::kind(), &[("path", path.to_str().unwrap())]).unwrap()
    };
    let records = check_source(fresh).await.unwrap();
    let lines: Vec<Vec<u8>> = records.iter().map(|record| raw(&record.payload.after)).collect();
    assert_eq!(lines, ["one", "two", "", "four", "five"].map(Vec::from));
}

const ROOM: Room = Room { rows: 100, bytes: 1 << 20 };

/// A reader, and what it delivered so far.
struct Reading {
    reader: Box<dyn Reader>,
    last: Option<Position>,
}

async fn try_open(path: &Path, resume: Option<Position>, more: &[(&str, &str)]) -> Result<Reading, Fault> {
    let kind = super::kind();
    let settings = [&[("path", path.to_str().unwrap())], more].concat();
    let arguments = Arguments::parse(kind.specification(), &Settings::from_pairs(settings)).unwrap();
    let marks =
        resume.iter().map(|position| (Partition::ONLY, Mark { generation: 0, seq: 0, position: position.clone() }));
    let opened = kind.configure(&arguments).unwrap().open(&marks.collect(), &host()).await?;
    Ok(Reading { reader: opened.reader, last: resume })
}

async fn open(path: &Path, resume: Option<Position>) -> Reading {
    try_open(path, resume, &[]).await.unwrap()
}

fn raw(data: &Data) -> Vec<u8> {
    match data {
        Data::Raw(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

impl Reading {
    /// The next records; none when caught up.
    async fn some(&mut self, room: Room) -> Vec<Record> {
        loop {
            match self.reader.read(room).await.unwrap() {
                Read::Rows { records, .. } => {
                    assert!(!records.is_empty() && records.len() <= room.rows);
                    self.last = records.last().map(|r| r.position().clone());
                    return records;
                }
                Read::Progress(_, position) => self.last = Some(position),
                Read::CaughtUp => return Vec::new(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// `number:line` of all records until it is caught up.
    async fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let records = self.some(ROOM).await;
            if records.is_empty() {
                return lines;
            }
            lines.extend(records.iter().map(|r| {
                format!("{}:{}", String::from_utf8_lossy(&raw(&r.key)), raw(&r.payload.after).escape_ascii())
            }));
        }
    }
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.log");
    (directory, path)
}

#[tokio::test]
async fn each_line_is_a_record() {
    let (_directory, path) = directory();
    fs::write(&path, b"one\r\n\n\xff\x00\nlast\n").unwrap();
    let mut reading = open(&path, None).await;
    let records = reading.some(ROOM).await;
    let lines: Vec<Vec<u8>> = records.iter().map(|r| raw(&r.payload.after)).collect();
    assert_eq!(lines, [&b"one\r"[..], b"", b"\xff\x00", b"last"]);
    let keys: Vec<Vec<u8>> = records.iter().map(|r| raw(&r.key)).collect();
    assert_eq!(keys, [b"1", b"2", b"3", b"4"]);
    for record in &records {
        assert_eq!(record.operation, anabranch_record::Operation::Create);
        assert_eq!(record.payload.before, Data::Absent);
        assert_eq!(record.metadata.get("file.path").unwrap(), path.to_str().unwrap());
        assert_eq!(record.position().0.len(), 33);
    }
    assert!(reading.some(ROOM).await.is_empty());
}

/// Positions that versions 1 to 4 of the format have after `one` of a file, whose inode is another one here.
const POSITIONS: [&str; 4] = [
    "010400000000000000010000000000000004030201ebc1ce6d",
    "02040000000000000100000000000004030201ebc1ce6dce81545c",
    "03040000000000000100000000000004030201ebc1ce6dce81545c000000000000",
    "04040000000000010000000000000004030201ebc1ce6dce81545c000000000000",
];

#[tokio::test]
async fn positions_of_every_version_are_read() {
    for hexadecimal in POSITIONS {
        let (_directory, path) = directory();
        append(&path, "one\ntwo\n");
        let digits = hexadecimal.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let position: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        // The path of the last version is known, and it is another one: the content decides.
        assert_eq!(open(&path, Some(Position::copy_from(&position))).await.lines().await, ["2:two"], "{hexadecimal}");
    }
}

#[tokio::test]
async fn what_comes_later_is_read() {
    let (_directory, path) = directory();
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, [""; 0]);
    append(&path, "a\nb");
    // The start of a line waits for its end.
    assert_eq!(reading.some(ROOM).await.len(), 1);
    assert!(reading.some(ROOM).await.is_empty());
    append(&path, "c\nd\n");
    assert_eq!(reading.lines().await, ["2:bc", "3:d"]);
    // A read that is given up loses nothing.
    for n in 0..30 {
        let _ = tokio::time::timeout(Duration::from_micros(n * 700), reading.reader.read(ROOM)).await;
    }
    append(&path, "e\n");
    let mut lines = Vec::new();
    while lines.is_empty() {
        lines = reading.lines().await;
    }
    assert_eq!(lines, ["4:e"]);
}

#[tokio::test]
async fn a_change_that_the_system_does_not_tell_is_found() {
    use std::os::unix::fs::symlink;
    let (directory, path) = directory();
    let real = directory.path().join("real");
    fs::create_dir(&real).unwrap();
    append(&real.join("1"), "a\n");
    append(&real.join("2"), "b\n");
    symlink("1", real.join("current")).unwrap();
    symlink(real.join("current"), &path).unwrap();
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:a"]);
    // Long enough to be watched: the entry of the path, and the file behind it. Neither changes.
    assert!(tokio::time::timeout(Duration::from_millis(300), reading.reader.read(ROOM)).await.is_err());
    symlink("2", real.join("next")).unwrap();
    fs::rename(real.join("next"), real.join("current")).unwrap();
    assert_eq!(reading.lines().await, ["1:b"]);
    append(&real.join("2"), "c\n");
    assert_eq!(reading.lines().await, ["2:c"]);
}

#[tokio::test]
async fn an_unterminated_last_line_is_not_lost() {
    let (_directory, path) = directory();
    append(&path, "a\nb");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:a", "2:b"]);
    let after_b = reading.last.clone();
    // Delivered, and not again.
    assert_eq!(open(&path, after_b.clone()).await.lines().await, [""; 0]);
    // Only its line feed was missing.
    append(&path, "\n");
    assert_eq!(open(&path, after_b.clone()).await.lines().await, [""; 0]);
    append(&path, "c\n");
    assert_eq!(open(&path, after_b.clone()).await.lines().await, ["3:c"]);
    assert_eq!(reading.lines().await, ["3:c"]);
    // It was not the whole line after all: the whole line comes, under the same number.
    fs::write(&path, "a\nbcd\ne").unwrap();
    let mut again = open(&path, after_b).await;
    assert_eq!(again.lines().await, ["2:bcd", "3:e"]);
}

#[tokio::test]
async fn a_restart_goes_on_after_the_last_record() {
    let (_directory, path) = directory();
    let text: String = (1..=500).map(|n| format!("line {n}\n")).collect();
    fs::write(&path, &text).unwrap();
    let (mut last, mut seen) = (None, 0);
    while seen < 500 {
        let mut reading = open(&path, last).await;
        for record in reading.some(Room { rows: 7, bytes: 1 << 20 }).await {
            seen += 1;
            assert_eq!(raw(&record.payload.after), format!("line {seen}").into_bytes());
            assert_eq!(raw(&record.key), seen.to_string().into_bytes());
        }
        last = reading.last;
    }
    assert_eq!(open(&path, last).await.lines().await, [""; 0]);
}

#[tokio::test]
async fn a_rotated_file_is_finished_first() {
    let (directory, path) = directory();
    append(&path, "a\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:a"]);
    fs::rename(&path, directory.path().join("in.log.1")).unwrap();
    append(&directory.path().join("in.log.1"), "b\nc");
    append(&path, "d\n");
    assert_eq!(reading.lines().await, ["2:b", "3:c", "1:d"], "caught up only at the end of the new file");
}

#[tokio::test]
async fn a_rotation_between_two_runs_is_noticed() {
    let (directory, path) = directory();
    append(&path, "a\nb\n");
    let mut reading = open(&path, None).await;
    reading.some(Room { rows: 1, ..ROOM }).await;
    let after_a = reading.last.clone();
    fs::rename(&path, directory.path().join("in.log.1")).unwrap();
    append(&path, "longer than the old one\n");
    let mut again = open(&path, after_a.clone()).await;
    assert_eq!(again.lines().await, ["2:b", "1:longer than the old one"]);
    // The old file is gone: the new one is read from its start.
    fs::remove_file(directory.path().join("in.log.1")).unwrap();
    assert_eq!(open(&path, after_a.clone()).await.lines().await, ["1:longer than the old one"]);
    // The same content in another file, as after a backup was restored.
    fs::write(directory.path().join("copy"), "a\nb\nc\n").unwrap();
    fs::rename(directory.path().join("copy"), &path).unwrap();
    assert_eq!(open(&path, after_a).await.lines().await, ["2:b", "3:c"]);
}

/// Names as they are after so many rotations, the oldest first; `touched` is when the file was last written to.
fn rotated(directory: &tempfile::TempDir, names: &[(&str, &str)]) {
    for (age, (name, text)) in names.iter().rev().enumerate() {
        let path = directory.path().join(name);
        append(&path, text);
        let written = SystemTime::now() - Duration::from_secs(60 * age as u64);
        File::options().append(true).open(&path).unwrap().set_modified(written).unwrap();
    }
}

#[tokio::test]
async fn files_rotated_between_two_runs_are_read_in_order() {
    let names = [
        ["in.log.3", "in.log.2", "in.log.1"],
        ["in.log-20261119", "in.log-20261120", "in.log-20261121"],
        ["8-in.log", "9-in.log", "10-in.log"],
    ];
    join_all(names.map(|[first, second, third]| async move {
        let (directory, path) = directory();
        append(&path, "a\nb\n");
        let mut reading = open(&path, None).await;
        reading.some(Room { rows: 1, ..ROOM }).await;
        let after_a = reading.last.clone();
        fs::rename(&path, directory.path().join(first)).unwrap();
        // Those of others, and one that was read before.
        let others = ["in.log.4.gz", "in-errors.log", "in.log.bak", "in2.log.1", "other.log.1", "8-in2.log"];
        others.iter().for_each(|name| append(&directory.path().join(name), "no\n"));
        let before = File::create(directory.path().join(third.replace(['1', '0'], "7"))).unwrap();
        before.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        rotated(&directory, &[(first, ""), (second, "c\n"), (third, "d\ne"), ("in.log", "f\n")]);
        let mut again = open(&path, after_a).await;
        again.some(ROOM).await;
        again.some(ROOM).await;
        let after_c = again.last.clone();
        assert_eq!(again.lines().await, ["1:d", "2:e", "1:f"], "{first}");
        assert_eq!(open(&path, after_c).await.lines().await, ["1:d", "2:e", "1:f"], "{first}: on the way");
        assert_eq!(open(&path, again.last).await.lines().await, [""; 0], "{first}: at the end");
    }))
    .await;
}

#[tokio::test]
async fn files_rotated_while_nothing_is_read_are_read_in_order() {
    let (directory, path) = directory();
    append(&path, "a\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:a"]);
    fs::rename(&path, directory.path().join("in.log.3")).unwrap();
    rotated(&directory, &[("in.log.3", "b\n"), ("in.log.2", "c\n"), ("in.log.1", "d\n")]);
    // The next one is still to come.
    assert_eq!(reading.lines().await, ["2:b", "1:c", "1:d"]);
    append(&path, "e\n");
    assert_eq!(reading.lines().await, ["1:e"]);
}

#[tokio::test]
async fn a_directory_that_goes_away_is_waited_for() {
    let (directory, path) = directory();
    append(&path, "a\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:a"]);
    let path = directory.path().to_path_buf();
    drop(directory);
    assert!(!path.exists());
    let waiting = tokio::time::timeout(Duration::from_millis(300), reading.some(ROOM)).await;
    assert!(waiting.is_err(), "{waiting:?}");
}

#[tokio::test]
async fn another_path_is_another_file_and_no_rotation() {
    let (directory, path) = directory();
    append(&path, "a\nb\n");
    let mut reading = open(&path, None).await;
    reading.some(Room { rows: 1, ..ROOM }).await;
    for name in ["other.log", "in2.log"] {
        let other = directory.path().join(name);
        append(&other, "x\n");
        assert_eq!(open(&other, reading.last.clone()).await.lines().await, ["1:x"], "{name}");
    }
}

#[tokio::test]
async fn a_truncated_file_is_read_from_its_start() {
    let (_directory, path) = directory();
    append(&path, "first\nsecond\n");
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await.len(), 2);
    let end = reading.last.clone();
    File::create(&path).unwrap();
    append(&path, "x\n");
    assert_eq!(reading.lines().await, ["1:x"]);
    assert_eq!(open(&path, end.clone()).await.lines().await, ["1:x"]);
    // Rewritten with more than there was: the size alone would not tell.
    fs::write(&path, "y\nand much more than was there before\n").unwrap();
    assert_eq!(reading.lines().await, ["1:y", "2:and much more than was there before"]);
    assert_eq!(open(&path, end).await.lines().await.len(), 2);
}

#[tokio::test]
async fn long_lines_pass_up_to_the_limit() {
    let (_directory, path) = directory();
    let mut file = File::create(&path).unwrap();
    let long = vec![b'x'; 50_000_000];
    file.write_all(b"short\n").unwrap();
    file.write_all(&long).unwrap();
    file.write_all(b"\nend\n").unwrap();
    let mut reading = open(&path, None).await;
    assert_eq!(reading.some(ROOM).await.len(), 1);
    let records = reading.some(ROOM).await;
    assert_eq!(records.len(), 1, "a record larger than the room comes alone");
    assert!(raw(&records[0].payload.after) == long);
    assert_eq!(reading.lines().await, ["3:end"]);

    for limit in ["4", "1000KiB"] {
        let mut reading = try_open(&path, None, &[("maxLineBytes", limit)]).await.unwrap();
        let mut fault = None;
        for _ in 0..3 {
            match reading.reader.read(ROOM).await {
                Ok(Read::Progress(..)) => {}
                Ok(Read::Rows { records, .. }) => assert_eq!((limit, records.len()), ("1000KiB", 1)),
                Ok(other) => panic!("{other:?}"),
                Err(e) => fault = Some(e),
            }
        }
        let fault = fault.unwrap();
        assert_eq!(fault.code().name(), "line_too_long");
        let place = if limit == "4" { "line 1 of" } else { "line 2 of" };
        assert!(fault.message().contains(place) && fault.message().contains(path.to_str().unwrap()), "{fault}");
    }
}

#[tokio::test]
async fn what_is_not_a_file_is_refused() {
    let (directory, path) = directory();
    for path in [directory.path(), Path::new("/dev/null"), &path.join("x")] {
        append(&directory.path().join("in.log"), "");
        let fault = try_open(path, None, &[]).await.err().unwrap();
        assert_eq!(
            (fault.code().name(), fault.class()),
            ("file_unreadable", anabranch_record::fault::FaultClass::Fatal)
        );
        assert!(fault.message().contains(path.to_str().unwrap()), "{fault}");
    }
    let (circle, long) = (directory.path().join("circle"), directory.path().join("n".repeat(300)));
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    for (path, what) in [(&circle, "links that form a loop"), (&long, "too long")] {
        let fault = try_open(path, None, &[]).await.err().unwrap();
        assert_eq!(
            (fault.code().name(), fault.class()),
            ("file_unreadable", anabranch_record::fault::FaultClass::Fatal)
        );
        assert!(fault.message().contains(path.to_str().unwrap()) && fault.message().contains(what), "{fault}");
    }
    let resume = Some(Position::copy_from(b"17"));
    assert_eq!(try_open(&path, resume, &[]).await.err().unwrap().code().name(), "position_unknown");
}

/// A rotation may create the file first and give the right to read it later.
#[test]
fn a_right_that_is_missing_may_be_given() {
    let fault = unreadable("in.log", &io::ErrorKind::PermissionDenied.into());
    assert_eq!((fault.code().name(), fault.class()), ("file_unreadable", FaultClass::Transient));
    assert!(fault.is_of_login() && fault.message().contains("in.log"), "{fault}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However the file is cut into reads and runs, what is read are its lines, each once.
    #[test]
    fn reads_and_restarts_yield_exactly_the_lines(
        pieces in proptest::collection::vec(prop_oneof![
            4 => proptest::collection::vec(any::<u8>(), 0..20),
            2 => Just(b"\n".to_vec()),
            1 => (1usize..400_000).prop_map(|n| vec![b'z'; n]),
        ], 1..60),
        rooms in proptest::collection::vec((1usize..20, 1usize..2000, any::<bool>()), 1..20),
    ) {
        let content = pieces.concat();
        let mut expected: Vec<&[u8]> = content.split(|b| *b == b'\n').collect();
        if expected.last().is_some_and(|last| last.is_empty()) {
            expected.pop();
        }
        let (_directory, path) = directory();
        fs::write(&path, &content).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = runtime.block_on(async {
            let mut read: Vec<Vec<u8>> = Vec::new();
            let mut reading = open(&path, None).await;
            for (rows, bytes, restart) in rooms.iter().cycle() {
                if *restart {
                    reading = open(&path, reading.last).await;
                }
                let records = reading.some(Room { rows: *rows, bytes: *bytes }).await;
                if records.is_empty() {
                    break;
                }
                for record in records {
                    read.push(raw(&record.payload.after));
                    assert_eq!(raw(&record.key), read.len().to_string().into_bytes());
                }
            }
            read
        });
        prop_assert!(read == expected, "{} lines of {}", read.len(), expected.len());
    }
}
