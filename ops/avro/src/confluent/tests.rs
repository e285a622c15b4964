use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch_ops_http::testing::{Reply, Server};
use anabranch_plugin::schema::Cached;
use anabranch_record::fault::Fault;

use super::*;
use crate::testing::confluent;

const LONG: &str = "\"long\"";

fn registry(url: &str) -> Cached<ConfluentRegistry> {
    Cached::new(ConfluentRegistry::new(url, &Login::None).unwrap())
}

fn text(text: &str) -> Str {
    text.into()
}

#[tokio::test]
async fn schemas_are_registered_found_and_remembered() {
    let server = confluent();
    let url = format!("{}/", server.url());
    let ours = registry(&url);
    let subject = text("p:c/users.payload");
    let first = ours.create(&subject, SchemaKind::Avro, &text(LONG)).await.unwrap();
    assert_eq!((first.version.get(), first.id.get(), first.text.as_str()), (1, 1, LONG));
    let second = ours.create(&subject, SchemaKind::Avro, &text("\"int\"")).await.unwrap();
    assert_eq!((second.version.get(), second.id.get()), (2, 2));
    let asked = server.received().len();
    assert_eq!(ours.create(&subject, SchemaKind::Avro, &text(LONG)).await.unwrap(), first);
    assert_eq!(ours.get(&subject, second.version).await.unwrap(), second);
    assert_eq!(server.received().len(), asked, "known");
    let levels = server.received().into_iter().filter(|request| request.method == "PUT");
    assert_eq!(levels.map(|request| request.text()).collect::<Vec<_>>(), [r#"{"compatibility":"NONE"}"#]);

    let theirs = registry(&url);
    assert_eq!(theirs.get(&subject, second.version).await.unwrap(), second);
    assert_eq!(theirs.create(&subject, SchemaKind::Avro, &text(LONG)).await.unwrap(), first);
    assert_eq!(theirs.by_id(first.id).await.unwrap().text.as_str(), LONG);
    assert_eq!(theirs.versions(&subject).await.unwrap(), [first.version, second.version]);
    assert!(
        !server
            .received()
            .iter()
            .skip(asked)
            .any(|request| request.path.ends_with("versions") && request.method == "POST")
    );
}

#[tokio::test]
async fn refusals_say_which() {
    let server = confluent();
    let ours = registry(&server.url());
    let subject = text("s");
    let code = |error: SchemaError| error.code().name();
    assert_eq!(ours.get(&subject, SchemaVersion::FIRST).await.map_err(code), Err("schema_subject_not_found"));
    assert_eq!(ours.versions(&subject).await.map_err(code), Err("schema_subject_not_found"));
    assert_eq!(ours.by_id(SchemaId::FIRST).await.map_err(code), Err("schema_not_found"));
    assert_eq!(ours.create(&subject, SchemaKind::Avro, &text("{")).await.map_err(code), Err("schema_invalid"));
    ours.create(&subject, SchemaKind::Avro, &text(LONG)).await.unwrap();
    let missing = SchemaVersion::new(7).unwrap();
    assert_eq!(ours.get(&subject, missing).await.map_err(code), Err("schema_version_not_found"));
}

#[tokio::test]
async fn failures_are_tried_again_and_credentials_are_not_shown() {
    let failures = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        match request.header("authorization") {
            Some("Bearer secret-token") => {}
            Some("Basic dTpwQHM=") => return Reply::status(409, r#"{"error_code":409,"message":"incompatible"}"#),
            _ => return Reply::status(401, r#"{"error_code":401,"message":"Unauthorized"}"#),
        }
        match failures.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::Close,
            1 => Reply::status(503, ""),
            _ => Reply::ok(r#"{"schema":"\"long\"","schemaType":"AVRO"}"#),
        }
    });
    let bearer = ConfluentRegistry::new(&server.url(), &Login::Bearer("secret-token".into())).unwrap();
    assert_eq!(bearer.by_id(SchemaId::FIRST).await.unwrap().text.as_str(), LONG);

    let denied = registry(&server.url()).by_id(SchemaId::FIRST).await.unwrap_err();
    assert!(matches!(&denied, SchemaError::Denied(text) if text.contains("Unauthorized")), "{denied}");

    let with_password = server.url().replace("http://", "http://u:p%40s@");
    let error = registry(&with_password).create(&text("s"), SchemaKind::Avro, &text(LONG)).await.unwrap_err();
    assert!(matches!(error, SchemaError::Incompatible { .. }), "{error}");
    assert!(!error.to_string().contains("p%40s") && !error.to_string().contains("p@s"), "{error}");
}

#[tokio::test]
async fn credentials_that_are_replaced_are_read_again() {
    let server = Server::start(|request| match request.header("authorization") {
        Some("Bearer second") => Reply::ok(r#"{"schema":"\"long\""}"#),
        _ => Reply::status(401, r#"{"error_code":401,"message":"Unauthorized"}"#),
    });
    let now = Arc::new(Mutex::new((server.url(), "first")));
    let read = now.clone();
    let renew = move || {
        let (url, token) = read.lock().unwrap().clone();
        (url, Login::Bearer(token.into()))
    };
    let registry = ConfluentRegistry::renewing(renew).unwrap();
    let fault = Fault::from(registry.by_id(SchemaId::FIRST).await.unwrap_err());
    assert_eq!((fault.code().name(), fault.is_of_login()), ("schema_registry_denied", true));
    let requests = server.received().len();
    // Another registry is another set of schemas: that is nothing to change in passing.
    let elsewhere = confluent();
    *now.lock().unwrap() = (elsewhere.url(), "second");
    assert!(matches!(registry.by_id(SchemaId::FIRST).await, Err(SchemaError::Denied(_))));
    assert_eq!((elsewhere.received().len(), server.received().len()), (0, requests + 1));
    *now.lock().unwrap() = (server.url(), "second");
    assert!(registry.by_id(SchemaId::FIRST).await.is_ok());
    assert!(registry.by_id(SchemaId::FIRST).await.is_ok());
    let tokens: Vec<_> =
        server.received().iter().map(|request| request.header("authorization") == Some("Bearer second")).collect();
    assert_eq!(tokens[requests + 1..], [false, true, true], "the new one stays");
}

#[tokio::test]
async fn what_is_no_registry_is_said() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/1" => Reply::ok("<html>"),
        "/schemas/ids/2" => Reply::ok(r#"{"schema":"syntax = \"proto3\";","schemaType":"PROTOBUF"}"#),
        _ => Reply::status(404, "nothing here"),
    });
    let ours = registry(&server.url());
    let said = async |id: u32| ours.by_id(SchemaId::new(id).unwrap()).await.unwrap_err().to_string();
    assert!(said(1).await.contains("is this a schema registry?"));
    let protobuf = "invalid schema: the schema with the id 2 is a Protobuf schema; only Avro schemas are supported";
    assert_eq!(said(2).await, protobuf);
    assert!(said(3).await.contains("404"));
    for bad in ["", "registry:8081", "ftp://x", "http://"] {
        assert!(matches!(ConfluentRegistry::new(bad, &Login::None), Err(AddressError::NotAUrl)), "{bad}");
    }
}

/// An order that contains money, whose currency is defined in a third schema.
#[tokio::test]
async fn schemas_come_with_the_types_to_which_they_refer() {
    let answer = |schema: &str, refers_to: Option<&str>| {
        let references: Vec<_> =
            refers_to.into_iter().map(|subject| json!({"name": "x", "subject": subject, "version": 3})).collect();
        json!({"id": 1, "version": 3, "schema": schema, "references": references}).to_string()
    };
    let record = |name: &str, field: &str, kind: &str| {
        json!({"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}).to_string()
    };
    let server = Server::start(move |request| match request.path.as_str() {
        "/schemas/ids/1" | "/subjects/orders/versions/3" => {
            Reply::ok(answer(&record("shop.Order", "price", "shop.Money"), Some("money/eu")))
        }
        "/subjects/money%2Feu/versions/3" => {
            Reply::ok(answer(&record("shop.Money", "currency", "shop.Currency"), Some("currency")))
        }
        "/subjects/currency/versions/3" => {
            let text = json!({"type": "enum", "name": "shop.Currency", "symbols": ["EUR"]}).to_string();
            Reply::ok(answer(&text, None))
        }
        "/schemas/ids/2" => Reply::ok(answer(LONG, Some("gone"))),
        _ => Reply::status(404, r#"{"error_code":40401,"message":"not found"}"#),
    });
    let ours = registry(&server.url());
    let whole = ours.by_id(SchemaId::FIRST).await.unwrap().text.clone();
    crate::check(&whole).unwrap();
    let parsed: Json = serde_json::from_str(&whole).unwrap();
    let currency = &parsed["fields"][0]["type"]["fields"][0]["type"];
    assert_eq!(currency["symbols"], json!(["EUR"]), "{whole}");
    let version = ours.get(&text("orders"), SchemaVersion::new(3).unwrap()).await.unwrap();
    assert_eq!(version.text, whole);
    let error = ours.by_id(SchemaId::new(2).unwrap()).await.unwrap_err();
    assert!(matches!(&error, SchemaError::SubjectNotFound(subject) if subject == "gone"), "{error}");
}
