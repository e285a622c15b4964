//! The nodes of a cluster, compared with each other.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_record::phrase::counted;

use super::parts::answer;
use super::{CheckResult, DoctorContext};
use crate::cli::cluster::{ClusterAnswer, NODES};

/// A renewal that is older is late, in seconds: the node has missed two.
const LATE: f64 = 3.0;

pub(super) fn alike(subject: &mut DoctorContext<'_>) -> CheckResult {
    if subject.settings.cluster.is_none() {
        return CheckResult::well("no cluster: this service runs alone");
    }
    if !subject.answers() {
        return CheckResult::well("no node answers here: the nodes are not compared");
    }
    let cluster: ClusterAnswer = match answer(subject.settings, NODES) {
        Ok(cluster) => cluster,
        Err(error) => return CheckResult::warning(format!("the nodes are not known: {error}")),
    };
    let found = problems(&cluster);
    match found.is_empty() {
        true => CheckResult::well(format!("{} of the same version", counted(cluster.nodes.len(), "node"))),
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
}
