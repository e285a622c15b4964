//! Running scripts on records, for tests.

use std::sync::Arc;

use anabranch_graph::arguments::Arguments;
use anabranch_graph::config::Settings;
use anabranch_graph::diagnostic::Diagnostics;
use anabranch_graph::fault::Fault;
use anabranch_graph::json::write_record;
use anabranch_graph::operator::{
    BuiltOperator, ConfiguredOperator, Decision, Host, LogLevel, LogLine, LogSink, Operator, Rows,
};
use anabranch_graph::record::Record;
use anabranch_graph::schema::MemoryRegistry;
use anabranch_graph::state::Oblivion;

use crate::javascript::kind;

struct Silence;

impl LogSink for Silence {
    fn enabled(&self, _: LogLevel) -> bool {
        false
    }
    fn write_records(&self, _: &LogLine<'_>, _: &mut dyn Iterator<Item = &[u8]>) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn configure(settings: &[(&str, &str)]) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let kind = kind(None);
    Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| kind.configure(&arguments))
}

pub(crate) fn build(configured: &dyn ConfiguredOperator) -> Result<Box<dyn Operator>, Fault> {
    let host = Host {
        pipeline: "p".into(),
        node: "js".into(),
        log: Arc::new(Silence),
        memo: Arc::new(Oblivion),
        schemas: Arc::new(MemoryRegistry::new()),
        network: Default::default(),
    };
    match configured.build(0, &host)? {
        BuiltOperator::Isolate(operator) => Ok(operator),
        BuiltOperator::Inline(_) | BuiltOperator::Async(_) => panic!("not an isolate"),
    }
}

/// A worker with a script.
pub(crate) struct Worker(Box<dyn Operator>);

impl Worker {
    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        Worker(build(&*configure(settings).unwrap()).unwrap())
    }

    pub(crate) fn new(script: &str) -> Self {
        Worker::with(&[("script", script)])
    }

    /// The records that are made of these; a row that fails gives its code and message, and must stay as it was.
    pub(crate) fn run(&mut self, records: &[Record]) -> Vec<Result<Vec<Record>, String>> {
        let mut after = records.to_vec();
        let mut decisions = Vec::new();
        self.0.process(&mut Rows::new(&mut after, None, &mut decisions));
        let mut results: Vec<_> = after.iter().map(|record| Ok(vec![record.clone()])).collect();
        for (row, decision) in decisions {
            results[row] = match decision {
                Decision::Keep => continue,
                Decision::Split(records) => Ok(records),
                Decision::Filter => Ok(Vec::new()),
                Decision::Fail(fault) => {
                    assert_eq!(format!("{:?}", after[row]), format!("{:?}", records[row]), "a failed row changed");
                    Err(format!("{}: {}", fault.code(), fault.message()))
                }
            };
        }
        results
    }

    /// What is made of one record that stays one.
    pub(crate) fn one(&mut self, record: Record) -> Result<Record, String> {
        let mut made = self.run(&[record]).remove(0)?;
        assert_eq!(made.len(), 1);
        Ok(made.remove(0))
    }

    pub(crate) fn json(&mut self, record: &str) -> Result<String, String> {
        self.one(self::record(record)).map(|record| text(&record))
    }
}

pub(crate) fn record(json: &str) -> Record {
    Record::from_json(json.as_bytes()).unwrap()
}

pub(crate) fn text(record: &Record) -> String {
    let mut out = Vec::new();
    write_record(record, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}
