//! Runs a processor on records, for tests of processors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{Configured, Decision, OperatorKind};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::state::{DiscardingState, ResultCache, ResultKey, StoreError};
use anabranch_plugin::testing;
use anabranch_plugin::testing::configured::Opened;
pub(crate) use anabranch_plugin::testing::json::{record, text};
use anabranch_record::Record;
use async_trait::async_trait;
use bytes::Bytes;

/// An in-memory store that can be made to fail.
#[derive(Default)]
pub(crate) struct Notebook {
    pub(crate) entries: Mutex<HashMap<(String, ResultKey), Bytes>>,
    pub(crate) broken: bool,
}

#[async_trait]
impl ResultCache for Notebook {
    async fn recall(&self, space: &str, keys: &[ResultKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        if self.broken {
            return Err(StoreError::Damaged("torn".into()));
        }
        let entries = self.entries.lock().unwrap();
        Ok(keys.iter().map(|key| entries.get(&(space.to_owned(), *key)).cloned()).collect())
    }

    async fn keep(&self, space: &str, new: Vec<(ResultKey, Bytes)>) -> Result<(), StoreError> {
        if self.broken {
            return Err(StoreError::Damaged("torn".into()));
        }
        let mut entries = self.entries.lock().unwrap();
        entries.extend(new.into_iter().map(|(key, bytes)| ((space.to_owned(), key), bytes)));
        Ok(())
    }
}

fn host(result_cache: Arc<dyn ResultCache>) -> Host {
    Host { result_cache, ..testing::host() }
}

/// Configures the processor, or returns the findings about the settings.
pub(crate) fn configured(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) -> Result<Configured, Vec<String>> {
    Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| kind.configure(&arguments))
        .map_err(|findings| findings.into_iter().map(|finding| finding.message).collect())
}

/// Returns the findings about settings.
pub(crate) fn findings(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) -> Vec<String> {
    configured(kind, settings).err().unwrap_or_default()
}

/// Runs an inline processor; returns the record afterwards and the decision.
pub(crate) fn inline(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)], record: &Record) -> (Record, Decision) {
    let configured = configured(kind, settings).unwrap();
    let mut records = vec![record.clone()];
    let mut decisions = Opened::new(&configured, host(Arc::new(DiscardingState))).unwrap().process(&mut records, None);
    (records.remove(0), decisions.pop().map_or(Decision::Keep, |(_, decision)| decision))
}

/// Runs an asynchronous processor; returns the records, or codes and messages of faults.
pub(crate) async fn waiting(
    kind: &Arc<dyn OperatorKind>,
    settings: &[(&str, &str)],
    records: Vec<Record>,
    result_cache: Arc<dyn ResultCache>,
) -> Vec<Result<Record, String>> {
    let count = records.len();
    let called = Opened::new(&configured(kind, settings).unwrap(), host(result_cache)).unwrap().call(records).await;
    assert_eq!(called.len(), count);
    let result = |(record, decision)| match decision {
        Decision::Keep => Ok(record),
        Decision::Fail(fault) => Err(format!("{}: {}", fault.code(), fault.message())),
        other => panic!("{other:?}"),
    };
    called.into_iter().map(result).collect()
}
