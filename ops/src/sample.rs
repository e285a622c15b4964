//! `sample`: keeps a share of the records.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, Fan, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::reference::{Reference, Target};
use twox_hash::XxHash3_64;

use crate::part_bytes::part_bytes;

/// Returns the `sample` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Sample>()
}

#[derive(Parameters)]
struct Settings {
    /// The share of the records that stay, in percent: more than 0 and less than 100.
    #[parameter(required, example = "10")]
    percent: Argument<f64>,
    /// The part of a record that decides: records with the same value stay together, for example .Key or
    /// .Payload.After.user.
    #[parameter(within = [".Position", ".Operation", ".Metadata", ".Key", ".Payload"], default = ".Position")]
    by: Argument<Reference>,
    /// Another number chooses other records. Two steps with the same seed and the same values choose the same.
    #[parameter(default = 0)]
    seed: u64,
}

#[derive(Clone)]
struct Sample {
    by: Reference,
    seed: u64,
    /// Records whose hash is below it stay.
    below: u64,
}

impl InlineOperator for Sample {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("sample", "Keeps a share of the records.")
            .describe(
                "Keeps a share of the records, and drops the others and acknowledges them to the source. A hash (XXH3) of a \
                 part of the record decides: the same records stay when they are read again, and on every machine. By \
                 default, the position of the record in the source decides. Records whose part is missing stay together \
                 or are dropped together.",
            )
            .with_all(shared::processor_without_data())
    }

    fn configure(Settings { percent, by, seed }: Settings) -> Result<Self, Diagnostics> {
        if !(*percent > 0.0 && *percent < 100.0) {
            return Err(percent.invalid("the share must be more than 0 and less than 100 percent").into());
        }
        if matches!(by.target(), Target::Metadata) {
            return Err(by.invalid("name one entry, for example .Metadata.title").into());
        }
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let below = (*percent / 100.0 * u64::MAX as f64) as u64;
        Ok(Sample { by: by.one_side()?, seed, below })
    }

    fn signature(&self) -> Signature {
        Signature::new().fan(Fan::AtMostOne).reads(self.by.access()).writes(Access::NOTHING)
    }

    fn flow(&self, flow: &mut Flow) {
        flow.get("by", &self.by);
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            let hash = XxHash3_64::oneshot_with_seed(self.seed, &part_bytes(&self.by, record)?);
            Ok(if hash < self.below { Decision::Keep } else { Decision::Filter })
        });
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::{Data, Position, Record};

    use super::*;
    use crate::testing::{self, findings, process};

    fn stays(settings: &[(&str, &str)], number: u32, key: &str) -> bool {
        let position = Position(number.to_be_bytes().to_vec().into());
        let record = Record::create(position, Data::text(key), Data::Absent);
        let (after, decision) = process(&kind(), settings, &record);
        assert_eq!(after, record);
        matches!(decision, Decision::Keep)
    }

    #[test]
    fn the_share_stays_and_always_the_same() {
        for percent in ["1", "10", "50", "99.5"] {
            let settings = [("percent", percent)];
            let kept: Vec<bool> = (0..4000).map(|number| stays(&settings, number, "k")).collect();
            let share = kept.iter().filter(|stays| **stays).count() as f64 / 40.0;
            let expected: f64 = percent.parse().unwrap();
            assert!((share - expected).abs() < 3.0, "{percent}: {share}");
            let again: Vec<bool> = (0..4000).map(|number| stays(&settings, number, "other")).collect();
            assert_eq!(kept, again);
        }
    }

    #[test]
    fn records_of_one_key_stay_together() {
        let settings = [("percent", "50"), ("by", ".Key")];
        let kept: Vec<bool> = (0..40).map(|key| stays(&settings, 0, &format!("key {key}"))).collect();
        assert!(kept.contains(&true) && kept.contains(&false));
        for number in 1..5 {
            let again: Vec<bool> = (0..40).map(|key| stays(&settings, number, &format!("key {key}"))).collect();
            assert_eq!(kept, again);
        }
        let seeded = [settings[0], settings[1], ("seed", "1")];
        let other: Vec<bool> = (0..40).map(|key| stays(&seeded, 0, &format!("key {key}"))).collect();
        assert_ne!(kept, other);
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |settings: &[(&str, &str)]| findings(&kind(), settings).join("; ");
        assert!(said(&[("percent", "0")]).contains("more than 0 and less than 100"));
        assert!(said(&[("percent", "100")]).contains("more than 0 and less than 100"));
        assert!(said(&[("percent", "1"), ("by", ".Metadata")]).contains("name one entry"));
        testing::failed_rows_stay(&kind(), &[("percent", "50"), ("by", ".Payload.After.a.b")]);
    }
}
