//! Methods of the parts of a record, and of values that functions return.

use super::FunctionEntry;

pub(super) static OPERATION: &[FunctionEntry] = &[FunctionEntry::new(
    &["String"],
    "",
    "Returns the operation as a text: `create`, `update`, `delete` or `snapshot`.",
    r#"{{ .Operation.String }}"#,
)];

pub(super) static POSITION: &[FunctionEntry] =
    &[FunctionEntry::new(&["String"], "", "Returns the position as a text.", r#"{{ .Position.String }}"#)];

pub(super) static RECORD: &[FunctionEntry] = &[FunctionEntry::new(
    &["Bytes"],
    "",
    "Returns the record as the bytes of its JSON.",
    r#"{{ gt (len .Bytes) 100 }}"#,
)];

pub(super) static DATA: &[FunctionEntry] = &[FunctionEntry::new(
    &["Bytes"],
    "",
    "Returns raw data as they are, and structured data as the bytes of their JSON.",
    r#"{{ printf "%s" .Payload.Before.Bytes }}"#,
)];

pub(super) static TIME: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["Format"],
        "layout",
        "Writes the time as Go's layout describes.",
        r#"{{ .Metadata.GetCreatedAt.Format "Jan 2, 2006" }}"#,
    ),
    FunctionEntry::new(&["String"], "", "Writes the time as Go prints it.", r#"{{ .Metadata.GetCreatedAt.String }}"#),
    FunctionEntry::new(&["UTC"], "", "Converts the time to UTC.", r#"{{ .Metadata.GetCreatedAt.UTC }}"#),
    FunctionEntry::new(
        &["IsZero"],
        "",
        "Tests whether the time is the start of the year 1.",
        r#"{{ .Metadata.GetCreatedAt.IsZero }}"#,
    ),
    FunctionEntry::new(&["Unix"], "", "Returns the seconds since 1970.", r#"{{ .Metadata.GetCreatedAt.Unix }}"#),
    FunctionEntry::new(
        &["UnixMilli"],
        "",
        "Returns the milliseconds since 1970.",
        r#"{{ .Metadata.GetCreatedAt.UnixMilli }}"#,
    ),
    FunctionEntry::new(
        &["UnixMicro"],
        "",
        "Returns the microseconds since 1970.",
        r#"{{ .Metadata.GetCreatedAt.UnixMicro }}"#,
    ),
    FunctionEntry::new(
        &["UnixNano"],
        "",
        "Returns the nanoseconds since 1970.",
        r#"{{ .Metadata.GetCreatedAt.UnixNano }}"#,
    ),
    FunctionEntry::new(&["Year"], "", "Returns the year.", r#"{{ .Metadata.GetCreatedAt.Year }}"#),
    FunctionEntry::new(&["Month"], "", "Returns the name of the month.", r#"{{ .Metadata.GetCreatedAt.Month }}"#),
    FunctionEntry::new(&["Day"], "", "Returns the day of the month.", r#"{{ .Metadata.GetCreatedAt.Day }}"#),
    FunctionEntry::new(&["Weekday"], "", "Returns the name of the weekday.", r#"{{ .Metadata.GetCreatedAt.Weekday }}"#),
    FunctionEntry::new(
        &["YearDay"],
        "",
        "Returns the day of the year, from 1.",
        r#"{{ .Metadata.GetCreatedAt.YearDay }}"#,
    ),
    FunctionEntry::new(&["Hour"], "", "Returns the hour.", r#"{{ .Metadata.GetCreatedAt.Hour }}"#),
    FunctionEntry::new(&["Minute"], "", "Returns the minute.", r#"{{ .Metadata.GetCreatedAt.Minute }}"#),
    FunctionEntry::new(&["Second"], "", "Returns the second.", r#"{{ .Metadata.GetCreatedAt.Second }}"#),
    FunctionEntry::new(
        &["Nanosecond"],
        "",
        "Returns the nanoseconds within the second.",
        r#"{{ .Metadata.GetCreatedAt.Nanosecond }}"#,
    ),
    FunctionEntry::new(
        &["Sub"],
        "other",
        "Returns the duration from the other time to this one.",
        r#"{{ .Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01") }}"#,
    ),
    FunctionEntry::new(
        &["Before"],
        "other",
        "Tests whether the time is before another.",
        r#"{{ .Metadata.GetCreatedAt.Before (toDate "2006-01-02" "2026-04-01") }}"#,
    ),
    FunctionEntry::new(
        &["After"],
        "other",
        "Tests whether the time is after another.",
        r#"{{ .Metadata.GetCreatedAt.After (toDate "2006-01-02" "2026-04-01") }}"#,
    ),
    FunctionEntry::new(
        &["Equal"],
        "other",
        "Tests whether two times are the same instant.",
        r#"{{ .Metadata.GetCreatedAt.Equal .Metadata.GetCreatedAt.UTC }}"#,
    ),
];

pub(super) static DURATION: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["Hours"],
        "",
        "Returns the duration in hours.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Hours }}"#,
    ),
    FunctionEntry::new(
        &["Minutes"],
        "",
        "Returns the duration in minutes.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Minutes }}"#,
    ),
    FunctionEntry::new(
        &["Seconds"],
        "",
        "Returns the duration in seconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Seconds }}"#,
    ),
    FunctionEntry::new(
        &["Milliseconds"],
        "",
        "Returns the duration in whole milliseconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Milliseconds }}"#,
    ),
    FunctionEntry::new(
        &["Microseconds"],
        "",
        "Returns the duration in whole microseconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Microseconds }}"#,
    ),
    FunctionEntry::new(
        &["Nanoseconds"],
        "",
        "Returns the duration in nanoseconds.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).Nanoseconds }}"#,
    ),
    FunctionEntry::new(
        &["String"],
        "",
        "Returns the duration as a text.",
        r#"{{ (.Metadata.GetCreatedAt.Sub (toDate "2006-01-02" "2026-03-01")).String }}"#,
    ),
];

pub(super) static VERSION: &[FunctionEntry] = &[
    FunctionEntry::new(&["Major"], "", "Returns the first number.", r#"{{ (semver "v1.4.2-beta+7").Major }}"#),
    FunctionEntry::new(&["Minor"], "", "Returns the second number.", r#"{{ (semver "v1.4.2-beta+7").Minor }}"#),
    FunctionEntry::new(&["Patch"], "", "Returns the third number.", r#"{{ (semver "v1.4.2-beta+7").Patch }}"#),
    FunctionEntry::new(
        &["Prerelease"],
        "",
        "Returns the part after the hyphen.",
        r#"{{ (semver "v1.4.2-beta+7").Prerelease }}"#,
    ),
    FunctionEntry::new(
        &["Metadata"],
        "",
        "Returns the part after the plus sign.",
        r#"{{ (semver "v1.4.2-beta+7").Metadata }}"#,
    ),
    FunctionEntry::new(
        &["Original"],
        "",
        "Returns the text that was read.",
        r#"{{ (semver "v1.4.2-beta+7").Original }}"#,
    ),
    FunctionEntry::new(
        &["String"],
        "",
        "Returns the version in its normal form.",
        r#"{{ (semver "v1.4.2-beta+7").String }}"#,
    ),
];
