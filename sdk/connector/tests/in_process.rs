//! The service inside another program.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anabranch::{InProcess, Service, StartError};
use my_anabranch::{inbox, mask, outbox};

/// Returns a service with the pipeline `cards`, whose files are in a directory.
fn service(directory: &Path) -> InProcess {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut pipeline = include_str!("../pipelines/cards.yaml").to_owned();
    for name in ["inbox", "outbox", "failed.ndjson"] {
        pipeline = pipeline.replace(&format!("path: {name} "), &format!("path: {} ", path(name)));
    }
    fs::write(path("cards.yaml"), pipeline).unwrap();
    fs::create_dir(path("inbox")).unwrap();
    fs::write(path("inbox/1.json"), r#"{"card":"4111111111111234"}"#).unwrap();
    Service::builder()
        .register(inbox::kind())
        .register(mask::kind())
        .register(outbox::kind())
        .in_process()
        .setting("pipelines.path", path("cards.yaml"))
        .setting("db.type", "inmemory")
        .setting("api.http.address", "127.0.0.1:0")
}

#[test]
fn a_program_runs_a_pipeline_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let running = service(directory.path()).once().start().unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(ended.accounts["cards"].delivered_in_all(), 1);
    let written = fs::read_to_string(directory.path().join("outbox/1.json")).unwrap();
    assert_eq!(written, r#"{"card":"************1234"}"#);
}

#[test]
fn a_program_stops_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let running = service(directory.path()).start().unwrap();
    TcpStream::connect(running.address().unwrap()).unwrap();
    let begun = Instant::now();
    while fs::read_dir(directory.path().join("inbox")).unwrap().count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the file is not delivered");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.stop();
    assert_eq!(running.wait().unwrap().accounts["cards"].delivered_in_all(), 1);
}

#[test]
fn mistakes_are_reported_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path());
    let error = service.setting("pipelines.pth", "pipelines").start().err().unwrap();
    assert!(matches!(&error, StartError::UnknownSetting(name) if name == "pipelines.pth"), "{error}");
    let text = include_str!("../pipelines/cards.yaml").replace("mask,", "maks,");
    let file = directory.path().join("other.yaml");
    fs::write(&file, text).unwrap();
    let service = Service::builder().register(mask::kind()).in_process();
    let error = service.setting("pipelines.path", file.display().to_string()).start().err().unwrap().to_string();
    assert!(error.contains("did you mean \"mask\"?"), "{error}");
}
