//! Every way to log in, and every refusal.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anabranch_record::fault::FaultClass;
use serde_json::json;

use super::server::{USER, broker};
use super::source::{Session, source};
use super::{destination, host, open, record, values, write};

/// Writes a record, and returns whether another client sees it.
async fn writes(topic: &str, value: &str, settings: &[(&str, &str)]) {
    let broker = broker().unwrap();
    let base = [("topic", topic), ("sdk.record.format", "recfmt/raw")];
    let mut writer = open(&[&base, settings].concat()).await;
    let faults = write(&mut *writer, &[record("k", value)]).await.unwrap();
    assert!(faults[0].is_none(), "{value}: {faults:?}");
    assert!(values(&broker.consume(topic)).contains(&value.to_owned()), "{value}");
}

async fn refused(settings: &[(&str, &str)], code: &str) -> String {
    let fault = destination(&[&[("topic", "t")], settings].concat()).open(&host()).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, code), "{fault:?}");
    fault.message()
}

#[tokio::test]
async fn every_mechanism_logs_in_with_and_without_tls() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("login", 1, &json!({}));
    let ca = broker.certificates().certificate("ca");
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let login = [("saslMechanism", mechanism), ("saslUsername", USER.0), ("saslPassword", USER.1)];
        writes(&topic, mechanism, &[&login[..], &[("servers", &broker.login())]].concat()).await;
        let tls = [("servers", &*broker.login_tls()), ("tls.enabled", "true"), ("caCert", &ca)];
        writes(&topic, &format!("{mechanism} with TLS"), &[&login[..], &tls].concat()).await;

        let wrong = [("saslMechanism", mechanism), ("saslUsername", USER.0), ("saslPassword", "not-the-password")];
        let text = refused(&[&wrong[..], &[("servers", &broker.login())]].concat(), "credentials_refused").await;
        assert!(!text.contains("not-the-password"), "{text}");
    }
}

#[tokio::test]
async fn a_token_in_a_file_is_read_for_each_login() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("token", 1, &json!({}));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let settings =
        [("servers", &*broker.login()), ("saslMechanism", "OAUTHBEARER"), ("oauth.tokenFile", path.to_str().unwrap())];
    assert!(refused(&settings, "credentials_refused").await.contains("token"));
    std::fs::write(&path, "not a token").unwrap();
    refused(&settings, "credentials_refused").await;
    // The broker of the tests takes tokens without a signature.
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({ "sub": "ada", "iat": now, "exp": now + 600 }).to_string();
    let token =
        |claims: &str| format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims));
    let expired = json!({ "sub": "ada", "iat": now - 600, "exp": now - 300 }).to_string();
    std::fs::write(&path, token(&expired)).unwrap();
    refused(&settings, "credentials_refused").await;
    std::fs::write(&path, token(&claims)).unwrap();
    writes(&topic, "token", &settings).await;
}

/// A server that gives tokens. It ends when it is dropped.
struct Tokens {
    process: Child,
    url: String,
    given: Arc<AtomicUsize>,
}

impl Tokens {
    /// Starts the server. The tokens are valid for some seconds.
    fn start(certificate: &str, key: &str, seconds: u32) -> Tokens {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/servers/kafka/tokens.py");
        let mut command = Command::new("python3");
        command.arg(script).args([certificate, key, "ada", "secret-of-tokens", &seconds.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = format!("https://127.0.0.1:{}/token", lines.next().unwrap().unwrap());
        let given = Arc::<AtomicUsize>::default();
        let counting = given.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                counting.fetch_add(usize::from(line == "200"), Ordering::Relaxed);
            }
        });
        Tokens { process, url, given }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The broker ends connections that have not logged in again after four seconds. The client takes no token that expires in
/// less than thirty. Writing and reading go on with new tokens.
#[tokio::test]
async fn tokens_come_from_a_server_and_are_renewed() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("renewed", 1, &json!({}));
    let certificates = broker.certificates();
    let (ca, address) = (certificates.certificate("ca"), broker.login());
    let tokens = Tokens::start(&certificates.certificate("broker"), &certificates.key("broker"), 32);
    let login = [
        ("servers", &*address),
        ("saslMechanism", "OAUTHBEARER"),
        ("oauth.tokenURL", &tokens.url),
        ("oauth.clientID", "ada"),
        ("oauth.clientSecret", "secret-of-tokens"),
        ("oauth.scope", "kafka"),
        ("oauth.caCert", &ca),
    ];
    let mut writer = open(&[&login[..], &[("topic", &topic), ("sdk.record.format", "recfmt/raw")]].concat()).await;
    let reading = source(&[&login[..], &[("topics", &topic), ("readFromBeginning", "true")]].concat());
    let mut session = Session::open(&*reading, &BTreeMap::new()).await.unwrap();
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for n in 0..15 {
        let value = n.to_string();
        let faults = write(&mut *writer, &[record("k", &value)]).await.unwrap();
        assert!(faults[0].is_none(), "{n}: {faults:?}");
        written.push(value);
        tokio::time::sleep(Duration::from_millis(800)).await;
        read.extend(session.pause().await);
    }
    let begun = std::time::Instant::now();
    while read.len() < written.len() {
        read.extend(session.pause().await);
        assert!(begun.elapsed() < Duration::from_secs(60), "{read:?}");
    }
    assert_eq!((read, values(&broker.consume(&topic))), (written.clone(), written));
    session.end().await;
    // Two connections or more, for longer than two tokens are valid.
    assert!(tokens.given.load(Ordering::Relaxed) >= 3, "{:?} tokens", tokens.given);

    let mut wrong = login;
    wrong[4].1 = "not-the-secret";
    let text = refused(&wrong, "credentials_refused").await;
    assert!(!text.contains("not-the-secret"), "{text}");
    let untrusted = &login[..6];
    let text = refused(untrusted, "credentials_refused").await;
    assert!(!text.contains("secret-of-tokens"), "{text}");
}

#[tokio::test]
async fn certificates_come_from_files_or_texts() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("certificates", 1, &json!({}));
    let (certificates, address) = (broker.certificates(), broker.tls());
    let files = [
        ("caCert", certificates.certificate("ca")),
        ("clientCert", certificates.certificate("client")),
        ("clientKey", certificates.key("client")),
    ];
    let texts = files.clone().map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()));
    let base = [("servers", &*address), ("tls.enabled", "true")];
    for (how, given) in [("files", &files), ("texts", &texts)] {
        let given = given.each_ref().map(|(name, value)| (*name, value.as_str()));
        writes(&topic, how, &[&base[..], &given].concat()).await;
    }
    let given = files.each_ref().map(|(name, value)| (*name, value.as_str()));
    let unchecked = [("insecureSkipVerify", "true"), given[1], given[2]];
    writes(&topic, "unchecked", &[&base[..], &unchecked].concat()).await;

    // The authorities of the system did not sign the certificate of the broker.
    let text = refused(&[&base[..], &given[1..]].concat(), "credentials_refused").await;
    assert!(text.contains("trusted authority; caCert has"), "{text}");
    let missing = [("caCert", "/absent/ca.pem"), given[1], given[2]];
    let text = refused(&[&base[..], &missing].concat(), "settings.invalid").await;
    assert!(text.contains("caCert") && text.contains("/absent/ca.pem"), "{text}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("denied", 1, &json!({}));
    let right = |operation: &str, permission: &str| {
        let right = json!({ "topic": topic, "user": USER.0, "operation": operation, "permission": permission });
        broker.judge("right", &right);
    };
    right("DESCRIBE", "ALLOW");
    right("WRITE", "DENY");
    let settings = [
        ("servers", &*broker.login()),
        ("topic", &topic),
        ("saslMechanism", "PLAIN"),
        ("saslUsername", USER.0),
        ("saslPassword", USER.1),
    ];
    let mut writer = open(&settings).await;
    let fault = write(&mut *writer, &[record("k", "v")]).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "kafka.not_authorised"), "{fault:?}");
    assert!(fault.message().contains(&format!("Write on the topic {topic}")), "{fault:?}");
    let fault = destination(&settings).examine().await.unwrap_err();
    assert_eq!(fault.code().name(), "kafka.not_authorised", "{fault:?}");
    // The user may not even know that the topic exists.
    right("DESCRIBE", "DENY");
    let fault = destination(&settings).open(&host()).await.err().unwrap();
    assert_eq!(fault.code().name(), "kafka.not_authorised", "{fault:?}");
}
