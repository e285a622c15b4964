//! Credentials in the settings of taps: they are masked wherever settings are shown, and the linter finds them.

use super::scripted::{record, schema, script};
use crate::api::get;

const SETTINGS: &str = r#"          environment.API_TOKEN: literal-1
          config.password: literal-2
          config.bearer_token: literal-3
          config.api_key: literal-4
          config.client_secret: literal-5
          config.auth.refresh_token: literal-6
          config.private_key: literal-7
          config.connection: postgres://u:literal-8@h/d
          config.creds: '{"password": "literal-9"}'
          config.access_token: "literal-10${PART}"
          config.host: db.example.com
          stopTimeout: 100ms
"#;

#[test]
fn credentials_are_known_by_their_names() {
    let mut workspace = script(&[schema(""), record("\"id\": 1"), "!wait\n".to_owned()].concat(), SETTINGS);
    let text =
        workspace.read("pipelines/p.yaml").replace("arguments: tap.py", "arguments: tap.py --loud --token=literal-0");
    workspace.write("pipelines/p.yaml", text);
    // The excerpt of a variable that is not set shows its line.
    let unset = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(unset.contains("PART is not set") && !unset.contains("literal-10"), "{unset}");
    workspace.env("PART", "of-a-variable");
    let plan = workspace.run(&["pipelines", "plan"]).expect_code(0);
    let json = workspace.run(&["pipelines", "plan", "--format", "json"]).expect_code(0);
    assert!(plan.stdout.contains("***${PART}") && plan.stdout.contains("db.example.com"), "{}", plan.stdout);
    let lint = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
    assert_eq!(lint.matches("plan.literal_secret").count(), 11, "{lint}");
    let repeats = "a crash repeats all records after the last STATE message of the tap";
    assert!(plan.stdout.contains(repeats), "{}", plan.stdout);
    let mut service = workspace.start(&["run", "--api.http.address=127.0.0.1:0"]);
    let address = service.address();
    let shown: Vec<String> =
        ["/v1/connectors", "/v1/connectors/p:in", "/v1/pipelines/p/graph"].map(|path| get(address, path).body).into();
    service.wait_until("the record", || workspace.lines("out.ndjson").len() == 1);
    service.signal("INT");
    let log = service.finish().both();
    assert!(shown[1].contains("db.example.com"), "{}", shown[1]);
    for text in [plan.both(), json.both(), lint, log].into_iter().chain(shown) {
        assert!(!text.contains("literal-"), "{text}");
    }
}
