//! The backlog of sources in user-facing form.

use anabranch_graph::exec::SourceBacklog;
use anabranch_plugin::source::Retention;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use anabranch_process::terminal::{age, short, size};

/// The backlog of sources. A number is absent if no source reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BacklogNumbers {
    /// Records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Number of objects that are held back because their time is ahead of the clock of their store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// Minimum age of the next record; 0 = nothing is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
}

impl BacklogNumbers {
    /// Converts the backlog of one source.
    pub fn of(source: &SourceBacklog) -> Self {
        let backlog = &source.backlog;
        BacklogNumbers {
            records: backlog.records,
            bytes: backlog.bytes,
            objects: backlog.objects,
            ahead: (backlog.ahead > 0).then_some(backlog.ahead),
            age_seconds: source.age().map(|age| age.as_secs_f64()),
        }
    }

    /// Returns the sum over the sources that report a backlog; `None` if none does.
    pub fn of_all(sources: &[SourceBacklog]) -> Option<Self> {
        fn joined<T>(a: Option<T>, b: Option<T>, join: fn(T, T) -> T) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(join(a, b)),
                (a, b) => a.or(b),
            }
        }
        let all = sources.iter().map(BacklogNumbers::of);
        all.reduce(|a, b| BacklogNumbers {
            records: joined(a.records, b.records, u64::saturating_add),
            bytes: joined(a.bytes, b.bytes, u64::saturating_add),
            objects: joined(a.objects, b.objects, u64::saturating_add),
            ahead: joined(a.ahead, b.ahead, u64::saturating_add),
            age_seconds: joined(a.age_seconds, b.age_seconds, f64::max),
        })
    }

    /// Returns the most informative number: records, objects or bytes, in this order.
    pub fn count(&self) -> Option<u64> {
        self.records.or(self.objects).or(self.bytes)
    }

    /// Returns that number with its unit: `4.6M records`, `12 objects`, `1.2 GiB`; `none` if nothing is left.
    pub fn amount(&self) -> Option<String> {
        let counted = |count: u64, one: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{} {one}{plural}", short(count as f64))
        };
        Some(match (self.records, self.objects, self.bytes) {
            _ if self.count()? == 0 => "none".to_owned(),
            (Some(records), ..) => counted(records, "record"),
            (None, Some(objects), _) => counted(objects, "object"),
            (None, None, bytes) => size(bytes?),
        })
    }

    /// Returns the amount and the age in a few characters: `1.2 GiB / 3 h`; `-` if the amount is unknown.
    pub fn shown(&self) -> String {
        match (self.amount(), self.age_seconds.filter(|age| *age > 0.0)) {
            (Some(amount), Some(seconds)) => format!("{amount} / {}", age(seconds)),
            (Some(amount), None) => amount,
            (None, _) => "-".to_owned(),
        }
    }
}

/// Data that an external system retains until a source has acknowledged it. A number is absent if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RetentionNumbers {
    /// Bytes that the system retains for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes that can still be added before the system may remove what the source has not read; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_bytes: Option<u64>,
    /// Name of the state in the system, such as `reserved`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// True if the system may soon remove data that the source has not read.
    pub at_risk: bool,
    /// Number of transactions for which the system cannot remove old rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
}

impl RetentionNumbers {
    /// Converts the data retained for a source.
    pub fn of(retention: &Retention) -> Self {
        RetentionNumbers {
            bytes: retention.bytes,
            spare_bytes: retention.spare_bytes,
            status: retention.status.as_ref().map(ToString::to_string),
            at_risk: retention.at_risk,
            transactions: retention.transactions,
        }
    }

    /// Returns it as a phrase: `1.2 GiB (reserved), 800 MiB more until it may be removed`.
    pub fn shown(&self) -> String {
        let mut text = self.bytes.map_or_else(|| "an unknown amount".to_owned(), size);
        if let Some(status) = &self.status {
            text.push_str(&format!(" ({status})"));
        }
        if let Some(spare) = self.spare_bytes {
            text.push_str(&format!(", {} more until it may be removed", size(spare)));
        }
        if let Some(transactions) = self.transactions {
            text.push_str(&format!(", old rows of {} transactions", short(transactions as f64)));
        }
        text
    }
}

/// Like [`BacklogNumbers::shown`]; `-` without a backlog.
pub fn shown(backlog: Option<&BacklogNumbers>) -> String {
    backlog.map_or_else(|| "-".to_owned(), BacklogNumbers::shown)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use anabranch_plugin::source::Backlog;

    use super::*;

    #[test]
    fn sources_are_taken_together_and_the_oldest_counts() {
        let source = |backlog| SourceBacklog { connector: "in".into(), backlog };
        let ago = |seconds| Some(SystemTime::now() - Duration::from_secs(seconds));
        let files = [
            source(Backlog { bytes: Some(1 << 30), since: ago(10_800), ..Backlog::default() }),
            source(Backlog { bytes: Some(0), ..Backlog::default() }),
            source(Backlog { bytes: Some(1 << 29), since: ago(5), ..Backlog::default() }),
        ];
        assert_eq!(BacklogNumbers::of_all(&files).unwrap().shown(), "1.5 GiB / 3 h");
        assert_eq!(BacklogNumbers::of_all(&files[1..2]).unwrap().shown(), "none");
        let counted = source(Backlog { records: Some(1), ..Backlog::default() });
        assert_eq!(BacklogNumbers::of_all(&[counted]).unwrap().shown(), "1 record");
        let bucket = source(Backlog { objects: Some(4200), bytes: Some(7), since: ago(60), ..Backlog::default() });
        assert_eq!(BacklogNumbers::of_all(&[bucket]).unwrap().shown(), "4.2k objects / 60 s");
        assert_eq!(shown(BacklogNumbers::of_all(&[]).as_ref()), "-");
    }

    #[test]
    fn what_is_kept_is_shown_with_its_limit() {
        let mut kept = Retention { bytes: Some(3 << 29), status: Some("reserved".into()), ..Retention::default() };
        assert_eq!(RetentionNumbers::of(&kept).shown(), "1.5 GiB (reserved)");
        (kept.spare_bytes, kept.transactions) = (Some(1 << 29), Some(4200));
        assert_eq!(
            RetentionNumbers::of(&kept).shown(),
            "1.5 GiB (reserved), 512.0 MiB more until it may be removed, old rows of 4.2k transactions"
        );
    }
}
