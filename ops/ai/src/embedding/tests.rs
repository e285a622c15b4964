use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_http::testing::{Received, Reply, Server};
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::state::DiscardingState;
use anabranch_record::Record;
use serde_json::{Value as Json, json};

use crate::testing::{Notebook, configured, findings, record, text, waiting};
use crate::{cohere, embed, openai};

fn row(after: &Json) -> Record {
    record(
        &json!({ "position": "", "operation": "create", "metadata": {}, "key": null, "payload": { "after": after } })
            .to_string(),
    )
}

fn rows(texts: &[&str]) -> Vec<Record> {
    texts.iter().map(|text| row(&json!({ "text": text }))).collect()
}

fn after(record: &Record) -> Json {
    serde_json::from_str::<Json>(&text(record)).unwrap()["payload"]["after"].take()
}

fn body(request: &Received) -> Json {
    serde_json::from_slice(&request.body).unwrap()
}

fn texts(request: &Received, name: &str) -> Vec<String> {
    serde_json::from_value(body(request)[name].clone()).unwrap()
}

/// The vector of a text: its length and its first byte.
fn vector(text: &str) -> Json {
    json!([text.len() as f64, text.bytes().next().map_or(0.0, |b| f64::from(b) / 10.0)])
}

fn ollama(request: &Received) -> Reply {
    let vectors: Vec<Json> = texts(request, "input").iter().map(|text| vector(text)).collect();
    Reply::ok(json!({ "embeddings": vectors }).to_string())
}

/// Items in an order of their own.
fn openai_shape(request: &Received) -> Reply {
    let texts = texts(request, "input");
    let item =
        |(index, text): (usize, &String)| json!({ "object": "embedding", "index": index, "embedding": vector(text) });
    let items: Vec<Json> = texts.iter().enumerate().rev().map(item).collect();
    Reply::ok(json!({ "object": "list", "data": items, "usage": { "total_tokens": 7 } }).to_string())
}

fn settings<'a>(url: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let own = [("provider", "ollama"), ("model", "m"), ("baseURL", url), ("backoffRetry.min", "1ms")];
    // A later one wins.
    own.into_iter().filter(|(name, _)| more.iter().all(|(n, _)| n != name)).chain(more.iter().copied()).collect()
}

async fn embedded(url: &str, more: &[(&str, &str)], records: Vec<Record>) -> Vec<Result<Json, String>> {
    let found = waiting(&embed::kind(), &settings(url, more), records, Arc::new(DiscardingState)).await;
    found.into_iter().map(|row| row.map(|record| after(&record)["vector"].clone())).collect()
}

#[tokio::test]
async fn texts_of_many_rows_go_in_one_request_and_equal_ones_once() {
    let server = Server::start(ollama);
    let found = embedded(&server.url(), &[("maxTextsPerRequest", "3")], rows(&["a", "bb", "a", "ccc", "dddd"])).await;
    let expected: Vec<_> = ["a", "bb", "a", "ccc", "dddd"].iter().map(|text| Ok(vector(text))).collect();
    assert_eq!(found, expected);
    let mut asked: Vec<Vec<String>> = server.received().iter().map(|request| texts(request, "input")).collect();
    asked.sort();
    assert_eq!(asked, [vec!["a", "bb", "ccc"], vec!["dddd"]]);
    assert_eq!(server.received()[0].path, "/api/embed");
}

#[tokio::test]
async fn lists_of_texts_become_lists_of_vectors() {
    let server = Server::start(ollama);
    let records =
        vec![row(&json!({ "text": ["a", "bb"] })), row(&json!({ "text": [] })), row(&json!({ "text": "ccc" }))];
    let found = embedded(&server.url(), &[], records).await;
    assert_eq!(found, [Ok(json!([vector("a"), vector("bb")])), Ok(json!([])), Ok(vector("ccc"))]);
}

#[tokio::test]
async fn what_is_remembered_is_not_asked_for() {
    let server = Server::start(ollama);
    let url = server.url();
    let notebook = Arc::new(Notebook::default());
    let ask = async |more: &[(&str, &str)], texts: &[&str]| {
        let found = waiting(&embed::kind(), &settings(&url, more), rows(texts), notebook.clone()).await;
        let found: Vec<Json> = found.into_iter().map(|row| after(&row.unwrap())["vector"].clone()).collect();
        assert_eq!(found, texts.iter().map(|text| vector(text)).collect::<Vec<_>>());
        server.received().len()
    };
    assert_eq!(ask(&[], &["a", "bb"]).await, 1);
    assert_eq!(ask(&[], &["bb", "a", "bb"]).await, 1);
    assert_eq!(ask(&[], &["a", "ccc"]).await, 2);
    assert_eq!(texts(&server.received()[1], "input"), ["ccc"]);
    // Whatever an embedding depends on is part of what it is remembered by.
    assert_eq!(ask(&[("model", "other")], &["a"]).await, 3);
    assert_eq!(ask(&[("dimensions", "2")], &["a"]).await, 4);
    assert_eq!(ask(&[("inputType", "query")], &["a"]).await, 5);
    assert_eq!(ask(&[("cache", "false")], &["a"]).await, 6);
    assert_eq!(ask(&[], &["a", "bb", "ccc"]).await, 6);
    // A damaged entry is requested again.
    notebook.entries.lock().unwrap().values_mut().for_each(|bytes| bytes.truncate(7));
    assert_eq!(ask(&[], &["a"]).await, 7);
}

#[tokio::test]
async fn a_store_that_fails_costs_requests_only() {
    let server = Server::start(ollama);
    let notebook = Arc::new(Notebook { broken: true, ..Notebook::default() });
    let found = waiting(&embed::kind(), &settings(&server.url(), &[]), rows(&["a"]), notebook).await;
    assert_eq!(after(found[0].as_ref().unwrap())["vector"], vector("a"));
}

#[tokio::test]
async fn a_text_that_is_refused_fails_only_its_own_record() {
    let server = Server::start(|request| match texts(request, "input").iter().any(|text| text == "bad") {
        true => Reply::status(400, "{\"error\":\"too long\"}"),
        false => ollama(request),
    });
    let mut names: Vec<String> = (0..50).map(|n| format!("text {n}")).collect();
    names[17] = "bad".into();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = embedded(&server.url(), &[], rows(&names)).await;
    for (name, found) in names.iter().zip(found) {
        match *name {
            "bad" => assert!(found.unwrap_err().contains("answered 400 Bad Request: {\"error\":\"too long\"}")),
            name => assert_eq!(found, Ok(vector(name))),
        }
    }
    assert!(server.received().len() <= 1 + 2 * 6, "{}", server.received().len());
}

#[tokio::test]
async fn rows_without_text_fail_alone() {
    let server = Server::start(ollama);
    let raw = record(r#"{"position":"","operation":"create","metadata":{},"key":null,"payload":{"after":"YQ=="}}"#);
    let found = embedded(&server.url(), &[], vec![row(&json!({})), row(&json!({ "text": "a" })), raw]).await;
    assert_eq!(found[0], Err("field_missing: there is no text at .Payload.After.text".to_owned()));
    assert_eq!(found[1], Ok(vector("a")));
    assert!(found[2].as_ref().unwrap_err().starts_with("reference_unresolved: "));
}

#[tokio::test]
async fn answers_that_do_not_fit_are_refused() {
    let answer = |body: &str| {
        let body = body.to_owned();
        Server::start(move |_| Reply::ok(body.clone()))
    };
    for (body, why) in [
        (r#"{"embeddings":[[1.0]]}"#, "it has 1 embedding for 2 texts"),
        (r#"{"embeddings":[[1.0],[1.0],[1.0]]}"#, "it has 3 embeddings for 2 texts"),
        (r#"{"embeddings":[[],[1.0]]}"#, "an embedding is empty"),
        (r#"{"embeddings":"#, "EOF while parsing"),
        (r#"{"result":"no"}"#, "missing field `embeddings`"),
        ("<html>", "expected value"),
    ] {
        let server = answer(body);
        let found = embedded(&server.url(), &[], rows(&["a", "b"])).await;
        let error = found[0].as_ref().unwrap_err();
        assert!(
            error.starts_with("answer_unusable: 127.0.0.1/api/embed returned an answer that cannot be used: "),
            "{error}"
        );
        assert!(error.contains(why), "{error}");
    }
    let server = answer(r#"{"embeddings":[[1.0,2.0],[1.0]]}"#);
    let found = embedded(&server.url(), &[("dimensions", "2")], rows(&["a", "b"])).await;
    assert_eq!(found[0], Ok(json!([1.0, 2.0])));
    assert!(found[1].as_ref().unwrap_err().ends_with("an embedding has 1 dimension, not 2"));
}

#[tokio::test]
async fn answers_that_contradict_themselves_are_refused_whole_and_not_remembered() {
    let items = |indexes: &[Option<usize>]| {
        let item = |(n, index): (usize, &Option<usize>)| json!({ "index": index, "embedding": [n] });
        json!({ "data": indexes.iter().enumerate().map(item).collect::<Vec<_>>() }).to_string()
    };
    for (indexes, why) in [
        (vec![Some(0), Some(0), Some(0)], "index 0 occurs twice"),
        (vec![Some(2), Some(1), Some(1)], "index 1 occurs twice"),
        // An entry without an index has the position of its place.
        (vec![Some(1), None, Some(2)], "index 1 occurs twice"),
        (vec![Some(0), Some(1), Some(3)], "index 3 is beyond the last of 3 texts"),
        (vec![Some(0), Some(1)], "it has 2 embeddings for 3 texts"),
        (vec![Some(0), Some(1), Some(2), Some(2)], "it has 4 embeddings for 3 texts"),
    ] {
        let body = items(&indexes);
        let server = Server::start(move |_| Reply::ok(body.clone()));
        let url = server.url();
        for provider in ["openai", "voyage"] {
            let notebook = Arc::new(Notebook::default());
            let settings = settings(&url, &[("provider", provider)]);
            let found = waiting(&embed::kind(), &settings, rows(&["a", "bb", "ccc"]), notebook.clone()).await;
            for found in found {
                let error = found.unwrap_err();
                assert!(error.starts_with("answer_unusable: ") && error.ends_with(why), "{error}");
            }
            assert!(notebook.entries.lock().unwrap().is_empty(), "{indexes:?}");
        }
        let settings = [("api_key", "k"), ("model", "m"), ("base_url", &*url), ("field", ".Payload.After.text")];
        let texts = rows(&["a", "bb", "ccc"]);
        let found = waiting(&openai::embeddings::kind(), &settings, texts, Arc::new(DiscardingState)).await;
        assert!(found.iter().all(|row| row.as_ref().unwrap_err().ends_with(why)), "{found:?}");
    }
}

#[tokio::test]
async fn embeddings_of_differing_lengths_are_refused_whole_and_not_remembered() {
    let notebook = Arc::new(Notebook::default());
    let server = Server::start(|request| {
        let lengths = texts(request, "input");
        let vectors: Vec<Json> = lengths.iter().map(|text| json!(vec![1.0; text.len()])).collect();
        Reply::ok(json!({ "embeddings": vectors }).to_string())
    });
    let url = server.url();
    let found = waiting(&embed::kind(), &settings(&url, &[]), rows(&["aa", "bbb", "cc"]), notebook.clone()).await;
    for found in found {
        let error = found.unwrap_err();
        assert!(error.starts_with("answer_unusable: ") && error.ends_with("its embeddings have 2 and 3 dimensions"));
    }
    assert!(notebook.entries.lock().unwrap().is_empty());
    let found = embedded(&url, &[], rows(&["aa", "bb"])).await;
    assert_eq!(found, [Ok(json!([1.0, 1.0])), Ok(json!([1.0, 1.0]))]);
}

/// Gateways in front of models answer 200 and an error.
#[tokio::test]
async fn an_error_of_the_service_that_comes_as_a_success_is_what_it_says() {
    for error in [
        json!({ "message": "overloaded", "type": "server_error" }),
        json!({ "message": "wait", "code": "rate_limit_exceeded" }),
        json!({ "message": "wait", "code": 429 }),
        json!({ "message": "upstream", "status": "503" }),
    ] {
        let body = json!({ "error": error }).to_string();
        let server = Server::start(move |request| match request.number {
            0 | 1 => Reply::ok(body.clone()),
            _ => ollama(request),
        });
        assert_eq!(embedded(&server.url(), &[], rows(&["a"])).await, [Ok(vector("a"))], "{error}");
        assert_eq!(server.received().len(), 3);
    }
    for error in [
        json!({ "message": "no such model", "type": "invalid_request_error" }),
        json!({ "message": "no such model", "code": 404 }),
        json!("no such model"),
    ] {
        let body = json!({ "error": error }).to_string();
        let server = Server::start(move |_| Reply::ok(body.clone()));
        let found = embedded(&server.url(), &[], rows(&["a"])).await;
        let why = found[0].as_ref().unwrap_err();
        assert!(why.contains("no such model") && why.starts_with("http_status: "), "{why}");
        assert_eq!(server.received().len(), 1);
    }
    // An error that is none.
    let server = Server::start(|_| Reply::ok(r#"{"error":null,"embeddings":[[1.0]]}"#));
    assert_eq!(embedded(&server.url(), &[], rows(&["a"])).await, [Ok(json!([1.0]))]);
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let elsewhere = Server::start(openai_shape);
    let to = format!("{}/v1/embeddings", elsewhere.url());
    let location = to.clone();
    let server = Server::start(move |_| Reply::status(308, "").with("Location", &location));
    let more = [("provider", "openai"), ("apiKey", "hunter22")];
    let found = embedded(&server.url(), &more, rows(&["a", "b"])).await;
    let why = format!(
        "http_status: POST {}/embeddings: answered 308 Permanent Redirect and points to {to}; redirects are not \
         followed: correct baseURL",
        server.url()
    );
    assert_eq!(found, [Err(why.clone()), Err(why)]);
    assert_eq!((server.received().len(), elsewhere.received().len()), (1, 0));
}

#[tokio::test]
async fn busy_services_are_asked_again() {
    let server = Server::start(|request| match request.number {
        0 => Reply::status(429, "").with("Retry-After", "0"),
        1 => Reply::status(500, ""),
        2 => Reply::Close,
        _ => ollama(request),
    });
    assert_eq!(embedded(&server.url(), &[], rows(&["a"])).await, [Ok(vector("a"))]);
    let server = Server::start(|_| Reply::Hang);
    let found = embedded(&server.url(), &[("request.timeout", "2s"), ("backoffRetry.count", "1")], rows(&["a"])).await;
    assert!(found[0].as_ref().unwrap_err().starts_with("http_timeout: "), "{found:?}");
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn order_is_kept_when_requests_overtake_each_other() {
    let server = Server::start(|request| {
        std::thread::sleep(Duration::from_millis(u64::from(request.body.len() % 7 == 0) * 5));
        ollama(request)
    });
    let names: Vec<String> = (0..100).map(|n| "x".repeat(n) + "y").collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let more = [("maxTextsPerRequest", "3"), ("request.concurrency", "8")];
    let found = embedded(&server.url(), &more, rows(&names)).await;
    assert_eq!(found, names.iter().map(|name| Ok(vector(name))).collect::<Vec<_>>());
    assert!(server.most_pending() <= 8);
}

#[tokio::test]
async fn openai_embeddings_takes_the_place_of_the_text() {
    let server = Server::start(openai_shape);
    let url = format!("{}/v1/", server.url());
    let settings = [
        ("api_key", "sk-hunter22"),
        ("model", "text-embedding-3-small"),
        ("base_url", &*url),
        ("field", ".Payload.After.text"),
        ("dimensions", "2"),
        ("user", "u"),
    ];
    let found = waiting(&openai::embeddings::kind(), &settings, rows(&["a", "bb"]), Arc::new(DiscardingState)).await;
    let found: Vec<Json> = found.into_iter().map(|row| after(&row.unwrap())).collect();
    assert_eq!(found, [json!({ "text": "[1.0,9.7]" }), json!({ "text": "[2.0,9.8]" })]);
    let request = server.received().remove(0);
    assert_eq!(
        (request.path.as_str(), request.header("authorization")),
        ("/v1/embeddings", Some("Bearer sk-hunter22"))
    );
    assert_eq!(
        body(&request),
        json!({ "model": "text-embedding-3-small", "input": ["a", "bb"], "dimensions": 2, "encoding_format": "float", "user": "u" })
    );
}

#[tokio::test]
async fn raw_data_stay_raw_and_base64_is_read() {
    // 1.5 and -2.0, little-endian.
    let server = Server::start(|_| Reply::ok(r#"{"data":[{"index":0,"embedding":"AADAPwAAAMA="}]}"#));
    let settings = [("api_key", "k"), ("model", "m"), ("base_url", &*server.url()), ("encoding_format", "base64")];
    let raw = record(r#"{"position":"","operation":"create","metadata":{},"key":null,"payload":{"after":"YQ=="}}"#);
    let found = waiting(&openai::embeddings::kind(), &settings, vec![raw], Arc::new(DiscardingState)).await;
    assert_eq!(found[0].as_ref().unwrap().payload.after, anabranch_record::Data::text("[1.5,-2.0]"));
    for (text, why) in [("AADA", "3 bytes"), ("?", "not base64")] {
        let server = Server::start(move |_| Reply::ok(json!({ "data": [{ "embedding": text }] }).to_string()));
        let settings = [("api_key", "k"), ("model", "m"), ("base_url", &*server.url())];
        let found =
            waiting(&openai::embeddings::kind(), &settings, vec![row(&json!({ "a": 1 }))], Arc::new(DiscardingState))
                .await;
        assert!(found[0].as_ref().unwrap_err().contains(why), "{found:?}");
    }
}

#[tokio::test]
async fn cohere_embed_names_its_model() {
    let server = Server::start(|request| {
        let vectors: Vec<Json> = texts(request, "texts").iter().map(|text| vector(text)).collect();
        Reply::ok(json!({ "id": "1", "embeddings": { "float": vectors }, "texts": [] }).to_string())
    });
    let url = server.url();
    let settings = [
        ("apiKey", "k"),
        ("baseURL", &*url),
        ("model", "embed-v4.0"),
        ("inputType", "search_document"),
        ("inputField", ".Payload.After.text"),
        ("outputField", ".Payload.After.embedding"),
    ];
    let found = waiting(&cohere::embed::kind(), &settings, rows(&["a"]), Arc::new(DiscardingState)).await;
    let found = found.into_iter().next().unwrap().unwrap();
    assert_eq!(after(&found), json!({ "text": "a", "embedding": "[1.0,9.7]" }));
    assert_eq!(found.metadata.get("cohere.embed.model").unwrap().as_str(), "embed-v4.0");
    let request = server.received().remove(0);
    assert_eq!(request.path, "/v2/embed");
    assert_eq!(
        body(&request),
        json!({ "model": "embed-v4.0", "texts": ["a"], "input_type": "search_document", "embedding_types": ["float"] })
    );
    assert_eq!(
        findings(&cohere::embed::kind(), &[("apiKey", "k"), ("model", "embed-v4.0")]),
        ["inputType is required for the model \"embed-v4.0\""]
    );
    assert!(configured(&cohere::embed::kind(), &[("apiKey", "k")]).is_ok());
}

#[test]
fn wrong_settings_are_found_and_keys_are_secret() {
    assert_eq!(
        findings(&embed::kind(), &[("model", "m"), ("outputField", ".Payload.After")]),
        ["outputField: .Payload.After cannot be a list"]
    );
    assert_eq!(
        findings(&embed::kind(), &[("model", "m"), ("baseURL", "localhost:1")]),
        ["baseURL: the URL begins with neither http:// nor https://"]
    );
    let kinds: [(Arc<dyn OperatorKind>, &str); 6] = [
        (embed::kind(), "apiKey"),
        (openai::embeddings::kind(), "api_key"),
        (openai::textgen::kind(), "api_key"),
        (cohere::embed::kind(), "apiKey"),
        (cohere::command::kind(), "apiKey"),
        (cohere::rerank::kind(), "apiKey"),
    ];
    for (kind, key) in kinds {
        assert!(kind.specification().parameter(key).unwrap().secret, "{}", kind.specification().name);
    }
}
