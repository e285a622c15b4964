use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use anabranch_plugin::backoff::Backoff;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::*;
use crate::testing::{Reply, Server};

fn policy() -> Policy {
    Policy {
        concurrency: 4,
        per_minute: None,
        timeout: Some(Duration::from_secs(30)),
        retry: Retry { count: 2, delays: Backoff::doubling(Duration::from_millis(1), Duration::from_millis(5)) },
        accept: Accept::default(),
        body_limit: 1000,
        disguised: None,
    }
}

async fn get(policy: Policy, url: &str) -> Result<Answer, HttpError> {
    let client = Client::new(&Tls::default(), Network::Open, policy).unwrap();
    let request = client.request(Method::GET, Url::parse(url).unwrap())?;
    client.send(client.turn().await, request).await
}

fn shown(outcome: Result<Answer, HttpError>) -> Result<String, (&'static str, String)> {
    match outcome {
        Ok(answer) => Ok(String::from_utf8(answer.body.to_vec()).unwrap()),
        Err(error) => {
            let fault = Fault::from(error);
            Err((fault.code().name(), fault.message()))
        }
    }
}

#[tokio::test]
async fn transient_statuses_are_tried_again_and_others_are_not() {
    for (status, again) in [(408, true), (429, true), (500, true), (503, true), (599, true), (400, false), (404, false)]
    {
        let server = Server::start(move |request| match request.number {
            0 => Reply::status(status, "no"),
            _ => Reply::ok("yes"),
        });
        let outcome = shown(get(policy(), &server.url()).await);
        assert_eq!(outcome.is_ok(), again, "{status}: {outcome:?}");
        assert_eq!(server.received().len(), if again { 2 } else { 1 }, "{status}");
    }
}

#[tokio::test]
async fn attempts_end() {
    let server = Server::start(|_| Reply::status(500, "broken\n\tbeyond repair"));
    assert_eq!(
        shown(get(policy(), &format!("{}/a?token=hidden", server.url())).await),
        Err((
            "http_status",
            format!(
                "GET {}/a: answered 500 Internal Server Error: broken  beyond repair (after 3 attempts)",
                server.url()
            )
        ))
    );
    assert_eq!(server.received().len(), 3);
}

#[tokio::test]
async fn the_server_says_when_to_come_back_and_all_requests_obey() {
    let server = Server::start(|request| match request.number {
        0 => Reply::status(429, "").with("Retry-After", "1"),
        _ => Reply::ok("yes"),
    });
    let client = Client::new(&Tls::default(), Network::Open, policy()).unwrap();
    let send = async || {
        let request = client.request(Method::GET, Url::parse(&server.url()).unwrap()).unwrap();
        client.send(client.turn().await, request).await.unwrap();
        Instant::now()
    };
    let start = Instant::now();
    let first = send();
    let second = async {
        while server.received().is_empty() || client.pause.until().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        send().await
    };
    let (first, second) = futures::join!(first, second);
    assert!(first.min(second) - start >= Duration::from_secs(1));
    assert_eq!(server.received().len(), 3);
}

#[tokio::test]
async fn attempts_are_spread_over_the_minute() {
    let server = Server::start(|_| Reply::ok("yes"));
    // One every 20 ms: the first goes at once.
    let client = Client::new(&Tls::default(), Network::Open, Policy { per_minute: Some(3000.0), ..policy() }).unwrap();
    let start = Instant::now();
    futures::future::join_all((0..6).map(|_| async {
        let request = client.request(Method::GET, Url::parse(&server.url()).unwrap()).unwrap();
        client.send(client.turn().await, request).await.unwrap();
    }))
    .await;
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn attempts_are_evenly_spread_after_a_pause_too() {
    // One every 200 ms.
    let policy = Policy { per_minute: Some(300.0), concurrency: 16, ..policy() };
    let client = Client::new(&Tls::default(), Network::Open, policy).unwrap();
    let start = tokio::time::Instant::now();
    let attempts = futures::future::join_all((0..16).map(|_| async {
        client.clearance().await;
        start.elapsed()
    }));
    let answers = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let _ = client.pause.extend(Duration::from_secs(1));
        // Meanwhile, the requests that waited for the first one wait for their start.
        tokio::time::sleep(Duration::from_millis(1300)).await;
        let _ = client.pause.extend(Duration::from_secs(3));
    };
    let (mut moments, ()) = futures::join!(attempts, answers);
    moments.sort();
    // 0, then 1.01 and 1.21, then from 4.31 on.
    let expected = [0, 1010, 1210].into_iter().chain((0..13).map(|n| 4310 + 200 * n));
    for (moment, expected) in moments.iter().zip(expected) {
        assert!((expected..=expected + 3).contains(&moment.as_millis()), "{expected}: {moments:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_costs_the_others_no_moment() {
    let policy = Policy { per_minute: Some(300.0), ..policy() };
    let client = Client::new(&Tls::default(), Network::Open, policy).unwrap();
    let start = tokio::time::Instant::now();
    client.clearance().await;
    assert!(tokio::time::timeout(Duration::from_millis(50), client.clearance()).await.is_err());
    client.clearance().await;
    assert!((200..=203).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

/// Keeps what is said at level warn.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Message<'a>(&'a Warnings);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("anabranch")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(self));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn who_has_no_repetition_left_fails_at_once_and_the_wait_of_the_others_is_told_once() {
    let warnings = Warnings::default();
    let _heard = tracing::subscriber::set_default(warnings.clone());
    let server = Server::start(|_| Reply::status(429, "").with("Retry-After", "60"));
    let policy = Policy { retry: Retry::NEVER, ..policy() };
    let client = Client::new(&Tls::default(), Network::Open, policy).unwrap();
    let url = Url::parse(&format!("{}/a?token=secret", server.url().replace("//", "//user:secret@"))).unwrap();
    let send = async || {
        let request = client.request(Method::GET, url.clone()).unwrap();
        shown(client.send(client.turn().await, request).await).unwrap_err().0
    };
    let start = Instant::now();
    assert_eq!(futures::join!(send(), send()), ("http_status", "http_status"));
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(client.pause.until().is_some());
    let expected = format!("GET {}/a: the server asks to wait 60 s (429): requests are delayed", server.url());
    assert_eq!(*warnings.0.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn redirects_are_errors_that_say_where_they_point() {
    let elsewhere = Server::start(|_| Reply::ok("elsewhere"));
    let other = elsewhere.url();
    for (to, shown_to) in [
        (format!("{other}/x"), format!("{other}/x")),
        // Credentials, in any place where URLs have them.
        (other.replace("http://", "http://user:secret@") + "/x?sig=secret#secret", format!("{other}/x")),
        ("/login?next=secret".to_owned(), "{here}/login".to_owned()),
        ("../y".to_owned(), "{here}/y".to_owned()),
        ("https://[::1]:8443/z".to_owned(), "https://[::1]:8443/z".to_owned()),
    ] {
        for status in [301, 302, 303, 307, 308] {
            let to = to.clone();
            let server = Server::start(move |_| Reply::status(status, "<html>moved</html>").with("Location", &to));
            let (code, message) = shown(get(policy(), &format!("{}/a/b", server.url())).await).unwrap_err();
            let reason = StatusCode::from_u16(status).unwrap();
            let shown_to = shown_to.replace("{here}", &server.url());
            let expected = format!(
                "GET {}/a/b: answered {reason} and points to {shown_to}; redirects are not followed: correct the URL",
                server.url()
            );
            assert_eq!((code, message), ("http_status", expected));
            assert_eq!(server.received().len(), 1, "{status}");
        }
    }
    assert_eq!(elsewhere.received(), []);
}

#[tokio::test]
async fn a_redirect_to_no_place_is_a_status_as_any_other() {
    for (status, location) in [(302, "mailto:secret@example.com"), (302, "http://["), (304, "")] {
        let server = Server::start(move |_| match location {
            "" => Reply::status(status, ""),
            location => Reply::status(status, "").with("Location", location),
        });
        let (code, message) = shown(get(policy(), &server.url()).await).unwrap_err();
        let expected = format!("GET {}/: answered {}", server.url(), StatusCode::from_u16(status).unwrap());
        assert_eq!((code, message), ("http_status", expected));
    }
    let to = format!("http://localhost/{}", "x".repeat(1000));
    let server = Server::start(move |_| Reply::status(302, "").with("Location", &to));
    let (_, message) = shown(get(policy(), &server.url()).await).unwrap_err();
    assert!(message.len() < 500 && message.contains("xxx…; redirects"), "{message}");
}

#[tokio::test]
async fn a_redirect_that_is_accepted_is_an_answer() {
    let server = Server::start(|_| Reply::status(302, "moved").with("Location", "http://127.0.0.1:1/"));
    let mut accept = Accept::default();
    accept.add("302").unwrap();
    let answer = get(Policy { accept, ..policy() }, &server.url()).await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (302, &b"moved"[..]));
}

#[tokio::test]
async fn behind_a_proxy_redirects_are_not_followed_either() {
    let proxy = Server::start(|_| Reply::status(302, "").with("Location", "http://other.example/x"));
    let client = Client::new(&Tls::default(), Network::Through(proxy.address()), policy()).unwrap();
    let request = client.request(Method::GET, Url::parse("http://service.example/").unwrap()).unwrap();
    let (_, message) = shown(client.send(client.turn().await, request).await).unwrap_err();
    assert!(message.contains("points to http://other.example/x;"), "{message}");
    assert_eq!(proxy.received().len(), 1);
}

#[tokio::test]
async fn an_hour_is_too_long_to_wait() {
    let server = Server::start(|_| Reply::status(503, "").with("Retry-After", "3600"));
    let (code, message) = shown(get(policy(), &server.url()).await).unwrap_err();
    assert_eq!(code, "http_status");
    assert!(message.ends_with("(the server asks to wait 3600 s, longer than the limit of 300 s)"), "{message}");
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_closed_connection_is_opened_again() {
    let server = Server::start(|request| match request.number {
        0 => Reply::Close,
        1 => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec()),
        _ => Reply::ok("whole"),
    });
    assert_eq!(shown(get(policy(), &server.url()).await), Ok("whole".to_owned()));

    let server = Server::start(|_| Reply::Close);
    let (code, message) = shown(get(policy(), &server.url()).await).unwrap_err();
    assert_eq!(code, "http_broken", "{message}");
    let server = Server::start(|_| Reply::Bytes(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()));
    assert_eq!(shown(get(policy(), &server.url()).await).unwrap_err().0, "http_broken");
}

#[tokio::test]
async fn who_does_not_answer_is_given_up() {
    let server = Server::start(|_| Reply::Hang);
    // Long enough for the server to read the request, even on a busy machine.
    let policy = Policy { timeout: Some(Duration::from_secs(2)), ..policy() };
    let (code, message) = shown(get(policy, &server.url()).await).unwrap_err();
    assert_eq!((code, server.received().len()), ("http_timeout", 3), "{message}");
}

#[tokio::test]
async fn nobody_listens() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, message) = shown(get(policy(), &format!("http://user:secret@127.0.0.1:{port}/x")).await).unwrap_err();
    assert_eq!(code, "http_connect");
    assert!(message.starts_with(&format!("GET http://127.0.0.1:{port}/x: cannot connect: ")), "{message}");
    assert!(message.contains("refused") && !message.contains("secret"), "{message}");
}

#[tokio::test]
async fn a_body_has_a_limit() {
    for reply in [
        Reply::ok(vec![b'x'; 1001]),
        // Chunked: nothing is announced.
        Reply::Bytes(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3E9\r\n", &[b'x'; 1001][..], b"\r\n0\r\n\r\n"]
                .concat(),
        ),
        // Announced, and never sent.
        Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\nx".to_vec()),
    ] {
        let server = Server::start(move |_| reply.clone());
        let (code, message) = shown(get(policy(), &server.url()).await).unwrap_err();
        assert_eq!((code, server.received().len()), ("http_too_large", 1), "{message}");
    }
    let server = Server::start(|_| Reply::ok(vec![b'x'; 1000]));
    assert_eq!(shown(get(policy(), &server.url()).await).unwrap().len(), 1000);
}

#[tokio::test]
async fn a_body_in_many_pieces_is_put_together() {
    let body: Vec<u8> = (0..3_000_000u32).map(|i| b'a' + (i % 26) as u8).collect();
    let sent = body.clone();
    let server = Server::start(move |_| Reply::ok(sent.clone()));
    let policy = Policy { body_limit: 4_000_000, ..policy() };
    assert_eq!(get(policy, &server.url()).await.unwrap().body, body);
}

#[tokio::test]
async fn credentials_of_the_url_become_a_header() {
    let server = Server::start(|_| Reply::ok(""));
    let url = server.url().replace("http://", "http://user:p%40ss@");
    get(policy(), &url).await.unwrap();
    assert_eq!(server.received()[0].header("authorization"), Some("Basic dXNlcjpwQHNz"));
}

#[tokio::test]
async fn connections_are_used_again_and_requests_in_flight_are_bounded() {
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_millis(2));
        Reply::ok("x")
    });
    let client = Client::new(&Tls::default(), Network::Open, policy()).unwrap();
    let requests = (0..200).map(|_| async {
        let turn = client.turn().await;
        let request = client.request(Method::GET, Url::parse(&server.url()).unwrap()).unwrap();
        client.send(turn, request).await.unwrap();
    });
    futures::future::join_all(requests).await;
    assert_eq!(server.most_pending(), 4);
    assert!(server.connections() <= 8, "{}", server.connections());
}

#[tokio::test]
async fn dropping_the_future_aborts_the_request() {
    let server = Server::start(|_| Reply::Hang);
    let url = server.url();
    let sending = get(policy(), &url);
    let seen = async {
        while server.received().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = sending => panic!("there is no answer"),
        () = seen => {}
    }
    while server.hung_up() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn roots_must_be_certificates() {
    for text in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let tls = Tls { roots: Some(text.into()), skip_verify: false };
        let fault = Client::new(&tls, Network::Open, policy()).err().unwrap();
        assert_eq!(fault.code().name(), "tls_invalid", "{text:?}");
    }
}

/// A TLS server that answers one request per connection, with a certificate made for it.
struct Https {
    address: std::net::SocketAddr,
    certificate: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl Https {
    /// `None` where there is no openssl to make the certificate.
    fn start() -> Option<Https> {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        use std::io::{Read, Write};

        let dir = tempfile::tempdir().unwrap();
        let (key, cert) = (dir.path().join("key.pem"), dir.path().join("cert.pem"));
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&cert)
            .output()
            .ok()?;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let chain = vec![CertificateDer::from_pem_file(&cert).unwrap()];
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key).unwrap())
            .unwrap();
        let config = std::sync::Arc::new(config);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(connection) = rustls::ServerConnection::new(config.clone()) else { return };
                let mut stream = rustls::StreamOwned::new(connection, stream);
                if stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret");
                }
            }
        });
        let certificate = std::fs::read(&cert).unwrap();
        Some(Https { address, certificate, _dir: dir })
    }
}

#[tokio::test]
async fn certificates_are_verified_unless_it_is_switched_off() {
    let Some(server) = Https::start() else {
        assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "there is no openssl");
        eprintln!("skipped: there is no openssl");
        return;
    };
    let url = format!("https://localhost:{}/", server.address.port());
    let ask = async |tls: Tls| {
        let client = Client::new(&tls, Network::Open, Policy { retry: Retry::NEVER, ..policy() }).unwrap();
        let request = client.request(Method::GET, Url::parse(&url).unwrap()).unwrap();
        shown(client.send(client.turn().await, request).await)
    };
    let (code, message) = ask(Tls::default()).await.unwrap_err();
    assert!(code == "http_connect" && message.contains("the certificate is not "), "{message}");
    assert_eq!(ask(Tls { roots: Some(server.certificate.clone()), skip_verify: false }).await, Ok("secret".to_owned()));
    assert_eq!(ask(Tls { roots: None, skip_verify: true }).await, Ok("secret".to_owned()));
}
