//! The direction of dependencies: between crates, as their manifests have it, and between the modules of a crate. The
//! crates below `graph/` do no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

/// The crates below `graph/`, from the lowest to the highest, each with those that it depends on.
const GRAPH: [(&str, &str, &[&str]); 5] = [
    ("anabranch-record", "graph/record/src", &[]),
    ("anabranch-template", "graph/template/src", &["anabranch-record"]),
    ("anabranch-plugin", "graph/plugin/src", &["anabranch-processor-derive", "anabranch-record", "anabranch-template"]),
    ("anabranch-graph", "graph/src", &["anabranch-plugin", "anabranch-record", "anabranch-template"]),
    ("anabranch-picture", "graph/picture/src", &["anabranch-graph", "anabranch-plugin", "anabranch-record"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn crates_depend_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let names = package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null());
        let ours =
            names.map(|d| d["name"].as_str().unwrap().to_owned()).filter(|n| n.starts_with("anabranch")).collect();
        found.insert(package["name"].as_str().unwrap().to_owned(), ours);
    }
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    for (name, _, below) in GRAPH {
        assert_eq!(found[name], set(below), "{name}");
    }
    for name in ["anabranch-ops-tls", "anabranch-allocator", "anabranch-processor-derive"] {
        assert_eq!(found[name], set(&[]), "{name}");
    }
    // Plugins know records, templates and their contracts; neither the compiler nor the executor.
    let contracts = set(&["anabranch-plugin", "anabranch-record", "anabranch-template"]);
    for (name, shared) in [
        ("anabranch-ops", &[][..]),
        ("anabranch-ops-ai", &["anabranch-ops-http"]),
        ("anabranch-ops-avro", &["anabranch-ops-http"]),
        ("anabranch-ops-grpc", &["anabranch-ops-opencdc"]),
        ("anabranch-ops-http", &["anabranch-ops-tls"]),
        ("anabranch-ops-js", &[]),
        ("anabranch-ops-opencdc", &[]),
        ("anabranch-ops-postgres", &["anabranch-ops-tls"]),
        ("anabranch-ops-s3", &["anabranch-ops-tls"]),
        ("anabranch-ops-wasm", &["anabranch-ops-opencdc"]),
    ] {
        let besides: BTreeSet<String> = found[name].difference(&contracts).cloned().collect();
        assert_eq!(besides, set(shared), "{name}");
    }
    let families = ["ai", "avro", "grpc", "http", "js", "postgres", "s3", "wasm"].map(|f| format!("anabranch-ops-{f}"));
    let mut all = set(&["anabranch-allocator", "anabranch-ops", "anabranch-ops-tls"]);
    all.extend(GRAPH.map(|(name, ..)| name.to_owned()).into_iter().chain(families));
    assert_eq!(found["anabranch"], all);
}

/// The files of a crate that are not for tests, with their code: without comments, and without the tests at the end.
fn code(sources: &str) -> Vec<(PathBuf, String)> {
    let mut stack = vec![root().join(sources)];
    let mut files = Vec::new();
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let of_tests = path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs");
        if of_tests || path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        files.push((path, lines.join("\n")));
    }
    assert!(!files.is_empty(), "{sources}");
    files
}

/// The crates below `graph/` open no file, socket or process.
#[test]
fn graph_does_no_io() {
    let mut offending = Vec::new();
    for (path, code) in GRAPH.iter().flat_map(|(_, sources, _)| code(sources)) {
        for word in [
            "std::fs",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "UnixStream",
            "ToSocketAddrs",
            "std::process",
            "std::env::",
            "tokio::fs",
            "tokio::net",
            "tokio::process",
            "File::open",
        ] {
            if code.contains(word) {
                offending.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert_eq!(offending, [] as [String; 0]);
}

/// Drawings are of plans: they do not know what runs them.
#[test]
fn pictures_do_not_know_the_executor() {
    let knowing = code("graph/picture/src").into_iter().filter(|(_, code)| code.contains("exec::"));
    assert_eq!(knowing.map(|(path, _)| path).collect::<Vec<_>>(), [] as [PathBuf; 0]);
}

/// The top-level modules of a crate, each with those that it names.
fn modules(sources: &str) -> BTreeMap<String, BTreeSet<String>> {
    let files = code(sources);
    let below = root().join(sources);
    let module = |path: &Path| {
        let first = path.strip_prefix(&below).unwrap().components().next().unwrap();
        Path::new(first.as_os_str()).file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let names: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let (one, several) = (Regex::new(r"\bcrate::(\w+)").unwrap(), Regex::new(r"\bcrate::\{([^;]*)\};").unwrap());
    let word = Regex::new(r"\w+").unwrap();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, code) in &files {
        let from = module(path);
        // The root of a crate declares its modules; what runs only in tests of threads is no part of it.
        if from == "lib" || path.ends_with("loom.rs") || from == "testing" {
            continue;
        }
        // In a file at the top, `super` is the crate.
        let code = &match path.parent() == Some(below.as_path()) {
            true => code.replace("super::", "crate::"),
            false => code.clone(),
        };
        let single = one.captures_iter(code).map(|found| found[1].to_owned());
        let groups = several.captures_iter(code).map(|found| found[1].to_owned());
        let grouped: Vec<String> = groups
            .flat_map(|group| word.find_iter(&group).map(|w| w.as_str().to_owned()).collect::<Vec<_>>())
            .collect();
        let named = single.chain(grouped).filter(|to| *to != from && names.contains(to));
        edges.entry(from.clone()).or_default().extend(named);
    }
    edges
}

/// The modules of a cycle, or none.
fn cycle(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut left = edges.clone();
    // What names nothing that is left is in no cycle.
    while let Some(leaf) =
        left.iter().find(|(_, to)| to.iter().all(|to| !left.contains_key(to))).map(|(m, _)| m.clone())
    {
        left.remove(&leaf);
    }
    left.into_keys().collect()
}

#[test]
fn a_cycle_is_found() {
    let edges = [("a", &["b"][..]), ("b", &["c"]), ("c", &["b"]), ("d", &[])];
    let edges = edges.map(|(from, to)| (from.to_owned(), to.iter().map(|to| (*to).to_owned()).collect()));
    assert_eq!(cycle(&edges.into()), ["a", "b", "c"], "what leads into a cycle is shown with it");
}

#[test]
fn modules_have_no_cycles() {
    for sources in GRAPH.map(|(_, sources, _)| sources).into_iter().chain(["ops/src"]) {
        let edges = modules(sources);
        assert!(edges.values().any(|to| !to.is_empty()), "{sources}: nothing is read");
        assert_eq!(cycle(&edges), [] as [String; 0], "{sources}: {edges:#?}");
    }
}
