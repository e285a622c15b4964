//! What is asked of a queue: which letters are listed, what is said where none is, and records that are given back.

use serde_json::{Value, json};

use super::{after_run, arrived, dlq, json, numbers, pipeline};
use crate::api::get;
use crate::process::{Workspace, numbered_lines};

#[test]
fn what_show_prints_can_be_given_back() {
    let workspace = after_run(20, "");
    let shown = workspace.run(&["dlq", "show", "orders", "1", "--json"]).expect_code(0).stdout;
    workspace.write("record.json", shown.replace("bGluZSA3", "bWVuZGVk"));
    dlq(&workspace, &["replay", "orders", "1", "--edit", "record.json"], 0);
    assert_eq!(arrived(&workspace).get("mended"), Some(&1));
    assert_eq!(numbers(&dlq(&workspace, &["list", "orders"], 0)), [2]);

    // A mistake is shown where it stands in the whole text.
    let shown =
        "{\n  \"command\": \"dlq.show\",\n  \"result\": {\n    \"record\": {\"operation\": \"creat\"}\n  }\n}\n";
    workspace.write("record.json", shown);
    let refused = dlq(&workspace, &["replay", "orders", "2", "--edit", "record.json"], 2);
    assert_eq!(refused["error"]["code"], "dead_letter.invalid_record");
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("record.json:4:"), "{refused}");
    // The report of a `show` that failed holds no record.
    workspace.write("record.json", json!({ "command": "dlq.show", "result": null }).to_string());
    assert_eq!(
        dlq(&workspace, &["replay", "orders", "2", "--edit", "record.json"], 2)["error"]["code"],
        "dead_letter.invalid_record"
    );
}

#[test]
fn a_condition_that_gives_no_verdict_is_told() {
    let workspace = after_run(100, "");
    for never in ["hello", "{{ 2 }}", " ", "{{ .Key }}"] {
        let refused = dlq(&workspace, &["list", "orders", "--where", never], 2);
        assert_eq!(refused["error"]["code"], "plan.condition_fails", "{never}: {refused}");
        assert!(refused["error"]["suggestion"].as_str().unwrap().contains("true or false"), "{refused}");
    }
    for (condition, code) in
        [("{{ .Metadata.a }}", "condition_not_boolean"), (r#"{{ eq .Payload.After.x "1" }}"#, "condition_failed")]
    {
        let page = dlq(&workspace, &["list", "orders", "--where", condition], 0);
        assert_eq!((numbers(&page), &page["summary"]["unjudged"]), (vec![], &10.into()), "{condition}: {page}");
        assert_eq!((&page["unjudged"]["count"], &page["unjudged"]["error"]["code"]), (&10.into(), &code.into()));
        let cause = page["unjudged"]["error"]["message"].as_str().unwrap();
        let text = workspace.run(&["dlq", "list", "orders", "--where", condition]).expect_code(0).stdout;
        let said = format!("0 of 10 dead letters.\nThe condition failed for 10 dead letters: {cause}\n");
        assert_eq!(text, said);
    }
    // It fails on one letter, and chooses another.
    let some = r#"{{ if hasSuffix "17" (printf "%s" .Payload.After) }}true{{ else if hasSuffix "27" (printf "%s" .Payload.After) }}maybe{{ else }}false{{ end }}"#;
    let page = dlq(&workspace, &["list", "orders", "--where", some], 0);
    assert_eq!((numbers(&page), &page["unjudged"]["count"]), (vec![2], &1.into()), "{page}");
    let text = workspace.run(&["dlq", "list", "orders", "--where", some]).expect_code(0).stdout;
    assert!(
        text.contains("1 of 10 dead letters.\nThe condition failed for 1 dead letter: the condition printed \"maybe\""),
        "{text}"
    );
    // A step that is not reached is not judged.
    let page = dlq(&workspace, &["list", "orders", "--where", "{{ .Metadata.a }}", "--node", "touch"], 0);
    assert_eq!((&page["unjudged"], &page["summary"]["unjudged"]), (&Value::Null, &0.into()));
}

#[test]
fn a_node_without_letters_is_told_from_those_that_have_some() {
    let workspace = after_run(20, "");
    let page = dlq(&workspace, &["list", "orders", "--node", "nope"], 0);
    assert_eq!((numbers(&page), &page["nodes"]), (vec![], &json!(["fail"])));
    let text = workspace.run(&["dlq", "list", "orders", "--node", "nope"]).expect_code(0).stdout;
    assert_eq!(text, "0 of 2 dead letters.\nNo dead letter failed at nope; dead letters failed at fail.\n");
    // There are letters of this one, and the condition holds for none.
    let page = dlq(&workspace, &["list", "orders", "--node", "fail", "--where", "{{ false }}"], 0);
    assert_eq!((numbers(&page), &page["nodes"]), (vec![], &Value::Null));
    dlq(&workspace, &["purge", "orders", "--all", "--yes"], 0);
    let text = workspace.run(&["dlq", "list", "orders", "--node", "nope"]).expect_code(0).stdout;
    assert_eq!(text, "Pipeline orders has no dead letters.\n");
}

#[test]
fn what_is_asked_over_http_is_understood_or_refused() {
    const LETTERS: &str = "/v1/pipelines/orders/dead-letters";
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(20));
    workspace.write("pipelines/p.yaml", pipeline("7", ""));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("two letters", || get(address, LETTERS).json()["count"] == 2);
    for (query, said) in [
        ("limit=abc", "limit: \"abc\" is not a whole number from 0 to 18446744073709551615"),
        ("limit=-1", "limit: \"-1\" is not a whole number"),
        ("limit=1.5", "limit: \"1.5\" is not a whole number"),
        ("before=x", "before: \"x\" is not a whole number"),
        ("sinceNanos=yesterday", "sinceNanos: \"yesterday\" is not a whole number"),
        ("sinceNanos=99999999999999999999", "sinceNanos: \"99999999999999999999\" is not a whole number"),
    ] {
        let answer = get(address, &format!("{LETTERS}?{query}"));
        assert_eq!((answer.status, answer.reason().as_str()), (400, "api.malformed_request"), "{query}");
        assert!(answer.json()["message"].as_str().unwrap().starts_with(said), "{query}: {}", answer.body);
    }
    let of = |query: &str| numbers(&get(address, &format!("{LETTERS}?{query}")).json());
    assert_eq!(of("limit=0"), [0; 0]);
    assert_eq!(of("before=0"), [0; 0]);
    assert_eq!(of("limit=&before=&sinceNanos=0&where=%20"), [2, 1], "what is empty is not given");
    assert_eq!(of("limit=5000"), [2, 1]);

    let never = get(address, &format!("{LETTERS}?where=hello"));
    assert_eq!((never.status, never.reason().as_str()), (400, "plan.condition_fails"), "{}", never.body);
    assert!(never.json()["details"][0]["metadata"]["suggestion"].is_string(), "{}", never.body);
    let page = get(address, &format!("{LETTERS}?where=%7B%7B%20.Metadata.a%20%7D%7D")).json();
    assert_eq!((numbers(&page), &page["unjudged"]["count"]), (vec![], &2.into()), "{page}");
    let page = get(address, &format!("{LETTERS}?node=nope")).json();
    assert_eq!((numbers(&page), &page["nodes"]), (vec![], &json!(["fail"])), "{page}");
    // A page below some number says nothing of the letters above.
    assert_eq!(get(address, &format!("{LETTERS}?node=nope&before=2")).json()["nodes"], Value::Null);

    let document = get(address, "/openapi.json").json();
    let list = &document["paths"]["/v1/pipelines/{id}/dead-letters"]["get"]["responses"]["400"];
    let said = list["description"].as_str().unwrap();
    assert!(said.contains("api.malformed_request") && said.contains("plan.condition_fails"), "{said}");

    // The commands say the same of the letters of a service.
    let flag = format!("--api.http.address={address}");
    let page = dlq(&workspace, &["list", "orders", "--where", "{{ .Metadata.a }}", &flag], 0);
    assert_eq!(page["unjudged"]["count"], 2);
    let text = workspace.run(&["dlq", "list", "orders", "--node", "nope", &flag]).expect_code(0).stdout;
    assert!(text.contains("letters failed at fail"), "{text}");
    let shown = workspace.run(&["dlq", "show", "orders", "1", "--json", &flag]).expect_code(0);
    assert_eq!(json(&shown)["command"], "dlq.show");
    workspace.write("record.json", shown.stdout.replace("bGluZSA3", "bWVuZGVk"));
    dlq(&workspace, &["replay", "orders", "1", "--edit", "record.json", &flag], 0);
    assert_eq!(arrived(&workspace).get("mended"), Some(&1));
    process.signal("TERM");
    process.finish().expect_code(0);
}
