//! Answers with a good status that are not those of an object store.

use anabranch_graph::destination::{Delivered, Verdicts, Writer};
use anabranch_graph::fault::FaultClass;
use anabranch_graph::record::{Data, Position, Record};

use crate::destination::open as open_destination;
use crate::reading::{open, try_open};
use crate::server::{Fault, Server};

/// Some second of 2026.
const START: i64 = 1_790_000_000;
/// MD5 of "hello".
const HELLO: &str = "5d41402abc4b2a76b9719d911017c592";
/// MD5 of "world".
const WORLD: &str = "7d793037a0760186574b0282f2f435e7";

const HTML: &[(&str, &str)] = &[("Content-Type", "text/html")];

#[tokio::test]
async fn a_write_without_the_etag_of_an_object_is_not_delivered() {
    let server = Server::start();
    let mut writer: Box<dyn Writer> = open_destination(&server, &[]).await;
    let record = Record::create(Position::copy_from(b"1"), Data::text("k"), Data::text("v"));
    let rows = std::slice::from_ref(&record);
    let odd: [Fault; 4] = [
        Fault::Page(200, HTML, "<html>sign in</html>"),
        Fault::Page(202, &[], ""),
        Fault::Page(204, &[], ""),
        Fault::Page(200, &[("ETag", "\"\"")], ""),
    ];
    for fault in odd {
        let answer = fault.clone();
        server.fail(move |request| (request.method == "PUT").then(|| answer.clone()));
        match writer.write(rows, &[]).await {
            Err(why) => assert_eq!((why.class(), why.code()), (FaultClass::Transient, "s3_unavailable"), "{fault:?}"),
            Ok(verdicts) => panic!("{fault:?}: {verdicts:?}"),
        }
        assert!(server.objects().is_empty());
    }
    server.heal();
    assert!(matches!(writer.write(rows, &[]).await.unwrap(), Verdicts::All(Delivered::Durable)));
    assert_eq!(server.objects().len(), 1);
}

/// Whatever comes instead of an object, only the object itself is delivered.
#[tokio::test]
async fn only_the_bytes_that_were_listed_are_an_object() {
    let tag: &[(&str, &str)] = &[("ETag", "\"5d41402abc4b2a76b9719d911017c592\"")];
    let range: &[(&str, &str)] = &[("ETag", "\"5d41402abc4b2a76b9719d911017c592\""), ("Content-Range", "bytes 0-1/5")];
    for odd in [
        Fault::Page(200, HTML, "<html>maintenance</html>"),
        Fault::Page(200, tag, ""),
        Fault::Page(200, tag, "hel"),
        Fault::Page(200, tag, "hello and more"),
        Fault::Page(200, tag, "hellp"),
        Fault::Page(206, range, "he"),
    ] {
        let server = Server::start();
        server.set_clock(START);
        server.put_tagged("a", "world", WORLD);
        server.put_tagged("b", "hello", HELLO);
        server.set_clock(START + 1);
        let (answer, mut left) = (odd.clone(), 2);
        server.fail(move |request| {
            let odd = left > 0 && request.is_get() && request.key == "b";
            left -= i32::from(odd);
            odd.then(|| answer.clone())
        });
        let mut reading = open(&server, None).await;
        assert_eq!(reading.all().await, ["snapshot a=world", "snapshot b=hello"], "{odd:?}");
    }
}

/// Another object than the one that was listed is looked for by the next sweep, and is never delivered under this key.
#[tokio::test]
async fn an_answer_about_another_object_is_not_delivered() {
    let server = Server::start();
    server.set_clock(START);
    server.put_tagged("a", "world", WORLD);
    server.put_tagged("b", "hello", HELLO);
    server.set_clock(START + 1);
    let mut left = 1;
    server.fail(move |request| {
        let odd = left > 0 && request.is_get() && request.key == "b";
        left -= i32::from(odd);
        odd.then_some(Fault::Page(200, &[("ETag", "\"7d793037a0760186574b0282f2f435e7\"")], "world"))
    });
    let mut reading = open(&server, None).await;
    let mut all = reading.all().await;
    while all.len() < 2 {
        all.extend(reading.all().await);
    }
    assert_eq!(all[0], "snapshot a=world");
    assert!(all[1].ends_with(" b=hello"), "{all:?}");
}

#[tokio::test]
async fn one_answer_about_versions_that_means_nothing_is_asked_for_again() {
    let server = Server::start();
    server.set_clock(START);
    server.put("a", "1");
    server.set_clock(START + 1);
    let pages = |count: usize| {
        let mut left = count;
        move |request: &crate::server::Request| {
            let odd = left > 0 && request.query.contains_key("versioning");
            left -= usize::from(odd);
            odd.then_some(Fault::Page(200, HTML, "<html>maintenance</html>"))
        }
    };
    server.fail(pages(1));
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, ["snapshot a=1"]);
    // A server that never was one of objects is a mistake of the pipeline; one that was is away.
    server.fail(pages(usize::MAX));
    let fault = try_open(&server, None, &[]).await.err().unwrap();
    assert_eq!((fault.class(), fault.code()), (FaultClass::Fatal, "answer_invalid"));
    let fault = try_open(&server, reading.last.clone(), &[]).await.err().unwrap();
    assert_eq!((fault.class(), fault.code()), (FaultClass::Transient, "answer_invalid"));
}
