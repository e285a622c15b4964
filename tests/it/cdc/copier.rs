//! A service that copies the tables of a load: to a file at least once, and to another database exactly once.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::checker::{History, differences, observed};
use super::load::{Load, Running, copy_tables, source_tables};
use super::server::{Database, Server, Session};
use crate::process::PATIENCE;
use crate::restarted::{PIPELINES, RestartedService};

/// `engine.replay-rows` of the service.
const REPLAY: usize = 1_000;
/// Steps of the load in a second.
const RATE: u32 = 300;
/// Steps before the service starts.
const BEFORE: usize = 2_000;

/// A load on a source, and a service that copies what it changes.
pub struct Copier {
    /// Address of the source, which may move to another server.
    url: String,
    copy: Database,
    pub service: RestartedService,
    load: Option<Running>,
    /// The last change that a snapshot may stand for.
    folded: u64,
}

impl Copier {
    /// Fills the tables of a source at an address, and starts the load and the service. `None` where PostgreSQL is not
    /// installed.
    pub fn start(source: &Server, url: &str, seed: u64) -> Option<Self> {
        let copy = Database::create()?;
        copy.query(&copy_tables());
        source.query(&source_tables());
        let mut load = Load::connect(url, seed).unwrap();
        load.run(BEFORE).unwrap();
        let mut service = RestartedService::new(REPLAY);
        let destinations = [
            "plugin: file, settings: { path: out.ndjson }".to_owned(),
            format!("plugin: postgres, settings: {{ url: '{}', exactlyOnce: \"true\" }}", copy.url()),
        ];
        // The slots and publications of the pipelines have the same names.
        for (name, destination) in PIPELINES.iter().zip(destinations) {
            let text = format!(
                r#"
version: "2.2"
pipelines:
  - id: {name}
    connectors:
      - id: in
        type: source
        plugin: postgres
        settings:
          url: {url}
          tables: plain, wide, lines
          logrepl.slotName: {name}
          logrepl.publicationName: {name}
      - {{ id: out, type: destination, {destination} }}
    dead-letter-queue: {{ plugin: file, settings: {{ path: {name}-letters.ndjson }}, window-size: 0 }}
"#
            );
            service.workspace.write(&format!("pipelines/{name}.yaml"), text);
        }
        service.begin();
        Some(Copier { url: url.to_owned(), copy, service, load: Some(load.spawn(RATE)), folded: 0 })
    }

    /// Opens a session with the source.
    pub fn source(&self) -> Session {
        Session::connect(&self.url)
    }

    /// Waits until both pipelines have delivered changes after their snapshots.
    #[track_caller]
    pub fn await_changes(&mut self) {
        // A snapshot that is resumed shows rows that are newer than some of the changes that follow it. It may show the first
        // note, or follow changes up to it. The second one is newer than that snapshot: only a run that has stored the end of
        // the snapshot, and resumes it no more, delivers it.
        self.deliver_note();
        self.folded = History::last(&mut self.source());
        self.deliver_note();
    }

    /// Inserts a note, and waits until both copies have it.
    #[track_caller]
    fn deliver_note(&mut self) {
        let marker = format!("marker-{}", self.source().run("SELECT nextval('changes')")[0]);
        self.source().run(&format!("INSERT INTO lines (n, note) VALUES (-1, '{marker}')"));
        self.await_note(&marker);
    }

    /// Waits until both copies have a note of the table without a key.
    #[track_caller]
    fn await_note(&mut self, note: &str) {
        let begun = Instant::now();
        let in_copy = format!("SELECT count(*) FROM lines WHERE note = '{note}'");
        let mut from = 0;
        let mut is_in_file = false;
        while !is_in_file || self.copy.query(&in_copy) == ["0"] {
            assert!(begun.elapsed() < PATIENCE, "{note} is not delivered: {}", self.service.log());
            assert!(self.service.process().is_running(), "the service ended: {}", self.service.log());
            let lines = self.service.workspace.lines("out.ndjson");
            is_in_file = is_in_file || lines[from.min(lines.len())..].iter().any(|line| line.contains(note));
            from = lines.len();
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the load, waits until everything is copied, ends the service, and checks the copies. `faults` is the number of
    /// faults of servers. Returns a line about it.
    pub fn finish(mut self, faults: usize) -> String {
        self.load.take().unwrap().finish();
        self.source().run("INSERT INTO lines (n, note) VALUES (-1, 'the last change')");
        self.await_note("the last change");
        let bound = self.service.promised();
        self.service.end();
        let (runs, logged) = (self.service.runs(), self.service.log());

        let (mut source, mut copy) = (self.source(), self.copy.session());
        let history = History::read(&mut source);
        let lines = self.service.workspace.lines("out.ndjson");
        let records = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let once = history.compare(records.flat_map(|record| observed(&record)), self.folded);
        let exact = history.compare_states(&History::read(&mut copy), self.folded);
        let most = bound * (runs[0] - 1 + faults);
        let said = format!(
            "{} records, {} kills of the service, {faults} faults of servers, {runs:?} runs: {} repeated of at most {most}, \
             exactly once {}",
            lines.len(),
            self.service.kills(),
            once.repeated,
            exact.repeated
        );
        once.check(most, &format!("{said}\n{logged}\nat least once"));
        exact.check(0, &format!("{said}\n{logged}\nexactly once"));
        let different = differences(&mut source, &mut copy);
        assert!(different.is_empty(), "{said}\n{logged}\n{different:#?}");
        for pipeline in PIPELINES {
            let letters = self.service.workspace.read(&format!("{pipeline}-letters.ndjson"));
            assert!(letters.is_empty(), "{said}\n{letters}");
        }
        said
    }
}
