//! Answers that an S3 server does not give: pages of a proxy, pieces, bodies without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anabranch_plugin::destination::{Delivered, Verdicts, Write};
use anabranch_record::fault::FaultClass;

use crate::destination::{configure, rows};
use crate::reading::{host, open, try_open};
use crate::server::{Fault, Request, Server};

/// Some second of 2026.
const START: i64 = 1_790_000_000;
const OBJECTS: usize = 12;
/// More than any answer may take.
const BOUND: u64 = 64 << 20;

fn server() -> Server {
    let server = Server::start();
    server.set_clock(START);
    for n in 0..OBJECTS {
        server.put(&key(n), payload(n));
    }
    server.set_clock(START + 1);
    server
}

fn key(n: usize) -> String {
    format!("k{n:02}")
}

fn payload(n: usize) -> String {
    format!("v{n}").repeat(50)
}

/// A page of a proxy in front of the server.
fn page(status: u16) -> Fault {
    let kind = ("Content-Type", "text/html".to_owned());
    Fault::Instead(status, vec![kind], b"<html>down for maintenance</html>".to_vec())
}

fn instead(status: u16, etag: &str, body: &[u8]) -> Fault {
    Fault::Instead(status, vec![("ETag", etag.to_owned())], body.to_vec())
}

/// Reads everything while every third request of a kind is answered so: all objects come, each as it was put.
async fn read_through(server: &Server, of: fn(&Request) -> bool, fault: impl Fn(&Request) -> Fault + Send + 'static) {
    let mut seen = 0;
    server.fail(move |request| {
        seen += usize::from(of(request));
        (of(request) && seen % 3 == 1).then(|| fault(request))
    });
    let found = open(server, None).await.all().await;
    let expected: Vec<String> = (0..OBJECTS).map(|n| format!("snapshot {}={}", key(n), payload(n))).collect();
    assert_eq!(found, expected);
    server.heal();
}

#[tokio::test]
async fn a_piece_of_an_object_is_not_the_object() {
    let server = server();
    let etags: Arc<Vec<String>> = Arc::new((0..OBJECTS).map(|n| server.etag(&key(n))).collect());
    let etag = move |request: &Request| etags[request.key[1..].parse::<usize>().unwrap()].clone();
    for status in [200, 206] {
        let etag = etag.clone();
        read_through(&server, Request::is_get, move |request| instead(status, &etag(request), b"v1v1")).await;
    }
    let longer = etag.clone();
    read_through(&server, Request::is_get, move |request| instead(200, &longer(request), &[b'x'; 5000])).await;
    read_through(&server, Request::is_get, move |request| instead(200, &etag(request), b"")).await;
}

#[tokio::test]
async fn another_text_is_not_the_object() {
    let server = server();
    read_through(&server, Request::is_get, |_| page(200)).await;
    read_through(&server, Request::is_get, |_| page(404)).await;
    let error = b"<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>";
    read_through(&server, Request::is_get, |_| Fault::Instead(200, Vec::new(), error.to_vec())).await;
    // The object of another key, whole.
    let (etag, other) = (server.etag(&key(7)), payload(7));
    read_through(
        &server,
        |request| request.is_get() && request.key != key(7),
        move |_| instead(200, &etag, other.as_bytes()),
    )
    .await;
}

/// Also on a server that does not heed `If-Match`.
#[tokio::test]
async fn an_object_that_changed_since_it_was_listed_is_listed_again() {
    let server = Arc::new(server());
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await.len(), OBJECTS);
    server.put("k03", "b");
    server.set_clock(START + 2);
    let weak = Arc::downgrade(&server);
    let changed = AtomicUsize::new(0);
    // The server holds its lock while it asks the script: the change is made by another thread before the answer ends.
    server.fail(move |request| {
        if !request.is_get() || changed.fetch_add(1, Ordering::SeqCst) > 0 {
            return None;
        }
        let server = weak.upgrade()?;
        std::thread::spawn(move || {
            server.set_clock(START + 2);
            server.put("k03", "newest");
            server.set_clock(START + 3);
        });
        // The answer of a server that has the newest object and does not support `If-Match`.
        Some(Fault::Late(Duration::from_millis(300), Box::new(instead(200, "\"of the newest\"", b"newest"))))
    });
    let mut found = Vec::new();
    let begun = Instant::now();
    while found.is_empty() && begun.elapsed() < Duration::from_secs(60) {
        found = reading.all().await;
    }
    assert_eq!(found, ["update k03=newest"]);
}

#[tokio::test]
async fn an_answer_to_a_put_that_is_no_confirmation_is_none() {
    for (fault, words) in [
        (page(200), "200 (text/html)"),
        (Fault::Instead(200, Vec::new(), Vec::new()), "200"),
        (Fault::Instead(201, vec![("ETag", "\"e\"".to_owned())], Vec::new()), "201"),
        (Fault::Instead(202, Vec::new(), Vec::new()), "202"),
        (Fault::Instead(204, vec![("ETag", "\"e\"".to_owned())], Vec::new()), "204"),
    ] {
        let server = Server::start();
        let mut writer = configure(&server, &[]).unwrap().open(&host()).await.unwrap();
        let shown = format!("{fault:?}");
        server.fail(move |request| (request.method == "PUT").then(|| fault.clone()));
        let fault = writer.write(Write::new(&rows(0..3))).await.err().unwrap_or_else(|| panic!("confirmed by {shown}"));
        assert_eq!(fault.class(), FaultClass::Transient, "{shown}: {fault}");
        let message = fault.message();
        assert!(message.contains(words) && message.contains("objstore.endpoint"), "{message}");
        server.heal();
        assert!(matches!(writer.write(Write::new(&rows(0..3))).await.unwrap(), Verdicts::All(Delivered::Durable)));
        assert_eq!(server.objects().len(), 1);
    }
}

#[tokio::test]
async fn answers_are_read_within_a_bound() {
    let server = server();
    // Lists, the question for versions, the refusal of an object: cut off, and asked again.
    let etag = server.etag(&key(0));
    for (of, status) in [
        (Request::is_listing as fn(&Request) -> bool, 200),
        (Request::is_listing, 500),
        (Request::is_versioning, 200),
        (|request| request.query.contains_key("uploads"), 200),
        (Request::is_get, 500),
        (Request::is_get, 200),
    ] {
        let (mut asked, etag) = (0, etag.clone());
        server.fail(move |request| {
            asked += usize::from(of(request));
            (of(request) && asked == 1).then(|| Fault::Endless(status, vec![("ETag", etag.clone())]))
        });
        assert_eq!(open(&server, None).await.all().await.len(), OBJECTS);
    }
    let mut writer = configure(&server, &[]).unwrap().open(&host()).await.unwrap();
    for status in [200, 500] {
        server.fail(move |request| {
            (request.method == "PUT").then(|| Fault::Endless(status, vec![("ETag", "\"e\"".to_owned())]))
        });
        let fault = writer.write(Write::new(&rows(0..3))).await.err().unwrap();
        assert_eq!(fault.class(), FaultClass::Transient, "{fault}");
    }
    // An answer that the client gave up ends for the server a little later.
    let begun = Instant::now();
    while server.endless_answers() < 8 && begun.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.endless_answers(), 8);
    assert!(server.longest_answer() < BOUND, "{} bytes were taken", server.longest_answer());
}

#[tokio::test]
async fn the_question_for_versions_is_asked_again_after_an_answer_that_means_nothing() {
    let error = b"<Error><Code>InternalError</Code><Message>try again</Message></Error>".to_vec();
    for fault in [page(200), Fault::Instead(200, Vec::new(), error), Fault::Instead(200, Vec::new(), Vec::new())] {
        let server = server();
        let mut asked = 0;
        server.fail(move |request| {
            asked += usize::from(request.is_versioning());
            (request.is_versioning() && asked <= 2).then(|| fault.clone())
        });
        assert_eq!(open(&server, None).await.all().await.len(), OBJECTS);
    }
}

#[tokio::test]
async fn a_page_is_quoted_and_nobody_else_is_blamed() {
    let server = server();
    server.fail(|request| request.is_versioning().then(|| page(200)));
    let fault = try_open(&server, None, &[]).await.err().unwrap();
    assert_eq!(fault.class(), FaultClass::Transient);
    let message = fault.message();
    for words in ["200 (text/html)", "<html>down for maintenance", "objstore.endpoint"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(!message.contains("SDK"), "{message}");
}

/// The pipeline recovers then, and its state holds these words.
#[tokio::test]
async fn a_server_that_never_answers_holds_up_no_start() {
    let server = server();
    server.fail(|_| Some(Fault::Silent));
    let fault = try_open(&server, None, &[]).await.err().unwrap();
    assert_eq!(fault.class(), FaultClass::Transient);
    assert!(fault.message().contains(&server.endpoint()), "{fault}");
    let fault = configure(&server, &[]).unwrap().open(&host()).await.err().unwrap();
    assert_eq!(fault.class(), FaultClass::Transient);
    assert!(fault.message().contains(&server.endpoint()), "{fault}");
}
