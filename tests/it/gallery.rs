//! `pipelines init --template`: pipelines to start from.

use anabranch_ops_http::testing::{Reply, Server};
use serde_json::Value;

use crate::http::client::{exchange, request};
use crate::process::{Workspace, base64_decode};
use crate::servers::postgres::Database;

fn templates() -> Vec<Value> {
    let output = Workspace::new().run(&["pipelines", "init", "--template", "list", "--json"]).expect_code(0);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    report["result"]["templates"].as_array().unwrap().clone()
}

#[test]
#[cfg(all(feature = "ai", feature = "http", feature = "js", feature = "kafka", feature = "postgres", feature = "s3"))]
fn every_template_is_valid_where_it_is_written() {
    for template in templates() {
        let name = template["name"].as_str().unwrap();
        let mut workspace = Workspace::new();
        let written = workspace.run(&["pipelines", "init", "--template", name]).expect_code(0).stdout;
        let variables = template["variables"].as_array().unwrap();
        for variable in variables.iter().map(|variable| variable.as_str().unwrap()) {
            assert!(written.contains(variable), "{name}: {written}");
            let value = match variable {
                "SOURCE_POSTGRES_URL" => "postgresql://u@localhost/d",
                "POSTGRES_URL" => "postgresql://u@localhost/other",
                "S3_BUCKET" => "lake",
                "KAFKA_SERVERS" => "localhost:9092",
                _ => "http://x",
            };
            workspace.env(variable, value);
        }
        let flag: &[&str] = if template["splits"] == true { &["--preview.pipeline-arch-v2"] } else { &[] };
        let output = workspace.run(&[&["pipelines", "lint", "--strict"], flag].concat());
        assert_eq!(output.code(), Some(0), "{name}: {}", output.both());
    }
}

#[test]
fn a_template_runs_under_a_name_of_its_own() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init", "shop", "--template", "json-lines"]).expect_code(0);
    workspace.write("events.ndjson", "{\"kind\":\"view\"}\n{\"kind\":\"purchase\",\"n\":1}\nnot JSON\n");
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(workspace.lines("purchases.ndjson"), ["{\"kind\":\"purchase\",\"n\":1}"]);
    let failed = workspace.lines("failed.ndjson");
    assert_eq!(failed.len(), 1);
    let letter: Value = serde_json::from_str(&failed[0]).unwrap();
    let line = base64_decode(letter["payload"]["after"]["payload"]["after"].as_str().unwrap());
    assert_eq!(String::from_utf8(line).unwrap(), "not JSON");
    let listed = workspace.run(&["pipelines", "list"]).expect_code(0).stdout;
    assert!(listed.contains("shop"), "{listed}");
}

#[test]
fn branches_get_what_is_theirs() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init", "--template", "branching"]).expect_code(0);
    workspace.write("payments.ndjson", "{\"amount\":5}\n{\"amount\":5000}\n{\"amount\":-1}\n");
    workspace.run(&["run", "--once"]).expect_code(0);
    let amounts = |file: &str| -> Vec<i64> {
        let records = workspace.lines(file);
        let amount =
            |line: &String| serde_json::from_str::<Value>(line).unwrap()["payload"]["after"]["amount"].as_i64();
        records.iter().map(|line| amount(line).unwrap()).collect()
    };
    assert_eq!((amounts("small.ndjson"), amounts("large.ndjson")), (vec![5], vec![5000]));
    assert_eq!(workspace.lines("failed.ndjson").len(), 1);
}

/// The values of a field of the JSON in the lines of a file, as text.
fn values(workspace: &Workspace, file: &str, field: &str) -> Vec<String> {
    let value = |line: &String| serde_json::from_str::<Value>(line).unwrap()[field].to_string();
    workspace.lines(file).iter().map(value).collect()
}

#[test]
fn an_access_log_is_split_and_masked() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init", "--template", "access-log"]).expect_code(0);
    let line = |status: u16| format!("203.0.113.7 - ada [01/Mar/2026:09:30:00 +0000] \"GET / HTTP/1.1\" {status} 5\n");
    workspace.write("access.log", format!("{}{}no request\n", line(200), line(404)));
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(values(&workspace, "requests.ndjson", "status"), ["200"]);
    assert_eq!(values(&workspace, "errors.ndjson", "status"), ["404"]);
    assert_eq!(values(&workspace, "errors.ndjson", "address"), ["\"203.0.113.0\""]);
    assert_eq!(values(&workspace, "errors.ndjson", "user"), ["\"a**\""]);
    assert_eq!(workspace.lines("unparsed.ndjson").len(), 1);
}

#[test]
fn wrong_rows_of_a_csv_file_are_kept_with_their_lines() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init", "--template", "csv-dead-letters"]).expect_code(0);
    let rows = "id,customer,amount,ordered_at\n1,\"Lovelace, Ada\",12.5,2026-03-01T09:30:00Z\n\
                2,Noether,0,2026-03-01T09:30:00Z\nthree,Hopper,1,2026-03-01T09:30:00Z\n";
    workspace.write("orders.csv", rows);
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(values(&workspace, "orders.ndjson", "customer"), ["\"Lovelace, Ada\""]);
    assert_eq!(values(&workspace, "orders.ndjson", "amount"), ["12.5"]);
    let mut wrong: Vec<(String, String)> =
        std::iter::zip(values(&workspace, "rejected.ndjson", "line"), values(&workspace, "rejected.ndjson", "reason"))
            .collect();
    wrong.sort();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].0 == "3" && wrong[0].1.contains("the amount 0 is not positive"), "{wrong:?}");
    assert!(wrong[1].0 == "4" && wrong[1].1.contains("is not an integer"), "{wrong:?}");
}

#[test]
fn the_pages_of_an_api_become_rows() {
    let Some(database) = Database::create() else { return };
    let api = Server::start(|request| match request.path.as_str() {
        path if path.contains("updated_since=") => Reply::ok(r#"{"data":[]}"#),
        path if path.contains("cursor=more") => Reply::ok(r#"{"data":[{"id":2,"updated_at":"2026-03-02"}]}"#),
        _ => Reply::ok(r#"{"data":[{"id":1,"updated_at":"2026-03-01"}],"next":"more"}"#),
    });
    let mut workspace = Workspace::new();
    workspace.env("API_URL", &format!("{}/orders", api.url()));
    workspace.env("API_TOKEN", "a-token");
    workspace.env("POSTGRES_URL", &database.url());
    workspace.run(&["pipelines", "init", "--template", "api-to-postgres"]).expect_code(0);
    workspace.once();
    let rows = || database.query("SELECT id, updated_at FROM orders ORDER BY id");
    assert_eq!(rows(), ["1|2026-03-01", "2|2026-03-02"]);
    assert!(api.received().iter().all(|request| request.header("authorization") == Some("Bearer a-token")));
    workspace.once();
    assert!(api.received().iter().any(|request| request.path.contains("updated_since=2026-03-02")));
    assert_eq!(rows().len(), 2);
}

#[test]
fn webhooks_with_a_signature_become_rows() {
    let Some(database) = Database::create() else { return };
    let mut workspace = Workspace::new();
    workspace.env("WEBHOOK_SECRET", "It's a Secret to Everybody");
    workspace.env("POSTGRES_URL", &database.url());
    workspace.run(&["pipelines", "init", "--template", "webhooks-to-postgres"]).expect_code(0);
    let file = "pipelines/webhooks-to-postgres.yaml";
    // Another program may listen on the port of the template.
    let text = workspace.read(file);
    assert!(text.contains("address: 127.0.0.1:8090"), "{text}");
    workspace.replace(file, text.replace("127.0.0.1:8090", "127.0.0.1:0"));
    let mut service = workspace.start(&["run"]);
    let address = service.address_after("records are received at http://");
    // Printed by: openssl dgst -sha256 -hmac "It's a Secret to Everybody"
    let body = r#"{"ref":"refs/heads/main"}"#;
    let signature = "sha256=6a42699496d8c4fb346af1c930df527931a321e28ada69dbc5ee82f438517fd2";
    let send = |body: &str| {
        let headers = [("X-Hub-Signature-256", signature), ("X-GitHub-Delivery", "d-1"), ("X-GitHub-Event", "push")];
        exchange(address, &request("POST", "/hooks/shop", &headers, body.as_bytes())).unwrap().status
    };
    assert_eq!(send(r#"{"ref":"refs/heads/other"}"#), 401);
    assert_eq!((send(body), send(body)), (200, 200));
    let rows = database.query("SELECT delivery, event, body FROM webhooks");
    assert_eq!(rows, [format!("d-1|push|{body}")]);
}

#[test]
fn what_there_is_not_is_said() {
    let workspace = Workspace::new();
    let text = workspace.run(&["pipelines", "init", "--template", "json-line"]).expect_code(2).stderr;
    assert!(text.contains("did you mean json-lines?"), "{text}");
    let both = ["pipelines", "init", "--template", "json-lines", "--source", "file"];
    assert_eq!(workspace.run(&both).code(), Some(2));
    workspace.run(&["pipelines", "init", "--template", "json-lines"]).expect_code(0);
    workspace.run(&["pipelines", "init", "--template", "json-lines"]).expect_code(2);
    assert!(!templates().is_empty());
}
