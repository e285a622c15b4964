//! Times in a zone, and their formatting.

use std::fmt::Write as _;

use anabranch_record::text::Str;
use chrono::{DateTime, Datelike as _, FixedOffset, NaiveDateTime, Timelike as _, Utc};

use super::layout::{self, Element, OffsetStyle};
use crate::template::val::Time;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Full names of the months, January first.
pub(super) fn months() -> &'static [&'static str] {
    &MONTHS
}

/// Full names of the weekdays, Sunday first.
pub(super) fn weekdays() -> &'static [&'static str] {
    &WEEKDAYS
}

/// Converts a local time in a zone `offset` seconds east of UTC; `None` if the time or offset is out of range.
pub(super) fn from_local(local: NaiveDateTime, offset: i32, zone: Option<Str>) -> Option<Time> {
    let east = FixedOffset::east_opt(offset)?;
    let instant = local.checked_sub_offset(east)?;
    seen_at(instant.and_utc(), offset, zone)
}

/// Converts an instant to a zone `offset` seconds east of UTC.
pub(super) fn seen_at(instant: DateTime<Utc>, offset: i32, zone: Option<Str>) -> Option<Time> {
    let east = FixedOffset::east_opt(offset)?;
    instant.naive_utc().checked_add_offset(east)?;
    Some(Time { at: instant.with_timezone(&east), zone: zone.unwrap_or_else(|| nameless(offset)) })
}

/// Converts seconds since 1970 to a UTC time; `None` if out of range.
pub(super) fn from_unix(seconds: i64) -> Option<Time> {
    DateTime::from_timestamp(seconds, 0).map(Time::utc)
}

/// Returns the zero time: the beginning of the year 1.
pub(super) fn zero() -> Time {
    from_unix(-62_135_596_800).unwrap_or_else(|| Time::utc(DateTime::UNIX_EPOCH))
}

/// Returns the text that replaces the abbreviation of a zone without one.
fn nameless(offset: i32) -> Str {
    let mut name = String::new();
    write_offset(&mut name, offset, OffsetStyle { z: false, colon: false, parts: 2 });
    name.into()
}

/// Formats a time with `layout`. O(length of the layout).
pub(super) fn format(time: &Time, layout: &str) -> String {
    let clock = time.at.naive_local();
    let mut out = String::with_capacity(layout.len() + 10);
    let mut rest = layout;
    while let Some((literal, element, after)) = layout::split(rest) {
        out.push_str(literal);
        write_element(&mut out, time, clock, element);
        rest = after;
    }
    out.push_str(rest);
    out
}

fn write_element(out: &mut String, time: &Time, clock: NaiveDateTime, element: Element) {
    let hour12 = match clock.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    let padded_or_not = |out: &mut String, padded: bool, number: u32| {
        let width = if padded { 2 } else { 0 };
        write!(out, "{number:0width$}")
    };
    // Writing to a `String` cannot fail.
    let _ = match element {
        Element::Year if clock.year() < 0 => write!(out, "-{:04}", clock.year().unsigned_abs()),
        Element::Year => write!(out, "{:04}", clock.year()),
        Element::YearOfCentury => write!(out, "{:02}", clock.year().max(0) % 100),
        Element::MonthName { long } => out.write_str(name(&MONTHS, clock.month0(), long)),
        Element::Month { padded } => padded_or_not(out, padded, clock.month()),
        Element::Weekday { long } => out.write_str(name(&WEEKDAYS, clock.weekday().num_days_from_sunday(), long)),
        Element::Day => write!(out, "{}", clock.day()),
        Element::PaddedDay => write!(out, "{:02}", clock.day()),
        Element::SpacedDay => write!(out, "{:2}", clock.day()),
        Element::YearDay { spaced: true } => write!(out, "{:3}", clock.ordinal()),
        Element::YearDay { spaced: false } => write!(out, "{:03}", clock.ordinal()),
        Element::Hour => write!(out, "{:02}", clock.hour()),
        Element::Hour12 { padded } => padded_or_not(out, padded, hour12),
        Element::Minute { padded } => padded_or_not(out, padded, clock.minute()),
        Element::Second { padded } => padded_or_not(out, padded, clock.second()),
        Element::Half { upper } => out.write_str(match (upper, clock.hour() >= 12) {
            (true, true) => "PM",
            (true, false) => "AM",
            (false, true) => "pm",
            (false, false) => "am",
        }),
        Element::ZoneName => out.write_str(&time.zone),
        Element::Offset(style) => {
            write_offset(out, time.at.offset().local_minus_utc(), style);
            Ok(())
        }
        Element::Fraction { separator, digits, trimmed } => {
            write_fraction(out, clock.nanosecond() % 1_000_000_000, separator, digits, trimmed);
            Ok(())
        }
    };
}

fn name(names: &'static [&'static str], index: u32, long: bool) -> &'static str {
    let full = names.get(index as usize).copied().unwrap_or_default();
    if long { full } else { full.get(..3).unwrap_or(full) }
}

fn write_offset(out: &mut String, offset: i32, style: OffsetStyle) {
    if style.z && offset == 0 {
        out.push('Z');
        return;
    }
    // The sign is that of the whole minutes, so an offset of less than a minute has none.
    out.push(if offset / 60 < 0 { '-' } else { '+' });
    let seconds = offset.unsigned_abs();
    let parts = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    for (i, part) in parts.iter().take(style.parts.into()).enumerate() {
        if i > 0 && style.colon {
            out.push(':');
        }
        let _ = write!(out, "{part:02}");
    }
}

fn write_fraction(out: &mut String, nanoseconds: u32, separator: u8, digits: usize, trimmed: bool) {
    let all = format!("{nanoseconds:09}");
    let mut shown = &all[..digits.min(9)];
    if trimmed {
        shown = shown.trim_end_matches('0');
        if shown.is_empty() {
            return;
        }
    }
    out.push(char::from(separator));
    out.push_str(shown);
}
