use std::sync::Mutex;

use anabranch_plugin::testing::{check_destination, configured};
use anabranch_record::{Data, Position};

use super::*;
use crate::testing::{Reply, Server};

fn rows(count: usize) -> Vec<Record> {
    let row = |number: usize| {
        let position = Position::copy_from(number.to_string().as_bytes());
        Record::create(position, Data::Absent, Data::text(format!("{{\"n\":{number}}}")))
    };
    (0..count).map(row).collect()
}

fn destination(server: &Server, settings: &[(&str, &str)]) -> Arc<dyn Destination> {
    let url = server.url();
    configured::destination(&kind(), &[&[("request.url", url.as_str())], settings].concat()).unwrap()
}

#[tokio::test]
async fn the_promises_of_destinations_are_kept() {
    for settings in [&[][..], &[("batch", "ndjson")], &[("batch", "array")]] {
        let stored = Arc::new(Mutex::new(Vec::new()));
        let noted = stored.clone();
        let server = Server::start(move |request| {
            let text = request.text();
            let items = text.trim_start_matches('[').trim_end_matches(']').replace("},", "}\n");
            noted.lock().unwrap().extend(items.lines().map(str::to_owned));
            Reply::ok("")
        });
        let fresh = async || {
            stored.lock().unwrap().clear();
            destination(&server, settings)
        };
        let all = check_destination(fresh, async || stored.lock().unwrap().clone(), &rows(5)).await.unwrap();
        assert_eq!(all.len(), 5, "{settings:?}");
    }
}

#[tokio::test]
async fn a_repeated_write_sends_only_what_the_server_does_not_have() {
    let server = Server::start(|request| if request.number == 2 { Reply::status(500, "") } else { Reply::ok("") });
    let destination = destination(&server, &[("backoffRetry.count", "0")]);
    let mut writer = destination.open(&configured::host()).await.unwrap();
    let rows = rows(4);
    let fault = writer.write(anabranch_plugin::destination::Write::new(&rows)).await.unwrap_err();
    assert_eq!(fault.class(), anabranch_record::fault::FaultClass::Transient);
    writer.write(anabranch_plugin::destination::Write::new(&rows)).await.unwrap();
    let bodies: Vec<String> = server.received().iter().map(crate::testing::Received::text).collect();
    let numbers = [0, 1, 2, 2, 3].map(|number| format!("{{\"n\":{number}}}"));
    assert_eq!(bodies, numbers);
    // Other rows do not have the results of these.
    writer.write(anabranch_plugin::destination::Write::new(&rows[..1])).await.unwrap();
    assert_eq!(server.received().len(), 6);
}

#[tokio::test]
async fn batches_have_a_size() {
    let server = Server::start(|_| Reply::ok(""));
    let destination = destination(&server, &[("batch", "array"), ("maxBodyBytes", "20")]);
    let mut writer = destination.open(&configured::host()).await.unwrap();
    writer.write(anabranch_plugin::destination::Write::new(&rows(5))).await.unwrap();
    let bodies: Vec<String> = server.received().iter().map(crate::testing::Received::text).collect();
    assert_eq!(bodies, [r#"[{"n":0},{"n":1}]"#, r#"[{"n":2},{"n":3}]"#, r#"[{"n":4}]"#]);
}

#[test]
fn a_record_that_is_not_json_fails_alone_in_a_batch() {
    let server = Server::start(|_| Reply::ok(""));
    let row = |text: &str| Record::create(Position::default(), Data::Absent, Data::text(text));
    let written = |settings: &[(&str, &str)], text: &str| destination(&server, settings).written(&row(text)).unwrap();
    assert_eq!(written(&[], "no JSON").unwrap(), b"no JSON");
    assert_eq!(written(&[("batch", "array")], "no JSON").unwrap_err().code(), codes::HTTP_NOT_JSON);
    assert_eq!(written(&[("batch", "ndjson")], "{\n\"a\":\r\n1}").unwrap(), b"{ \"a\":  1}");
}

#[tokio::test]
async fn a_record_without_a_field_of_the_url_or_a_header_is_not_sent() {
    let server = Server::start(|_| Reply::ok(""));
    let url = format!("{}/{{{{ .Metadata.id }}}}", server.url());
    for settings in [&[("request.url", url.as_str())][..], &[("headers.X-Id", "{{ .Metadata.id }}")]] {
        let base = server.url();
        let usual = [("request.url", base.as_str())];
        let settings = if settings[0].0 == "request.url" { settings.to_vec() } else { [&usual[..], settings].concat() };
        let destination = configured::destination(&kind(), &settings).unwrap();
        let mut writer = destination.open(&configured::host()).await.unwrap();
        let rows = rows(1);
        let verdicts = writer.write(anabranch_plugin::destination::Write::new(&rows)).await.unwrap();
        let anabranch_plugin::destination::Verdicts::Each(verdicts) = verdicts else { panic!("{settings:?}") };
        assert_eq!(verdicts[0].as_ref().unwrap_err().code(), codes::TEMPLATE_FAILED, "{settings:?}");
    }
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn an_answer_without_the_results_of_the_settings_stops_the_pipeline() {
    let server = Server::start(|_| Reply::ok(r#"{"results":[{"status":201}]}"#));
    for pointer in ["/items", "/results"] {
        let destination = destination(&server, &[("batch", "array"), ("results.pointer", pointer)]);
        let mut writer = destination.open(&configured::host()).await.unwrap();
        let rows = rows(2);
        let fault = writer.write(anabranch_plugin::destination::Write::new(&rows)).await.unwrap_err();
        let class = anabranch_record::fault::FaultClass::Fatal;
        assert_eq!((fault.code(), fault.class()), (codes::HTTP_RESULTS, class), "{pointer}");
    }
}

#[tokio::test]
async fn a_token_is_requested_again_after_a_passing_error() {
    let login = Server::start(|request| match request.number {
        0 => Reply::status(503, "busy"),
        1 => Reply::Close,
        _ => Reply::ok(r#"{"access_token":"t"}"#),
    });
    let server = Server::start(|_| Reply::ok(""));
    let url = login.url();
    let settings = [
        ("auth.oauth2.tokenURL", url.as_str()),
        ("auth.oauth2.clientID", "a:b"),
        ("auth.oauth2.clientSecret", "c d"),
        ("auth.oauth2.method", "basic"),
        ("backoffRetry.count", "2"),
        ("backoffRetry.min", "1ms"),
    ];
    let destination = destination(&server, &settings);
    let mut writer = destination.open(&configured::host()).await.unwrap();
    writer.write(anabranch_plugin::destination::Write::new(&rows(1))).await.unwrap();
    assert_eq!(login.received().len(), 3);
    let request = login.received().pop().unwrap();
    assert_eq!(request.text(), "grant_type=client_credentials");
    // a%3Ab:c+d
    assert_eq!(request.header("authorization"), Some("Basic YSUzQWI6Yytk"));
    assert_eq!(server.received()[0].header("authorization"), Some("Bearer t"));
}

#[test]
fn findings_about_credentials_name_their_kind() {
    let messages = |settings: &[(&str, &str)]| {
        let all = [&[("request.url", "http://localhost/")], settings].concat();
        configured::destination(&kind(), &all).err().unwrap_or_default()
    };
    let with = "is required with the other settings auth.oauth2.*";
    assert_eq!(
        messages(&[("auth.oauth2.tokenURL", "http://localhost/token")]),
        [format!("auth.oauth2.clientID {with}"), format!("auth.oauth2.clientSecret {with}")]
    );
    assert_eq!(messages(&[("auth.username", "a")]), ["auth.password is required with auth.username"]);
    assert_eq!(messages(&[("auth.bearer", "")]), ["auth.bearer: the value is blank"]);
}
