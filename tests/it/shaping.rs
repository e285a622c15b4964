//! The processors that parse and shape records, in pipelines from CSV to CSV.

use std::collections::BTreeMap;

use crate::process::Workspace;

const SHAPED: &str = r#"
version: "2.2"
pipelines:
  - id: shaped
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.csv, framing: csv } }
      - id: out
        type: destination
        plugin: file
        settings: { path: out.csv, header: "id,verb,user,at,mail,from,country", sdk.record.format: recfmt/raw }
    processors:
      - id: rows
        plugin: csv.decode
        settings: { field: .Payload.After, columns: "id:int", header: '.Metadata["file.header"]' }
      - { id: local, plugin: time.parse, settings: { field: .Payload.After.at, layout: "%Y-%m-%d %H:%M", zone: Europe/Berlin } }
      - { id: day, plugin: time.format, settings: { field: .Payload.After.at, layout: "02/01/2006 15:04" } }
      - { id: line, plugin: grok.parse, settings: { field: .Payload.After.line, pattern: "%{WORD:verb} %{GREEDYDATA:pairs}" } }
      - { id: pairs, plugin: keyvalue.parse, settings: { field: .Payload.After.line.pairs } }
      - { id: flat, plugin: field.flatten, settings: { field: .Payload.After, separator: _ } }
      - { id: mail, plugin: field.hash, settings: { field: .Payload.After.mail } }
      - { id: from, plugin: field.mask, settings: { field: .Payload.After.line_pairs_from, kind: ip } }
      - { id: country, plugin: field.default, settings: { field: .Payload.After.line_pairs_country, value: DE } }
      - id: row
        plugin: csv.encode
        settings:
          field: .Payload.After
          columns: id,line_verb,line_pairs_user,at,mail,line_pairs_from,line_pairs_country
    dead-letter-queue: { plugin: file, window-size: 0, settings: { path: letters.ndjson } }
"#;

#[test]
fn rows_are_parsed_shaped_and_written_as_rows() {
    let workspace = Workspace::new();
    let rows = [
        "mail,id,at,line",
        "ann@example.org,1,2026-11-28 10:30,GET user=ann from=192.0.2.17",
        "\"\",2,2026-07-01 00:15,\"PUT user=\"\"bob, b.\"\" from=2001:db8::1 country=FR\"",
        "carl@example.org,three,2026-11-28 10:30,GET user=carl from=192.0.2.17",
        "dora@example.org,4,tomorrow,GET user=dora from=192.0.2.17",
    ];
    workspace.write("in.csv", rows.join("\r\n") + "\r\n");
    workspace.write("pipelines/p.yaml", SHAPED);
    workspace.run(&["pipelines", "validate", "--strict"]).expect_code(0);
    workspace.run(&["run", "--once"]).expect_code(0);
    let expected = [
        "id,verb,user,at,mail,from,country",
        // The SHA-256 of `ann@example.org`, by sha256sum.
        "1,GET,ann,28/11/2026 09:30,438c4c7afe600cdf1e455c369bec76dc970fc8ca463447c7b387a347f3c79331,192.0.2.0,DE",
        "2,PUT,\"bob, b.\",30/06/2026 22:15,e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855,2001:db8::,FR",
    ];
    assert_eq!(workspace.lines("out.csv"), expected);
    let letters = workspace.read("letters.ndjson");
    assert!(letters.contains("the value of the column \\\"id\\\" is not an integer"), "{letters}");
    assert_eq!(letters.lines().count(), 2);
    // Rows that are appended later follow under the same header.
    workspace.append("in.csv", "eve@example.org,5,2026-11-28 10:30,GET user=eve from=192.0.2.99\r\n");
    workspace.run(&["run", "--once"]).expect_code(0);
    let lines = workspace.lines("out.csv");
    assert!(lines.len() == 4 && lines[3].starts_with("5,GET,eve,"), "{lines:?}");
}

const THINNED: &str = r#"
version: "2.2"
pipelines:
  - id: thinned
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.ndjson } }
      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson, sdk.record.format: recfmt/raw } }
    processors:
      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: some, plugin: sample, settings: { percent: 50, by: .Payload.After.user } }
      - { id: few, plugin: throttle, settings: { rate: 3, period: 1h, by: .Payload.After.user } }
"#;

#[test]
fn a_sample_has_the_same_keys_each_time_and_a_throttle_lets_each_key_through() {
    let thinned = || {
        let workspace = Workspace::new();
        let line = |n: usize| format!("{{\"n\":{n},\"user\":\"u{}\"}}\n", n % 20);
        workspace.write("in.ndjson", (0..200).map(line).collect::<String>());
        workspace.write("pipelines/p.yaml", THINNED);
        workspace.run(&["run", "--once"]).expect_code(0);
        let mut users = BTreeMap::<String, usize>::new();
        for line in workspace.lines("out.ndjson") {
            let record: serde_json::Value = serde_json::from_str(&line).unwrap();
            *users.entry(record["user"].to_string()).or_default() += 1;
        }
        users
    };
    let users = thinned();
    assert!(users.len() > 3 && users.len() < 17, "{users:?}");
    assert!(users.values().all(|count| *count == 3), "{users:?}");
    assert_eq!(thinned(), users);
}
