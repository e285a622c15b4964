//! `clone`: duplicates records.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::{Flow, Texts};
use anabranch_plugin::operator::{Decision, Fan, Operator, OperatorKind, Pieces, Rows, Signature};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::metadata::key;
use anabranch_record::text::Str;

use crate::ordinal::ordinal;
use crate::prototype::Prototype;

/// Returns the `clone` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("clone", "Duplicates records.")
        .describe(
            "Adds `count` copies of every record. The metadata `clone.index` is `0` in the original and `1` to \
             `count` in the copies. The source gets an acknowledgement when the original and all copies are \
             acknowledged.\n\n\
             Needs `--preview.pipeline-arch-v2`.",
        )
        .with(
            Parameter::new("count", ParameterKind::Int, "Number of copies added to the original, 1 to 10000.")
                .required()
                .validate(Validation::GreaterThan(0.0))
                .validate(Validation::LessThan(10_001.0)),
        )
        .with_all(shared::processor());
    crate::prototype::kind(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<(Signature, Copies), Diagnostics> {
    let Some(count) = arguments.size("count") else {
        return Err(Diagnostic::error("settings.required", "count is required").into());
    };
    let signature = Signature {
        fan: u32::try_from(count + 1).map_or(Fan::Many, Fan::Copies),
        reads: Access::NOTHING,
        writes: Access::These(vec![vec![Str::from_static("Metadata"), key::CLONE_INDEX]]),
        needs_arch_v2: true,
        ..Signature::inline()
    };
    Ok((signature, Copies { count, always: arguments.is_constant("count") }))
}

#[derive(Clone)]
struct Copies {
    count: usize,
    /// True if the count does not come from a variable.
    always: bool,
}

impl Operator for Copies {
    fn process(&mut self, rows: &mut Rows<'_>) {
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

impl Prototype for Copies {
    fn flow(&self, flow: &mut Flow) {
        let most = if self.always { self.count as u64 } else { u64::MAX };
        flow.record.metadata.insert_one_of(key::CLONE_INDEX, Texts::UpTo(most));
    }
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
