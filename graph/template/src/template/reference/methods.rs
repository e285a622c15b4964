//! Methods of the parts of a record, and of values that functions return.

use super::Entry;

pub(super) static OPERATION: &[Entry] = &[Entry::new(
    &["String"],
    "",
    "Returns the operation as a text: `create`, `update`, `delete` or `snapshot`.",
    r#"{{ .Operation.String }}"#,
)];

pub(super) static POSITION: &[Entry] =
    &[Entry::new(&["String"], "", "Returns the position as a text.", r#"{{ .Position.String }}"#)];

pub(super) static RECORD: &[Entry] =
    &[Entry::new(&["Bytes"], "", "Returns the record as the bytes of its JSON.", r#"{{ gt (len .Bytes) 100 }}"#)];

pub(super) static DATA: &[Entry] = &[Entry::new(
    &["Bytes"],
    "",
    "Returns raw data as they are, and structured data as the bytes of their JSON.",
    r#"{{ printf "%s" .Payload.Before.Bytes }}"#,
)];

pub(super) static TIME: &[Entry] = &[
    Entry::new(
        &["Format"],
        "layout",
        "Writes the time as Go's layout describes.",
        r#"{{ .Metadata.GetCreatedAt.Format "Jan 2, 2006" }}"#,
    ),
    Entry::new(&["String"], "", "Writes the time as Go prints it.", r#"{{ .Metadata.GetCreatedAt.String }}"#),
    Entry::new(&["UTC"], "", "Converts the time to UTC.", r#"{{ .Metadata.GetCreatedAt.UTC }}"#),
    Entry::new(
        &["IsZero"],
        "",
        "Tests whether the time is the start of the year 1.",
        r#"{{ .Metadata.GetCreatedAt.IsZero }}"#,
    ),
    Entry::new(&["Unix"], "", "Returns the seconds since 1970.", r#"{{ .Metadata.GetCreatedAt.Unix }}"#),
    Entry::new(&["UnixMilli"], "", "Returns the milliseconds since 1970.", r#"{{ .Metadata.GetCreatedAt.UnixMilli }}"#),
    Entry::new(&["UnixMicro"], "", "Returns the microseconds since 1970.", r#"{{ .Metadata.GetCreatedAt.UnixMicro }}"#),
    Entry::new(&["UnixNano"], "", "Returns the nanoseconds since 1970.", r#"{{ .Metadata.GetCreatedAt.UnixNano }}"#),
    Entry::new(&["Year"], "", "Returns the year.", r#"{{ .Metadata.GetCreatedAt.Year }}"#),
    Entry::new(&["Month"], "", "Returns the name of the month.", r#"{{ .Metadata.GetCreatedAt.Month }}"#),
    Entry::new(&["Day"], "", "Returns the day of the month.", r#"{{ .Metadata.GetCreatedAt.Day }}"#),
    Entry::new(&["Weekday"], "", "Returns the name of the weekday.", r#"{{ .Metadata.GetCreatedAt.Weekday }}"#),
    Entry::new(&["YearDay"], "", "Returns the day of the year, from 1.", r#"{{ .Metadata.GetCreatedAt.YearDay }}"#),
    Entry::new(&["Hour"], "", "Returns the hour.", r#"{{ .Metadata.GetCreatedAt.Hour }}"#),
    Entry::new(&["Minute"], "", "Returns the minute.", r#"{{ .Metadata.GetCreatedAt.Minute }}"#),
    Entry::new(&["Second"], "", "Returns the second.", r#"{{ .Metadata.GetCreatedAt.Second }}"#),
    Entry::new(
        &["Nanosecond"],
        "",
        "Returns the nanoseconds within the second.",
        r#"{{ .Metadata.GetCreatedAt.Nanosecond }}"#,
    ),
    Entry::new(
        &["Sub"],
        "other",
        "Returns the duration from the other time to this one.",
        r#"{{ .Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01") }}"#,
    ),
    Entry::new(
        &["Before"],
        "other",
        "Tests whether the time is before another.",
        r#"{{ .Metadata.GetCreatedAt.Before (toDate "2006-01-02" "2026-04-01") }}"#,
    ),
    Entry::new(
        &["After"],
        "other",
        "Tests whether the time is after another.",
        r#"{{ .Metadata.GetCreatedAt.After (toDate "2006-01-02" "2026-04-01") }}"#,
    ),
    Entry::new(
        &["Equal"],
        "other",
        "Tests whether two times are the same instant.",
        r#"{{ .Metadata.GetCreatedAt.Equal .Metadata.GetCreatedAt.UTC }}"#,
    ),
];

pub(super) static DURATION: &[Entry] = &[
    Entry::new(
        &["Hours"],
        "",
        "Returns the duration in hours.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Hours }}"#,
    ),
    Entry::new(
        &["Minutes"],
        "",
        "Returns the duration in minutes.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Minutes }}"#,
    ),
    Entry::new(
        &["Seconds"],
        "",
        "Returns the duration in seconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Seconds }}"#,
    ),
    Entry::new(
        &["Milliseconds"],
        "",
        "Returns the duration in whole milliseconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Milliseconds }}"#,
    ),
    Entry::new(
        &["Microseconds"],
        "",
        "Returns the duration in whole microseconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Microseconds }}"#,
    ),
    Entry::new(
        &["Nanoseconds"],
        "",
        "Returns the duration in nanoseconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Nanoseconds }}"#,
    ),
    Entry::new(
        &["String"],
        "",
        "Returns the duration as a text.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).String }}"#,
    ),
];

pub(super) static VERSION: &[Entry] = &[
    Entry::new(&["Major"], "", "Returns the first number.", r#"{{ (semver "v1.4.2-beta+7").Major }}"#),
    Entry::new(&["Minor"], "", "Returns the second number.", r#"{{ (semver "v1.4.2-beta+7").Minor }}"#),
    Entry::new(&["Patch"], "", "Returns the third number.", r#"{{ (semver "v1.4.2-beta+7").Patch }}"#),
    Entry::new(
        &["Prerelease"],
        "",
        "Returns the part after the hyphen.",
        r#"{{ (semver "v1.4.2-beta+7").Prerelease }}"#,
    ),
    Entry::new(
        &["Metadata"],
        "",
        "Returns the part after the plus sign.",
        r#"{{ (semver "v1.4.2-beta+7").Metadata }}"#,
    ),
    Entry::new(&["Original"], "", "Returns the text that was read.", r#"{{ (semver "v1.4.2-beta+7").Original }}"#),
    Entry::new(&["String"], "", "Returns the version in its normal form.", r#"{{ (semver "v1.4.2-beta+7").String }}"#),
];
