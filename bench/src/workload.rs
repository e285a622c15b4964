//! The measured workloads.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};

/// A measured pipeline.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) pipeline: &'static str,
    /// Lines of the input file, if there is one.
    pub(crate) input: Option<fn(u64) -> String>,
    /// Number of records at the destination for each record or line that is read.
    pub(crate) copies: u64,
    pub(crate) destination: Destination,
    /// A plugin that some builds lack.
    pub(crate) needs: Option<&'static str>,
    /// Divisor of the number of records, for workloads with expensive records.
    pub(crate) fewer: u64,
}

/// The place where records are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    File,
    /// The log of the service.
    Log,
    /// The table of this name of the benchmark's own PostgreSQL server.
    Table(&'static str),
    /// A topic of the benchmark's own Kafka broker.
    Topic,
    /// None; the service counts what it discards.
    Nowhere,
}

/// The part of a table that a source reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// The rows that are in it.
    Present,
    /// The changes since the slot was created.
    Changed,
}

impl Workload {
    const fn new(name: &'static str, what: &'static str, pipeline: &'static str) -> Self {
        Workload { name, what, pipeline, input: None, copies: 1, destination: Destination::File, needs: None, fewer: 1 }
    }

    /// Returns `true` if the workload sends requests to the benchmark's own HTTP server.
    pub(crate) fn needs_http(&self) -> bool {
        self.pipeline.contains("${STUB_PORT}")
    }

    /// Returns `true` if the workload uses the benchmark's own Kafka broker.
    pub(crate) fn needs_kafka(&self) -> bool {
        self.pipeline.contains("${KAFKA}")
    }

    /// Returns `true` if the workload uses the benchmark's own PostgreSQL server.
    pub(crate) fn needs_postgres(&self) -> bool {
        matches!(self.destination, Destination::Table(_)) || self.reads_table().is_some()
    }

    /// Returns the part of a table that the source reads; `None` if it reads none.
    pub(crate) fn reads_table(&self) -> Option<Rows> {
        let reads = self.pipeline.contains("${PG_SOURCE}");
        reads.then_some(if self.pipeline.contains("snapshotMode: never") { Rows::Changed } else { Rows::Present })
    }

    /// Returns `true` if the source is a topic.
    pub(crate) fn reads_topic(&self) -> bool {
        self.pipeline.contains("${IN_TOPIC}")
    }
}

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload::new("w1", "generator to file", include_str!("../workloads/w1.yaml")),
    Workload {
        destination: Destination::Log,
        ..Workload::new("w2", "generator to log", include_str!("../workloads/w2.yaml"))
    },
    Workload::new("w3", "field.set, field.rename, base64.encode", include_str!("../workloads/w3.yaml")),
    Workload::new("w3json", "json.encode, json.decode, field.set", include_str!("../workloads/w3json.yaml")),
    Workload::new("w4half", "a condition true for half", include_str!("../workloads/w4half.yaml")),
    Workload::new("w4none", "a condition true for none", include_str!("../workloads/w4none.yaml")),
    Workload {
        needs: Some("custom.javascript"),
        fewer: 4,
        ..Workload::new("w5", "custom.javascript", include_str!("../workloads/w5.yaml"))
    },
    Workload {
        input: Some(list_line),
        copies: 6,
        ..Workload::new("w6", "json.decode, split, clone; per record out", include_str!("../workloads/w6.yaml"))
    },
    Workload {
        input: Some(list_line),
        copies: 6,
        needs: Some("custom.javascript"),
        fewer: 4,
        ..Workload::new("w6js", "w6 and a script; per record out", include_str!("../workloads/w6js.yaml"))
    },
    Workload {
        needs: Some("webhook.http"),
        fewer: 20,
        ..Workload::new("w7", "a webhook per record", include_str!("../workloads/w7.yaml"))
    },
    Workload {
        destination: Destination::Table("bench"),
        needs: Some("postgres"),
        fewer: 4,
        ..Workload::new("w8", "generator to PostgreSQL upserts", include_str!("../workloads/w8.yaml"))
    },
    Workload {
        input: Some(plain_line),
        ..Workload::new("w9", "file to file, lines", include_str!("../workloads/w9.yaml"))
    },
    Workload {
        fewer: 2,
        ..Workload::new("w10", "a WebAssembly guest that changes nothing", include_str!("../workloads/w10.yaml"))
    },
    Workload {
        fewer: 2,
        ..Workload::new("w10rust", "a WebAssembly guest in Rust", include_str!("../workloads/w10rust.yaml"))
    },
    Workload {
        destination: Destination::Topic,
        needs: Some("kafka"),
        ..Workload::new("w11", "kafka to kafka, values unchanged", include_str!("../workloads/w11.yaml"))
    },
    Workload {
        destination: Destination::Nowhere,
        needs: Some("kafka"),
        ..Workload::new("w11read", "kafka to drop", include_str!("../workloads/w11read.yaml"))
    },
    Workload {
        destination: Destination::Topic,
        needs: Some("kafka"),
        ..Workload::new("w11json", "kafka to kafka, default format", include_str!("../workloads/w11json.yaml"))
    },
    Workload { needs: Some("kafka"), ..Workload::new("w12", "kafka to file", include_str!("../workloads/w12.yaml")) },
    Workload {
        input: Some(event_line),
        destination: Destination::Topic,
        needs: Some("kafka"),
        ..Workload::new("w13", "file to kafka, lines unchanged", LINES_TO_TOPIC)
    },
    Workload {
        destination: Destination::Topic,
        needs: Some("kafka"),
        ..Workload::new("w14", "w11 with exactlyOnce", include_str!("../workloads/w14.yaml"))
    },
    Workload {
        needs: Some("postgres"),
        ..Workload::new("w15", "rows of PostgreSQL to file", include_str!("../workloads/w15.yaml"))
    },
    Workload {
        needs: Some("postgres"),
        ..Workload::new("w16", "changes of PostgreSQL to file", include_str!("../workloads/w16.yaml"))
    },
    Workload {
        destination: Destination::Table("bench_copy"),
        needs: Some("postgres"),
        ..Workload::new("w17", "changes of PostgreSQL to PostgreSQL", include_str!("../workloads/w17.yaml"))
    },
    Workload {
        needs: Some("vrl"),
        ..Workload::new("w18", "vrl with five assignments", include_str!("../workloads/w18.yaml"))
    },
    Workload {
        needs: Some("custom.javascript"),
        fewer: 4,
        ..Workload::new("w18js", "the same five assignments in JavaScript", include_str!("../workloads/w18js.yaml"))
    },
];

/// The pipeline that writes the lines of a file to a topic. It also fills the topics that workloads read.
pub(crate) const LINES_TO_TOPIC: &str = include_str!("../workloads/w13.yaml");

/// Returns the module of the processor `test.gst` of w10, which returns each record unchanged.
fn copying_guest() -> anyhow::Result<Vec<u8>> {
    let text = include_str!("../../tests/guests/guest.wat");
    let text = text.replacen("08NAME", "08test.gst", 1).replacen("08VERSION", "08v0.01.00", 1);
    Ok(wat::parse_str(text.replacen("    PROCESS", "call $all_kept", 1))?)
}

/// Returns the module of the processor that `processors new` of this binary creates, for w10rust. It adds a prefix to a
/// text.
fn guest_in_rust(binary: &Path) -> anyhow::Result<Vec<u8>> {
    static MODULE: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(module) = MODULE.get() {
        return Ok(module.clone());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no directory of the workspace")?;
    let made = tempfile::tempdir()?;
    let ran = Command::new(binary).args(["processors", "new", "bench-guest", "--path"]).arg(made.path()).output()?;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let target = root.join("target/bench-guest");
    let build = root.join("tests/guests/cargo-wasm");
    let ran = Command::new(build).arg(made.path().join("bench-guest")).arg(&target).output()?;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let module = fs::read(target.join("wasm32-wasip1/release/bench-guest.wasm"))?;
    Ok(MODULE.get_or_init(|| module).clone())
}

/// Returns the module that a pipeline names, if any.
pub(crate) fn guest(pipeline: &str, binary: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    Ok(match pipeline {
        _ if pipeline.contains("standalone:test.gst") => Some(copying_guest()?),
        _ if pipeline.contains("standalone:bench-guest") => Some(guest_in_rust(binary)?),
        _ => None,
    })
}

fn list_line(i: u64) -> String {
    format!(
        "{{\"id\":{i},\"name\":\"name-{i}\",\"list\":[{{\"n\":1,\"v\":\"a\"}},{{\"n\":2,\"v\":\"b\"}},{{\"n\":3,\"v\":\"c\"}}]}}"
    )
}

fn plain_line(i: u64) -> String {
    format!("line {i:012} of a file whose lines are about eighty-five bytes long, as logs often are")
}

/// Returns a line of 200 bytes that compresses to about half, as events do.
pub(crate) fn event_line(i: u64) -> String {
    // A step of splitmix64, so that the numbers are the same in each run.
    let mixed = |n: u64| {
        let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n ^ (n >> 27)
    };
    let (a, b, c) = (mixed(i), mixed(i ^ 0x5555), mixed(i ^ 0xaaaa));
    let line = format!(
        "{{\"id\":\"{i:012}\",\"customer\":\"{a:016x}\",\"session\":\"{b:016x}{c:016x}\",\"amount\":{}.{:02},\
         \"currency\":\"EUR\",\"country\":\"{}\",\"state\":\"confirmed\",\"text\":\"",
        1_000_000 + a % 9_000_000,
        b % 100,
        ["DE", "FR", "IT", "ES"][(c % 4) as usize],
    );
    let filler = "delivered to the door of the customer";
    let room = 200 - line.len() - 2;
    line + &filler[..room] + "\"}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_counts_records_somewhere() {
        for workload in WORKLOADS {
            let variable = match workload.destination {
                Destination::File => "${OUT}",
                Destination::Log => "plugin: log",
                Destination::Table(_) => "${PG_URL}",
                Destination::Topic => "${OUT_TOPIC}",
                Destination::Nowhere => "plugin: drop",
            };
            assert!(workload.pipeline.contains(variable), "{}", workload.name);
            assert_eq!(workload.input.is_some(), workload.pipeline.contains("${IN}"), "{}", workload.name);
        }
    }

    #[test]
    fn an_event_has_200_bytes() {
        for i in [0, 1, 2, 3, 999_999, 12_345_678] {
            let line = event_line(i);
            assert_eq!(line.len(), 200, "{line}");
            assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
        }
    }
}
