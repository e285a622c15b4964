//! Plugins as a pipeline would configure and call them, without a pipeline.

use std::sync::Arc;

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;

use crate::arguments::Arguments;
use crate::destination::{Destination, DestinationKind};
use crate::diagnostic::Diagnostics;
use crate::host::{DiscardingLog, Host};
use crate::operator::{BuiltAsync, BuiltIsolate, Configured, Decision, OperatorContext, OperatorKind, Rows};
use crate::schema::MemoryRegistry;
use crate::settings::Settings;
use crate::source::{Source, SourceKind};
use crate::specification::Specification;
use crate::state::{DiscardingState, Slots};

/// Returns a host that discards log lines and stores nothing.
pub fn host() -> Host {
    Host {
        pipeline: "p".into(),
        slots: Slots::WHOLE,
        node: "p:n".into(),
        log: Arc::new(DiscardingLog),
        result_cache: Arc::new(DiscardingState),
        active: Arc::new(DiscardingState),
        marks: Arc::new(DiscardingState),
        schemas: Arc::new(MemoryRegistry::new()),
        network: Default::default(),
        shared: None,
        once: false,
    }
}

/// Returns the source for settings, as a pipeline file has them.
///
/// # Errors
/// The messages of all findings about the settings.
pub fn source(kind: &Arc<dyn SourceKind>, settings: &[(&str, &str)]) -> Result<Arc<dyn Source>, Vec<String>> {
    configured(kind.specification(), settings, |arguments| kind.configure(arguments))
}

/// Returns the processor for settings, as a pipeline file has them.
///
/// # Errors
/// The messages of all findings about the settings.
pub fn processor(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) -> Result<Configured, Vec<String>> {
    configured(kind.specification(), settings, |arguments| kind.configure(arguments))
}

/// Returns the destination for settings, as a pipeline file has them.
///
/// # Errors
/// The messages of all findings about the settings.
pub fn destination(
    kind: &Arc<dyn DestinationKind>,
    settings: &[(&str, &str)],
) -> Result<Arc<dyn Destination>, Vec<String>> {
    configured(kind.specification(), settings, |arguments| kind.configure(arguments))
}

fn configured<T>(
    specification: &Specification,
    settings: &[(&str, &str)],
    configure: impl FnOnce(&Arguments) -> Result<T, Diagnostics>,
) -> Result<T, Vec<String>> {
    Arguments::parse(specification, &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| configure(&arguments))
        .map_err(|findings| findings.into_iter().map(|finding| finding.message).collect())
}

/// A processor of any class, opened as the first worker.
pub struct Opened {
    operator: AnyOperator,
    context: OperatorContext,
}

enum AnyOperator {
    Computes(BuiltIsolate),
    Waits(BuiltAsync),
}

impl Opened {
    /// Opens a processor.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    pub fn new(processor: &Configured, host: Host) -> Result<Self, Fault> {
        let context = OperatorContext::new(0, host);
        let operator = match processor {
            Configured::Inline(operator) => AnyOperator::Computes(operator.build(&context)?),
            Configured::Isolate(operator) => AnyOperator::Computes(operator.build(&context)?),
            Configured::Async(operator) => AnyOperator::Waits(operator.build(&context)?),
        };
        Ok(Opened { operator, context })
    }

    /// Processes the selected records in place, all if `selected` is `None`. Returns the decisions by row.
    ///
    /// # Panics
    /// The processor is asynchronous.
    pub fn process(&mut self, records: &mut [Record], selected: Option<&Mask>) -> Vec<(usize, Decision)> {
        let AnyOperator::Computes(operator) = &mut self.operator else {
            panic!("the processor is asynchronous: use `Opened::call`")
        };
        let mut decisions = Vec::with_capacity(records.len());
        operator.process(&mut Rows::new(records, selected, &mut decisions), &self.context);
        decisions
    }

    /// Calls an asynchronous processor once. Returns the records after the call, with the decisions on them.
    ///
    /// # Panics
    /// The processor computes.
    pub async fn call(&self, mut records: Vec<Record>) -> Vec<(Record, Decision)> {
        let AnyOperator::Waits(operator) = &self.operator else {
            panic!("the processor computes: use `Opened::process`")
        };
        let decisions = operator.call(&mut records, &self.context).await;
        records.into_iter().zip(decisions).collect()
    }
}

/// Calls a processor that computes with one record. Returns the records that replace it (none if it is filtered), or the
/// fault of its dead letter.
///
/// # Errors
/// The fault with which the processor fails the record, or cannot be opened.
///
/// # Panics
/// The processor is asynchronous, changes a record that it fails, or gives a record another position.
pub fn process(processor: &Configured, record: &Record) -> Result<Vec<Record>, Fault> {
    let mut records = vec![record.clone()];
    let mut decisions = Opened::new(processor, host())?.process(&mut records, None);
    let after = match decisions.pop().map_or(Decision::Keep, |(_, decision)| decision) {
        Decision::Fail(fault) => {
            // As text, because NaN is not equal to itself.
            assert_eq!(
                format!("{:?}", records[0]),
                format!("{record:?}"),
                "the processor changed a record that it fails"
            );
            return Err(fault);
        }
        Decision::Keep => records,
        decision => decision.into_records(),
    };
    for record_after in &after {
        assert_eq!(record_after.position(), record.position(), "the processor changed the position of a record");
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use anabranch_record::{Data, Position};

    use super::*;
    use crate::testing;

    fn processed(step: fn(&mut Record) -> Result<Decision, Fault>) -> Result<Vec<u64>, String> {
        let after = process(&testing::inline(step), &testing::record(7));
        after.map(|records| testing::rows(&records)).map_err(|fault| fault.code().name().to_owned())
    }

    #[test]
    fn all_decisions_have_a_result() {
        assert_eq!(processed(|_| Ok(Decision::Keep)), Ok(vec![7]));
        assert_eq!(processed(|_| Ok(Decision::Filter)), Ok(vec![]));
        assert_eq!(processed(|record| Ok(Decision::Split(vec![record.clone(), record.clone()]))), Ok(vec![7, 7]));
        assert_eq!(processed(|_| Err(Fault::record(testing::codes::BAD, "it is wrong"))), Err("bad".to_owned()));
    }

    #[test]
    #[should_panic(expected = "changed a record that it fails")]
    fn a_failed_record_stays_as_it_was() {
        let _ = processed(|record| {
            record.key = Data::text("changed");
            Err(Fault::record(testing::codes::BAD, "it is wrong"))
        });
    }

    #[test]
    #[should_panic(expected = "changed the position")]
    fn positions_stay() {
        let _ = processed(|record| Ok(Decision::Split(vec![record.clone().with_position(Position::copy_from(b"8"))])));
    }
}
