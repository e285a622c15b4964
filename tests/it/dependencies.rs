//! The direction of dependencies: the binary on `ops` and `graph`, `ops` on `graph`, `graph` on none of ours.

use std::collections::BTreeMap;
use std::process::Command;

#[test]
fn crates_depend_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let names = package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null());
        let mut ours: Vec<String> =
            names.map(|d| d["name"].as_str().unwrap().to_owned()).filter(|n| n.starts_with("anabranch")).collect();
        ours.sort();
        found.insert(package["name"].as_str().unwrap().to_owned(), ours);
    }
    assert_eq!(found["anabranch-graph"], [] as [&str; 0]);
    assert_eq!(found["anabranch-ops"], ["anabranch-graph"]);
    assert_eq!(found["anabranch-ops-opencdc"], ["anabranch-graph"]);
    assert_eq!(found["anabranch-ops-tls"], [] as [&str; 0]);
    assert_eq!(found["anabranch-allocator"], [] as [&str; 0]);
    let families =
        ["ai", "avro", "grpc", "http", "js", "postgres", "s3", "wasm"].map(|family| format!("anabranch-ops-{family}"));
    for family in &families {
        let shared: &[&str] = match family.as_str() {
            "anabranch-ops-ai" | "anabranch-ops-avro" => &["anabranch-graph", "anabranch-ops-http"],
            "anabranch-ops-http" | "anabranch-ops-s3" => &["anabranch-graph", "anabranch-ops-tls"],
            "anabranch-ops-grpc" | "anabranch-ops-wasm" => &["anabranch-graph", "anabranch-ops-opencdc"],
            "anabranch-ops-postgres" => &["anabranch-graph", "anabranch-ops-tls"],
            _ => &["anabranch-graph"],
        };
        assert_eq!(found[family], shared, "{family}");
    }
    let others = ["anabranch-allocator", "anabranch-graph", "anabranch-ops", "anabranch-ops-tls"].map(str::to_owned);
    let mut all = [&others[..], &families[..]].concat();
    all.sort();
    assert_eq!(found["anabranch"], all);
}

/// `graph` opens no file, socket or process.
#[test]
fn graph_does_no_io() {
    let mut stack = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("graph/src")];
    let mut offending = Vec::new();
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        if path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs") {
            continue;
        }
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
