//! A connector for tests: source and destination in both versions of the protocol, with configurable faults. Settings
//! configure them; the variables `HELPER_*` configure faults that occur before there are settings.
//!
//! It follows the protocol itself, and shares code with the host only for the encoding of records.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod destination;
mod serve;
mod source;

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anabranch_ops_grpc::wire;
use anabranch_ops_opencdc::wire::{Parameter, Validation};

/// Version of the protocol in use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// State shared by all calls.
#[derive(Default)]
pub(crate) struct Plugin {
    config: Mutex<HashMap<String, String>>,
    /// Number of requests for its output.
    pub(crate) listened: AtomicUsize,
    pub(crate) source: source::State,
    pub(crate) destination: destination::State,
}

impl Plugin {
    pub(crate) fn configure(&self, config: HashMap<String, String>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    /// Returns the number of a fault such as `die-after:7`, if that fault is configured.
    pub(crate) fn fault(&self, name: &str) -> Option<u64> {
        let fault = self.setting("fault")?;
        match fault.split_once(':') {
            Some((fault, number)) if fault == name => number.parse().ok(),
            None if fault == name => Some(0),
            _ => None,
        }
    }

    /// Records a call in the file of the setting `log`.
    pub(crate) fn note(&self, line: &str) {
        let Some(path) = self.setting("log") else { return };
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Ends the process like a panic of a Go program.
pub(crate) fn die() -> ! {
    eprintln!("panic: ordered to die\n\ngoroutine 1 [running]:\nmain.main()");
    std::process::exit(2)
}

/// Never returns.
pub(crate) async fn hang() {
    std::future::pending::<()>().await;
}

fn parameter(kind: i32, default: &str, required: bool) -> Parameter {
    let validations = if required { vec![Validation { kind: 1, value: String::new() }] } else { Vec::new() };
    Parameter { default: default.to_owned(), description: "For tests.".to_owned(), kind, validations }
}

/// Returns the specification of the plugin.
pub(crate) fn specification() -> wire::Specification {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let common = || {
        HashMap::from([
            ("fault".to_owned(), parameter(1, "", false)),
            ("log".to_owned(), parameter(5, "", false)),
            ("options.*".to_owned(), parameter(1, "", false)),
            ("greeting".to_owned(), parameter(1, "hello", false)),
            ("sdk.batch.size".to_owned(), parameter(2, "0", false)),
            ("sdk.batch.delay".to_owned(), parameter(6, "0s", false)),
        ])
    };
    let mut source_params = common();
    for (name, kind) in [("count", 2), ("batch", 2), ("size", 2), ("schema", 4), ("structured", 4)] {
        source_params.insert(name.to_owned(), parameter(kind, "", false));
    }
    for name in ["sdk.schema.context.name", "sdk.schema.extract.payload.subject"] {
        source_params.insert(name.to_owned(), parameter(1, "", false));
    }
    let mut destination_params = common();
    for part in ["key", "payload"] {
        destination_params.insert(format!("sdk.schema.extract.{part}.enabled"), parameter(4, "true", false));
    }
    destination_params.insert("path".to_owned(), parameter(5, "", true));
    destination_params.insert("pause".to_owned(), parameter(2, "", false));
    destination_params.insert("keys".to_owned(), parameter(4, "", false));
    let roles = variable("HELPER_ROLES", "source destination");
    let only = |role: &str, parameters| if roles.contains(role) { parameters } else { HashMap::new() };
    wire::Specification {
        name: variable("HELPER_NAME", "helper"),
        summary: "A connector for tests.".to_owned(),
        description: "Does what its settings order.".to_owned(),
        version: variable("HELPER_VERSION", "v1.2.3"),
        author: "Nobody".to_owned(),
        destination_params: only("destination", destination_params),
        source_params: only("source", source_params),
    }
}

/// Checks the environment variables that the host must set.
fn check_environment() {
    let refuse = |reason: &str| {
        eprintln!("{reason}");
        std::process::exit(1)
    };
    for name in ["CONDUIT_CONNECTOR_TOKEN", "CONDUIT_CONNECTOR_ID", "CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET"] {
        if std::env::var(name).unwrap_or_default().is_empty() {
            refuse(&format!("missing environment variable {name}"));
        }
    }
    let cookie = std::env::var("CONDUIT_PLUGIN_MAGIC_COOKIE").unwrap_or_default();
    if cookie != "204e8e812c3a1bb73b838928c575b42a105dd2e9aa449be481bc4590486df53f" {
        refuse("This binary is a plugin. It is not meant to be executed directly.");
    }
    if std::env::vars().any(|(name, _)| name.starts_with("ANABRANCH_")) {
        refuse("variables of the host are no business of a plugin");
    }
}

/// Returns the highest version that both sides support.
fn version() -> Version {
    let offered = std::env::var("PLUGIN_PROTOCOL_VERSIONS").unwrap_or_default();
    let knows_two = std::env::var("HELPER_PROTOCOL").as_deref() != Ok("1");
    match knows_two && offered.split(',').any(|version| version == "2") {
        true => Version::Two,
        false => Version::One,
    }
}

/// Executes a fault before the first call.
fn start_wrong(what: &str) {
    match what {
        "exit" => {
            eprintln!("no licence found");
            std::process::exit(3);
        }
        "silent" => std::thread::sleep(Duration::from_secs(600)),
        "talks" => println!("Welcome to this connector!"),
        "version" => println!("1|7|unix|/tmp/none|grpc|"),
        "nothing-there" => {
            println!("1|2|unix|/nonexistent/plugin|grpc|");
            std::thread::sleep(Duration::from_secs(600));
        }
        _ => return,
    }
    std::thread::sleep(Duration::from_secs(600));
}

fn main() {
    if let Ok(path) = std::env::var("HELPER_STARTS") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        let id = std::env::var("CONDUIT_CONNECTOR_ID").unwrap_or_default();
        file.write_all(format!("{id} {}\n", std::process::id()).as_bytes()).unwrap();
    }
    check_environment();
    let wrong = std::env::var("HELPER_START").unwrap_or_default();
    start_wrong(&wrong);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(serve::serve(version(), &wrong));
}
