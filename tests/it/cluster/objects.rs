//! A bucket whose prefixes spread over nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::split::shares;
use super::{Node, counts, wait_for, wait_for_ids};
use crate::api::end;
use crate::process::Workspace;
use crate::s3::{bucket_settings, reaches_bucket};
use crate::servers::postgres::Database;
use crate::servers::s3::{BUCKET, Server};

const PREFIXES: usize = 16;

/// The nodes that fetched each object, by its key.
type Fetched = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// A pipeline from the prefixes of the bucket to a table. `of_destination` are further settings.
fn bucket_to_table(of_destination: &str) -> String {
    let prefixes = (0..PREFIXES).map(|n| format!("in/{n}/")).collect::<Vec<_>>().join(", ");
    let connection = bucket_settings(BUCKET);
    format!(
        r#"  - id: p
    connectors:
      - id: in
        type: source
        plugin: s3
        settings:
{connection}
          prefixes: {prefixes}
          pollingPeriod: 100ms
          versions: "off"
      - id: out
        type: destination
        plugin: postgres
        settings: {{ url: "${{DATABASE}}", table: p, sdk.batch.size: 20, {of_destination} }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: bare, plugin: field.exclude, settings: {{ fields: .Key }} }}
"#
    )
}

/// A node whose access key is its name, so that the server knows which node asks.
fn node(name: &str, database: &Database, endpoint: &str, pipelines: &str) -> Node {
    let mut workspace = Node::workspace(name, &database.url(), database, pipelines);
    reaches_bucket(&mut workspace, endpoint, name);
    Node::start(workspace)
}

/// Puts objects with the ids of a range, in turn into each prefix.
fn put(server: &Server, ids: std::ops::Range<usize>) {
    for id in ids {
        server.put(&format!("in/{}/{id:06}", id % PREFIXES), format!(r#"{{"id":{id}}}"#));
    }
}

/// Two nodes read a bucket, and one is killed. Returns the numbers of rows and of ids in the table.
fn read_by_two_nodes_of_which_one_is_killed(of_destination: &str) -> Option<(usize, usize)> {
    let database = Database::create()?;
    let server = Server::start();
    server.set_page(50);
    let fetched = Fetched::default();
    server.fail({
        let fetched = fetched.clone();
        move |request| {
            if request.is_get() {
                let credential = request.headers.get("authorization")?.split_once("Credential=")?.1;
                let node = credential.split('/').next()?.to_owned();
                fetched.lock().unwrap().entry(request.key.clone()).or_default().insert(node);
            }
            None
        }
    });
    database.query("CREATE TABLE p (id int)");
    let pipelines = bucket_to_table(of_destination);
    put(&server, 0..320);
    let mut nodes = ["a", "b"].map(|name| node(name, &database, &server.endpoint(), &pipelines));
    let spread = || shares(&database, "p") == ["a:4", "b:4"];
    wait_for("slots of both nodes", spread);
    wait_for_ids(320, "p", &database, &nodes);

    // Each node fetches the objects of its own prefixes only.
    put(&server, 320..640);
    wait_for_ids(640, "p", &database, &nodes);
    let mut prefixes = BTreeMap::<String, BTreeSet<usize>>::new();
    for (key, nodes) in fetched.lock().unwrap().iter() {
        let (prefix, id) = key["in/".len()..].split_once('/').unwrap();
        if id.parse::<usize>().unwrap() < 320 {
            continue;
        }
        assert_eq!(nodes.len(), 1, "one node fetches {key}: {nodes:?}");
        prefixes.entry(nodes.first().unwrap().clone()).or_default().insert(prefix.parse().unwrap());
    }
    let numbers: BTreeMap<&str, usize> = prefixes.iter().map(|(node, of)| (node.as_str(), of.len())).collect();
    assert_eq!(numbers, BTreeMap::from([("a", PREFIXES / 2), ("b", PREFIXES / 2)]), "{prefixes:?}");

    // One is killed while there is much to read.
    put(&server, 640..2_640);
    wait_for_ids(800, "p", &database, &nodes);
    nodes[0].process.signal("KILL");
    let killed = Instant::now();
    let at_death = counts(&database, "p").1;
    assert!(at_death < 2_640, "the node is killed in the middle");
    wait_for_ids(2_640, "p", &database, &nodes);
    let took = killed.elapsed();
    wait_for("the slots of a", || shares(&database, "p") == ["b:8"]);
    // The killed node comes back, and takes a part again.
    nodes[0].restart();
    wait_for("slots of both nodes again", spread);
    put(&server, 2_640..2_800);
    wait_for_ids(2_800, "p", &database, &nodes);
    let (rows, ids) = counts(&database, "p");
    println!("{at_death} records when the node was killed, 2640 after {took:?}; {} of {ids} twice", rows - ids);
    nodes.into_iter().for_each(|node| end(node.process));
    Some((rows, ids))
}

#[test]
fn the_prefixes_of_a_bucket_spread_and_each_object_is_written_once() {
    let Some(counts) = read_by_two_nodes_of_which_one_is_killed("exactlyOnce: \"true\"") else { return };
    assert_eq!(counts, (2_800, 2_800));
}

#[test]
fn the_prefixes_of_a_bucket_spread_and_no_object_is_lost() {
    let Some((_, ids)) = read_by_two_nodes_of_which_one_is_killed("") else { return };
    assert_eq!(ids, 2_800);
}

#[test]
fn a_plan_says_whether_the_nodes_share_a_bucket() {
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", "postgresql://127.0.0.1:1/x");
    workspace.env("OBJECT_STORE", "http://127.0.0.1:1");
    workspace.env("ACCESS_KEY_ID", "a");
    workspace.env("SECRET_ACCESS_KEY", "of-the-test");
    let several = format!("version: \"2.2\"\npipelines:\n{}", bucket_to_table(""));
    let one = several.replace("prefixes: in/0/, ", "prefix: in/0/ #");
    let (shared, whole) = ("the nodes share the partitions", "one node at a time runs the whole pipeline");
    for (text, node, says, says_not) in
        [(&several, true, shared, whole), (&one, true, whole, shared), (&several, false, "delivery", "the nodes share")]
    {
        workspace.write("pipelines/p.yaml", text);
        let cluster = if node { &["--cluster.url", "postgresql://127.0.0.1:1/x"][..] } else { &[] };
        let printed = workspace.run(&[&["pipelines", "plan"][..], cluster].concat()).expect_code(0).both();
        assert!(printed.contains(says) && !printed.contains(says_not), "{printed}");
    }
}
