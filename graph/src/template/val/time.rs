//! Points in time with a zone.

use std::fmt;

use chrono::{DateTime, FixedOffset, Offset, SubsecRound, Timelike, Utc};

use crate::text::Str;

/// A point in time and the zone it is shown in. `Display` is the form Go prints:
/// `2006-01-02 15:04:05.5 +0100 CET`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Time {
    /// The time, at the offset of its zone.
    pub(crate) at: DateTime<FixedOffset>,
    /// The zone's abbreviation, `UTC`.
    pub(crate) zone: Str,
}

impl Time {
    /// In UTC.
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
