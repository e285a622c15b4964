//! Trials: runs of a plan that leave nothing behind. Their ends are given instead of looked up, no position is
//! stored, and nothing is acknowledged.

pub mod bound;
pub mod lines;
pub mod output;
pub mod schemas;
pub mod synthetic;
pub mod tap;
pub mod trace;
pub mod watch;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use anabranch_graph::arguments::Arguments;
use anabranch_graph::destination::{Destination, DestinationKind};
use anabranch_graph::diagnostic::Diagnostics;
use anabranch_graph::exec::Services;
use anabranch_graph::operator::{LogLevel, LogLine, LogSink};
use anabranch_graph::schema::SchemaRegistry;
use anabranch_graph::source::{Mark, Source, SourceKind};
use anabranch_graph::specification::Specification;
use anabranch_graph::state::{Epoch, LaneId, Oblivion, Receipt, StateStore, StoreError};
use anabranch_graph::text::Str;
use async_trait::async_trait;

use crate::terminal::{Stream, data};

/// An end of a plan that is there already, as the registry wants it.
pub struct Given<T: ?Sized> {
    specification: Specification,
    end: Arc<T>,
}

impl<T: ?Sized> Given<T> {
    /// The end under a plugin name.
    pub fn new(name: &'static str, summary: &'static str, end: Arc<T>) -> Arc<Self> {
        Arc::new(Given { specification: Specification::builtin(name, summary), end })
    }
}

impl SourceKind for Given<dyn Source> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(self.end.clone())
    }
}

impl DestinationKind for Given<dyn Destination> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(self.end.clone())
    }
}

/// What a trial reaches outside of its plan: a store that forgets, schemas, and standard error for lines of processors.
pub fn services(schemas: Arc<dyn SchemaRegistry>) -> Services {
    Services { store: Arc::new(Forgetful), log: Arc::new(Notes), memo: Arc::new(Oblivion), schemas }
}

/// A store that takes everything and keeps nothing.
struct Forgetful;

#[async_trait]
impl StateStore for Forgetful {
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError> {
        Ok(Epoch { pipeline: pipeline.clone(), number: 1 })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(BTreeMap::new())
    }

    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(Vec::new())
    }

    async fn commit_with_receipts(&self, _: &Epoch, _: &[(LaneId, Mark)], _: &[Receipt]) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Lines of processors for people, on standard error.
pub struct Notes;

impl LogSink for Notes {
    fn enabled(&self, level: LogLevel) -> bool {
        level >= LogLevel::Info
    }

    fn write_records(&self, line: &LogLine<'_>, records: &mut dyn Iterator<Item = &[u8]>) -> std::io::Result<()> {
        if !self.enabled(line.level) {
            return Ok(());
        }
        let mut text = Vec::new();
        for record in records {
            text.extend_from_slice(line.message.as_bytes());
            text.push(b' ');
            text.extend_from_slice(record);
            text.push(b'\n');
        }
        data(Stream::Err).write_all(&text)
    }
}
