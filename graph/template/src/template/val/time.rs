//! Points in time with a zone.

use std::fmt;

use chrono::{DateTime, FixedOffset, Offset, SubsecRound, Timelike, Utc};

use anabranch_record::text::Str;

/// A point in time with a zone. `Display` prints it like Go: `2006-01-02 15:04:05.5 +0100 CET`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Time {
    /// The time, at the offset of its zone.
    pub(crate) at: DateTime<FixedOffset>,
    /// The zone's abbreviation, `UTC`.
    pub(crate) zone: Str,
}

impl Time {
    /// Creates a time in UTC.
    pub(crate) fn utc(at: DateTime<Utc>) -> Time {
        Time { at: at.with_timezone(&Utc.fix()), zone: Str::from_static("UTC") }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at.trunc_subsecs(0).format("%Y-%m-%d %H:%M:%S"))?;
        let nanos = self.at.nanosecond() % 1_000_000_000;
        if nanos != 0 {
            let digits = format!("{nanos:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        write!(f, " {} {}", self.at.format("%z"), self.zone)
    }
}

/// Formats a duration like Go: `1h30m0s`, `1.5s`, `20ms`, `3µs`.
pub(crate) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let decimal = |whole: u64, fraction: u64, digits: usize| {
        let fraction = format!("{fraction:0digits$}");
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
    };
    match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{total}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(total / 1_000, total % 1_000, 3)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(total / 1_000_000, total % 1_000_000, 6)),
        _ => {
            let seconds = total / 1_000_000_000;
            let rest = decimal(seconds % 60, total % 1_000_000_000, 9);
            match (seconds / 3600, seconds / 60 % 60) {
                (0, 0) => format!("{sign}{rest}s"),
                (0, minutes) => format!("{sign}{minutes}m{rest}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{rest}s"),
            }
        }
    }
}
