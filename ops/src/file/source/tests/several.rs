//! Patterns, directories, compression and framing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_plugin::source::{Acker, Release};

use super::*;
use crate::file::compression::Codec;

/// A source and what it delivered, by partition.
struct Several {
    reader: Box<dyn Reader>,
    acker: Box<dyn Acker>,
    marks: BTreeMap<Partition, Position>,
    /// Positions in flight, unless records are settled as they are read.
    in_flight: Option<BTreeMap<Partition, VecDeque<Position>>>,
    /// `partition key payload` of the records.
    seen: Vec<String>,
    root: String,
}

const FAST: [(&str, &str); 2] = [("pollingPeriod", "5ms"), ("settlingPeriod", "40ms")];

async fn start(root: &Path, pattern: &str, marks: BTreeMap<Partition, Position>, more: &[(&str, &str)]) -> Several {
    let kind = crate::file::source::kind();
    let path = format!("{}/{pattern}", root.display());
    let settings = [&[("path", path.as_str())], &FAST[..], more].concat();
    let arguments = Arguments::parse(kind.specification(), &Settings::from_pairs(settings)).unwrap();
    let resume = marks.iter().map(|(name, at)| (name.clone(), Mark { generation: 0, seq: 0, position: at.clone() }));
    let opened = kind.configure(&arguments).unwrap().open(&resume.collect(), &host()).await.unwrap();
    let OpenedSource { reader, acker, .. } = opened;
    Several { reader, acker, marks, in_flight: None, seen: Vec::new(), root: format!("{}/", root.display()) }
}

impl Several {
    /// Reads until the source has caught up.
    async fn all(&mut self) -> Vec<String> {
        self.some(usize::MAX).await
    }

    /// Reads until the source has caught up, or there are this many records.
    async fn some(&mut self, most: usize) -> Vec<String> {
        let from = self.seen.len();
        while self.seen.len() - from < most {
            let room = Room { rows: 3, bytes: 1 << 20 };
            let read = self.reader.read(room).await.unwrap();
            if !self.take(read).await {
                break;
            }
        }
        self.seen[from..].to_vec()
    }

    /// Takes the result of a read as the engine does. Returns `false` if the source has caught up.
    async fn take(&mut self, read: Read) -> bool {
        match read {
            Read::Rows { partition, records } => {
                assert!(!records.is_empty() && records.len() <= 3);
                let shown: Vec<String> = records.iter().map(|record| self.shown(&partition, record)).collect();
                self.seen.extend(shown);
                self.moved(partition, records.iter().map(|record| record.position().clone()).collect()).await;
            }
            Read::Failed { partition, record, fault } => {
                let name = partition.0.strip_prefix(self.root.as_str()).unwrap_or(&partition.0);
                self.seen.push(format!("{name} failed: {}", fault.code()));
                self.moved(partition, vec![record.position().clone()]).await;
            }
            Read::Progress(partition, position) => self.moved(partition, vec![position]).await,
            Read::Finished(partition) => {
                self.settle(&partition, usize::MAX).await;
                self.marks.remove(&partition);
                self.acker.released(&partition, Release::Finished).await.unwrap();
            }
            Read::CaughtUp => return false,
            other => panic!("{other:?}"),
        }
        true
    }

    async fn moved(&mut self, partition: Partition, positions: Vec<Position>) {
        let Some(in_flight) = &mut self.in_flight else {
            return self.store(&partition, positions).await;
        };
        in_flight.entry(partition).or_default().extend(positions);
    }

    /// Settles the first positions in flight of a partition.
    async fn settle(&mut self, partition: &Partition, most: usize) {
        let in_flight = self.in_flight.as_mut().and_then(|them| them.get_mut(partition));
        let settled: Vec<Position> =
            in_flight.map(|them| them.drain(..most.min(them.len())).collect()).unwrap_or_default();
        if !settled.is_empty() {
            self.store(partition, settled).await;
        }
    }

    async fn settle_all(&mut self) {
        let partitions: Vec<Partition> = self.in_flight.iter().flat_map(BTreeMap::keys).cloned().collect();
        for partition in partitions {
            self.settle(&partition, usize::MAX).await;
        }
    }

    async fn store(&mut self, partition: &Partition, positions: Vec<Position>) {
        self.marks.insert(partition.clone(), positions.last().unwrap().clone());
        self.acker.ack(partition, &positions).await.unwrap();
    }

    /// Reads until there are this many more records.
    async fn next(&mut self, count: usize) -> Vec<String> {
        let from = self.seen.len();
        while self.seen.len() - from < count {
            let missing = count - (self.seen.len() - from);
            let read = self.some(missing);
            tokio::time::timeout(Duration::from_secs(120), read).await.unwrap();
        }
        self.seen[from..].to_vec()
    }

    fn shown(&self, partition: &Partition, record: &Record) -> String {
        let name = partition.0.strip_prefix(self.root.as_str()).unwrap_or(&partition.0);
        format!("{name} {} {}", raw(&record.key).escape_ascii(), raw(&record.payload.after).escape_ascii())
    }
}

#[tokio::test]
async fn the_files_of_a_pattern_keep_the_promises_of_a_source() {
    let directory = tempfile::tempdir().unwrap();
    let pattern = format!("{}/*.log", directory.path().display());
    const LINES: [&str; 3] = ["1\n2\n3\n4\n5\n", "6\n7\n8", "9"];
    const STACKS: [&str; 3] = ["before\n> a\nb\n> c\n", "> d\n> e\nf\n", ">"];
    for (framing, texts, count) in
        [("lines", LINES, 9), ("csv", LINES, 6), ("json", LINES, 9), ("whole", LINES, 3), ("multiline", STACKS, 6)]
    {
        let fresh = async || {
            for (number, text) in texts.iter().enumerate() {
                fs::write(directory.path().join(format!("{number}.log")), text).unwrap();
            }
            let mut settings = vec![("path", pattern.as_str()), ("framing", framing), FAST[0], FAST[1]];
            settings.extend((framing == "multiline").then_some(("multiline.startPattern", "^>")));
            configured::source(&crate::file::source::kind(), &settings).unwrap()
        };
        let records = check_source(fresh).await.unwrap_or_else(|broken| panic!("{framing}: {broken:?}"));
        assert_eq!(records.len(), count, "{framing}");
    }
}

#[tokio::test]
async fn files_are_read_in_the_order_of_their_paths_and_later_ones_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir(root.join("b")).unwrap();
    append(&root.join("b/2.log"), "three\n");
    append(&root.join("a.log"), "one\ntwo\n");
    append(&root.join("other.txt"), "no\n");
    let mut files = start(root, "**/*.log", BTreeMap::new(), &[]).await;
    assert_eq!(files.all().await, ["a.log 1 one", "a.log 2 two", "b/2.log 1 three"]);
    append(&root.join("b/1.log"), "four\n");
    append(&root.join("a.log"), "five\n");
    let mut next = files.next(2).await;
    next.sort();
    assert_eq!(next, ["a.log 3 five", "b/1.log 1 four"]);
    // A restart continues in each file.
    append(&root.join("b/2.log"), "six\n");
    append(&root.join("c.log"), "seven\n");
    let mut again = start(root, "**/*.log", files.marks, &[]).await;
    assert_eq!(again.all().await, ["b/2.log 2 six", "c.log 1 seven"]);
    // A file that is gone has no position, and a new one of its name is read from its start.
    fs::remove_file(root.join("a.log")).unwrap();
    let mut again = start(root, "**/*.log", again.marks, &[]).await;
    assert_eq!(again.all().await, [""; 0]);
    assert_eq!(again.marks.len(), 3);
    append(&root.join("a.log"), "eight\n");
    assert_eq!(again.next(1).await, ["a.log 1 eight"]);
}

#[tokio::test]
async fn a_directory_that_is_not_there_for_a_moment_keeps_its_positions() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("in");
    fs::create_dir(&root).unwrap();
    append(&root.join("a"), "one\n");
    let mut files = start(directory.path(), "in/", BTreeMap::new(), &[]).await;
    assert_eq!(files.all().await, ["in/a 1 one"]);
    fs::rename(&root, directory.path().join("away")).unwrap();
    fs::create_dir(&root).unwrap();
    let mut again = start(directory.path(), "in/", files.marks, &[]).await;
    assert_eq!((again.all().await.len(), again.marks.len()), (0, 1));
    assert!(again.reader.missing().unwrap().contains("in/"));
    fs::remove_dir(&root).unwrap();
    append(&directory.path().join("away/a"), "two\n");
    fs::rename(directory.path().join("away"), &root).unwrap();
    assert_eq!(again.next(1).await, ["in/a 2 two"]);
}

#[tokio::test]
async fn renamed_files_continue_under_their_new_paths() {
    for restart in [false, true] {
        for all_match in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path();
            let pattern = if all_match { "app*" } else { "app.log" };
            let pattern = format!("{{{pattern},x}}");
            append(&root.join("app.log"), "one\n");
            append(&root.join("app.log.1"), "old\n");
            let mut files = start(root, &pattern, BTreeMap::new(), &[]).await;
            let first = files.all().await;
            assert_eq!(first.len(), if all_match { 2 } else { 1 });
            if restart {
                files = start(root, &pattern, files.marks, &[]).await;
                assert_eq!(files.all().await, [""; 0]);
            }
            append(&root.join("app.log"), "two\n");
            let marks = files.marks.clone();
            let running = if restart { None } else { Some(files) };
            fs::rename(root.join("app.log.1"), root.join("app.log.2")).unwrap();
            fs::rename(root.join("app.log"), root.join("app.log.1")).unwrap();
            append(&root.join("app.log"), "three\n");
            let mut files = match running {
                Some(files) => files,
                None => start(root, &pattern, marks, &[]).await,
            };
            let mut next: Vec<String> =
                files.next(2).await.iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
            next.sort();
            assert_eq!(next, ["three", "two"], "restart: {restart}, all match: {all_match}");
            // Each line was delivered once, and its place is known.
            let mut again = start(root, &pattern, files.marks, &[]).await;
            assert_eq!(again.all().await, [""; 0], "restart: {restart}, all match: {all_match}");
            append(&root.join("app.log"), "four\n");
            assert_eq!(again.next(1).await, ["app.log 2 four"]);
        }
    }
}

#[tokio::test]
async fn a_file_that_is_renamed_while_its_records_are_in_flight_is_not_stored_as_delivered() {
    for target in ["a.log.1", "sub/a.log"] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("sub")).unwrap();
        append(&root.join("a.log"), "one\ntwo\nthree\n");
        let mut files = start(root, "**/*", BTreeMap::new(), &[]).await;
        files.in_flight = Some(BTreeMap::new());
        assert_eq!(files.all().await.len(), 3);
        fs::rename(root.join("a.log"), root.join(target)).unwrap();
        // Until the rename is noticed.
        while !files.in_flight.as_ref().unwrap().keys().any(|partition| partition.0.ends_with(target)) {
            let read = files.reader.read(ROOM).await.unwrap();
            assert!(!matches!(read, Read::Rows { .. }), "{read:?}");
            files.take(read).await;
        }
        // A crash after the new partition has stored everything it may.
        let new = Partition(format!("{}/{target}", root.display()).as_str().into());
        files.settle(&new, usize::MAX).await;
        let mut again = start(root, "**/*", files.marks, &[]).await;
        let expected = ["1 one", "2 two", "3 three"].map(|line| format!("{target} {line}"));
        assert_eq!(again.all().await, expected);
    }
}

#[tokio::test]
async fn every_line_is_delivered_however_files_are_renamed_and_whenever_the_source_crashes() {
    let mut restarts = 0;
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("sub")).unwrap();
        let (mut wanted, mut settled) = (BTreeSet::new(), BTreeSet::new());
        let mut lines: BTreeMap<Partition, VecDeque<String>> = BTreeMap::new();
        let mut files = start(root, "**/*", BTreeMap::new(), &[]).await;
        files.in_flight = Some(BTreeMap::new());
        for step in 0..60 {
            match random.u8(..12) {
                0..3 => {
                    let text: Vec<String> = (0..random.usize(1..6)).map(|n| format!("{seed}-{step}-{n}")).collect();
                    append(&root.join(if random.bool() { "a.log" } else { "b.log" }), &(text.join("\n") + "\n"));
                    wanted.extend(text);
                }
                3..5 => {
                    // The whole chain of rotated files moves.
                    for number in (0..9).rev() {
                        let name = |number: u32| match number {
                            0 => "a.log".to_owned(),
                            number => format!("a.log.{number}"),
                        };
                        let (from, to) = (root.join(name(number)), root.join(name(number + 1)));
                        if from.exists() && !to.exists() {
                            fs::rename(from, to).unwrap();
                        }
                    }
                }
                5 => {
                    let (one, other) = (root.join("b.log"), root.join("sub/b.log"));
                    let (from, to) = if one.exists() { (one, other) } else { (other, one) };
                    if from.exists() && !to.exists() {
                        fs::rename(from, to).unwrap();
                    }
                }
                6..9 => {
                    for _ in 0..random.usize(..6) {
                        let read = tokio::time::timeout(Duration::from_millis(15), files.reader.read(ROOM3)).await;
                        let Ok(read) = read else { break };
                        note(&mut files, &mut lines, &mut settled, read.unwrap()).await;
                    }
                }
                9..11 => {
                    let open: Vec<Partition> = files.in_flight.iter().flat_map(BTreeMap::keys).cloned().collect();
                    if let Some(partition) = random.choice(open) {
                        let most = random.usize(..8);
                        for line in lines.entry(partition.clone()).or_default().iter_mut().take(most) {
                            settled.insert(std::mem::take(line));
                        }
                        let kept = lines[&partition].iter().skip(most).cloned().collect();
                        lines.insert(partition.clone(), kept);
                        files.settle(&partition, most).await;
                    }
                }
                _ => {
                    restarts += 1;
                    files = start(root, "**/*", files.marks, &[]).await;
                    files.in_flight = Some(BTreeMap::new());
                    lines.clear();
                }
            }
        }
        // The last run finds every file when it is opened.
        files = start(root, "**/*", files.marks, &[]).await;
        files.in_flight = Some(BTreeMap::new());
        lines.clear();
        loop {
            let read = tokio::time::timeout(Duration::from_secs(60), files.reader.read(ROOM3)).await.unwrap().unwrap();
            if matches!(read, Read::CaughtUp) {
                break;
            }
            note(&mut files, &mut lines, &mut settled, read).await;
            files.settle_all().await;
        }
        settled.extend(lines.into_values().flatten());
        let lost: Vec<_> = wanted.difference(&settled).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} of {} lines are lost", wanted.len());
    }
    assert!(restarts > 100, "{restarts}");
}

const ROOM3: Room = Room { rows: 3, bytes: 1 << 20 };

/// Takes a read, and notes the lines that are in flight then, with a blank one for each position without a record.
async fn note(
    files: &mut Several,
    lines: &mut BTreeMap<Partition, VecDeque<String>>,
    settled: &mut BTreeSet<String>,
    read: Read,
) {
    match &read {
        Read::Rows { partition, records } => {
            let texts = records.iter().map(|record| String::from_utf8(raw(&record.payload.after)).unwrap());
            lines.entry(partition.clone()).or_default().extend(texts);
        }
        Read::Progress(partition, _) => lines.entry(partition.clone()).or_default().push_back(String::new()),
        Read::Finished(partition) => settled.extend(lines.remove(partition).into_iter().flatten()),
        _ => {}
    }
    files.take(read).await;
}

#[tokio::test]
async fn a_file_that_was_rewritten_is_read_from_its_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    append(&path, "one\ntwo\n");
    let mut files = start(directory.path(), "*.log", BTreeMap::new(), &[]).await;
    assert_eq!(files.all().await.len(), 2);
    fs::write(&path, "1\n").unwrap();
    assert_eq!(files.next(1).await, ["a.log 1 1"]);
    fs::write(&path, "x\nyy\n").unwrap();
    let mut again = start(directory.path(), "*.log", files.marks, &[]).await;
    assert_eq!(again.all().await, ["a.log 1 x", "a.log 2 yy"]);
}

#[tokio::test]
async fn compressed_files_are_read_and_resumed_at_each_record() {
    let lines: Vec<String> = (0..40).map(|n| format!("line {n}")).collect();
    for codec in [Codec::Gzip, Codec::Zstd] {
        let directory = tempfile::tempdir().unwrap();
        let member = |lines: &[String]| codec.compress((lines.join("\n") + "\n").as_bytes()).unwrap();
        let bytes = [member(&lines[..15]), member(&lines[15..16]), member(&lines[16..])].concat();
        fs::write(directory.path().join("a"), bytes).unwrap();
        fs::write(directory.path().join("plain"), "p\n").unwrap();
        let (mut marks, mut seen) = (BTreeMap::new(), Vec::new());
        while seen.len() < lines.len() + 1 {
            let mut files = start(directory.path(), "*", marks, &[]).await;
            seen.extend(files.some(3).await);
            marks = files.marks;
        }
        let mut expected: Vec<String> =
            lines.iter().enumerate().map(|(n, line)| format!("a {} {line}", n + 1)).collect();
        expected.push("plain 1 p".to_owned());
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected, "{codec}");
    }
}

#[tokio::test]
async fn a_compressed_file_is_waited_for_if_it_is_cut_and_fails_if_it_is_damaged() {
    for codec in [Codec::Gzip, Codec::Zstd] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let text: String = (0..20_000).map(|n| format!("{}\n", n * 7919 % 100_003)).collect();
        let whole = codec.compress(text.as_bytes()).unwrap();
        // Cut: what is there is read, and the rest when it comes.
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let mut files = start(directory.path(), "{a,b}", BTreeMap::new(), &[]).await;
        let first = files.all().await.len();
        assert!(files.reader.left().unwrap().contains("in the middle of a compressed member"));
        append_bytes(&path, &whole[whole.len() - 5..]);
        let rest = if first < 20_000 { files.next(20_000 - first).await.len() } else { 0 };
        assert_eq!(first + rest, 20_000);
        while files.reader.left().is_some() {
            let read = tokio::time::timeout(Duration::from_millis(20), files.reader.read(ROOM)).await;
            assert!(read.is_err(), "there is no further record: {read:?}");
        }
        // Damaged: what is before the damage is read, and a good file continues there, in place or with another size.
        let bad = directory.path().join("b");
        let good = codec.compress(b"good\nbetter\n").unwrap();
        let damaged = vec![b'x'; good.len()];
        append_bytes(&bad, &[&codec.compress(b"first\n").unwrap()[..], &damaged].concat());
        let mut seen = files.next(1).await;
        while files.reader.left().is_none() {
            let read = tokio::time::timeout(Duration::from_millis(20), files.reader.read(ROOM)).await;
            assert!(!matches!(read, Ok(Ok(Read::Rows { .. } | Read::Failed { .. }))), "{read:?}");
        }
        assert_eq!(seen, ["b 1 first"]);
        let left = files.reader.left().unwrap();
        assert!(left.contains("/b: the ") && left.contains("data is damaged before byte"), "{left}");
        let mut again = start(directory.path(), "{a,b}", files.marks.clone(), &[]).await;
        assert_eq!(again.all().await, [""; 0]);
        assert!(again.reader.left().unwrap().contains("data is damaged"));
        let repaired = [&codec.compress(b"first\n").unwrap()[..], &good].concat();
        assert_eq!(repaired.len() as u64, fs::metadata(&bad).unwrap().len());
        fs::write(&bad, repaired).unwrap();
        for files in [&mut files, &mut again] {
            seen = files.next(2).await;
            assert_eq!(seen, ["b 2 good", "b 3 better"], "{codec}");
            assert_eq!(files.all().await, [""; 0]);
            assert!(files.reader.left().is_none());
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_does_not_stop_the_others() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    // A file that nobody can read, also not the superuser.
    symlink("/proc/self/mem", root.join("a")).unwrap();
    append(&root.join("b"), "one\n");
    let mut files = start(root, "*", BTreeMap::new(), &[]).await;
    assert_eq!(files.all().await, ["b 1 one"]);
    let left = files.reader.left().unwrap();
    assert!(left.contains("cannot read ") && left.contains("/a: "), "{left}");
    append(&root.join("b"), "two\n");
    assert_eq!(files.next(1).await, ["b 2 two"]);
    fs::remove_file(root.join("a")).unwrap();
    append(&root.join("a"), "three\n");
    assert_eq!(files.next(1).await, ["a 1 three"]);
    assert_eq!(files.all().await, [""; 0]);
    assert!(files.reader.left().is_none());
}

#[tokio::test]
async fn the_only_file_is_found_under_its_new_name() {
    let directory = tempfile::tempdir().unwrap();
    append(&directory.path().join("x"), "one\n");
    let mut files = start(directory.path(), "*", BTreeMap::new(), &[]).await;
    assert_eq!(files.all().await, ["x 1 one"]);
    fs::rename(directory.path().join("x"), directory.path().join("z")).unwrap();
    let mut again = start(directory.path(), "*", files.marks, &[]).await;
    assert_eq!((again.all().await.len(), again.reader.missing()), (0, None));
}

fn append_bytes(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[tokio::test]
async fn rows_of_csv_resume_within_a_file_and_know_its_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.csv");
    fs::write(&path, "\u{feff}id,text\r\n1,\"two\nlines\"\r\n\r\n2,\"a \"\"b\"\"\"\r\n3,c").unwrap();
    let expected = ["a.csv 1 1,\\\"two\\nlines\\\"", "a.csv 2 2,\\\"a \\\"\\\"b\\\"\\\"\\\"", "a.csv 3 3,c"];
    let mut marks = BTreeMap::new();
    for row in expected {
        let mut files = start(directory.path(), "*.csv", marks, &[("framing", "csv")]).await;
        let mut read = files.reader.read(Room { rows: 1, bytes: 1 << 20 }).await.unwrap();
        if matches!(read, Read::Progress(..)) {
            read = files.reader.read(Room { rows: 1, bytes: 1 << 20 }).await.unwrap();
        }
        let Read::Rows { partition, records } = read else { panic!("{read:?}") };
        assert_eq!(files.shown(&partition, &records[0]), row);
        assert_eq!(records[0].metadata.get("file.header").unwrap(), "id,text");
        marks = BTreeMap::from([(partition, records[0].position().clone())]);
    }
    // The last row had no end; the whole row comes again when it has.
    append(&path, "d\n4,e\n");
    let mut files = start(directory.path(), "*.csv", marks, &[("framing", "csv")]).await;
    assert_eq!(files.all().await, ["a.csv 3 3,cd", "a.csv 4 4,e"]);
    let mut all =
        start(directory.path(), "*.csv", BTreeMap::new(), &[("framing", "csv"), ("csv.header", "false")]).await;
    assert_eq!(all.all().await.len(), 5);
}

#[tokio::test]
async fn a_whole_file_is_a_record_and_comes_again_when_it_grows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.bin");
    fs::write(&path, b"a\n\xff\x00").unwrap();
    fs::write(directory.path().join("empty"), b"").unwrap();
    let key = path.display();
    let mut files = start(directory.path(), "*", BTreeMap::new(), &[("framing", "whole")]).await;
    assert_eq!(files.all().await, [format!("a.bin {key} a\\n\\xff\\x00")]);
    let mut again = start(directory.path(), "*", files.marks.clone(), &[("framing", "whole")]).await;
    assert_eq!(again.all().await, [""; 0]);
    append(&path, "b");
    assert_eq!(again.next(1).await, [format!("a.bin {key} a\\n\\xff\\x00b")]);
    assert_eq!(files.next(1).await, [format!("a.bin {key} a\\n\\xff\\x00b")]);
}

#[tokio::test]
async fn the_last_record_of_many_lines_comes_when_the_file_rests() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    let settings = [("framing", "multiline"), ("multiline.startPattern", "^\\S")];
    append(&path, "one\n 1\n");
    let mut files = start(directory.path(), "*.log", BTreeMap::new(), &settings).await;
    assert_eq!(files.all().await, ["a.log 1 one\\n 1"]);
    // It was complete.
    append(&path, "two\n");
    assert_eq!(files.next(1).await, ["a.log 2 two"]);
    // It was not: the whole record comes under the same number.
    append(&path, " 2\nthree\n");
    assert_eq!(files.next(2).await, ["a.log 2 two\\n 2", "a.log 3 three"]);
    let mut again = start(directory.path(), "*.log", files.marks, &settings).await;
    assert_eq!(again.all().await, [""; 0]);
    append(&path, "four\n");
    assert_eq!(again.next(1).await, ["a.log 4 four"]);
}

#[tokio::test]
async fn a_source_can_begin_at_the_end() {
    for pattern in ["a.log", "*.log"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        append(&path, "one\ntwo\n");
        let mut files = start(directory.path(), pattern, BTreeMap::new(), &[("startAt", "end")]).await;
        assert_eq!(files.some(1).await, [""; 0], "{pattern}");
        let marks = files.marks.clone();
        let is_plain = pattern == "a.log";
        assert_eq!(marks.len(), if is_plain { 1 } else { 2 }, "the end is stored");
        append(&path, "three\n");
        let three = files.next(1).await;
        assert!(three[0].ends_with("3 three"), "{three:?}");
        // A crash before a record was stored does not move the start.
        append(&path, "four\n");
        append(&directory.path().join("b.log"), "five\n");
        let mut again = start(directory.path(), pattern, marks, &[("startAt", "end")]).await;
        let texts: Vec<String> = again.all().await.iter().map(|line| line[line.len() - 4..].to_owned()).collect();
        let expected: &[&str] = if pattern == "a.log" { &["hree", "four"] } else { &["hree", "four", "five"] };
        assert_eq!(texts, expected);
    }
}

#[tokio::test]
async fn only_what_is_there_at_the_first_start_is_left_out() {
    for pattern in ["a.log", "*.log", "{a.log,b}"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        let end = [("startAt", "end")];
        // Nothing is there.
        let mut files = start(directory.path(), pattern, BTreeMap::new(), &end).await;
        assert_eq!(files.all().await, [""; 0], "{pattern}");
        append(&path, "one\n");
        let mut again = start(directory.path(), pattern, files.marks, &end).await;
        let texts = again.all().await;
        assert!(texts.len() == 1 && texts[0].ends_with("1 one"), "{pattern}: {texts:?}");
        // Content without an end is there.
        fs::remove_file(&path).unwrap();
        append(&path, "with an end\nwithout");
        let mut files = start(directory.path(), pattern, BTreeMap::new(), &end).await;
        assert_eq!(files.all().await, [""; 0], "{pattern}");
        let mut again = start(directory.path(), pattern, files.marks, &end).await;
        assert_eq!(again.all().await, [""; 0], "{pattern}");
        append(&path, " one\nnext\n");
        let texts = again.next(2).await;
        assert!(texts[0].ends_with("2 without one") && texts[1].ends_with("3 next"), "{pattern}: {texts:?}");
    }
}

#[tokio::test]
async fn the_beginning_of_each_file_shows_whether_it_is_compressed() {
    for restart in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        append(&path, "plain\n");
        let mut files = start(directory.path(), "a", BTreeMap::new(), &[]).await;
        assert_eq!(files.all().await.len(), 1);
        fs::rename(&path, directory.path().join("a.1")).unwrap();
        fs::write(&path, Codec::Gzip.compress(b"one\ntwo\n").unwrap()).unwrap();
        if restart {
            files = start(directory.path(), "a", files.marks, &[]).await;
        }
        let texts: Vec<String> = files.next(2).await;
        assert!(texts[0].ends_with("1 one") && texts[1].ends_with("2 two"), "{texts:?}");
        let mut again = start(directory.path(), "a", files.marks, &[]).await;
        assert_eq!(again.all().await, [""; 0]);
        fs::remove_file(&path).unwrap();
        append(&path, "plain again\n");
        assert!(again.next(1).await[0].ends_with("1 plain again"));
    }
}

#[tokio::test]
async fn a_record_that_is_too_long_stops_the_source_by_name() {
    let directory = tempfile::tempdir().unwrap();
    append(&directory.path().join("a.log"), &format!("ok\n{}\n", "x".repeat(2000)));
    let settings = [("maxLineBytes", "1000"), ("framing", "delimiter"), ("delimiter", "\\n")];
    let mut files = start(directory.path(), "*.log", BTreeMap::new(), &settings).await;
    assert_eq!(files.some(1).await, ["a.log 1 ok"]);
    let fault = files.reader.read(ROOM).await.unwrap_err();
    assert_eq!((fault.code(), fault.class()), (codes::LINE_TOO_LONG, FaultClass::Fatal));
    assert!(fault.message().contains("record 2 of ") && fault.message().contains("a.log, at byte 3,"), "{fault}");
}

#[test]
fn settings_that_do_not_fit_the_framing_are_refused() {
    let findings = |more: &[(&str, &str)]| {
        let settings = [&[("path", "in/*")], more].concat();
        configured::source(&crate::file::source::kind(), &settings).err().unwrap_or_default().join("; ")
    };
    for (settings, wanted) in [
        (&[("framing", "delimiter")][..], "needs the setting delimiter"),
        (&[("framing", "multiline")], "needs the setting multiline.startPattern"),
        (&[("delimiter", "x")], "used only with the framing delimiter"),
        (&[("multiline.startPattern", "x")], "used only with the framing multiline"),
        (&[("framing", "multiline"), ("multiline.startPattern", "(")], "unclosed group"),
        (&[("framing", "delimiter"), ("delimiter", "\\q")], "unknown escape sequence"),
        (&[("framing", "csv"), ("csv.quote", ",")], "delimiter and quote are the same"),
    ] {
        let found = findings(settings);
        assert!(found.contains(wanted), "{settings:?}: {found}");
    }
}
