//! A credential wherever one can stand, each its own: none is in anything that the program says, to anybody.

use std::collections::BTreeMap;

use anabranch_ops_http::testing::{Reply, Server};
use serde_json::json;

use crate::api::{ask, end, get};
use crate::mcp::{asked, call};
use crate::process::{Workspace, file_to_file};
use crate::ui::browse_with;

/// Secrets, by the place in which they are configured.
const SECRETS: [(&str, &str); 19] = [
    ("literal header", "hidden-header-1f0c"),
    ("header from a variable", "hidden-cookie-2a9b"),
    ("header from a file", "hidden-apikey-3d7e"),
    ("address of a service", "hidden-userinfo-4c21"),
    ("variable in a setting that holds no credentials", "hidden-variable-5e88"),
    ("part of a path", "hidden-path-6b13"),
    ("key of a model", "hidden-model-7aa4"),
    ("password of a database", "hidden-database-8f56"),
    ("address of a database that is none", "hidden-malformed-9c30"),
    ("key id of a store of objects", "hidden-keyid-a1d2"),
    ("key of a store of objects", "hidden-objects-b7e9"),
    ("session of a store of objects", "hidden-session-c460"),
    ("dead-letter queue", "hidden-letters-d5f1"),
    ("number that is none", "hidden-number-e82c"),
    ("token of the API", "hidden-token-f39a"),
    ("state store", "hidden-state-0b67"),
    ("schema registry", "hidden-registry-12ce"),
    ("what would be applied", "hidden-applied-29d8"),
    ("line of a slip of the pen", "hidden-slip-3bf5"),
];

fn secret(place: &str) -> &'static str {
    SECRETS.iter().find(|(name, _)| *name == place).unwrap_or_else(|| panic!("{place}")).1
}

/// A pipeline that runs and whose every record fails, at a service that tells everything that it was asked.
fn hooks(address: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: hooks
    connectors:
      - {{ id: in, type: source, plugin: generator, settings: {{ rate: "20", format.type: raw, format.options.id: int }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - id: hook
        plugin: webhook.http
        settings:
          request.url: http://me:{userinfo}@{address}/
          headers.Authorization: Bearer {header}
          headers.Cookie: session=${{COOKIE}}
          headers.X-API-Key: '${{file:key.txt}}'
          headers.X-Plain: ${{VARIABLE}}
      - id: ask
        plugin: openai.textgen
        condition: '{{{{ eq .Metadata.none "z" }}}}'
        settings: {{ api_key: {model}, developer_message: say, model: m }}
    dead-letter-queue: {{ plugin: store, window-size: 0 }}
"#,
        userinfo = secret("address of a service"),
        header = secret("literal header"),
        model = secret("key of a model"),
    )
}

/// Pipelines that cannot do their work, each in another way.
fn failing() -> BTreeMap<&'static str, String> {
    let from_file = |id: &str, destination: &str| {
        format!(
            "version: \"2.2\"\npipelines:\n  - id: {id}\n    connectors:\n      \
             - {{ id: in, type: source, plugin: generator, settings: {{ rate: \"5\", format.type: structured, format.options.id: int }} }}\n      \
             - {{ id: out, type: destination, {destination} }}\n"
        )
    };
    let database = secret("password of a database");
    let objects = format!(
        "plugin: s3, settings: {{ objstore.bucket: b, objstore.region: r, objstore.endpoint: 'http://127.0.0.1:1', \
         objstore.access_key_id: {}, objstore.secret_access_key: {}, objstore.session_token: {} }}",
        secret("key id of a store of objects"),
        secret("key of a store of objects"),
        secret("session of a store of objects"),
    );
    let queue = format!(
        "    dead-letter-queue:\n      plugin: postgres\n      settings: {{ url: 'postgres://me:{}@127.0.0.1:1/db', table: t }}\n      window-size: 0\n",
        secret("dead-letter queue")
    );
    let slip = format!(
        "    processors:\n      - {{ id: ask, plugin: openai.textgen, settings: {{ api_key: {}, developer_mesage: say, model: m }} }}\n",
        secret("line of a slip of the pen")
    );
    BTreeMap::from([
        ("slip", from_file("slip", "plugin: file, settings: { path: s.ndjson }") + &slip),
        (
            "database",
            from_file(
                "database",
                &format!("plugin: postgres, settings: {{ url: 'postgres://me:{database}@127.0.0.1:1/db', table: t }}"),
            ),
        ),
        ("objects", from_file("objects", &objects)),
        ("queue", from_file("queue", "plugin: file, settings: { path: q.ndjson }") + &queue),
        ("place", from_file("place", "plugin: file, settings: { path: 'missing-${PLACE}/out' }")),
        (
            "malformed",
            from_file(
                "malformed",
                &format!(
                    "plugin: postgres, settings: {{ url: 'postgres://me:{}@127.0.0.1:no/db', table: t }}",
                    secret("address of a database that is none")
                ),
            ),
        ),
        ("number", from_file("number", "plugin: file, settings: { path: n.ndjson, sdk.batch.size: '${NUMBER}' }")),
    ])
}

/// Everything that was said, by who said it.
#[derive(Default)]
struct Said(Vec<(String, String)>);

impl Said {
    fn add(&mut self, by: impl Into<String>, text: impl Into<String>) {
        self.0.push((by.into(), text.into()));
    }

    /// Fails for everything in which a secret is.
    fn check(&self) {
        let mut told = Vec::new();
        for (by, text) in &self.0 {
            for (place, value) in SECRETS {
                if let Some(at) = text.find(value) {
                    let from = text[..at].char_indices().rev().nth(60).map_or(0, |(at, _)| at);
                    told.push(format!("{by} tells the {place}: …{}", &text[from..at + value.len()]));
                }
            }
        }
        told.dedup();
        assert!(told.is_empty(), "{told:#?}");
    }
}

fn workspace() -> Workspace {
    let mut workspace = Workspace::new();
    for (name, place) in [
        ("COOKIE", "header from a variable"),
        ("VARIABLE", "variable in a setting that holds no credentials"),
        ("PLACE", "part of a path"),
        ("NUMBER", "number that is none"),
        ("ANABRANCH_API_HTTP_TOKEN", "token of the API"),
        ("ANABRANCH_SCHEMA_REGISTRY_CONFLUENT_AUTH_BASIC_PASSWORD", "schema registry"),
    ] {
        workspace.env(name, secret(place));
    }
    let state = format!("postgres://me:{}@127.0.0.1:1/db", secret("state store"));
    workspace.env("ANABRANCH_DB_POSTGRES_CONNECTION_STRING", &state);
    workspace.write("key.txt", format!("{}\n", secret("header from a file")));
    workspace
}

#[test]
fn a_secret_is_told_to_nobody() {
    let server = Server::start(|request| {
        let headers: Vec<String> = request.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        Reply::status(422, format!("not with {}", headers.join(", ")))
    });
    let mut workspace = workspace();
    workspace.write("pipelines/hooks.yaml", hooks(&server.address().to_string()));
    for (id, text) in failing() {
        workspace.write(&format!("pipelines/{id}.yaml"), text);
    }
    let mut said = Said::default();
    let mut service = workspace.start(&["run", "--log.level=trace"]);
    let address = service.address();
    let token = format!("Authorization: Bearer {}\r\n", secret("token of the API"));
    let read = |path: &str| ask(address, "GET", path, &token, "");
    service.wait_until("letters", || {
        let letters = read("/v1/pipelines/hooks/dead-letters");
        letters.status == 200 && letters.json()["count"].as_u64().unwrap_or_default() > 3
    });
    // Those that are tried again and those that are not.
    service.wait_until("the others to fail", || {
        let live = read("/v1/live").json();
        let failed = live["pipelines"].as_array().unwrap().iter().filter(|it| it["status"]["error"].is_string());
        failed.count() >= 5
    });

    let document = get(address, "/openapi.json").json();
    let ids = [
        "hooks",
        "database",
        "objects",
        "queue",
        "place",
        "malformed",
        "number",
        "hooks:hook",
        "hooks:ask",
        "hooks:in",
        "hooks:out",
        "database:out",
        "objects:out",
        "place:out",
        "number:out",
        "1",
    ];
    let mut answered = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        // Websockets go on for ever.
        if !item["get"].is_object() || item["get"]["responses"]["101"].is_object() {
            continue;
        }
        for id in ids {
            let asked = path.replace("{id}", id).replace("{number}", "1").replace("{name}", id);
            for asked in
                [&asked, &format!("{asked}?pretty"), &format!("{asked}?format=json"), &format!("{asked}?format=svg")]
            {
                let answer = read(asked);
                answered += usize::from(answer.status == 200);
                said.add(format!("GET {asked}"), answer.body);
            }
            if !path.contains('{') {
                break;
            }
        }
    }
    assert!(answered > 60, "{answered}");

    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &address.to_string());
    let applied =
        hooks(&server.address().to_string()).replace(secret("literal header"), secret("what would be applied"));
    workspace.write("applied.yaml", &applied);
    let tests = "tests:\n  - name: t\n    input: [a]\n    expect: { records: [] }\n";
    workspace.write("applied.test.yaml", tests);
    let files = ["hooks", "database", "objects", "queue", "place", "malformed", "number", "slip"]
        .map(|id| format!("pipelines/{id}.yaml"));
    let mut lines: Vec<Vec<&str>> = vec![
        vec!["pipelines", "list"],
        vec!["config"],
        vec!["doctor", "--deep"],
        vec!["dlq", "list", "hooks"],
        vec!["dlq", "show", "hooks", "1"],
        vec!["dlq", "replay", "hooks", "1"],
        vec!["positions", "show", "hooks"],
        vec!["pipelines", "inspect", "hooks", "--limit", "2"],
        vec!["pipelines", "inspect", "hooks", "--at", "dead-letter-queue", "--limit", "2"],
        vec!["pipelines", "apply", "applied.yaml"],
        vec!["pipelines", "test", "applied.test.yaml"],
    ];
    for id in &ids[..7] {
        lines.push(vec!["pipelines", "describe", id]);
    }
    for file in &files {
        for command in ["validate", "lint", "dry-run"] {
            lines.push(vec!["pipelines", command, file]);
        }
        for stage in ["lowered", "rewritten", "fused"] {
            for format in ["text", "dot", "mermaid", "json", "svg", "html"] {
                lines.push(vec!["pipelines", "plan", file, "--stage", stage, "--format", format]);
            }
        }
    }
    for line in lines {
        for form in [None, Some("--json")] {
            let line: Vec<&str> = line.iter().copied().chain(form).collect();
            let output = workspace.run(&line);
            assert!(!output.both().contains("unexpected argument"), "{line:?}: {}", output.both());
            said.add(line.join(" "), output.both());
        }
    }

    let [malformed, slip] = ["malformed", "slip"].map(|id| failing()[id].clone());
    let mut calls: Vec<_> = [
        ("pipelines_list", json!({})),
        ("doctor", json!({})),
        ("inspect", json!({ "id": "hooks", "records": 2 })),
        ("positions_show", json!({ "id": "hooks" })),
        ("dead_letters_list", json!({ "id": "hooks" })),
        ("dead_letters_show", json!({ "id": "hooks", "number": 1 })),
        ("apply_preview", json!({ "config": applied })),
        ("test", json!({ "config": applied, "tests": tests })),
    ]
    .iter()
    .map(|(name, arguments)| call(name, arguments))
    .collect();
    calls.extend(ids[..7].iter().map(|id| call("pipelines_describe", &json!({ "id": id }))));
    for config in [&applied, &malformed, &slip] {
        let of_text = ["validate", "lint", "plan", "dry_run"];
        calls.extend(of_text.map(|name| call(name, &json!({ "config": config }))));
    }
    let answers = asked(&workspace, &[], &calls);
    for ((_, asked), answer) in calls.iter().zip(answers) {
        assert!(answer["error"].is_null(), "{answer}");
        said.add(format!("MCP {}", asked["name"]), answer["result"]["structuredContent"].to_string());
    }

    said.check();

    // First what the page is told, then all.
    let hidden: Vec<&str> = [secret("token of the API")].into_iter().chain(SECRETS.map(|(_, value)| value)).collect();
    browse_with("secrets", &hidden, &mut service, &workspace);

    service.signal("TERM");
    said.add("the log", service.finish().both());
    said.check();
}

/// An error of the state store, which a start opens first, does not contain its password.
#[test]
fn a_state_store_that_is_not_there_keeps_its_password() {
    let workspace = workspace();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut said = Said::default();
    for line in [
        &["run", "--db.type=postgres", "--log.level=trace"][..],
        &["doctor", "--deep", "--db.type=postgres"],
        &["pipelines", "list", "--db.type=postgres", "--api.enabled=false"],
        &["dlq", "list", "p", "--db.type=postgres", "--api.enabled=false"],
        &["config", "--db.type=postgres"],
        &[
            "run",
            "--db.type=postgres",
            "--db.postgres.connection-string=postgres://me:hidden-state-0b67@127.0.0.1:no/db",
        ],
    ] {
        let output = workspace.run(line);
        said.add(line.join(" "), output.both());
    }
    said.check();
}

#[test]
fn a_websocket_tells_no_secret_either() {
    let mut workspace = workspace();
    workspace.env("VARIABLE", "plain");
    workspace.write("pipelines/place.yaml", &failing()["place"]);
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    let token = format!("Authorization: Bearer {}\r\n", secret("token of the API"));
    service.wait_until("its failure", || {
        let live = ask(address, "GET", "/v1/live", &token, "").json();
        live["pipelines"][0]["status"]["error"].is_string()
    });
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &address.to_string());
    // It says first of all how the pipeline is, and with what error.
    let mut watch = workspace.start(&["pipelines", "inspect", "place"]);
    let printed = watch.printed();
    watch.wait_until("the status", || printed().contains("missing-"));
    let mut said = Said::default();
    said.add("inspect", printed());
    said.check();
    end(service);
}

/// A pipeline is copied into the store as it is written: a credential in it is said to be copied, a reference is not.
#[test]
#[cfg(feature = "postgres")]
fn a_credential_in_plain_text_is_warned_of() {
    let mut workspace = Workspace::new();
    workspace.env("DB_PASSWORD", "hunter22");
    workspace.write("in.txt", "one\n");
    let validated = |url: &str| {
        let there = "        plugin: file\n        settings:\n          path: out.ndjson\n";
        let here =
            format!("        plugin: postgres\n        settings:\n          url: \"{url}\"\n          table: t\n");
        let text = file_to_file("p", "").replace(there, &here);
        assert!(text.contains("plugin: postgres"), "{text}");
        workspace.write("pipelines/p.yaml", text);
        workspace.run(&["pipelines", "validate"]).both()
    };
    let plain = validated("postgresql://u:hunter22@h/d");
    assert!(plain.contains("plain text") && plain.contains("${file:") && !plain.contains("hunter22"), "{plain}");
    for reference in ["postgresql://u:${DB_PASSWORD}@h/d", "postgresql://u@h/d"] {
        let text = validated(reference);
        assert!(!text.contains("plain text"), "{text}");
    }
}
