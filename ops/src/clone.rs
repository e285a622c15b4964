//! `clone`: duplicates records.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Texts};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    Decision, Fan, InlineOperator, OperatorContext, OperatorKind, Pieces, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::metadata::key;

use crate::ordinal::ordinal;

/// Returns the `clone` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Copies>()
}

#[derive(Parameters)]
struct Settings {
    /// Number of copies added to the original, 1 to 10000.
    #[parameter(greater_than = 0, less_than = 10001)]
    count: Argument<usize>,
}

#[derive(Clone)]
struct Copies {
    count: usize,
    /// True if the count does not come from a variable.
    always: bool,
}

impl InlineOperator for Copies {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("clone", "Duplicates records.")
            .describe(
                "Adds `count` copies of every record. The metadata `clone.index` is `0` in the original and `1` to \
                 `count` in the copies. The source gets an acknowledgement when the original and all copies are \
                 acknowledged.\n\n\
                 Needs `--preview.pipeline-arch-v2`.",
            )
            .with_all(shared::processor())
    }

    fn configure(Settings { count }: Settings) -> Result<Self, Diagnostics> {
        Ok(Copies { count: *count, always: count.is_constant() })
    }

    fn signature(&self) -> Signature {
        Signature::new()
            .fan(u32::try_from(self.count + 1).map_or(Fan::Many, Fan::Copies))
            .reads(Access::NOTHING)
            .writes(Access::metadata(key::CLONE_INDEX))
            .needs_arch_v2(true)
    }

    fn flow(&self, flow: &mut Flow) {
        let most = if self.always { self.count as u64 } else { u64::MAX };
        flow.record.metadata.insert_one_of(key::CLONE_INDEX, Texts::UpTo(most));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            let copies = self.count + 1;
            if copies <= Pieces::FEW {
                return Ok(Decision::Split((0..copies).map(|i| copy(record, i)).collect()));
            }
            let original = record.clone();
            Ok(Decision::Pieces(Pieces::new(copies, move |i| copy(&original, i))))
        });
    }
}

fn copy(record: &Record, i: usize) -> Record {
    let mut copy = record.clone();
    copy.metadata.insert(key::CLONE_INDEX, ordinal(i));
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, process, record};

    #[test]
    fn the_original_counts_as_clone_0() {
        let sample = record(r#"{"position":"Nw==","operation":"delete","metadata":{"a":"b"},"key":{"k":1}}"#);
        for (count, at_once) in [(2, true), (10_000, false)] {
            let (_, decision) = process(&kind(), &[("count", &count.to_string())], &sample);
            assert_eq!(matches!(decision, Decision::Split(_)), at_once, "{decision:?}");
            let copies = decision.into_records();
            assert_eq!(copies.len(), count + 1);
            for (i, copy) in copies.into_iter().enumerate() {
                let mut expected = sample.clone();
                expected.metadata.insert("clone.index", i.to_string());
                assert_eq!(copy, expected);
            }
        }
    }

    #[test]
    fn the_count_is_checked() {
        assert_eq!(findings(&kind(), &[("count", "0")]), ["count: \"0\" must be at least 1"]);
        assert_eq!(findings(&kind(), &[("count", "10001")]), ["count: \"10001\" must be at most 10000"]);
        assert_eq!(findings(&kind(), &[]), ["\"count\" is required by clone"]);
    }

    #[test]
    fn the_compiler_knows_what_it_touches() {
        let signature = testing::signature(&kind(), &[("count", "1")]);
        assert_eq!((signature.fan, signature.needs_arch_v2), (Fan::Copies(2), true));
        assert!(!signature.writes.overlaps(&Access::These(vec![vec!["Key".into()]])));
    }
}
