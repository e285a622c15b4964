//! Dates and durations. The local zone is always UTC, so that the output does not depend on the host.

use std::rc::Rc;

use anabranch_record::clock;
use anabranch_record::text::Str;

use super::cast::{NoInteger, plain_integer};
use super::signature::function;
use super::{CallError, Function};
use crate::template::val::{Text, Time, Val, duration_text};

mod duration;
mod layout;
mod moment;
mod parse;

/// The layout of an HTML date input.
const HTML: &str = "2006-01-02";

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("now", () => Val::Time(Rc::new(now()))).impure(),
    function!("date", (layout: Text, date: Any) => try in_zone(layout, date, "Local")).impure(),
    function!("dateInZone", (layout: Text, date: Any, zone: Text) => try in_zone(layout, date, &zone.lossy())).impure(),
    function!("date_in_zone", (layout: Text, date: Any, zone: Text) => try {
        in_zone(layout, date, &zone.lossy())
    })
    .impure(),
    function!("htmlDate", (date: Any) => try in_zone(&HTML.into(), date, "Local")).impure(),
    function!("htmlDateInZone", (date: Any, zone: Text) => try in_zone(&HTML.into(), date, &zone.lossy())).impure(),
    function!("toDate", (layout: Text, text: Text) => {
        Val::Time(Rc::new(parse::parse(&layout.lossy(), &text.lossy()).unwrap_or_else(|_| moment::zero())))
    }),
    function!("mustToDate", (layout: Text, text: Text) => try to_date(&layout.lossy(), &text.lossy())),
    function!("dateModify", (by: Text, date: Time) => try {
        modified(by, date).map(|time| time.unwrap_or_else(|| Val::Time(date.clone())))
    }),
    function!("date_modify", (by: Text, date: Time) => try {
        modified(by, date).map(|time| time.unwrap_or_else(|| Val::Time(date.clone())))
    }),
    function!("mustDateModify", (by: Text, date: Time) => try must_modify(by, date)),
    function!("must_date_modify", (by: Text, date: Time) => try must_modify(by, date)),
    function!("unixEpoch", (date: Time) => date.at.timestamp().to_string()),
    function!("ago", (date: Any) => try ago(date)).impure(),
    function!("duration", (seconds: Any) => length_of_seconds(seconds)),
    function!("durationRound", (length: Any) => duration::rounded(match length {
        Val::Text(text) => duration::parse(&text.lossy()).unwrap_or(0),
        Val::Int64(nanoseconds) | Val::Duration(nanoseconds) => *nanoseconds,
        Val::Time(time) => nanoseconds_between(&now(), time),
        _ => 0,
    }))
    .impure(),
];

/// Returns the current time, in UTC.
fn now() -> Time {
    Time::utc(clock::now().into())
}

/// Formats a time with a Go layout, like the method `Format`.
pub(super) fn format(time: &Time, layout: &str) -> String {
    moment::format(time, layout)
}

/// Returns `true` if a text is a duration, such as `1h30m`.
pub fn is_duration(text: &str) -> bool {
    duration::parse(text).is_some()
}

/// Returns the reason why times cannot be converted to a zone, if they cannot.
pub fn unsupported_zone(name: &str) -> Option<String> {
    zone(name).err().map(|error| error.to_string())
}

/// Returns `true` if a layout contains an element of a time.
pub fn has_element(layout: &str) -> bool {
    layout::split(layout).is_some()
}

/// Formats a time for JSON; `None` for years that RFC 3339 does not support.
pub(super) fn rfc3339(time: &Time) -> Option<String> {
    use chrono::Datelike as _;
    (0..10_000).contains(&time.at.year()).then(|| format(time, "2006-01-02T15:04:05.999999999Z07:00"))
}

/// Converts a time or seconds since 1970 to a time; any other value is the current time.
fn moment_of(date: &Val) -> Result<Time, CallError> {
    match date {
        Val::Time(time) => Ok((**time).clone()),
        Val::Int(seconds) | Val::Int64(seconds) => moment::from_unix(*seconds)
            .ok_or_else(|| CallError::from(format!("{seconds} seconds since 1970 is not in the calendar"))),
        _ => Ok(now()),
    }
}

fn in_zone(layout: &Text, date: &Val, zone: &str) -> Result<String, CallError> {
    let (offset, name) = self::zone(zone)?;
    let instant = moment_of(date)?.at.to_utc();
    let time = moment::seen_at(instant, offset, name).ok_or("the time is not in the calendar")?;
    Ok(format(&time, &layout.lossy()))
}

/// Returns the offset and the abbreviation of a zone. An unknown name stands for UTC.
///
/// # Errors
/// The offset of the zone changes with the seasons: without its rules the result would be wrong.
fn zone(name: &str) -> Result<(i32, Option<Str>), CallError> {
    /// First parts of zone names with rules.
    const AREAS: &[&str] = &[
        "Africa",
        "America",
        "Antarctica",
        "Arctic",
        "Asia",
        "Atlantic",
        "Australia",
        "Brazil",
        "Canada",
        "Chile",
        "Europe",
        "Indian",
        "Mexico",
        "Pacific",
        "US",
    ];
    /// Zones with rules that have no area.
    const OTHERS: &[&str] = &[
        "CET",
        "CST6CDT",
        "Cuba",
        "EET",
        "EST5EDT",
        "Egypt",
        "Eire",
        "GB",
        "GB-Eire",
        "Hongkong",
        "Iceland",
        "Iran",
        "Israel",
        "Jamaica",
        "Japan",
        "Kwajalein",
        "Libya",
        "MET",
        "MST7MDT",
        "NZ",
        "NZ-CHAT",
        "Navajo",
        "PRC",
        "PST8PDT",
        "Poland",
        "Portugal",
        "ROC",
        "ROK",
        "Singapore",
        "Turkey",
        "W-SU",
        "WET",
    ];
    let utc = (0, Some(Str::from_static("UTC")));
    let fixed = |hours: i32, name: &'static str| Ok((hours * 3600, Some(Str::from_static(name))));
    let short = name.strip_prefix("Etc/").unwrap_or(name);
    match short {
        "GMT" | "GMT0" | "GMT+0" | "GMT-0" | "Greenwich" => return fixed(0, "GMT"),
        "EST" => return fixed(-5, "EST"),
        "MST" => return fixed(-7, "MST"),
        "HST" => return fixed(-10, "HST"),
        _ => {}
    }
    if short.len() < name.len()
        && let Some(hours) = short.strip_prefix("GMT").and_then(|hours| hours.parse::<i32>().ok())
        && (-14..=12).contains(&hours)
    {
        // These zones count westwards.
        return Ok((-hours * 3600, Some(format!("{:+03}", -hours).into())));
    }
    if name.starts_with(['+', '-']) {
        for layout in ["-07:00", "-0700", "-07"] {
            if let Ok(time) = parse::parse(layout, name) {
                return Ok((time.at.offset().local_minus_utc(), None));
            }
        }
    }
    let area = name.split_once('/').map(|(area, _)| area);
    if area.is_some_and(|area| AREAS.contains(&area)) || OTHERS.contains(&name) {
        return Err(format!(
            "the rules of the time zone {name} are unknown; use UTC or a fixed offset, for example +02:00"
        )
        .into());
    }
    Ok(utc)
}

fn to_date(layout: &str, text: &str) -> Result<Val, CallError> {
    parse::parse(layout, text)
        .map(|time| Val::Time(Rc::new(time)))
        .map_err(|reason| format!("{text:?} is not a date in the layout {layout:?}: {reason}").into())
}

/// Adds a duration to a date; `None` if `by` is not a duration.
fn modified(by: &Text, date: &Time) -> Result<Option<Val>, CallError> {
    let Some(nanoseconds) = duration::parse(&by.lossy()) else { return Ok(None) };
    let instant = date.at.to_utc().checked_add_signed(chrono::Duration::nanoseconds(nanoseconds));
    instant
        .and_then(|instant| moment::seen_at(instant, date.at.offset().local_minus_utc(), Some(date.zone.clone())))
        .map(|time| Some(Val::Time(Rc::new(time))))
        .ok_or_else(|| "the time is not in the calendar".into())
}

fn must_modify(by: &Text, date: &Time) -> Result<Val, CallError> {
    modified(by, date)?.ok_or_else(|| format!("{:?} is not a duration", by.lossy()).into())
}

/// Returns the time from `other` to `time`, saturating.
pub(super) fn nanoseconds_between(time: &Time, other: &Time) -> i64 {
    let between = time.at.signed_duration_since(other.at);
    let limit = if between < chrono::Duration::zero() { i64::MIN } else { i64::MAX };
    between.num_nanoseconds().unwrap_or(limit)
}

/// Returns `true` for the zero time.
pub(super) fn is_zero(time: &Time) -> bool {
    time.at == moment::zero().at
}

/// Returns the time since `date`, rounded to seconds.
fn ago(date: &Val) -> Result<String, CallError> {
    const SECOND: i64 = 1_000_000_000;
    let since = nanoseconds_between(&now(), &moment_of(date)?);
    let whole = since - since % SECOND;
    let carry = if (since % SECOND).abs() * 2 >= SECOND { SECOND * since.signum() } else { 0 };
    Ok(duration_text(whole.saturating_add(carry)))
}

/// Formats seconds, given as text or an `int64`; any other value counts as 0.
fn length_of_seconds(seconds: &Val) -> String {
    let seconds = match seconds {
        Val::Text(text) => match plain_integer(&text.lossy(), 10) {
            Ok(seconds) | Err(NoInteger::Range(seconds)) => seconds,
            Err(NoInteger::Syntax) => 0,
        },
        Val::Int64(seconds) => *seconds,
        _ => 0,
    };
    duration_text(seconds.wrapping_mul(1_000_000_000))
}
