//! Runs scripts on records, for tests.

use std::rc::Rc;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{Configured, Decision};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing;
use anabranch_plugin::testing::configured::Opened;
pub(crate) use anabranch_plugin::testing::json::{record, text};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use bytes::Bytes;

use crate::interpreter::Interpreter;
use crate::javascript::kind;
use crate::limits::Limits;
use crate::log::ServiceLog;
use crate::program::Program;
use crate::wire::orders::{read_outcome, write_order};
use crate::wire::{self, FrameKind, LastMetadata, NameCache, Reader, Wants};
use crate::worker::Executor;

pub(crate) fn configure(settings: &[(&str, &str)]) -> Result<Configured, Diagnostics> {
    let kind = kind(None);
    Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| kind.configure(&arguments))
}

pub(crate) fn build(configured: &Configured) -> Result<Opened, Fault> {
    let host = Host { node: "js".into(), ..testing::host() };
    Opened::new(configured, host)
}

/// A worker with a script.
pub(crate) struct Worker(Opened);

impl Worker {
    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        Worker(build(&configure(settings).unwrap()).unwrap())
    }

    pub(crate) fn new(script: &str) -> Self {
        Worker::with(&[("script", script)])
    }

    /// Processes records and returns the resulting ones. A failed record gives its code and message, and must be
    /// unchanged.
    pub(crate) fn run(&mut self, records: &[Record]) -> Vec<Result<Vec<Record>, String>> {
        let mut after = records.to_vec();
        let decisions = self.0.process(&mut after, None);
        let mut results: Vec<_> = after.iter().map(|record| Ok(vec![record.clone()])).collect();
        for (row, decision) in decisions {
            results[row] = match decision {
                Decision::Keep => continue,
                decision @ (Decision::Split(_) | Decision::Pieces(_)) => Ok(decision.into_records()),
                Decision::Filter => Ok(Vec::new()),
                Decision::Fail(fault) => {
                    assert_eq!(format!("{:?}", after[row]), format!("{:?}", records[row]), "a failed row changed");
                    Err(format!("{}: {}", fault.code(), fault.message()))
                }
            };
        }
        results
    }

    /// Processes one record that stays one record.
    pub(crate) fn one(&mut self, record: Record) -> Result<Record, String> {
        let mut made = self.run(&[record]).remove(0)?;
        assert_eq!(made.len(), 1);
        Ok(made.remove(0))
    }

    pub(crate) fn json(&mut self, record: &str) -> Result<String, String> {
        self.one(self::record(record)).map(|record| text(&record))
    }
}

/// A script behind the messages of a worker process, without the process.
pub(crate) struct Wired {
    executor: Executor,
    pub(crate) wants: Wants,
    names: NameCache,
}

impl Wired {
    pub(crate) fn new(script: &str) -> Self {
        let program = Program { text: script.into(), name: "script".into() };
        let limits = Limits { time: Duration::from_secs(60) };
        let interpreter = Interpreter::open(program, limits, Rc::new(ServiceLog("js".into()))).unwrap();
        let executor = Executor::new(interpreter).unwrap();
        Wired { wants: executor.wants().clone(), executor, names: NameCache::default() }
    }

    /// Like [`Worker::run`].
    pub(crate) fn run(&mut self, records: &[Record]) -> Vec<Result<Vec<Record>, String>> {
        let mut after = records.to_vec();
        let mut rows: Vec<&mut Record> = after.iter_mut().collect();
        let mut made = Vec::new();
        let mut orders = 0;
        while made.len() < rows.len() {
            orders += 1;
            assert!(orders <= 2 * records.len(), "more is wanted again and again");
            let mut frame = Vec::new();
            write_order(&mut frame, false, &rows[made.len()..], &self.wants).unwrap();
            let mut answers = Vec::new();
            self.executor.process(Bytes::copy_from_slice(&frame[5..]), &mut answers, |_| ()).unwrap();
            let mut answers = &answers[..];
            while let Some((kind, content)) = wire::receive(&mut answers).unwrap() {
                let mut reader = Reader::new(content, &mut self.names);
                match kind {
                    FrameKind::Made => {
                        let mut remembered = LastMetadata::default();
                        for _ in 0..reader.count().unwrap() {
                            let row = &mut *rows[made.len()];
                            made.push(read_outcome(&mut reader, row, &self.wants, &mut remembered).unwrap());
                        }
                    }
                    FrameKind::Wants => self.wants = Wants::read(&mut reader).unwrap(),
                    other => panic!("{other:?}"),
                }
                assert!(reader.is_empty());
            }
        }
        let results = made.into_iter().zip(records).zip(&after);
        let results = results.map(|((made, before), after)| match made {
            Ok(Decision::Keep) => Ok(vec![after.clone()]),
            Ok(decision @ (Decision::Split(_) | Decision::Pieces(_))) => Ok(decision.into_records()),
            Ok(Decision::Filter) => Ok(Vec::new()),
            Ok(Decision::Fail(fault)) | Err(fault) => {
                assert_eq!(format!("{before:?}"), format!("{after:?}"), "a failed row changed");
                Err(format!("{}: {}", fault.code(), fault.message()))
            }
        });
        results.collect()
    }
}
