//! Services of a trial: existing sources and destinations as plugins, a store that keeps nothing, and logs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use anabranch_graph::exec::Services;
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::{LogLevel, LogLine, LogSink, Network};
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::source::{Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_plugin::state::{Commit, DiscardingState, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark};
use async_trait::async_trait;

use anabranch_process::terminal::{Stream, data};

/// An existing source or destination, wrapped for the registry.
pub struct PreconfiguredPlugin<T: ?Sized> {
    specification: Specification,
    end: Arc<T>,
}

impl<T: ?Sized> PreconfiguredPlugin<T> {
    /// Wraps the source or destination under a plugin name.
    pub fn new(name: &'static str, summary: &'static str, end: Arc<T>) -> Arc<Self> {
        Arc::new(PreconfiguredPlugin { specification: Specification::builtin(name, summary), end })
    }
}

impl SourceKind for PreconfiguredPlugin<dyn Source> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(self.end.clone())
    }
}

impl DestinationKind for PreconfiguredPlugin<dyn Destination> {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(self.end.clone())
    }
}

/// Returns the services of a trial: a store that keeps nothing, schemas, and standard error for lines of processors.
pub fn services(schemas: Arc<dyn SchemaRegistry>) -> Services {
    Services {
        store: Arc::new(DiscardingStore),
        letters: None,
        log: Arc::new(StderrLog),
        result_cache: Arc::new(DiscardingState),
        active: Arc::new(DiscardingState),
        schemas,
        network: Network::Open,
        shared: None,
    }
}

/// A store that accepts everything and keeps nothing.
pub(crate) struct DiscardingStore;

#[async_trait]
impl StateStore for DiscardingStore {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        Ok(Epoch { unit: unit.clone(), number: 1 })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(BTreeMap::new())
    }

    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(Vec::new())
    }

    async fn commit(&self, _: &Epoch, _: Commit<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Writes the log lines of processors to standard error.
pub struct StderrLog;

impl LogSink for StderrLog {
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
