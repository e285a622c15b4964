//! One cluster to look at: any node answers for the pipelines of all.

use serde_json::{Value, json};

use super::{Node, counts, each_has, lines, pipeline, places, wait_for};
use crate::api::{ask, end, get};
use crate::process::Workspace;
use crate::servers::Port;
use crate::servers::certificates::Certificates;
use crate::servers::postgres::Database;

const TOKEN: &str = "Authorization: Bearer token-of-users\r\n";

/// A node that the others reach at its address.
fn reachable(name: &str, database: &Database, pipelines: &str, port: &Port) -> Node {
    let mut workspace = Workspace::new();
    let address = format!("127.0.0.1:{}", port.number());
    for (name, value) in [
        ("ANABRANCH_CLUSTER_URL", &*database.url()),
        ("ANABRANCH_CLUSTER_NODE", name),
        ("ANABRANCH_CLUSTER_ADDRESS", &format!("http://{address}")),
        ("ANABRANCH_CLUSTER_TOKEN", "token-of-nodes"),
        ("ANABRANCH_API_HTTP_ADDRESS", &address),
        ("ANABRANCH_API_HTTP_TOKEN", "token-of-users"),
        ("DATABASE", &database.url()),
    ] {
        workspace.env(name, value);
    }
    workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
    Node::start(workspace)
}

#[test]
fn any_node_answers_for_the_pipelines_of_all() {
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    let file = input.write("in.txt", "");
    database.query("CREATE TABLE p1 (id int); CREATE TABLE p2 (id int)");
    let pipelines = pipeline("p1", &file, "") + &pipeline("p2", &file, "");
    let ports = [Port::hold(), Port::hold()];
    let mut a = reachable("a", &database, &pipelines, &ports[0]);
    let mut b = reachable("b", &database, &pipelines, &ports[1]);
    wait_for("a place for each", || each_has(&database, &[("a", 1), ("b", 1)]));
    // Before, the first node may run both pipelines: the numbers are those of the run that has the rows.
    input.append("in.txt", &lines(10));
    wait_for("the rows", || counts(&database, "p1").0 == 10 && counts(&database, "p2").0 == 10);
    let at = [a.process.address(), b.process.address()];
    let of = places(&database);
    let ask_any = |node: usize, method: &str, path: &str, body: &str| ask(at[node], method, path, TOKEN, body);

    for node in [0, 1] {
        let cluster = ask_any(node, "GET", "/v1/cluster", "").json();
        let names: Vec<&Value> = cluster["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(cluster["nodes"][node]["isThis"], true, "{cluster}");
        let units: Vec<(&Value, &Value)> =
            cluster["units"].as_array().unwrap().iter().map(|unit| (&unit["pipeline"], &unit["node"])).collect();
        assert_eq!(units, [(&json!("p1"), &json!(of[0])), (&json!("p2"), &json!(of[1]))]);
        // The numbers of the run, wherever it is.
        for (id, owner) in ["p1", "p2"].into_iter().zip(&of) {
            let live = || ask_any(node, "GET", &format!("/v1/pipelines/{id}/live"), "").json();
            wait_for("the numbers", || live()["totals"]["delivered"] == 10);
            assert_eq!(live()["runBy"], json!([owner]));
            let all = ask_any(node, "GET", "/v1/live", "").json();
            let row = all["pipelines"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap();
            assert_eq!((&row["delivered"], &row["runBy"]), (&json!(10), &json!([owner])), "{all}");
        }
    }
    // A request that the run itself answers, and the answer of the node that gave it.
    let elsewhere = usize::from(of[0] == "a");
    let answer = ask_any(elsewhere, "POST", "/v1/pipelines/p1/backfill", r#"{"connector":"in","part":"x"}"#);
    assert_eq!((answer.reason().as_str(), answer.header("anabranch-node")), ("request_unsupported", Some(&*of[0])));
    // An inspection through the other node.
    let node = if elsewhere == 0 { &a } else { &b };
    let mut inspecting = node.workspace.start(&["pipelines", "inspect", "p1", "--limit=1"]);
    wait_for("a record to be seen", || {
        input.append("in.txt", "{\"id\":10}\n");
        !inspecting.is_running()
    });
    assert_eq!(inspecting.finish().expect_code(0).stdout.lines().count(), 1);

    // The token of the nodes is not that of users, and each is refused without one.
    assert_eq!(get(at[0], "/v1/cluster").status, 401);
    let of_nodes = "Authorization: Bearer token-of-nodes\r\n";
    assert_eq!(ask(at[0], "GET", "/v1/cluster", of_nodes, "").status, 401);
    let forwarded = format!("{of_nodes}Anabranch-Forwarded-By: b\r\n");
    assert_eq!(ask(at[0], "GET", "/v1/cluster", &forwarded, "").status, 200);

    // The inputs of both nodes have the same keyed hash of a variable, and not its value.
    let inputs = ask_any(0, "GET", "/v1/cluster/inputs", "").json();
    let states: Vec<_> = (0..2).map(|node| inputs["nodes"][node]["variables"]["DATABASE"].clone()).collect();
    assert_eq!((&inputs["nodes"][0]["node"], &inputs["nodes"][1]["node"]), (&json!("a"), &json!("b")), "{inputs}");
    assert!(states[0] == states[1] && states[0].as_str().is_some_and(|hash| hash.len() == 64), "{inputs}");
    assert!(!inputs.to_string().contains(&database.url()), "{inputs}");

    // A node that does not answer: what is stored is shown, and what only it can do is refused.
    let owner = if of[0] == "a" { &a } else { &b };
    owner.process.signal("STOP");
    let shown = ask_any(elsewhere, "GET", "/v1/live", "").json();
    assert_eq!(shown["silentNodes"], json!([of[0]]), "{shown}");
    // Its kernel accepts the connection. The request waits no longer than its lease.
    let refused = ask_any(elsewhere, "POST", "/v1/pipelines/p1/backfill", r#"{"connector":"in","part":"x"}"#);
    owner.process.signal("CONT");
    assert_eq!((refused.status, refused.reason().as_str()), (503, "cluster.node_unreachable"));
    for node in [a, b] {
        end(node.process);
    }
}

#[test]
fn requests_are_forwarded_over_tls() {
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    let Some(certificates) = Certificates::create(input.root()) else { return };
    certificates.sign("server", "anabranch", "DNS:localhost");
    let file = input.write("in.txt", "");
    database.query("CREATE TABLE p1 (id int); CREATE TABLE p2 (id int)");
    let pipelines = pipeline("p1", &file, "") + &pipeline("p2", &file, "");
    let ports = [Port::hold(), Port::hold()];
    let path = |name: &str| input.path(name).display().to_string();
    let mut nodes = ["a", "b"].map(|name| {
        let port = &ports[usize::from(name == "b")];
        let mut workspace = Workspace::new();
        let address = format!("https://localhost:{}", port.number());
        for (name, value) in [
            ("ANABRANCH_CLUSTER_URL", &*database.url()),
            ("ANABRANCH_CLUSTER_NODE", name),
            ("ANABRANCH_CLUSTER_ADDRESS", &address),
            ("ANABRANCH_API_HTTP_ADDRESS", &address),
            ("ANABRANCH_API_HTTP_TLS_CERT", &path("server.crt")),
            ("ANABRANCH_API_HTTP_TLS_KEY", &path("server.key")),
            ("ANABRANCH_API_HTTP_TLS_CA", &path("ca.crt")),
            ("ANABRANCH_API_HTTP_TOKEN", "token-of-both"),
            ("DATABASE", &database.url()),
        ] {
            workspace.env(name, value);
        }
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
        Node::start(workspace)
    });
    wait_for("a place for each", || each_has(&database, &[("a", 1), ("b", 1)]));
    // Before, the first node may run both pipelines: the numbers are those of the run that has the rows.
    input.append("in.txt", &lines(10));
    wait_for("the rows", || counts(&database, "p1").0 == 10 && counts(&database, "p2").0 == 10);
    for node in &mut nodes {
        for id in ["p1", "p2"] {
            let described = || node.workspace.run(&["pipelines", "describe", id, "--json"]).expect_code(0).stdout;
            wait_for("the numbers of the run", || described().contains("\"delivered\":10"));
        }
    }
    nodes.into_iter().for_each(|node| end(node.process));
}
