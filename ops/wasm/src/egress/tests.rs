use std::io::Write as _;

use anabranch_ops_http::testing::{Reply, Server};
use anabranch_ops_opencdc::http::{Header, Request, Response};
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::parameters::declared;
use anabranch_plugin::specification::Specification;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn asked(settings: &[(&str, &str)]) -> Settings {
    let specification = Specification::builtin("x", "").with_all(declared::<Settings>());
    let written = anabranch_plugin::settings::Settings::from_pairs(settings.iter().copied());
    Arguments::parse(&specification, &written).unwrap().read().unwrap()
}

fn open() -> Ceiling {
    Ceiling { enabled: true, ..Ceiling::default() }
}

#[test]
fn nothing_is_granted_by_default() {
    assert_eq!(granted(&asked(&[]), &open()).unwrap(), NetworkAccess::default());
    let refused = granted(&asked(&[(ALLOW, "example.com")]), &Ceiling::default()).unwrap();
    assert!(refused.egress.is_none());
    assert_eq!(refused.refused, ["sdk.egress.allow has no effect: processors.egress.enabled is false"]);
}

#[test]
fn the_ceiling_lets_through_what_both_name() {
    let arguments =
        asked(&[(ALLOW, "a.com, b.com:8443 https://c.com"), (SECRETS, "one,two"), (TIMEOUT, "10s"), (MOST, "1000")]);
    let all = granted(&arguments, &open()).unwrap().egress.unwrap();
    assert_eq!((all.endpoints.len(), all.secrets.len(), all.timeout.as_secs(), all.response_bytes), (3, 2, 10, 1000));

    let mut ceiling = Ceiling {
        endpoints: Some(vec![Endpoint::parse("b.com:8443").unwrap(), Endpoint::parse("d.com").unwrap()]),
        timeout: Some(Duration::from_secs(5)),
        response_bytes: Some(10),
        ..open()
    };
    let some = granted(&arguments, &ceiling).unwrap();
    assert_eq!(some.refused.len(), 4, "two hosts, and no secret where only hosts are named: {:?}", some.refused);
    let some = some.egress.unwrap();
    assert_eq!((some.endpoints.len(), some.secrets.len(), some.timeout.as_secs(), some.response_bytes), (1, 0, 5, 10));
    ceiling.secrets = Some(vec!["two".to_owned()]);
    assert!(granted(&arguments, &ceiling).unwrap().egress.unwrap().secrets.contains("two"));
}

#[test]
fn settings_that_are_none_are_found_before_anything_starts() {
    for (name, value) in [(ALLOW, "*.example.com"), (ALLOW, "http://example.com"), (TIMEOUT, "0s"), (MOST, "0")] {
        assert!(granted(&asked(&[(name, value)]), &open()).is_err(), "{name}: {value}");
    }
}

/// Returns the response to a request to a server with an allowed endpoint.
fn call(server: &Server, request: Request) -> Result<Response, RequestFailure> {
    let endpoint = format!("http://{}", server.address());
    let egress =
        granted(&asked(&[(ALLOW, &endpoint), (TIMEOUT, "5s"), (MOST, "1000")]), &open()).unwrap().egress.unwrap();
    send(egress, request)
}

fn send(egress: Egress, request: Request) -> Result<Response, RequestFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let network = Network::new(egress, Default::default()).unwrap();
    runtime.block_on(network.call("p", request, Duration::from_secs(60)))
}

fn get(server: &Server, path: &str) -> Request {
    Request { url: format!("http://{}{path}", server.address()), ..Request::default() }
}

fn header(key: &str, value: &str) -> Header {
    Header { key: key.to_owned(), values: vec![value.to_owned()] }
}

#[test]
fn an_allowed_request_is_sent_and_answered() {
    let server = Server::start(|request| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&request.body).unwrap();
        Reply::status(418, gzip.finish().unwrap()).with("content-encoding", "gzip").with("x-b-c", "1").with("A", "2")
    });
    let request = Request {
        method: "post".to_owned(),
        headers: vec![header("X-Given", "yes")],
        body: b"hello"[..].into(),
        ..get(&server, "/path?q=1")
    };
    let response = call(&server, request).unwrap();
    assert_eq!((response.status_code, &response.body[..]), (418, &b"hello"[..]));
    let names: Vec<&str> = response.headers.iter().map(|header| header.key.as_str()).collect();
    assert_eq!(names, ["A", "X-B-C"]);
    let seen = &server.received()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str(), seen.header("x-given")), ("POST", "/path?q=1", Some("yes")));
}

#[test]
fn what_is_not_allowed_never_leaves() {
    let server = Server::start(|_| Reply::ok("no"));
    let other = Server::start(|_| Reply::ok("no"));
    let forbidden = |result: Result<Response, RequestFailure>| matches!(result, Err(RequestFailure::Forbidden(_)));
    let invalid = |result: Result<Response, RequestFailure>| matches!(result, Err(RequestFailure::Invalid(_)));
    assert!(forbidden(call(&server, get(&other, "/"))));
    let secret = Request { auth_secret_ref: "mine".to_owned(), ..get(&server, "/") };
    assert!(forbidden(call(&server, secret)));
    for name in ["Host", "authorization", "Transfer-Encoding", ":path", "a b", "X\n"] {
        let request = Request { headers: vec![header(name, "x")], ..get(&server, "/") };
        assert!(invalid(call(&server, request)), "{name}");
    }
    let request = Request { headers: vec![header("x", "a\r\nHost: b")], ..get(&server, "/") };
    assert!(invalid(call(&server, request)));
    for url in ["", "ftp://example.com/", "/path", "http://u:p@example.com/"] {
        assert!(invalid(call(&server, Request { url: url.to_owned(), ..Request::default() })), "{url}");
    }
    for method in ["CONNECT", "a b"] {
        assert!(invalid(call(&server, Request { method: method.to_owned(), ..get(&server, "/") })), "{method}");
    }
    assert!(server.received().is_empty() && other.received().is_empty());
}

#[test]
fn a_name_that_leads_inside_is_refused_unless_its_address_is_allowed() {
    let server = Server::start(|_| Reply::ok("inside"));
    let port = server.address().port();
    // As a name only https is allowed: what is shown is that nobody connects.
    let egress = |allow: String| granted(&asked(&[(ALLOW, &allow)]), &open()).unwrap().egress.unwrap();
    let request = || Request { url: format!("https://localhost:{port}/"), ..Request::default() };
    let refused = send(egress(format!("localhost:{port}")), request());
    assert!(matches!(refused, Err(RequestFailure::Forbidden(_))), "{refused:?}");
    let allowed = format!("localhost:{port}, 127.0.0.1:{port}, [::1]:{port}");
    assert_eq!(server.connections(), 0);
    // The server speaks no TLS, so that it comes to nothing.
    let connected = send(Egress { timeout: Duration::from_secs(2), ..egress(allowed) }, request());
    assert!(!matches!(connected, Ok(_) | Err(RequestFailure::Forbidden(_))), "{connected:?}");
    assert!(server.connections() > 0);
}

#[test]
fn redirects_large_answers_and_silence_are_refused() {
    let server = Server::start(|request| match request.path.as_str() {
        "/redirect" => Reply::status(302, "").with("location", "http://127.0.0.1:1/"),
        "/large" => Reply::ok(vec![b'x'; 1001]),
        "/bomb" => {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
            gzip.write_all(&vec![0; 100_000]).unwrap();
            Reply::ok(gzip.finish().unwrap()).with("content-encoding", "gzip")
        }
        "/close" => Reply::Close,
        _ => Reply::Hang,
    });
    let code = |path| call(&server, get(&server, path)).unwrap_err();
    assert!(matches!(code("/redirect"), RequestFailure::Forbidden(_)));
    assert!(matches!(code("/large"), RequestFailure::TooLarge(1000)));
    assert!(matches!(code("/bomb"), RequestFailure::TooLarge(1000)));
    assert!(matches!(code("/close"), RequestFailure::Transport(_)));
    let endpoint = format!("http://{}", server.address());
    let quick = granted(&asked(&[(ALLOW, &endpoint), (TIMEOUT, "100ms")]), &open()).unwrap().egress.unwrap();
    assert!(matches!(send(quick, get(&server, "/hang")), Err(RequestFailure::Timeout(_))));
}
