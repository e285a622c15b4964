use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::flow::{RecordShape, Shape};
use anabranch_plugin::operator::Configured;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing::json::text;
use anabranch_plugin::testing::{self, configured::Opened};
use anabranch_record::Position;
use anabranch_record::fault::FaultClass;
use anabranch_record::value::Object;

use super::*;
use crate::testing::{Received, Reply, Server};

fn configured(settings: &[(&str, &str)]) -> Result<Configured, Vec<String>> {
    let kind = kind();
    Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| kind.configure(&arguments))
        .map_err(|findings| findings.into_iter().map(|finding| finding.message).collect())
}

fn open(settings: &[(&str, &str)]) -> Result<Opened, Fault> {
    Opened::new(&configured(settings).unwrap(), testing::host())
}

fn opened(settings: &[(&str, &str)]) -> Opened {
    open(settings).unwrap()
}

/// A pipe is read until somebody ends it, which is never.
#[test]
fn trusted_roots_are_read_from_files_only() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let large = folder.path().join("large");
    std::fs::File::create(&large).unwrap().set_len((16 << 20) + 1).unwrap();
    let reasons =
        [(pipe, "not a regular file"), (large, "larger than 16 MiB"), (folder.path().to_owned(), "directory")];
    for (path, reason) in reasons {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
            let settings = [("request.url", "http://x"), ("tls.ca", path.to_str().unwrap())];
            let opening = runtime.block_on(async { open(&settings).map(drop) });
            tell.send(opening.map_err(|fault| format!("{} {fault}", fault.code()))).unwrap();
        });
        let refused = told.recv_timeout(Duration::from_secs(60)).expect("it is not waited for").unwrap_err();
        assert!(refused.contains("tls_invalid") && refused.contains(reason), "{refused}");
    }
}

fn structured(n: i64) -> Record {
    let fields: Object = [("n", Value::from(n)), ("text", Value::from("a \"b\""))].into_iter().collect();
    let mut record =
        Record::create(Position::copy_from(n.to_string().as_bytes()), Data::text(n.to_string()), fields.into());
    record.metadata.insert("n", n.to_string());
    record
}

fn raw(text: &str) -> Record {
    Record::create(Position::copy_from(b"1"), Data::Absent, Data::text(text.to_owned()))
}

async fn one(settings: &[(&str, &str)], record: Record) -> Result<Record, String> {
    match opened(settings).call(vec![record]).await.remove(0) {
        (record, Decision::Keep) => Ok(record),
        (_, Decision::Fail(fault)) => Err(format!("{}: {}", fault.code(), fault.message())),
        other => panic!("{other:?}"),
    }
}

fn json(record: &Record) -> serde_json::Value {
    serde_json::from_str(&text(record)).unwrap()
}

fn echo(request: &Received) -> Reply {
    Reply::ok(request.body.clone())
}

#[tokio::test]
async fn url_headers_and_body_are_templates() {
    let server = Server::start(echo);
    let url = format!("{}/items/{{{{ .Payload.After.n }}}}?q={{{{ urlquery .Payload.After.text }}}}", server.url());
    let record = one(
        &[
            ("request.url", &url),
            ("request.method", "put"),
            ("request.body", "{{ toJson .Payload.After }}"),
            ("headers.X-Number", "n={{ .Metadata.n }}"),
            ("request.headers.Authorization", "Bearer {{ .Metadata.n }}"),
            ("headers.X-Same", " fixed\n"),
            ("response.body", ".Payload.After.answer.body"),
            ("response.status", ".Metadata.status"),
        ],
        structured(7),
    )
    .await
    .unwrap();
    let request = server.received().remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("PUT", "/items/7?q=a+%22b%22"));
    assert_eq!(request.text(), r#"{"n":7,"text":"a \"b\""}"#);
    let header = |name| request.header(name);
    assert_eq!(header("x-number"), Some("n=7"));
    assert_eq!(header("authorization"), Some("Bearer 7"));
    assert_eq!(header("x-same"), Some("fixed"));
    assert_eq!(header("content-type"), Some("application/json"));
    let record = json(&record);
    assert_eq!(record["payload"]["after"]["answer"]["body"], r#"{"n":7,"text":"a \"b\""}"#);
    assert_eq!(record["metadata"]["status"], "200");
}

#[tokio::test]
async fn the_defaults_are_a_get_into_the_payload() {
    let server = Server::start(|_| Reply::ok("answer"));
    let record = one(&[("request.url", &server.url())], raw("x")).await.unwrap();
    assert_eq!(record.payload.after, Data::text("answer"));
    let request = server.received().remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str(), request.body.len()), ("GET", "/", 0));
}

#[tokio::test]
async fn bytes_stay_bytes() {
    let bytes = vec![0xff, 0xfe, 0, b'a'];
    let sent = bytes.clone();
    let server = Server::start(move |_| Reply::ok(sent.clone()));
    let url = server.url();
    let record = one(&[("request.url", &url)], structured(1)).await.unwrap();
    assert_eq!(record.payload.after, Data::Raw(bytes.clone().into()));
    let record = one(&[("request.url", &url), ("response.body", ".Payload.After.x")], structured(1)).await.unwrap();
    assert_eq!(record.payload.after.fields().unwrap().get("x"), Some(&Value::Bytes(bytes.into())));
    // Metadata are texts.
    let failed = one(&[("request.url", &url), ("response.body", ".Metadata.x")], structured(1)).await.unwrap_err();
    assert!(failed.starts_with("reference_type: "), "{failed}");
}

#[tokio::test]
async fn what_cannot_be_stored_is_not_asked_for() {
    let server = Server::start(echo);
    let settings = [("request.url", &*server.url()), ("response.body", ".Payload.After.x")];
    let failed = one(&settings, raw("x")).await.unwrap_err();
    assert!(failed.starts_with("reference_unresolved: "), "{failed}");
    let failed = one(&[("request.url", &server.url()), ("request.body", "{{ .Payload.After.x.y }}")], raw("x")).await;
    assert!(failed.unwrap_err().starts_with("template_failed: request.body: "));
    let failed = one(&[("request.url", &server.url()), ("headers.X", "a{{ \"\\n\" }}b")], raw("x")).await;
    assert_eq!(failed.unwrap_err(), "http_invalid: headers.X: the rendered value contains control characters");
    let failed = one(&[("request.url", "{{ \"ftp://x\" }}")], raw("x")).await;
    assert_eq!(failed.unwrap_err(), "http_invalid: request.url: the URL begins with neither http:// nor https://");
    assert_eq!(server.received(), []);
}

#[tokio::test]
async fn an_answer_outside_2xx_fails_the_record_unless_it_is_accepted() {
    let server = Server::start(|_| Reply::status(404, "{\"error\":\"who?\"}"));
    let failed = one(&[("request.url", &server.url()), ("request.method", "DELETE")], raw("x")).await.unwrap_err();
    assert_eq!(
        failed,
        format!("http_status: DELETE {}/: answered 404 Not Found: {{\"error\":\"who?\"}}", server.url())
    );
    let settings = [("request.url", &*server.url()), ("response.accept", "404,5xx"), ("response.status", ".Key")];
    let record = one(&settings, raw("x")).await.unwrap();
    assert_eq!((record.key, record.payload.after), (Data::text("404"), Data::text("{\"error\":\"who?\"}")));
}

/// The fault of a record that a server refuses with this status.
async fn refused(status: u16, settings: &[(&str, &str)]) -> Fault {
    let server = Server::start(move |_| Reply::status(status, "no"));
    let url = server.url();
    let settings: Vec<(&str, String)> =
        settings.iter().map(|(name, value)| (*name, value.replace("URL", &url))).collect();
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    match opened(&settings).call(vec![structured(1)]).await.pop() {
        Some((_, Decision::Fail(fault))) => fault,
        other => panic!("{other:?}"),
    }
}

/// Credentials are replaced on both sides one after the other: no record is to blame for the time between.
#[tokio::test]
async fn a_refused_login_is_not_the_fault_of_the_record() {
    let (url, fixed) = (("request.url", "URL/x"), ("headers.Authorization", "Bearer old"));
    let path = ("request.url", "URL/x/{{ .Metadata.n }}?k={{ .Metadata.n }}");
    let traced = ("headers.X-Request-Id", "{{ .Metadata.n }}");
    for settings in [&[url][..], &[url, fixed], &[path, fixed], &[url, fixed, traced]] {
        for status in [401, 407] {
            let fault = refused(status, settings).await;
            let found = (fault.code().name(), fault.class(), fault.is_of_login());
            assert_eq!(found, ("credentials_refused", FaultClass::Fatal, true), "{status} {settings:?}");
        }
        let fault = refused(403, settings).await;
        assert_eq!(
            (fault.code().name(), fault.class(), fault.is_of_login()),
            ("http_status", FaultClass::Record, false)
        );
    }
    let server = ("request.url", "{{ printf \"URL/x\" }}");
    let own = ("headers.Authorization", "Bearer {{ .Metadata.n }}");
    let other = ("headers.X-Auth-Token", "{{ .Metadata.n }}");
    for settings in [[server, fixed], [url, own], [url, other]] {
        let fault = refused(401, &settings).await;
        assert_eq!((fault.code().name(), fault.class()), ("http_status", FaultClass::Record), "{settings:?}");
    }
    let server = Server::start(|_| Reply::status(401, "who?"));
    let settings = [("request.url", &*server.url()), ("response.accept", "401"), ("response.status", ".Key")];
    assert_eq!(one(&settings, raw("x")).await.unwrap().key, Data::text("401"));
}

#[tokio::test]
async fn a_redirect_hands_nothing_on_and_fails_the_record() {
    let elsewhere = Server::start(echo);
    let to = format!("{}/moved", elsewhere.url());
    let location = to.clone();
    let server = Server::start(move |_| Reply::status(302, "").with("Location", &location));
    let url = server.url();
    let settings = [
        ("request.url", &*url),
        ("request.method", "POST"),
        ("request.body", "{{ .Metadata.n }}"),
        ("headers.x-api-key", "hunter22"),
        ("backoffRetry.count", "5"),
    ];
    let failed = one(&settings, structured(1)).await.unwrap_err();
    let why = format!("points to {to}; redirects are not followed: set request.url to it");
    assert_eq!(failed, format!("http_status: POST {url}/: answered 302 Found and {why}"));
    assert_eq!(server.received().len(), 1);
    let accepting: Vec<_> =
        settings.into_iter().chain([("response.accept", "302"), ("response.status", ".Key")]).collect();
    assert_eq!(one(&accepting, structured(1)).await.unwrap().key, Data::text("302"));
    assert_eq!(elsewhere.received(), []);
}

#[tokio::test]
async fn the_url_that_is_documented_can_be_made_of_any_key() {
    let server = Server::start(echo);
    let described = kind().specification().parameter("request.url").unwrap().description.clone();
    let example = described.split('`').find(|part| part.starts_with("http://")).unwrap();
    let url = example.replace("http://localhost:8000", &server.url());
    let mut record = raw("x");
    for key in [Data::Raw(Bytes::from_static(b"k 1&/")), Data::text("k 1&/")] {
        record.key = key;
        one(&[("request.url", &url)], record.clone()).await.unwrap();
    }
    let paths: Vec<String> = server.received().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/items?key=k+1%26%2F"; 2]);
}

#[tokio::test]
async fn order_is_kept_however_long_the_answers_take() {
    let server = Server::start(|request| {
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..6)));
        // Some requests fail and are repeated.
        match fastrand::u8(0..10) {
            0 => Reply::status(503, ""),
            1 => Reply::Close,
            _ => Reply::ok(request.body.clone()),
        }
    });
    let operator = opened(&[
        ("request.url", &server.url()),
        ("request.method", "POST"),
        ("request.body", "{{ .Metadata.n }}"),
        ("request.concurrency", "8"),
        ("backoffRetry.count", "50"),
        ("backoffRetry.min", "1ms"),
        ("backoffRetry.max", "1ms"),
    ]);
    let rows = |from: i64| (from..from + 100).map(structured).collect::<Vec<_>>();
    let (first, second) = futures::join!(operator.call(rows(0)), operator.call(rows(100)));
    for (n, (record, decision)) in first.into_iter().chain(second).enumerate() {
        assert!(matches!(decision, Decision::Keep), "{n}: {decision:?}");
        assert_eq!(record.payload.after, Data::text(n.to_string()));
        assert_eq!(record.position(), structured(n as i64).position());
    }
    assert!(server.most_pending() <= 8, "{}", server.most_pending());
}

#[tokio::test]
async fn one_at_a_time_means_in_order() {
    let server = Server::start(echo);
    let settings = [
        ("request.url", &*server.url()),
        ("request.method", "POST"),
        ("request.body", "{{ .Metadata.n }}"),
        ("request.concurrency", "1"),
    ];
    assert_eq!(configured(&settings).unwrap().signature().max_workers, Some(1));
    opened(&settings).call((0..50).map(structured).collect()).await;
    let bodies: Vec<String> = server.received().iter().map(Received::text).collect();
    assert_eq!(bodies, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn wrong_settings_are_found_before_anything_starts() {
    let url = ("request.url", "http://localhost");
    let findings = |settings: &[(&str, &str)]| configured(settings).err().unwrap_or_default();
    assert_eq!(findings(&[]), ["\"request.url\" is required by webhook.http"]);
    assert_eq!(
        findings(&[
            ("request.url", "localhost:80/x"),
            ("request.method", "GE T"),
            ("response.accept", "404,often"),
            ("response.body", ".Payload.After.x"),
            ("response.status", ".Payload.After.x.y"),
            ("headers.X Y", "1"),
            ("headers.Content-Length", "3"),
            ("headers.accept", "text/plain"),
            ("request.headers.Accept", "text/html"),
            ("headers.X", "a\u{7}b"),
            ("request.contentType", "text/plain"),
            ("headers.content-type", "text/plain"),
        ]),
        [
            "request.method: this is not an HTTP method",
            "request.url: the URL begins with neither http:// nor https://",
            "headers.Content-Length: this header is derived from the body and cannot be set",
            "headers.X: a header cannot contain control characters or line breaks",
            "headers.X Y: \"X Y\" is not a valid header name",
            "request.headers.Accept: headers.accept already sets this header",
            "request.contentType and headers.content-type exclude each other",
            "response.status: .Payload.After.x.y and the response.body .Payload.After.x would overwrite each other",
            "response.accept: \"often\" is not a status (404), class of statuses (4xx) or range (400-404)",
        ]
    );
    assert_eq!(findings(&[("request.url", "http://")]), ["request.url: this is not a URL: empty host"]);
    assert_eq!(findings(&[url, ("response.body", ".Metadata")]), ["response.body: .Metadata cannot be set to a text"]);
    assert_eq!(
        findings(&[url, ("response.body", ".Position")]),
        ["response.body: \".Position\" must refer to .Metadata, .Key, .Payload"]
    );
    assert_eq!(findings(&[url, ("request.concurrency", "0")]).len(), 1);
    assert_eq!(findings(&[url, ("backoffRetry.factor", "0")]).len(), 1);
    assert_eq!(findings(&[("request.url", "http://{{ .x")]).len(), 1);
}

#[test]
fn credentials_in_headers_are_not_shown() {
    let kind = kind();
    for name in
        ["headers.Authorization", "request.headers.authorization", "headers.x-api-key", "request.headers.Cookie"]
    {
        let settings = Settings::from_pairs([("request.url", "http://localhost"), (name, "Bearer hunter22")]);
        let arguments = Arguments::parse(kind.specification(), &settings).unwrap();
        assert!(!format!("{:?}", arguments.iter_shown().collect::<Vec<_>>()).contains("hunter22"), "{name}");
        assert_eq!(arguments.secrets().collect::<Vec<_>>(), ["Bearer hunter22"], "{name}");
    }
}

#[test]
fn the_compiler_knows_what_comes_out() {
    let flow = |settings: &[(&str, &str)], after: Shape| {
        let mut flow = Flow::new(RecordShape::create(Shape::ABSENT, after));
        configured(settings).unwrap().flow(&mut flow);
        (flow.fails(), flow.record)
    };
    let url = ("request.url", "http://localhost");
    let (fails, record) = flow(&[url, ("request.body", "{{ .Payload.After }}")], Shape::RAW);
    assert!(!fails && record.after == Shape::RAW);
    let (fails, _) = flow(&[url, ("response.body", ".Payload.After.x")], Shape::RAW);
    assert!(fails, "a field of raw data");
    let signature = configured(&[url, ("headers.X", "{{ .Metadata.x }}"), ("response.status", ".Metadata.s")]).unwrap();
    let signature = signature.signature();
    let path = |parts: &[&'static str]| parts.iter().map(|part| Str::from_static(part)).collect::<Vec<_>>();
    assert_eq!(signature.reads, Access::These(vec![path(&["Metadata", "x"])]));
    assert_eq!(signature.writes, Access::These(vec![path(&["Payload", "After"]), path(&["Metadata", "s"])]));
    assert_eq!(signature.max_workers, None);
}

#[test]
fn requests_that_hardly_any_server_takes_are_told() {
    let told = |settings: &[(&str, &str)]| {
        let mut flow = Flow::new(RecordShape::create(Shape::ABSENT, Shape::unknown()));
        let url = ("request.url", "http://localhost/{{ .Payload.After.id }}");
        configured(&[&[url][..], settings].concat()).unwrap().flow(&mut flow);
        flow.messages().map(str::to_owned).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(told(&[("request.timeout", "1ns")]), ["no server answers in 1ns: every request fails"]);
    assert_eq!(told(&[("request.timeout", "1ms")]), none);
    assert_eq!(told(&[("request.timeout", "0")]), none);
    assert_eq!(told(&[("request.method", "FETCH")]), ["FETCH is not a method that servers know"]);
    assert_eq!(told(&[("request.method", "propfind")]), none);
    let body = |text| told(&[("request.method", "POST"), ("request.body", text)]);
    let never = ["the body is never JSON, and its Content-Type is application/json"];
    for text in
        ["{'id': {{ .Payload.After.id }}}", "{\"id\": 1,}", "id={{ .Payload.After.id }}", "{\"id\": {{ uuidv4 }}}"]
    {
        assert_eq!(body(text), never, "{text}");
    }
    for text in ["{\"id\": {{ .Payload.After.id }}}", "{{ toJson .Payload.After }}", "{{ .Payload.After.text }}", ""] {
        assert_eq!(body(text), none, "{text}");
    }
    let form = [
        ("request.method", "POST"),
        ("request.body", "id={{ .Payload.After.id }}"),
        ("headers.Content-Type", "application/x-www-form-urlencoded"),
    ];
    assert_eq!(told(&form), none);
}
