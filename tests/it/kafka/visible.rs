//! What a user sees of Kafka: plans, the backlog, `doctor`, positions, and the templates of `pipelines init`.

use serde_json::{Value, json};

use super::{filled, pipeline};
use crate::api::get;
use crate::process::{Workspace, base64_decode};
use crate::servers::Port;
use crate::servers::kafka::{Broker, USER, broker};

fn source(servers: &str, topic: &str, more: &str) -> String {
    format!("plugin: kafka, settings: {{ servers: '{servers}', topics: {topic}, readFromBeginning: true{more} }}")
}

fn destination(servers: &str, topic: &str, more: &str) -> String {
    format!("plugin: kafka, settings: {{ servers: '{servers}', topic: {topic}{more} }}")
}

#[test]
fn a_plan_says_what_is_guaranteed_and_under_which_condition() {
    let workspace = Workspace::new();
    let kafka = source("localhost:1", "in", "");
    let file = "plugin: file, settings: { path: in.txt }";
    let to_kafka = |more: &str| destination("localhost:1", "out", more);
    let postgres = "plugin: postgres, settings: { url: 'postgresql://u@localhost/d', table: t, exactlyOnce: true }";
    let plan = |source: &str, destination: &str| {
        workspace.write("p.yaml", pipeline("p", source, destination));
        workspace.run(&["pipelines", "plan", "p.yaml"]).expect_code(0).both()
    };
    for acks in ["one", "none"] {
        let text = plan(&kafka, &to_kafka(&format!(", acks: {acks}")));
        assert!(text.contains("kafka.acks_lose_records") && text.contains("records may be lost"), "{text}");
        // The table of guarantees promises nothing else.
        assert!(text.contains("the destination confirms writes early"), "{text}");
    }
    let once = |text: &str| text.contains("effectively once");
    let text = plan(&kafka, &to_kafka(""));
    assert!(!once(&text) && !text.contains("may be lost") && text.contains("at least once"), "{text}");
    let compacted = "the topic is not compacted";
    let text = plan(&kafka, &to_kafka(", exactlyOnce: true"));
    assert!(once(&text), "{text}");
    let text = plan(file, &to_kafka(", exactlyOnce: true"));
    assert!(once(&text) && !text.contains(compacted), "{text}");
    let text = plan(&kafka, postgres);
    assert!(once(&text), "{text}");
    // Two destinations: each needs that the source repeats what it read.
    let two = pipeline("p", &kafka, &to_kafka(", exactlyOnce: true"))
        + &format!(
            "      - {{ id: more, type: destination, {} }}\n",
            destination("localhost:1", "more", ", exactlyOnce: true")
        );
    workspace.write("p.yaml", two);
    let text = workspace.run(&["pipelines", "plan", "p.yaml"]).expect_code(0).both();
    assert!(once(&text) && text.contains(compacted), "{text}");
}

/// The value of each series of a metric, by its partition.
fn by_partition(metrics: &str, name: &str) -> Vec<(String, f64)> {
    let lines = metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
    let series = lines.filter_map(|line| {
        let (_, partition) = line.split_once("partition=\"")?;
        Some((partition.split_once('"')?.0.to_owned(), line.rsplit(' ').next()?.parse().ok()?))
    });
    let mut series: Vec<_> = series.collect();
    series.sort_by(|a, b| a.0.cmp(&b.0));
    series
}

#[test]
fn the_backlog_of_each_partition_is_shown_while_a_destination_stands_still() {
    let Some(broker) = broker() else { return };
    let count = 60_000;
    let topic = filled(broker, count);
    let workspace = Workspace::new();
    // The destination takes a record per second, and the source reads as much as may be in flight.
    let slow = "plugin: file, settings: { path: out.ndjson, sdk.rate.perSecond: 1, sdk.rate.burst: 1 }";
    workspace.write("pipelines/p.yaml", pipeline("p", &source(&broker.address(), &topic, ""), slow));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    // Each record is either read or in the backlog of its partition.
    let mut live = Value::Null;
    process.wait_until("the backlog behind what is read", || {
        live = get(address, "/v1/pipelines/p/live").json();
        let (read, left) = (live["totals"]["read"].as_u64(), live["backlogs"][0]["records"].as_u64());
        read.zip(left).is_some_and(|(read, left)| read > 0 && read + left == count as u64)
    });
    let ends = broker.consume(&topic).iter().fold([0; 3], |mut ends, message| {
        ends[message["partition"].as_u64().unwrap() as usize] += 1;
        ends
    });
    let lanes = live["lanes"].as_array().unwrap();
    assert_eq!(lanes.len(), 3, "{live}");
    for lane in lanes {
        let partition = lane["partition"].as_str().unwrap();
        let number: usize = partition.rsplit('/').next().unwrap().parse().unwrap();
        let known = lane["read"].as_u64().unwrap() + lane["backlogRecords"].as_u64().unwrap();
        assert_eq!(known, ends[number], "{partition}: {live}");
    }
    let series = by_partition(&get(address, "/metrics").body, "anabranch_source_partition_backlog_records");
    assert_eq!(series.len(), 3, "{series:?}");
    let of_service = |args: &[&str]| {
        let address = format!("--api.http.address={address}");
        workspace.run(&[args, &[address.as_str()]].concat()).expect_code(0).stdout
    };
    let description = of_service(&["pipelines", "describe", "p"]);
    for (partition, left) in &series {
        let line =
            description.lines().find(|line| line.contains(&format!("partition {partition}:"))).unwrap_or_default();
        assert!(line.contains(&format!("{left} left to read")), "{line}: {description}");
    }
    assert!(of_service(&["top", "--once", "--interval=0.1"]).contains("k records"));
    process.signal("KILL");
}

/// Status and text of the check of connectors.
fn examined(workspace: &Workspace, code: i32) -> (String, String) {
    let output = workspace.run(&["doctor", "--json", "--check", "pipelines.connectors"]).expect_code(code);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let check = &report["result"]["checks"][0];
    let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
    (text("status"), format!("{} {}", text("message"), text("suggestion")))
}

/// Creates a topic and waits until the broker shows it: it learns of it a moment after the controller.
fn visible_topic(broker: &Broker, what: &str) -> String {
    let topic = broker.topic(what, 1, &json!({}));
    for _ in 0..100 {
        if !broker.judge("describe", &json!({ "topic": topic })).is_null() {
            return topic;
        }
    }
    panic!("the broker does not show {topic}");
}

#[test]
fn doctor_examines_brokers_topics_and_rights() {
    let Some(broker) = broker() else { return };
    let (from, to) = (visible_topic(broker, "examined"), broker.name("created"));
    let copied = visible_topic(broker, "copied");
    let workspace = Workspace::new();
    let copy = |source: &str, destination: &str| {
        workspace.write("pipelines/p.yaml", pipeline("p", source, destination));
    };
    let address = broker.address();
    copy(&source(&address, &from, ""), &destination(&address, &to, ""));
    let (status, text) = examined(&workspace, 0);
    let creates = format!("p:out: the topic {to} does not exist; the destination creates it");
    assert!(status == "warn" && text.contains(&creates), "{text}");
    assert_eq!(broker.judge("describe", &json!({ "topic": to })), Value::Null, "nothing is created");

    copy(&source(&address, &from, ""), &destination(&address, &copied, ""));
    let (status, text) = examined(&workspace, 0);
    assert!(status == "warn" && text.contains("has one replica"), "{text}");

    copy(&source(&address, &to, ""), &destination(&address, &copied, ""));
    let (status, text) = examined(&workspace, 3);
    assert!(status == "fail" && text.contains("p:in:") && text.contains("does not exist"), "{text}");

    let port = Port::hold();
    copy(&source(&format!("127.0.0.1:{}", port.number()), &from, ""), &destination(&address, &copied, ""));
    let (status, text) = examined(&workspace, 3);
    assert!(status == "fail" && text.contains("no server responds"), "{text}");

    let (user, password) = USER;
    let login = format!(", saslMechanism: PLAIN, saslUsername: {user}, saslPassword: '{password}'");
    let wrong = login.replace(password, "wrong");
    copy(&source(&broker.login(), &from, &wrong), &destination(&address, &copied, ""));
    let (status, text) = examined(&workspace, 3);
    assert!(status == "fail" && text.contains("p:in:") && !text.contains(password), "{text}");

    for (operation, denied) in [("READ", "Read"), ("WRITE", "Write")] {
        let topic = visible_topic(broker, "denied");
        let right = |operation: &str, permission: &str| {
            let given = json!({"topic": topic, "user": user, "operation": operation, "permission": permission});
            broker.judge("right", &given);
        };
        right("ALL", "ALLOW");
        right(operation, "DENY");
        let (read, written) = if denied == "Read" { (&topic, &copied) } else { (&from, &topic) };
        copy(&source(&broker.login(), read, &login), &destination(&broker.login(), written, &login));
        let (status, text) = examined(&workspace, 3);
        let missing = format!("the right {denied} on the topic {topic} is missing");
        assert!(status == "fail" && text.contains(&missing), "{text}");
    }

    let deny = |kind: &str, name: &str, operation: &str| {
        for (operation, permission) in [("ALL", "ALLOW"), (operation, "DENY")] {
            let given = json!({
                "kind": kind, "topic": name, "user": user, "operation": operation, "permission": permission,
            });
            broker.judge("right", &given);
        }
    };
    let (group, marks) = (broker.name("group"), visible_topic(broker, "marks"));
    deny("GROUP", &group, "READ");
    deny("TOPIC", &marks, "DESCRIBE_CONFIGS");
    let exact = format!(", exactlyOnce: true, exactlyOnce.topic: {marks}{login}");
    for (of_source, to, of_destination, missing) in [
        (format!(", groupID: {group}{login}"), &copied, login.clone(), format!("the right Read on the group {group}")),
        (login.clone(), &copied, exact, "the right DescribeConfigs on the topic is missing".to_owned()),
    ] {
        copy(&source(&broker.login(), &from, &of_source), &destination(&broker.login(), to, &of_destination));
        let (status, text) = examined(&workspace, 3);
        assert!(status == "fail" && text.contains(&missing), "{text}");
    }
}

/// Delivered values, in order.
fn delivered(workspace: &Workspace) -> Vec<usize> {
    workspace.lines("out.txt").iter().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn positions_are_shown_reset_and_rewound_and_the_group_follows() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("positions", 1, &json!({}));
    let produce = |numbers: std::ops::Range<usize>| {
        use base64::Engine as _;
        let coded = |n: usize| base64::engine::general_purpose::STANDARD.encode(n.to_string());
        let messages: Vec<Value> = numbers.map(|n| json!({ "value": coded(n) })).collect();
        broker.judge("produce", &json!({ "topic": topic, "messages": messages }));
    };
    produce(0..10);
    let workspace = Workspace::new();
    let out = "plugin: file, settings: { path: out.txt, sdk.record.format: recfmt/raw }";
    let group = format!(", groupID: {topic}");
    workspace.write("pipelines/p.yaml", pipeline("p", &source(&broker.address(), &topic, &group), out));
    let committed = || broker.judge("offsets", &json!({ "group": topic }))[format!("{topic}/0")].as_i64();
    workspace.once();
    assert_eq!((delivered(&workspace), committed()), ((0..10).collect(), Some(10)));
    let shown = workspace.run(&["positions", "show", "p"]).expect_code(0).both();
    assert!(shown.contains(&format!("{topic}/0 ")) && shown.contains("\"Offset\":9"), "{shown}");
    // Nothing is left.
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 10);

    let reset = || workspace.run(&["positions", "reset", "p", "--yes"]).expect_code(0);
    reset();
    workspace.once();
    assert_eq!(delivered(&workspace)[10..], (0..10).collect::<Vec<_>>(), "from the first record");
    assert_eq!(committed(), Some(10), "the offset of the group follows");

    // After the fourth record: behind the offset of the group.
    let shown = workspace.run(&["positions", "show", "p", "--json"]).expect_code(0).stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let last = shown["result"]["positions"][0]["position"].as_str().unwrap();
    let fourth = last.replace("\"Offset\":9", "\"Offset\":3");
    workspace.run(&["positions", "rewind", "p", "--to", &fourth, "--yes"]).expect_code(0);
    workspace.once();
    assert_eq!((&delivered(&workspace)[20..], committed()), (&[4, 5, 6, 7, 8, 9][..], Some(10)));

    // A position of the reference service does not say whose offset counts.
    let foreign = format!(r#"{{"GroupID":"{topic}","Topic":"{topic}","Partition":0,"Offset":3}}"#);
    let refused = workspace.run(&["positions", "rewind", "p", "--to", &foreign, "--yes"]);
    assert!(refused.code() != Some(0) && refused.both().contains("no field `Source`"), "{}", refused.both());

    // An operator who resets the group with Kafka's tools is obeyed, unless the position is reset after that.
    broker.judge("reset", &json!({ "group": topic, "topic": topic, "offset": 8 }));
    workspace.once();
    assert_eq!((&delivered(&workspace)[26..], committed()), (&[8, 9][..], Some(10)));
    broker.judge("reset", &json!({ "group": topic, "topic": topic, "offset": 5 }));
    reset();
    produce(10..12);
    workspace.once();
    assert_eq!((delivered(&workspace).split_off(28), committed()), ((0..12).collect(), Some(12)));
}

#[test]
fn templates_run_as_they_are_printed() {
    let Some(broker) = broker() else { return };
    let (events, purchases) = (broker.topic("events", 1, &json!({})), broker.name("purchases"));
    produce_lines(broker, &events, &["{\"kind\":\"view\"}", "{\"kind\":\"purchase\",\"n\":1}", "not JSON"]);
    let mut workspace = Workspace::new();
    workspace.env("KAFKA_SERVERS", &broker.address());
    workspace.run(&["pipelines", "init", "--template", "kafka-to-kafka"]).expect_code(0);
    let file = "pipelines/kafka-to-kafka.yaml";
    let text = workspace.read(file).replace("topics: events", &format!("topics: {events}"));
    let text = text.replace("topic: purchases", &format!("topic: {purchases}"));
    workspace.write(file, text.replace("groupID: kafka-to-kafka", &format!("groupID: {events}")));
    workspace.once();
    let written: Vec<Vec<u8>> =
        broker.consume(&purchases).iter().map(|message| base64_decode(message["value"].as_str().unwrap())).collect();
    assert_eq!(written, [b"{\"kind\":\"purchase\",\"n\":1}"]);
    assert_eq!(workspace.lines("failed.ndjson").len(), 1);
}

#[test]
#[cfg(feature = "postgres")]
fn the_template_for_postgresql_keeps_the_last_state() {
    let Some(broker) = broker() else { return };
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let orders = broker.topic("orders", 1, &json!({}));
    produce_lines(
        broker,
        &orders,
        &[
            "{\"id\":1,\"name\":\"tea\",\"price\":4}",
            "{\"id\":2,\"name\":\"cup\",\"price\":9}",
            "{\"id\":1,\"name\":\"tea\",\"price\":5}",
        ],
    );
    let mut workspace = Workspace::new();
    workspace.env("KAFKA_SERVERS", &broker.address());
    workspace.env("POSTGRES_URL", &database.url());
    workspace.run(&["pipelines", "init", "--template", "kafka-to-postgres"]).expect_code(0);
    let file = "pipelines/kafka-to-postgres.yaml";
    let text = workspace.read(file).replace("topics: orders", &format!("topics: {orders}"));
    workspace.write(file, text.replace("groupID: kafka-to-postgres", &format!("groupID: {orders}")));
    workspace.once();
    assert_eq!(database.query("SELECT id, name, price FROM orders ORDER BY id"), ["1|tea|5", "2|cup|9"]);
}

fn produce_lines(broker: &Broker, topic: &str, lines: &[&str]) {
    use base64::Engine as _;
    let message = |line: &&str| json!({ "value": base64::engine::general_purpose::STANDARD.encode(line) });
    let messages: Vec<Value> = lines.iter().map(message).collect();
    broker.judge("produce", &json!({ "topic": topic, "messages": messages }));
}
