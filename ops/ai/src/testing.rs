//! Runs a processor on records, for tests of processors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{BuiltOperator, ConfiguredOperator, Decision, OperatorKind, Rows, Verdict};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::state::{DiscardingState, ResultCache, ResultKey, StoreError};
use anabranch_plugin::testing;
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

fn host(memo: Arc<dyn ResultCache>) -> Host {
    Host { memo, ..testing::host() }
}

/// Configures the processor, or returns the findings about the settings.
pub(crate) fn configured(
    kind: &Arc<dyn OperatorKind>,
    settings: &[(&str, &str)],
) -> Result<Arc<dyn ConfiguredOperator>, Vec<String>> {
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
    let built = configured(kind, settings).unwrap().build(0, &host(Arc::new(DiscardingState))).unwrap();
    let BuiltOperator::Inline(mut operator) = built else { panic!("not inline") };
    let (mut records, mut decisions) = (vec![record.clone()], Vec::new());
    operator.process(&mut Rows::new(&mut records, None, &mut decisions));
    (records.remove(0), decisions.pop().map_or(Decision::Keep, |(_, decision)| decision))
}

/// Runs an asynchronous processor; returns the records, or codes and messages of faults.
pub(crate) async fn waiting(
    kind: &Arc<dyn OperatorKind>,
    settings: &[(&str, &str)],
    records: Vec<Record>,
    memo: Arc<dyn ResultCache>,
) -> Vec<Result<Record, String>> {
    let built = configured(kind, settings).unwrap().build(0, &host(memo)).unwrap();
    let BuiltOperator::Async(operator) = built else { panic!("not async") };
    let (count, verdicts) = (records.len(), operator.call(records).await);
    assert_eq!(verdicts.len(), count);
    let result = |verdict| match verdict {
        Verdict::Keep(record) => Ok(record),
        Verdict::Fail(fault) => Err(format!("{}: {}", fault.code(), fault.message())),
        other => panic!("{other:?}"),
    };
    verdicts.into_iter().map(result).collect()
}
