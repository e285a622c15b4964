use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anabranch_plugin::source::Room;
use anabranch_record::text::Str;
use anabranch_record::{Data, Operation};

use crate::reading::{ROOM, configure, open, shown, try_open};
use crate::server::{Fault, Server};

/// Some second of 2026.
const START: i64 = 1_790_000_000;

fn server() -> Server {
    let server = Server::start();
    server.set_clock(START);
    server
}

/// The clock goes on, so that what happened is over.
fn later(server: &Server) {
    server.set_clock(server.now() + 1);
}

#[tokio::test]
async fn what_is_there_comes_first_and_then_what_changes() {
    let server = server();
    server.put("b", "2");
    server.put("a", "1");
    server.put("empty", "");
    later(&server);
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, ["snapshot a=1", "snapshot b=2", "snapshot empty="]);
    server.put("c", "3");
    server.put("a", "1b");
    server.delete("b");
    later(&server);
    assert_eq!(reading.all().await, ["update a=1b", "delete b=-", "create c=3"]);
    assert!(reading.is_quiet().await);
    server.put("b", "back");
    later(&server);
    assert_eq!(reading.all().await, ["create b=back"]);
    // Nothing is repeated after a restart, and what came meanwhile is there.
    server.put("d", "4");
    later(&server);
    let mut again = open(&server, reading.last.clone()).await;
    assert_eq!(again.all().await, ["create d=4"]);
}

#[tokio::test]
async fn users_metadata_keep_their_names_and_the_store_s_are_beside_them() {
    let server = server();
    let headers = [("x-amz-meta-title", "On rivers"), ("content-type", "text/plain")];
    server.put_with("doc", "text", &headers, Some(START - 5));
    let mut reading = open(&server, None).await;
    let records = reading.records().await;
    let metadata = &records[0].metadata;
    for (key, value) in [
        ("title", "On rivers"),
        ("s3.bucket", "documents"),
        ("s3.header.contentType", "text/plain"),
        ("s3.size", "4"),
        ("s3.lastModified", "2026-09-21T14:13:15Z"),
        ("recfmt.createdAt", "1789999995000000000"),
    ] {
        assert_eq!(metadata.get(key).map(Str::as_str), Some(value), "{key}");
    }
    assert!(metadata.get("s3.etag").is_some());
    assert!(metadata.get("s3.versionId").is_none());
    assert_eq!(records[0].operation, Operation::Snapshot);
}

#[tokio::test]
async fn a_restart_after_any_record_repeats_and_loses_nothing() {
    let server = server();
    server.set_page(7);
    for n in 0..40 {
        server.put(&format!("k{n:02}"), format!("{n}"));
    }
    later(&server);
    let expected = open(&server, None).await.all().await;
    assert_eq!(expected.len(), 40);
    // One record at a time, a restart after each, also through the changes of one second.
    let (mut position, mut all) = (None, Vec::new());
    for n in 0..60 {
        if n == 40 {
            for n in (0..40).step_by(2) {
                server.put(&format!("k{n:02}"), format!("{n}b"));
            }
            later(&server);
        }
        let mut reading = open(&server, position).await;
        let records = reading.some(Room { rows: 1, ..ROOM }).await;
        all.extend(records.iter().map(shown));
        position = reading.last;
    }
    assert_eq!(all[..40], expected);
    let changed: Vec<String> = (0..40).step_by(2).map(|n| format!("create k{n:02}={n}b")).collect();
    assert_eq!(all[40..], changed);
    assert!(open(&server, position).await.all().await.is_empty());
}

#[tokio::test]
async fn changes_of_one_second_are_all_seen_across_a_restart() {
    let server = server();
    server.put("m", "1");
    later(&server);
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, ["snapshot m=1"]);
    // In this second, before and after the key that was read last, before and after the restart.
    server.put("a", "early");
    server.put("z", "early");
    assert!(reading.is_quiet().await, "the second is not over");
    let position = reading.last.clone();
    drop(reading);
    server.put("b", "late");
    server.put("z", "late");
    later(&server);
    let mut reading = open(&server, position).await;
    assert_eq!(reading.all().await, ["create a=early", "create b=late", "create z=late"]);
    let position = reading.last.clone();
    assert!(open(&server, position).await.all().await.is_empty());
}

#[tokio::test]
async fn what_is_written_in_the_second_of_the_opening_belongs_to_the_snapshot() {
    // The clock of the machine: a pipeline that is started after a write must not miss it.
    let server = Server::start();
    server.put("just", "now");
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, ["snapshot just=now"]);
    let position = reading.last.clone();
    assert!(open(&server, position).await.all().await.is_empty());
}

#[tokio::test]
async fn an_upload_that_is_completed_after_a_restart_is_found_although_it_is_old() {
    let server = server();
    server.put("a", "1");
    server.begin_upload("big");
    server.begin_upload("bigger");
    later(&server);
    later(&server);
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, ["snapshot a=1"]);
    // While it runs.
    server.complete_upload("big", "B");
    assert_eq!(reading.all().await, ["create big=B"]);
    let position = reading.last.clone();
    drop(reading);
    server.complete_upload("bigger", "BB");
    let mut reading = open(&server, position).await;
    assert_eq!(reading.all().await, ["create bigger=BB"]);
    later(&server);
    let position = reading.last.clone();
    assert!(open(&server, position).await.all().await.is_empty());
}

#[tokio::test]
async fn a_bucket_with_versions_is_read_version_by_version() {
    let server = server();
    server.keep_versions();
    server.set_page(3);
    server.put("a", "1");
    server.put("b", "1");
    later(&server);
    server.put("a", "2");
    server.delete("b");
    later(&server);
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, ["snapshot a=2"]);
    for n in 3..8 {
        server.put("a", format!("{n}"));
        later(&server);
    }
    server.put("b", "again");
    later(&server);
    server.delete("a");
    later(&server);
    let expected =
        ["update a=3", "update a=4", "update a=5", "update a=6", "update a=7", "delete a=-", "create b=again"];
    let after = reading.last.clone();
    assert_eq!(reading.all().await, expected);
    assert!(reading.is_quiet().await);
    // A restart after each, also between two versions of a key.
    let (mut position, mut all) = (after, Vec::new());
    for _ in 0..expected.len() {
        let mut reading = open(&server, position).await;
        let records = reading.some(Room { rows: 1, ..ROOM }).await;
        all.extend(records.iter().map(shown));
        assert!(records[0].metadata.get("s3.versionId").is_some());
        position = reading.last;
    }
    assert_eq!(all, expected);
    assert!(open(&server, position).await.all().await.is_empty());
}

#[tokio::test]
async fn keys_may_hold_anything() {
    let server = server();
    let keys =
        ["a b", "a+b", "a%20b", "ü/ñ/日本", "a&<>\"'b", "tab\there", "line\nfeed", "\u{1}", "trailing/", "a?b#c", ".."];
    for key in keys {
        server.put(key, key);
    }
    server.set_page(2);
    later(&server);
    let mut expected: Vec<String> = keys.iter().map(|key| format!("snapshot {key}={key}")).collect();
    expected.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    let mut found = open(&server, None).await.all().await;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn only_what_is_below_the_prefix_is_read_and_its_position_is_of_nothing_else() {
    let server = server();
    for key in ["in/1", "in/2", "out/1"] {
        server.put(key, "x");
    }
    later(&server);
    let mut reading = try_open(&server, None, &[("prefix", "in/")]).await.unwrap();
    assert_eq!(reading.all().await, ["snapshot in/1=x", "snapshot in/2=x"]);
    let fault = try_open(&server, reading.last, &[("prefix", "out/")]).await.err().unwrap();
    assert_eq!(fault.code().name(), "position_of_another_bucket");
}

#[tokio::test]
async fn an_object_above_the_limit_stops_the_source_where_it_is() {
    let server = server();
    server.put("a", "small");
    server.put("b", vec![b'x'; 101]);
    later(&server);
    let mut reading = try_open(&server, None, &[("maxObjectBytes", "100")]).await.unwrap();
    assert_eq!(shown(&reading.some(ROOM).await[0]), "snapshot a=small");
    let fault = reading.try_some(ROOM).await.err().unwrap();
    assert_eq!(fault.code().name(), "object_too_large");
    let message = fault.message();
    assert!(message.contains("\"b\"") && message.contains("101") && message.contains("maxObjectBytes"), "{message}");
}

#[tokio::test]
async fn large_objects_come_whole() {
    let server = server();
    let large: Vec<u8> = (0..50_000_000u32).map(|n| (n % 251) as u8).collect();
    server.put("large", large.clone());
    server.put("small", "s");
    later(&server);
    let mut reading = open(&server, None).await;
    let records = reading.records().await;
    assert_eq!(records.len(), 2);
    assert!(records[0].payload.after == Data::Raw(large.into()));
}

/// Reads a bucket of 50 objects while the server fails as told.
async fn read_through(fail: impl FnMut(&crate::server::Request) -> Option<Fault> + Send + 'static) {
    let server = server();
    server.set_page(10);
    for n in 0..50 {
        server.put(&format!("k{n:02}"), vec![b'0' + (n % 10) as u8; 1000]);
    }
    later(&server);
    server.fail(fail);
    let mut reading = open(&server, None).await;
    let found = reading.all().await;
    assert_eq!(found.len(), 50);
    for (n, found) in found.iter().enumerate() {
        let payload = char::from(b'0' + (n % 10) as u8).to_string().repeat(1000);
        assert_eq!(*found, format!("snapshot k{n:02}={payload}"));
    }
}

#[tokio::test]
async fn a_listing_that_fails_is_repeated_and_is_never_the_end() {
    for fault in [Fault::Refuse(500, "InternalError"), Fault::Close, Fault::Cut, Fault::NoMarker, Fault::NoEnd] {
        let mut listings = 0;
        read_through(move |request| {
            listings += usize::from(request.is_listing());
            (request.is_listing() && listings % 2 == 0).then(|| fault.clone())
        })
        .await;
    }
}

#[tokio::test]
async fn a_get_that_fails_is_repeated() {
    for fault in [Fault::Refuse(503, "SlowDown"), Fault::Close, Fault::Cut, Fault::Slow(Duration::from_millis(100))] {
        let mut gets = 0;
        read_through(move |request| {
            gets += usize::from(request.is_get());
            (request.is_get() && gets % 5 == 0).then(|| fault.clone())
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_is_gone_for_a_while_is_waited_for_and_deletions_meanwhile_are_seen() {
    let server = server();
    for key in ["a", "b", "c"] {
        server.put(key, key);
    }
    later(&server);
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await.len(), 3);
    server.fail(|_| Some(Fault::Close));
    assert!(reading.is_quiet().await);
    server.delete("b");
    server.put("d", "d");
    later(&server);
    server.heal();
    assert_eq!(reading.all().await, ["delete b=-", "create d=d"]);
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let server = server();
    let refused = |status, code| {
        let server = &server;
        async move {
            server.fail(move |_| Some(Fault::Refuse(status, code)));
            let mut reading = match try_open(server, None, &[("versions", "off")]).await {
                Ok(reading) => reading,
                Err(fault) => return fault,
            };
            reading.try_some(ROOM).await.err().unwrap()
        }
    };
    let fault = refused(403, "AccessDenied").await;
    assert_eq!(fault.code().name(), "access_denied");
    assert!(fault.message().contains("documents"), "{}", fault.message());
    assert_eq!(refused(403, "InvalidAccessKeyId").await.code().name(), "credentials_refused");
    assert_eq!(refused(404, "NoSuchBucket").await.code().name(), "bucket_missing");
    let fault = refused(403, "SignatureDoesNotMatch").await;
    assert!(!fault.message().contains("of-the-test"), "{}", fault.message());
}

#[tokio::test]
async fn an_object_that_changes_before_it_is_fetched_is_left_to_the_next_sweep() {
    let server = Arc::new(server());
    server.put("a", "1");
    server.put("b", "1");
    later(&server);
    // Between the listing and the get of "a" there is an update, of "b" a deletion.
    let gets = Arc::new(AtomicUsize::new(0));
    server.fail({
        let gets = gets.clone();
        move |request| {
            let first = request.is_get() && gets.fetch_add(1, Ordering::SeqCst) < 2;
            first.then_some(if request.key == "a" {
                Fault::Refuse(412, "PreconditionFailed")
            } else {
                Fault::Refuse(404, "NoSuchKey")
            })
        }
    });
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await, [""; 0]);
    server.put("a", "2");
    server.delete("b");
    later(&server);
    assert_eq!(reading.all().await, ["create a=2"]);
    assert!(reading.is_quiet().await);
}

#[tokio::test]
async fn an_object_that_never_rests_is_read_all_the_same() {
    let server = server();
    server.put("calm", "1");
    later(&server);
    let mut reading = open(&server, None).await;
    assert_eq!(reading.all().await.len(), 1);
    let begin = Instant::now();
    let mut n = 0;
    // Always changed in the second in which it is listed.
    let found = loop {
        n += 1;
        server.put("restless", format!("{n}"));
        let found = tokio::time::timeout(Duration::from_millis(60), reading.some(ROOM)).await;
        match found {
            Ok(found) if !found.is_empty() => break found,
            _ => assert!(begin.elapsed() < Duration::from_secs(120)),
        }
    };
    assert!(shown(&found[0]).starts_with("create restless="));
}

#[tokio::test]
async fn reading_may_be_given_up_at_any_time() {
    let server = server();
    for n in 0..200 {
        server.put(&format!("k{n:03}"), "x");
    }
    server.set_page(50);
    later(&server);
    let mut reading = open(&server, None).await;
    let mut all = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_micros(300), reading.some(Room { rows: 7, ..ROOM })).await {
            Ok(records) if records.is_empty() => break,
            Ok(records) => all.extend(records.iter().map(shown)),
            Err(_) => {}
        }
    }
    let expected: Vec<String> = (0..200).map(|n| format!("snapshot k{n:03}=x")).collect();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn a_read_brings_no_more_than_there_is_room_for() {
    let server = server();
    for n in 0..20 {
        server.put(&format!("k{n:02}"), vec![b'x'; 4000]);
    }
    later(&server);
    let mut reading = open(&server, None).await;
    let mut all = 0;
    loop {
        let records = reading.some(Room { rows: 10, bytes: 10_000 }).await;
        if records.is_empty() {
            break;
        }
        assert!(records.len() <= 2, "{}", records.len());
        all += records.len();
    }
    assert_eq!(all, 20);
}

#[tokio::test]
async fn ten_thousand_objects_are_listed_and_what_is_new_arrives_in_order() {
    let server = server();
    later(&server);
    let mut reading = open(&server, None).await;
    assert!(reading.all().await.is_empty());
    // From before the last sweep, as after a restart, every tenth aside.
    for n in 0..10_000 {
        let modified = if n % 10 == 0 { server.now() } else { START - 10 };
        server.put_with(&format!("{n:05}"), format!("{n}"), &[], Some(modified));
    }
    later(&server);
    let mut reading = open(&server, reading.last).await;
    let expected: Vec<String> = (0..10_000).step_by(10).map(|n| format!("create {n:05}={n}")).collect();
    assert_eq!(reading.all().await, expected);
}

#[test]
fn settings_that_cannot_work_are_refused_where_they_stand() {
    let messages = |more: &[(&str, &str)]| -> Vec<String> {
        configure("http://127.0.0.1:9", more).err().into_iter().flatten().map(|finding| finding.message).collect()
    };
    assert!(messages(&[]).is_empty());
    assert_eq!(messages(&[("maxObjectBytes", "0")]), ["maxObjectBytes: \"0\" must be at least 1"]);
    let endpoint = |endpoint| -> Vec<String> {
        configure(endpoint, &[]).err().into_iter().flatten().map(|finding| finding.message).collect()
    };
    assert_eq!(endpoint("localhost:9000"), ["objstore.endpoint must begin with http:// or https://"]);
    assert_eq!(endpoint("https://me:hunter22@x"), ["objstore.endpoint must not contain a user or a password"]);
}
