//! Methods of times, durations and versions, which functions return.

use std::rc::Rc;

use chrono::{Datelike as _, Timelike as _};

use super::signature::function;
use super::{CallError, Function, dates};
use crate::template::val::{Time, Val, Version, duration_text};

/// Methods of a time. Months and weekdays are returned as names.
pub(in crate::template) static TIME: &[Function] = &[
    function!("String", (time: Time) => time.to_string()),
    function!("Format", (time: Time, layout: Text) => dates::format(time, &layout.lossy())),
    function!("UTC", (time: Time) => Val::Time(Rc::new(Time::utc(time.at.to_utc())))),
    function!("IsZero", (time: Time) => dates::is_zero(time)),
    function!("Unix", (time: Time) => Val::Int64(time.at.timestamp())),
    function!("UnixMilli", (time: Time) => Val::Int64(time.at.timestamp_millis())),
    function!("UnixMicro", (time: Time) => Val::Int64(time.at.timestamp_micros())),
    function!("UnixNano", (time: Time) => try time
        .at
        .timestamp_nanos_opt()
        .map(Val::Int64)
        .ok_or_else(|| CallError::from("the nanoseconds since 1970 do not fit"))),
    function!("Year", (time: Time) => Val::Int(time.at.year().into())),
    function!("Month", (time: Time) => dates::format(time, "January")),
    function!("Day", (time: Time) => Val::Int(time.at.day().into())),
    function!("Weekday", (time: Time) => dates::format(time, "Monday")),
    function!("YearDay", (time: Time) => Val::Int(time.at.ordinal().into())),
    function!("Hour", (time: Time) => Val::Int(time.at.hour().into())),
    function!("Minute", (time: Time) => Val::Int(time.at.minute().into())),
    function!("Second", (time: Time) => Val::Int(time.at.second().into())),
    function!("Nanosecond", (time: Time) => Val::Int(i64::from(time.at.nanosecond() % 1_000_000_000))),
    function!("Sub", (time: Time, other: Time) => Val::Duration(dates::nanoseconds_between(time, other))),
    function!("Before", (time: Time, other: Time) => time.at < other.at),
    function!("After", (time: Time, other: Time) => time.at > other.at),
    function!("Equal", (time: Time, other: Time) => time.at == other.at),
];

/// Methods of a duration.
pub(in crate::template) static DURATION: &[Function] = &[
    function!("String", (length: Any) => try nanoseconds(length).map(duration_text)),
    function!("Nanoseconds", (length: Any) => try nanoseconds(length).map(Val::Int64)),
    function!("Microseconds", (length: Any) => try nanoseconds(length).map(|n| Val::Int64(n / 1_000))),
    function!("Milliseconds", (length: Any) => try nanoseconds(length).map(|n| Val::Int64(n / 1_000_000))),
    function!("Seconds", (length: Any) => try nanoseconds(length).map(|n| in_units(n, 1_000_000_000))),
    function!("Minutes", (length: Any) => try nanoseconds(length).map(|n| in_units(n, 60_000_000_000))),
    function!("Hours", (length: Any) => try nanoseconds(length).map(|n| in_units(n, 3_600_000_000_000))),
];

/// Methods of a version.
pub(in crate::template) static VERSION: &[Function] = &[
    function!("String", (version: Any) => try of(version).map(|v| v.version.to_string())),
    function!("Original", (version: Any) => try of(version).map(|v| Val::text(v.original.clone()))),
    function!("Major", (version: Any) => try of(version).map(|v| Val::Uint64(v.version.major))),
    function!("Minor", (version: Any) => try of(version).map(|v| Val::Uint64(v.version.minor))),
    function!("Patch", (version: Any) => try of(version).map(|v| Val::Uint64(v.version.patch))),
    function!("Prerelease", (version: Any) => try of(version).map(|v| Val::from(v.version.pre.as_str()))),
    function!("Metadata", (version: Any) => try of(version).map(|v| Val::from(v.version.build.as_str()))),
];

fn nanoseconds(length: &Val) -> Result<i64, CallError> {
    length.as_int().ok_or_else(CallError::arguments)
}

/// Converts the whole units and the rest separately, so that large durations stay exact before the point.
#[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
fn in_units(nanoseconds: i64, unit: i64) -> f64 {
    (nanoseconds / unit) as f64 + (nanoseconds % unit) as f64 / unit as f64
}

fn of(version: &Val) -> Result<&Version, CallError> {
    match version {
        Val::Version(version) => Ok(version),
        _ => Err(CallError::arguments()),
    }
}
