//! A source that deletes upstream what is acknowledged, killed again and again: nothing may be acknowledged before
//! it is delivered and its position is stored.
//!
//! The service runs in a process of its own, this test binary started again with the source registered, so that
//! SIGKILL is real.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_api::Api;
use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::registry::Registry;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Room, Source};
use anabranch_plugin::specification::Specification;
use anabranch_process::log::{Log, Output};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Data, Position, Record};
use anabranch_service::lifecycle::PipelineOutcome;
use anabranch_service::pipelines::Pipelines;
use anabranch_service::{Service, StopSource};
use anabranch_settings::{Layers, Settings};
use async_trait::async_trait;

mod codes {
    anabranch_record::codes! {
        /// A row was acknowledged before it was stored.
        ACKNOWLEDGED_EARLY: "acknowledged_early", "None: this is a test.";

        /// A row was acknowledged again.
        ACKNOWLEDGED_TWICE: "acknowledged_twice", "None: this is a test.";
    }
}

use crate::kills::{Kills, When};
use crate::process::{PATIENCE, Workspace, raw_after};

const ROWS: u64 = 60_000;
/// `engine.replay-rows` of this test.
const REPLAY: usize = 1000;

/// Rows are files named by their number; an acknowledgement deletes them.
struct Directory(PathBuf);
struct DirectoryReader {
    rows: std::vec::IntoIter<u64>,
}
struct DirectoryAcker(PathBuf);

#[derive(Parameters)]
struct Place {
    /// The directory.
    path: PathBuf,
}

fn rows(directory: &Path) -> BTreeSet<u64> {
    std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

fn number(position: &Position) -> u64 {
    std::str::from_utf8(&position.0).unwrap().parse().unwrap()
}

#[async_trait]
impl Source for Directory {
    fn catches_up(&self) -> bool {
        true
    }
    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        let next = resume.get(&Partition::ONLY).map_or(0, |mark| number(&mark.position) + 1);
        let there = rows(&self.0);
        // Deleted records must be below the stored position: others were acknowledged before they were stored.
        if let Some(missing) = (next..ROWS).find(|row| !there.contains(row)) {
            return Err(Fault::fatal(
                codes::ACKNOWLEDGED_EARLY,
                format!("row {missing} is gone, the position says {next}"),
            ));
        }
        // A crash may have come between storing the position and acknowledging: the position is the acknowledgement.
        for row in there.range(..next) {
            std::fs::remove_file(self.0.join(row.to_string())).unwrap();
        }
        let rows: Vec<u64> = there.into_iter().filter(|row| *row >= next).collect();
        Ok(OpenedSource::new(
            Box::new(DirectoryReader { rows: rows.into_iter() }),
            Box::new(DirectoryAcker(self.0.clone())),
        ))
    }
}

#[async_trait]
impl Reader for DirectoryReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let records: Vec<Record> = self
            .rows
            .by_ref()
            .take(room.rows.min(100))
            .map(|row| {
                let text = row.to_string();
                Record::create(Position::copy_from(text.as_bytes()), Data::Absent, Data::text(text))
            })
            .collect();
        Ok(if records.is_empty() { Read::End } else { Read::Rows { partition: Partition::ONLY, records } })
    }
}

#[async_trait]
impl Acker for DirectoryAcker {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        for position in positions {
            std::fs::remove_file(self.0.join(number(position).to_string())).map_err(|e| {
                Fault::fatal(
                    codes::ACKNOWLEDGED_TWICE,
                    format!("row {} was acknowledged before: {e}", number(position)),
                )
            })?;
        }
        Ok(())
    }
}

const PIPELINE: &str = r#"
version: "2.2"
pipelines:
  - id: pruned
    connectors:
      - { id: in, type: source, plugin: directory, settings: { path: upstream } }
      - { id: a, type: destination, plugin: file, settings: { path: a.ndjson } }
      - { id: b, type: destination, plugin: file, settings: { path: b.ndjson, durability: disk } }
    processors:
      - { id: some, plugin: filter, condition: '{{ hasSuffix "99" (printf "%s" .Payload.After) }}' }
"#;

/// The service with the source above, to its end; what the test below starts and kills.
fn serve(directory: &str) -> ! {
    std::env::set_current_dir(directory).unwrap();
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    let specification = Specification::builtin("directory", "Files named by numbers.").with_all(shared::source());
    registry.add_source(kind::source(specification, |Place { path }| Ok(Arc::new(Directory(path)))));
    let settings: Settings =
        (Layers { flags: &[("engine.replay-rows", REPLAY.to_string())], environment: &[] }).resolve().unwrap().0;
    let options = CompileOptions { once: true, limits: settings.limits, ..CompileOptions::default() };
    let pipelines = Pipelines::load(&[Path::new("pipelines")], &registry, &options);
    assert!(!pipelines.has_errors(), "{:?}", pipelines.all_findings());
    let log = Log::new(settings.log, Output::standard(false, true).unwrap());
    let _installed = log.install();
    let service = Service {
        settings,
        registry,
        compile: options,
        log,
        once: true,
        stops: StopSource::Signals,
        before_abort: None,
        on_listening: None,
        companion: None,
    };
    let ended = service.run::<Api>(pipelines, None).unwrap();
    println!("{ended:?}");
    let finished = ended.outcomes.iter().all(|(_, outcome)| matches!(outcome, PipelineOutcome::Finished));
    std::process::exit(i32::from(!finished));
}

#[test]
fn what_is_acknowledged_is_delivered_and_stored() {
    if let Ok(directory) = std::env::var("IT_UPSTREAM") {
        serve(&directory);
    }
    let mut kills = Kills::new();
    loop {
        let mut left = kills.round();
        if left == 0 {
            break;
        }
        for attempt in 0.. {
            left -= kill_pruning(&mut kills, left);
            if left == 0 {
                break;
            }
            assert!(attempt < 10, "runs come to their end before they are killed");
        }
    }
}

/// A service whose source deletes what is acknowledged is killed so many times, and comes to its end. If it comes there
/// before, it was killed less often; returns how often.
fn kill_pruning(kills: &mut Kills, round: usize) -> usize {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", PIPELINE);
    std::fs::create_dir(workspace.path("upstream")).unwrap();
    for row in 0..ROWS {
        std::fs::write(workspace.path("upstream").join(row.to_string()), "").unwrap();
    }
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "upstream::what_is_acknowledged_is_delivered_and_stored", "--nocapture"])
            .env("IT_UPSTREAM", workspace.root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let size = || std::fs::metadata(workspace.path("a.ndjson")).map_or(0, |m| m.len());
    let delivered = |name: &str| -> Vec<u64> {
        let text = workspace.read(name);
        // A torn last line is cut when the file is opened again.
        let whole = &text[..text.rfind('\n').map_or(0, |i| i + 1)];
        whole.lines().map(|line| raw_after(line).parse().unwrap()).collect()
    };
    let mut killed = 0;
    for kill in 0..round {
        let before = size();
        let mut child = start();
        let begun = Instant::now();
        let when = kills.when(500_000);
        let due = || match when {
            When::Grown(bytes) => size() >= before + bytes,
            When::After(time) => begun.elapsed() >= time,
        };
        while !due() {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "no progress");
            std::thread::sleep(Duration::from_micros(500));
        }
        let ended = child.try_wait().unwrap().is_some();
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        // As the source says it. The name of this test may stand there, too.
        let is_broken =
            ["is gone, the position says", "was acknowledged before"].iter().any(|fault| text.contains(fault));
        assert!(!is_broken && !text.contains("Degraded"), "{text}");
        if ended {
            break;
        }
        killed += 1;
        // All files are looked at: now and then, since the source looks for what is gone at each start.
        if kill % 5 == 4 {
            let kept = rows(&workspace.path("upstream"));
            let [a, b] = ["a.ndjson", "b.ndjson"].map(|name| delivered(name).into_iter().collect::<BTreeSet<u64>>());
            for row in (0..ROWS).filter(|row| !kept.contains(row) && row % 100 != 99) {
                assert!(a.contains(&row) && b.contains(&row), "row {row} was acknowledged and is not delivered");
            }
        }
    }
    let output = start().wait_with_output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}\nstdout:\n{stdout}\nstderr:\n{stderr}", output.status);
    assert_eq!(rows(&workspace.path("upstream")), BTreeSet::new(), "everything is acknowledged");
    let expected: BTreeSet<u64> = (0..ROWS).filter(|row| row % 100 != 99).collect();
    let repeated = ["a.ndjson", "b.ndjson"].map(|name| {
        let delivered = delivered(name);
        let distinct: BTreeSet<u64> = delivered.iter().copied().collect();
        assert!(distinct == expected, "{name}: rows lost");
        delivered.len() - distinct.len()
    });
    kills.add(killed, &repeated, REPLAY);
    killed
}
