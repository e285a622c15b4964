//! Objects that are dated ahead of the clock of the server that lists them: the clocks of a store differ.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::reading::{ROOM, open, shown};
use crate::server::Server;

/// Some second of 2026: 2026-09-21T14:13:20Z.
const START: i64 = 1_790_000_000;

fn server() -> Server {
    let server = Server::start();
    server.set_clock(START);
    server.put_with("a", "1", &[], Some(START - 5));
    server
}

/// The first listing shows it: it was there.
#[tokio::test]
async fn what_is_a_little_ahead_is_waited_for() {
    for ahead in [0, 1, 2, 5, 20] {
        let server = server();
        server.put_with("f", "2", &[], Some(START + ahead));
        server.put_with("z", "3", &[], Some(START - 5));
        let mut reading = open(&server, None).await;
        let (mut found, begun) = (Vec::new(), Instant::now());
        loop {
            match timeout(Duration::from_millis(100), reading.some(ROOM)).await {
                Ok(records) if records.is_empty() => break,
                Ok(records) => found.extend(records.iter().map(shown)),
                Err(_) if found.len() == 2 => server.set_clock(START + ahead + 1),
                Err(_) => assert!(begun.elapsed() < Duration::from_secs(60), "{found:?}"),
            }
        }
        assert_eq!(found, ["snapshot a=1", "snapshot z=3", "snapshot f=2"], "{ahead}");
        let (backlog, left) = reading.left().await;
        assert_eq!((backlog.objects, backlog.ahead, left), (Some(0), 0, None));
    }
}

#[tokio::test]
async fn what_is_far_ahead_is_counted_and_named_and_read_in_its_time() {
    let server = server();
    server.put_with("f", "22", &[], Some(START + 3600));
    server.put_with("g", "333", &[], Some(START + 7200));
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, ["snapshot a=1"]);
    let (backlog, left) = reading.left().await;
    assert_eq!((backlog.objects, backlog.bytes, backlog.ahead), (Some(2), Some(5), 2));
    let words = left.unwrap();
    for part in ["2 objects are dated ahead", "\"f\"", "2026-09-21T15:13:20Z", "2026-09-21T14:13:20Z"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    server.set_clock(START + 3601);
    assert_eq!(reading.all().await, ["create f=22"]);
    let (backlog, left) = reading.left().await;
    assert_eq!((backlog.objects, backlog.ahead), (Some(1), 1));
    assert!(left.unwrap().contains("1 object is dated ahead"));
    // A restart neither forgets nor repeats.
    let position = reading.last.clone();
    server.set_clock(START + 7201);
    let mut again = open(&server, position).await;
    assert_eq!(again.all().await, ["create g=333"]);
    assert_eq!(again.left().await.1, None);
}

/// A change during a listing belongs to the next one, as usual.
#[tokio::test]
async fn a_store_that_is_always_a_little_ahead_holds_up_no_end() {
    let server = server();
    let mut reading = open(&server, None).await;
    assert_eq!(reading.some(ROOM).await.len(), 1);
    let begun = Instant::now();
    let mut n = 0;
    loop {
        n += 1;
        server.set_clock(START + n);
        server.put_with(&format!("n{n:03}"), "x", &[], Some(START + n + 2));
        match timeout(Duration::from_millis(100), reading.some(ROOM)).await {
            Ok(records) if records.is_empty() => break,
            _ => assert!(begun.elapsed() < Duration::from_secs(120)),
        }
    }
}
