//! `filter`: drops records.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, Fan, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::shared;
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;

/// Returns the `filter` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Filter>()
}

#[derive(Clone)]
struct Filter;

impl InlineOperator for Filter {
    type Parameters = ();

    fn specification() -> Specification {
        Specification::builtin("filter", "Drops records.")
            .describe(
                "Drops every record and acknowledges it to the source. Set a `condition` to drop only some of the \
                 records.",
            )
            .with_all(shared::processor_without_data())
    }

    fn configure((): ()) -> Result<Self, Diagnostics> {
        Ok(Filter)
    }

    fn signature(&self) -> Signature {
        Signature::new().fan(Fan::Never).reads(Access::NOTHING).writes(Access::NOTHING)
    }

    fn flow(&self, _: &mut Flow) {}

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|_| Ok(Decision::Filter));
    }
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
