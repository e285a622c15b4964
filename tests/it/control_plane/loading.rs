//! The state store goes away while the pipelines with standalone processors are loaded.
//!
//! What loads them is the test, so that the moment is certain: the service runs in a process of its own, this test binary
//! started again.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anabranch_api::Api;
use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::registry::Registry;
use anabranch_process::log::{Log, Output};
use anabranch_service::pipelines::Pipelines;
use anabranch_service::{DeferredPipelines, Service, StopSource};
use anabranch_settings::{Layers, Settings};
use serde_json::Value;

use crate::process::{PATIENCE, Process, Workspace, file_to_file, numbered_lines};
use crate::servers::postgres::Server;

/// The service, to its end.
fn serve(directory: &str, url: &str) -> ! {
    std::env::set_current_dir(directory).unwrap();
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    let flags = [
        ("db.type", "postgres".to_owned()),
        ("db.postgres.connection-string", url.to_owned()),
        ("api.enabled", "false".to_owned()),
        ("pipelines.error-recovery.max-delay", "1s".to_owned()),
    ];
    let settings: Settings = (Layers { flags: &flags, environment: &[] }).resolve().unwrap().0;
    let options = CompileOptions { limits: settings.limits, ..CompileOptions::default() };
    let pipelines = Pipelines::load(&[Path::new("pipelines")], &registry, &options);
    assert!(!pipelines.has_errors(), "{:?}", pipelines.all_findings());
    let log = Log::new(settings.log, Output::standard(false, true).unwrap());
    let _installed = log.install();
    let loading = registry.clone();
    let later = DeferredPipelines {
        stored: Vec::new(),
        compile: Box::new(move || {
            std::fs::write("loading", "").unwrap();
            let begun = std::time::Instant::now();
            while !Path::new("loaded").exists() {
                assert!(begun.elapsed() < PATIENCE, "nobody says that the store is away");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Pipelines::load(&[Path::new("later")], &loading, &options)
        }),
    };
    let service = Service {
        settings,
        registry,
        compile: options,
        log,
        once: false,
        stops: StopSource::Signals,
        before_abort: None,
        on_listening: None,
        companion: None,
    };
    let ended = service.run::<Api>(pipelines, Some(later));
    println!("{ended:?}");
    std::process::exit(i32::from(!ended.is_ok_and(|ended| ended.signalled)));
}

#[test]
fn a_store_that_is_away_while_pipelines_are_loaded_ends_nothing() {
    if let (Ok(directory), Ok(url)) = (std::env::var("IT_LOADING"), std::env::var("IT_LOADING_STORE")) {
        serve(&directory, &url);
    }
    let Some(server) = Server::start(&[]) else { return };
    let server = std::sync::Arc::new(server);
    let database = server.database();
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace.write("later/bad.yaml", file_to_file("bad", "").replace("plugin: file", "plugin: fiel"));
    let mut process = Process::spawn(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "control_plane::loading::a_store_that_is_away_while_pipelines_are_loaded_ends_nothing"])
            .arg("--nocapture")
            .env("IT_LOADING", workspace.root())
            .env("IT_LOADING_STORE", database.url()),
    );
    // Records whose positions were not stored before the store failed are delivered again.
    let delivered = || {
        let payload =
            |line: &String| serde_json::from_str::<Value>(line).ok()?["payload"]["after"].as_str().map(str::to_owned);
        workspace.lines("out.ndjson").iter().filter_map(payload).collect::<BTreeSet<_>>().len()
    };
    process.wait_until("the lines and the loading", || delivered() == 3 && workspace.path("loading").exists());
    server.kill();
    workspace.write("loaded", "");
    let log = process.printed();
    process.wait_until("a word about it", || log().contains("bad") && log().contains("could not be stored"));
    server.resume();
    workspace.append("in.txt", "one more\n");
    process.wait_until("the line", || delivered() == 4);
    process.signal("TERM");
    process.finish().expect_code(0);
}
