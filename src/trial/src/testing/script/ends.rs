//! Scripted sources and destinations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Replay, Room, Source};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use serde_json::{Value as Json, json};

use super::{FaultEffect, Script, locked};
use crate::codes;
use crate::testing::case::{FaultKind, FaultSpec};
use crate::testing::view;

/// A scripted source or destination.
pub(super) struct ScriptedEnd {
    pub(super) script: Arc<Script>,
    pub(super) connector: Str,
    /// The write policy of a destination.
    pub(super) policy: Option<WritePolicy>,
}

#[async_trait]
impl Source for ScriptedEnd {
    fn catches_up(&self) -> bool {
        true
    }

    fn replay(&self) -> Replay {
        Replay::Exactly
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        let (script, connector) = (self.script.clone(), self.connector.clone());
        let after = resume.get(&Partition::ONLY).and_then(|mark| script.rows.get(&mark.position));
        let next = after.map_or(0, |row| row.number);
        let acker = Scripted { script: script.clone(), connector: connector.clone() };
        Ok(OpenedSource::new(Box::new(ScriptReader { script, connector, next }), Box::new(acker)))
    }
}

struct ScriptReader {
    script: Arc<Script>,
    connector: Str,
    /// Number of records before the next one.
    next: usize,
}

impl ScriptReader {
    /// Returns the remaining records of the current read.
    fn records(&self) -> &[Record] {
        let mut before = 0;
        for read in self.script.sources.get(&self.connector).into_iter().flatten() {
            if self.next < before + read.len() {
                return &read[self.next - before..];
            }
            before += read.len();
        }
        &[]
    }
}

#[async_trait]
impl Reader for ScriptReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let mut bytes = 0;
        let fits = self.records().iter().take(room.rows.max(1)).take_while(|record| {
            bytes += record.weight();
            bytes <= room.bytes
        });
        let rows = fits.count().max(1);
        let mut records: Vec<Record> = self.records().iter().take(rows).cloned().collect();
        if records.is_empty() {
            return Ok(Read::End);
        }
        if self.script.troubles(&self.connector) {
            // One by one, so that the records before a failing record are read.
            records.truncate(1);
            let crashes = |strike: &FaultEffect| matches!(strike, FaultEffect::Crash);
            let read = records.iter().map(Record::position);
            let strikes = if self.is_about_reading() { self.script.strikes(&self.connector, read) } else { Vec::new() };
            for (_, strike) in strikes.into_iter().filter(|(_, strike)| !crashes(strike)) {
                match strike {
                    FaultEffect::Fail(fault) => return Err(fault),
                    FaultEffect::Delay(time) => tokio::time::sleep(time).await,
                    FaultEffect::Hang => std::future::pending::<()>().await,
                    #[allow(clippy::panic, reason = "the test asks for it")]
                    FaultEffect::Panic => panic!("injected by the test"),
                    FaultEffect::Partial(_) | FaultEffect::Crash => {}
                }
            }
        }
        self.next += records.len();
        let mut state = locked(&self.script.state);
        let read = state.kept.read.entry(self.connector.clone()).or_default();
        *read = (*read).max(self.next);
        Ok(Read::Rows { partition: Partition::ONLY, records })
    }
}

impl ScriptReader {
    /// Returns `true` if a fault of the source affects reading. A crash affects acknowledging.
    fn is_about_reading(&self) -> bool {
        let of_ours = |fault: &&FaultSpec| fault.at.value == self.connector;
        self.script.faults.iter().filter(of_ours).any(|fault| fault.kind.value != FaultKind::Crash)
    }
}

/// Records the acknowledgements that a source receives.
struct Scripted {
    script: Arc<Script>,
    connector: Str,
}

#[async_trait]
impl Acker for Scripted {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let crash = self
            .script
            .faults
            .iter()
            .enumerate()
            .find(|(_, fault)| fault.at.value == self.connector && fault.kind.value == FaultKind::Crash);
        for position in positions {
            let Some(row) = self.script.rows.get(position) else { continue };
            if let Some((number, fault)) = crash
                && self.script.is_hit(fault, position)
                && fault.times.is_none_or(|times| locked(&self.script.state).struck[number] < times)
            {
                locked(&self.script.state).struck[number] += 1;
                self.script.die();
                return std::future::pending().await;
            }
            locked(&self.script.state).kept.acked.entry(self.connector.clone()).or_default().push(row.number);
        }
        Ok(())
    }
}

#[async_trait]
impl Destination for ScriptedEnd {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        let (script, connector) = (self.script.clone(), self.connector.clone());
        Ok(Box::new(ScriptWriter { script, connector, transactional: self.policy().retry == Retry::Transactional }))
    }

    fn policy(&self) -> WritePolicy {
        const ANY: WritePolicy =
            WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent };
        self.policy.unwrap_or(ANY)
    }
}

struct ScriptWriter {
    script: Arc<Script>,
    connector: Str,
    transactional: bool,
}

impl ScriptWriter {
    fn keep<'r>(&self, rows: impl Iterator<Item = &'r Record>) {
        let rows: Vec<_> = rows.map(|row| (row.position().clone(), view::record(row))).collect();
        locked(&self.script.state).kept.delivered.entry(self.connector.clone()).or_default().extend(rows);
    }

    fn commit(&self, marks: &[(LaneId, Mark)]) {
        let mut state = locked(&self.script.state);
        for (lane, mark) in marks {
            state.marks.insert((self.connector.clone(), lane.clone()), mark.clone());
        }
    }
}

#[async_trait]
impl Writer for ScriptWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        let state = locked(&self.script.state);
        let ours = state.marks.iter().filter(|((connector, _), _)| *connector == self.connector);
        Ok(ours.map(|((_, lane), mark)| (lane.clone(), mark.clone())).collect())
    }

    async fn write(&mut self, Write { rows, marks, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let strikes = match self.script.troubles(&self.connector) {
            true => self.script.strikes(&self.connector, rows.iter().map(Record::position)),
            false => Vec::new(),
        };
        let mut failed: BTreeMap<usize, Fault> = BTreeMap::new();
        let mut dies_after = None;
        for (row, strike) in strikes {
            match strike {
                FaultEffect::Fail(fault) if fault.class() == FaultClass::Record => drop(failed.insert(row, fault)),
                FaultEffect::Fail(fault) => return Err(fault),
                FaultEffect::Delay(time) => tokio::time::sleep(time).await,
                FaultEffect::Hang => return std::future::pending().await,
                #[allow(clippy::panic, reason = "the test asks for it")]
                FaultEffect::Panic => panic!("injected by the test"),
                FaultEffect::Partial(taken) => {
                    if !self.transactional {
                        self.keep(rows.iter().take(taken));
                    }
                    return Err(Fault::transient(codes::INJECTED, "the connection was lost during a write (injected)"));
                }
                FaultEffect::Crash => dies_after = Some(row),
            }
        }
        if self.transactional && !failed.is_empty() {
            return Ok(Verdicts::Refused(failed.into_iter().collect()));
        }
        let last = match dies_after {
            Some(row) if !self.transactional => row,
            _ => rows.len(),
        };
        self.keep(rows.iter().enumerate().filter(|(row, _)| *row <= last && !failed.contains_key(row)).map(|(_, r)| r));
        self.commit(marks);
        if dies_after.is_some() {
            self.script.die();
            return std::future::pending().await;
        }
        if failed.is_empty() {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        Ok(Verdicts::Each((0..rows.len()).map(|row| failed.remove(&row).map_or(Ok(Delivered::Durable), Err)).collect()))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A scripted dead-letter queue.
pub(super) struct Letters {
    pub(super) script: Arc<Script>,
    pub(super) policy: WritePolicy,
}

#[async_trait]
impl Destination for Letters {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(Letters { script: self.script.clone(), policy: self.policy }))
    }

    fn policy(&self) -> WritePolicy {
        self.policy
    }
}

#[async_trait]
impl Writer for Letters {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let letters: Vec<Json> = rows.iter().map(|row| self.letter(row)).collect();
        let kept = &mut locked(&self.script.state).kept.letters;
        for letter in letters {
            // A replay overwrites the dead letter with the same name.
            match kept.iter_mut().find(|other| other["name"] == letter["name"]) {
                Some(other) => *other = letter,
                None => kept.push(letter),
            }
        }
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Letters {
    fn letter(&self, letter: &Record) -> Json {
        let said = |key: &Str| letter.metadata.get(key).map_or("", |text| text.as_str());
        let fields = letter.payload.after.fields();
        let part = |name: &str| fields.and_then(|fields| fields.get(name)).map_or(Json::Null, view::value);
        let payload = part("payload");
        let row = self.script.rows.get(letter.position());
        let name = match &letter.key {
            Data::Raw(name) => view::bytes(name),
            Data::Absent | Data::Structured(_) => Json::Null,
        };
        json!({
            "name": name,
            "step": said(&key::DLQ_NACK_NODE_ID),
            "code": said(&key::DLQ_NACK_CODE),
            "error": said(&key::DLQ_NACK_ERROR),
            "source": row.map(|row| row.source.as_str()),
            "number": row.map(|row| row.number),
            "record": {
                "operation": part("operation"),
                "metadata": part("metadata"),
                "key": part("key"),
                "before": payload["before"],
                "after": payload["after"],
            },
        })
    }
}
