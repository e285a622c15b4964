//! The direction of dependencies: between crates, as their manifests have it, and between the modules of a crate. The
//! crates below `graph/` do no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

/// The crates below `graph/`, from the lowest to the highest, each with those that it depends on.
const GRAPH: [(&str, &str, &[&str]); 6] = [
    ("anabranch-record", "graph/record/src", &[]),
    ("anabranch-template", "graph/template/src", &["anabranch-record"]),
    ("anabranch-plugin", "graph/plugin/src", &["anabranch-processor-derive", "anabranch-record", "anabranch-template"]),
    ("anabranch-config", "graph/config/src", &["anabranch-plugin", "anabranch-record", "anabranch-template"]),
    (
        "anabranch-graph",
        "graph/src",
        &["anabranch-config", "anabranch-plugin", "anabranch-record", "anabranch-template"],
    ),
    (
        "anabranch-picture",
        "graph/picture/src",
        &["anabranch-config", "anabranch-graph", "anabranch-plugin", "anabranch-record"],
    ),
];

/// The crates below `src/`, from the lowest to the highest, each with those of ours that it depends on. The crate of the
/// program is the last.
const PROGRAM: [(&str, &str, &[&str]); 10] = [
    ("anabranch-cluster", "src/cluster/src", &["anabranch-plugin", "anabranch-record"]),
    ("anabranch-process", "src/process/src", &["anabranch-ops-tls", "anabranch-plugin", "anabranch-record"]),
    (
        "anabranch-settings",
        "src/settings/src",
        &["anabranch-config", "anabranch-ops-tls", "anabranch-plugin", "anabranch-process", "anabranch-record"],
    ),
    (
        "anabranch-migrate",
        "src/migrate/src",
        &["anabranch-config", "anabranch-plugin", "anabranch-record", "anabranch-settings"],
    ),
    (
        "anabranch-store",
        "src/store/src",
        &[
            "anabranch-cluster",
            "anabranch-config",
            "anabranch-ops-avro",
            "anabranch-ops-postgres",
            "anabranch-ops-tls",
            "anabranch-plugin",
            "anabranch-process",
            "anabranch-record",
            "anabranch-settings",
        ],
    ),
    (
        "anabranch-registry",
        "src/registry/src",
        &[
            "anabranch-ops",
            "anabranch-ops-ai",
            "anabranch-ops-avro",
            "anabranch-ops-grpc",
            "anabranch-ops-http",
            "anabranch-ops-js",
            "anabranch-ops-kafka",
            "anabranch-ops-parquet",
            "anabranch-ops-postgres",
            "anabranch-ops-program",
            "anabranch-ops-s3",
            "anabranch-ops-singer",
            "anabranch-ops-vrl",
            "anabranch-ops-wasm",
            "anabranch-plugin",
            "anabranch-process",
            "anabranch-record",
            "anabranch-settings",
        ],
    ),
    (
        "anabranch-service",
        "src/service/src",
        &[
            "anabranch-cluster",
            "anabranch-config",
            "anabranch-graph",
            "anabranch-ops",
            "anabranch-ops-avro",
            "anabranch-ops-tls",
            "anabranch-plugin",
            "anabranch-process",
            "anabranch-record",
            "anabranch-settings",
            "anabranch-store",
            "anabranch-template",
        ],
    ),
    (
        "anabranch-api",
        "src/api/src",
        &[
            "anabranch-cluster",
            "anabranch-graph",
            "anabranch-ops-avro",
            "anabranch-ops-tls",
            "anabranch-picture",
            "anabranch-plugin",
            "anabranch-process",
            "anabranch-record",
            "anabranch-service",
            "anabranch-settings",
            "anabranch-store",
            "anabranch-template",
        ],
    ),
    (
        "anabranch-trial",
        "src/trial/src",
        &[
            "anabranch-config",
            "anabranch-graph",
            "anabranch-ops",
            "anabranch-picture",
            "anabranch-plugin",
            "anabranch-process",
            "anabranch-record",
            "anabranch-service",
            "anabranch-settings",
            "anabranch-store",
            "anabranch-template",
        ],
    ),
    (
        "anabranch",
        "src",
        &[
            "anabranch-allocator",
            "anabranch-api",
            "anabranch-config",
            "anabranch-graph",
            "anabranch-migrate",
            "anabranch-ops-tls",
            "anabranch-picture",
            "anabranch-plugin",
            "anabranch-process",
            "anabranch-record",
            "anabranch-registry",
            "anabranch-service",
            "anabranch-settings",
            "anabranch-store",
            "anabranch-template",
            "anabranch-trial",
        ],
    ),
];

/// Maximum number of lines of a crate, without tests.
const LARGEST: usize = 20_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's metadata of the packages of this workspace.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The crates of this workspace: their names and the folders of their sources.
fn crates() -> Vec<(String, String)> {
    let place = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let sources = manifest.parent().unwrap().strip_prefix(root()).unwrap().join("src");
        (package["name"].as_str().unwrap().to_owned(), sources.to_str().unwrap().to_owned())
    };
    packages().iter().map(place).collect()
}

/// Returns the packages that Cargo builds, each with its features.
fn packages_with_features(options: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--prefix", "none", "--format", "{p} [{f}]"])
        .args(options)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// The first `cargo build` after `cargo test` compiles again what has other features, and all that depends on it.
#[test]
fn the_binary_and_the_tests_share_their_dependencies() {
    // Programs that run while others are compiled have features of their own, so the two kinds are compared apart.
    for (of_binary, of_tests) in [("normal", "normal,dev"), ("normal,build", "all")] {
        let binary = packages_with_features(&["--edges", of_binary]);
        let tests = packages_with_features(&["--workspace", "--edges", of_tests]);
        let again: Vec<_> = binary.difference(&tests).collect();
        let names: Vec<_> = again.iter().map(|package| package.split(' ').next().unwrap()).collect();
        // Of ours, those that have other features in `full`.
        let ours = ["anabranch", "anabranch-ops", "anabranch-ops-s3", "anabranch-registry"];
        assert_eq!(names, ours, "other features in tests: {again:#?}");
    }
}

#[test]
fn crates_depend_one_way() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let names = package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null());
        let ours =
            names.map(|d| d["name"].as_str().unwrap().to_owned()).filter(|n| n.starts_with("anabranch")).collect();
        found.insert(package["name"].as_str().unwrap().to_owned(), ours);
    }
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    for (name, _, below) in GRAPH.into_iter().chain(PROGRAM) {
        assert_eq!(found[name], set(below), "{name}");
    }
    // A program of a user names the service, the contracts of plugins, and records.
    assert_eq!(found["my-anabranch"], set(&["anabranch", "anabranch-plugin", "anabranch-record"]));
    assert_eq!(found["anabranch-processor"], set(&["anabranch-processor-derive", "anabranch-record"]));
    for name in ["anabranch-ops-tls", "anabranch-allocator", "anabranch-processor-derive"] {
        assert_eq!(found[name], set(&[]), "{name}");
    }
    // Plugins know records, templates and their contracts; neither the compiler nor the executor.
    let contracts = set(&["anabranch-plugin", "anabranch-record", "anabranch-template"]);
    for (name, shared) in [
        ("anabranch-ops", &["anabranch-ops-parquet"][..]),
        ("anabranch-ops-ai", &["anabranch-ops-http"]),
        ("anabranch-ops-avro", &["anabranch-ops-http"]),
        ("anabranch-ops-grpc", &["anabranch-ops-opencdc", "anabranch-ops-program"]),
        ("anabranch-ops-http", &["anabranch-ops-tls"]),
        ("anabranch-ops-js", &[]),
        ("anabranch-ops-kafka", &["anabranch-ops-tls"]),
        ("anabranch-ops-opencdc", &[]),
        ("anabranch-ops-parquet", &[]),
        ("anabranch-ops-postgres", &["anabranch-ops-tls"]),
        ("anabranch-ops-program", &[]),
        ("anabranch-ops-s3", &["anabranch-ops-parquet", "anabranch-ops-tls"]),
        ("anabranch-ops-singer", &["anabranch-ops-program"]),
        ("anabranch-ops-vrl", &[]),
        ("anabranch-ops-wasm", &["anabranch-ops-opencdc"]),
    ] {
        let besides: BTreeSet<String> = found[name].difference(&contracts).cloned().collect();
        assert_eq!(besides, set(shared), "{name}");
    }
    // Plugins do not know the program, and of the program only the registry knows all of them.
    let families = ["ai", "avro", "grpc", "http", "js", "kafka", "parquet", "postgres", "s3", "singer", "vrl", "wasm"]
        .map(|f| format!("anabranch-ops-{f}"));
    let knowing = PROGRAM.iter().filter(|(name, ..)| families.iter().all(|family| found[*name].contains(family)));
    assert_eq!(knowing.map(|(name, ..)| *name).collect::<Vec<_>>(), ["anabranch-registry"]);
}

/// Crates that are copied beside the SDK inherit nothing from the workspace, and specifications of built-in plugins have
/// the version of one of them.
#[test]
fn copied_crates_have_the_version_of_the_program() {
    let versions: BTreeMap<String, String> = packages()
        .iter()
        .map(|package| ["name", "version"].map(|key| package[key].as_str().unwrap().to_owned()).into())
        .collect();
    for name in ["anabranch-processor", "anabranch-processor-derive", "anabranch-record"] {
        assert_eq!(versions[name], versions["anabranch"], "{name}");
    }
}

/// The files of a crate that are not for tests, without the tests at their ends.
fn texts(sources: &str) -> Vec<(PathBuf, String)> {
    let mut stack = vec![root().join(sources)];
    let mut files = Vec::new();
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            // Another crate, in a folder of this one.
            if !path.join("Cargo.toml").exists() {
                stack.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            }
            continue;
        }
        let of_tests = path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs");
        if of_tests || path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        files.push((path, text));
    }
    assert!(!files.is_empty(), "{sources}");
    files
}

/// The same without comments.
fn code(sources: &str) -> Vec<(PathBuf, String)> {
    let mut files = texts(sources);
    for (_, text) in &mut files {
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        *text = lines.join("\n");
    }
    files
}

#[test]
fn crates_are_small() {
    for (name, sources) in crates() {
        let lines: usize = texts(&sources).iter().map(|(_, text)| text.lines().count()).sum();
        assert!(lines <= LARGEST, "{name} has {lines} lines");
    }
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
        // The root of a crate declares its modules; test kits and what runs only in tests of threads are no part of it.
        let of_a_kit = from == "testing" && !sources.starts_with("src");
        if from == "lib" || path.ends_with("loom.rs") || of_a_kit {
            continue;
        }
        // In a file at the top, `super` is the crate; in a folder there, `super::super`.
        let depth = path.strip_prefix(&below).unwrap().components().count();
        let code = &code.replace(&"super::".repeat(depth), "crate::");
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
    // A module that names no remaining module is in no cycle.
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
    let mut linked = 0;
    for (name, sources) in crates() {
        let edges = modules(&sources);
        linked += usize::from(edges.values().any(|to| !to.is_empty()));
        let found = cycle(&edges);
        assert!(found.is_empty(), "{name}: {found:?}: {edges:#?}");
    }
    assert!(linked > 20, "{linked} crates have modules that know each other");
}

/// A path to what the root of a crate passes on would hide a module from the test above.
#[test]
fn modules_are_named() {
    let path = Regex::new(r"\bcrate::(\w+)").unwrap();
    for (_, sources, _) in PROGRAM {
        let files = code(sources);
        let names: BTreeSet<String> = modules(sources).into_keys().collect();
        for (file, code) in files {
            for found in path.captures_iter(&code) {
                assert!(names.contains(&found[1]), "{}: crate::{} is no module", file.display(), &found[1]);
            }
        }
    }
}
