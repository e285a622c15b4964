//! Dates and times.

use super::FunctionEntry;

pub(super) static ENTRIES: &[FunctionEntry] = &[
    FunctionEntry::new(&["now"], "", "Returns the current time in UTC.", r#"{{ now }}"#)
        .giving("2026-03-01 09:30:00.123456789 +0000 UTC"),
    FunctionEntry::new(
        &["date"],
        "layout time",
        "Writes a time, or seconds since 1970, in UTC as Go's layout describes; any other value counts as the current \
         time.",
        r#"{{ date "2006-01-02 15:04:05" 1772357400 }}"#,
    ),
    FunctionEntry::new(
        &["dateInZone", "date_in_zone"],
        "layout time zone",
        "Writes a time as `date` does, in UTC or in a zone with a fixed offset.",
        r#"{{ dateInZone "2006-01-02 15:04 -07:00" 1772357400 "+02:00" }}"#,
    ),
    FunctionEntry::new(
        &["htmlDate"],
        "time",
        "Writes the date of a time as YYYY-MM-DD, in UTC.",
        r#"{{ htmlDate 1772357400 }}"#,
    ),
    FunctionEntry::new(
        &["htmlDateInZone"],
        "time zone",
        "Writes the date of a time as YYYY-MM-DD, in a zone with a fixed offset.",
        r#"{{ htmlDateInZone 1772357400 "+10:00" }}"#,
    ),
    FunctionEntry::new(
        &["toDate"],
        "layout text",
        "Reads a time; returns the year 1 for a text in another layout.",
        r#"{{ toDate "2006-01-02T15:04:05Z07:00" .Payload.After.paid_at | date "02.01.2006" }}"#,
    ),
    FunctionEntry::new(
        &["mustToDate"],
        "layout text",
        "Reads a time, and fails the record if the text is in another layout.",
        r#"{{ (mustToDate "2006-01-02" "2026-03-01").Weekday }}"#,
    ),
    FunctionEntry::new(
        &["dateModify", "date_modify"],
        "duration time",
        "Adds a duration to a time; a text that is not a duration does not change the time.",
        r#"{{ toDate "2006-01-02" "2026-03-01" | dateModify "-36h" | date "2006-01-02 15:04" }}"#,
    ),
    FunctionEntry::new(
        &["mustDateModify", "must_date_modify"],
        "duration time",
        "Adds a duration to a time, and fails the record if the text is not a duration.",
        r#"{{ toDate "2006-01-02" "2026-03-01" | mustDateModify "90m" | date "2006-01-02 15:04" }}"#,
    ),
    FunctionEntry::new(
        &["unixEpoch"],
        "time",
        "Returns the seconds since 1970 as a text.",
        r#"{{ toDate "2006-01-02" "2026-03-01" | unixEpoch }}"#,
    ),
    FunctionEntry::new(
        &["ago"],
        "time",
        "Returns how long ago a time is, in whole seconds.",
        r#"{{ ago 1772357400 }}"#,
    )
    .giving("1h2m3s"),
    FunctionEntry::new(
        &["duration"],
        "seconds",
        "Converts seconds to a text such as `1h30m0s`.",
        r#"{{ duration "5400" }}"#,
    ),
    FunctionEntry::new(
        &["durationRound"],
        "duration",
        "Rounds a duration to its largest unit; a time counts as the duration since then.",
        r#"{{ durationRound "26h3m" }}"#,
    ),
];
