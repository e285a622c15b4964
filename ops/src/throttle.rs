//! `throttle`: limits the number of records per time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, Fan, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Reference, Target};
use twox_hash::XxHash3_64;

use crate::codes;
use crate::part_bytes::part_bytes;

/// Keys that are remembered; if there are more, those that may have a whole burst again are forgotten, then all.
const KEYS: usize = 100_000;

/// Returns the `throttle` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Throttle>()
}

/// What becomes of a record that is one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnExcess {
    Drop,
    Fail,
}

impl Choice for OnExcess {
    const CHOICES: &'static [(&'static str, Self)] = &[("drop", OnExcess::Drop), ("fail", OnExcess::Fail)];
}

#[derive(Parameters)]
struct Settings {
    /// The number of records per period that stay; so many may come at once.
    #[parameter(required, greater_than = 0, example = "100")]
    rate: u32,
    /// The period.
    #[parameter(default = "1s")]
    period: Argument<Duration>,
    /// The part of a record by which records are counted, for example .Key or .Payload.After.user: each value has the
    /// whole rate. By default, all records are counted together.
    #[parameter(within = [".Operation", ".Metadata", ".Key", ".Payload"])]
    by: Option<Argument<Reference>>,
    /// What becomes of a record that is one too many: drop (it is acknowledged to the source) or fail.
    #[parameter(default = "drop")]
    on_excess: OnExcess,
}

#[derive(Clone)]
struct Throttle {
    by: Option<Reference>,
    on_excess: OnExcess,
    /// The time that one record takes of the rate.
    interval: Duration,
    period: Duration,
    /// By the hash of a key, the time at which its burst is whole again: the theoretical arrival time of the generic cell
    /// rate algorithm (ITU-T I.371).
    whole_at: HashMap<u64, Instant>,
}

impl InlineOperator for Throttle {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("throttle", "Limits the number of records per time.")
            .describe(
                "Drops or fails records that are more than a number per period, by the time at which they come here. The \
                 records of one period may come at once; then one may come each `period / rate`. The count begins at 0 \
                 when the pipeline starts, and each of several partitions that run side by side counts for itself. Of \
                 more than 100,000 values of `by`, some may have more records than the rate.\n\nTo slow down instead \
                 of dropping, set `sdk.rate.perSecond` of the destination.",
            )
            .with_all(shared::processor_without_data())
    }

    fn configure(Settings { rate, period, by, on_excess }: Settings) -> Result<Self, Diagnostics> {
        let interval = *period / rate;
        if interval.is_zero() {
            return Err(period.invalid("the period is too short for the rate").into());
        }
        let by = match &by {
            Some(by) if matches!(by.target(), Target::Metadata) => {
                return Err(by.invalid("name one entry, for example .Metadata.title").into());
            }
            Some(by) => Some(by.one_side()?),
            None => None,
        };
        Ok(Throttle { by, on_excess, interval, period: *period, whole_at: HashMap::new() })
    }

    fn signature(&self) -> Signature {
        let reads = self.by.as_ref().map_or(Access::NOTHING, Reference::access);
        Signature::new().fan(Fan::AtMostOne).max_workers(1).reads(reads).writes(Access::NOTHING)
    }

    fn flow(&self, flow: &mut Flow) {
        if let Some(by) = &self.by {
            flow.get("by", by);
        }
        if self.on_excess == OnExcess::Fail {
            flow.may_fail();
        }
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        // The rows of a strip come together.
        let now = Instant::now();
        rows.for_each(|record| {
            let key = match &self.by {
                Some(by) => XxHash3_64::oneshot(&part_bytes(by, record)?),
                None => 0,
            };
            match (self.takes(key, now), self.on_excess) {
                (true, _) => Ok(Decision::Keep),
                (false, OnExcess::Drop) => Ok(Decision::Filter),
                (false, OnExcess::Fail) => {
                    Err(Fault::record(codes::THROTTLE_EXCEEDED, "more records came than the rate allows"))
                }
            }
        });
    }
}

impl Throttle {
    /// Counts a record; `false` if it is one too many.
    fn takes(&mut self, key: u64, now: Instant) -> bool {
        if self.whole_at.len() >= KEYS && !self.whole_at.contains_key(&key) {
            self.whole_at.retain(|_, whole_at| *whole_at > now);
            if self.whole_at.len() >= KEYS {
                self.whole_at.clear();
            }
        }
        let whole_at = self.whole_at.entry(key).or_insert(now);
        let next = (*whole_at).max(now) + self.interval;
        let fits = next.duration_since(now) <= self.period;
        if fits {
            *whole_at = next;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings};

    fn throttle(rate: u32) -> Throttle {
        let period = Duration::from_secs(1);
        Throttle { by: None, on_excess: OnExcess::Drop, interval: period / rate, period, whole_at: HashMap::new() }
    }

    #[test]
    fn a_burst_passes_and_then_one_each_interval() {
        let (mut limit, start) = (throttle(10), Instant::now());
        let at = |limit: &mut Throttle, ms| limit.takes(0, start + Duration::from_millis(ms));
        assert_eq!((0..15).filter(|_| at(&mut limit, 0)).count(), 10);
        assert!(!at(&mut limit, 99));
        assert!(at(&mut limit, 100) && !at(&mut limit, 100));
        assert_eq!((0..15).filter(|_| at(&mut limit, 5000)).count(), 10);
    }

    #[test]
    fn each_key_has_its_rate_and_memory_is_bounded() {
        let (mut limit, now) = (throttle(1), Instant::now());
        assert!(limit.takes(1, now) && limit.takes(2, now) && !limit.takes(1, now));
        for key in 0..2 * u64::try_from(KEYS).unwrap() {
            limit.takes(key, now);
        }
        assert!(limit.whole_at.len() <= KEYS);
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |settings: &[(&str, &str)]| findings(&kind(), settings).join("; ");
        assert!(said(&[("rate", "1000"), ("period", "1ns")]).contains("too short for the rate"));
        assert!(said(&[("rate", "0")]).contains("rate"));
        testing::failed_rows_stay(&kind(), &[("rate", "1"), ("by", ".Key"), ("onExcess", "fail")]);
    }
}
