//! The nodes of a cluster, compared with each other.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_record::phrase::counted;
use serde::Deserialize;

use super::parts::answer;
use super::{CheckResult, DoctorContext};
use crate::cli::cluster::{ClusterAnswer, NODES};

/// A renewal that is older is late, in seconds: the node has missed two.
const LATE: f64 = 3.0;

pub(super) fn alike(subject: &mut DoctorContext<'_>) -> CheckResult {
    if subject.settings.cluster.is_none() {
        return CheckResult::well("cluster.url is not set here: no nodes are compared");
    }
    if !subject.answers() {
        return CheckResult::well("no node answers here: the nodes are not compared");
    }
    let cluster: ClusterAnswer = match answer(subject.settings, NODES) {
        Ok(cluster) => cluster,
        Err(error) => return CheckResult::warning(format!("the nodes are not known: {error}")),
    };
    let mut found = problems(&cluster);
    let mut has_token = false;
    match answer::<InputsAnswer>(subject.settings, INPUTS) {
        Ok(inputs) => {
            has_token = inputs.nodes.iter().any(|node| node.token.is_some());
            found.extend(differences(&inputs));
        }
        Err(error) => found.push(format!("plugins and variables of the nodes are not compared: {error}")),
    }
    let nodes = counted(cluster.nodes.len(), "node");
    match found.is_empty() {
        true if has_token => CheckResult::well(format!("{nodes} with the same version, plugins and variables")),
        true => CheckResult::well(format!(
            "{nodes} with the same version and plugins; without cluster.token, values of variables are not compared"
        )),
        false => CheckResult::warning(found.join("; ")).advise("`anabranch cluster` shows the nodes and their units"),
    }
}

/// Returns what is wrong with the nodes, a phrase each.
fn problems(ClusterAnswer { nodes, units }: &ClusterAnswer) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        versions.entry(&node.version).or_default().push(&node.name);
    }
    if versions.len() > 1 {
        let told = versions.iter().map(|(version, names)| format!("{} of {version}", names.join(", ")));
        found.push(format!("the nodes have different versions: {}", told.collect::<Vec<_>>().join(", ")));
    }
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    if names.len() < nodes.len() {
        found.push("several nodes have the same name (cluster.node)".to_owned());
    }
    for node in nodes {
        if node.url.is_empty() && nodes.len() > 1 {
            found.push(format!("{} has no cluster.address: others cannot forward requests to it", node.name));
        }
        if node.silence_seconds > LATE {
            found.push(format!("{} renewed its lease {:.1} s ago", node.name, node.silence_seconds));
        }
    }
    let waiting: BTreeMap<&str, String> =
        units.iter().filter(|unit| unit.node.is_none()).map(|unit| (unit.pipeline.as_str(), unit.detail())).collect();
    found.extend(waiting.into_iter().map(|(pipeline, detail)| format!("{pipeline} {detail}")));
    found
}

/// Path of the inputs of the nodes.
const INPUTS: &str = "/v1/cluster/inputs";

/// The state of a variable without a value.
const UNSET: &str = "unset";

/// The inputs of the nodes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputsAnswer {
    nodes: Vec<NodeInputsAnswer>,
    silent_nodes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct NodeInputsAnswer {
    node: String,
    plugins: BTreeMap<String, String>,
    #[serde(default)]
    token: Option<String>,
    variables: BTreeMap<String, String>,
}

/// Returns the plugins and variables that are not the same on all nodes, a phrase each.
fn differences(InputsAnswer { nodes, silent_nodes }: &InputsAnswer) -> Vec<String> {
    let mut found: Vec<String> =
        silent_nodes.iter().map(|node| format!("{node} does not answer: it is not compared")).collect();
    let (plugins, variables): (BTreeSet<&String>, BTreeSet<&String>) = (
        nodes.iter().flat_map(|node| node.plugins.keys()).collect(),
        nodes.iter().flat_map(|node| node.variables.keys()).collect(),
    );
    for file in plugins {
        let of = |node: &NodeInputsAnswer| node.plugins.get(file).cloned();
        found.extend(difference(nodes, &format!("the plugin {file}"), "missing", of));
    }
    let tokens = difference(nodes, "cluster.token", "not set", |node| node.token.clone());
    // Hashes under different tokens differ in any case.
    let has_one_token = tokens.is_none();
    found.extend(tokens.map(|told| format!("{told}: the values of variables are not compared")));
    for name in variables {
        let state = |state: &String| if has_one_token { state.clone() } else { "set".to_owned() };
        let of = |node: &NodeInputsAnswer| node.variables.get(name).filter(|state| *state != UNSET).map(state);
        found.extend(difference(nodes, &format!("the variable {name}"), "not set", of));
    }
    found
}

/// Returns how an input differs between nodes. `of` returns its state on a node, if it has one there.
fn difference(
    nodes: &[NodeInputsAnswer],
    what: &str,
    absent: &str,
    of: impl Fn(&NodeInputsAnswer) -> Option<String>,
) -> Option<String> {
    let mut states: BTreeMap<Option<String>, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        states.entry(of(node)).or_default().push(&node.node);
    }
    if states.len() < 2 {
        return None;
    }
    let lacking = states.remove(&None).map(|nodes| format!("{absent} on {}", nodes.join(", ")));
    let groups: Vec<String> = states.values().map(|nodes| nodes.join(", ")).collect();
    let differing = (groups.len() > 1).then(|| format!("not the same on {}", groups.join(" and ")));
    let phrases: Vec<String> = lacking.into_iter().chain(differing).collect();
    Some(format!("{what} is {}", phrases.join(", and ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_between_nodes_is_named() {
        let node = |name: &str, version: &str, url: &str, silence: f64| {
            json!({
                "name": name, "id": name, "url": url, "version": version, "isThis": false, "isLeaving": false, "units": 1,
                "ageSeconds": 1.0, "silenceSeconds": silence,
            })
        };
        let cluster = |nodes: Vec<serde_json::Value>, units: serde_json::Value| {
            problems(&serde_json::from_value(json!({ "nodes": nodes, "units": units })).unwrap())
        };
        let good = [node("a", "1", "http://a", 0.1), node("b", "1", "http://b", 0.9)];
        let runs = json!([{ "pipeline": "p", "slot": 0, "node": "a", "isEnding": false }]);
        assert_eq!(cluster(good.to_vec(), runs.clone()), Vec::<String>::new());
        let waits = json!([{ "pipeline": "p", "slot": 0, "label": "disk", "isEnding": false }]);
        assert_eq!(cluster(good.to_vec(), waits), ["p waits for a node with the label disk"]);
        let bad = vec![node("a", "1", "http://a", 0.1), node("a", "2", "", 4.25)];
        assert_eq!(
            cluster(bad, runs),
            [
                "the nodes have different versions: a of 1, a of 2",
                "several nodes have the same name (cluster.node)",
                "a has no cluster.address: others cannot forward requests to it",
                "a renewed its lease 4.2 s ago",
            ]
        );
    }

    #[test]
    fn plugins_and_variables_that_differ_are_named_without_their_hashes() {
        let node = |name: &str, plugin: &[(&str, &str)], variables: &[(&str, &str)]| {
            let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            NodeInputsAnswer {
                node: name.to_owned(),
                plugins: map(plugin),
                token: Some("t".to_owned()),
                variables: map(variables),
            }
        };
        let found = |nodes: Vec<NodeInputsAnswer>, silent: &[&str]| {
            differences(&InputsAnswer { nodes, silent_nodes: silent.iter().map(|name| (*name).into()).collect() })
        };
        let same = || {
            vec![node("a", &[("processors/m", "1")], &[("A", "x")]), node("b", &[("processors/m", "1")], &[("A", "x")])]
        };
        assert_eq!(found(same(), &[]), Vec::<String>::new());
        let mut other_token = same();
        (other_token[1].token, other_token[1].variables) = (None, [("A".to_owned(), "set".to_owned())].into());
        let told = ["cluster.token is not set on b: the values of variables are not compared"];
        assert_eq!(found(other_token, &[]), told);
        let both_unset = vec![node("a", &[], &[("A", UNSET)]), node("b", &[], &[("A", UNSET)])];
        assert_eq!(found(both_unset, &["c"]), ["c does not answer: it is not compared"]);
        let other = vec![
            node("a", &[("processors/m", "1")], &[("A", "x"), ("B", "p")]),
            node("b", &[("processors/m", "2")], &[("A", UNSET), ("B", "p")]),
            node("c", &[], &[("A", "x"), ("B", "q")]),
        ];
        assert_eq!(
            found(other, &[]),
            [
                "the plugin processors/m is missing on c, and not the same on a and b",
                "the variable A is not set on b",
                "the variable B is not the same on a, b and c",
            ]
        );
    }
}
