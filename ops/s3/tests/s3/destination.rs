use std::io::Read;
use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Delivered, Destination, Verdicts, Write, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_record::fault::FaultClass;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};

use crate::reading::{host, registry, settings};
use crate::server::{Fault, Server};

pub fn configure(server: &Server, more: &[(&str, &str)]) -> Result<Arc<dyn Destination>, Diagnostics> {
    let registry = registry();
    let kind = registry.destination("s3").unwrap();
    kind.configure(&Arguments::parse(kind.specification(), &settings(&server.endpoint(), more))?)
}

async fn open(server: &Server, more: &[(&str, &str)]) -> Box<dyn Writer> {
    configure(server, more).unwrap().open(&host()).await.unwrap()
}

fn row(n: u32) -> Record {
    let mut record = Record::create(
        Position::copy_from(&n.to_le_bytes()),
        Data::text(n.to_string()),
        [("n", Value::Int(i64::from(n)))].into_iter().collect::<Object>().into(),
    );
    record.metadata.insert("kind", if n.is_multiple_of(2) { "even" } else { "odd" });
    record
}

pub fn rows(range: std::ops::Range<u32>) -> Vec<Record> {
    range.map(row).collect()
}

async fn write(writer: &mut Box<dyn Writer>, rows: &[Record]) {
    match writer.write(Write::new(rows)).await.unwrap() {
        Verdicts::All(Delivered::Durable) => {}
        other => panic!("{other:?}"),
    }
}

/// The numbers in an object.
fn numbers(body: &[u8]) -> Vec<i64> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.ends_with('\n'));
    let number = |line: &str| {
        let record = Record::from_json(line.as_bytes()).unwrap();
        match record.payload.after.fields().and_then(|fields| fields.get("n")) {
            Some(Value::Int(n)) => *n,
            other => panic!("{other:?}"),
        }
    };
    text.lines().map(number).collect()
}

#[tokio::test]
async fn a_batch_is_an_object_of_lines_and_again_the_same_object() {
    let server = Server::start();
    let mut writer = open(&server, &[("prefix", "events/")]).await;
    write(&mut writer, &rows(0..3)).await;
    write(&mut writer, &rows(3..5)).await;
    let objects = server.objects();
    assert_eq!(objects.len(), 2);
    for key in objects.keys() {
        assert!(key.starts_with("events/") && key.ends_with(".ndjson"), "{key}");
        assert_eq!(server.header(key, "content-type").as_deref(), Some("application/x-ndjson"));
    }
    let mut all: Vec<i64> = objects.values().flat_map(|body| numbers(body)).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    // A run that is killed and replays the same batches, read at another time.
    let mut writer = open(&server, &[("prefix", "events/")]).await;
    let mut replayed = rows(0..3);
    replayed.iter_mut().for_each(|row| drop(row.metadata.insert("recfmt.readAt", "7")));
    write(&mut writer, &replayed).await;
    write(&mut writer, &rows(3..5)).await;
    assert_eq!(server.objects().keys().collect::<Vec<_>>(), objects.keys().collect::<Vec<_>>());
    // Cut otherwise, nothing that was there is lost.
    write(&mut writer, &rows(1..3)).await;
    assert_eq!(server.objects().len(), 3);
    assert_eq!(objects.keys().filter(|key| server.objects().contains_key(*key)).count(), 2);
}

/// A bucket that was there, or a right that was given, may come back; one that never was is a mistake of the pipeline.
#[tokio::test]
async fn a_bucket_that_is_taken_away_is_waited_for() {
    for (status, code, fault_code) in [(404, "NoSuchBucket", "bucket_missing"), (403, "AccessDenied", "access_denied")]
    {
        let server = Server::start();
        let destination = configure(&server, &[]).unwrap();
        let refuse = || server.fail(move |request| (request.method == "PUT").then_some(Fault::Refuse(status, code)));
        let mut writer = destination.open(&host()).await.unwrap();
        refuse();
        let fault = writer.write(Write::new(&rows(0..3))).await.err().unwrap();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, fault_code));
        server.heal();
        write(&mut writer, &rows(0..3)).await;
        refuse();
        let fault = writer.write(Write::new(&rows(3..5))).await.err().unwrap();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, fault_code));
        // The next run of the plan, too.
        let mut writer = destination.open(&host()).await.unwrap();
        let fault = writer.write(Write::new(&rows(3..5))).await.err().unwrap();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, fault_code));
        server.heal();
        write(&mut writer, &rows(3..5)).await;
        assert_eq!(server.objects().len(), 2);
    }
}

#[tokio::test]
async fn a_failed_write_comes_again_under_its_name_and_a_copy_under_another() {
    let server = Server::start();
    let mut writer = open(&server, &[]).await;
    // It is written, and nobody learns of it.
    server.fail(|request| (request.method == "PUT").then_some(Fault::Mute));
    let fault = writer.write(Write::new(&rows(0..3))).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "s3_unavailable"));
    server.heal();
    assert_eq!(server.objects().len(), 1);
    write(&mut writer, &rows(0..3)).await;
    assert_eq!(server.objects().len(), 1);
    write(&mut writer, &rows(0..3)).await;
    let objects = server.objects();
    assert_eq!(objects.len(), 2);
    assert!(objects.keys().any(|key| key.ends_with("-1.ndjson")));
}

#[tokio::test]
async fn records_go_into_the_folders_that_a_template_names() {
    let server = Server::start();
    let folder = r#"kind={{ index .Metadata "kind" }}"#;
    let mut writer = open(&server, &[("prefix", "x/"), ("folder", folder)]).await;
    write(&mut writer, &rows(0..5)).await;
    let objects = server.objects();
    let of = |kind: &str| {
        let (key, body) = objects.iter().find(|(key, _)| key.starts_with(&format!("x/kind={kind}/"))).unwrap();
        assert_eq!(key.matches('/').count(), 2);
        numbers(body)
    };
    assert_eq!((of("even"), of("odd")), (vec![0, 2, 4], vec![1, 3]));
    let mut bad = rows(0..3);
    bad[1].metadata.insert("kind", "..\u{7}/x");
    match writer.write(Write::new(&bad)).await.unwrap() {
        Verdicts::Each(verdicts) => {
            assert_eq!(verdicts.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
            assert_eq!(verdicts[1].as_ref().err().unwrap().code().name(), "folder_invalid");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn objects_may_be_compressed() {
    let server = Server::start();
    for compression in ["gzip", "zstd"] {
        write(&mut open(&server, &[("compression", compression)]).await, &rows(0..1000)).await;
    }
    let objects = server.objects();
    let ending = |ending: &str| objects.iter().find(|(key, _)| key.ends_with(ending)).unwrap().1.clone();
    let mut unzipped = Vec::new();
    flate2::read::GzDecoder::new(&ending(".ndjson.gz")[..]).read_to_end(&mut unzipped).unwrap();
    let unpacked = zstd::decode_all(&ending(".ndjson.zst")[..]).unwrap();
    assert_eq!(unzipped, unpacked);
    assert_eq!(numbers(&unzipped), (0..1000).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_record_that_cannot_be_written_fails_alone() {
    let server = Server::start();
    let mut writer = open(&server, &[]).await;
    let mut bad = rows(0..3);
    bad[1].payload.after = [("n", Value::Float(f64::NAN))].into_iter().collect::<Object>().into();
    match writer.write(Write::new(&bad)).await.unwrap() {
        Verdicts::Each(verdicts) => {
            assert_eq!(verdicts.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(numbers(server.objects().values().next().unwrap()), [0, 2]);
}

#[tokio::test]
async fn a_missing_bucket_is_refused() {
    let server = Server::start();
    let registry = registry();
    let kind = registry.destination("s3").unwrap();
    let mut pairs = vec![("objstore.bucket", "nowhere"), ("objstore.access_key_id", "a")];
    let endpoint = server.endpoint();
    pairs.extend([("objstore.secret_access_key", "b"), ("objstore.endpoint", &endpoint)]);
    let arguments = Arguments::parse(kind.specification(), &anabranch_plugin::settings::Settings::from_pairs(pairs));
    let fault = kind.configure(&arguments.unwrap()).unwrap().open(&host()).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "bucket_missing"));
}
