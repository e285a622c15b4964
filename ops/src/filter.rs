//! `filter`: drops records.

use std::sync::Arc;

use anabranch_plugin::flow::Flow;
use anabranch_plugin::operator::{Decision, Fan, Operator, OperatorKind, Rows, Signature};
use anabranch_plugin::specification::{Specification, shared};
use anabranch_record::access::Access;

use crate::prototype::Prototype;

/// Returns the `filter` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("filter", "Drops records.")
        .describe(
            "Drops every record and acknowledges it to the source. Set a `condition` to drop only some of the \
             records.",
        )
        .with_all(shared::processor().into_iter().map(|parameter| parameter.default_value("false")).collect());
    crate::prototype::kind(specification, |_| {
        let signature =
            Signature { fan: Fan::Never, reads: Access::NOTHING, writes: Access::NOTHING, ..Signature::inline() };
        Ok((signature, Filter))
    })
}

#[derive(Clone)]
struct Filter;

impl Operator for Filter {
    fn process(&mut self, rows: &mut Rows<'_>) {
        rows.for_each(|_| Ok(Decision::Filter));
    }
}

impl Prototype for Filter {
    fn flow(&self, _: &mut Flow) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{findings, process, record};

    #[test]
    fn every_record_is_dropped() {
        let (_, decision) = process(&kind(), &[], &record(r#"{"operation":"create"}"#));
        assert!(matches!(decision, Decision::Filter));
        assert_eq!(findings(&kind(), &[("field", ".Key")]), ["filter has no parameter \"field\""]);
    }
}
