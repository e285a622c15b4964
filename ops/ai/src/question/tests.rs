use std::sync::Arc;

use anabranch_ops_http::testing::{Received, Reply, Server};
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::state::DiscardingState;
use anabranch_record::Record;
use serde_json::{Value as Json, json};

use crate::testing::{configured, findings, record, text, waiting};
use crate::{cohere, ollama, openai};

fn row(after: &Json) -> Record {
    record(
        &json!({ "position": "", "operation": "create", "metadata": {}, "key": null, "payload": { "after": after } })
            .to_string(),
    )
}

fn body(request: &Received) -> Json {
    serde_json::from_slice(&request.body).unwrap()
}

async fn asked(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)], after: &Json) -> Result<Json, String> {
    let mut found = waiting(kind, settings, vec![row(after)], Arc::new(DiscardingState)).await;
    let record = found.remove(0)?;
    Ok(serde_json::from_str::<Json>(&text(&record)).unwrap()["payload"]["after"].take())
}

fn completion(content: &str, reason: &str) -> Reply {
    let message = json!({ "role": "assistant", "content": content, "refusal": null });
    Reply::ok(json!({ "choices": [{ "index": 0, "message": message, "finish_reason": reason }] }).to_string())
}

#[tokio::test]
async fn textgen_sends_what_is_set_and_nothing_else() {
    let server = Server::start(|_| completion("ANSWER", "stop"));
    let url = server.url();
    let own = [
        ("api_key", "sk-1"),
        ("model", "gpt"),
        ("developer_message", "shout"),
        ("base_url", &*url),
        ("field", ".Payload.After.text"),
    ];
    assert_eq!(
        asked(&openai::textgen::kind(), &own, &json!({ "text": "answer" })).await,
        Ok(json!({ "text": "ANSWER" }))
    );
    let request = server.received().remove(0);
    assert_eq!((request.path.as_str(), request.header("authorization")), ("/chat/completions", Some("Bearer sk-1")));
    let messages = json!([{ "role": "developer", "content": "shout" }, { "role": "user", "content": "answer" }]);
    assert_eq!(body(&request), json!({ "model": "gpt", "messages": messages }));

    let more = [
        ("temperature", "0.5"),
        ("top_p", "1"),
        ("n", "2"),
        ("max_tokens", "10"),
        ("max_completion_tokens", "20"),
        ("stop", "a,b"),
        ("presence_penalty", "-1.5"),
        ("frequency_penalty", "2"),
        ("seed", "42"),
        ("logit_bias.50256", "-100"),
        ("log_probs", "true"),
        ("top_log_probs", "3"),
        ("user", "u"),
        ("store", "false"),
        ("reasoning_effort", "low"),
        ("metadata.team", "docs"),
        ("stream", "true"),
        ("strict_output", "true"),
    ];
    let all: Vec<_> = own.into_iter().chain(more).collect();
    asked(&openai::textgen::kind(), &all, &json!({ "text": { "a": 1 } })).await.unwrap();
    let messages = json!([{ "role": "developer", "content": "shout" }, { "role": "user", "content": "{\"a\":1}" }]);
    assert_eq!(
        body(&server.received()[1]),
        json!({
            "model": "gpt", "messages": messages, "temperature": 0.5, "top_p": 1.0, "n": 2, "max_tokens": 10,
            "max_completion_tokens": 20, "stop": ["a", "b"], "presence_penalty": -1.5, "frequency_penalty": 2.0,
            "seed": 42, "logit_bias": { "50256": -100 }, "logprobs": true, "top_logprobs": 3, "user": "u",
            "store": false, "reasoning_effort": "low", "metadata": { "team": "docs" }
        })
    );
    let bad: Vec<_> = own.into_iter().chain([("logit_bias.word", "1")]).collect();
    assert_eq!(findings(&openai::textgen::kind(), &bad), ["logit_bias.word: \"word\" is not the number of a token"]);
}

#[tokio::test]
async fn textgen_refuses_answers_that_are_none() {
    for (reply, strict, why) in [
        (Reply::ok(r#"{"choices":[]}"#), "false", Some("it has no choice")),
        (
            Reply::ok(r#"{"choices":[{"message":{"content":null}}]}"#),
            "false",
            Some("there is no text at /message/content"),
        ),
        (
            Reply::ok(r#"{"choices":[{"message":{"refusal":"I will not"}}]}"#),
            "false",
            Some("the model refused to answer: I will not"),
        ),
        (completion("half", "length"), "true", Some("it was truncated: length")),
        (completion("half", "length"), "false", None),
        (Reply::ok("no JSON"), "false", Some("expected ident")),
    ] {
        let server = Server::start(move |_| reply.clone());
        let url = server.url();
        let settings = [
            ("api_key", "k"),
            ("model", "m"),
            ("developer_message", "d"),
            ("base_url", &*url),
            ("strict_output", strict),
        ];
        let found = asked(&openai::textgen::kind(), &settings, &json!({ "a": 1 })).await;
        match why {
            Some(why) => {
                let error = found.unwrap_err();
                assert!(error.starts_with("answer_unusable: ") && error.contains(why), "{error}");
            }
            None => assert_eq!(found, Ok(json!("aGFsZg=="))),
        }
    }
}

#[tokio::test]
async fn a_quota_is_waited_for_and_a_wrong_key_is_not() {
    let server = Server::start(|request| match request.number {
        0 => Reply::status(429, "").with("Retry-After", "0"),
        1 => Reply::status(502, ""),
        _ => completion("x", "stop"),
    });
    let url = server.url();
    let settings = [
        ("api_key", "k"),
        ("model", "m"),
        ("developer_message", "d"),
        ("base_url", &*url),
        ("initial_backoff", "1"),
        ("max_backoff", "2"),
    ];
    asked(&openai::textgen::kind(), &settings, &json!({ "a": 1 })).await.unwrap();
    assert_eq!(server.received().len(), 3);
    let refusing = Server::start(|_| Reply::status(401, "{\"error\":{\"message\":\"Incorrect API key\"}}"));
    let url = refusing.url();
    let settings = settings.map(|(name, value)| (name, if name == "base_url" { &*url } else { value }));
    let error = asked(&openai::textgen::kind(), &settings, &json!({ "a": 1 })).await.unwrap_err();
    assert!(error.starts_with("credentials_refused: ") && error.contains("Incorrect API key"), "{error}");
    assert_eq!(refusing.received().len(), 1);
}

#[tokio::test]
async fn cohere_command_fills_its_prompt() {
    let server = Server::start(|_| {
        let content = json!([{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "Paris" }]);
        Reply::ok(
            json!({ "id": "1", "finish_reason": "COMPLETE", "message": { "role": "assistant", "content": content } })
                .to_string(),
        )
    });
    let url = server.url();
    let settings = [
        ("apiKey", "k"),
        ("baseURL", &*url),
        ("prompt", "The capital of %s?"),
        ("request.body", ".Payload.After.country"),
        ("response.body", ".Payload.After.capital"),
    ];
    let found = asked(&cohere::command::kind(), &settings, &json!({ "country": "France" })).await;
    assert_eq!(found, Ok(json!({ "country": "France", "capital": "Paris" })));
    let request = server.received().remove(0);
    assert_eq!(request.path, "/v2/chat");
    let messages = json!([{ "role": "user", "content": "The capital of France?" }]);
    assert_eq!(body(&request), json!({ "model": "command", "stream": false, "messages": messages }));
    assert_eq!(
        findings(&cohere::command::kind(), &[("apiKey", "k"), ("prompt", "x")]),
        ["prompt: it has no %s for the text"]
    );
}

#[tokio::test]
async fn cohere_rerank_scores_the_rows_of_a_batch() {
    let server = Server::start(|_| {
        let result = |index, score| json!({ "index": index, "relevance_score": score });
        Reply::ok(json!({ "id": "1", "results": [result(1, 0.9), result(0, 0.1)] }).to_string())
    });
    let url = server.url();
    let settings = [
        ("apiKey", "k"),
        ("baseURL", &*url),
        ("query", "which?"),
        ("request.body", ".Payload.After.text"),
        ("response.body", ".Payload.After.score"),
    ];
    let rows = ["first", "", "second"].map(|text| match text {
        "" => row(&json!({ "other": 1 })),
        text => row(&json!({ "text": text })),
    });
    let found = waiting(&cohere::rerank::kind(), &settings, rows.to_vec(), Arc::new(DiscardingState)).await;
    let score = |found: &Result<Record, String>| {
        let record: Json = serde_json::from_str(&text(found.as_ref().unwrap())).unwrap();
        serde_json::from_str::<Json>(record["payload"]["after"]["score"].as_str().unwrap()).unwrap()
    };
    assert_eq!(score(&found[0]), json!({ "document": { "text": "first" }, "index": 0, "relevance_score": 0.1 }));
    assert_eq!(found[1], Err("field_missing: there is no text at .Payload.After.text".to_owned()));
    assert_eq!(score(&found[2]), json!({ "document": { "text": "second" }, "index": 1, "relevance_score": 0.9 }));
    let request = server.received().remove(0);
    assert_eq!(request.path, "/v2/rerank");
    assert_eq!(body(&request), json!({ "model": "rerank-v3.5", "query": "which?", "documents": ["first", "second"] }));

    // One result too many.
    let found =
        waiting(&cohere::rerank::kind(), &settings, vec![row(&json!({ "text": "x" }))], Arc::new(DiscardingState))
            .await;
    assert!(found[0].as_ref().unwrap_err().ends_with("it has 2 results for 1 document"), "{found:?}");
}

#[tokio::test]
async fn cohere_rerank_says_what_is_wrong_with_indexes() {
    for (indexes, why) in [([1, 1], "index 1 occurs twice"), ([0, 2], "index 2 is beyond the last of 2 documents")] {
        let results = indexes.map(|index| json!({ "index": index, "relevance_score": 0.5 }));
        let server = Server::start(move |_| Reply::ok(json!({ "results": results }).to_string()));
        let url = server.url();
        let settings = [
            ("apiKey", "k"),
            ("baseURL", &*url),
            ("query", "which?"),
            ("request.body", ".Payload.After.text"),
            ("response.body", ".Payload.After.score"),
        ];
        let rows = ["first", "second"].map(|text| row(&json!({ "text": text })));
        let found = waiting(&cohere::rerank::kind(), &settings, rows.to_vec(), Arc::new(DiscardingState)).await;
        assert!(found.iter().all(|row| row.as_ref().unwrap_err().ends_with(why)), "{found:?}");
    }
}

#[tokio::test]
async fn ollama_makes_another_record() {
    let server = Server::start(|_| Reply::ok(json!({ "response": "{\"b\": 2}", "done": true }).to_string()));
    let url = format!("{}/", server.url());
    let settings = [("url", &*url), ("prompt", "Add one and call it b.")];
    assert_eq!(asked(&ollama::kind(), &settings, &json!({ "a": 1 })).await, Ok(json!({ "b": 2 })));
    let request = server.received().remove(0);
    assert_eq!(request.path, "/api/generate");
    let body = body(&request);
    assert_eq!((&body["model"], &body["format"], &body["stream"]), (&json!("llama3.2"), &json!("json"), &json!(false)));
    let prompt = body["prompt"].as_str().unwrap();
    assert!(prompt.contains("Add one and call it b.") && prompt.contains("{\"a\":1}"), "{prompt}");

    for (answer, why) in [
        (json!({ "response": "{}", "done": false }), "it is not complete (`done` is not true)"),
        (json!({ "response": "[1]", "done": true }), "the answer of the model is not a JSON object: it is list"),
        (json!({ "response": "Sure!", "done": true }), "the answer of the model is not a JSON object: "),
        (json!({ "done": true }), "there is no text at /response"),
    ] {
        let server = Server::start(move |_| Reply::ok(answer.to_string()));
        let error = asked(&ollama::kind(), &[("url", &*server.url())], &json!({ "a": 1 })).await.unwrap_err();
        assert!(error.starts_with("answer_unusable: ") && error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn ollama_refuses_prompts_before_it_asks() {
    let server = Server::start(|_| Reply::ok(json!({ "response": "{}", "done": true }).to_string()));
    let url = server.url();
    let settings = [("url", &*url), ("prompt", "x")];
    let refused = asked(&ollama::kind(), &settings, &json!({ "a": "Drop TABLE users" })).await.unwrap_err();
    assert_eq!(refused, "prompt_refused: the prompt contains \"drop table\", which the setting `refuse` forbids");
    let refused = asked(&ollama::kind(), &settings, &json!({ "a": "x".repeat(5000) })).await.unwrap_err();
    assert!(refused.starts_with("prompt_refused: ") && refused.contains("maxPromptLength"), "{refused}");
    assert_eq!(server.received(), []);
    let settings = [("url", &*url), ("refuse", "none"), ("maxPromptLength", "10000")];
    asked(&ollama::kind(), &settings, &json!({ "a": "<script>".repeat(600) })).await.unwrap();
}

#[test]
fn one_request_at_a_time_is_one_worker() {
    let settings = [("url", "http://localhost:1"), ("request.concurrency", "1")];
    assert_eq!(configured(&ollama::kind(), &settings).unwrap().signature().max_workers, Some(1));
    assert_eq!(configured(&ollama::kind(), &settings[..1]).unwrap().signature().max_workers, None);
}
