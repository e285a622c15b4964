//! A source that is opened, read and opened again where it was.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::source::{Backlog, Read, Reader, Room, Source};
use anabranch_plugin::testing;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Data, Position, Record};
use tokio::time::timeout;

use crate::server::{BUCKET, Server};

pub const ROOM: Room = Room { rows: 100, bytes: 1 << 20 };

pub fn host() -> Host {
    testing::host()
}

pub fn registry() -> Registry {
    let mut registry = Registry::new();
    anabranch_ops_s3::register(&mut registry);
    registry
}

/// Settings of a connection to the server, and others.
pub fn settings(endpoint: &str, more: &[(&str, &str)]) -> Settings {
    let connection = [
        ("objstore.endpoint", endpoint),
        ("objstore.bucket", BUCKET),
        ("aws.accessKeyId", "AKIAEXAMPLE"),
        ("aws.secretAccessKey", "of-the-test"),
    ];
    Settings::from_pairs(connection.iter().chain(more).copied())
}

pub fn configure(endpoint: &str, more: &[(&str, &str)]) -> Result<Arc<dyn Source>, Diagnostics> {
    let registry = registry();
    let kind = registry.source("s3").unwrap();
    kind.configure(&Arguments::parse(kind.specification(), &settings(endpoint, more))?)
}

/// A reader, and what it delivered last.
pub struct Reading {
    reader: Box<dyn Reader>,
    pub last: Option<Position>,
}

pub async fn try_open(server: &Server, resume: Option<Position>, more: &[(&str, &str)]) -> Result<Reading, Fault> {
    let more = [&[("pollingPeriod", "20ms")], more].concat();
    let marks =
        resume.iter().map(|position| (Partition::ONLY, Mark { generation: 0, seq: 0, position: position.clone() }));
    let source = configure(&server.endpoint(), &more).unwrap();
    let opened = source.open(&marks.collect(), &host()).await?;
    Ok(Reading { reader: opened.reader, last: resume })
}

pub async fn open(server: &Server, resume: Option<Position>) -> Reading {
    try_open(server, resume, &[]).await.unwrap()
}

/// `operation key=payload`.
pub fn shown(record: &Record) -> String {
    let text = |data: &Data| match data {
        Data::Raw(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Data::Absent => "-".to_owned(),
        Data::Structured(_) => panic!("structured"),
    };
    format!("{} {}={}", record.operation, text(&record.key), text(&record.payload.after))
}

impl Reading {
    /// The next records; none when caught up.
    pub async fn try_some(&mut self, room: Room) -> Result<Vec<Record>, Fault> {
        loop {
            match timeout(Duration::from_secs(60), self.reader.read(room)).await.expect("the reader hangs")? {
                Read::Rows { records, .. } => {
                    assert!(!records.is_empty() && records.len() <= room.rows);
                    self.last = records.last().map(|record| record.position().clone());
                    return Ok(records);
                }
                Read::Progress(_, position) => self.last = Some(position),
                Read::CaughtUp => return Ok(Vec::new()),
                other => panic!("{other:?}"),
            }
        }
    }

    pub async fn some(&mut self, room: Room) -> Vec<Record> {
        self.try_some(room).await.unwrap()
    }

    /// All records until it is caught up.
    pub async fn records(&mut self) -> Vec<Record> {
        let mut all = Vec::new();
        loop {
            let records = self.some(ROOM).await;
            if records.is_empty() {
                return all;
            }
            all.extend(records);
        }
    }

    /// The same, shown.
    pub async fn all(&mut self) -> Vec<String> {
        self.records().await.iter().map(shown).collect()
    }

    /// Reads the remaining records, and returns the reader's report at its end.
    pub async fn left(&mut self) -> (Backlog, Option<String>) {
        (self.reader.backlog().await.unwrap(), self.reader.left())
    }

    /// Nothing comes for some sweeps.
    pub async fn is_quiet(&mut self) -> bool {
        timeout(Duration::from_millis(200), self.reader.read(ROOM)).await.is_err()
    }
}
