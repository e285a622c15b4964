use std::fs;
use std::io::Read;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing::{check_destination, check_refusal, configured};
use anabranch_record::fault::FaultClass;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position};

use super::*;
use crate::testing::host;

async fn open(path: &Path, more: &[(&str, &str)]) -> Result<Box<dyn Writer>, Fault> {
    let kind = super::kind();
    let settings = [&[("path", path.to_str().unwrap())], more].concat();
    let arguments = Arguments::parse(kind.specification(), &Settings::from_pairs(settings)).unwrap();
    kind.configure(&arguments).unwrap().open(&host()).await
}

fn row(text: &str) -> Record {
    Record::create(Position::copy_from(b"1"), Data::Absent, Data::text(text))
}

/// A record that JSON cannot express.
fn unwritable_row() -> Record {
    let fields: Object = [("x", Value::Float(f64::NAN))].into_iter().collect();
    Record::create(Position::copy_from(b"1"), Data::Absent, fields.into())
}

#[tokio::test]
async fn the_destination_keeps_its_promises() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    for durability in ["process", "disk"] {
        let fresh = async || {
            let _ = fs::remove_file(&path);
            configured::destination(&super::kind(), &[("path", path.to_str().unwrap()), ("durability", durability)])
                .unwrap()
        };
        let stored = async || -> Vec<String> {
            fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect()
        };
        let rows = ["a", "b", "c"].map(row);
        assert_eq!(check_destination(fresh, stored, &rows).await.unwrap().len(), 3);
        check_refusal(fresh, stored, &rows, &unwritable_row()).await.unwrap();
    }
}

#[tokio::test]
async fn records_are_lines_of_json() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let mut writer = open(&path, &[]).await.unwrap();
    let rows = [row("a"), unwritable_row(), row("b")];
    let Ok(Verdicts::Each(verdicts)) = writer.write(Write::new(&rows)).await else { panic!("one verdict per row") };
    assert!(matches!(verdicts[..], [Ok(Delivered::Durable), Err(_), Ok(Delivered::Durable)]));
    assert!(matches!(writer.write(Write::new(&rows[1..2])).await, Ok(Verdicts::Each(v)) if v[0].is_err()));
    writer.flush().await.unwrap();
    let text = fs::read(&path).unwrap();
    let read: Vec<Record> =
        text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| Record::from_json(l).unwrap()).collect();
    assert_eq!(read, [row("a"), row("b")]);
}

#[tokio::test]
async fn a_state_store_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.db");
    let store = [&super::super::STORE_MAGIC[..], &[0; 100]].concat();
    fs::write(&path, &store).unwrap();
    // A service that has it open holds its lock.
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let Err(fault) = open(&path, &[]).await else { panic!("it was opened") };
    assert_eq!((fault.code().name(), fault.class()), ("file_unwritable", FaultClass::Fatal));
    assert!(fault.message().contains("it is a state store"), "{fault}");
    assert_eq!(fs::read(&path).unwrap(), store);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_disk_write_counts_when_it_is_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = open(&directory.path().join("out"), &[("durability", "disk")]).await.unwrap();
    assert!(matches!(writer.write(Write::new(&[row("a")])).await, Ok(Verdicts::All(Delivered::Accepted))));
    writer.flush().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_transient_and_names_the_file() {
    let mut writer = open(Path::new("/dev/full"), &[]).await.unwrap();
    for _ in 0..2 {
        let fault = writer.write(Write::new(&[row("a")])).await.unwrap_err();
        assert_eq!((fault.code().name(), fault.class()), ("disk_full", FaultClass::Transient));
        assert!(fault.message().contains("/dev/full"), "{fault}");
    }
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let missing = open(&directory.path().join("no/out"), &[]).await.err().unwrap();
    assert_eq!((missing.code().name(), missing.class()), ("directory_missing", FaultClass::Fatal));
    assert!(missing.message().contains("/no does not exist"), "{missing}");
    let folder = open(directory.path(), &[]).await.err().unwrap();
    assert_eq!((folder.code().name(), folder.class()), ("file_unwritable", FaultClass::Fatal));
    let (circle, long) = (directory.path().join("circle"), directory.path().join("n".repeat(300)));
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    for (path, what) in [(&circle, "links that form a loop"), (&long, "too long")] {
        let fault = open(path, &[]).await.err().unwrap();
        assert_eq!((fault.code().name(), fault.class()), ("file_unwritable", FaultClass::Fatal), "{fault}");
        assert!(fault.message().contains(path.to_str().unwrap()) && fault.message().contains(what), "{fault}");
    }
}

/// No record is at fault, and none can be written: it is tried again until the directory is back.
#[tokio::test]
async fn a_directory_that_is_taken_away_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let (here, away) = (directory.path().join("here"), directory.path().join("away"));
    fs::create_dir(&here).unwrap();
    let path = here.join("out");
    let kind = super::kind();
    let settings = Settings::from_pairs([("path", path.to_str().unwrap())]);
    let destination = kind.configure(&Arguments::parse(kind.specification(), &settings).unwrap()).unwrap();
    let mut writer = destination.open(&host()).await.unwrap();
    writer.write(Write::new(&[row("a")])).await.unwrap();
    fs::rename(&here, &away).unwrap();
    for _ in 0..2 {
        let fault = writer.write(Write::new(&[row("b")])).await.unwrap_err();
        assert_eq!((fault.code().name(), fault.class()), ("directory_missing", FaultClass::Transient), "{fault}");
        let fault = destination.open(&host()).await.err().unwrap();
        assert_eq!((fault.code().name(), fault.class()), ("directory_missing", FaultClass::Transient), "{fault}");
    }
    fs::create_dir(&here).unwrap();
    writer.write(Write::new(&[row("b")])).await.unwrap();
    writer.flush().await.unwrap();
    let texts = [&away.join("out"), &path].map(|path| fs::read_to_string(path).unwrap().lines().count());
    assert_eq!(texts, [1, 1]);
}

#[tokio::test]
async fn a_pipe_takes_lines_until_its_reader_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let reading = {
        let path = path.clone();
        std::thread::spawn(move || {
            let mut first = [0; 12];
            fs::File::open(path).unwrap().read_exact(&mut first).unwrap();
            first
        })
    };
    let mut writer = open(&path, &[]).await.unwrap();
    writer.write(Write::new(&[row("a")])).await.unwrap();
    assert_eq!(&reading.join().unwrap(), b"{\"position\":");
    let fault = writer.write(Write::new(&[row("b")])).await.unwrap_err();
    assert_eq!((fault.code().name(), fault.class()), ("reader_gone", FaultClass::Fatal));
}

/// A pipe that took the place of the file and that nobody reads holds up the lines for only as long as it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_pipe_is_left_when_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let mut writer = open(&path, &[]).await.unwrap();
    writer.write(Write::new(&[row("a")])).await.unwrap();
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    #[allow(clippy::disallowed_methods, reason = "joined below")]
    let writing = tokio::spawn(async move {
        writer.write(Write::new(&[row("b")])).await.unwrap();
        writer
    });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!writing.is_finished(), "nobody reads the pipe");
    fs::remove_file(&path).unwrap();
    let mut writer = tokio::time::timeout(std::time::Duration::from_secs(60), writing).await.unwrap().unwrap();
    writer.flush().await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
}

const LIMITED: &str = "ANABRANCH_TEST_LIMITED_FILE";

/// Runs itself again in a process that may not write more than 16 KiB into a file.
#[test]
fn a_write_that_fails_half_way_is_taken_back() {
    if let Some(path) = std::env::var_os(LIMITED) {
        tokio::runtime::Runtime::new().unwrap().block_on(write_up_to_the_limit(Path::new(&path)));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let child = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg("file::destination::tests::a_write_that_fails_half_way_is_taken_back")
        .env(LIMITED, &path)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let text = fs::read(&path).unwrap();
    assert!(text.len() > 10_000 && text.ends_with(b"\n"), "{}", text.len());
    let numbers: Vec<u64> = text
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| match Record::from_json(line).unwrap().key {
            Data::Raw(key) => String::from_utf8_lossy(&key).parse().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    assert!(String::from_utf8_lossy(&child.stdout).contains(&format!("delivered {} ", numbers.len())), "{child:?}");
}

async fn write_up_to_the_limit(path: &Path) {
    let mut writer = open(path, &[]).await.unwrap();
    let mut delivered = 0;
    loop {
        let rows: Vec<Record> = (delivered..delivered + 10)
            .map(|n| Record::create(Position::copy_from(b"1"), Data::text(n.to_string()), Data::text("x".repeat(100))))
            .collect();
        match writer.write(Write::new(&rows)).await {
            Ok(_) => delivered += 10,
            Err(fault) => {
                assert_eq!((fault.code().name(), fault.class()), ("disk_full", FaultClass::Transient), "{fault}");
                break;
            }
        }
    }
    // A smaller write still fits, and stands where the failed one was.
    let small = Record::create(Position::copy_from(b"1"), Data::text(delivered.to_string()), Data::Absent);
    writer.write(Write::new(&[small])).await.unwrap();
    println!("delivered {} ", delivered + 1);
}

/// A record of a collection.
fn of(collection: &str, text: &str) -> Record {
    let mut record = row(text);
    record.metadata.insert(anabranch_record::metadata::key::COLLECTION, Str::from(collection));
    record
}

const BY_COLLECTION: &str = r#"{{ index .Metadata "recfmt.collection" }}"#;
const RAW: (&str, &str) = ("sdk.record.format", "recfmt/raw");

#[tokio::test]
async fn a_template_gives_each_record_its_file_in_order() {
    for durability in ["process", "disk"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(format!("out/x/{BY_COLLECTION}.txt"));
        let settings = [RAW, ("durability", durability), ("maxOpenFiles", "2")];
        let mut writer = open(&path, &settings).await.unwrap();
        let rows: Vec<Record> = (0..40).map(|n| of(["a", "b/c", "d", "../e"][n % 4], &n.to_string())).collect();
        for rows in rows.chunks(9) {
            let Ok(Verdicts::Each(verdicts)) = writer.write(Write::new(rows)).await else {
                panic!("one verdict per row")
            };
            for (row, verdict) in rows.iter().zip(verdicts) {
                let is_refused = row.metadata.get("recfmt.collection").unwrap().contains("..");
                assert_eq!(verdict.map_err(|fault| fault.code()).err(), is_refused.then_some(codes::PATH_REFUSED));
            }
            let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
            let root = directory.path().canonicalize().unwrap();
            let ours = open.filter(|path| path.starts_with(&root) && path.extension().is_some_and(|it| it == "txt"));
            assert!(ours.count() <= 2);
        }
        writer.flush().await.unwrap();
        for (place, name) in ["a", "b/c", "d"].iter().enumerate() {
            let text = fs::read_to_string(directory.path().join(format!("out/x/{name}.txt"))).unwrap();
            let expected: String = (0..10).map(|n| format!("{}\n", n * 4 + place)).collect();
            assert_eq!(text, expected, "{name}");
        }
        assert!(!directory.path().join("out/e.txt").exists());
        drop(writer);
        let left = fs::read_dir(directory.path().join("out/x")).unwrap();
        assert!(left.map(|file| file.unwrap().file_name()).all(|name| !name.to_string_lossy().starts_with('.')));
    }
}

#[tokio::test]
async fn a_path_that_another_file_makes_impossible_is_the_fault_of_the_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(format!("out/{BY_COLLECTION}"));
    let mut writer = open(&path, &[RAW]).await.unwrap();
    writer.write(Write::new(&[of("a", "1")])).await.unwrap();
    let fault = writer.write(Write::new(&[of("a", "2"), of("a/b", "3")])).await.unwrap_err();
    assert_eq!((fault.code(), fault.class()), (codes::PATH_REFUSED, FaultClass::Record), "{fault}");
    assert!(fault.message().contains("a/b"), "{fault}");
    // Nothing of the failed write is in the file that could be written.
    assert_eq!(fs::read_to_string(directory.path().join("out/a")).unwrap(), "1\n");
}

#[tokio::test]
async fn a_path_that_is_too_long_fails_its_record_and_not_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(format!("out/{BY_COLLECTION}"));
    let mut writer = open(&path, &[RAW]).await.unwrap();
    let rows = [of("a", "1"), of(&"n".repeat(300), "2"), of("a", "3")];
    let Ok(Verdicts::Each(verdicts)) = writer.write(Write::new(&rows)).await else { panic!("one verdict per row") };
    let refused: Vec<_> = verdicts.into_iter().map(|verdict| verdict.err().map(|fault| fault.code())).collect();
    assert_eq!(refused, [None, Some(codes::PATH_REFUSED), None]);
    writer.flush().await.unwrap();
    assert_eq!(fs::read_to_string(directory.path().join("out/a")).unwrap(), "1\n3\n");
}

#[tokio::test]
async fn no_symbolic_link_leads_a_record_out_of_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for made in ["out/real", "outside/deep"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    fs::write(at("outside/file"), "theirs\n").unwrap();
    // The directory of the template may be behind a link itself.
    std::os::unix::fs::symlink(at("out"), at("link")).unwrap();
    for (link, to) in [
        ("inside", at("out/real")),
        ("away", at("outside")),
        ("file", at("outside/file")),
        ("missing", at("outside/none")),
        ("up", "../outside".into()),
    ] {
        std::os::unix::fs::symlink(to, at("out").join(link)).unwrap();
    }
    let mut writer = open(&at("link").join(BY_COLLECTION), &[RAW]).await.unwrap();
    for refused in ["away/a", "away/deep/new/a", "file", "missing", "missing/a", "up/a", "inside/../away/a"] {
        let written = writer.write(Write::new(&[of(refused, "1")])).await;
        let fault = match written {
            Err(fault) => fault,
            Ok(Verdicts::Each(mut verdicts)) => verdicts.remove(0).unwrap_err(),
            Ok(all) => panic!("{refused}: {all:?}"),
        };
        assert_eq!((fault.code(), fault.class()), (codes::PATH_REFUSED, FaultClass::Record), "{refused}: {fault}");
    }
    for accepted in ["inside/a", "inside/new/b", "real/c"] {
        assert!(matches!(writer.write(Write::new(&[of(accepted, "2")])).await, Ok(Verdicts::All(_))), "{accepted}");
    }
    assert_eq!(fs::read_to_string(at("outside/file")).unwrap(), "theirs\n");
    assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(at("outside/deep")).unwrap().count(), 0);
    for (name, text) in [("a", "2\n"), ("new/b", "2\n"), ("c", "2\n")] {
        assert_eq!(fs::read_to_string(at("out/real").join(name)).unwrap(), text);
    }
}

#[tokio::test]
async fn each_write_of_a_compressed_file_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    for codec in [Codec::Gzip, Codec::Zstd] {
        let name = codec.to_string();
        let path = directory.path().join(&name);
        let settings = [RAW, ("compression", name.as_str())];
        let mut writer = open(&path, &settings).await.unwrap();
        let mut expected = String::new();
        for n in 0..5 {
            let rows = [row(&format!("{n} a")), row(&format!("{n} b\nc"))];
            writer.write(Write::new(&rows)).await.unwrap();
            expected += &format!("{n} a\n{n} b\nc\n");
            let found = crate::file::framing::decompressed(&fs::read(&path).unwrap(), 100).unwrap();
            assert_eq!(String::from_utf8(found).unwrap(), expected);
            if n == 2 {
                // Another start appends further members, and a torn one of a killed process is cut.
                writer = open(&path, &settings).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn files_are_moved_away_by_size_and_age() {
    for (setting, value) in [("rotate.bytes", "25"), ("rotate.interval", "1ms")] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.log");
        let mut writer = open(&path, &[RAW, (setting, value), ("durability", "disk")]).await.unwrap();
        for n in 0..9 {
            if setting == "rotate.interval" {
                // The age of a file is at least that between two writes.
                let begun = std::time::SystemTime::now();
                while begun.elapsed().unwrap() < Duration::from_millis(20) {
                    tokio::task::yield_now().await;
                }
            }
            writer.write(Write::new(&[row(&format!("line {n:04}"))])).await.unwrap();
        }
        writer.flush().await.unwrap();
        drop(writer);
        let mut files: Vec<(String, String)> = fs::read_dir(directory.path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap()))
            .collect();
        assert_eq!(files.len(), if setting == "rotate.bytes" { 3 } else { 9 }, "{files:?}");
        assert!(files.iter().all(|(name, _)| name.starts_with("out.") && name.ends_with("log")));
        files.sort_by(|one, other| one.1.cmp(&other.1));
        let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(all, (0..9).map(|n| format!("line {n:04}\n")).collect::<String>());
    }
}

#[tokio::test]
async fn bytes_are_written_with_the_delimiter_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    for (delimiter, expected) in [("\\0", "a\nb\0c\0"), ("--", "a\nb--c--")] {
        let path = directory.path().join("out");
        let _ = fs::remove_file(&path);
        let mut writer = open(&path, &[RAW, ("delimiter", delimiter)]).await.unwrap();
        writer.write(Write::new(&[row("a\nb"), row("c")])).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }
}

#[tokio::test]
async fn each_new_file_begins_with_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.csv");
    let settings = [("header", "id,name"), ("sdk.record.format", "recfmt/raw")];
    let of = |path: &Path| fs::read_to_string(path).unwrap();
    let mut writer = open(&path, &settings).await.unwrap();
    assert_eq!(of(&path), "", "a file without records has no header");
    writer.write(Write::new(&[row("1,a"), row("2,b")])).await.unwrap();
    writer.write(Write::new(&[row("3,c")])).await.unwrap();
    drop(writer);
    let mut writer = open(&path, &settings).await.unwrap();
    writer.write(Write::new(&[row("4,d")])).await.unwrap();
    assert_eq!(of(&path), "id,name\n1,a\n2,b\n3,c\n4,d\n");
    // A file that was moved away is followed by another one.
    fs::rename(&path, directory.path().join("moved.csv")).unwrap();
    writer.write(Write::new(&[row("5,e")])).await.unwrap();
    assert_eq!(of(&path), "id,name\n5,e\n");

    let template = directory.path().join("by/{{ .Operation }}.csv.gz");
    let mut writer = open(&template, &[&settings[..], &[("compression", "gzip")]].concat()).await.unwrap();
    for text in ["1,a", "2,b"] {
        writer.write(Write::new(&[row(text)])).await.unwrap();
    }
    let (mut text, packed) = (String::new(), fs::File::open(directory.path().join("by/create.csv.gz")).unwrap());
    flate2::read::MultiGzDecoder::new(packed).read_to_string(&mut text).unwrap();
    assert_eq!(text, "id,name\n1,a\n2,b\n");
}
