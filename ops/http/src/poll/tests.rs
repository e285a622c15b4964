use std::sync::Mutex;

use anabranch_plugin::source::{Read, Room};
use anabranch_plugin::testing::{check_source, configured};
use anabranch_record::fault::FaultClass;
use anabranch_record::value::Value;

use super::*;
use crate::testing::{Received, Reply, Server};

const AMPLE: Room = Room { rows: 100, bytes: 1 << 20 };

fn parameter(request: &Received, name: &str) -> Option<u64> {
    let query = request.path.split_once('?')?.1;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// A page of items, and the cursor of the next one.
fn page(items: &[u64], next: Option<u64>) -> Reply {
    let items: Vec<_> = items.iter().map(|n| serde_json::json!({ "n": n })).collect();
    Reply::ok(serde_json::json!({ "items": items, "next": next }).to_string())
}

fn source(server: &Server, settings: &[(&str, &str)]) -> Arc<dyn Source> {
    source_of(&kind(), server, settings)
}

fn source_of(kind: &Arc<dyn SourceKind>, server: &Server, settings: &[(&str, &str)]) -> Arc<dyn Source> {
    let url = server.url();
    let usual = [
        ("request.url", url.as_str()),
        ("records", "/items"),
        ("paging.kind", "cursor"),
        ("paging.next", "/next"),
        ("schedule.interval", "1h"),
        ("backoffRetry.count", "0"),
    ];
    let is_usual = |(name, _): &(&str, &str)| settings.iter().all(|(other, _)| other != name);
    let usual: Vec<_> = usual.into_iter().filter(is_usual).collect();
    configured::source(kind, &[&usual[..], settings].concat()).unwrap()
}

/// Reads until the source has caught up. Returns the numbers of the records, and the last position.
async fn read_all(source: &dyn Source, position: Option<Position>) -> (Vec<i64>, Vec<Position>) {
    let mark = position.map(|position| (Partition::ONLY, Mark { generation: 0, seq: 1, position }));
    let mut opened = source.open(&mark.into_iter().collect(), &configured::host()).await.unwrap();
    let (mut numbers, mut positions) = (Vec::new(), Vec::new());
    loop {
        match opened.reader.read(AMPLE).await.unwrap() {
            Read::Rows { records, .. } => {
                for record in records {
                    numbers.push(record.payload.after.fields().unwrap().get("n").and_then(Value::as_i64).unwrap());
                    positions.push(record.position().clone());
                }
            }
            Read::Progress(_, position) => positions.push(position),
            Read::CaughtUp => return (numbers, positions),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_promises_of_sources_are_kept() {
    let server = Server::start(|request| match parameter(request, "cursor") {
        None => page(&[1, 2], Some(2)),
        Some(2) => page(&[], Some(3)),
        _ => page(&[3, 3, 4], None),
    });
    // The positions of two polls differ in their times.
    let kind = kind_by(|| SystemTime::UNIX_EPOCH);
    let records = check_source(async || source_of(&kind, &server, &[])).await.unwrap();
    assert_eq!(records.len(), 5);
}

#[tokio::test]
async fn a_changed_page_is_read_after_the_settled_record_or_as_a_whole() {
    let second = Arc::new(Mutex::new(vec![3_u64, 4, 5]));
    let stored = second.clone();
    let server = Server::start(move |request| match parameter(request, "cursor") {
        None => page(&[1, 2], Some(2)),
        _ => page(&stored.lock().unwrap(), None),
    });
    let source = source(&server, &[]);
    let (numbers, positions) = read_all(&*source, None).await;
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    // After 3 is settled, a record before it is inserted.
    *second.lock().unwrap() = vec![9, 3, 4, 5];
    assert_eq!(read_all(&*source, Some(positions[2].clone())).await.0, [4, 5]);
    // The settled record itself is deleted: its page is read as a whole.
    *second.lock().unwrap() = vec![4, 5];
    assert_eq!(read_all(&*source, Some(positions[2].clone())).await.0, [4, 5]);
}

#[tokio::test]
async fn a_cursor_that_has_expired_begins_the_poll_again() {
    let asked = Arc::new(Mutex::new(0));
    let counted = asked.clone();
    let server = Server::start(move |request| match parameter(request, "cursor") {
        None => {
            *counted.lock().unwrap() += 1;
            page(&[1, 2], Some(100 + *counted.lock().unwrap()))
        }
        Some(cursor) if cursor == 100 + *counted.lock().unwrap() => page(&[3], None),
        Some(_) => Reply::status(410, "expired"),
    });
    let source = source(&server, &[]);
    let (_, positions) = read_all(&*source, None).await;
    *asked.lock().unwrap() += 1;
    assert_eq!(read_all(&*source, Some(positions[2].clone())).await.0, [1, 2, 3]);
}

#[tokio::test]
async fn the_value_for_the_next_poll_is_that_of_a_complete_poll() {
    let server = Server::start(|request| match (parameter(request, "since"), parameter(request, "cursor")) {
        (since, None) => page(&[7 + since.unwrap_or(0), 8 + since.unwrap_or(0)], Some(1)),
        (since, _) => page(&[3 + since.unwrap_or(0)], None),
    });
    let settings = [("cursor.field", "/n"), ("cursor.parameter", "since"), ("cursor.initial", "100")];
    let source = source(&server, &settings);
    let (numbers, positions) = read_all(&*source, None).await;
    assert_eq!(numbers, [107, 108, 103]);
    // Within the poll, its own value is used.
    assert_eq!(read_all(&*source, Some(positions[1].clone())).await.0, [103]);
    // After it, the largest.
    assert_eq!(read_all(&*source, Some(positions[3].clone())).await.0, [115, 116, 111]);
}

#[tokio::test]
async fn a_poll_without_end_stops() {
    let server = Server::start(|request| page(&[1], Some(parameter(request, "cursor").unwrap_or(0) + 1)));
    let source = source(&server, &[("paging.limit", "3")]);
    let mut opened = source.open(&BTreeMap::new(), &configured::host()).await.unwrap();
    let mut pages = 0;
    let fault = loop {
        match opened.reader.read(AMPLE).await {
            Ok(Read::Rows { .. }) => pages += 1,
            Ok(other) => panic!("{other:?}"),
            Err(fault) => break fault,
        }
    };
    assert_eq!((fault.code(), server.received().len(), pages), (codes::HTTP_PAGE, 3, 3));
}

/// Reads until the source has caught up or failed.
async fn read_once(source: &dyn Source) -> Result<Vec<Record>, Fault> {
    let mut opened = source.open(&BTreeMap::new(), &configured::host()).await.unwrap();
    let mut all = Vec::new();
    loop {
        match opened.reader.read(AMPLE).await? {
            Read::Rows { records, .. } => all.extend(records),
            Read::CaughtUp => return Ok(all),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_server_with_smaller_pages_is_read_to_the_end() {
    // Servers with a limit of their own. One has no page after the last.
    for after_the_last in [200, 404] {
        for (kind, parameter_name) in [("page", "page"), ("offset", "offset")] {
            let server = Server::start(move |request| {
                let at = parameter(request, parameter_name).unwrap();
                let first = if parameter_name == "page" { 3 * (at - 1) } else { at };
                let items: Vec<u64> = (first..(first + 3).min(8)).collect();
                match items.is_empty() && after_the_last == 404 {
                    true => Reply::status(404, "no such page"),
                    false => page(&items, None),
                }
            });
            let url = server.url();
            let settings = [("request.url", url.as_str()), ("records", "/items"), ("paging.kind", kind)];
            for size in [&[][..], &[("paging.size", "5"), ("paging.sizeParameter", "limit")]] {
                let source = configured::source(&super::kind(), &[&settings[..], size].concat()).unwrap();
                let (numbers, _) = read_all(&*source, None).await;
                assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7], "{kind} {size:?} {after_the_last}");
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_ignores_the_number_of_the_page_is_not_asked_without_end() {
    let server = Server::start(|_| Reply::ok(r#"[{"n":1},{"n":2}]"#));
    let url = server.url();
    let source = configured::source(&kind(), &[("request.url", &*url), ("paging.kind", "page")]).unwrap();
    assert_eq!(read_once(&*source).await.unwrap().len(), 2);
    assert_eq!(server.received().len(), 3);
}

/// Reads all records of a server whose pages are numbered, until the source has caught up.
async fn read_pages(server: &Server) -> Result<Vec<i64>, Fault> {
    let url = server.url();
    let settings = [("request.url", url.as_str()), ("records", "/items"), ("paging.kind", "page")];
    let more = [("schedule.interval", "1h"), ("backoffRetry.count", "0")];
    let source = configured::source(&kind(), &[&settings[..], &more].concat()).unwrap();
    let number = |record: Record| record.payload.after.fields().unwrap().get("n").and_then(Value::as_i64).unwrap();
    Ok(read_once(&*source).await?.into_iter().map(number).collect())
}

#[tokio::test]
async fn a_server_that_answers_the_last_page_again_ends_the_poll() {
    let server = Server::start(|request| {
        let at = parameter(request, "page").unwrap().min(3);
        page(&[2 * at, 2 * at + 1], None)
    });
    assert_eq!(read_pages(&server).await.unwrap(), [2, 3, 4, 5, 6, 7]);
    assert_eq!(server.received().len(), 5);
}

#[tokio::test]
async fn two_pages_with_the_same_records_do_not_end_a_poll() {
    let pages: [&[u64]; 5] = [&[1], &[1], &[2, 3], &[2, 3], &[]];
    for missing in [200, 404] {
        let server = Server::start(move |request| match pages[parameter(request, "page").unwrap() as usize - 1] {
            [] if missing == 404 => Reply::status(404, "no such page"),
            items => page(items, None),
        });
        assert_eq!(read_pages(&server).await.unwrap(), [1, 1, 2, 3, 2, 3], "{missing}");
    }
}

#[tokio::test]
async fn a_page_that_is_missing_once_does_not_end_a_poll() {
    // Which requests fail, such as those to one of two servers.
    for failing in [vec![1], vec![2], vec![3]] {
        let fails = failing.clone();
        let server = Server::start(move |request| match parameter(request, "page").unwrap() {
            _ if fails.contains(&request.number) => Reply::status(404, "no such page"),
            at if at <= 3 => page(&[at], None),
            _ => Reply::status(404, "no such page"),
        });
        assert_eq!(read_pages(&server).await.unwrap(), [1, 2, 3], "{failing:?}");
    }
}

#[tokio::test]
async fn a_server_that_finds_no_page_for_a_time_is_asked_again_by_the_next_run() {
    let server = Server::start(move |request| match parameter(request, "page").unwrap() {
        _ if (1..6).contains(&request.number) => Reply::status(404, "restarting"),
        at if at <= 3 => page(&[at], None),
        _ => page(&[], None),
    });
    let url = server.url();
    let settings = [("request.url", url.as_str()), ("records", "/items"), ("paging.kind", "page")];
    let more = [("schedule.interval", "1h"), ("backoffRetry.count", "0")];
    let source = configured::source(&kind(), &[&settings[..], &more].concat()).unwrap();
    let (mut numbers, mut stored, mut faults) = (Vec::new(), None, 0);
    'runs: loop {
        let mark = stored.clone().map(|position| (Partition::ONLY, Mark { generation: 0, seq: 1, position }));
        let mut opened = source.open(&mark.into_iter().collect(), &configured::host()).await.unwrap();
        loop {
            match opened.reader.read(AMPLE).await {
                Ok(Read::Rows { records, .. }) => {
                    for record in records {
                        numbers.push(record.payload.after.fields().unwrap().get("n").and_then(Value::as_i64).unwrap());
                        stored = Some(record.position().clone());
                    }
                }
                Ok(Read::Progress(_, position)) => stored = Some(position),
                Ok(Read::CaughtUp) => break 'runs,
                Ok(other) => panic!("{other:?}"),
                Err(fault) => {
                    assert_eq!((fault.code(), fault.class()), (codes::HTTP_STATUS, FaultClass::Transient), "{fault}");
                    faults += 1;
                    break;
                }
            }
        }
    }
    numbers.dedup();
    assert!(faults > 0 && numbers.ends_with(&[1, 2, 3]), "{faults} {numbers:?}");
}

#[tokio::test]
async fn the_cursor_has_all_digits_of_a_number() {
    let large = "12345678901234567890123";
    let server = Server::start(move |request| match request.path.contains("since") {
        false => Reply::ok(format!(r#"{{"items":[{{"n":12345678901234567890122}},{{"n":{large}}},{{"n":7}}]}}"#)),
        true => Reply::ok(r#"{"items":[]}"#),
    });
    let source = source(&server, &[("cursor.field", "/n"), ("cursor.parameter", "since")]);
    let mut opened = source.open(&BTreeMap::new(), &configured::host()).await.unwrap();
    let position = loop {
        if let Read::Progress(_, position) = opened.reader.read(AMPLE).await.unwrap() {
            break position;
        }
    };
    read_all(&*source, Some(position)).await;
    assert!(server.received()[1].path.ends_with(&format!("since={large}")), "{:?}", server.received()[1].path);
}

#[tokio::test]
async fn harmless_answers_have_no_records() {
    for reply in
        [Reply::status(204, ""), Reply::ok(""), Reply::ok("\u{feff}{\"items\":[]}"), Reply::ok("{\"items\":null}")]
    {
        let answer = reply.clone();
        let server = Server::start(move |_| answer.clone());
        assert!(read_once(&*source(&server, &[])).await.unwrap().is_empty(), "{reply:?}");
    }
}

#[tokio::test]
async fn an_array_that_is_missing_is_a_wrong_setting_unless_it_was_there_before() {
    let server = Server::start(|request| match request.number {
        0 => page(&[1], None),
        _ => Reply::ok(r#"{"total":0}"#),
    });
    let settings = [("schedule.interval", "1ms")];
    let polled = source(&server, &settings);
    let mut opened = polled.open(&BTreeMap::new(), &configured::host()).await.unwrap();
    while server.received().len() < 3 {
        opened.reader.read(AMPLE).await.unwrap();
    }
    let fault = read_once(&*source(&server, &settings)).await.unwrap_err();
    assert_eq!((fault.code(), fault.class()), (codes::HTTP_PAGE, FaultClass::Fatal));
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_requested_again() {
    for broken in ["<html>please wait</html>", "{\"items\":[{\"n\":1}"] {
        let server = Server::start(move |request| match request.number {
            0 => Reply::ok(broken),
            _ => page(&[1], None),
        });
        let settings = [("backoffRetry.count", "1"), ("backoffRetry.min", "1ms")];
        assert_eq!(read_once(&*source(&server, &settings)).await.unwrap().len(), 1);
        // Without a further attempt, the pipeline recovers.
        let server = Server::start(move |_| Reply::ok(broken));
        let fault = read_once(&*source(&server, &[])).await.unwrap_err();
        assert_eq!(fault.class(), FaultClass::Transient, "{fault}");
    }
}

#[test]
fn settings_without_an_effect_are_refused() {
    let refused = |settings: &[(&str, &str)]| {
        let all = [&[("request.url", "http://localhost/")], settings].concat();
        configured::source(&kind(), &all).err().unwrap_or_default().join("; ")
    };
    let next = "paging.next is used only if paging.kind is url or cursor";
    assert_eq!(refused(&[("paging.next", "/next")]), next);
    assert_eq!(refused(&[("paging.next", "/next"), ("paging.kind", "offset")]), next);
    assert!(
        refused(&[("paging.parameter", "p"), ("paging.kind", "link")]).contains("paging.parameter is used only if")
    );
    assert!(
        refused(&[("paging.firstPage", "0"), ("paging.kind", "offset")]).contains("paging.firstPage is used only if")
    );
    let both = [("cursor.field", "/n"), ("cursor.parameter", "page"), ("paging.kind", "page")];
    assert!(refused(&both).contains("page is the parameter of paging as well"));
    assert!(refused(&[("schedule.cron", "0 0 31 2 *")]).contains("no time matches"));
    assert_eq!(refused(&[("paging.kind", "page"), ("schedule.cron", "0 0 29 2 *")]), "");
}
