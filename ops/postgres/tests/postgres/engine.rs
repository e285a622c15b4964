//! A source that is read as the engine does: positions are stored, then acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_postgres::register;
use anabranch_plugin::host::Host;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::source::{OpenedSource, Read, Release as Given, Request, Requested, Room, Source, Start};
use anabranch_plugin::testing::{configured, host};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Position, Record, json};

use super::server::Database;

/// Longest time of a read.
const PATIENCE: Duration = Duration::from_secs(60);
/// Room for records.
const ROOM: Room = Room { rows: 1000, bytes: 1 << 20 };

/// Returns the source for settings, or the messages of the findings.
pub fn configure(settings: &[(&str, &str)]) -> Result<Arc<dyn Source>, Vec<String>> {
    let mut registry = Registry::new();
    register(&mut registry);
    configured::source(registry.source("postgres").unwrap(), settings)
}

/// Returns the source of tables of a database, with a slot and a publication of its own.
pub fn source(db: &Database, tables: &str, more: &[(&str, &str)]) -> Arc<dyn Source> {
    let url = db.url();
    let mut settings = vec![
        ("url", url.as_str()),
        ("tables", tables),
        ("logrepl.slotName", db.name()),
        ("logrepl.publicationName", "p"),
        ("logrepl.withAvroSchema", "false"),
    ];
    settings.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
    settings.extend_from_slice(more);
    configure(&settings).unwrap()
}

/// What is stored between runs.
#[derive(Clone, Default)]
pub struct Store {
    pub marks: BTreeMap<Partition, Mark>,
}

/// A run of a source.
pub struct Run {
    opened: OpenedSource,
    pub store: Store,
    /// Records that were read, with their lanes.
    pub records: Vec<(Partition, Record)>,
    /// Records that the source could not pass on.
    pub failed: Vec<(Record, Fault)>,
    pub starts: BTreeMap<Partition, Start>,
    /// Number of records after which nothing more is stored or acknowledged.
    pub stores: usize,
}

/// What a run has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    /// Everything that exists is read.
    CaughtUp,
    /// The source has ended.
    End,
    /// So many records are read.
    Records,
    /// Nothing happened for a while.
    Waits,
}

impl Run {
    pub async fn open(source: &dyn Source, store: &Store) -> Result<Run, Fault> {
        Run::open_with(source, store, &host()).await
    }

    pub async fn open_with(source: &dyn Source, store: &Store, host: &Host) -> Result<Run, Fault> {
        let opened = source.open(&store.marks, host).await?;
        let starts = opened.starts.clone();
        Ok(Run { opened, store: store.clone(), records: Vec::new(), failed: Vec::new(), starts, stores: usize::MAX })
    }

    /// Stores positions, then acknowledges them.
    async fn settle(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        if self.records.len() > self.stores {
            return Ok(());
        }
        let Some(last) = positions.last() else { return Ok(()) };
        let mark = self.store.marks.entry(partition.clone()).or_insert_with(|| Mark::beginning(1));
        mark.seq += positions.len() as u64;
        mark.position = last.clone();
        self.opened.acker.ack(partition, positions).await
    }

    /// Reads until there is nothing more, or so many records are read.
    pub async fn read(&mut self, most: usize, patience: Duration) -> Result<Came, Fault> {
        loop {
            if self.records.len() >= most {
                return Ok(Came::Records);
            }
            let room = Room { rows: ROOM.rows.min(most - self.records.len()), ..ROOM };
            let Ok(read) = tokio::time::timeout(patience, self.opened.reader.read(room)).await else {
                return Ok(Came::Waits);
            };
            match read? {
                Read::Rows { partition, records } => {
                    let positions: Vec<_> = records.iter().map(|record| record.position().clone()).collect();
                    self.records.extend(records.into_iter().map(|record| (partition.clone(), record)));
                    self.settle(&partition, &positions).await?;
                }
                Read::Failed { partition, record, fault } => {
                    let position = record.position().clone();
                    self.failed.push((*record, fault));
                    self.settle(&partition, &[position]).await?;
                }
                Read::Progress(partition, position) => self.settle(&partition, &[position]).await?,
                Read::Finished(partition) => {
                    if self.records.len() <= self.stores {
                        self.store.marks.remove(&partition);
                        self.opened.acker.released(&partition, Given::Finished).await?;
                    }
                }
                Read::CaughtUp => return Ok(Came::CaughtUp),
                Read::End => return Ok(Came::End),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reads until everything that exists is read.
    pub async fn catch_up(&mut self) -> Result<(), Fault> {
        match self.read(usize::MAX, PATIENCE).await? {
            Came::CaughtUp | Came::End => Ok(()),
            other => panic!("{other:?} after {} records", self.records.len()),
        }
    }

    /// Reads until so many records are read.
    pub async fn until(&mut self, records: usize) {
        while self.records.len() < records {
            match self.read(records, PATIENCE).await.unwrap() {
                Came::Records | Came::CaughtUp => {}
                other => panic!("{other:?} after {} records", self.records.len()),
            }
        }
    }

    /// Reads until the source fails, and returns the fault.
    pub async fn fail(&mut self) -> Fault {
        loop {
            match self.read(usize::MAX, PATIENCE).await {
                Err(fault) => return fault,
                Ok(Came::CaughtUp) => {}
                Ok(other) => panic!("{other:?} after {} records", self.records.len()),
            }
        }
    }

    /// Asks for the rows of a table.
    pub async fn backfill(&mut self, table: &str) -> Requested {
        self.opened.reader.request(Request::Backfill { part: table.into() }).await.unwrap()
    }

    /// Reads until so many records have failed, and returns them in short with the code of each fault; and clears them.
    pub async fn failures(&mut self, records: usize) -> Vec<(String, &'static str)> {
        while self.failed.len() < records {
            match self.read(usize::MAX, Duration::from_millis(100)).await.unwrap() {
                Came::CaughtUp | Came::Waits => {}
                other => panic!("{other:?} after {} failed records", self.failed.len()),
            }
        }
        std::mem::take(&mut self.failed).iter().map(|(record, fault)| (shown(record), fault.code().name())).collect()
    }

    /// Returns the records in short: operation, table, key, after; and clears them.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.records).iter().map(|(_, record)| shown(record)).collect()
    }

    /// Asks the source for its backlog in bytes.
    pub async fn backlog(&mut self) -> u64 {
        self.opened.reader.backlog().await.unwrap().bytes.unwrap()
    }

    /// Stops reading and closes the source.
    pub async fn close(mut self) -> Store {
        self.opened.reader.stop().await.unwrap();
        self.opened.acker.close().await.unwrap();
        self.store
    }
}

/// Returns a record in short.
pub fn shown(record: &Record) -> String {
    let data = |data: &anabranch_record::Data| match data.fields() {
        None => "-".to_owned(),
        Some(fields) => {
            let mut out = Vec::new();
            json::write_value(&fields.clone().into(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        }
    };
    let table = record.metadata.get("recfmt.collection").map_or("?", |table| table.as_str());
    let (operation, key) = (record.operation, data(&record.key));
    format!("{operation} {table} {key} {} {}", data(&record.payload.before), data(&record.payload.after))
}
